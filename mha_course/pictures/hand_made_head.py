"""A head made by hand, live: change a number of W_q or W_k, and the map of weights follows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mha_course.language import listed, sentences, tr
from mha_course.pictures.heat_maps import draw_maps
from mha_course.pictures.live import LivePicture, Numbers, Place, pack, without_stars
from mha_course.pictures.picture import Canvas, signed
from mha_course.rounding import rounded
from mha_lib.attention import DotProductAttention

MOST_WORDS, MOST_FEATURES, MOST_ROWS = 8, 16, 3


class HandMadeHead(LivePicture):
    """Show in a widget one attention head over a few words, whose W_q and W_k the user can edit.

    For learners who want to write a head themselves: each word's query and key, and the weights.

    Args:
        X: the words' vectors, (num_words, num_features), at most 8 words and 16 features.
        W_q, W_k: (head_size, num_features) each, at most 3 rows.
        words, features: their names.
        first: first values of the attributes.

    Attributes:
        numbers: "W_q" and "W_k", as lists; they can be changed, and their shape stays.
        query: which word is told about.

    Raises:
        ValueError: shapes or names do not fit together, or there are too many.
    """

    module = "hand_made_head"

    numbers, query = Numbers(), Place(lambda self: len(self.words))

    def __init__(
        self, X: Tensor, W_q: Tensor, W_k: Tensor, words: Sequence[str], features: Sequence[str], **first: Any
    ):
        n, width = len(words), len(features)
        fits = tuple(X.shape) == (n, width) and W_q.shape == W_k.shape == (len(W_q), width)
        if not fits or not 0 < n <= MOST_WORDS or not 0 < width <= MOST_FEATURES or not 0 < len(W_q) <= MOST_ROWS:
            raise ValueError(
                f"X, W_q and W_k must have shapes ({n}, {width}), (d, {width}) and (d, {width}), as words and features "
                f"say, at most {MOST_WORDS} words, {MOST_FEATURES} features and d = {MOST_ROWS}, got {tuple(X.shape)}, "
                f"{tuple(W_q.shape)} and {tuple(W_k.shape)}"
            )
        self.X, self.words, self.features = X.detach().float(), list(words), list(features)
        given = {"W_q": W_q.detach().float(), "W_k": W_k.detach().float()}
        self.shapes = {name: tuple(W.shape) for name, W in given.items()}
        data = pack({"X": self.X}) | {"words": self.words, "features": self.features}
        data["given"] = {name: W.tolist() for name, W in given.items()}
        super().__init__(tr("A head made by hand"), data, **{"numbers": given, "query": min(1, n - 1), **first})

    def result(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what torch makes of the present numbers: queries and keys (num_words, d), weights (words, words)."""
        queries, keys = (self.X @ torch.tensor(self.numbers[name]).T for name in self.shapes)
        attention = DotProductAttention()
        attention(queries[None], keys[None], keys[None])
        return queries, keys, attention.attention_weights[0]

    def draw(self) -> tuple[Canvas, str, str]:
        queries, keys, weights = self.result()
        asks = [listed([word, _row(own)], ": ") for word, own in zip(self.words, queries.tolist(), strict=True)]
        found = [listed([word, _row(own)], ": ") for word, own in zip(self.words, keys.tolist(), strict=True)]
        title = tr("weights: rows are queries, columns are keys")
        canvas = draw_maps([weights], [title], 1, 300, names=(asks, found), numbers=True)
        given = (listed([name, self._described(name)], ": ") for name in self.shapes)
        made = tr("{sentence}.", sentence=listed(given, "; "))
        told = (
            tr("Queries: {queries}.", queries=listed(asks, "; ")),
            tr("Keys: {keys}.", keys=listed(found, "; ")),
            tr("{sentence}.", sentence=self._claim(weights[self.query])),
        )
        return canvas, sentences([made, *told]), made

    def _claim(self, weights: Tensor) -> str:
        """What the live picture's headline says of the query's weights."""
        row = rounded(weights, 2)  # weights that are told alike are told as equal
        most = [word for word, weight in zip(self.words, row, strict=True) if weight == row.max()]
        told = {"query": self.words[self.query], "key": most[0], "count": len(most), "weight": f"{row.max():.2f}"}
        if len(most) == 1:
            return without_stars(tr("“{query}” attends *to “{key}” most*, {weight}", **told))
        if len(most) == len(self.words):
            return without_stars(tr("“{query}” attends *to all words equally*, {weight} each", **told))
        some = without_stars(tr("“{query}” attends *to {count} words equally*, {weight} each", **told))
        return listed([some, listed(most)], ": ")

    def _described(self, name: str) -> str:
        """The numbers of a matrix that are not 0, by feature."""
        rows = [[f"{self.features[i]} {_row([x])}" for i, x in enumerate(row) if x] for row in self.numbers[name]]
        return listed([listed(row) or tr("all 0") for row in rows], " | ")


def _row(numbers: Sequence[float]) -> str:
    return ", ".join(signed(number, 1).removesuffix(".0") for number in numbers)
