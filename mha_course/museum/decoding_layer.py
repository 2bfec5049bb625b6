"""A right layer as language models have it, in parts: causal, with a cache, shared keys and values, rotary positions.

An exhibit of the bug museum replaces one of its parts; ``decoding_tests`` are the tests that look at it.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mha_course.models.induction import rotate
from mha_lib import attention

__all__ = ["DecodingLayer"]


class DecodingLayer(nn.Module):
    """Compute causal multi-head attention on a text that is given in pieces, with a key-value cache.

    Args:
        num_hiddens: size of the tokens; divisible by ``num_heads``, with an even quotient.
        num_heads: number of heads for queries.
        num_key_value_heads: number of heads for keys and values, which divides ``num_heads``.

    Attributes:
        cache: keys and values of the tokens so far, each (batch, num_key_value_heads, number, head_size); () at first.
        padding: how many columns before each text are padding, (batch,).
    """

    cache: tuple[Tensor, ...]
    padding: Tensor

    def __init__(self, num_hiddens: int, num_heads: int, num_key_value_heads: int):
        super().__init__()
        self.num_heads, self.num_key_value_heads = num_heads, num_key_value_heads
        shared = num_hiddens // num_heads * num_key_value_heads
        self.W_q, self.W_o = (nn.Linear(num_hiddens, num_hiddens, bias=False) for _ in range(2))
        self.W_k, self.W_v = (nn.Linear(num_hiddens, shared, bias=False) for _ in range(2))
        DecodingLayer.start(self)  # and not self.start(), which an exhibit may have replaced by nothing

    def forward(self, X: Tensor) -> Tensor:
        """Return the next piece of the text, (batch, number, num_hiddens) → the same shape."""
        num_old = self.cache[0].shape[2] if self.cache else 0
        places, self.padding = self.places(num_old, X.shape[1]), self.padding.expand(len(X))
        Q = self.rotate(attention.split_heads(self.W_q(X), self.num_heads), places)
        K, V = (attention.split_heads(W(X), self.num_key_value_heads) for W in (self.W_k, self.W_v))
        K, V = self.remember(K, V, places)
        scores = Q @ self.share(K).mT / math.sqrt(Q.shape[-1])
        nearly_nothing = torch.finfo(scores.dtype).min  # not -inf: a column of padding may attend to no key at all
        weights = torch.softmax(scores.masked_fill(~self.allowed(num_old, X.shape[1]), nearly_nothing), dim=-1)
        return self.W_o(attention.merge_heads(weights @ self.share(V)))

    def start(self, padding: Tensor | int = 0) -> None:
        """New texts begin, behind so many columns of padding: one number for each text, (batch,), or one for all."""
        self.cache = ()
        self.padding = torch.as_tensor(padding)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these examples of the batch alone, in this order, where other texts have ended."""
        self.cache = tuple(X[rows] for X in self.cache)
        self.padding = self.padding[rows]

    def forget(self, number: int) -> None:
        """Drop the newest ``number`` tokens of each text, where guessed tokens have been rejected; 0 drops none."""
        kept = self.cache[0].shape[2] - number
        self.cache = tuple(X[:, :, :kept] for X in self.cache)

    def places(self, num_old: int, num_new: int) -> Tensor:
        """Return where the new tokens stand, counted in columns: rotary positions need no more, padding or not."""
        return torch.arange(num_old, num_old + num_new)

    def rotate(self, X: Tensor, places: Tensor) -> Tensor:
        """Rotary positions: feature j of the first half turned with feature j of the second (Su et al. 2021)."""
        return rotate(X, places).to(X.dtype)

    def remember(self, K: Tensor, V: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        """Keep new keys, rotated to their places, and values behind the old ones, and give all of them."""
        K = self.rotate(K, places)
        if self.cache:
            K, V = (torch.cat([old, new], dim=2) for old, new in zip(self.cache, (K, V), strict=True))
        self.cache = K, V
        return self.cache

    def share(self, X: Tensor) -> Tensor:
        """Keys or values for every head of the queries, neighbours sharing one (Ainslie et al. 2023)."""
        return X.repeat_interleave(self.num_heads // self.num_key_value_heads, dim=1)

    def allowed(self, num_old: int, num_new: int) -> Tensor:
        """Return which keys each new query may attend to: bool, (batch, 1, new, old + new), one table for all heads."""
        causal = torch.ones(num_new, num_old + num_new, dtype=torch.bool).tril(num_old)
        real = torch.arange(num_old + num_new) >= self.padding[:, None]  # (batch, old + new)
        return causal & real[:, None, None]
