"""What a layer computes, as plain weights; a layer that computes anything else is refused, for converters to use."""

import torch
from torch import Tensor, nn

from mha_lib.attention.fused import FusedAttention
from mha_lib.attention.multi_head import MultiHeadAttention
from mha_lib.attention.pooling import DotProductAttention

MAPS = ("W_q", "W_k", "W_v", "W_o")
DENSE = (Tensor, nn.Parameter, nn.parameter.UninitializedParameter)


def check_plain(layer: MultiHeadAttention, whose: str) -> None:
    """Raise an error unless ``layer`` is plain multi-head attention, with nothing that torch's or d2l's layer lacks.

    Raises:
        TypeError: ``layer`` is not a layer of this library.
        ValueError: it has heads that share keys and values, or a method of its own where this library's computes.
    """
    if not isinstance(layer, MultiHeadAttention):
        raise TypeError(f"layer must be mha_lib's MultiHeadAttention for {whose} layer, got {type(layer).__name__}")
    if own := _own_methods(type(layer), MultiHeadAttention):
        raise ValueError(
            f"layer must compute as MultiHeadAttention does for {whose} layer, "
            f"got {type(layer).__name__} with its own {', '.join(own)}"
        )
    attention = type(layer.attention)
    plain = FusedAttention if issubclass(attention, FusedAttention) else DotProductAttention
    own = _own_methods(attention, plain)
    if not issubclass(attention, plain) or own:
        got = f"{attention.__name__} with its own {', '.join(own)}" if own else attention.__name__
        raise ValueError(f"layer must attend by plain dot products for {whose} layer, got attention={got}")
    _check_hooks(layer.attention, "layer.attention", whose)
    if layer.num_key_value_heads != layer.num_heads:
        raise ValueError(
            f"layer must have as many key/value heads as heads for {whose} layer, "
            f"got num_key_value_heads={layer.num_key_value_heads}, num_heads={layer.num_heads}"
        )


def _own_methods(kind: type, plain: type) -> list[str]:
    """The methods of ``plain`` that a subclass replaces, but those that compute nothing."""
    silent = {"__init__", "__doc__", "__module__", "__getstate__", "extra_repr"}
    later = kind.__mro__[: kind.__mro__.index(plain)] if plain in kind.__mro__ else ()
    names = {name for one in later for name, value in vars(one).items() if callable(value)}
    return sorted(name for name in names - silent if hasattr(plain, name))


def parameters_of(layer: nn.Module, what: str, whose: str) -> dict[str, Tensor]:
    """Return the weights and biases of the layer's projections in a dict, by names such as "W_q.weight".

    What torch prunes or parametrises is given as it is computed; what is trained of it has ``requires_grad``. If some
    maps have a bias, the others get zeros, which are not trained.

    Args:
        what: the argument that ``layer`` came as.
        whose: the library that the weights go to, for the message.

    Raises:
        ValueError: a map is not an ``nn.Linear`` (an adapter, a quantised map), or has hooks that may change it.
    """
    found: dict[str, Tensor] = {}
    for name in MAPS:
        linear = getattr(layer, name)
        is_linear = isinstance(linear, nn.Linear) and type(linear).forward is nn.Linear.forward
        if not is_linear or type(_fresh(linear, f"{what}.{name}", whose).weight) not in DENSE:
            raise ValueError(
                f"{what} must have an nn.Linear as {name} for {whose} layer, which computes with its weight as it is, "
                f"got {type(linear).__module__}.{type(linear).__qualname__}: merge an adapter into the map, "
                "or convert before quantising"
            )
        found[f"{name}.weight"] = linear.weight
    biases = {name: getattr(layer, name).bias for name in MAPS}
    if any(bias is not None for bias in biases.values()):
        for name, bias in biases.items():
            found[f"{name}.bias"] = torch.zeros(getattr(layer, name).out_features) if bias is None else bias
    return found


def _fresh(linear: nn.Linear, name: str, whose: str) -> nn.Linear:
    """The map itself, after what torch computes before each call of a pruned or normalised one."""
    _check_hooks(linear, name, whose)
    for hook in linear._forward_pre_hooks.values():
        if _of(hook).startswith("torch.nn.utils."):
            hook(linear, ())
    return linear


def _check_hooks(module: nn.Module, name: str, whose: str) -> None:
    """Refuse hooks that are not torch's own: they may change what is computed, and would not come along."""
    before = [hook for hook in module._forward_pre_hooks.values() if not _of(hook).startswith("torch.nn.")]
    if before or module._forward_hooks:
        raise ValueError(f"{name} must have no hooks for {whose} layer, which would compute without them; remove them")


def _of(hook: object) -> str:
    """The module that a hook comes from."""
    return getattr(hook, "__module__", None) or ""
