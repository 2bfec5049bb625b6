"""The next word of a real language model, live: cut heads, and see whether the word holds or another one comes."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np
import traitlets

from mha_course.heads.kept_results import load_results
from mha_course.models.next_words import (
    ALL_HEADS,
    GROUPS,
    NUM_WORDS,
    NextWords,
    kept_draws,
    kept_next_words,
    next_words,
)
from mha_course.models.smollm2 import NUM_HEADS, NUM_LAYERS, PACKAGE, SmolLM2, smollm2
from mha_course.pictures.heat_maps import WORD, in_lines, word_width, write_words
from mha_course.pictures.live import LivePicture, OwnText, Place, choice, refuse
from mha_course.pictures.picture import PAD, Canvas
from mha_course.pictures.shared_with_js import weight_colours


class NextWordExplorer(LivePicture):
    """Show a language model's ten likeliest next words in a widget where each of its 270 heads can be switched off.

    For learners who want to see what heads are for: cut some, and see whether the word holds; then cut as many others.
    Eight texts are kept. Where SmolLM2 is installed, the page asks for other cuts, and for texts of the reader's own.

    Args:
        model: from ``smollm2()``; left out, the installed one is loaded when the page first asks for something.
        first: first values of the attributes.

    Attributes:
        example: which kept text is shown, where ``text`` is empty.
        text: a text of one's own, at most 40 tokens.
        query: the token that looks, counted from 0 with the start.
        layer, head: the head whose weights colour the text.
        cut: the heads that are switched off, 9 · layer + head each.

    Raises:
        traitlets.TraitError: also where a text is too long, or where there is no model to read it.
    """

    module = "next_word_explorer"

    example = Place(lambda self: len(self.kept))
    text = OwnText()
    query = Place(lambda self: len(self.shown().tokens))
    layer, head = Place(lambda self: NUM_LAYERS), Place(lambda self: NUM_HEADS)
    cut = choice(traitlets.List(traitlets.Int()))

    def __init__(self, model: SmolLM2 | None = None, **first: Any):
        self.kept, self._model = kept_next_words(), model
        self._known = {one.text: one for one in self.kept}
        data = {
            "texts": [packed(one) for one in self.kept],
            "titles": [f"{one.text} …" for one in self.kept],
            "cuts": self.kept[0].cuts,
            "groups": [{"name": name, "heads": list(heads)} for name, heads in GROUPS.items()],
            "draws": kept_draws(),
            "layers": NUM_LAYERS,
            "heads": NUM_HEADS,
            "chosen": how_chosen(),
            "can_ask": model is not None or PACKAGE.is_there(),
        }
        super().__init__("The next word of a language model, with heads cut", data, **{"layer": 17, "head": 4, **first})
        if "query" not in first:
            self.query = len(self.shown().tokens) - 1

    @traitlets.validate("cut")
    def _only_heads(self, proposal: Any) -> list[int]:
        heads = list(proposal["value"])
        if len(set(heads)) != len(heads) or not set(heads) <= set(ALL_HEADS):
            refuse("cut", f"different heads from 0 to {len(ALL_HEADS) - 1}, 9 · layer + head each", heads)
        return heads

    @traitlets.observe("example", "text")
    def _stay_among_the_tokens(self, _change: Any) -> None:
        self.query = min(self.query, len(self.shown().tokens) - 1)

    def shown(self) -> NextWords:
        """Return the text that is shown, with all cuts that are known of it."""
        return self._known[self.text] if self.text else self.kept[self.example]

    def without(self, cut: Iterable[int]) -> NextWords:
        """Return the text that is shown, with what comes next without these heads.

        Raises:
            ImportError: this was not kept, and there is no model to compute it; the message says how to get one.
        """
        return self.read(self.shown().text, [cut])

    def read(self, text: str, cuts: Iterable[Iterable[int]] = (), **how: Any) -> NextWords:
        """Return a text with these cuts, as it was kept, or computed now; a new one is remembered."""
        known, wanted = self._known.get(text), [tuple(sorted(cut)) for cut in cuts]
        if known and set(wanted) <= set(known.cuts) and not how:
            return known
        self._model = self._model or smollm2()
        found = next_words(self._model, text, wanted, **how)
        self._known.setdefault(text, found)
        return found

    def reply(self, question: dict[str, Any], share: Callable[[float], None]) -> dict[str, Any]:
        """What comes next after ``text`` without each of ``cuts``, and with ``each`` without every single head."""
        how = {"each": True, "progress": share} if question.get("each") else {}
        found = self.read(question["text"], question.get("cuts", ()), **how)
        return packed(found) | {"cuts": found.cuts}

    def page_data(self) -> dict[str, Any]:
        """As for every picture; a text of one's own travels with the page, with the cut that is shown."""
        state = super().page_data()
        if self.text:
            own = self.without(self.cut)
            texts = [*self.data["texts"], packed(own) | {"cuts": own.cuts}]
            state["state"]["data"] = self.data | {"texts": texts}
        return state

    def draw(self) -> tuple[Canvas, str, str]:
        """Draw the text, what comes next, and all heads, those that are cut crossed out."""
        text, cut, unknown = self.shown(), tuple[int, ...](), ""
        try:
            text, cut = self.without(self.cut), tuple(sorted(self.cut))
        except ImportError as error:
            unknown = f" Not known here, so all heads are on: the cut of {self.cut}. {error}"
        place = text.cuts.index(cut)
        top = text.words[text.first[place]]
        words = zip(text.words, (-text.nats[place]).exp().tolist(), strict=False)
        told = [f"“{word.strip()}” {p:.2f}" for word, p in words]
        title = claim(text, place)
        canvas = self._sheet(text, place, title)
        share = (-text.first_nats[place]).exp().item()
        ten = f"Ten words, likeliest first with all heads: {', '.join(told)}."
        alt = f"{text.text} … {title}. “{top.strip()}” {share:.2f}. {ten}"
        return canvas, alt + unknown, f"{title}. Bars: the ten words that are likeliest with all heads (lines)."

    def _sheet(self, text: NextWords, place: int, title: str) -> Canvas:
        """Draw what comes next without the heads of cut ``place`` of ``text``, below a large line."""
        words, first = ["start", *map(spelled, text.tokens[1:])], int(text.first[place])
        top, shade = spelled(text.words[first]), "wrong" if first else "text"
        widths = [*(word_width(word) for word in words), word_width(top) + 8]
        corners = in_lines(widths, 36)
        (left, line), below = corners[-1], corners[-1][1] + 54
        canvas = Canvas(max(560, *(x + width for (x, _), width in zip(corners, widths, strict=True))), below + 168)
        canvas.text(0, 0, title, size=17, colour="text")
        shades = weight_colours(text.maps[self.layer, self.head, self.query].numpy())
        write_words(canvas, words, shades, corners[:-1], self.query)
        canvas.box(left + 2, line - 2, widths[-1] - 2, 34, line=shade, thickness=2, radius=6)
        canvas.text(left + 1 + widths[-1] / 2, line + 15, top, size=WORD, anchor="mm", colour=shade)
        now, whole = ((-text.nats[row]).exp().tolist() for row in (place, 0))
        bars = [*zip(map(spelled, text.words), now, whole, strict=False)]
        if first >= NUM_WORDS:
            bars[-1] = top, (-text.first_nats[place]).exp().item(), 0.0
        for i, (word, share, before) in enumerate(bars):
            y, colour = below + 17 * i, shade if word == top else "soft"
            canvas.text(74, y + 6, word, size=11, anchor="rm", colour=colour)
            canvas.box(80, y, 100, 12, fill="card")
            canvas.box(80, y, max(100 * share, 1), 12, fill=colour)
            canvas.line([(80 + 100 * before, y), (80 + 100 * before, y + 12)], colour="text", thickness=1.5)
            canvas.text(186, y + 6, f"{share:.2f}", size=10, anchor="lm", colour=colour)
        cut, pitch = text.cuts[place], (canvas.width - 2 * PAD - 236) / NUM_LAYERS
        name = f"{len(ALL_HEADS)} heads by layer, 0 to {NUM_LAYERS - 1}; × is cut"
        canvas.text(236, below - 6, name, size=10, anchor="ls")
        for head in ALL_HEADS:
            (layer, row), marked = divmod(head, NUM_HEADS), any(head in heads for heads in GROUPS.values())
            x, y, side = 236 + pitch * layer, below + 18 * row, pitch - 2
            canvas.box(x, y, side, 15, fill="card", line="soft" if marked else "edge", radius=2)
            if head in cut:
                canvas.line([(x + 1, y + 1), (x + side - 1, y + 14)], colour="wrong", thickness=2)
                canvas.line([(x + 1, y + 14), (x + side - 1, y + 1)], colour="wrong", thickness=2)
        return canvas


