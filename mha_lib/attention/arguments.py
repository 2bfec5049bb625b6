"""Checks of what a caller hands to an attention layer: every error names the argument, what came, what is needed."""

import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

INSIDE = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(torch.__file__).parent))

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # torch computes in no other
FAKE, RECORDED = torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.PROXY
# What the axes stand for, by their number.
SEQUENCES = {3: "(batch, number, size)"}
SEQUENCES_OR_HEADS = SEQUENCES | {4: "(batch, num_heads, number, size)"}
SCORES = {3: "(batch, num_queries, num_keys)", 4: "(batch, num_heads, num_queries, num_keys)"}


def in_function_transform() -> bool:
    """Whether a transform of ``torch.func``, such as ``vmap`` or ``grad``, is at work."""
    return torch._C._are_functorch_transforms_active()


def in_forward_mode() -> bool:
    """Whether tensors may carry tangents of ``torch.autograd.forward_ad``, which needs no function transform."""
    return forward_ad._current_level >= 0


def in_plain_call(*tensors: Tensor) -> bool:
    """Whether a call stands for itself, so that its weights may be kept.

    It does not under ``torch.compile``, export, ``make_fx``, function transforms such as ``vmap``, and with fake
    tensors: there it stands for many calls, or for none.
    """
    if torch.compiler.is_compiling() or in_function_transform():
        return False
    if torch._C._len_torch_dispatch_stack() and any(map(torch._C._get_dispatch_mode, (RECORDED, FAKE))):
        return False
    return not any(hasattr(X, "fake_mode") for X in tensors)


def values_readable(tensor: Tensor) -> bool:
    """Whether numbers inside a tensor may be looked at, and at once.

    They are not on the ``meta`` device, and to look at them on a GPU would make the program wait for it.
    """
    return tensor.device.type == "cpu" and in_plain_call(tensor)


def _is_autocast_on(tensor: Tensor) -> bool:
    """Whether torch converts dtypes by itself on the tensor's device."""
    kind = tensor.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def without_autocast(tensor: Tensor) -> AbstractContextManager:
    """What is computed in this context has the dtypes of what it is computed from."""
    return torch.autocast(tensor.device.type, enabled=False) if _is_autocast_on(tensor) else nullcontext()


def check_flag(name: str, flag: bool) -> None:
    """Refuse what is not a bool."""
    if not isinstance(flag, bool):
        raise TypeError(f"{name} must be True or False, got {flag!r}")


def check_parameters(device: object, dtype: object) -> None:
    """Refuse a device on which torch makes no parameters here, or a dtype in which no layer computes."""
    asked: dict[str, Any] = {}
    for name, value in (("device", device), ("dtype", dtype)):
        asked[name] = value
        try:
            made = torch.empty(0, **asked)
        except Exception as error:  # torch has several kinds
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{name} must be one that torch has here, got {value!r}: {error}") from error
    if made.dtype not in FLOATS:
        raise TypeError(f"dtype must be one of floating-point numbers of 16, 32 or 64 bits, got {dtype!r}")


def check_size(name: str, size: int) -> None:
    """Refuse a size that is not a positive integer."""
    if type(size) is not int and (isinstance(size, bool) or not isinstance(size, Integral)):  # int first: it is fastest
        raise TypeError(f"{name} must be an integer, got {size!r}")
    if size < 1:
        raise ValueError(f"{name} must be at least 1, got {size}")


def check_divisible(num_hiddens: int, num_heads: int) -> None:
    """Refuse sizes that do not split into equal heads."""
    check_size("num_hiddens", num_hiddens)
    check_size("num_heads", num_heads)
    if num_hiddens % num_heads:
        fitting = [heads for heads in range(1, num_hiddens + 1) if num_hiddens % heads == 0]
        raise ValueError(
            f"num_hiddens must be divisible by num_heads, got num_hiddens={num_hiddens}, num_heads={num_heads}; "
            f"num_heads that fit: {fitting}"
        )


