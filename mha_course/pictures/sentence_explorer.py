"""A real sentence and real heads, live: choose a word and see where every head of MiniLM looks from there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import traitlets
from torch import Tensor

from mha_course.language import listed, tr
from mha_course.language import sentences as as_text
from mha_course.models.pretrained import NAMED_HEADS, PACKAGE, MiniLM, SentenceMaps, kept_maps, minilm
from mha_course.pictures.heat_maps import in_lines, word_width, write_words
from mha_course.pictures.live import LivePicture, OwnText, Place, pack_uint8
from mha_course.pictures.picture import PAD, Canvas, signed
from mha_course.pictures.shared_with_js import bound, weight_colours
from mha_course.rounding import first_largest
from mha_lib.figures import one_example

FAINT = bound("sentence_explorer.js", "FAINT")  # bows for less weight than this are left out
MOST_TOKENS = 40  # what a page shows without growing too long


class SentenceExplorer(LivePicture):
    """Show in a widget the attention weights of a chosen word of a sentence in all heads of a model.

    For learners who want to meet heads that do something one can name, before any formula. Where MiniLM is installed,
    the page asks for sentences of the reader's own.

    Args:
        sentences: where every head looks in each of them, as ``MiniLM.maps`` gives it, or heads made by hand; left out,
            the twelve sentences that ship with the library.
        named: names of heads by (layer, head), from 0.
        model: from ``minilm()``; left out, the installed one is loaded when the page first asks.
        title: what is seen, for screen readers; left out, the heads of a sentence model.
        first: first values of the attributes.

    Attributes:
        example: which of the sentences is shown, where ``text`` is empty.
        text: a sentence of one's own, at most 40 tokens with [CLS] and [SEP].
        query: the word that looks, counted from 0 with [CLS].
        layer, head: the head whose weights colour the words.

    Raises:
        ValueError: there is no sentence, or the models of two sentences have other numbers of layers or heads.
    """

    module = "sentence_explorer"

    example = Place(lambda self: len(self.maps))
    text = OwnText()
    query = Place(lambda self: len(self.shown().tokens))
    layer = Place(lambda self: self.maps[0].weights.shape[0])
    head = Place(lambda self: self.maps[0].weights.shape[1])

    def __init__(
        self,
        sentences: Sequence[SentenceMaps] | None = None,
        *,
        named: Mapping[tuple[int, int], str] = NAMED_HEADS,
        model: MiniLM | None = None,
        title: str | None = None,
        **first: Any,
    ):
        self.maps, self.named = list(kept_maps() if sentences is None else sentences), dict(named)
        shapes = {tuple(one.weights.shape[:2]) for one in self.maps}
        if len(shapes) != 1:
            raise ValueError(f"sentences must be of one model, with as many layers and heads, got {sorted(shapes)}")
        ((layers, heads),) = shapes
        self._model, self._own = model, dict[str, SentenceMaps]()
        data = {
            "sentences": [packed(one) for one in self.maps],
            "named": [{"layer": layer, "head": head, "name": tr(name)} for (layer, head), name in named.items()],
            "layers": layers,
            "heads": heads,
            "can_ask": sentences is None and (model is not None or PACKAGE.is_there()),
        }
        super().__init__(title or tr("Where the heads of a sentence model look"), data, **first)

    @classmethod
    def of_maps(cls, maps: Mapping[str, Tensor], tokens: Sequence[str], **first: Any) -> "SentenceExplorer":
        """Show where the heads of any model look in one text.

        Args:
            maps: the attention weights of its layers on this text, as ``mha_lib.heads.of(model, …).maps()`` gives them.
            tokens: the words of the text, or pieces of words, one for each token.
            first: first values of the attributes, and ``title``.

        Raises:
            ValueError: there is not a word for each token, layers differ in numbers of heads, or keys are no queries.
        """
        weights, heads = one_example(maps), {X.shape[-3] for X in maps.values()}
        if len(heads) != 1:
            raise ValueError(f"maps must be of layers with as many heads each, got {sorted(heads)}")
        if weights.shape[1:] != (len(tokens), len(tokens)):
            got = tuple(weights.shape[1:])
            raise ValueError(f"maps must have a query and a key for each of {len(tokens)} tokens, got {got}")
        text = SentenceMaps(" ".join(tokens), list(tokens), weights.unflatten(0, (len(maps), -1)))
        return cls([text], **{"named": {}, **first})

    @traitlets.observe("example", "text")
    def _stay_among_the_words(self, _change: Any) -> None:
        self.query = min(self.query, len(self.shown().tokens) - 1)

    def shown(self) -> SentenceMaps:
        """Return the sentence that is shown."""
        return self._own[self.text] if self.text else self.maps[self.example]

    def read(self, text: str) -> SentenceMaps:
        """Return where the heads of MiniLM look in a sentence, in 255ths as the kept ones are; it is remembered."""
        if text not in self._own:
            self._model = self._model or minilm()
            one = self._model.maps(text)
            if not 3 <= len(one.tokens) <= MOST_TOKENS:
                got = f"{len(one.tokens) - 2} between [CLS] and [SEP]"
                raise ValueError(f"text must have from 1 to {MOST_TOKENS - 2} tokens, got {got}")
            in_255ths = (255 * one.weights).round() / 255  # as they travel: page and still picture tell the same
            self._own[text] = replace(one, weights=in_255ths)
        return self._own[text]

    def reply(self, question: dict[str, Any], share: Callable[[float], None]) -> dict[str, Any]:
        """Return where the heads look in ``text``."""
        return packed(self.read(question["text"]))

    def page_data(self) -> dict[str, Any]:
        """As for every picture, and a sentence of one's own."""
        state = super().page_data()
        if self.text:
            state["state"]["data"] = self.data | {"sentences": [*self.data["sentences"], packed(self.shown())]}
        return state

    def draw(self) -> tuple[Canvas, str, str]:
        one = self.shown()
        weights, name = one.weights[:, :, self.query], self.named.get((self.layer, self.head))
        own = weights[self.layer, self.head]
        most, head = first_largest(own), tr("Layer {layer}, head {head}", layer=self.layer, head=self.head)
        ends = {"query": one.tokens[self.query], "key": one.tokens[most], "weight": signed(own[most].item())}
        looks = tr("“{query}” → “{key}” ({weight})", **ends)
        titles = looks, listed([head, tr(name)], ": ") if name else head
        canvas = self._sheet(one.tokens, weights, titles)
        shown = listed(f"{word} {signed(weight)}" for word, weight in zip(one.tokens, own.tolist(), strict=True))
        alt = [
            tr("{sentence}. {head}, {looks}.", sentence=one.sentence, head=head, looks=looks),
            tr("All weights: {weights}.", weights=shown),
        ]
        hint = tr("Darker is more weight; below, all heads from the same word.")
        return canvas, as_text(alt), as_text([tr("{sentence}.", sentence=listed([head, looks], ": ")), hint])

    def _sheet(self, words: Sequence[str], weights: Tensor, titles: tuple[str, str]) -> Canvas:
        """Draw the words with bows from the chosen one, and below the weights (layers, heads, words) of all heads."""
        own, rows = weights[self.layer, self.head].numpy(), weight_colours(weights.numpy())  # (layers, heads, words, 3)
        fills = [tuple(fill) for fill in rows[self.layer, self.head]]
        widths = [word_width(word) for word in words]
        middles = [x + width / 2 for (x, _), width in zip(in_lines(widths, 0), widths, strict=True)]
        far = [abs(middle - middles[self.query]) for middle in middles]
        corners = in_lines(widths, 0.2 * max(far) + 56)
        right, below = max(x + width for (x, _), width in zip(corners, widths, strict=True)), corners[-1][1] + 48
        canvas = Canvas(right, below + 22 * len(rows))
        canvas.text(0, 0, titles[0], size=17, colour="text")
        canvas.text(0, 26, titles[1])
        for i in own.argsort():
            if i != self.query and own[i] >= FAINT:
                start, end = [(middles[place], corners[place][1]) for place in (self.query, i)]
                canvas.bow(start, end, 0.2 * far[i] + 6, colour=fills[i], thickness=1 + 6 * float(own[i]))
        write_words(canvas, words, rows[self.layer, self.head], corners, self.query)
        strip = (canvas.width - 2 * PAD - 54) / len(rows[0])
        for layer, strips in enumerate(rows):
            y = below + 22 * layer
            canvas.text(0, y + 8, tr("layer {layer}", layer=layer), size=10, anchor="lm")
            for number, shades in enumerate(strips):
                x, cell = 54 + number * strip, (strip - 6) / len(shades)
                for i, fill in enumerate(shades):
                    canvas.box(x + i * cell, y, cell, 16, fill=tuple(fill))
                if (layer, number) == (self.layer, self.head):
                    canvas.box(x - 3, y - 3, strip, 22, line="text", thickness=2, radius=4)
        return canvas


def packed(one: SentenceMaps) -> dict[str, Any]:
    """Pack a sentence with its attention weights into a dictionary of tokens and bytes that the widget reads."""
    return {"text": one.sentence, "tokens": list(one.tokens), "weights": pack_uint8(one.weights)}