def packed(text: NextWords) -> dict[str, Any]:
    """Pack a text into a dictionary of words and bytes that the widget reads."""
    words = {"text": text.text, "tokens": text.tokens, "words": text.words}
    return words | {"rows": text.rows().tobytes(), "maps": text.triangles().tobytes()}


def claim(text: NextWords, place: int) -> str:
    """Return the headline: how many heads the next word depends on, or what comes without those of cut ``place``."""
    cut, count, target, top = text.cuts[place], len(ALL_HEADS), spelled(text.words[0]), text.first[place]
    changing = [int(first) for own, first in zip(text.cuts, text.first, strict=True) if len(own) == 1]
    if not cut and len(changing) < count:
        return f"With all {count} heads: “{target}”"
    if not cut:
        num_changing = sum(first > 0 for first in changing)
        change = "changes" if num_changing == 1 else "change"
        if num_changing:
            return f"{num_changing} of {count} heads, each cut alone, {change} “{target}”"
        return f"“{target}” stays, whichever of {count} heads is cut alone"
    named = [name for name, heads in GROUPS.items() if sorted(heads) == sorted(cut) and len(cut) > 1]
    some = f"the {len(cut)} {named[0]} heads" if named else f"{len(cut)} of {count} heads"
    some = "layer {}, head {}".format(*divmod(cut[0], NUM_HEADS)) if len(cut) == 1 else some
    not_target = f", not “{target}”" if top else ""
    return f"Without {some}:{'' if top else ' still'} “{spelled(text.words[top])}”{not_target}"


def spelled(token: str) -> str:
    """Return a token as shown to readers: without its leading space, a line break as ↵, an empty one as ␣."""
    return token.replace("\n", "↵").removeprefix(" ") or "␣"


def how_chosen() -> str:
    """Return a note on how the example texts were selected, with figures for other texts from the stored results."""
    others = [row for row in cast(dict, load_results("next_word"))["read or known"] if not row["seen before"]]
    read = [row for row in others if row["says what was read"]]
    lost = [row for row in read if row["without"]["induction"]["word"] != row["whole"]["word"]]
    known = sum(row["says what is known without"] for row in lost)
    shares = {
        where: np.mean([word != row["whole"]["word"] for row in read for word in row["words of draws"][where]])
        for where in kept_draws()
    }
    return (
        f"These texts were chosen because something is to be seen in them. Of {len(others)} more like the first two, "
        f"which nobody had tried, the model goes on with the word just read in {len(read)}. Without the five induction "
        f"heads {len(lost)} of these {len(read)} lose it, {known} of them to the word that everybody knows; without "
        f"five others of the same layers in {shares['same layers']:.0%} of the draws, of all heads in "
        f"{shares['all heads']:.0%}."
    )
