"""Attention by its formula: compare queries with keys, turn the scores into weights, average the values with them.

In comments b is the batch, h the number of heads, q and k the numbers of queries and keys, d a size.
``masks`` says which query may attend to which key.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mha_lib.attention import arguments
from mha_lib.attention.execution import in_plain_call, values_readable, without_autocast
from mha_lib.attention.kept_weights import KeptWeights
from mha_lib.attention.masks import Masks, Rule, empty_rows, is_allowed, rule_matrix


def zero_masked(mask: Tensor | None, *sequences: Tensor) -> tuple[Tensor, ...]:
    """Replace keys or values that are masked for every query by zeros, so that NaN in padding has no effect."""
    sums = map(Tensor.sum, map(Tensor.detach, sequences))  # only read on the CPU, where filling takes far longer
    if mask is None or (values_readable(mask) and all(map(math.isfinite, sums))):
        return sequences
    unseen = ~is_allowed(mask).any(dim=-2).unsqueeze(-1)  # (b, q, k) -> (b, k) -> (b, k, 1)
    return tuple(X.masked_fill(unseen, 0.0) for X in sequences)  # (b, k, d)


def projected(W: nn.Module, X: Tensor, readable: bool) -> Tensor:
    """Apply a projection to keys or values: a row that is not finite becomes NaN, and reaches no gradient of ``W``.

    It may be padding, and 0 · NaN is NaN. Where numbers are not ``readable``, as on a GPU, it does reach it.
    """
    if not torch.is_grad_enabled() or not readable or math.isfinite(X.detach().sum()):
        return W(X)
    is_finite = X.isfinite().all(dim=-1, keepdim=True)  # (b, k, 1)
    return W(X.masked_fill(~is_finite, 0.0)).masked_fill(~is_finite, math.nan)


def for_each_head(X: Tensor, queries: Tensor) -> Tensor:
    """Repeat shared keys or values so that each query head gets its own copy: (b, g, k, d) -> (b, h, k, d)."""
    if X.dim() < 4 or X.shape[1] == queries.shape[1]:
        return X
    return X.unsqueeze(2).expand(-1, -1, queries.shape[1] // X.shape[1], -1, -1).flatten(1, 2)


def in_float32(X: Tensor) -> Tensor:
    """Convert a float16 or bfloat16 tensor to float32; return a tensor of any other dtype as it is."""
    return X.float() if X.dtype in (torch.float16, torch.bfloat16) else X


def masked_softmax(
    scores: Tensor, valid_lens: Tensor | None = None, *, attn_mask: Tensor | Rule | None = None, causal: bool = False
) -> Tensor:
    """Compute the softmax of ``scores`` over the unmasked keys; masked keys get weight 0, even where a score is NaN.

    A query that may attend to no key gets weights 0 and gradients 0, not NaN. ``scores``, (b, q, k) or (b, h, q, k), is
    not written to. An argument that does not fit is named by a TypeError or ValueError.

    >>> masked_softmax(torch.zeros(1, 1, 3), valid_lens=torch.tensor([2]))
    tensor([[[0.5000, 0.5000, 0.0000]]])

    Source: d2l 11.3.2 (there, masked scores become −1e6, which fails in half precision and for very low scores).
    """
    arguments.check_flags(causal=causal)
    arguments.check_floats("scores", scores, arguments.SCORES)
    wide = in_float32(scores)
    return softmax_of_allowed(wide, Masks(scores.shape, wide, valid_lens, attn_mask, causal).joined()).to(scores.dtype)


def softmax_of_allowed(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Compute the softmax of ``scores`` where a bool mask is True, or plus an additive mask; empty rows become 0."""
    if mask is None:
        return torch.softmax(scores, dim=-1)
    if mask.dtype != torch.bool:
        scores = scores + mask
    allowed = is_allowed(mask)
    # Softmax of a row that is −∞ throughout is NaN, forward and backward: a row without any key gets zeros instead.
    is_empty = empty_rows(mask)
    others = -math.inf if is_empty is None else torch.where(is_empty, 0.0, -math.inf).to(scores.dtype)
    return torch.softmax(torch.where(allowed, scores, others), dim=-1) * allowed


