"""A small tensor with torch's names, for the exercises that are written on a page. It is not torch.

It has shapes, strides, indices, float32 and the errors of torch for what these exercises use; it has no gradients, no
devices and no speed. It is plain Python that CPython and MicroPython read: MicroPython knows no starred displays,
``zip`` there takes no ``strict``, and ``0 < X`` does not reach X.
"""

import math
import random
import sys
from array import array
from collections import namedtuple

inf, nan, pi, e = float("inf"), float("nan"), math.pi, math.e
IS_MICROPYTHON = sys.implementation.name == "micropython"
INDICES = "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {})"
LACKING = "this page has no `{}`; in a notebook you have all of torch"


class dtype:
    """A type of numbers; of two types that meet, the one of higher rank wins."""

    def __init__(self, name, rank, word):
        self.name, self.rank, self.word, self.is_floating_point = name, rank, word, rank > 1

    def __repr__(self):
        return "torch." + self.name


bool_, int64 = dtype("bool", 0, "Bool"), dtype("int64", 1, "Long")
float32, float64 = dtype("float32", 2, "Float"), dtype("float64", 3, "Double")
Pair = namedtuple("max", ("values", "indices"))  # what torch gives for the largest numbers along an axis
DTYPES = {"bool": bool_, "int64": int64, "float32": float32, "float64": float64}


TOP = 3.4028234663852886e38
LIMITS = namedtuple("finfo", ("min", "max", "eps", "tiny"))(-TOP, TOP, 2.0**-23, 2.0**-126)  # of float32


def finfo(dtype=float32):
    return LIMITS


def _prod(sizes):
    return sizes[0] * _prod(sizes[1:]) if len(sizes) else 1


def _row_major(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _sizes(sizes, name="reshape", what="shape"):
    """Read sizes that are given one by one or in a list; refuse what is not whole."""
    if name == "reshape" and len(sizes) > 1 and isinstance(sizes[0], float):
        raise TypeError(f"reshape() takes 1 positional argument but {len(sizes)} were given")
    sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    sizes = [int(size) if isinstance(size, Tensor) else size for size in sizes]
    for at, size in enumerate(sizes):
        if not isinstance(size, int):
            found = f"found element of type {type(size).__name__} at pos {at}"
            raise TypeError(f"{name}(): argument '{what}' (position 1) must be tuple of ints, but {found}")
    return tuple(sizes)


def _axis(dim, count):
    """Count an axis from the front."""
    if not isinstance(dim, int):
        raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}")
    n = max(count, 1)
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim % n


def _axes(dim, count):
    if dim is None:
        return list(range(count))
    axes = [_axis(d, count) for d in (dim if isinstance(dim, (tuple, list)) else [dim])]
    return axes if count else []


