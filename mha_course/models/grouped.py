"""A trained model whose heads share keys and values, made from one whose heads do not (grouped-query attention)."""

import copy
from typing import Literal

import torch
from torch import nn

from mha_course.models.transformer import Transformer
from mha_lib.attention import FusedAttention, MultiHeadAttention, arguments

How = Literal["mean", "first"]


def to_grouped(model: Transformer, num_key_value_heads: int, how: How = "mean") -> Transformer:
    """Return a copy of the model with grouped-query attention, in which neighbouring heads share keys and values.

    >>> grouped = to_grouped(models.shipped_model("lookups"), num_key_value_heads=2)
    >>> grouped.attentions[0].W_k.weight.shape
    torch.Size([16, 48])

    Args:
        model: whose attention layers each have as many heads for keys and values as for queries.
        num_key_value_heads: how many are left in each layer; divides ``num_heads``.
        how: what a group gets: the "mean" of its heads' matrices, or those of its "first" head.

    Raises:
        ValueError: an argument is none of these.

    Source: Ainslie et al. 2023, "GQA", section 2.1, which compares the same two (and new random matrices).
    """
    if how not in ("mean", "first"):
        raise ValueError(f'how must be "mean" or "first", got {how!r}')
    model = copy.deepcopy(model)
    for layer in model.attentions:
        share_keys_and_values(layer, num_key_value_heads, how)
    return model


@torch.no_grad()
def share_keys_and_values(layer: MultiHeadAttention, num_key_value_heads: int, how: How) -> None:
    """Reduce the key/value heads of ``layer`` in place: each group of heads gets the mean or first of its matrices."""
    arguments.check_groups(layer.num_heads, num_key_value_heads)
    if layer.num_key_value_heads != layer.num_heads:
        raise ValueError(f"the layer's heads share keys and values already: {layer}")
    queries_per_key = layer.num_heads // num_key_value_heads
    for W in (layer.W_k, layer.W_v):
        groups = (num_key_value_heads, queries_per_key, layer.head_size)
        for name, parameter in list(W.named_parameters()):
            heads = parameter.unflatten(0, groups)  # (h · p, …) -> (g, h / g, p, …)
            pooled = heads.mean(dim=1) if how == "mean" else heads[:, 0]
            setattr(W, name, nn.Parameter(pooled.flatten(0, 1)))  # (g, p, …) -> (g · p, …)
        W.out_features = num_key_value_heads * layer.head_size
    layer.num_key_value_heads = num_key_value_heads
    layer.attention.takes_groups = isinstance(layer.attention, FusedAttention)
    layer.key_value_head_of = [head // queries_per_key for head in range(layer.num_heads)]
