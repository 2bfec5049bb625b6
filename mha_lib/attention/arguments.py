"""Checks of the arguments of an attention layer: every error names the argument, what it got and what it needs."""

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from mha_lib.attention.execution import is_autocast_on

Init = TypeVar("Init", bound=Callable[..., None])
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)  # torch computes in no other
# What the axes stand for, by their number.
SEQUENCES = {3: "(batch, number, size)"}
SEQUENCES_OR_HEADS = SEQUENCES | {4: "(batch, num_heads, number, size)"}
SIZES = {"queries": "query_size", "keys": "key_size", "values": "value_size"}
SCORES = {3: "(batch, num_queries, num_keys)", 4: "(batch, num_heads, num_queries, num_keys)"}

# What to write for the names of torch.nn and Hugging Face.
OF_KEYS = "attn_mask={}[:, None, None] or, if padding comes last, valid_lens=({}).sum(-1)"
OURS = {
    "is_causal": "causal=", "mask": "attn_mask=",
    "key_padding_mask": OF_KEYS.format(*["~key_padding_mask"] * 2),
    "attention_mask": OF_KEYS.format(*["attention_mask.bool()"] * 2), "output_attentions": "need_weights=",
    "average_attn_weights": "need_weights=True: the weights of each head", "dropout_p": "dropout= as the layer is made",
}  # fmt: skip
MADE_OURS = {
    "embed_dim": "num_hiddens=", "kdim": "key_size=", "vdim": "value_size=",
    "batch_first": "nothing: sequences are (batch, number, size) always",
    **dict.fromkeys(("add_bias_kv", "add_zero_attn"), "nothing: the layer adds no keys of its own"),
}  # fmt: skip


def torchs_names_explained(init: Init) -> Init:
    """Decorate an ``__init__`` so that its TypeError for a name of torch.nn's layer says what to write."""

    @functools.wraps(init)
    def explained(self: object, *given: Any, **named: Any) -> None:
        if name := next((name for name in named if name in MADE_OURS), None):
            raise TypeError(f"{type(self).__name__} takes no argument {name}; write {MADE_OURS[name]}")
        init(self, *given, **named)

    return cast(Init, explained)


def check_flags(**flags: bool) -> None:
    """Raise a TypeError for a keyword argument that is not True or False; the message names it."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be True or False, got {flag!r}")


def check_parameters(device: object, dtype: object) -> None:
    """Raise an error unless torch can make parameters on this device and in this dtype, which must be a float type."""
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
    """Raise an error unless ``size`` is a positive integer; the message calls it ``name``."""
    if type(size) is not int and (isinstance(size, bool) or not isinstance(size, Integral)):  # int first: it is fastest
        raise TypeError(f"{name} must be an integer, got {size!r}")
    if size < 1:
        raise ValueError(f"{name} must be at least 1, got {size}")


def check_divisible(num_hiddens: int, num_heads: int) -> None:
    """Raise an error unless both are positive integers and ``num_hiddens`` is divisible by ``num_heads``."""
    check_size("num_hiddens", num_hiddens)
    check_size("num_heads", num_heads)
    if num_hiddens % num_heads:
        fitting = [heads for heads in range(1, num_hiddens + 1) if num_hiddens % heads == 0]
        raise ValueError(
            f"num_hiddens must be divisible by num_heads, got num_hiddens={num_hiddens}, num_heads={num_heads}; "
            f"num_heads that fit: {fitting}"
        )


def check_dropout(dropout: float) -> None:
    """Raise an error unless ``dropout`` is a number from 0 to 1."""
    if isinstance(dropout, bool) or not isinstance(dropout, Real):
        raise TypeError(f"dropout must be a number from 0 to 1, got {dropout!r}")
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be from 0 to 1, got {dropout}")


def check_bandwidth(bandwidth: float) -> None:
    """Raise an error unless ``bandwidth`` is a positive number."""
    if isinstance(bandwidth, bool) or not isinstance(bandwidth, Real):
        raise TypeError(f"bandwidth must be a number, got {bandwidth!r}")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be positive, got {bandwidth}")


def check_tensor(name: str, tensor: Tensor, shapes: Iterable) -> None:
    """Raise a TypeError unless ``tensor`` is a dense tensor; ``name`` and ``shapes`` are for the message."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor of shape {_one_of(shapes)}, got {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {tensor.layout}")


def check_device(name: str, tensor: Tensor, device: torch.device, of: str) -> None:
    """Raise a ValueError unless ``tensor`` is on ``device``; ``of`` tells the message whose device that is."""
    if tensor.device != device:
        raise ValueError(f"{name} must be on the device of {of}, {device}, got {tensor.device}")


