"""Take heads out of a model for real: it does less work, where a gate of 0 only hides the work done.

A head lives in its rows of W_q, W_k and W_v and in its columns of W_o. A layer without these rows and columns gives
what the whole layer gives with that head's gate at 0. Where heads share rows of W_k and W_v (grouped queries), these
go with the last of them.

A plan says which heads go: ``{"layer 0": [1, 2], "layer 1": [5]}``. Blocks that it does not name stay whole.
"""

import copy
from collections.abc import Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from mha_course.models.any_layer import MAPS, attend, copied, linear_maps, num_heads_of
from mha_course.models.transformer import Transformer
from mha_lib.attention import MultiHeadAttention
from mha_lib.heads.layer_heads import copies_of_heads, keep_columns, keep_rows, rows_of
from mha_lib.heads.plans import Plan


class HeadlessAttention(nn.Module):
    """Replace an attention layer from which all heads were removed: return W_o's bias (or zeros) for every query.

    ``bias`` is (num_hiddens,), or None for zeros.
    """

    num_heads = 0

    def __init__(self, num_hiddens: int, bias: Tensor | None = None):
        super().__init__()
        self.num_hiddens = num_hiddens
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self._weights: Tensor | None = None

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, *_: object, **__: object) -> Tensor:
        """Return W_o's bias for every query; arguments as in ``MultiHeadAttention``."""
        self._weights = torch.zeros(len(queries), 0, queries.shape[1], keys.shape[1], device=queries.device)
        output = queries.new_zeros(*queries.shape[:2], self.num_hiddens)
        return output if self.bias is None else output + self.bias

    @property
    def attention_weights(self) -> Tensor:
        """(batch, 0, num_queries, num_keys) of the last call."""
        if self._weights is None:
            raise RuntimeError("attention_weights: there are none. Call the layer first")
        return self._weights


AnyTransformer = TypeVar("AnyTransformer", bound=Transformer)


def prune(model: AnyTransformer, *, remove: Plan | Tensor) -> AnyTransformer:
    """Return a copy of the model without the heads in a plan, a dictionary of head numbers by block name.

    ``heads.of(model).remove`` does so for any model, can leave the means of heads, and refuses to take all heads of a
    layer or a part of those that share keys and values; these go here.

    The heads that stay keep their order.

    >>> model = models.shipped_model("lookups")
    >>> [attention.num_heads for attention in prune(model, remove={"layer 0": [0, 1]}).attentions]
    [4, 6]

    The copy can be trained further; its ``state_dict`` fits every model that was pruned by the same plan.

    Args:
        remove: for each block by name, the numbers of the heads that go; or bool, (num_blocks, num_heads).

    Raises:
        ValueError: ``remove`` names a block or a head that does not exist, or a head twice; the message lists those
            that exist.
    """
    if isinstance(remove, Tensor):
        each = zip(model.blocks, remove, strict=True)
        remove = {name: row.nonzero().flatten().tolist() for name, row in each}
    unknown = sorted(remove.keys() - model.blocks.keys())
    if unknown:
        raise ValueError(f"remove names blocks that do not exist: {unknown}; there are {list(model.blocks)}")
    for name, heads in remove.items():
        _check_heads(heads, num_heads_of(model.blocks[name].attention), f"remove for {name!r}")
    pruned = copied(model)
    for name, block in pruned.blocks.items():
        if name in remove:
            kept = [head for head in range(num_heads_of(block.attention)) if head not in remove[name]]
            rest = prune_attention(block.attention, kept)
            block.attention = cast(MultiHeadAttention, rest)  # HeadlessAttention is called in the same way
    return pruned


def prune_attention(
    attention: MultiHeadAttention | HeadlessAttention, heads: Sequence[int]
) -> MultiHeadAttention | HeadlessAttention:
    """Return a copy of a layer with only ``heads``, which keep their order; errors are as in ``prune``."""
    _check_heads(heads, num_heads_of(attention), "heads")
    if isinstance(attention, HeadlessAttention):
        return copy.deepcopy(attention)
    (W_o,) = linear_maps(attention, ("W_o",))
    if heads:
        return select_heads(attention, sorted(heads))
    headless = HeadlessAttention(W_o.out_features, W_o.bias).train(attention.training)
    return headless.requires_grad_(W_o.weight.requires_grad)


def select_heads(attention: MultiHeadAttention, heads: Sequence[int]) -> MultiHeadAttention:
    """Return an attention layer whose heads are copies of ``heads``, in that order; a head may occur more than once.

    >>> select_heads(MultiHeadAttention(8, 2, query_size=8, key_size=8, value_size=8), [1, 1, 0]).num_heads
    3
    """
    if isinstance(attention, MultiHeadAttention):
        return copies_of_heads(attention, heads)
    return _heads_of_any_layer(attention, heads)


def _heads_of_any_layer(layer: nn.Module, heads: Sequence[int]) -> nn.Module:
    """The same for a layer of a learner's own, whose numbers are then held against those of the whole layer."""
    selected, number = copied(layer), num_heads_of(layer)
    *projections, W_o = linear_maps(selected, MAPS)
    rows = rows_of(heads, W_o.in_features // number)
    for linear in projections:
        keep_rows(linear, rows)
    keep_columns(W_o, rows)
    setattr(selected, "num_heads", len(heads))  # noqa: B010 (to mypy a module's attributes are modules)
    _check_cut(copied(layer).eval(), selected.eval(), torch.tensor(heads).bincount(minlength=number))
    return selected.train(layer.training)


@torch.no_grad()
def _check_cut(whole: nn.Module, cut: nn.Module, gates: Tensor) -> None:
    """Refuse a layer with fewer heads that computes something else than the whole one with these gates."""
    (W_q,) = linear_maps(whole, ("W_q",))
    X = torch.randn(2, 3, W_q.in_features, generator=torch.Generator().manual_seed(0)).to(W_q.weight)
    expected = attend(whole, X, X, None, gates.to(X))
    try:
        difference = (attend(cut, X, X) - expected).abs().max().item()
        what = None if difference <= 1e-4 * (1 + expected.abs().max().item()) else "computes something else"
    except Exception as error:  # whatever a learner's class does with sizes that no longer fit
        what = f"raises {type(error).__name__}: {error}"
    if what is not None:
        raise ValueError(
            f"attention cannot be cut: with the rows of {num_heads_of(cut)} of its heads, {type(cut).__name__} {what}. "
            "Its forward should give head i its own rows of W_q, W_k and W_v, and read sizes from tensors and "
            "self.num_heads, as in X.unflatten(-1, (self.num_heads, -1)) and √ of Q.shape[-1]"
        )


def _check_heads(heads: Sequence[int], num_heads: int, what: str) -> None:
    there = list(range(num_heads))
    missing = [head for head in heads if isinstance(head, bool) or head not in there]
    if missing:
        raise ValueError(f"{what} names heads that do not exist: {missing}; there are {there}")
    if len(set(heads)) < len(heads):
        raise ValueError(f"{what} names a head twice: {list(heads)}; there are {there}")
