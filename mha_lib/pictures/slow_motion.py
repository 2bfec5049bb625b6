"""One number in slow motion, live: q · k, ÷ √d, mask, softmax, × v, each number beside what it is made of."""

from typing import Any

import torch
from torch import Tensor

from mha_lib.attention import DotProductAttention
from mha_lib.pictures.heat_maps import draw_scores, masked_keys
from mha_lib.pictures.live import LivePicture, Place, pack
from mha_lib.pictures.picture import Canvas

MOST = 6
QUERIES = [[1.0, 0.5, -1.0, 2.0], [0.0, 2.0, 1.0, -0.5], [-1.5, 1.0, 0.5, 1.0]]
KEYS = [[1.0, 0.0, -1.0, 1.5], [0.5, 1.5, 0.0, -1.0], [-1.0, 1.0, 2.0, 0.5], [2.0, -0.5, 0.5, 1.0]]
VALUES = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5], [0.5, -1.0]]


class SlowMotion(LivePicture):
    """Dot-product attention for one query, number by number.

    For learners who want to follow the formula once by hand.

    Args:
        queries, keys, values: (num_queries, d), (num_keys, d) and (num_keys, value_size), each size at most 6; left
            out, three queries and four keys of four numbers.
        first: first values of the attributes.

    Attributes:
        query: whose row is computed.
        valid_len: how many keys count.
        step: 0 to 4, for q · k, ÷ √d, mask, softmax and × v.

    Raises:
        ValueError: the shapes do not fit together.
    """

    module = "slow_motion"

    query = Place(lambda self: len(self.tensors[0]))
    valid_len = Place(lambda self: len(self.tensors[1]) + 1)
    step = Place(lambda _: 5)

    def __init__(
        self, queries: Tensor | None = None, keys: Tensor | None = None, values: Tensor | None = None, **first: Any
    ):
        given = zip((queries, keys, values), (QUERIES, KEYS, VALUES), strict=True)
        Q, K, V = (torch.tensor(own) if X is None else X.detach().float() for X, own in given)
        fits = all(X.dim() == 2 and X.numel() for X in (Q, K, V)) and Q.shape[1] == K.shape[1] and len(K) == len(V)
        if not fits or max(*Q.shape, *K.shape, *V.shape) > MOST:
            raise ValueError(
                f"queries, keys and values must have shapes (n, d), (m, d) and (m, v), each size at most {MOST}, "
                f"got {tuple(Q.shape)}, {tuple(K.shape)} and {tuple(V.shape)}"
            )
        self.tensors = Q, K, V
        packed = pack({"queries": Q, "keys": K, "values": V})
        super().__init__("Attention in slow motion", packed, **{"valid_len": len(K), **first})

    def result(self) -> tuple[Tensor, Tensor]:
        """What torch makes of the present state: the query's weights (num_keys,) and its output (value_size,)."""
        queries, keys, values = (X[None] for X in self.tensors)
        attention = DotProductAttention()
        output = attention(queries[:, self.query : self.query + 1], keys, values, torch.tensor([self.valid_len]))
        return attention.attention_weights[0, 0], output[0, 0]

    def draw(self) -> tuple[Canvas, str, str]:
        (queries, keys, _), (weights, output) = self.tensors, self.result()
        scaled, names = queries[self.query] @ keys.T / keys.shape[1] ** 0.5, [f"k{i}" for i in range(len(keys))]
        masked = masked_keys(torch.tensor(self.valid_len), 1, len(keys))
        canvas = draw_scores(scaled[None], {"weights": weights[None]}, masked, [f"q{self.query}"], names)
        shown = ", ".join(f"{weight:.2f}" for weight in weights.tolist())
        state = f"Query {self.query}, {self.valid_len} of {len(keys)} keys count"
        caption = f"The output, {_row(output)}, is the values' average by weight."
        return canvas, f"{state}: weights {shown}; output {_row(output)}.", caption


def _row(numbers: Tensor) -> str:
    return ", ".join(f"{number:.2f}".replace("-", "−") for number in numbers.tolist())