def check_floats(name: str, tensor: Tensor, ranks: Mapping[int, str]) -> None:
    """Raise an error unless ``tensor`` is a dense float tensor whose number of axes is a key of ``ranks``."""
    check_tensor(name, tensor, ranks.values())
    if tensor.dim() not in ranks:
        raise ValueError(f"{name} must have shape {_one_of(ranks.values())}, got {tuple(tensor.shape)}")
    if tensor.dtype not in FLOATS:
        raise TypeError(f"{name} must hold floating-point numbers of 16, 32 or 64 bits, got {tensor.dtype}")


def check_sequences(
    queries: Tensor, keys: Tensor, values: Tensor, ranks: Mapping[int, str] = SEQUENCES_OR_HEADS, groups: bool = False
) -> None:
    """Raise an error unless queries, keys and values fit together in rank, batch, number of keys, dtype and device.

    With ``groups``, keys and values may have fewer heads than the queries, by a whole factor.
    """
    if torch.jit.is_tracing():  # the trace would use this call's lengths in every call
        raise RuntimeError("torch.jit.trace cannot record attention layers: use torch.export or torch.compile")
    if _belong_together(queries, keys, values, ranks):  # what is right costs little
        return
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        check_floats(name, tensor, ranks)
    for name, tensor in (("keys", keys), ("values", values)):
        shared = groups and queries.dim() == 4 == tensor.dim() and len(tensor) == len(queries)
        shared = shared and 0 < tensor.shape[1] == keys.shape[1] and queries.shape[1] % tensor.shape[1] == 0
        if tensor.shape[:-2] != queries.shape[:-2] and not shared:
            heads = queries.dim() == 4 == tensor.dim() and tensor.shape[0] == queries.shape[0]
            hint = "; the axes are (batch, num_heads, number, size), and only with takes_groups heads share keys"
            raise ValueError(
                f"{name} must have the batch size of queries{', and its heads' * heads}: "
                f"queries is {tuple(queries.shape)}, {name} is {tuple(tensor.shape)}{hint * (heads and not groups)}"
            )
        if tensor.dtype != queries.dtype and not is_autocast_on(tensor):
            raise TypeError(f"{name} must have the dtype of queries, {queries.dtype}, got {tensor.dtype}")
        check_device(name, tensor, queries.device, "queries")
    if values.shape[-2] != keys.shape[-2]:
        raise ValueError(f"values must be as many as keys: {keys.shape[-2]} keys, {values.shape[-2]} values")


def _belong_together(queries: Tensor, keys: Tensor, values: Tensor, ranks: Mapping[int, str]) -> bool:
    """Whether there is nothing to refuse; where this says no, the closer look may still find nothing."""
    for X in (queries, keys, values):
        if not isinstance(X, Tensor) or X.layout != torch.strided or X.dtype not in FLOATS:
            return False
    shape, of_keys, of_values = queries.shape, keys.shape, values.shape
    return (
        len(shape) in ranks
        and len(shape) == len(of_keys) == len(of_values)
        and shape[:-2] == of_keys[:-2]
        and of_keys[:-1] == of_values[:-1]
        and queries.dtype == keys.dtype == values.dtype
        and queries.device == keys.device == values.device
    )


def check_same_size(queries: Tensor, keys: Tensor) -> None:
    """Raise a ValueError unless queries and keys have the same size on the last axis, as a dot product needs."""
    if queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"keys must have the size of queries on the last axis: {queries.shape[-1]}, got {keys.shape[-1]}; "
            "AdditiveAttention and MultiHeadAttention take different sizes"
        )


def check_projections(**inputs: tuple[Tensor, nn.Module]) -> None:
    """Raise an error where a tensor's last axis, dtype or device does not fit the projection that it is paired with.

    What a projection does not report is not checked: the size of a lazy one, and all of a module of the caller's own
    without ``in_features`` or ``weight``.
    """
    for name, (tensor, projection) in inputs.items():
        weight = getattr(projection, "weight", None)  # a quantised map has a method of this name
        size, given = getattr(projection, "in_features", 0), tensor.shape[-1]
        if (given != size and size) or not given:  # a lazy one would take 0 for its size, and not initialise its bias
            needed = f"{size or '1 or more'} on the last axis ({SIZES[name]})"
            raise ValueError(f"{name} must have size {needed}, got {tuple(tensor.shape)}")
        if not isinstance(weight, Tensor) or weight.dtype not in FLOATS:
            continue
        if tensor.dtype != weight.dtype and not is_autocast_on(tensor):
            raise TypeError(
                f"{name} must have the dtype of the layer's parameters, {weight.dtype}, got {tensor.dtype}; "
                f"convert one of them, for example layer.to({tensor.dtype})"
            )
        if tensor.device != weight.device:
            check_device(name, tensor, weight.device, "the layer's parameters")


