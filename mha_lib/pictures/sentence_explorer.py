"""A real sentence and real heads, live: choose a word and see where every head of MiniLM looks from there."""

from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from mha_lib.models.pretrained import NAMED_HEADS, SentenceMaps, kept_maps
from mha_lib.pictures.heat_maps import draw_words
from mha_lib.pictures.live import LivePicture, Place, shares
from mha_lib.pictures.picture import Canvas


class SentenceExplorer(LivePicture):
    """Words to choose from, and the weights of all heads from the chosen word; heads that have a name come first.

    For learners who want to meet heads that do something one can name, before any formula.

    Args:
        sentences: where every head looks in each of them, as ``MiniLM.maps`` gives it; left out, the twelve sentences
            that ship with the library.
        named: names of heads by (layer, head), from 0.
        first: first values of the attributes.

    Attributes:
        example: which sentence is shown.
        query: the word that looks, counted from 0 with [CLS].
        layer, head: the head whose weights colour the words.

    Raises:
        ValueError: there is no sentence, or the models of two sentences have other numbers of layers or heads.
    """

    module = "sentence_explorer"

    example = Place(lambda self: len(self.maps))
    query = Place(lambda self: len(self.maps[self.example].tokens))
    layer = Place(lambda self: self.maps[0].weights.shape[0])
    head = Place(lambda self: self.maps[0].weights.shape[1])

    def __init__(
        self,
        sentences: Sequence[SentenceMaps] | None = None,
        *,
        named: Mapping[tuple[int, int], str] = NAMED_HEADS,
        **first: Any,
    ):
        self.maps, self.named = list(kept_maps() if sentences is None else sentences), dict(named)
        shapes = {tuple(one.weights.shape[:2]) for one in self.maps}
        if len(shapes) != 1:
            raise ValueError(f"sentences must be of one model, with as many layers and heads, got {sorted(shapes)}")
        ((layers, heads),) = shapes
        data = {
            "weights": b"".join(shares(one.weights) for one in self.maps),
            "sentences": [{"text": one.sentence, "tokens": list(one.tokens)} for one in self.maps],
            "named": [{"layer": layer, "head": head, "name": name} for (layer, head), name in named.items()],
            "layers": layers,
            "heads": heads,
        }
        super().__init__("Where the heads of a sentence model look", data, **first)

    @traitlets.observe("example")
    def _stay_among_the_words(self, change):
        self.query = min(self.query, len(self.maps[change["new"]].tokens) - 1)

    def draw(self) -> tuple[Canvas, str, str]:
        one = self.maps[self.example]
        weights, name = one.weights[:, :, self.query], self.named.get((self.layer, self.head))
        own = weights[self.layer, self.head]
        most, head = int(own.argmax()), f"Layer {self.layer}, head {self.head}"
        looks = f"“{one.tokens[self.query]}” → “{one.tokens[most]}” ({own[most]:.2f})"
        titles = looks, f"{head}: {name}" if name else head
        canvas = draw_words(one.tokens, weights, self.query, (self.layer, self.head), titles)
        shown = ", ".join(f"{word} {weight:.2f}" for word, weight in zip(one.tokens, own.tolist(), strict=True))
        alt = f"{one.sentence}. {head}, {looks}. All weights: {shown}."
        return canvas, alt, f"{head}: {looks}. Darker is more weight; below, all heads from the same word."
