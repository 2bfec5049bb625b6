"""Attention in motion, live: a query and keys as arrows; q · k, ÷ √d, mask, softmax and × v follow the hand."""

from typing import Any

import torch
from torch import Tensor

from mha_course.pictures.heat_maps import TITLE, draw_numbers
from mha_course.pictures.live import LivePicture, Numbers, Place
from mha_course.pictures.picture import Canvas, signed
from mha_lib.attention import DotProductAttention

MOST = 6
CELL, GAP, LEFT = 40, 16, 26  # of the still picture: a number's cell, between tables, and before the keys' names
PLANE = 122  # of the still picture: a plane with vectors
QUERIES = [[1.0, 2.0]]
KEYS = [[2.0, 1.0], [-0.5, 1.5], [-2.0, 0.5], [0.5, -2.0]]
VALUES = [[1.0, -2.0], [-1.0, 2.0], [-2.0, -1.0], [0.5, 2.0]]


class DotProductStepper(LivePicture):
    """Show scaled dot-product attention for one query in a widget, with vectors that are dragged and every number.

    For learners who want to follow the formula once by hand.

    Args:
        queries, keys, values: (num_queries, 2), (num_keys, 2) and (num_keys, 2), at most 6 of each; left out, a query
            and four keys.
        first: first values of the attributes.

    Attributes:
        numbers: "queries", "keys" and "values", as lists; they can be changed, and their shapes stay.
        query: whose row is computed.
        valid_len: how many keys count.
        step: 0 to 4, for q · k, ÷ √d, mask, softmax and × v.

    Raises:
        ValueError: the shapes do not fit together.
    """

    module = "slow_motion"

    numbers = Numbers()
    query = Place(lambda self: len(self.numbers["queries"]))
    valid_len = Place(lambda self: len(self.numbers["keys"]) + 1)
    step = Place(lambda _: 5)

    def __init__(
        self, queries: Tensor | None = None, keys: Tensor | None = None, values: Tensor | None = None, **first: Any
    ):
        given = zip((queries, keys, values), (QUERIES, KEYS, VALUES), strict=True)
        Q, K, V = (torch.tensor(own) if X is None else X.detach().float() for X, own in given)
        if len(K) != len(V) or not all(X.shape == (len(X), 2) and 0 < len(X) <= MOST for X in (Q, K, V)):
            raise ValueError(
                f"queries, keys and values must have shapes (n, 2), (m, 2) and (m, 2), at most {MOST} of each, "
                f"got {tuple(Q.shape)}, {tuple(K.shape)} and {tuple(V.shape)}"
            )
        numbers = {"queries": Q, "keys": K, "values": V}
        self.shapes = {name: tuple(X.shape) for name, X in numbers.items()}
        super().__init__("Attention in motion", {}, **{"numbers": numbers, "valid_len": len(K), "step": 4, **first})

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as they are now."""
        queries, keys, values = (torch.tensor(self.numbers[name]) for name in self.shapes)
        return queries, keys, values

    def result(self) -> tuple[Tensor, Tensor]:
        """What torch makes of the present state: the query's weights (num_keys,) and its output (2,)."""
        queries, keys, values = (X[None] for X in self.tensors)
        attention = DotProductAttention()
        output = attention(queries[:, self.query : self.query + 1], keys, values, torch.tensor([self.valid_len]))
        return attention.attention_weights[0, 0], output[0, 0]

    def draw(self) -> tuple[Canvas, str, str]:
        (queries, keys, values), (weights, output) = self.tensors, self.result()
        query, n, hatched = queries[self.query], len(keys), torch.arange(len(keys))[:, None] >= self.valid_len
        scores = (keys @ query)[:, None]
        scaled = scores / 2**0.5
        steps = {"q · k": scores, "÷ √2": scaled, "mask": scaled.masked_fill(hatched, -torch.inf)}
        low, at_values = 2 * TITLE + CELL, LEFT + 5 * GAP + 6 * CELL
        right, height = at_values + 2 * CELL + 2 * GAP, low + (n + 1) * CELL + TITLE
        canvas = Canvas(right + PLANE, max(height, 2 * (TITLE + PLANE) + GAP))
        _plane(canvas, right, TITLE, "q, keys", {"key": (keys, "k"), "query": (query[None], "q")})
        below = 2 * TITLE + PLANE + GAP
        _plane(canvas, right, below, "values, output", {"value": (values, "v"), "text": (output[None], "")})
        draw_numbers(canvas, LEFT, TITLE, CELL, query[None], f"query {self.query}", colour="query")
        draw_numbers(canvas, LEFT, low, CELL, keys, "keys", colour="key")
        for i in range(n):
            canvas.text(LEFT - 6, low + (i + 0.5) * CELL, f"k{i}", size=10, anchor="rm", colour="key")
        x = LEFT + 2 * CELL + GAP
        for name, numbers in steps.items():
            draw_numbers(canvas, x, low, CELL, numbers, name, masked=hatched if name == "mask" else None)
            x += CELL + GAP
        draw_numbers(canvas, x, low, CELL, weights[:, None], "softmax", masked=hatched, are_weights=True)
        draw_numbers(canvas, at_values, low, CELL, values, "values", colour="value")
        draw_numbers(canvas, at_values, low + n * CELL + TITLE, CELL, output[None], "output", colour="value")
        shown = _row(weights)
        state = f"Query {self.query}, {self.valid_len} of {n} keys count"
        caption = f"The output, {_row(output)}, is the values' average by weight."
        return canvas, f"{state}: weights {shown}; output {_row(output)}.", caption


def _plane(canvas: Canvas, x: float, y: float, title: str, vectors: dict[str, tuple[Tensor, str]]) -> None:
    """Draw vectors (n, 2) from the middle of a square, by their colours, each with a letter and its number."""
    half, reach = PLANE / 2, max(own.abs().max().item() for own, _ in vectors.values()) * 1.45 or 1
    canvas.box(x, y, PLANE, PLANE, line="edge")
    canvas.text(x, y - 4, title, size=10, anchor="ls")
    middle = x + half, y + half
    for colour, (own, letter) in vectors.items():
        for i, (a, b) in enumerate((own / reach * half).tolist()):
            tip, far = (middle[0] + a, middle[1] - b), max((a * a + b * b) ** 0.5, 1)
            canvas.line([middle, tip], colour=colour, thickness=2)
            canvas.box(tip[0] - 2.5, tip[1] - 2.5, 5, 5, fill=colour, radius=2.5)
            name = f"{letter}{i}" if len(own) > 1 else letter
            canvas.text(tip[0] + 10 * a / far, tip[1] - 10 * b / far, name, size=10, anchor="mm", colour=colour)


def _row(numbers: Tensor) -> str:
    return ", ".join(map(signed, numbers.tolist()))
