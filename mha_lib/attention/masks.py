"""Which query may attend to which key. Letters as in ``pooling``.

Three arguments define it; if more than one is given, all of them must allow a key:

- ``valid_lens``: how many keys are valid, from the first on; (b,), one for each example, or (b, q), one for each query.
- ``attn_mask``: as in ``F.scaled_dot_product_attention``, bool (True: may be attended to; in torch.nn's layers True
  forbids) or a float bias that is added to the scores; (q, k), or as many axes as the scores have, each of their size
  or 1. A mask of keys, (b, k), is ``mask[:, None, None]`` for a layer with heads. Or a *rule*: a function of example,
  head, query and key that gives the same, like ``mask_mod`` of torch's ``flex_attention``.
- ``causal``: no query attends to a later key. The last query is at the last key, so this is also correct if earlier
  keys come from a cache. (The ``is_causal`` of torch's function puts the first query at the first key instead.)
"""

import math
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path

import torch
from torch import Tensor

from mha_lib.attention.arguments import FLOATS, check_device, check_shape, check_tensor
from mha_lib.attention.execution import values_readable

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # example, head, query, key -> bool, or a bias
INSIDE = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(torch.__file__).parent))


def valid_keys(valid_lens: Tensor, num_keys: int, axes: int = 3) -> Tensor:
    """Return a bool mask, True at valid keys, from lengths (b,) -> (b, 1, k) or from lengths (b, q) -> (b, q, k).
    With ``axes=4`` the mask has an axis of size 1 for heads, too: (b, 1, 1, k) or (b, 1, q, k).

    >>> valid_keys(torch.tensor([1, 3]), num_keys=3).squeeze(1)
    tensor([[ True, False, False],
            [ True,  True,  True]])

    Lengths that a layer would refuse are refused by the same TypeError or ValueError.
    """
    check_tensor("valid_lens", valid_lens, ("(batch,)", "(batch, num_queries)"))
    if valid_lens.dim() not in (1, 2):
        raise ValueError(f"valid_lens must have shape (batch,) or (batch, num_queries), got {tuple(valid_lens.shape)}")
    batch_size, num_queries = (*valid_lens.shape, -1)[:2]
    check_valid_lens(valid_lens, batch_size, num_queries, num_keys)
    return _valid_keys(valid_lens, num_keys, axes)


def _valid_keys(valid_lens: Tensor, num_keys: int, axes: int) -> Tensor:
    """The mask of lengths that have been checked."""
    batch_size, *queries = valid_lens.shape
    lengths = valid_lens.reshape(batch_size, *[1] * (axes - 3), *(queries or [1]), 1)  # (b, 1, 1) or (b, q, 1)
    # As integers: in half precision a large index would be rounded.
    return torch.arange(num_keys, device=valid_lens.device) < lengths.long()  # (k) < (b, q, 1) -> (b, q, k)