def check_dropout(dropout: float) -> None:
    """Refuse what is not a probability."""
    if isinstance(dropout, bool) or not isinstance(dropout, Real):
        raise TypeError(f"dropout must be a number from 0 to 1, got {dropout!r}")
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be from 0 to 1, got {dropout}")


def check_bandwidth(bandwidth: float) -> None:
    """Refuse what is not a positive number."""
    if isinstance(bandwidth, bool) or not isinstance(bandwidth, Real):
        raise TypeError(f"bandwidth must be a number, got {bandwidth!r}")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be positive, got {bandwidth}")


def check_untraced() -> None:
    """Refuse ``torch.jit.trace``, which would take the lengths of one call for those of every call."""
    if torch.jit.is_tracing():
        raise RuntimeError("torch.jit.trace cannot record attention layers: use torch.export or torch.compile")


def check_tensor(name: str, tensor: Tensor, shapes: Iterable) -> None:
    """Refuse what is not a dense tensor; ``shapes`` are those it may have."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor of shape {_one_of(shapes)}, got {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {tensor.layout}")


def check_device(name: str, tensor: Tensor, device: torch.device, of: str) -> None:
    """Refuse a tensor that is elsewhere than what ``of`` names."""
    if tensor.device != device:
        raise ValueError(f"{name} must be on the device of {of}, {device}, got {tensor.device}")


def check_floats(name: str, tensor: Tensor, ranks: Mapping[int, str]) -> None:
    """Refuse what is not a dense tensor of floating-point numbers with one of these numbers of axes."""
    check_tensor(name, tensor, ranks.values())
    if tensor.dim() not in ranks:
        raise ValueError(f"{name} must have shape {_one_of(ranks.values())}, got {tuple(tensor.shape)}")
    if tensor.dtype not in FLOATS:
        raise TypeError(f"{name} must hold floating-point numbers of 16, 32 or 64 bits, got {tensor.dtype}")


def check_sequences(
    queries: Tensor, keys: Tensor, values: Tensor, ranks: Mapping[int, str] = SEQUENCES_OR_HEADS
) -> None:
    """Refuse queries, keys and values that do not belong together (rank, batch, number of keys, dtype, device)."""
    check_untraced()
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        check_floats(name, tensor, ranks)
    for name, tensor in (("keys", keys), ("values", values)):
        if tensor.shape[:-2] != queries.shape[:-2]:
            raise ValueError(
                f"{name} must have the batch size of queries: "
                f"queries is {tuple(queries.shape)}, {name} is {tuple(tensor.shape)}"
            )
        if tensor.dtype != queries.dtype and not _is_autocast_on(tensor):
            raise TypeError(f"{name} must have the dtype of queries, {queries.dtype}, got {tensor.dtype}")
        check_device(name, tensor, queries.device, "queries")
    if values.shape[-2] != keys.shape[-2]:
        raise ValueError(f"values must be as many as keys: {keys.shape[-2]} keys, {values.shape[-2]} values")


def check_same_size(queries: Tensor, keys: Tensor) -> None:
    """Refuse queries and keys of different sizes where the score compares them entry by entry."""
    if queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"keys must have the size of queries on the last axis: {queries.shape[-1]}, got {keys.shape[-1]}; "
            "AdditiveAttention and MultiHeadAttention take different sizes"
        )


def check_valid_lens(valid_lens: Tensor, batch_size: int, num_queries: int, num_keys: int) -> None:
    """Refuse lengths that are not counts of keys, one for each example or one for each query."""
    shapes = (batch_size,), (batch_size, num_queries)
    check_tensor("valid_lens", valid_lens, shapes)
    if valid_lens.dtype == torch.bool:
        raise TypeError(
            "valid_lens must hold counts of valid keys, got a bool mask; "
            "for a mask that is True on a prefix of the keys, pass mask.sum(-1)"
        )
    if valid_lens.is_complex():
        raise TypeError(f"valid_lens must hold counts of valid keys, got {valid_lens.dtype}")
    _check_shape("valid_lens", valid_lens, shapes)
    if valid_lens.numel() == 0 or not values_readable(valid_lens):
        return
    # torch compares numbers of some types only: all of them fit into one of these two.
    counts = valid_lens.double() if valid_lens.is_floating_point() else valid_lens.long()
    shortest, longest = (end.item() for end in counts.aminmax())
    if not (shortest >= 0 and longest <= num_keys):
        raise ValueError(
            f"valid_lens must lie between 0 and the number of keys, {num_keys}; got {shortest} to {longest}"
        )
    if valid_lens.is_floating_point() and (counts != counts.floor()).any():
        raise ValueError(f"valid_lens must hold whole numbers, got {counts[counts != counts.floor()][0]}")
    if valid_lens.dim() == 1 and batch_size == num_queries > 2:
        _warn_of_lengths_for_queries(counts)


def _warn_of_lengths_for_queries(counts: Tensor) -> None:
    """Warn of 1, 2, 3, …, n for n examples of n queries: surely meant for the queries, but read for the examples."""
    n = len(counts)
    if counts.tolist() == list(range(1, n + 1)):
        warnings.warn(
            f"valid_lens of shape ({n},) is one length for each example, also where there are {n} queries. For causal "
            f"attention pass causal=True; for one length a query, shape ({n}, {n}): valid_lens.expand({n}, {n})",
            stacklevel=_levels_inside(),
        )


def _levels_inside() -> int:
    """Which of a warning's callers, the function that warns being the first, is code of neither mha_lib nor torch."""
    callers = traceback.walk_stack(sys._getframe(1))
    files = enumerate((frame.f_code.co_filename for frame, _ in callers), start=1)
    return next((level for level, file in files if not file.startswith(INSIDE)), 1)


