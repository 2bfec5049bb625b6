"""One number in slow motion, live: q · k, ÷ √d, mask, softmax, × v, each number beside what it is made of."""

from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_lib.attention import DotProductAttention
from mha_lib.pictures.live import LivePicture, check_place, pack
from mha_lib.pictures.still import Canvas, Still, colour

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
        traitlets.TraitError: a choice cannot be; the message names it.
        ValueError: the shapes do not fit together.
    """

    module, choices = "slow_motion", ("query", "valid_len", "step")

    parameters, shapes = traitlets.Bytes().tag(sync=True), traitlets.List[Any]().tag(sync=True)
    query, valid_len = traitlets.Int(0).tag(sync=True), traitlets.Int(0).tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)

    def __init__(
        self, queries: Tensor | None = None, keys: Tensor | None = None, values: Tensor | None = None, **first: object
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
        super().__init__(title="Attention in slow motion", **packed, **{"valid_len": len(K), **first})

    @traitlets.validate("query", "valid_len", "step")
    def _validate_place(self, proposal):
        name, (queries, keys, _) = proposal["trait"].name, self.tensors
        return check_place(
            name, proposal["value"], {"query": len(queries), "valid_len": len(keys) + 1, "step": 5}[name]
        )

    def result(self) -> tuple[Tensor, Tensor]:
        """What torch makes of the present state: the query's weights (num_keys,) and its output (value_size,)."""
        queries, keys, values = (X[None] for X in self.tensors)
        attention = DotProductAttention()
        output = attention(queries[:, self.query : self.query + 1], keys, values, torch.tensor([self.valid_len]))
        return attention.attention_weights[0, 0], output[0, 0]

    def still(self) -> Still:
        queries, keys, values = self.tensors
        weights, output = self.result()
        scores = keys @ queries[self.query]
        names = ("keys", "q · k", f"÷ √{keys.shape[1]}", "weights", "values")
        columns = [[_row(k) for k in keys], scores.tolist(), (scores / keys.shape[1] ** 0.5).tolist()]
        lefts, canvas = (0, 190, 260, 330, 400), Canvas(560, 34 * len(keys) + 70)
        canvas.text(0, 4, f"query {self.query}: {_row(queries[self.query])}", colour=colour("query"))
        for left, name in zip(lefts, names, strict=True):
            canvas.text(left, 28, name, size=11)
        for row, weight in enumerate(weights.tolist()):
            y = 48 + 34 * row
            canvas.text(lefts[0], y + 8, columns[0][row], colour=colour("key"))
            for left, numbers in zip(lefts[1:3], columns[1:], strict=True):
                canvas.text(left, y + 8, f"{numbers[row]:.2f}")
            canvas.heat_map(lefts[3], y, 34, [[weight]], numbers=True)
            canvas.text(lefts[4], y + 8, _row(values[row]), colour=colour("value"))
        canvas.text(lefts[4], 50 + 34 * len(keys), f"output: {_row(output)}", colour=colour("value"))
        shown = ", ".join(f"{weight:.2f}" for weight in weights.tolist())
        state = f"Query {self.query}, {self.valid_len} of {len(keys)} keys count"
        alt = f"{self.title}. {state}: weights {shown}; output {_row(output)}."
        return Still(canvas.png(), canvas.width, alt, f"The output, {_row(output)}, is the values' average by weight.")


def _row(numbers: Tensor) -> str:
    return ", ".join(f"{number:.2f}" for number in numbers.tolist())
