"""A real sentence and real heads, live: choose a word and see where every head of MiniLM looks from there."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets

from mha_lib.models.pretrained import NAMED_HEADS, SentenceMaps, kept_maps
from mha_lib.pictures.live import LivePicture, Place, shares
from mha_lib.pictures.palette import is_dark, weight_colours
from mha_lib.pictures.picture import PAD, Canvas, font

FAINT = 0.04  # bows for less weight than this are left out, as in sentence_explorer.js


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
        traitlets.TraitError: a choice cannot be; the message names it.
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
        weights, name = one.weights[self.layer, self.head, self.query].numpy(), self.named.get((self.layer, self.head))
        fills, most = [tuple(fill) for fill in weight_colours(weights)], int(weights.argmax())
        widths = [font(32).getlength(word) / 2 + 14 for word in one.tokens]
        middles = [sum(widths[:i]) + 4 * i + width / 2 for i, width in enumerate(widths)]
        far = [abs(middle - middles[self.query]) for middle in middles]
        line = 0.2 * max(far) + 56  # the words' upper edge
        canvas = Canvas(sum(widths) + 4 * len(widths), line + 180)
        looks = f"“{one.tokens[self.query]}” → “{one.tokens[most]}” ({weights[most]:.2f})"
        head = f"Layer {self.layer}, head {self.head}"
        canvas.text(0, 0, looks, size=17, colour="text")
        canvas.text(0, 26, f"{head}: {name}" if name else head)
        for i in weights.argsort():
            if i != self.query and weights[i] >= FAINT:
                thickness = 1 + 6 * float(weights[i])
                canvas.bow(
                    middles[self.query], middles[i], line, 0.2 * far[i] + 6, colour=fills[i], thickness=thickness
                )
        for i, word in enumerate(one.tokens):
            chosen = "query" if i == self.query else None
            box = middles[i] - widths[i] / 2, line, widths[i], 30
            canvas.box(*box, fill=fills[i], line=chosen, thickness=2, radius=6)
            ink = "white" if is_dark(np.array(fills[i])) else "black"
            canvas.text(middles[i], line + 15, word, size=16, anchor="mm", colour=ink)
        self._draw_all_heads(canvas, line + 48)
        shown = ", ".join(f"{word} {weight:.2f}" for word, weight in zip(one.tokens, weights.tolist(), strict=True))
        alt = f"{one.sentence}. {head}, {looks}. All weights: {shown}."
        return canvas, alt, f"{head}: {looks}. Darker is more weight; below, all heads from the same word."

    def _draw_all_heads(self, canvas: Canvas, top: float) -> None:
        """Every head's weights from the same word, a strip each, layer below layer."""
        rows = weight_colours(self.maps[self.example].weights[:, :, self.query].numpy())  # (layers, heads, words, 3)
        strip = (canvas.width - 2 * PAD - 54) / len(rows[0])
        for layer, strips in enumerate(rows):
            y = top + 22 * layer
            canvas.text(0, y + 8, f"layer {layer}", size=10, anchor="lm")
            for head, fills in enumerate(strips):
                x, cell = 54 + head * strip, (strip - 6) / len(fills)
                for i, fill in enumerate(fills):
                    canvas.box(x + i * cell, y, cell, 16, fill=tuple(fill))
                if (layer, head) == (self.layer, self.head):
                    canvas.box(x - 3, y - 3, strip, 22, line="text", thickness=2, radius=4)