class AttentionPooling(KeptWeights):
    """Average values by attention weights: an abstract base class, whose subclasses define the method ``scores``.

    In training, weights are dropped with the probability ``dropout``.
    """

    takes_groups = False  # whether several heads of the queries may share a head of keys and values

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        arguments.check_dropout(dropout)
        self.dropout = nn.Dropout(dropout)

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the score of every key for every query: (b, q, d), (b, k, d) -> (b, q, k), or with heads (b, h, …)."""
        raise NotImplementedError

    def weights(self, queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the attention weights, which sum to 1 for each query: (b, q, d), (b, k, d) -> (b, q, k).

        ``mask`` is what ``Masks.joined`` returns; a query that may attend to no key gets zeros.
        """
        scores = self.scores(queries, *zero_masked(mask, keys))  # (b, q, d), (b, k, d) -> (b, q, k)
        arguments.check_floats("scores", scores, arguments.SCORES)
        arguments.check_shape("scores", scores, [(*queries.shape[:-1], keys.shape[-2])])
        return softmax_of_allowed(in_float32(scores), mask).to(queries.dtype)

    def attend(self, queries, keys, values, valid_lens=None, *, attn_mask=None, causal=False) -> tuple[Tensor, Tensor]:
        """Return the output and the weights: for compiled and exported layers, which store none.

        Takes (b, q, d), (b, k, d), (b, k, v), gives (b, q, v) and (b, q, k); all with heads, (b, h, …), as well.
        """
        self.store_weights(None)
        arguments.check_pooling(self, queries, keys, values, causal=causal)
        keys, values = for_each_head(keys, queries), for_each_head(values, queries)
        shape = *queries.shape[:-1], keys.shape[-2]  # (b, q, k)
        mask = Masks(shape, queries, valid_lens, attn_mask, causal).joined()
        weights = self.weights(queries, keys, mask)  # (b, q, k)
        output = self.dropout(weights) @ zero_masked(mask, values)[0]  # (b, q, k) @ (b, k, d) -> (b, q, d)
        if in_plain_call(weights):
            self.store_weights(weights.detach())
        return output, weights

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None, *,
        attn_mask: Tensor | Rule | None = None, causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Average the values, for each query by its own weights.

        Takes (b, q, d), (b, k, d) and (b, k, size of the values), or all with heads, (b, h, …), and returns (b, q, size
        of the values), zeros for a query that may attend to no key. An argument that does not fit the others is named
        by a TypeError or ValueError.
        """
        return self.attend(queries, keys, values, valid_lens, attn_mask=attn_mask, causal=causal)[0]

    if TYPE_CHECKING:  # a call gives what ``forward`` gives, which nn.Module does not say

        def __call__(
            self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None, *,
            attn_mask: Tensor | Rule | None = None, causal: bool = False,
        ) -> Tensor: ...  # fmt: skip


class KernelPooling(AttentionPooling):
    """Average values by a Gaussian kernel (Nadaraya–Watson): score(q, k) = −‖q − k‖² / (2 · bandwidth²).

    >>> keys = values = torch.tensor([[[0.0], [1.0]]])
    >>> KernelPooling(bandwidth=1.0)(torch.tensor([[[0.5]]]), keys, values)
    tensor([[[0.5000]]])

    Args:
        bandwidth: width of the kernel, in the units of queries and keys; positive.
        learnable: whether training may change it (through its logarithm, so it stays positive).

    Source: Nadaraya 1964; Watson 1964; d2l 11.2 (first edition 10.2, where the parameter is w = 1 / bandwidth).
    """

    def __init__(self, bandwidth: float = 1.0, learnable: bool = False, *, device=None, dtype=None):
        super().__init__()
        arguments.check_bandwidth(bandwidth)
        arguments.check_flags(learnable=learnable)
        arguments.check_parameters(device, dtype)
        log_bandwidth = torch.tensor(math.log(bandwidth), device=device, dtype=dtype)
        self.log_bandwidth = nn.Parameter(log_bandwidth, requires_grad=learnable)

    @property
    def bandwidth(self) -> Tensor:
        """Width of the kernel, a scalar."""
        return self.log_bandwidth.exp()

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        arguments.check_same_size(queries, keys)
        differences = in_float32(queries).unsqueeze(-2) - in_float32(keys).unsqueeze(-3)  # (b, q, k, d)
        bandwidth = in_float32(self.log_bandwidth).exp()
        return -differences.square().sum(dim=-1) / (2 * bandwidth**2)  # (b, q, k, d) -> (b, q, k)


class AdditiveAttention(AttentionPooling):
    """Compute attention with additive scores: score(q, k) = w_vᵀ tanh(W_q q + W_k k).
    Queries and keys may differ in size.

    >>> attention = AdditiveAttention(num_hiddens=8)
    >>> attention(torch.randn(2, 3, 4), torch.randn(2, 5, 6), torch.randn(2, 5, 7)).shape
    torch.Size([2, 3, 7])

    Args:
        num_hiddens: size of the hidden layer that combines query and key.
        dropout: probability of dropping an attention weight in training.
        query_size, key_size: sizes of the inputs; left out, they are taken from the first call.

    Source: Bahdanau, Cho, Bengio 2015, appendix A.1.2; d2l 11.3.4.
    """

    def __init__(
        self, num_hiddens: int, dropout: float = 0.0, *older: object,
        query_size: int | None = None, key_size: int | None = None, device=None, dtype=None,
    ):  # fmt: skip
        arguments.refuse_older_order(self, older, "num_hiddens, dropout", "key_size, query_size, num_hiddens, dropout")
        super().__init__(dropout)
        arguments.check_size("num_hiddens", num_hiddens)
        arguments.check_parameters(device, dtype)
        self.W_q = linear("query_size", query_size, num_hiddens, False, device, dtype)
        self.W_k = linear("key_size", key_size, num_hiddens, False, device, dtype)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False, device=device, dtype=dtype)

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        arguments.check_projections(queries=(queries, self.W_q), keys=(keys, self.W_k))
        features = self.W_q(queries).unsqueeze(-2) + self.W_k(keys).unsqueeze(-3)  # (b, q, k, num_hiddens)
        return self.w_v(torch.tanh(features)).squeeze(-1)  # (b, q, k, 1) -> (b, q, k)


class DotProductAttention(AttentionPooling):
    """Compute attention with scaled dot-product scores: score(q, k) = qᵀk / √d.
    Source: Vaswani et al. 2017, 3.2.1; d2l 11.3.3.

    >>> X, attention = torch.randn(2, 5, 4), DotProductAttention()
    >>> attention(X, X, X).shape, attention.attention_weights.shape
    (torch.Size([2, 5, 4]), torch.Size([2, 5, 5]))
    """

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        arguments.check_same_size(queries, keys)
        queries, keys = in_float32(queries), in_float32(keys)
        with without_autocast(queries):  # autocast would use 16 bits again
            return queries / math.sqrt(queries.shape[-1]) @ keys.mT  # (b, q, d) @ (b, d, k) -> (b, q, k)


class ScoredAttention(DotProductAttention):
    """Compute dot-product attention with each scaled score ``s`` replaced by ``score(s, b, h, i, j)``.
    The function is like ``score_mod`` of torch's ``flex_attention``: it gets indices of batch, head, query and key.

    >>> soft_cap = ScoredAttention(lambda s, b, h, i, j: 20 * torch.tanh(s / 20))
    >>> soft_cap(torch.randn(1, 2, 4), torch.randn(1, 3, 4), torch.randn(1, 3, 5)).shape
    torch.Size([1, 2, 5])

    It uses the formula. A change that does not depend on s is a bias: pass it as ``attn_mask``, which the kernel takes.
    """

    def __init__(self, score: Callable[..., Tensor], dropout: float = 0.0):
        super().__init__(dropout)
        self.score = score

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        s = super().scores(queries, keys)
        return rule_matrix(partial(self.score, s if s.dim() == 4 else s.unsqueeze(1)), s.shape, s.device)


class LazyLinear(nn.LazyLinear):
    """Apply a linear map whose input size is inferred at the first call, even if that is in inference mode."""

    def initialize_parameters(self, input: Tensor) -> None:
        with torch.inference_mode(False):
            super().initialize_parameters(input)


def linear(name: str, in_features: int | None, out_features: int, bias: bool, device=None, dtype=None) -> nn.Linear:
    """Return an ``nn.Linear``; if ``in_features`` is None, one that infers its input size at the first call."""
    if in_features is None:
        return LazyLinear(out_features, bias, device, dtype)
    arguments.check_size(name, in_features)
    return nn.Linear(in_features, out_features, bias, device, dtype)