def _filled(new, count):
    """Sizes with -1 replaced by what is left."""
    if len([size for size in new if size == -1]) > 1:
        raise RuntimeError("only one dimension can be inferred")
    known = _prod([size for size in new if size != -1])
    if min(new + (0,)) < -1 or (-1 in new and not known and not count):
        raise RuntimeError(f"cannot reshape a tensor of {count} elements into shape {list(new)}")
    if known != count if -1 not in new else not known or count % known:
        raise RuntimeError(f"shape '{list(new)}' is invalid for input of size {count}")
    return tuple([count // known if size == -1 else size for size in new])


def _strides_of_view(shape, strides, new):
    """Strides of a view, as ATen's computeStride finds them; None if the numbers would have to be copied."""
    if not _prod(shape) or not shape:
        return _row_major(new)
    found, at = [0] * len(new), len(new) - 1
    base, chunk, seen = strides[-1], 1, 1
    for d in range(len(shape) - 1, -1, -1):
        chunk *= shape[d]
        if d and (shape[d - 1] == 1 or strides[d - 1] == chunk * base):
            continue
        while at >= 0 and (seen < chunk or new[at] == 1):
            found[at] = seen * base
            seen *= new[at]
            at -= 1
        if seen != chunk:
            return None
        base, chunk, seen = strides[d - 1], 1, 1
    return tuple(found) if at == -1 else None


def _places(shape, strides, offset):
    """Where in memory the numbers lie, row by row."""
    places = [offset]
    for size, step in zip(shape, strides):
        places = [place + i * step for place in places for i in range(size)]
    return places


def _broadcast(first, second):
    n = max(len(first), len(second))
    a, b, joined = (1,) * (n - len(first)) + tuple(first), (1,) * (n - len(second)) + tuple(second), []
    for d in range(n - 1, -1, -1):
        if a[d] != b[d] and a[d] != 1 and b[d] != 1:
            sizes = f"The size of tensor a ({a[d]}) must match the size of tensor b ({b[d]})"
            raise RuntimeError(f"{sizes} at non-singleton dimension {d}")
        joined.append(b[d] if a[d] == 1 else a[d])
    return tuple(joined[::-1])


def _order_in_memory(shape, operands):
    """Axes from the slowest to the fastest, as torch's TensorIterator chooses them for what it makes of operands."""
    strides = [X.expand(shape)._strides for X in operands]
    order = list(range(len(shape)))[::-1]

    def compared(a, b):
        for steps in strides:
            if steps[a] and steps[b]:
                if steps[a] != steps[b] or shape[a] > shape[b]:
                    return steps[a] - steps[b] or 1
        return 0

    for at in range(1, len(shape)):
        for before in range(at - 1, -1, -1):
            sign = compared(order[before], order[at])
            if sign < 0:
                break
            if sign > 0:
                order[before], order[at] = order[at], order[before]
                at = before
    return order[::-1]


def _stored(numbers, kind):
    if kind is float32:
        return array("f", numbers)  # which rounds every number, as torch does
    if kind is float64:
        return [float(x) for x in numbers]
    return [bool(x) for x in numbers] if kind is bool_ else [int(x) for x in numbers]


def _made(numbers, shape, kind=float32):
    return Tensor(_stored(numbers, kind), tuple(shape), None, 0, kind)


def _made_like(numbers, shape, kind, operands):
    """A new tensor whose numbers are given row by row, and lie in memory as torch would lay them for these operands."""
    operands = [X for X in operands if isinstance(X, Tensor) and X.shape]
    if all([X.is_contiguous() for X in operands]):  # which a smaller one stays where it is repeated
        return _made(numbers, shape, kind)
    order = _order_in_memory(shape, operands)
    X = _made(numbers, shape, kind).permute(order)
    return _made(X._flat(), X.shape, kind).permute([order.index(d) for d in range(len(order))])


def _kind(x):
    return bool_ if isinstance(x, bool) else int64 if isinstance(x, int) else float32


def _joined(a, b):
    """The type of a result: a plain number, or a tensor without axes, widens only to another kind of number."""
    told = [(1 + bool(x.shape), x.dtype) if isinstance(x, Tensor) else (0, _kind(x)) for x in (a, b)]
    (weak, other), (strong, kind) = told if told[0][0] < told[1][0] else told[::-1]
    return other if other.rank > kind.rank and (weak == strong or kind.rank < 2) else kind


def _as(x):
    return x if isinstance(x, Tensor) else tensor(x)


def _combined(a, b, f, kind=_joined):
    if not isinstance(a, (Tensor, int, float)) or not isinstance(b, (Tensor, int, float)):
        return NotImplemented
    A, B = _as(a), _as(b)
    shape = _broadcast(A.shape, B.shape)
    kind = kind if isinstance(kind, dtype) else kind(a, b)
    pairs = zip(A.expand(shape)._flat(), B.expand(shape)._flat())
    return _made_like([f(x, y) for x, y in pairs], shape, kind, [a, b])


def _divided(x, y):
    if y:
        return x / y
    return nan if x == 0 or x != x else math.copysign(inf, x) * math.copysign(1.0, y)


def _power(x, y):
    try:
        return x**y if x >= 0 or y == int(y) else nan
    except (ZeroDivisionError, OverflowError, ValueError):
        return inf


def _exp(x):
    return inf if x > 709 else math.exp(x)


def _largest(row):
    for x in row:
        if x != x:
            return x
    return max(row)


def _softmax(row):
    top = _largest(row) if len(row) else 0
    terms = [_exp(x - top) for x in row] if abs(top) < inf else [nan] * len(row)
    total = sum(terms)
    return [x / total for x in terms]


class Cut:
    """Makes slices where the name ``slice`` cannot be called, as in MicroPython."""

    def __getitem__(self, key):
        return key


ALL = Cut()[:]


class Tensor:
    """Numbers in memory, with a shape and the steps in memory along each axis."""

    def __init__(self, numbers, shape, strides=None, offset=0, kind=float32):
        self._numbers, self.shape, self._offset, self.dtype = numbers, shape, offset, kind
        self._strides = _row_major(shape) if strides is None else strides
        self.device, self.requires_grad, self.ndim = "cpu", False, len(shape)

    def _flat(self):
        """All numbers, row by row."""
        numbers = self._numbers
        if self._offset == 0 and len(numbers) == _prod(self.shape) and self._strides == _row_major(self.shape):
            return numbers
        return [numbers[place] for place in _places(self.shape, self._strides, self._offset)]

    def dim(self):
        return self.ndim

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[_axis(dim, self.ndim)]

    def numel(self):
        return _prod(self.shape)

    def item(self):
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self._flat()[0]

    def tolist(self):
        rows = list(self._flat())
        for d in range(self.ndim - 1, -1, -1):
            n = self.shape[d]
            rows = [rows[i * n : i * n + n] for i in range(_prod(self.shape[:d]))]
        return rows[0]

    def __len__(self):
        return self.shape[0]

    def __iter__(self):
        return iter(self.unbind())

    def __bool__(self):
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def __int__(self):
        return int(self.item())

    if not IS_MICROPYTHON:  # which would compute 2.0 * X with it

        def __float__(self):
            return float(self.item())

    def __index__(self):
        if self.numel() != 1 or self.dtype.rank > 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __repr__(self):
        def written(x, depth):
            if isinstance(x, list):
                gap = ",\n" + " " * (8 + depth) if x and isinstance(x[0], list) else ", "
                return "[" + gap.join([written(part, depth + 1) for part in x]) + "]"
            return f"{x:.4f}" if isinstance(x, float) else str(x)

        return "tensor(" + written(self.tolist(), 0) + ")"

    def to(self, *kinds, **named):
        for kind in list(kinds) + list(named.values()):
            kind = kind.dtype if isinstance(kind, Tensor) else kind
            if isinstance(kind, dtype) and kind is not self.dtype:
                return _made_like(self._flat(), self.shape, kind, [self])
        return self

    def float(self):
        return self.to(float32)

    def long(self):
        return self.to(int64)

    def bool(self):
        return self.to(bool_)

    def detach(self):
        return self

    def clone(self):
        return _made_like(self._flat(), self.shape, self.dtype, [self])

    def is_contiguous(self):
        steps = zip(self.shape, self._strides, _row_major(self.shape))
        return not self.numel() or all([size == 1 or own == wanted for size, own, wanted in steps])

    def contiguous(self):
        return self if self.is_contiguous() else _made(self._flat(), self.shape, self.dtype)

    def _strided(self, shape, strides, offset=None):
        offset = self._offset if offset is None else offset
        return Tensor(self._numbers, tuple(shape), tuple(strides), offset, self.dtype)

    def view(self, *shape):
        new = _filled(_sizes(shape, "view", "size"), self.numel())
        strides = _strides_of_view(self.shape, self._strides, new)
        if strides is None:
            why = "(at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead."
            raise RuntimeError("view size is not compatible with input tensor's size and stride " + why)
        return self._strided(new, strides)

    def reshape(self, *shape):
        new = _filled(_sizes(shape), self.numel())
        strides = _strides_of_view(self.shape, self._strides, new)
        return _made(self._flat(), new, self.dtype) if strides is None else self._strided(new, strides)

    def permute(self, *dims):
        dims = [_axis(d, self.ndim) for d in _sizes(dims, "permute", "dims")]
        if sorted(dims) != list(range(self.ndim)):
            raise RuntimeError(f"permute(): each of the {self.ndim} axes must be there once; got {dims}")
        return self._strided([self.shape[d] for d in dims], [self._strides[d] for d in dims])

    def transpose(self, dim0, dim1):
        order = list(range(self.ndim))
        a, b = _axis(dim0, self.ndim), _axis(dim1, self.ndim)
        order[a : a + 1], order[b : b + 1] = order[b : b + 1], order[a : a + 1]
        return self.permute(order)

    def t(self):
        return self.transpose(0, 1)

    @property
    def T(self):
        return self.permute(list(range(self.ndim))[::-1])

    @property
    def mT(self):
        if self.ndim < 2:
            raise RuntimeError(
                f"tensor.mT is only supported on matrices or batches of matrices. Got {self.ndim}-D tensor."
            )
        return self.transpose(-2, -1)

    def movedim(self, source, destination):
        order = [d for d in range(self.ndim) if d != _axis(source, self.ndim)]
        order.insert(_axis(destination, self.ndim), _axis(source, self.ndim))
        return self.permute(order)

    def unflatten(self, dim, sizes):
        d, new = _axis(dim, self.ndim), _sizes((sizes,), "unflatten", "sizes")
        n, known = self.shape[d], _prod([size for size in new if size != -1])
        if known != n if -1 not in new else not known or n % known:
            wrong = f"Provided sizes {list(new)} don't multiply up to the size of dim {d} ({n}) in the input tensor"
            raise RuntimeError(f"unflatten: {wrong}")
        return self.view(self.shape[:d] + _filled(new, n) + self.shape[d + 1 :])

    def flatten(self, start_dim=0, end_dim=-1):
        n = self.ndim
        a, b = _axis(start_dim, n), _axis(end_dim, n)
        if a > b:
            raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
        return self.reshape(self.shape[:a] + (_prod(self.shape[a : b + 1]),) + self.shape[b + 1 :])

    def unsqueeze(self, dim):
        d = _axis(dim, self.ndim + 1)
        step = self.shape[d] * self._strides[d] if d < self.ndim else 1
        return self._strided(self.shape[:d] + (1,) + self.shape[d:], self._strides[:d] + (step,) + self._strides[d:])

    def squeeze(self, dim=None):
        axes = _axes(dim, self.ndim)
        kept = [d for d, size in enumerate(self.shape) if size != 1 or d not in axes]
        return self._strided([self.shape[d] for d in kept], [self._strides[d] for d in kept])

    def expand(self, *sizes):
        new, old = _sizes(sizes, "expand", "size"), self.shape
        lead, shape, strides = len(new) - len(old), [], []
        if lead < 0:
            raise RuntimeError(f"expand: {len(new)} sizes are too few for a tensor with {len(old)} axes")
        for d, wanted in enumerate(new):
            size, step = (old[d - lead], self._strides[d - lead]) if d >= lead else (1, 0)
            wanted = size if wanted == -1 and d >= lead else wanted
            if size not in (wanted, 1):
                told = f"The expanded size of the tensor ({wanted}) must match the existing size ({size})"
                sizes = f"Target sizes: {list(new)}.  Tensor sizes: {list(old)}"
                raise RuntimeError(f"{told} at non-singleton dimension {d}.  {sizes}")
            shape.append(wanted)
            strides.append(step if size == wanted else 0)
        return self._strided(shape, strides)

    def expand_as(self, other):
        return self.expand(other.shape)

    def repeat(self, *times):
        times = _sizes(times, "repeat", "repeats")
        if len(times) < self.ndim:
            raise RuntimeError(f"repeat needs a number for each of the {self.ndim} axes; got {len(times)}")
        X = self.reshape((1,) * (len(times) - self.ndim) + self.shape)
        for d, count in enumerate(times):
            X = cat([X] * count, d)
        return X

    def repeat_interleave(self, repeats, dim=None):
        X, d = (self.flatten(), 0) if dim is None else (self, _axis(dim, self.ndim))
        counts = repeats.tolist() if isinstance(repeats, Tensor) else [repeats] * X.shape[d]
        return X.index_select(d, [i for i, count in enumerate(counts) for _ in range(count)])

    def index_select(self, dim, index):
        return self[(ALL,) * _axis(dim, self.ndim) + (index,)]

    def narrow(self, dim, start, length):
        d = _axis(dim, self.ndim)
        shape = self.shape[:d] + (length,) + self.shape[d + 1 :]
        return self._strided(shape, self._strides, self._offset + start * self._strides[d])

    def split(self, size, dim=0):
        d = _axis(dim, self.ndim)
        n = self.shape[d]
        if not isinstance(size, (int, list, tuple)):
            told = f"must be tuple of ints, not {type(size).__name__}"
            raise TypeError(f"split_with_sizes(): argument 'split_sizes' (position 1) {told}")
        sizes = [min(size, n - i) for i in range(0, max(n, 1), size)] if isinstance(size, int) else list(size)
        if sum(sizes) != n:
            raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {n}, but got {sizes}")
        return tuple([self.narrow(d, sum(sizes[:i]), length) for i, length in enumerate(sizes)])

    def chunk(self, chunks, dim=0):
        return self.split(max(-(-self.shape[_axis(dim, self.ndim)] // chunks), 1), dim)

    def unbind(self, dim=0):
        d = _axis(dim, self.ndim)
        return tuple([self.select(d, i) for i in range(self.shape[d])])

    def flip(self, *dims):
        X = self
        for d in _sizes(dims, "flip", "dims"):
            X = X.index_select(d, list(range(X.shape[d]))[::-1])
        return _made_like(X._flat(), self.shape, self.dtype, [self])

    def roll(self, shifts, dims):
        n = self.shape[_axis(dims, self.ndim)]
        return self.index_select(dims, [(i - shifts) % n for i in range(n)])

    def _whole_key(self, key):
        """The parts of a key, with ``...`` written out, and a Boolean mask as the places where it is true."""
        parts = []
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, Tensor) and part.dtype is bool_ and part.shape:
                here = self.shape[len([p for p in parts if p is not None]) :][: len(part.shape)]
                if part.shape != here:
                    told = f"The shape of the mask {list(part.shape)} at index 0 does not match the shape"
                    raise IndexError(f"{told} of the indexed tensor {list(self.shape)} at index {len(parts)}")
                parts += list(part.nonzero().unbind(1))
            else:
                is_whole = isinstance(part, Tensor) and part.dtype is int64 and not part.shape
                parts.append(part.item() if is_whole else part)
        count = len([part for part in parts if part is not None and part is not Ellipsis])
        if count > self.ndim:
            raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
        at = [i for i, part in enumerate(parts) if part is Ellipsis] or [len(parts)]
        return parts[: at[0]] + [ALL] * (self.ndim - count) + parts[at[0] + 1 :]

    def _indexed(self, key):
        """Shape, strides and offset of what whole numbers, slices and None pick; and lists of places, by axis."""
        shape, strides, offset, d, lists = [], [], self._offset, 0, {}
        for at, part in enumerate(self._whole_key(key)):
            if part is None:
                shape.append(1)
                strides.append(self.shape[d] * self._strides[d] if d < self.ndim else 1)
                continue
            n, step = self.shape[d], self._strides[d]
            d += 1
            if isinstance(part, int):
                if not -n <= part < n:
                    raise IndexError(f"index {part} is out of bounds for dimension {at} with size {n}")
                offset += part % n * step
                continue
            if isinstance(part, type(ALL)):
                if (part.step or 1) < 0:
                    raise ValueError("step must be greater than zero")
                start, stop, jump = part.indices(n)
                n, step, offset = max(-(-(stop - start) // jump), 0), step * jump, offset + start * step
            elif isinstance(part, (list, range, Tensor)):
                lists[len(shape)] = _as(list(part) if isinstance(part, range) else part)
                if lists[len(shape)].dtype.rank > 1 and lists[len(shape)].numel():
                    raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
            else:
                kind = IndexError if isinstance(part, float) else TypeError
                raise kind(INDICES.format(type(part).__name__))
            shape.append(n)
            strides.append(step)
        return shape, strides, offset, lists

    def _picked(self, key):
        """The shape of what a key with lists picks, and where in memory its numbers lie."""
        shape, strides, offset, lists = self._indexed(key)
        axes, common = sorted(lists), ()
        for a in axes:
            common = _broadcast(common, lists[a].shape)
        rows = [lists[a].expand(common)._flat() for a in axes]
        first = axes[0] if all([b == a + 1 for a, b in zip(axes, axes[1:])]) else 0
        before = [d for d in range(len(shape)) if d not in axes and d < first]
        after = [d for d in range(len(shape)) if d not in axes and d >= first]
        middle = []
        for i in range(_prod(common)):
            place = 0
            for a, row in zip(axes, rows):
                if not -shape[a] <= row[i] < shape[a]:
                    raise IndexError(f"index {row[i]} is out of bounds for dimension {a} with size {shape[a]}")
                place += row[i] % shape[a] * strides[a]
            middle.append(place)
        places = _places([shape[d] for d in before], [strides[d] for d in before], offset)
        places = [place + more for place in places for more in middle]
        for d in after:
            places = [place + i * strides[d] for place in places for i in range(shape[d])]
        return tuple([shape[d] for d in before]) + common + tuple([shape[d] for d in after]), places

    def __getitem__(self, key):
        shape, strides, offset, lists = self._indexed(key)
        if not lists:
            return self._strided(shape, strides, offset)
        shape, places = self._picked(key)
        return _made([self._numbers[place] for place in places], shape, self.dtype)

    def __setitem__(self, key, value):
        shape, strides, offset, lists = self._indexed(key)
        shape, places = self._picked(key) if lists else (tuple(shape), _places(shape, strides, offset))
        self._write(places, _as(value).expand(shape)._flat())

    def _write(self, places, numbers):
        for place, x in zip(places, _stored(numbers, self.dtype)):
            self._numbers[place] = x

    def _become(self, other):
        """Write the numbers of another tensor into this one's memory."""
        if self.dtype.rank < min(other.dtype.rank, 2):
            kinds = f"result type {other.dtype.word} can't be cast to the desired output type {self.dtype.word}"
            raise RuntimeError(kinds)
        if _broadcast(self.shape, other.shape) != self.shape:
            told = f"output with shape {list(self.shape)} doesn't match the broadcast shape {list(other.shape)}"
            raise RuntimeError(told)
        self._write(_places(self.shape, self._strides, self._offset), other.expand(self.shape)._flat())
        return self

    def _each(self, f, kind=None):
        return _made_like([f(x) for x in self._flat()], self.shape, kind or self.dtype, [self])

    def _rows(self, axes):
        """Lists of the numbers along these axes, one for each place of the others."""
        rest = [d for d in range(self.ndim) if d not in axes]
        n, flat = _prod([self.shape[d] for d in axes]), self.permute(rest + list(axes))._flat()
        return [flat[i * n : i * n + n] for i in range(_prod([self.shape[d] for d in rest]))]

    def _reduced(self, f, dim, keepdim, kind=None):
        axes = _axes(dim, self.ndim)
        kept = [1 if d in axes else size for d, size in enumerate(self.shape) if keepdim or d not in axes]
        return _made([f(row) for row in self._rows(axes)], kept, kind or self.dtype)

    def _along(self, f, dim, kind=None):
        """A tensor of the same shape, in which each row along an axis has become another."""
        d = _axis(dim, self.ndim)
        order = [k for k in range(self.ndim) if k != d] + [d] * (self.ndim > 0)
        numbers = [x for row in self._rows(order[-1:]) for x in f(row)]
        X = _made(numbers, [self.shape[k] for k in order], kind or self.dtype)
        return X.permute([order.index(k) for k in range(len(order))]).contiguous()

    def sum(self, dim=None, keepdim=False, axis=None):
        return self._reduced(sum, axis if dim is None else dim, keepdim, self.dtype if self.dtype.rank > 1 else int64)

    def mean(self, dim=None, keepdim=False, axis=None):
        if self.dtype.rank < 2:
            told = "Input dtype must be either a floating point or complex dtype."
            raise RuntimeError(f"mean(): could not infer output dtype. {told} Got: {self.dtype.word}")
        return self._reduced(lambda row: _divided(sum(row), len(row)), axis if dim is None else dim, keepdim)

    def any(self, dim=None, keepdim=False):
        return self._reduced(any, dim, keepdim, bool_)

    def all(self, dim=None, keepdim=False):
        return self._reduced(all, dim, keepdim, bool_)

    def amax(self, dim=None, keepdim=False):
        return self._reduced(_largest, dim, keepdim)

    def amin(self, dim=None, keepdim=False):
        return -(-self).amax(dim, keepdim)

    def max(self, dim=None, keepdim=False):
        places = self._reduced(lambda row: list(row).index(_largest(row)), dim, keepdim, int64)
        return self.amax() if dim is None else Pair(self.amax(dim, keepdim), places)

    def min(self):
        return self.amin()

    def nonzero(self):
        n, found = self.ndim, []
        for i, x in enumerate(self._flat()):
            found += [i // step % size for step, size in zip(_row_major(self.shape), self.shape)] if x else []
        return _made(found, (len(found) // max(n, 1), n), int64)

    def softmax(self, dim, dtype=None):
        if self.dtype.rank < 2:
            raise NotImplementedError(f"\"softmax_lastdim_kernel_impl\" not implemented for '{self.dtype.word}'")
        return self._along(_softmax, dim, dtype)

    def masked_fill(self, mask, value):
        if mask.dtype is not bool_:
            kind = {"Long": "long int"}.get(mask.dtype.word, mask.dtype.word.lower())
            raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {kind}")
        value = value.item() if isinstance(value, Tensor) else value
        return _combined(mask, self, lambda masked, x: value if masked else x, self.dtype).contiguous()

    def nan_to_num(self, nan=0.0, posinf=LIMITS.max, neginf=LIMITS.min):
        return self._each(lambda x: nan if x != x else posinf if x == inf else neginf if x == -inf else x)

    def clamp(self, min=None, max=None):
        X = self if min is None else self.maximum(min)
        return X if max is None else X.minimum(max)

    def where(self, condition, other):
        return where(condition, self, other)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith("_") and hasattr(Tensor, name[:-1]):
            return lambda *given, **named: self._become(getattr(self, name[:-1])(*given, **named))
        raise AttributeError(LACKING.format(name))


EACH = {  # name → what it makes of one number, and the type of the result: None for the tensor's own
    "abs": (abs, None),
    "neg": (lambda x: -x, None),
    "square": (lambda x: x * x, None),
    "relu": (lambda x: x if x > 0 or x != x else 0, None),
    "exp": (_exp, float32),
    "sigmoid": (lambda x: 1 / (1 + _exp(-x)), float32),
    "log": (lambda x: -inf if x == 0 else nan if x < 0 or x != x else x if x == inf else math.log(x), float32),
    "sqrt": (lambda x: math.sqrt(x) if x >= 0 else nan, float32),
    "reciprocal": (lambda x: _divided(1.0, x), float32),
    "isnan": (lambda x: x != x, bool_),
    "isinf": (lambda x: abs(x) == inf, bool_),
    "isfinite": (lambda x: abs(x) < inf, bool_),
    "logical_not": (lambda x: not x, bool_),
}
OF_TWO = {  # name → what it makes of two numbers, and the type of the result
    "add": (lambda x, y: x + y, _joined),
    "sub": (lambda x, y: x - y, _joined),
    "mul": (lambda x, y: x * y, _joined),
    "truediv": (_divided, lambda a, b: _joined(a, b) if _joined(a, b).rank > 1 else float32),
    "floordiv": (lambda x, y: x // y, _joined),
    "mod": (lambda x, y: x % y, _joined),
    "pow": (_power, _joined),
    "and": (lambda x, y: x & y, _joined),
    "or": (lambda x, y: x | y, _joined),
    "lt": (lambda x, y: x < y, bool_),
    "le": (lambda x, y: x <= y, bool_),
    "gt": (lambda x, y: x > y, bool_),
    "ge": (lambda x, y: x >= y, bool_),
    "eq": (lambda x, y: x == y, bool_),
    "ne": (lambda x, y: x != y, bool_),
    "maximum": (lambda x, y: x if x >= y or x != x else y, _joined),
    "minimum": (lambda x, y: x if x <= y or x != x else y, _joined),
}
ALIASES = {"swapaxes": "transpose", "swapdims": "transpose", "moveaxis": "movedim", "select": "index_select"}
ALIASES.update({"int": "long", "clip": "clamp", "clamp_min": "clamp", "broadcast_to": "expand"})
OTHER_NAMES = {"truediv": "div", "and": "logical_and", "or": "logical_or"}


def _give_operators():
    """Give Tensor a method for each of these, and for those of two numbers Python's operators."""

    def of_one(f, kind):
        return lambda self: self._each(f, self.dtype if kind is float32 and self.dtype.rank > 1 else kind)

    def of_two(name, f, kind):
        def first(self, other):
            if name == "sub" and bool_ in (getattr(self, "dtype", None), getattr(other, "dtype", None)):
                instead = "If you are trying to invert a mask, use the `~` or `logical_not()` operator instead."
                raise RuntimeError(f"Subtraction, the `-` operator, with a bool tensor is not supported. {instead}")
            return _combined(self, other, f, kind)

        def in_place(self, other):
            made = first(self, other)
            return made if made is NotImplemented else self._become(made)

        return first, lambda self, other: first(other, self), in_place

    for name, (f, kind) in EACH.items():
        setattr(Tensor, name, of_one(f, kind))
    for name, (f, kind) in OF_TWO.items():
        first, second, in_place = of_two(name, f, kind)
        setattr(Tensor, OTHER_NAMES.get(name, name), first)
        setattr(Tensor, "__" + name + "__", first)
        if not isinstance(kind, dtype):
            setattr(Tensor, "__r" + name + "__", second)
            setattr(Tensor, "__i" + name + "__", in_place)
    Tensor.__neg__, Tensor.__abs__, Tensor.bmm = Tensor.neg, Tensor.abs, bmm
    Tensor.__invert__ = lambda self: self._each((lambda x: not x) if self.dtype is bool_ else (lambda x: ~x))
    Tensor.__matmul__ = Tensor.matmul = matmul
    for name, own in ALIASES.items():
        setattr(Tensor, name, getattr(Tensor, own))


def tensor(data, dtype=None, device=None):
    """A tensor of the numbers in nested lists."""
    if isinstance(data, Tensor):
        return data.clone().to(dtype)
    shape, flat, first = [], [data], data
    while isinstance(first, (list, tuple, range)):
        for row in flat:
            got = len(row) if isinstance(row, (list, tuple, range)) else 0
            if got != len(first):
                raise ValueError(f"expected sequence of length {len(first)} at dim {len(shape)} (got {got})")
        shape.append(len(first))
        flat = [part for row in flat for part in row]
        first = flat[0] if flat else None
    flat = [x.item() if isinstance(x, Tensor) else x for x in flat]
    ranks = [_kind(x).rank for x in flat] or [2]
    return _made(flat, shape, dtype or (bool_, int64, float32)[max(ranks)])


def full(size, fill_value, dtype=None, device=None):
    size = _sizes((size,), "full", "size")
    return _made([fill_value] * _prod(size), size, dtype or _kind(fill_value))


def zeros(*size, dtype=None, device=None):
    return full(_sizes(size, "zeros", "size"), 0.0, dtype)


def ones(*size, dtype=None, device=None):
    return full(_sizes(size, "ones", "size"), 1.0, dtype)


empty, as_tensor = zeros, tensor


def zeros_like(X, dtype=None):
    return full(X.shape, 0, dtype or X.dtype)


def ones_like(X, dtype=None):
    return full(X.shape, 1, dtype or X.dtype)


def full_like(X, fill_value):
    return full(X.shape, fill_value, X.dtype)


def arange(start, end=None, step=1, dtype=None, device=None):
    start, end = (0, start) if end is None else (start, end)
    start, end = [x.item() if isinstance(x, Tensor) else x for x in (start, end)]
    numbers = [start + i * step for i in range(max(math.ceil((end - start) / step), 0))]
    whole = isinstance(start, int) and isinstance(end, int) and isinstance(step, int)
    return _made(numbers, (len(numbers),), dtype or (int64 if whole else float32))


def cat(tensors, dim=0):
    parts = list(tensors)
    shape = parts[0].shape
    d, kind, rows = _axis(dim, len(shape)), parts[0].dtype, []
    for at, X in enumerate(parts):
        if len(X.shape) != len(shape) or not shape:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {len(shape)} and {len(X.shape)}")
        for k, size in enumerate(shape):
            if k != d and X.shape[k] != size:
                told = f"Expected size {size} but got size {X.shape[k]} for tensor number {at} in the list."
                raise RuntimeError(f"Sizes of tensors must match except in dimension {d}. {told}")
        kind = X.dtype if X.dtype.rank > kind.rank else kind
    lists = [(X._flat(), _prod(X.shape[d:])) for X in parts]
    for i in range(_prod(shape[:d])):
        for flat, n in lists:
            rows += list(flat[i * n : i * n + n])
    return _made(rows, shape[:d] + (sum([X.shape[d] for X in parts]),) + shape[d + 1 :], kind)


concat = concatenate = cat


def stack(tensors, dim=0):
    parts = list(tensors)
    for at, X in enumerate(parts):
        if X.shape != parts[0].shape:
            told = f"but got {list(parts[0].shape)} at entry 0 and {list(X.shape)} at entry {at}"
            raise RuntimeError(f"stack expects each tensor to be equal size, {told}")
    d = _axis(dim, parts[0].ndim + 1)
    return cat([X.unsqueeze(d) for X in parts], d)


def where(condition, input, other):
    shape = _broadcast(_broadcast(condition.shape, _as(input).shape), _as(other).shape)
    tensors = [X for X in (input, other) if isinstance(X, Tensor)]
    kind = _joined(input, other) if len(tensors) != 1 else _joined(tensors[0], other if tensors[0] is input else input)
    columns = [_as(X).expand(shape)._flat() for X in (condition, input, other)]
    chosen = [x if yes else y for yes, x, y in zip(*columns)]
    return _made_like(chosen, shape, kind, [condition, input, other])


def _products(A, B, count, n, k, m):
    """The numbers of ``count`` products of matrices (n, k) and (k, m)."""
    a, b, found = A._flat(), B._flat(), []
    for z in range(count):
        columns = [[b[(z * k + q) * m + j] for q in range(k)] for j in range(m)]
        for i in range(n):
            row = list(a[(z * n + i) * k : (z * n + i + 1) * k])
            for column in columns:
                total = 0.0
                for q in range(k):  # in MicroPython, less than half the time of a sum over zip
                    total += row[q] * column[q]
                found.append(total)
    return found


def matmul(A, B):
    if not isinstance(A, Tensor) or not isinstance(B, Tensor):
        raise TypeError(f"unsupported operand type(s) for @: '{type(A).__name__}' and '{type(B).__name__}'")
    if not A.shape or not B.shape:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {A.ndim}D and {B.ndim}D")
    if A.dtype is not B.dtype:
        a, b = [{"Long": "long long"}.get(X.dtype.word, X.dtype.word.lower()) for X in (A, B)]
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a} != {b}")
    if len(A.shape) == 1:
        return matmul(A[None], B).squeeze(-1 if len(B.shape) == 1 else -2)
    rows, k = _prod(A.shape[:-1]), A.shape[-1]
    if len(B.shape) == 1:
        if k != B.shape[0]:
            raise RuntimeError(f"size mismatch, got input ({rows}), mat ({rows}x{k}), vec ({B.shape[0]})")
        return matmul(A, B[:, None]).squeeze(-1)
    n, m = A.shape[-2], B.shape[-1]
    folds = len(B.shape) == 2 and _strides_of_view(A.shape, A._strides, (rows, k)) is not None
    if k != B.shape[-2] and (folds or len(A.shape) == 2):
        sizes = f"{rows}x{k} and {B.shape[-2]}x{m}"
        if len(B.shape) > 2:  # then torch folds B, and multiplies the other way round
            sizes = f"{_prod(B.shape[:-2]) * m}x{B.shape[-2]} and {k}x{n}"
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({sizes})")
    batch = _broadcast(A.shape[:-2], B.shape[:-2])
    count = _prod(batch)
    if k != B.shape[-2]:
        sizes = f"[{count}, {k}] but got: [{count}, {B.shape[-2]}]."
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: {sizes}")
    if len(B.shape) == 2:
        count, n = 1, rows
    else:
        A, B = A.expand(batch + A.shape[-2:]), B.expand(batch + B.shape[-2:])
    return _made(_products(A, B, count, n, k, m), batch + (A.shape[-2], m), A.dtype)


def bmm(A, B):
    for at, X in ((1, A), (2, B)):
        if len(X.shape) != 3:
            raise RuntimeError(f"batch{at} must be a 3D tensor")
    if B.shape[0] != A.shape[0] or B.shape[1] != A.shape[2]:
        sizes = f"[{A.shape[0]}, {A.shape[2]}] but got: [{B.shape[0]}, {B.shape[1]}]."
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: {sizes}")
    return matmul(A, B)


def einsum(equation, *operands):
    """A sum over letters; each letter once in a term, and no ``...``."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms, sizes, product = left.split(","), {}, None
    if "." in equation or not arrow or any([len(set(term)) < len(term) for term in terms]):
        raise RuntimeError(LACKING.format(f'einsum("{equation}")'))
    for term, X in zip(terms, operands):
        for letter, size in zip(term, X.shape):
            if sizes.get(letter, size) != size:
                told = f"which does not broadcast with previously seen size {sizes[letter]}"
                raise RuntimeError(f"einsum(): subscript {letter} has size {size} for operand {told}")
            sizes[letter] = size
    letters = list(out) + [letter for letter in sizes if letter not in out]
    for term, X in zip(terms, operands):
        spread = X.permute([term.index(letter) for letter in letters if letter in term])
        spread = spread[tuple([ALL if letter in term else None for letter in letters])]
        product = spread if product is None else product * spread
    return product.sum(list(range(len(out), len(letters)))) if len(letters) > len(out) else product.contiguous()


def normalize(X, p=2.0, dim=1):
    return X / ((X.abs() ** p).sum(dim, keepdim=True) ** (1 / p)).clamp(min=1e-12)


def linear(X, W, b=None):
    return X @ W.T if b is None else X @ W.T + b


def dropout(X, p=0.5, training=True):
    return X._each(lambda x: x / (1 - p) if random.random() >= p else 0) if training else X


class Module:
    """A part of a network: called, it computes what its ``forward`` does."""

    def __init__(self):
        object.__setattr__(self, "training", True)

    def __setattr__(self, name, value):
        if isinstance(value, Module) and not hasattr(self, "training"):
            raise AttributeError("cannot assign module before Module.__init__() call")
        object.__setattr__(self, name, value)

    def __call__(self, *given, **named):
        return self.forward(*given, **named)

    def train(self, mode=True):
        self.training = mode
        for part in self.__dict__.values():
            if isinstance(part, Module):
                part.train(mode)
        return self

    def eval(self):
        return self.train(False)


class Linear(Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        numbers = [random.random() - 0.5 for _ in range(in_features * out_features)]
        self.weight, self.bias = _made(numbers, (out_features, in_features)), zeros(out_features) if bias else None

    def forward(self, X):
        return linear(X, self.weight, self.bias)


class Dropout(Module):
    def __init__(self, p=0.5):
        super().__init__()
        self.p = p

    def forward(self, X):
        return dropout(X, self.p, self.training)


class Space:
    """A module such as ``torch``: names, and where they are missing the tensor's methods as functions."""

    def __init__(self, names, methods=()):
        self._methods = methods
        for name, value in names.items():
            setattr(self, name, value)

    def __getattr__(self, name):
        if name.startswith("__") or name == "_methods":
            raise AttributeError(name)
        if hasattr(Tensor, name) and (not self._methods or name in self._methods):
            return lambda X, *given, **named: getattr(X, name)(*given, **named)
        raise AttributeError(LACKING.format(name))


_give_operators()
F = Space({"linear": linear, "normalize": normalize, "dropout": dropout}, ("softmax", "relu"))
nn = Space({"functional": F, "Module": Module, "Linear": Linear, "Dropout": Dropout}, ("nothing",))
NOT_TORCH = "math random sys array namedtuple ALL EACH OF_TWO ALIASES OTHER_NAMES F Space Cut TOP LIMITS".split()
NOT_TORCH += ["Module", "Linear", "Dropout"]
torch = Space({name: value for name, value in globals().items() if name[0] != "_" and name not in NOT_TORCH})
torch.bool, torch.float, torch.int, torch.long, torch.double = bool_, float32, int64, int64, float64
