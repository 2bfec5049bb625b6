"""A small tensor with torch's names, for the exercises that are written on a page. It is not torch.

It has shapes, strides, indices, float32 and the errors of torch for what these exercises use; it has no gradients, no
devices and no speed. It is plain Python that CPython and MicroPython read: MicroPython knows no starred displays,
``zip`` there takes no ``strict``, and ``0 < X`` does not reach X.
"""

import math
import sys
from array import array

inf, nan, pi, e = float("inf"), float("nan"), math.pi, math.e
IS_MICROPYTHON = sys.implementation.name == "micropython"
LACKING = "this page has no `{}`; in a notebook you have all of torch"


class dtype:
    """A type of numbers; of two types that meet, the one of higher rank wins."""

    def __init__(self, name, rank, word):
        self.name, self.rank, self.word, self.is_floating_point = name, rank, word, rank > 1

    def __repr__(self):
        return "torch." + self.name


bool_, int64 = dtype("bool", 0, "Bool"), dtype("int64", 1, "Long")
float32, float64 = dtype("float32", 2, "Float"), dtype("float64", 3, "Double")
DTYPES = {"bool": bool_, "int64": int64, "float32": float32, "float64": float64}


class finfo:
    """The limits of a floating-point type."""

    def __init__(self, dtype=float32):
        single = dtype is float32
        self.max = 3.4028234663852886e38 if single else 1.7976931348623157e308
        self.min, self.eps = -self.max, 2.0**-23 if single else 2.0**-52
        self.tiny = 2.0**-126 if single else 2.0**-1022


# --- shapes and strides


def _prod(sizes):
    product = 1
    for size in sizes:
        product *= size
    return product


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
    sizes = [size.item() if isinstance(size, Tensor) and not size.shape else size for size in sizes]
    for at, size in enumerate(sizes):
        if not isinstance(size, int) or isinstance(size, bool):
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
    if len(set(axes)) < len(axes):
        raise RuntimeError(f"dim {axes[-1]} appears multiple times in the list of dims")
    return axes if count else []


def _inverse(order):
    back = [0] * len(order)
    for at, d in enumerate(order):
        back[d] = at
    return back


def _filled(new, count):
    """Sizes with -1 replaced by what is left."""
    invalid = f"shape '{list(new)}' is invalid for input of size {count}"
    if len([size for size in new if size == -1]) > 1:
        raise RuntimeError("only one dimension can be inferred")
    for size in new:
        if size < -1:
            raise RuntimeError(f"invalid shape dimension {size}")
    known = _prod([size for size in new if size != -1])
    if -1 not in new:
        if known != count:
            raise RuntimeError(invalid)
        return tuple(new)
    if not known and not count:
        why = "because the unspecified dimension size -1 can be any value and is ambiguous"
        raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {list(new)} {why}")
    if not known or count % known:
        raise RuntimeError(invalid)
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
    n = len(shape)
    strides = [X.expand(shape)._strides for X in operands]
    order = list(range(n))[::-1]

    def compared(a, b):
        for steps in strides:
            if steps[a] and steps[b]:
                if steps[a] != steps[b]:
                    return steps[a] - steps[b]
                if shape[a] > shape[b]:
                    return 1
        return 0

    for i in range(1, n):
        at = i
        for before in range(i - 1, -1, -1):
            sign = compared(order[before], order[at])
            if sign < 0:
                break
            if sign > 0:
                order[before], order[at] = order[at], order[before]
                at = before
    return order[::-1]


# --- numbers


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
    if all([X.shape == shape and X.is_contiguous() for X in operands]):
        return _made(numbers, shape, kind)
    order = _order_in_memory(shape, operands)
    X = _made(numbers, shape, kind).permute(order)
    return _made(X._flat(), X.shape, kind).permute(_inverse(order))


def _kind(x):
    return bool_ if isinstance(x, bool) else int64 if isinstance(x, int) else float32


def _joined(a, b):
    """The type of a result: a plain number, or a tensor without axes, widens only to another kind of number."""
    kinds = [x.dtype if isinstance(x, Tensor) else _kind(x) for x in (a, b)]
    weak = [not isinstance(x, Tensor) or not x.shape for x in (a, b)]
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or weak[0] != weak[1]:
        strong, other = (kinds[1], kinds[0]) if weak[0] and isinstance(b, Tensor) else (kinds[0], kinds[1])
        return strong if strong.rank > 1 or other.rank <= strong.rank else other
    return kinds[0] if kinds[0].rank >= kinds[1].rank else kinds[1]


def _floating(a, b):
    kind = _joined(a, b)
    return kind if kind.rank > 1 else float32


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


def _floored(x, y):
    return x // y if y else _divided(x, y)


def _remainder(x, y):
    return x % y if y else nan


def _power(x, y):
    try:
        return x**y if x >= 0 or y == int(y) else nan
    except ZeroDivisionError:
        return inf
    except (OverflowError, ValueError):
        return inf if y == y and abs(y) != inf else nan


def _exp(x):
    return inf if x > 709 else math.exp(x)


