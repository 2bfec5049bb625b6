"""A layer of a learner's own in a trained model, with the trained weights."""

import inspect
from collections.abc import Callable

import torch
from torch import nn

from mha_course.models.any_layer import MAPS, Model, copied, linear_maps, num_heads_of
from mha_course.models.training import seeded
from mha_lib.attention import DotProductAttention, FusedAttention, MultiHeadAttention


def with_layer(model: Model, Layer: Callable[..., nn.Module]) -> Model:
    """Return a copy of ``model`` whose attention layers are made by ``Layer`` and hold the same trained weights.

    Args:
        model: one of this library, such as ``shipped_model("lookups")``.
        Layer: called as ``Layer(num_hiddens, num_heads, bias=…)``, and with ``dropout`` if it takes it.

    The copy is in eval mode. Whether the class computes the same is not checked: a wrong layer gets the weights, too.

    Raises:
        TypeError: ``Layer`` cannot be made, or its layers lack one of the maps ``W_q, W_k, W_v, W_o`` or a bias that
            the trained ones have.
        ValueError: a map has another shape, ``Layer`` has more parameters, or the model's own attention is no plain
            multi-head attention (rotary positions, grouped keys).
    """
    model = copied(model)
    replaced = 0
    for part in list(model.modules()):
        layer = getattr(part, "attention", None)
        if isinstance(layer, nn.Module) and hasattr(layer, "W_o"):
            part.attention = _filled(Layer, layer)
            replaced += 1
    if not replaced:
        raise ValueError(f"model must have blocks with an attention of heads, got {type(model).__name__}")
    return model.eval()


def _filled(Layer: Callable[..., nn.Module], trained: nn.Module) -> nn.Module:
    """A layer of this class with the weights of the trained one."""
    _check_plain(trained)
    W_q, _, _, W_o = linear_maps(trained, MAPS)
    made = _made(Layer, W_o.out_features, num_heads_of(trained), W_o.bias is not None, _dropout_of(trained))
    name, there = type(made).__name__, dict(made.named_parameters())
    weights = {key: value for key, value in trained.state_dict().items() if key.partition(".")[0] in MAPS}
    missing = [key for key in weights if key not in there]
    if missing:
        with_bias = "" if W_o.bias is None else " with a bias"
        raise TypeError(
            f"{name} must have W_q, W_k, W_v and W_o, each an nn.Linear{with_bias}, "
            f"for the trained weights; missing: {', '.join(missing)}; there are: {', '.join(there) or 'no parameters'}"
        )
    extra = [key for key in there if key not in weights]
    unknown = [key for key in extra if key not in [f"{map_}.bias" for map_ in MAPS]]
    if unknown:
        raise ValueError(f"{name} has parameters for which the trained layer has no values: {', '.join(unknown)}")
    for key, value in weights.items():
        if not nn.parameter.is_lazy(there[key]) and there[key].shape != value.shape:
            raise ValueError(f"{key} of {name} must have shape {tuple(value.shape)}, got {tuple(there[key].shape)}")
    made.load_state_dict(weights, strict=False)
    with torch.no_grad():
        for key in extra:
            made.get_parameter(key).zero_()
    return made.to(W_q.weight).train(trained.training)


def _check_plain(trained: nn.Module) -> None:
    """Refuse a layer of the library whose weights alone do not say what it computes."""
    if not isinstance(trained, MultiHeadAttention):
        return
    if type(trained) is not MultiHeadAttention or type(trained.attention) not in (FusedAttention, DotProductAttention):
        name = type(trained if type(trained) is not MultiHeadAttention else trained.attention).__name__
        raise ValueError(f"model must have plain multi-head attention for another layer to take its place, got {name}")
    if trained.num_key_value_heads != trained.num_heads:
        raise ValueError(
            "model must have as many key/value heads as heads for another layer to take their place, got "
            f"num_key_value_heads={trained.num_key_value_heads}, num_heads={trained.num_heads}"
        )


def _made(Layer: Callable[..., nn.Module], num_hiddens: int, num_heads: int, bias: bool, dropout: float) -> nn.Module:
    parameters = inspect.signature(Layer).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    options = {"bias": bias, "dropout": dropout}
    options = {name: value for name, value in options.items() if name in parameters or takes_all}
    try:
        with seeded(0):  # the caller's random numbers stay as they were
            return Layer(num_hiddens, num_heads, **options)
    except TypeError as error:
        written = ", ".join([str(num_hiddens), str(num_heads), *(f"{name}={value}" for name, value in options.items())])
        name = getattr(Layer, "__name__", "Layer")
        raise TypeError(f"Layer must be made by {name}({written}): {error}") from error


def _dropout_of(layer: nn.Module) -> float:
    """The probability of dropping an attention weight, where a layer says it in one of the usual places."""
    dropout = getattr(getattr(layer, "attention", layer), "dropout", None)
    return dropout.p if isinstance(dropout, nn.Dropout) else 0.0
