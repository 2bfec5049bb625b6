"""A right multi-head attention layer in parts: an exhibit of the bug museum replaces one or two of them."""

import math

import torch
from torch import Tensor, nn

from mha_lib import attention

__all__ = ["AdditiveLayer", "Layer"]


class Layer(nn.Module):
    """Compute multi-head attention in small methods, each of which a subclass with a bug can override.

    Args:
        num_hiddens: size of queries, keys, values and output; divisible by ``num_heads``.
        num_heads: number of heads.
        dropout: probability of dropping an attention weight in training.

    Attributes:
        attention_weights: those of the last call, before dropout: (batch, num_heads, num_queries, num_keys).

    Source: Vaswani et al. 2017, section 3.2.2; d2l 11.5.
    """

    def __init__(self, num_hiddens: int, num_heads: int, dropout: float = 0.0):
        super().__init__()
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(num_hiddens, num_hiddens, bias=False) for _ in range(4))
        self.dropout = nn.Dropout(dropout)
        self.attention_weights: Tensor | None = None

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor) -> Tensor:
        """Attend with every head: (batch, number, num_hiddens) and lengths (batch,) → the shape of ``queries``."""
        Q, K, V = self.project(queries, keys, values)
        self.attention_weights = self.masked_softmax(self.scores(Q, K), valid_lens)
        return self.W_o(self.merge_heads(self.dropout(self.attention_weights) @ V))

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> list[Tensor]:
        """Q, K and V, each (batch, num_heads, number, head_size)."""
        pairs = (self.W_q, queries), (self.W_k, keys), (self.W_v, values)
        return [self.split_heads(W(X)) for W, X in pairs]

    def split_heads(self, X: Tensor) -> Tensor:
        """(batch, number, num_hiddens) → (batch, num_heads, number, head_size)."""
        return attention.split_heads(X, self.num_heads)

    def merge_heads(self, X: Tensor) -> Tensor:
        """(batch, num_heads, number, head_size) → (batch, number, num_hiddens)."""
        return attention.merge_heads(X)

    def scores(self, Q: Tensor, K: Tensor) -> Tensor:
        """Return how well every key answers every query, in each head: (batch, num_heads, num_queries, num_keys)."""
        return Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])

    def masked_softmax(self, scores: Tensor, valid_lens: Tensor) -> Tensor:
        """Return weights of the shape of ``scores``; rows sum to 1 over the valid keys, or to 0 where there is none."""
        return attention.masked_softmax(scores, valid_lens)


class AdditiveLayer(Layer):
    """Compute multi-head attention with additive scores: score(q, k) = w_vᵀ tanh(q + k) on projected q and k.

    Attributes:
        w_v: (num_heads, head_size), a vector for each head.

    Source: Bahdanau, Cho, Bengio 2015, appendix A.1.2.
    """

    def __init__(self, num_hiddens: int, num_heads: int, dropout: float = 0.0):
        super().__init__(num_hiddens, num_heads, dropout)
        self.w_v = nn.Parameter(torch.randn(num_heads, num_hiddens // num_heads))

    def scores(self, Q: Tensor, K: Tensor) -> Tensor:
        return torch.einsum("bhqkf,hf->bhqk", torch.tanh(Q.unsqueeze(-2) + K.unsqueeze(-3)), self.w_v)