def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Return a bool mask, True where key index ``j`` is not later than query index ``i``: the causal mask function."""
    return j <= i


def rule_matrix(rule: Rule, shape: Sequence[int], device: torch.device | None = None) -> Tensor:
    """Evaluate a mask function for all scores of this ``shape``, (b, q, k) or (b, h, q, k); return the mask or bias.
    An axis other than k that the function does not use has size 1.

    >>> rule_matrix(causal, shape=(1, 2, 3))
    tensor([[[ True,  True, False],
             [ True,  True,  True]]])

    The last query is at the last key, as with ``causal``. A rule that returns no tensor is refused by a TypeError, and
    more queries than keys by a ValueError. Source: ``create_mask`` of ``torch.nn.attention.flex_attention``, which puts
    the first query at the first key.
    """
    if shape[-2] > shape[-1]:
        raise ValueError(
            f"rule must not get more queries than keys, got {shape[-2]} and {shape[-1]}: the last query is at the last "
            "key, so the first ones would have negative positions"
        )
    try:
        said = rule(*indices(shape, device))
    except TypeError as error:
        raise TypeError(f"rule must take four tensors, the indices of example, head, query and key: {error}") from error
    except RuntimeError as error:
        if "Boolean value of Tensor" not in str(error):
            raise
        raise TypeError("rule must compare whole tensors: write & for and, | for or, ~ for not, no if") from error
    if not isinstance(said, Tensor):
        raise TypeError(f"rule must return a tensor, bool or a bias, got {type(said).__name__}")
    said = said.expand(torch.broadcast_shapes(said.shape, (1, 1, 1, shape[-1])))
    return said if len(shape) == 4 else said.squeeze(1)


def indices(shape: Sequence[int], device: torch.device | None = None) -> tuple[Tensor, ...]:
    """Return indices of example, head, query and key that broadcast: (b, 1, 1, 1), (h, 1, 1), (q, 1) and (k,)."""
    heads = shape[1] if len(shape) == 4 else 1
    b, h, i, j = (torch.arange(size, device=device) for size in (shape[0], heads, *shape[-2:]))
    i = i + (shape[-1] - shape[-2])  # the last query is at the last key
    return b[:, None, None, None], h[:, None, None], i[:, None], j


def is_allowed(mask: Tensor) -> Tensor:
    """Return where a query may attend to a key: where a bool mask is True, or an additive bias above minus infinity."""
    return mask if mask.dtype == torch.bool else mask != -math.inf


def empty_rows(mask: Tensor | None) -> Tensor | None:
    """Return which queries may attend to no key, (..., q, 1); None where it can be read that there are none."""
    is_empty = None if mask is None else ~is_allowed(mask).any(dim=-1, keepdim=True)  # (..., q, k) -> (..., q, 1)
    return None if is_empty is None or (values_readable(is_empty) and not is_empty.any()) else is_empty


class Masks:
    """Check and hold the masks of one attention call, and combine them into a single mask when it is needed.

    Args:
        shape: of the scores, (b, q, k) or (b, h, q, k).
        like: a tensor with the device and the dtype that the joined mask must have.
        valid_lens, attn_mask: see above. One that does not fit is named by a TypeError or ValueError.
        causal: see above; whoever calls has checked that it is True or False.
    """

    def __init__(
        self, shape: tuple[int, ...], like: Tensor, valid_lens: Tensor | None, attn_mask: Tensor | Rule | None,
        causal: bool,
    ):  # fmt: skip
        if valid_lens is not None:
            check_valid_lens(valid_lens, shape[0], shape[-2], shape[-1])
            if valid_lens.device != like.device:
                check_device("valid_lens", valid_lens, like.device, "the scores")
        if callable(attn_mask):
            attn_mask = rule_matrix(attn_mask, shape, like.device)
        if attn_mask is not None:
            check_attn_mask(attn_mask, shape)
            check_device("attn_mask", attn_mask, like.device, "the scores")
        self.shape, self.device, self.dtype = shape, like.device, like.dtype
        self.valid_lens, self.attn_mask, self.causal = valid_lens, attn_mask, causal
        self._joined: Tensor | None = None

    def joined(self) -> Tensor | None:
        """Return one mask: None, bool, or a bias that is −∞ at all keys that may not be attended to."""
        if self._joined is not None:
            return self._joined
        allowed, bias = [], self.attn_mask
        if self.valid_lens is not None:
            allowed.append(_valid_keys(self.valid_lens, self.shape[-1], len(self.shape)))
        if self.causal:
            q, k = self.shape[-2:]
            allowed.append(torch.ones(q, k, dtype=torch.bool, device=self.device).tril(k - q))  # `causal`
        if bias is not None and bias.dtype == torch.bool:
            allowed, bias = [*allowed, bias], None
        joined = reduce(torch.logical_and, allowed) if allowed else None
        if bias is not None:
            joined = (bias if joined is None else torch.where(joined, bias, -math.inf)).to(self.dtype)
        self._joined = joined
        return joined

    def keep(self) -> None:
        """Hold no graph from here on, and nothing that later changes of the lengths would reach."""
        if self._joined is not None:
            self._joined = self._joined.detach() if self._joined.requires_grad else self._joined
            self.valid_lens = None
        elif self.valid_lens is not None:
            self.valid_lens = self.valid_lens.clone()
        if self.attn_mask is not None:
            self.attn_mask = self.attn_mask.detach()


def check_valid_lens(valid_lens: Tensor, batch_size: int, num_queries: int, num_keys: int) -> None:
    """Raise an error unless ``valid_lens`` holds integers from 0 to ``num_keys``, one for each example or query."""
    if _are_few_lengths(valid_lens, batch_size, num_queries, num_keys):  # what is right costs little
        return
    shapes = (batch_size,), (batch_size, num_queries)
    check_tensor("valid_lens", valid_lens, shapes)
    if valid_lens.dtype == torch.bool:
        raise TypeError(
            "valid_lens must hold counts of valid keys, got a bool mask; for a mask that is True on a prefix of the "
            "keys, pass mask.sum(-1); where True is padding, as in torch.nn, (~mask).sum(-1)"
        )
    if valid_lens.is_complex():
        raise TypeError(f"valid_lens must hold counts of valid keys, got {valid_lens.dtype}")
    check_shape("valid_lens", valid_lens, shapes, hint=lambda: _how_to_give_a_mask(valid_lens, num_keys))
    if valid_lens.numel() == 0 or not values_readable(valid_lens):
        return
    # torch compares numbers of some types only: all of them fit into one of these two.
    counts = valid_lens.double() if valid_lens.is_floating_point() else valid_lens.long()
    shortest, longest = map(Tensor.item, counts.aminmax())
    if not (shortest >= 0 and longest <= num_keys):
        raise ValueError(
            f"valid_lens must lie between 0 and the number of keys, {num_keys}; got {shortest} to {longest}"
        )
    if valid_lens.is_floating_point() and (counts != counts.floor()).any():
        raise ValueError(f"valid_lens must hold whole numbers, got {counts[counts != counts.floor()][0]}")
    _warn_of_lengths_meant_otherwise(counts, num_queries, num_keys)


def _how_to_give_a_mask(valid_lens: Tensor, num_keys: int) -> str:
    is_mask = valid_lens.dim() == 2 and valid_lens.shape[1] == num_keys
    return "; for a mask of 0 and 1 over the keys, pass attn_mask=mask.bool()[:, None, None]" if is_mask else ""


def _are_few_lengths(valid_lens: Tensor, batch_size: int, num_queries: int, num_keys: int) -> bool:
    """Whether these are at most 64 integers, one for each example, with nothing to refuse or to warn of."""
    if not isinstance(valid_lens, Tensor) or valid_lens.dtype != torch.int64 or valid_lens.layout != torch.strided:
        return False
    if not values_readable(valid_lens) or not 0 < batch_size <= 64 or valid_lens.shape != (batch_size,):
        return False
    lengths = valid_lens.tolist()
    ordered = batch_size == num_queries and lengths == sorted(lengths)  # may be meant for the queries
    return not ordered and 0 <= min(lengths) and max(lengths) <= num_keys


def _warn_of_lengths_meant_otherwise(counts: Tensor, num_queries: int, num_keys: int) -> None:
    """Warn of lengths that were surely meant for the queries, as a mask of the keys, or as gates of the heads."""
    n = len(counts)
    if counts.dim() == 1 and n == num_queries > 2 and counts.tolist() == list(range(1, n + 1)):
        _warn(
            f"valid_lens of shape ({n},) is one length for each example, also where there are {n} queries. For causal "
            f"attention pass causal=True; for one length a query, shape ({n}, {n}): valid_lens.expand({n}, {n})"
        )
    if num_keys == 1 or counts.max() != 1:
        return
    if counts.dim() == 2 and num_queries == num_keys:
        _warn(
            f"valid_lens of shape {tuple(counts.shape)} was read as a count of keys for each query, 0 or 1. A mask of "
            "0 and 1 over the keys is attn_mask=mask.bool()[:, None, None] in a layer with heads, or "
            "valid_lens=mask.sum(-1) if its ones come first"
        )
    if counts.dim() == 1 and counts.is_floating_point() and (counts == 1).all():
        _warn(
            f"valid_lens of shape ({n},) was read as {n} lengths of 1.0: each example attends to its first key alone. "
            "Gates of heads are head_mask=; for this very length pass integers"
        )


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=_levels_inside())


def _levels_inside() -> int:
    """The ``stacklevel`` with which a warning points to the first caller outside of mha_lib and torch."""
    callers = traceback.walk_stack(sys._getframe(1))
    files = enumerate((frame.f_code.co_filename for frame, _ in callers), start=1)
    return next((level for level, file in files if not file.startswith(INSIDE)), 1)


def check_attn_mask(attn_mask: Tensor, shape: Sequence[int]) -> None:
    """Raise an error unless ``attn_mask`` is a bool mask or a float bias that broadcasts to scores of this shape."""
    if not isinstance(attn_mask, Tensor):  # ``check_tensor`` would need the text of the shape even without an error
        raise TypeError(f"attn_mask must be a tensor of shape {_mask_shapes(shape)}, got {type(attn_mask).__name__}")
    check_tensor("attn_mask", attn_mask, ())
    if attn_mask.dtype != torch.bool and attn_mask.dtype not in FLOATS:
        raise TypeError(
            "attn_mask must be bool, True where a query may attend to a key, or floats that are added to the scores, "
            f"got {attn_mask.dtype}; a mask of 0 and 1 is mask.bool()"
        )
    sizes = tuple(attn_mask.shape)
    if len(sizes) not in (2, len(shape)) or not _spreads_over(sizes, shape[-len(sizes) :]):
        raise ValueError(f"attn_mask must have shape {_mask_shapes(shape)}, got {sizes}{_how_to_spread(sizes, shape)}")
    if values_readable(attn_mask) and attn_mask.numel() and not attn_mask.requires_grad:
        _warn_of_masks_meant_otherwise(attn_mask, shape)


def _how_to_spread(sizes: Sequence[int], shape: Sequence[int]) -> str:
    """What the axes are, and what to write for a mask in another library's shape, if it is one."""
    batch_size, num_queries, num_keys, added = shape[0], *shape[-2:], len(shape) - 2
    if sizes == (batch_size, num_keys):
        return f"; a mask of keys, (batch, num_keys), is mask[:{', None' * added}]"
    if len(shape) == 4 and sizes == (batch_size, num_queries, num_keys):
        return "; a mask of each example, (batch, num_queries, num_keys), is mask[:, None]"
    if len(shape) == 4 and sizes == (batch_size * shape[1], num_queries, num_keys):
        return (
            f"; torch.nn's (batch · num_heads, num_queries, num_keys) is mask.unflatten(0, ({batch_size}, {shape[1]}))"
        )
    axes = "batch, num_heads, " if len(shape) == 4 else "batch, "
    return f"; the axes are (num_queries, num_keys) or ({axes}num_queries, num_keys)"


