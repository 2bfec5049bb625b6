"""Attention: compare queries with keys, turn the scores into weights, average the values with them.

Every class below is that one sentence; they differ in how a query and a key are compared. Shapes follow
*Dive into Deep Learning* (d2l), chapter 11: ``queries`` (batch, num_queries, size), ``keys`` and ``values``
(batch, num_keys, size), ``valid_lens`` None, (batch,) or (batch, num_queries).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib import inputs


def valid_keys(valid_lens: Tensor, num_keys: int) -> Tensor:
    """Which keys may be attended to.

    Args:
        valid_lens: (batch,) or (batch, num_queries), how many keys count, from the first on.
        num_keys: number of keys.

    Returns:
        bool, (batch, 1, num_keys) or (batch, num_queries, num_keys): True where a key is valid.
    """
    lengths = valid_lens[:, None, None] if valid_lens.dim() == 1 else valid_lens[:, :, None]
    # As integers: in half precision a large index would be rounded.
    return torch.arange(num_keys, device=valid_lens.device) < lengths.long()


def masked_softmax(scores: Tensor, valid_lens: Tensor | None = None) -> Tensor:
    """Softmax over the keys, giving weight to valid keys only.

    A query with no valid key gets weights 0 (and gradient 0), not NaN. ``scores`` is not written to, and what it
    holds at invalid keys, NaN included, has no effect.

    Args:
        scores: (batch, num_queries, num_keys) or (batch, num_heads, num_queries, num_keys).
        valid_lens: None (all keys are valid), (batch,) or (batch, num_queries).

    Returns:
        weights of the shape of ``scores``; each row sums to 1, or to 0 where no key is valid.

    Raises:
        TypeError, ValueError: ``valid_lens`` is not a tensor of counts that fits ``scores``.

    Source: d2l 11.3.2 (there, masked scores become −1e6, which fails in the cases above).
    """
    inputs.check_floats("scores", scores, inputs.SCORES)
    if valid_lens is None:
        return torch.softmax(scores, dim=-1)
    inputs.check_valid_lens(valid_lens, scores.shape[0], *scores.shape[-2:])
    inputs.check_device("valid_lens", valid_lens, scores.device, "scores")
    valid = _valid_scores(valid_lens, scores)
    return _softmax_over(valid, torch.where(valid, scores, 0.0))  # a copy, without what stood at invalid keys


def _valid_scores(valid_lens: Tensor, scores: Tensor) -> Tensor:
    """``valid_keys``, with an axis for the heads where the scores have one."""
    valid = valid_keys(valid_lens, scores.shape[-1])
    return valid if scores.dim() == 3 else valid.unsqueeze(1)


def _softmax_over(valid: Tensor, scores: Tensor) -> Tensor:
    """Softmax over the valid keys, of scores that are finite at the others and that the caller needs no more."""
    empty = ~valid.any(dim=-1, keepdim=True)
    # Adding −∞ is faster than filling with it. Softmax of a row that is −∞ throughout is NaN, forward and backward:
    # an empty row goes in as it is, and its weights become 0 afterwards.
    penalty = torch.zeros_like(valid, dtype=scores.dtype).masked_fill(~(valid | empty), -math.inf)
    weights = _softmax(scores, penalty)
    if inputs.values_readable(empty) and not empty.any():
        return weights
    return weights.masked_fill(empty, 0.0)


def _softmax(scores: Tensor, penalty: Tensor | None = None) -> Tensor:
    """Softmax over the keys; where no gradient needs the scores, in their own memory, which is faster."""
    if torch.is_grad_enabled() or not inputs.values_readable(scores):
        return torch.softmax(scores if penalty is None else scores + penalty, dim=-1)
    if penalty is not None:
        scores += penalty
    return torch.softmax(scores, dim=-1, out=scores)


class AttentionPooling(nn.Module):
    """What all attention shares: scores → masked softmax → dropout → weighted average of the values.

    A subclass says how to compare queries with keys, in ``scores``.
    """

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        inputs.check_dropout(dropout)
        self.dropout = nn.Dropout(dropout)
        self._last_call = None

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """How well every key answers every query: (batch, num_queries, num_keys)."""
        raise NotImplementedError

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None) -> Tensor:
        """Average the values, for each query by its own weights.

        Args:
            queries: (batch, num_queries, query_size).
            keys: (batch, num_keys, key_size).
            values: (batch, num_keys, value_size).
            valid_lens: None, (batch,) or (batch, num_queries).

        Returns:
            (batch, num_queries, value_size); zeros for a query with no valid key.

        Raises:
            TypeError, ValueError: the arguments do not fit together; the message names the one that does not.
        """
        inputs.check_sequences(queries, keys, values)
        return self._average(masked_softmax(self.scores(queries, keys), valid_lens), values)

    @property
    def attention_weights(self) -> Tensor:
        """Weights of the last call, before dropout, detached: (batch, num_queries, num_keys)."""
        if self._last_call is None:
            raise RuntimeError(
                "attention_weights: there are none. Call the layer first; a call under torch.compile, export "
                "or a function transform such as vmap keeps none, nor does a copy of a layer; torch.jit.trace, which "
                "reads them before any call, cannot record attention layers: use torch.export or torch.compile"
            )
        weights_of, tensors, versions = self._last_call
        if versions != _versions(tensors):
            raise RuntimeError(
                "attention_weights: queries or keys were changed in place since the last call; call the layer again"
            )
        with torch.no_grad():
            return weights_of(*tensors)

    def _average(self, weights: Tensor, values: Tensor) -> Tensor:
        """Average the values by weights that are kept."""
        self._remember(lambda kept: kept, weights)
        return self.dropout(weights) @ values

    def _remember(self, weights_of: Callable[..., Tensor], *tensors: Tensor | None) -> None:
        """Let ``attention_weights`` be ``weights_of(*tensors)``."""
        if not inputs.values_readable():
            self._last_call = None
            return
        kept = tuple(None if tensor is None else tensor.detach() for tensor in tensors)
        self._last_call = weights_of, kept, _versions(kept)

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_last_call": None}


def _versions(tensors: tuple[Tensor | None, ...]) -> tuple[int | None, ...]:
    """Counters that move when a tensor is written to (tensors of inference mode have none)."""
    return tuple(None if tensor is None or tensor.is_inference() else tensor._version for tensor in tensors)


class KernelPooling(AttentionPooling):
    """Nadaraya–Watson regression with a Gaussian kernel, seen as attention.

    score(q, k) = −‖q − k‖² / (2 · bandwidth²); the softmax of it is the normalised Gaussian kernel.

    Args:
        bandwidth: width of the kernel, in the units of queries and keys; positive.
        learnable: whether training may change it (through its logarithm, so it stays positive).

    Source: Nadaraya 1964; Watson 1964; d2l 11.2 (first edition 10.2, where the parameter is w = 1 / bandwidth).
    """

    def __init__(self, bandwidth: float = 1.0, learnable: bool = False):
        super().__init__()
        inputs.check_bandwidth(bandwidth)
        self.log_bandwidth = nn.Parameter(torch.tensor(math.log(bandwidth)), requires_grad=learnable)

    @property
    def bandwidth(self) -> Tensor:
        """Width of the kernel, a scalar."""
        return self.log_bandwidth.exp()

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        inputs.check_same_size(queries, keys)
        distances = (queries.unsqueeze(-2) - keys.unsqueeze(-3)).square().sum(dim=-1)
        return -distances / (2 * self.bandwidth**2)


class AdditiveAttention(AttentionPooling):
    """Additive scoring: score(q, k) = w_vᵀ tanh(W_q q + W_k k); queries and keys may differ in size.

    Args:
        num_hiddens: size of the hidden layer in which query and key meet.
        dropout: probability of dropping an attention weight in training.
        query_size, key_size: sizes of the inputs; left out, they are taken from the first call.

    Source: Bahdanau, Cho, Bengio 2015, appendix A.1.2; d2l 11.3.4.
    """

    def __init__(
        self,
        num_hiddens: int,
        dropout: float = 0.0,
        *older: object,
        query_size: int | None = None,
        key_size: int | None = None,
    ):
        if older:
            raise TypeError(
                "AdditiveAttention takes num_hiddens and dropout by position; write the book's older order "
                "by keyword: AdditiveAttention(key_size=…, query_size=…, num_hiddens=…, dropout=…)"
            )
        super().__init__(dropout)
        inputs.check_size("num_hiddens", num_hiddens)
        self.W_q = _linear("query_size", query_size, num_hiddens, bias=False)
        self.W_k = _linear("key_size", key_size, num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        inputs.check_projection("queries", queries, self.W_q.weight, "query_size")
        inputs.check_projection("keys", keys, self.W_k.weight, "key_size")
        features = self.W_q(queries).unsqueeze(-2) + self.W_k(keys).unsqueeze(-3)
        return self.w_v(torch.tanh(features)).squeeze(-1)


class DotProductAttention(AttentionPooling):
    """Scaled dot-product attention: score(q, k) = qᵀk / √size.

    Takes (batch, number, size) or, with heads, (batch, num_heads, number, size). The output comes from torch's fused
    kernel, which never holds all weights at once; ``attention_weights`` are computed when they are asked for, unless
    ``keep_weights`` is set.
    Invalid keys and values must hold finite numbers: the kernel multiplies them by 0.

    Args:
        dropout: probability of dropping an attention weight in training.

    Attributes:
        skip_padding: whether long examples with ``valid_lens`` (batch,) are attended to one at a time, each with its
            valid keys alone. The result is the same up to rounding; on the CPU it is faster the more padding there is.
        keep_weights: whether a call computes its weights by the formula and keeps them. It is faster where the weights
            of every call are read, and takes their memory also where they are not. The result is the same up to
            rounding, with one exception: in float16 a score above 65,504 is infinite and its row NaN, where the kernel
            computes in float32 and gives the right answer.

    Source: Vaswani et al. 2017, section 3.2.1; d2l 11.3.3.
    """

    skip_padding = True
    keep_weights = False

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return _dot_product_scores(queries, keys)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None) -> Tensor:
        inputs.check_sequences(queries, keys, values, inputs.SEQUENCES_WITH_HEADS)
        inputs.check_same_size(queries, keys)
        if valid_lens is not None:
            inputs.check_valid_lens(valid_lens, queries.shape[0], queries.shape[-2], keys.shape[-2])
            inputs.check_device("valid_lens", valid_lens, queries.device, "queries")
            valid_lens = valid_lens.detach().clone()
        if self.keep_weights:
            return self._average(_dot_product_weights(queries, keys, valid_lens), values)
        self._remember(_dot_product_weights, queries, keys, valid_lens)
        # On the CPU the fused kernel knows neither dropout nor vmap: there it would be slower than the formula.
        by_formula = (self.training and self.dropout.p > 0) or inputs.in_function_transform()
        attend = self._attend_by_formula if by_formula else _fused_attention
        if self.skip_padding and _padding_is_worth_skipping(queries, keys, valid_lens):
            return _attend_by_example(attend, queries, keys, values, valid_lens)
        return attend(queries, keys, values, valid_lens)

    def _attend_by_formula(
        self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None
    ) -> Tensor:
        return self.dropout(_dot_product_weights(queries, keys, valid_lens)) @ values


def _dot_product_scores(queries: Tensor, keys: Tensor) -> Tensor:
    return (queries / math.sqrt(queries.shape[-1])) @ keys.transpose(-2, -1)


def _dot_product_weights(queries: Tensor, keys: Tensor, valid_lens: Tensor | None) -> Tensor:
    scores = _dot_product_scores(queries, keys)
    if valid_lens is None:
        return _softmax(scores)
    return _softmax_over(_valid_scores(valid_lens, scores), scores)


def _fused_attention(queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None) -> Tensor:
    """masked_softmax(scores) @ values in one kernel, which is fast only with an axis for heads."""
    if queries.dim() == 3:
        one_head = (tensor.unsqueeze(1) for tensor in (queries, keys, values))
        return _fused_attention(*one_head, valid_lens).squeeze(1)
    mask = None if valid_lens is None else valid_keys(valid_lens, keys.shape[-2]).unsqueeze(1)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


def _attend_by_example(
    attend: Callable[..., Tensor], queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor
) -> Tensor:
    """Call ``attend`` once for each example, on its valid keys alone: no time goes into padding, none into a mask."""
    examples = zip(queries.split(1), keys.split(1), values.split(1), valid_lens.long().tolist(), strict=True)
    return torch.cat([attend(q, k[..., :length, :], v[..., :length, :]) for q, k, v, length in examples])


def _padding_is_worth_skipping(queries: Tensor, keys: Tensor, valid_lens: Tensor | None) -> bool:
    """Whether an example has work enough to pay for a call of its own (measured on the CPU)."""
    return (
        valid_lens is not None
        and inputs.values_readable(valid_lens)  # before any size: an exported layer asks none and stays open for all
        and valid_lens.dim() == 1
        and len(valid_lens) > 0
        and queries.shape[-2] * keys.shape[-2] >= 256 * 256
        and queries.device.type == "cpu"
    )


def split_heads(X: Tensor, num_heads: int) -> Tensor:
    """Give every head its own share of the features: (batch, n, d) → (batch, num_heads, n, d / num_heads), a view."""
    if X.dim() != 3:
        raise ValueError(f"X must have shape (batch, number, size), got {tuple(X.shape)}")
    inputs.check_divisible(X.shape[-1], num_heads)
    batch_size, number, size = X.shape
    return X.reshape(batch_size, number, num_heads, size // num_heads).transpose(1, 2)


def merge_heads(X: Tensor) -> Tensor:
    """Undo ``split_heads``: (batch, num_heads, n, head_size) → (batch, n, num_heads · head_size)."""
    if X.dim() != 4:
        raise ValueError(f"X must have shape (batch, num_heads, number, head_size), got {tuple(X.shape)}")
    return X.transpose(1, 2).flatten(start_dim=2)


def transpose_qkv(X: Tensor, num_heads: int) -> Tensor:
    """Split into heads and fold the heads into the batch: (batch, n, d) → (batch · num_heads, n, d / num_heads).

    Row ``i * num_heads + h`` of the result is head h of example i. Source: d2l 11.5.2.
    """
    return split_heads(X, num_heads).flatten(end_dim=1)


def transpose_output(X: Tensor, num_heads: int) -> Tensor:
    """Undo ``transpose_qkv``: (batch · num_heads, n, head_size) → (batch, n, num_heads · head_size).

    Source: d2l 11.5.2.
    """
    inputs.check_size("num_heads", num_heads)
    if X.dim() != 3 or X.shape[0] % num_heads:
        raise ValueError(
            f"X must have shape (batch · num_heads, number, head_size) with num_heads={num_heads}, got {tuple(X.shape)}"
        )
    return merge_heads(X.reshape(X.shape[0] // num_heads, num_heads, *X.shape[1:]))


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each on its own projection of queries, keys and values.

    head_i = attention(W_q⁽ⁱ⁾ q, W_k⁽ⁱ⁾ k, W_v⁽ⁱ⁾ v); output = W_o [head_1; …; head_h]. The heads' matrices stand
    stacked in ``W_q, W_k, W_v`` (rows) and ``W_o`` (columns), as in d2l's layer, so a ``state_dict`` fits both.

    Args:
        num_hiddens: size of the output, and of all heads together; divisible by ``num_heads``.
        num_heads: number of heads.
        dropout: probability of dropping an attention weight in training.
        bias: whether the four projections have a bias.
        query_size, key_size, value_size: sizes of the inputs; left out, they are taken from the first call.

    Attributes:
        attention: the ``DotProductAttention`` inside, with its switches ``skip_padding`` and ``keep_weights``.

    Raises:
        TypeError, ValueError: the sizes do not fit together.

    Source: Vaswani et al. 2017, section 3.2.2; d2l 11.5.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *older: object,
        query_size: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
    ):
        if older:
            raise TypeError(
                "MultiHeadAttention takes num_hiddens, num_heads, dropout and bias by position; write the book's "
                "older order by keyword: MultiHeadAttention(key_size=…, query_size=…, value_size=…, num_hiddens=…, "
                "num_heads=…, dropout=…)"
            )
        super().__init__()
        inputs.check_divisible(num_hiddens, num_heads)
        self.num_hiddens, self.num_heads = num_hiddens, num_heads
        self.attention = DotProductAttention(dropout)
        self.W_q = _linear("query_size", query_size, num_hiddens, bias)
        self.W_k = _linear("key_size", key_size, num_hiddens, bias)
        self.W_v = _linear("value_size", value_size, num_hiddens, bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Tensor | None = None,
        head_mask: Tensor | None = None,
    ) -> Tensor:
        """Attend with every head, then mix the heads.

        Args:
            queries: (batch, num_queries, query_size).
            keys: (batch, num_keys, key_size).
            values: (batch, num_keys, value_size).
            valid_lens: how many keys count, None, (batch,) or (batch, num_queries).
            head_mask: gates on the heads' outputs before ``W_o``, None, (num_heads,) or (batch, num_heads);
                0 switches a head off; differentiable (Michel et al. 2019, section 2.3).

        Returns:
            (batch, num_queries, num_hiddens).

        Raises:
            TypeError, ValueError: the arguments do not fit; the message names the one that does not.
        """
        inputs.check_sequences(queries, keys, values)
        inputs.check_projection("queries", queries, self.W_q.weight, "query_size")
        inputs.check_projection("keys", keys, self.W_k.weight, "key_size")
        inputs.check_projection("values", values, self.W_v.weight, "value_size")
        Q = split_heads(self.W_q(queries), self.num_heads)  # (batch, num_heads, num_queries, head_size)
        K = split_heads(self.W_k(keys), self.num_heads)  # (batch, num_heads, num_keys, head_size)
        V = split_heads(self.W_v(values), self.num_heads)  # (batch, num_heads, num_keys, head_size)
        heads = self.attention(Q, K, V, valid_lens)  # (batch, num_heads, num_queries, head_size)
        if head_mask is not None:
            inputs.check_head_mask(head_mask, queries.shape[0], self.num_heads)
            inputs.check_device("head_mask", head_mask, queries.device, "queries")
            heads = heads * head_mask[..., None, None].to(heads.dtype)
        return self.W_o(merge_heads(heads))

    @property
    def attention_weights(self) -> Tensor:
        """Weights of the last call, before dropout, detached: (batch, num_heads, num_queries, num_keys)."""
        return self.attention.attention_weights


def _linear(name: str, in_features: int | None, out_features: int, bias: bool) -> nn.Linear:
    """A linear map whose input size may be left open until the first call."""
    if in_features is None:
        return nn.LazyLinear(out_features, bias=bias)
    inputs.check_size(name, in_features)
    return nn.Linear(in_features, out_features, bias=bias)
