"""A real sentence and real heads, live: choose a word and see where every head of MiniLM looks from there."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets

from mha_lib.models.pretrained import NAMED_HEADS, SentenceMaps, kept_maps
from mha_lib.pictures.live import LivePicture, check_place
from mha_lib.pictures.palette import is_dark, weight_colours
from mha_lib.pictures.still import Canvas, Still, colour, font


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

    module, choices = "sentence_explorer", ("example", "query", "layer", "head")

    weights, sentences = traitlets.Bytes().tag(sync=True), traitlets.List[Any]().tag(sync=True)
    named, sizes = traitlets.List[Any]().tag(sync=True), traitlets.Dict().tag(sync=True)
    example, query = traitlets.Int(0).tag(sync=True), traitlets.Int(0).tag(sync=True)
    layer, head = traitlets.Int(0).tag(sync=True), traitlets.Int(0).tag(sync=True)

    def __init__(
        self,
        sentences: Sequence[SentenceMaps] | None = None,
        *,
        named: Mapping[tuple[int, int], str] = NAMED_HEADS,
        **first: object,
    ):
        self.maps = list(kept_maps() if sentences is None else sentences)
        shapes = {tuple(one.weights.shape[:2]) for one in self.maps}
        if len(shapes) != 1:
            raise ValueError(f"sentences must be of one model, with as many layers and heads, got {sorted(shapes)}")
        ((layers, heads),) = shapes
        rows = [(255 * one.weights).round().numpy().astype(np.uint8).tobytes() for one in self.maps]
        super().__init__(
            title="Where the heads of a sentence model look",
            weights=b"".join(rows),
            sentences=[{"text": one.sentence, "tokens": list(one.tokens)} for one in self.maps],
            named=[{"layer": layer, "head": head, "name": name} for (layer, head), name in named.items()],
            sizes={"layers": layers, "heads": heads},
            **first,
        )

    @traitlets.validate("example", "query", "layer", "head")
    def _validate_place(self, proposal):
        name = proposal["trait"].name
        counts = {"example": len(self.maps), "layer": self.sizes["layers"], "head": self.sizes["heads"]}
        if name == "query":
            counts["query"] = len(self.maps[self.example].tokens)
        return check_place(name, proposal["value"], counts[name])

    @traitlets.observe("example")
    def _stay_among_the_words(self, change):
        self.query = min(self.query, len(self.maps[change["new"]].tokens) - 1)

    def still(self) -> Still:
        one = self.maps[self.example]
        weights = one.weights[self.layer, self.head, self.query].numpy()
        fills, left, canvas = weight_colours(weights), 0.0, Canvas(760, 84)
        canvas.text(0, 4, f"from “{one.tokens[self.query]}”, layer {self.layer}, head {self.head}")
        for i, (word, fill) in enumerate(zip(one.tokens, fills, strict=True)):
            width = font(28).getlength(word) / 2 + 10
            chosen = colour("query") if i == self.query else None
            canvas.box(left, 28, width, 28, fill=tuple(fill), line=chosen, thickness=2)
            ink = "#ffffff" if is_dark(fill) else "#000000"
            canvas.text(left + width / 2, 42, word, size=14, anchor="mm", colour=ink)
            left += width + 3
        most = int(weights.argmax())
        state = f"“{one.tokens[self.query]}” → “{one.tokens[most]}” ({weights[most]:.2f})"
        shown = ", ".join(f"{word} {weight:.2f}" for word, weight in zip(one.tokens, weights.tolist(), strict=True))
        alt = f"{self.title}. {one.sentence}. Layer {self.layer}, head {self.head}, {state}. All weights: {shown}."
        caption = f"Layer {self.layer}, head {self.head}: {state}. Darker is more weight."
        return Still(canvas.png(), canvas.width, alt, caption)