def _log(x):
    return -inf if x == 0 else nan if x < 0 or x != x else x if x == inf else math.log(x)


def _sqrt(x):
    return math.sqrt(x) if x >= 0 else nan


def _relu(x):
    return x if x > 0 or x != x else 0


def _finite(f):
    return lambda x: f(x) if abs(x) < inf else x


def _largest(row):
    if not len(row):
        raise IndexError(
            "Expected reduction dim to be specified for input.numel() == 0. Specify it with the 'dim' argument."
        )
    for x in row:
        if x != x:
            return x
    return max(row)


def _smallest(row):
    return -_largest([-x for x in row])


def _mean(row):
    return _divided(sum(row), len(row))


def _softmax(row):
    top = _largest(row) if len(row) else 0
    terms = [_exp(x - top) for x in row] if abs(top) < inf else [nan] * len(row)
    return [x / sum(terms) for x in terms]


def _running_sum(row):
    sums, total = [], 0
    for x in row:
        total += x
        sums.append(total)
    return sums


class Pair:
    """What torch gives for the largest numbers along an axis: their values and where they are."""

    def __init__(self, values, indices):
        self.values, self.indices = values, indices

    def __iter__(self):
        return iter([self.values, self.indices])

    def __getitem__(self, number):
        return (self.values, self.indices)[number]


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
        self.device, self.requires_grad = "cpu", False

    def _flat(self):
        """All numbers, row by row."""
        numbers = self._numbers
        if self._offset == 0 and len(numbers) == _prod(self.shape) and self._strides == _row_major(self.shape):
            return numbers
        return [numbers[place] for place in _places(self.shape, self._strides, self._offset)]

    # --- what it is

    def dim(self):
        return len(self.shape)

    @property
    def ndim(self):
        return len(self.shape)

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[_axis(dim, len(self.shape))]

    def stride(self, dim=None):
        return self._strides if dim is None else self._strides[_axis(dim, len(self.shape))]

    def numel(self):
        return _prod(self.shape)

    def is_floating_point(self):
        return self.dtype.is_floating_point

    def is_contiguous(self):
        steps = zip(self.shape, self._strides, _row_major(self.shape))
        return not self.numel() or all([size == 1 or own == wanted for size, own, wanted in steps])

    def item(self):
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self._flat()[0]

    def tolist(self):
        rows = list(self._flat())
        for d in range(len(self.shape) - 1, -1, -1):
            n = self.shape[d]
            rows = [rows[i * n : i * n + n] for i in range(_prod(self.shape[:d]))]
        return rows[0]

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind())

    def __bool__(self):
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def __int__(self):
        return int(self.item())

    def __float__(self):
        return float(self.item())

    if IS_MICROPYTHON:  # which would compute 2.0 * X with it
        del __float__

    def __index__(self):
        if self.numel() != 1 or self.dtype.rank > 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __hash__(self):
        return id(self)

    def __repr__(self):
        def written(x, depth):
            if isinstance(x, list):
                gap = ",\n" + " " * (8 + depth) if x and isinstance(x[0], list) else ", "
                return "[" + gap.join([written(part, depth + 1) for part in x]) + "]"
            return f"{x:.4f}" if isinstance(x, float) else str(x)

        return "tensor(" + written(self.tolist(), 0) + ")"

    __str__ = __repr__

    # --- types

    def to(self, *kinds, **named):
        for kind in list(kinds) + list(named.values()):
            kind = kind.dtype if isinstance(kind, Tensor) else kind
            if isinstance(kind, dtype) and kind is not self.dtype:
                return _made_like(self._flat(), self.shape, kind, [self])
        return self

    type_as = to

    def float(self):
        return self.to(float32)

    def double(self):
        return self.to(float64)

    def long(self):
        return self.to(int64)

    int = long

    def bool(self):
        return self.to(bool_)

    def detach(self):
        return self

    cpu = detach

    def clone(self):
        return _made_like(self._flat(), self.shape, self.dtype, [self])

    def contiguous(self):
        return self if self.is_contiguous() else _made(self._flat(), self.shape, self.dtype)

    # --- shapes

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

    def view_as(self, other):
        return self.view(other.shape)

    def reshape_as(self, other):
        return self.reshape(other.shape)

    def permute(self, *dims):
        dims, n = _sizes(dims, "permute", "dims"), len(self.shape)
        if len(dims) != n:
            counts = f"input.dim() = {n} is not equal to len(dims) = {len(dims)}"
            wrong = "number of dimensions in the tensor input does not match the length of the desired ordering"
            raise RuntimeError(f"permute(sparse_coo): {wrong} of dimensions i.e. {counts}")
        dims = [_axis(d, n) for d in dims]
        if len(set(dims)) < n:
            raise RuntimeError("permute(): duplicate dims are not allowed.")
        return self._strided([self.shape[d] for d in dims], [self._strides[d] for d in dims])

    def transpose(self, dim0, dim1):
        n = len(self.shape)
        a, b, order = _axis(dim0, n), _axis(dim1, n), list(range(n))
        if n:
            order[a], order[b] = order[b], order[a]
        return self.permute(order)

    swapaxes = transpose

    def t(self):
        if len(self.shape) > 2:
            raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {len(self.shape)}D")
        return self.transpose(0, -1)

    @property
    def T(self):
        return self.permute(list(range(len(self.shape)))[::-1])

    @property
    def mT(self):
        if len(self.shape) < 2:
            got = f"Got {len(self.shape)}-D tensor."
            raise RuntimeError(f"tensor.mT is only supported on matrices or batches of matrices. {got}")
        return self.transpose(-2, -1)

    def movedim(self, source, destination):
        n = len(self.shape)
        order = [d for d in range(n) if d not in _axes(source, n)]
        for to, d in sorted(zip(_axes(destination, n), _axes(source, n))):
            order.insert(to, d)
        return self.permute(order)

    def unflatten(self, dim, sizes):
        d, new = _axis(dim, len(self.shape)), _sizes((sizes,), "unflatten", "sizes")
        if not self.shape:
            raise IndexError("Dimension specified as 0 but tensor has no dimensions")
        n, known = self.shape[d], _prod([size for size in new if size != -1])
        if known != n if -1 not in new else not known or n % known:
            wrong = f"Provided sizes {list(new)} don't multiply up to the size of dim {d} ({n}) in the input tensor"
            raise RuntimeError(f"unflatten: {wrong}")
        return self.view(self.shape[:d] + _filled(new, n) + self.shape[d + 1 :])

    def flatten(self, start_dim=0, end_dim=-1):
        n = len(self.shape)
        a, b = _axis(start_dim, n), _axis(end_dim, n)
        if a > b:
            raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
        return self.reshape(self.shape[:a] + (_prod(self.shape[a : b + 1]),) + self.shape[b + 1 :])

    def unsqueeze(self, dim):
        d = _axis(dim, len(self.shape) + 1)
        step = self.shape[d] * self._strides[d] if d < len(self.shape) else 1
        return self._strided(self.shape[:d] + (1,) + self.shape[d:], self._strides[:d] + (step,) + self._strides[d:])

    def squeeze(self, dim=None):
        axes = _axes(dim, len(self.shape))
        kept = [d for d, size in enumerate(self.shape) if size != 1 or d not in axes]
        return self._strided([self.shape[d] for d in kept], [self._strides[d] for d in kept])

    def expand(self, *sizes):
        new, old = _sizes(sizes, "expand", "size"), self.shape
        lead = len(new) - len(old)
        if lead < 0:
            wrong = "must be greater or equal to the number of dimensions in the tensor"
            told = (
                f"expand(torch.{self.dtype.word}Tensor{{{list(old)}}}, size={list(new)}): the number of sizes provided"
            )
            raise RuntimeError(f"{told} ({len(new)}) {wrong} ({len(old)})")
        shape, strides = [], []
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
        if len(times) < len(self.shape):
            told = "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
            raise RuntimeError(told)
        X = self.reshape((1,) * (len(times) - len(self.shape)) + self.shape)
        for d, count in enumerate(times):
            X = cat([X] * count, d)
        return X

    def tile(self, *times):
        times = _sizes(times, "tile", "dims")
        return self.repeat((1,) * (len(self.shape) - len(times)) + times)

    def repeat_interleave(self, repeats, dim=None):
        X = self.flatten() if dim is None else self
        d = _axis(dim or 0, len(X.shape))
        counts = repeats.flatten().tolist() if isinstance(repeats, Tensor) else [repeats]
        counts = counts * X.shape[d] if len(counts) == 1 else counts
        if len(counts) != X.shape[d]:
            sizes = f"repeats.size(0) = {len(counts)} and input.size({d}) = {X.shape[d]}"
            raise RuntimeError(f"repeats must have the same size as input along dim, but got {sizes}")
        return X.index_select(d, [i for i, count in enumerate(counts) for _ in range(count)])

    def index_select(self, dim, index):
        d = _axis(dim, len(self.shape))
        return self[(ALL,) * d + (index,)] if self.shape else self.clone()

    def narrow(self, dim, start, length):
        d = _axis(dim, len(self.shape))
        shape = self.shape[:d] + (length,) + self.shape[d + 1 :]
        return self._strided(shape, self._strides, self._offset + start * self._strides[d])

    def select(self, dim, index):
        d = _axis(dim, len(self.shape))
        return self[(ALL,) * d + (index,)]

    def split(self, size, dim=0):
        d = _axis(dim, len(self.shape))
        if not isinstance(size, (int, list, tuple)):
            told = f"must be tuple of ints, not {type(size).__name__}"
            raise TypeError(f"split_with_sizes(): argument 'split_sizes' (position 1) {told}")
        n = self.shape[d]
        sizes = [min(size, n - i) for i in range(0, max(n, 1), size)] if isinstance(size, int) else list(size)
        if sum(sizes) != n:
            told = f"sum exactly to {n} (input tensor's size at dimension {d}), but got split_sizes={sizes}"
            raise RuntimeError(f"split_with_sizes expects split_sizes to {told}")
        starts = [0] + _running_sum(sizes)
        return tuple([self.narrow(d, start, length) for start, length in zip(starts, sizes)])

    def chunk(self, chunks, dim=0):
        if not self.shape:
            raise RuntimeError("chunk expects at least a 1-dimensional tensor")
        return self.split(max(-(-self.shape[_axis(dim, len(self.shape))] // chunks), 1), dim)

    def unbind(self, dim=0):
        d = _axis(dim, len(self.shape))
        return tuple([self.select(d, i) for i in range(self.shape[d])])

    def flip(self, *dims):
        X = self
        for d in _axes(_sizes(dims, "flip", "dims"), len(X.shape)):
            X = X.index_select(d, list(range(X.shape[d]))[::-1])
        return X

    def roll(self, shifts, dims=None):
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        n = self.shape[_axis(dims, len(self.shape))]
        return self.index_select(dims, [(i - shifts) % n for i in range(n)])

    def _triangle(self, diagonal, sign):
        rows, columns = arange(self.shape[-2])[:, None], arange(self.shape[-1])
        return where((columns - rows - diagonal) * sign >= 0, self, 0).to(self.dtype)

    def tril(self, diagonal=0):
        return self._triangle(diagonal, -1)

    def triu(self, diagonal=0):
        return self._triangle(diagonal, 1)

    # --- indices

    def _whole_key(self, key):
        """The parts of a key, with ``...`` written out, and a Boolean mask as the places where it is true."""
        parts = []
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, Tensor) and part.dtype is bool_ and part.shape:
                here = self.shape[len([p for p in parts if p is not None]) :][: len(part.shape)]
                if part.shape != here:
                    told = f"of the indexed tensor {list(self.shape)} at index {len(parts)}"
                    raise IndexError(
                        f"The shape of the mask {list(part.shape)} at index 0 does not match the shape {told}"
                    )
                parts += list(part.nonzero().unbind(1))
            else:
                parts.append(
                    part.item() if isinstance(part, Tensor) and part.dtype.rank == 1 and not part.shape else part
                )
        count = len([part for part in parts if part is not None and part is not Ellipsis])
        if count > len(self.shape):
            raise IndexError(f"too many indices for tensor of dimension {len(self.shape)}")
        at = [i for i, part in enumerate(parts) if part is Ellipsis] or [len(parts)]
        return parts[: at[0]] + [ALL] * (len(self.shape) - count) + parts[at[0] + 1 :]

    def _indexed(self, key):
        """Shape, strides and offset of what whole numbers, slices and None pick; and lists of places, by axis."""
        shape, strides, offset, d, lists = [], [], self._offset, 0, {}
        for at, part in enumerate(self._whole_key(key)):
            if part is None:
                shape.append(1)
                strides.append(self.shape[d] * self._strides[d] if d < len(self.shape) else 1)
                continue
            n, step = self.shape[d], self._strides[d]
            d += 1
            if isinstance(part, (list, range, Tensor)):
                lists[len(shape)] = _as(list(part) if isinstance(part, range) else part)
                if lists[len(shape)].dtype.rank > 1 and lists[len(shape)].numel():
                    raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
                shape.append(n)
                strides.append(step)
            elif isinstance(part, type(ALL)):
                if (part.step or 1) < 0:
                    raise ValueError("step must be greater than zero")
                start, stop, jump = part.indices(n)
                shape.append(max(-(-(stop - start) // jump), 0))
                strides.append(step * jump)
                offset += start * step
            elif isinstance(part, int):
                if not -n <= part < n:
                    raise IndexError(f"index {part} is out of bounds for dimension {at} with size {n}")
                offset += part % n * step
            else:
                told = (
                    "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices"
                )
                raise (IndexError if isinstance(part, float) else TypeError)(f"{told} (got {type(part).__name__})")
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
        if other.dtype.rank > max(self.dtype.rank, 2 * (self.dtype.rank > 1)) and self.dtype.rank < 2:
            kinds = f"result type {other.dtype.word} can't be cast to the desired output type {self.dtype.word}"
            raise RuntimeError(kinds)
        if _broadcast(self.shape, other.shape) != self.shape:
            told = f"output with shape {list(self.shape)} doesn't match the broadcast shape {list(other.shape)}"
            raise RuntimeError(told)
        self._write(_places(self.shape, self._strides, self._offset), other.expand(self.shape)._flat())
        return self

    # --- numbers

    def _each(self, f, kind=None):
        return _made_like([f(x) for x in self._flat()], self.shape, kind or self.dtype, [self])

    def _rows(self, axes):
        """Lists of the numbers along these axes, one for each place of the others."""
        rest = [d for d in range(len(self.shape)) if d not in axes]
        n, flat = _prod([self.shape[d] for d in axes]), self.permute(rest + list(axes))._flat()
        return [flat[i * n : i * n + n] for i in range(_prod([self.shape[d] for d in rest]))]

    def _reduced(self, f, dim, keepdim, kind=None):
        axes = _axes(dim, len(self.shape))
        kept = [1 if d in axes else size for d, size in enumerate(self.shape) if keepdim or d not in axes]
        return _made([f(row) for row in self._rows(axes)], kept, kind or self.dtype)

    def _along(self, f, dim, kind=None):
        """A tensor of the same shape, in which each row along an axis has become another."""
        n = len(self.shape)
        d = _axis(dim, n)
        order = [k for k in range(n) if k != d] + [d] * (n > 0)
        rows = [x for row in self._rows(order[-1:]) for x in f(row)]
        return _made(rows, [self.shape[k] for k in order], kind or self.dtype).permute(_inverse(order)).contiguous()

    def sum(self, dim=None, keepdim=False, axis=None):
        return self._reduced(sum, axis if dim is None else dim, keepdim, self.dtype if self.dtype.rank > 1 else int64)

    def mean(self, dim=None, keepdim=False, axis=None):
        if self.dtype.rank < 2:
            told = "Input dtype must be either a floating point or complex dtype."
            raise RuntimeError(f"mean(): could not infer output dtype. {told} Got: {self.dtype.word}")
        return self._reduced(_mean, axis if dim is None else dim, keepdim)

    def prod(self, dim=None, keepdim=False):
        return self._reduced(_prod, dim, keepdim, self.dtype if self.dtype.rank > 1 else int64)

    def norm(self, p=2, dim=None, keepdim=False):
        return self._reduced(lambda row: sum([abs(x) ** p for x in row]) ** (1 / p), dim, keepdim)

    def any(self, dim=None, keepdim=False):
        return self._reduced(any, dim, keepdim, bool_)

    def all(self, dim=None, keepdim=False):
        return self._reduced(all, dim, keepdim, bool_)

    def amax(self, dim=None, keepdim=False):
        return self._reduced(_largest, dim, keepdim)

    def amin(self, dim=None, keepdim=False):
        return self._reduced(_smallest, dim, keepdim)

    def argmax(self, dim=None, keepdim=False):
        return self._reduced(lambda row: list(row).index(_largest(row)), dim, keepdim, int64)

    def max(self, dim=None, keepdim=False):
        return self.amax() if dim is None else Pair(self.amax(dim, keepdim), self.argmax(dim, keepdim))

    def argsort(self, dim=-1, descending=False):
        def places(row):
            return sorted(range(len(row)), key=lambda i: row[i], reverse=descending)

        return self._along(places, dim, int64)

    def sort(self, dim=-1, descending=False):
        values = self._along(lambda row: sorted(row, reverse=descending), dim)
        return Pair(values, self.argsort(dim, descending))

    def cumsum(self, dim):
        return self._along(_running_sum, dim, self.dtype if self.dtype.rank > 1 else int64)

    def nonzero(self):
        n, found = len(self.shape), []
        for i, x in enumerate(self._flat()):
            found += [i // step % size for step, size in zip(_row_major(self.shape), self.shape)] if x else []
        return _made(found, (len(found) // max(n, 1), n), int64)

    def softmax(self, dim, dtype=None):
        if self.dtype.rank < 2:
            told = f"\"softmax_lastdim_kernel_impl\" not implemented for '{self.dtype.word}'"
            raise NotImplementedError(told)
        return self._along(_softmax, dim, dtype)

    def logsumexp(self, dim, keepdim=False):
        top = self.amax(dim, keepdim=True)
        total = (self - top).exp().sum(dim, keepdim=True).log() + top
        return total if keepdim else total.squeeze(dim)

    def log_softmax(self, dim):
        return self - self.logsumexp(dim, keepdim=True)

    def masked_fill(self, mask, value):
        if mask.dtype is not bool_:
            kind = {"Long": "long int"}.get(mask.dtype.word, mask.dtype.word.lower())
            raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {kind}")
        value = value.item() if isinstance(value, Tensor) else value
        return _combined(mask, self, lambda masked, x: value if masked else x, self.dtype).contiguous()

    def nan_to_num(self, nan=0.0, posinf=None, neginf=None):
        top = finfo(self.dtype).max
        ends = {inf: top if posinf is None else posinf, -inf: -top if neginf is None else neginf}
        return self._each(lambda x: nan if x != x else ends.get(x, x))

    def clamp(self, min=None, max=None):
        X = self if min is None else maximum(self, min)
        return X if max is None else minimum(X, max)

    clip = clamp

    def where(self, condition, other):
        return where(condition, self, other)

    def new_zeros(self, *size):
        return zeros(*size).to(self.dtype)

    def new_ones(self, *size):
        return ones(*size).to(self.dtype)

    def fill_(self, value):
        return self._become(full(self.shape, value).to(self.dtype))

    def zero_(self):
        return self.fill_(0)

    def copy_(self, other):
        return self._become(other.to(self.dtype))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith("_") and hasattr(Tensor, name[:-1]):
            return lambda *given, **named: self._become(getattr(self, name[:-1])(*given, **named))
        if name in IN_TORCH:
            raise AttributeError(LACKING.format(name))
        raise AttributeError(f"'Tensor' object has no attribute '{name}'")


IN_TORCH = (
    "scatter scatter_ scatter_add gather index_add backward requires_grad_ grad numpy cuda half svd cummax "
    "baddbmm as_strided unfold diagonal quantile median topk std var retain_grad bincount put_ take index_fill cdist"
).split()


def _not(x):
    return not x


def _opposite(x, y):
    return y - x


EACH = {  # name → what it makes of one number, and the type of the result: None for the tensor's own
    "abs": (abs, None),
    "neg": (lambda x: -x, None),
    "square": (lambda x: x * x, None),
    "relu": (_relu, None),
    "sign": (lambda x: (x > 0) - (x < 0), None),
    "floor": (_finite(math.floor), None),
    "ceil": (_finite(math.ceil), None),
    "round": (_finite(round), None),
    "exp": (_exp, float32),
    "log": (_log, float32),
    "sqrt": (_sqrt, float32),
    "rsqrt": (lambda x: _divided(1.0, _sqrt(x)), float32),
    "reciprocal": (lambda x: _divided(1.0, x), float32),
    "tanh": (lambda x: math.tanh(x) if x == x else x, float32),
    "sigmoid": (lambda x: 1 / (1 + _exp(-x)), float32),
    "sin": (math.sin, float32),
    "cos": (math.cos, float32),
    "isnan": (lambda x: x != x, bool_),
    "isinf": (lambda x: abs(x) == inf, bool_),
    "isfinite": (lambda x: abs(x) < inf, bool_),
    "logical_not": (_not, bool_),
}
OF_TWO = {  # name → what it makes of two numbers, and the type of the result
    "add": (lambda x, y: x + y, _joined),
    "sub": (lambda x, y: x - y, _joined),
    "mul": (lambda x, y: x * y, _joined),
    "truediv": (_divided, _floating),
    "floordiv": (_floored, _joined),
    "mod": (_remainder, _joined),
    "pow": (_power, _joined),
    "and": (lambda x, y: x & y, _joined),
    "or": (lambda x, y: x | y, _joined),
    "xor": (lambda x, y: x ^ y, _joined),
    "lt": (lambda x, y: x < y, bool_),
    "le": (lambda x, y: x <= y, bool_),
    "gt": (lambda x, y: x > y, bool_),
    "ge": (lambda x, y: x >= y, bool_),
    "eq": (lambda x, y: x == y, bool_),
    "ne": (lambda x, y: x != y, bool_),
    "maximum": (lambda x, y: x if x >= y or x != x else y, _joined),
    "minimum": (lambda x, y: x if x <= y or x != x else y, _joined),
}
OTHER_NAMES = {"truediv": "div", "and": "logical_and", "or": "logical_or"}


def _give_operators():
    """Give Tensor a method for each of these, and for those of two numbers Python's operators."""

    def of_one(f, kind):
        return lambda self: self._each(f, self.dtype if kind is float32 and self.dtype.rank > 1 else kind)

    def of_two(name, f, kind):
        def first(self, other):
            if name == "sub" and bool_ in (self.dtype, getattr(other, "dtype", None)):
                instead = "If you are trying to invert a mask, use the `~` or `logical_not()` operator instead."
                raise RuntimeError(f"Subtraction, the `-` operator, with a bool tensor is not supported. {instead}")
            return _combined(self, other, f, kind)

        def second(self, other):
            if name == "sub" and self.dtype is bool_:
                return first(self, self)
            return _combined(other, self, f, kind)

        def in_place(self, other):
            made = first(self, other)
            return made if made is NotImplemented else self._become(made)

        return first, second, in_place

    for name, (f, kind) in EACH.items():
        setattr(Tensor, name, of_one(f, kind))
    for name, (f, kind) in OF_TWO.items():
        first, second, in_place = of_two(name, f, kind)
        setattr(Tensor, OTHER_NAMES.get(name, name), first)
        setattr(Tensor, "__" + name + "__", first)
        if not isinstance(kind, dtype):
            setattr(Tensor, "__r" + name + "__", second)
            setattr(Tensor, "__i" + name + "__", in_place)
    Tensor.__neg__, Tensor.__abs__ = Tensor.neg, Tensor.abs
    Tensor.__invert__ = lambda self: self._each(_not) if self.dtype is bool_ else self._each(lambda x: ~x)
    Tensor.__matmul__ = Tensor.matmul = matmul
    Tensor.bmm, Tensor.mm = bmm, mm


# --- torch's functions


def tensor(data, dtype=None):
    """A tensor of the numbers in nested lists."""
    if isinstance(data, Tensor):
        return data.clone().to(dtype)
    shape, flat, first = [], [data], data
    while isinstance(first, (list, tuple, range)):
        for row in flat:
            if not isinstance(row, (list, tuple, range)) or len(row) != len(first):
                got = len(row) if isinstance(row, (list, tuple)) else 0
                raise ValueError(f"expected sequence of length {len(first)} at dim {len(shape)} (got {got})")
        shape.append(len(first))
        flat = [part for row in flat for part in row]
        first = flat[0] if flat else None
    flat = [x.item() if isinstance(x, Tensor) else x for x in flat]
    for x in flat:
        if not isinstance(x, (int, float)):
            raise TypeError(f"new(): invalid data type '{type(x).__name__}'")
    kinds = [_kind(x) for x in flat] or [float32]
    widest = [kind for kind in (float32, int64, bool_) if kind in kinds][0]
    return _made(flat, shape, dtype or widest)


as_tensor = tensor


def full(size, fill_value, dtype=None):
    size = _sizes((size,), "full", "size")
    return _made([fill_value] * _prod(size), size, dtype or _kind(fill_value))


def zeros(*size, dtype=None):
    return full(_sizes(size, "zeros", "size"), 0.0, dtype)


def ones(*size, dtype=None):
    return full(_sizes(size, "ones", "size"), 1.0, dtype)


empty = zeros


def zeros_like(X, dtype=None):
    return full(X.shape, 0, dtype or X.dtype)


def ones_like(X, dtype=None):
    return full(X.shape, 1, dtype or X.dtype)


def full_like(X, fill_value):
    return full(X.shape, fill_value, X.dtype)


def eye(n, m=None):
    return _made([i == j for i in range(n) for j in range(m or n)], (n, m or n))


def arange(start, end=None, step=1, dtype=None):
    start, end = (0, start) if end is None else (start, end)
    start, end = [x.item() if isinstance(x, Tensor) else x for x in (start, end)]
    count = max(math.ceil((end - start) / step), 0)
    whole = all([isinstance(x, int) for x in (start, end, step)])
    return _made([start + i * step for i in range(count)], (count,), dtype or (int64 if whole else float32))


def cat(tensors, dim=0):
    parts = list(tensors)
    if not parts:
        raise ValueError("expected a non-empty list of Tensors")
    shape = parts[0].shape
    if not shape:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    d, kind, rows = _axis(dim, len(shape)), parts[0].dtype, []
    for at, X in enumerate(parts):
        if len(X.shape) != len(shape):
            counts = f"got {len(shape)} and {len(X.shape)}"
            raise RuntimeError(f"Tensors must have same number of dimensions: {counts}")
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
    if not parts:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = list(parts[0].shape)
    for at, X in enumerate(parts):
        if list(X.shape) != first:
            told = f"but got {first} at entry 0 and {list(X.shape)} at entry {at}"
            raise RuntimeError(f"stack expects each tensor to be equal size, {told}")
    return cat([X.unsqueeze(dim) for X in parts], _axis(dim, len(first) + 1))


def where(condition, input, other):
    shape = _broadcast(_broadcast(condition.shape, _as(input).shape), _as(other).shape)
    kind = (
        _joined(input, other)
        if isinstance(input, Tensor)
        else _joined(other, input)
        if isinstance(other, Tensor)
        else None
    )
    columns = [_as(X).expand(shape)._flat() for X in (condition, input, other)]
    chosen = [x if yes else y for yes, x, y in zip(*columns)]
    return _made_like(chosen, shape, kind or _kind(input), [condition, input, other])


def maximum(a, b):
    return _combined(a, b, *OF_TWO["maximum"])


def minimum(a, b):
    return _combined(a, b, *OF_TWO["minimum"])


def _products(A, B, count, n, k, m):
    """The numbers of ``count`` products of matrices (n, k) and (k, m)."""
    a, b, found = A._flat(), B._flat(), []
    for z in range(count):
        start = z * k * m
        columns = [[b[start + q * m + j] for q in range(k)] for j in range(m)]
        for i in range(n):
            row = a[(z * n + i) * k : (z * n + i + 1) * k]
            for column in columns:
                total = 0
                for x, y in zip(row, column):
                    total += x * y
                found.append(total)
    return found


def matmul(A, B):
    if not isinstance(A, Tensor) or not isinstance(B, Tensor):
        raise TypeError(f"unsupported operand type(s) for @: '{type(A).__name__}' and '{type(B).__name__}'")
    if not A.shape or not B.shape:
        counts = f"{len(A.shape)}D and {len(B.shape)}D"
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {counts}")
    if A.dtype is not B.dtype:
        a, b = [{"Long": "long long"}.get(X.dtype.word, X.dtype.word.lower()) for X in (A, B)]
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a} != {b}")
    if len(A.shape) == 1:
        if len(B.shape) == 1 and A.shape != B.shape:
            sizes = f"expected tensor [{A.shape[0]}] and src [{B.shape[0]}] to have the same number of elements"
            counts = f"but got {A.shape[0]} and {B.shape[0]} elements respectively"
            raise RuntimeError(f"inconsistent tensor size, {sizes}, {counts}")
        return (A * B).sum() if len(B.shape) == 1 else matmul(A[None], B).squeeze(-2)
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
    A, B = A.expand(batch + (n, k)), B.expand(batch + (k, m))
    return _made(_products(A, B, count, n, k, m), batch + (n, m), A.dtype)


def bmm(A, B):
    for at, X in ((1, A), (2, B)):
        if len(X.shape) != 3:
            raise RuntimeError(f"batch{at} must be a 3D tensor")
    if B.shape[0] != A.shape[0] or B.shape[1] != A.shape[2]:
        sizes = f"[{A.shape[0]}, {A.shape[2]}] but got: [{B.shape[0]}, {B.shape[1]}]."
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: {sizes}")
    return matmul(A, B)


def mm(A, B):
    if len(A.shape) != 2 or len(B.shape) != 2:
        raise RuntimeError("self must be a matrix" if len(A.shape) != 2 else "mat2 must be a matrix")
    return matmul(A, B)


def einsum(equation, *operands):
    """A sum over letters; each letter once in a term, and no ``...``."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if "." in equation or not arrow or any([len(set(term)) < len(term) for term in terms]):
        raise RuntimeError(LACKING.format(f'einsum("{equation}")'))
    sizes = {}
    for term, X in zip(terms, operands):
        if len(term) != len(X.shape):
            counts = f"({len(term)}) does not match the number of dimensions ({len(X.shape)})"
            raise RuntimeError(f"einsum(): the number of subscripts in the equation {counts} for operand")
        for letter, size in zip(term, X.shape):
            if sizes.get(letter, size) != size:
                told = f"which does not broadcast with previously seen size {sizes[letter]}"
                raise RuntimeError(f"einsum(): subscript {letter} has size {size} for operand {told}")
            sizes[letter] = size
    letters = list(out) + [letter for letter in sizes if letter not in out]
    product = None
    for term, X in zip(terms, operands):
        spread = X.permute([term.index(letter) for letter in letters if letter in term])
        spread = spread[tuple([ALL if letter in term else None for letter in letters])]
        product = spread if product is None else product * spread
    return product.sum(list(range(len(out), len(letters)))) if len(letters) > len(out) else product.contiguous()


def allclose(X, Y, rtol=1e-5, atol=1e-8):
    return bool((X == Y).logical_or((X - Y).abs() <= Y.abs() * rtol + atol).all())


def equal(X, Y):
    return X.shape == Y.shape and bool((X == Y).all())


def outer(a, b):
    return a[:, None] * b


def is_tensor(x):
    return isinstance(x, Tensor)


SEED = [1]


def manual_seed(seed):
    SEED[0] = seed * 2 + 1


def _uniform():
    SEED[0] = (SEED[0] * 1103515245 + 12345) % 2147483648
    return (SEED[0] + 0.5) / 2147483648


def rand(*size):
    size = _sizes(size, "rand", "size")
    return _made([_uniform() for _ in range(_prod(size))], size)


def randn(*size):
    size = _sizes(size, "randn", "size")
    normal = [math.sqrt(-2 * math.log(_uniform())) * math.cos(2 * pi * _uniform()) for _ in range(_prod(size))]
    return _made(normal, size)


class no_grad:
    """There are no gradients here."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


# --- nn


class Module:
    """Parts of a layer: modules and parameters."""

    def __init__(self):
        self.training = True

    def __call__(self, *given, **named):
        return self.forward(*given, **named)

    def children(self):
        return [part for part in self.__dict__.values() if isinstance(part, Module)]

    def train(self, mode=True):
        self.training = mode
        for part in self.children():
            part.train(mode)
        return self

    def eval(self):
        return self.train(False)


class Linear(Module):
    """X W^T + b."""

    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features, self.out_features, bound = in_features, out_features, 1 / math.sqrt(in_features)
        self.weight = (rand(out_features, in_features) * 2 - 1) * bound
        self.bias = (rand(out_features) * 2 - 1) * bound if bias else None

    def forward(self, X):
        return linear(X, self.weight, self.bias)


class Dropout(Module):
    """Zeros at random in training."""

    def __init__(self, p=0.5):
        super().__init__()
        self.p = p

    def forward(self, X):
        return dropout(X, self.p, self.training)


def linear(X, W, b=None):
    Y = X @ W.T
    return Y if b is None else Y + b


def dropout(X, p=0.5, training=True):
    if not training or not p:
        return X
    return X * _made([_uniform() >= p for _ in range(X.numel())], X.shape) / (1 - p)


def normalize(X, p=2, dim=1):
    return X / X.norm(p, dim, keepdim=True).clamp(min=1e-12)


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
F = Space(
    {"linear": linear, "dropout": dropout, "normalize": normalize},
    ("softmax", "log_softmax", "relu", "sigmoid", "tanh"),
)
nn = Space(
    {"Module": Module, "Linear": Linear, "Dropout": Dropout, "Parameter": lambda X: X, "functional": F}, ("nothing",)
)
NOT_TORCH = (
    "math",
    "sys",
    "array",
    "ALL",
    "SEED",
    "EACH",
    "OF_TWO",
    "F",
    "Module",
    "Linear",
    "Dropout",
    "Space",
    "Cut",
)
torch = Space({name: value for name, value in globals().items() if name[0] != "_" and name not in NOT_TORCH})
torch.bool, torch.float, torch.int, torch.long, torch.double = bool_, float32, int64, int64, float64