def _warn_of_masks_meant_otherwise(attn_mask: Tensor, shape: Sequence[int]) -> None:
    """Warn of a bool mask with torch.nn's meaning, and of a mask of 0 and 1 that would be added to the scores."""
    if attn_mask.dtype != torch.bool:
        if attn_mask.min() == 0 and attn_mask.max() == 1 and ((attn_mask == 0) | (attn_mask == 1)).all():
            _warn(
                "attn_mask holds floats, 0 and 1, which were added to the scores: nothing is masked. For a mask where "
                "1 means that a key may be attended to, pass mask.bool(); where 1 forbids it, ~mask.bool()"
            )
        return
    one = attn_mask.flatten(end_dim=-3)[0] if attn_mask.dim() > 2 else attn_mask  # (q, k), of the first example
    if len(one) == one.shape[-1] > 1 and not one[0, 0] and torch.equal(one, torch.ones_like(one).triu(1)):
        _warn(
            "attn_mask is True exactly above the diagonal, so that each query attends to later keys alone: True means "
            "that a key may be attended to. For torch.nn's masks, where True forbids, pass ~mask; for causal attention "
            "causal=True"
        )
    elif attn_mask.shape[-2] == 1 or shape[0] == shape[-2] == len(attn_mask):
        _warn_of_key_masks(attn_mask, shape)


