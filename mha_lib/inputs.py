"""Checks of what a caller hands to an attention layer: every error names the argument, what came, what is needed."""

from numbers import Integral

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter


def in_function_transform() -> bool:
    """Whether a transform of ``torch.func``, such as ``vmap`` or ``grad``, is at work."""
    return torch._C._are_functorch_transforms_active()


def values_readable(*tensors: Tensor) -> bool:
    """Whether numbers inside the tensors may be looked at.

    They may not under ``torch.compile``, export, function transforms such as ``vmap``, and on the ``meta`` device:
    there a tensor stands for many runs, or for none.
    """
    return not (torch.compiler.is_compiling() or in_function_transform() or any(tensor.is_meta for tensor in tensors))


def _is_autocast_on(tensor: Tensor) -> bool:
    """Whether torch converts dtypes by itself on the tensor's device."""
    kind = tensor.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def check_size(name: str, size: int) -> None:
    """Refuse a size that is not a positive integer."""
    if isinstance(size, bool) or not isinstance(size, Integral):
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


def check_sequences(queries: Tensor, keys: Tensor, values: Tensor, ranks: tuple[int, ...] = (3,)) -> None:
    """Refuse queries, keys and values that do not belong together (rank, batch, number of keys, dtype)."""
    wanted = " or ".join({3: "(batch, number, size)", 4: "(batch, num_heads, number, size)"}[r] for r in ranks)
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor of shape {wanted}, got {type(tensor).__name__}")
        if tensor.dim() not in ranks:
            raise ValueError(f"{name} must have shape {wanted}, got {tuple(tensor.shape)}")
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must hold floating-point numbers, got {tensor.dtype}")
    for name, tensor in (("keys", keys), ("values", values)):
        if tensor.shape[:-2] != queries.shape[:-2]:
            raise ValueError(
                f"{name} must have the batch size of queries: "
                f"queries is {tuple(queries.shape)}, {name} is {tuple(tensor.shape)}"
            )
        if tensor.dtype != queries.dtype and not _is_autocast_on(tensor):
            raise TypeError(f"{name} must have the dtype of queries, {queries.dtype}, got {tensor.dtype}")
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
    needed = f"({batch_size},) or ({batch_size}, {num_queries})"
    if not isinstance(valid_lens, Tensor):
        raise TypeError(f"valid_lens must be a tensor of shape {needed}, got {type(valid_lens).__name__}")
    if valid_lens.dtype == torch.bool:
        raise TypeError(
            "valid_lens must hold counts of valid keys, got a bool mask; "
            "for a mask that is True on a prefix of the keys, pass mask.sum(-1)"
        )
    if valid_lens.is_complex():
        raise TypeError(f"valid_lens must hold counts of valid keys, got {valid_lens.dtype}")
    if tuple(valid_lens.shape) not in ((batch_size,), (batch_size, num_queries)):
        raise ValueError(f"valid_lens must have shape {needed}, got {tuple(valid_lens.shape)}")
    if valid_lens.numel() == 0 or not values_readable(valid_lens):
        return
    shortest, longest = (end.item() for end in valid_lens.aminmax())
    if not (shortest >= 0 and longest <= num_keys):
        raise ValueError(
            f"valid_lens must lie between 0 and the number of keys, {num_keys}; got {shortest} to {longest}"
        )
    if valid_lens.is_floating_point() and (valid_lens != valid_lens.floor()).any():
        raise ValueError(f"valid_lens must hold whole numbers, got {valid_lens[valid_lens != valid_lens.floor()][0]}")


def check_head_mask(head_mask: Tensor, batch_size: int, num_heads: int) -> None:
    """Refuse gates that are not one a head, or one a head and example."""
    needed = f"({num_heads},) or ({batch_size}, {num_heads})"
    if not isinstance(head_mask, Tensor):
        raise TypeError(f"head_mask must be a tensor of shape {needed}, got {type(head_mask).__name__}")
    if tuple(head_mask.shape) not in ((num_heads,), (batch_size, num_heads)):
        raise ValueError(f"head_mask must have shape {needed}, one gate a head, got {tuple(head_mask.shape)}")


def check_projection(name: str, tensor: Tensor, weight: Tensor, size_name: str) -> None:
    """Refuse an input that a linear map of the layer cannot take (last axis, dtype).

    ``weight`` may still be uninitialised (a lazy layer before its first call): then every size fits.
    """
    if not isinstance(weight, UninitializedParameter) and tensor.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"{name} must have size {weight.shape[1]} on the last axis ({size_name}), got {tuple(tensor.shape)}"
        )
    if tensor.dtype != weight.dtype and not _is_autocast_on(tensor):
        raise TypeError(
            f"{name} must have the dtype of the layer's parameters, {weight.dtype}, got {tensor.dtype}; "
            f"convert one of them, for example layer.to({tensor.dtype})"
        )
