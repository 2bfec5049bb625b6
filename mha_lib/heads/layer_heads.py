"""The heads of this library's layer: copied, and left out with their mean output in a bias."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mha_lib.attention import (
    AdditiveAttention,
    AttentionPooling,
    DotProductAttention,
    FusedAttention,
    KernelPooling,
    MultiHeadAttention,
)

ALIKE = (FusedAttention, DotProductAttention, AdditiveAttention, KernelPooling)  # these do the same in every head


def copies_of_heads(attention: MultiHeadAttention, heads: Sequence[int]) -> MultiHeadAttention:
    """Return a layer whose heads are copies of ``heads``, in that order; a head may occur more than once.

    >>> copies_of_heads(MultiHeadAttention(8, 2, query_size=8, key_size=8, value_size=8), [1, 1, 0]).num_heads
    3

    Raises:
        ValueError: the layer has open sizes.
        TypeError: what it does may differ from head to head, and it does not say how to choose heads.
    """
    if any(nn.parameter.is_lazy(parameter) for parameter in attention.parameters()):
        raise ValueError("attention has open sizes: call it once before its heads are chosen")
    selected = copy.deepcopy(attention)
    selected.attention = _pooling_of(selected.attention, heads)
    shared = [attention.key_value_head_of[head] for head in heads]
    is_grouped = attention.num_key_value_heads < attention.num_heads
    key_value_heads = list(dict.fromkeys(shared)) if is_grouped else shared  # each once, if they are shared
    selected.num_heads, selected.num_key_value_heads = len(heads), len(key_value_heads)
    selected.key_value_head_of = list(map(key_value_heads.index, shared)) if is_grouped else list(range(len(heads)))
    rows = rows_of(heads, attention.head_size)
    keep_rows(selected.W_q, rows)
    keep_rows(selected.W_k, rows_of(key_value_heads, attention.head_size))
    keep_rows(selected.W_v, rows_of(key_value_heads, attention.head_size))
    keep_columns(selected.W_o, rows)
    return selected


def bias_with_means(W_o: nn.Linear, num_heads: int, gone: Sequence[int], means: Tensor) -> Tensor:
    """Return the bias with which ``W_o`` adds the mean outputs of these heads, ``means`` (num_heads, head_size)."""
    weight = W_o.weight.unflatten(1, (num_heads, -1))[:, gone]
    lost = torch.einsum("dhs,hs->d", weight, means[gone].to(weight))
    return lost if W_o.bias is None else W_o.bias + lost


def _pooling_of(pooling: AttentionPooling, heads: Sequence[int]) -> AttentionPooling:
    """The attention of these heads; of a class whose heads may differ (ALiBi), by its own ``select_heads``."""
    select = getattr(pooling, "select_heads", None)
    if select is not None:
        return select(heads)
    if type(pooling) not in ALIKE:
        name = type(pooling).__name__
        raise TypeError(
            f"attention cannot be cut: what {name} does may differ from head to head; give {name} a method "
            "select_heads(heads) that returns the attention of these heads (self, where all do the same)"
        )
    return pooling


def rows_of(heads: Sequence[int], head_size: int) -> Tensor:
    """Return the rows of a projection that belong to these heads, in their order."""
    return torch.cat([torch.arange(head * head_size, (head + 1) * head_size) for head in heads])


def keep_columns(linear: nn.Linear, columns: Tensor) -> None:
    """Keep only these columns of a linear map, in this order."""
    linear.weight = nn.Parameter(linear.weight.detach()[:, columns], linear.weight.requires_grad)
    linear.in_features = len(columns)


def keep_rows(linear: nn.Linear, rows: Tensor) -> None:
    """Keep only these rows of a linear map, in this order."""
    for name, parameter in list(linear.named_parameters()):
        setattr(linear, name, nn.Parameter(parameter.detach()[rows], parameter.requires_grad))
    linear.out_features = len(rows)