def _warn_of_key_masks(attn_mask: Tensor, shape: Sequence[int]) -> None:
    """Warn of a bool mask of padded keys that has torch.nn's meaning, or that is read as one of queries and keys."""
    rows = attn_mask.flatten(end_dim=-2)
    first = rows == rows[:1, :1]
    if not first[:, 0].all() or (first[:, 1:] > first[:, :-1]).any():
        return  # not every row is a stretch of one value, then of the other
    lengths = first.sum(dim=-1)
    steps = lengths.diff()
    if attn_mask.dim() == 2 and len(rows) > 1:
        if (steps < 0).any() and (rows[0, 0] or (steps > 0).any()):  # so it is neither causal nor of padded queries
            _warn(
                f"attn_mask of shape {tuple(rows.shape)} was read as (num_queries, num_keys). A mask of keys, (batch, "
                f"num_keys), where True means that a key may be attended to, is mask[:{', None' * (len(shape) - 2)}]"
            )
    elif not rows[0, 0] and lengths.min() < lengths.max() == rows.shape[-1]:
        _warn(
            "attn_mask is True at the last keys of some examples and nowhere in others, which attend to no key: True "
            "means that a key may be attended to. For a key_padding_mask of torch.nn, where True forbids, pass ~mask"
        )


def _spreads_over(sizes: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a mask has a number for each key, and along each other axis one for each place or one for all."""
    others = zip(sizes[:-1], shape[:-1], strict=True)
    return sizes[-1] == shape[-1] and all(size == 1 or size == whole for size, whole in others)


def _mask_shapes(shape: Sequence[int]) -> str:
    full = ", ".join("1" if size == 1 else f"{size} or 1" for size in shape[:-1])
    return f"({shape[-2]}, {shape[-1]}) or ({full}, {shape[-1]})"