def check_new_layer(
    num_hiddens: int, num_heads: int, head_size: int | None, num_key_value_heads: int | None,
    bias: bool, device: object, dtype: object,
) -> None:  # fmt: skip
    """Raise an error unless a multi-head attention layer can be made of these arguments."""
    check_flags(bias=bias)
    check_parameters(device, dtype)
    if head_size is None:
        check_divisible(num_hiddens, num_heads)
        head_size = num_hiddens // num_heads
    for name, size in dict(num_hiddens=num_hiddens, num_heads=num_heads, head_size=head_size).items():
        check_size(name, size)
    if num_key_value_heads is not None:
        check_groups(num_heads, num_key_value_heads)


def check_call(
    layer: Any, queries: Tensor, keys: Tensor, values: Tensor, head_mask: Tensor | None, need_weights: bool,
    others: Mapping[str, object],
) -> None:  # fmt: skip
    """Raise an error unless these are valid arguments for calling ``layer``, a ``MultiHeadAttention``.
    Masks of keys are checked later.
    """
    for name in others:
        hint = f"; write {OURS[name]}" if name in OURS else ""
        raise TypeError(f"{type(layer).__name__} takes no argument {name}{hint}")
    check_flags(need_weights=need_weights)
    check_sequences(queries, keys, values, SEQUENCES)
    check_projections(queries=(queries, layer.W_q), keys=(keys, layer.W_k), values=(values, layer.W_v))
    if head_mask is None:
        return
    shapes = (layer.num_heads,), (queries.shape[0], layer.num_heads)
    check_tensor("head_mask", head_mask, shapes)
    if head_mask.is_complex():
        raise TypeError(f"head_mask must hold real numbers, got {head_mask.dtype}")
    check_shape("head_mask", head_mask, shapes, ", one gate a head")
    check_device("head_mask", head_mask, queries.device, "queries")


def check_pooling(
    attention: Any, queries: Tensor, keys: Tensor, values: Tensor, same_size: bool = False, **flags: bool
) -> None:
    """Raise an error unless these are valid arguments for calling ``attention``. Masks of keys are checked later."""
    check_flags(**flags)
    check_sequences(queries, keys, values, groups=attention.takes_groups)
    if same_size and queries.shape[-1] != keys.shape[-1]:
        check_same_size(queries, keys)


def check_groups(num_heads: int, num_key_value_heads: int) -> None:
    """Raise an error unless ``num_key_value_heads`` is a positive integer that divides ``num_heads``."""
    check_size("num_key_value_heads", num_key_value_heads)
    if num_heads % num_key_value_heads:
        raise ValueError(
            f"num_key_value_heads must divide num_heads, got num_key_value_heads={num_key_value_heads}, "
            f"num_heads={num_heads}"
        )


def check_attention(attention: nn.Module | None, kind: type[nn.Module], dropout: float) -> None:
    """Raise an error if ``attention`` is given and is not a ``kind``, or if ``dropout`` is given as well."""
    if attention is None:
        return
    if not isinstance(attention, kind):
        raise TypeError(f"attention must be an instance of {kind.__name__}, got {attention!r}")
    if dropout:
        raise ValueError(f"dropout must be left to the attention that is given, got {dropout}")


def refuse_older_order(layer: nn.Module, older: Sequence[object], by_position: str, by_keyword: str) -> None:
    """Raise a TypeError if a call passes surplus positional arguments (``older``), as calls of an older d2l do."""
    if older:
        name, keywords = type(layer).__name__, by_keyword.replace(",", "=…,")
        raise TypeError(
            f"{name} takes {by_position} by position; write the book's older order by keyword: {name}({keywords}=…)"
        )


# An error's text is made only when the error is raised: made earlier, it would tie a compiled graph to its sizes.
def check_shape(
    name: str, tensor: Tensor, shapes: Sequence[tuple[int, ...]], why: str = "", hint: Callable[[], str] = str
) -> None:
    """Raise a ValueError unless the tensor's shape is one of ``shapes``; the other arguments are for the message."""
    # Compared size by size: looking a tuple up among others would tie a compiled graph to the sizes of this call.
    for shape in shapes:
        if tensor.dim() == len(shape) and all(map(operator.eq, tensor.shape, shape)):
            return
    raise ValueError(f"{name} must have shape {_one_of(shapes)}{why}, got {tuple(tensor.shape)}{hint()}")


def _one_of(shapes: Iterable) -> str:
    return " or ".join(map(str, shapes))