def check_attn_mask(attn_mask: Tensor, shape: Sequence[int]) -> None:
    """Refuse what is not a mask or bias for scores of this shape, (b, q, k) or (b, h, q, k)."""
    if not isinstance(attn_mask, Tensor):  # asked here, since words about the shape are for errors alone, see below
        raise TypeError(f"attn_mask must be a tensor of shape {_mask_shapes(shape)}, got {type(attn_mask).__name__}")
    check_tensor("attn_mask", attn_mask, ())
    if attn_mask.dtype != torch.bool and attn_mask.dtype not in FLOATS:
        raise TypeError(
            "attn_mask must be bool, True where a query may attend to a key, or floats that are added to the scores, "
            f"got {attn_mask.dtype}"
        )
    sizes = tuple(attn_mask.shape)
    if len(sizes) not in (2, len(shape)) or not _spreads_over(sizes, shape[-len(sizes) :]):
        raise ValueError(f"attn_mask must have shape {_mask_shapes(shape)}, got {sizes}")


def _spreads_over(sizes: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a mask has a number for each key, and along each other axis one for each place or one for all."""
    others = zip(sizes[:-1], shape[:-1], strict=True)
    return sizes[-1] == shape[-1] and all(size == 1 or size == whole for size, whole in others)


def _mask_shapes(shape: Sequence[int]) -> str:
    full = ", ".join(f"{size} or 1" for size in shape[:-1])
    return f"({shape[-2]}, {shape[-1]}) or ({full}, {shape[-1]})"


def check_masks(
    shape: Sequence[int], device: torch.device, valid_lens: Tensor | None, attn_mask: Tensor | None, causal: bool
) -> None:
    """Refuse masks that do not fit scores of this shape, (b, q, k) or (b, h, q, k), on this device."""
    if valid_lens is not None:
        check_valid_lens(valid_lens, shape[0], shape[-2], shape[-1])
        check_device("valid_lens", valid_lens, device, "the scores")
    if attn_mask is not None:
        check_attn_mask(attn_mask, shape)
        check_device("attn_mask", attn_mask, device, "the scores")
    check_flag("causal", causal)


def check_call(
    queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None, attn_mask: Tensor | None, causal: bool
) -> tuple[int, ...]:
    """Refuse what one attention cannot take; what it can, has scores of the shape that is returned."""
    check_sequences(queries, keys, values)
    shape = *queries.shape[:-1], keys.shape[-2]
    check_masks(shape, queries.device, valid_lens, attn_mask, causal)
    return shape


def check_head_mask(head_mask: Tensor | None, queries: Tensor, num_heads: int) -> None:
    """Refuse gates that are not one a head, or one a head and example, or not where the queries are."""
    if head_mask is None:
        return
    shapes = (num_heads,), (queries.shape[0], num_heads)
    check_tensor("head_mask", head_mask, shapes)
    if head_mask.is_complex():
        raise TypeError(f"head_mask must hold real numbers, got {head_mask.dtype}")
    _check_shape("head_mask", head_mask, shapes, ", one gate a head")
    check_device("head_mask", head_mask, queries.device, "queries")


def check_projection(name: str, tensor: Tensor, projection: nn.Module, size_name: str) -> None:
    """Refuse an input that a projection of the layer cannot take (last axis, dtype, device).

    What a projection does not tell is not checked: its size while it is lazy, all of it where it is a module of the
    caller's own that has no ``in_features`` or no ``weight``.
    """
    size = getattr(projection, "in_features", 0)
    if size and tensor.shape[-1] != size:
        raise ValueError(f"{name} must have size {size} on the last axis ({size_name}), got {tuple(tensor.shape)}")
    if not tensor.shape[-1]:  # a lazy one would take 0 for its size, and leave its bias as memory was
        raise ValueError(f"{name} must have size 1 or more on the last axis ({size_name}), got {tuple(tensor.shape)}")
    weight = getattr(projection, "weight", None)  # of a quantised map a method
    if not isinstance(weight, Tensor) or weight.dtype not in FLOATS:
        return
    if tensor.dtype != weight.dtype and not _is_autocast_on(tensor):
        raise TypeError(
            f"{name} must have the dtype of the layer's parameters, {weight.dtype}, got {tensor.dtype}; "
            f"convert one of them, for example layer.to({tensor.dtype})"
        )
    check_device(name, tensor, weight.device, "the layer's parameters")


def check_groups(num_heads: int, num_key_value_heads: int) -> None:
    """Refuse key/value heads that do not serve equally many query heads each."""
    check_size("num_key_value_heads", num_key_value_heads)
    if num_heads % num_key_value_heads:
        raise ValueError(
            f"num_key_value_heads must divide num_heads, got num_key_value_heads={num_key_value_heads}, "
            f"num_heads={num_heads}"
        )


def check_attention(attention: nn.Module | None, kind: type[nn.Module], dropout: float) -> None:
    """Refuse an attention for the heads that is none, or that comes with a dropout beside its own."""
    if attention is None:
        return
    if not isinstance(attention, kind):
        raise TypeError(f"attention must be an instance of {kind.__name__}, got {attention!r}")
    if dropout:
        raise ValueError(f"dropout must be left to the attention that is given, got {dropout}")


def refuse_older_order(layer: nn.Module, older: Sequence[object], by_position: str, by_keyword: str) -> None:
    """Refuse arguments in the order of the book's first edition, which would be taken for others."""
    if older:
        name, keywords = type(layer).__name__, by_keyword.replace(",", "=…,")
        raise TypeError(
            f"{name} takes {by_position} by position; write the book's older order by keyword: {name}({keywords}=…)"
        )


# What is wrong is put into words only where something is: text on the way would tie a compiled graph to its sizes.


def _check_shape(name: str, tensor: Tensor, shapes: Sequence[tuple[int, ...]], why: str = "") -> None:
    """Refuse a tensor that has none of these shapes."""
    # Size by size: to look a tuple up in others would tie a compiled graph to the sizes of this call.
    if not any(tensor.dim() == len(shape) and _same(tensor.shape, shape) for shape in shapes):
        raise ValueError(f"{name} must have shape {_one_of(shapes)}{why}, got {tuple(tensor.shape)}")


def _same(sizes: Sequence[int], others: Sequence[int]) -> bool:
    return all(size == other for size, other in zip(sizes, others, strict=True))


def _one_of(shapes: Iterable) -> str:
    return " or ".join(map(str, shapes))
