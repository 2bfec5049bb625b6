"""How many heads does it take, live: models with 1 to 12 heads name the letters near each token."""

from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_course.language import listed, sentences, tr
from mha_course.models.heads_needed import HEAD_COUNTS, NUM_MESSAGES, SEEDS, heads_needed
from mha_course.models.neighbours import NUM_HIDDENS, SHIFTS, held_out_rows
from mha_course.models.one_head import NUM_TOKENS
from mha_course.pictures.heat_maps import masked_keys
from mha_course.pictures.live import LivePicture, Place, choice, pack, refuse
from mha_course.pictures.picture import PAD, Canvas

NAMES, SIGNS = (
    ("one before", "one after", "two before", "two after"),
    ("−1", "+1", "−2", "+2"),
)  # in the order of SHIFTS
LEAST = 0.15  # mean weight from which a head's key is named
BAR, BAR_HEIGHT, BARS = 50, 70, 142  # of the still picture, in pixels: a bar and its ground, and all above the maps
SIDE, ABOVE, GAP, COLUMNS = 124, 18, 14, 5  # a map, its title, the space after it, and most maps in a row


class NumHeadsExplorer(LivePicture):
    """Show in a widget the accuracy of models with 1 to 12 heads, and the chosen model's attention maps and answers.

    Each token names the two letters before and the two after it, or one and one; the row is a ring. All models have 24
    hidden units and the same training, and are kept by ``make weights``.

    Args:
        first: first values of the attributes.

    Attributes:
        num_letters: how many letters each token names, 2 or 4.
        num_heads: 1, 2, 3, 4, 6, 8 or 12.
        valid_lens: how many keys are valid, 0 to 12.
        query: the token whose row is framed, 0 to 11.
    """

    module = "num_heads_explorer"

    num_letters, num_heads = choice(traitlets.Int(4)), choice(traitlets.Int(1))
    valid_lens = Place(lambda self: NUM_TOKENS + 1)
    query = Place(lambda self: NUM_TOKENS)

    def __init__(self, **first: Any):
        self.kept, (letters, truth) = heads_needed(), held_out_rows(max(NUM_MESSAGES))
        self.letters, self.truth = ["abcdefghij"[letter] for letter in letters[0]], truth[0]
        tensors = {
            f"{messages}.{heads}.{name}": part
            for (messages, heads), kept in self.kept.items()
            for name, part in (
                ("scores", kept.scores), ("answers", kept.answers.flatten(1)), ("accuracy", kept.accuracy)
            )
        }  # fmt: skip
        data = pack(tensors, halves=True) | {
            "letters": letters[0].tolist(),
            "truth": self.truth.tolist(),
            "counts": list(HEAD_COUNTS),
            "features": NUM_HIDDENS,
            "names": [tr(name) for name in NAMES],
            "order": sorted(
                range(len(SHIFTS)), key=lambda message: -SHIFTS[message]
            ),  # as in the row, from left to right
            "jobs": {f"{m}.{h}": [job(own.tolist()) for own in kept.on_message] for (m, h), kept in self.kept.items()},
        }
        super().__init__(tr("How many heads does it take?"), data, **{"valid_lens": NUM_TOKENS, "query": 4, **first})

    @traitlets.validate("num_heads")
    def _validate_num_heads(self, proposal):
        if proposal["value"] not in HEAD_COUNTS:
            refuse("num_heads", f"one of {list(HEAD_COUNTS)}", proposal["value"])
        return proposal["value"]

    @traitlets.validate("num_letters")
    def _validate_num_letters(self, proposal):
        if proposal["value"] not in NUM_MESSAGES:
            refuse("num_letters", f"one of {list(NUM_MESSAGES)}", proposal["value"])
        return proposal["value"]

    def accuracy(self, num_heads: int) -> Tensor:
        """Return the share of held-out tokens with all letters right, for each seed, with as many valid keys as now."""
        return self.kept[self.num_letters, num_heads].accuracy[:, self.valid_lens]

    def jobs(self) -> list[str]:
        """Return what each head attends to, by its mean weights on held-out rows."""
        return self.data["jobs"][f"{self.num_letters}.{self.num_heads}"]

    def weights(self) -> Tensor:
        """Return the attention weights of the present state, (num_heads, 12, 12)."""
        return self.kept[self.num_letters, self.num_heads].weights(self.valid_lens)

    def draw(self) -> tuple[Canvas, str, str]:
        """Draw the bars of all models, and below them the maps of the chosen one."""
        jobs, rows = self.jobs(), -(-self.num_heads // COLUMNS)
        columns = -(-self.num_heads // rows)
        width = max(len(HEAD_COUNTS) * BAR, columns * (SIDE + GAP) - GAP)
        canvas = Canvas(max(width, 460), BARS + rows * (SIDE + ABOVE + GAP) + 26)
        self._draw_bars(canvas)
        masked = masked_keys(torch.tensor(self.valid_lens), NUM_TOKENS, NUM_TOKENS)
        for head, (own, name) in enumerate(zip(self.weights(), jobs, strict=True)):
            x, y = head % columns * (SIDE + GAP), BARS + ABOVE + head // columns * (SIDE + ABOVE + GAP)
            canvas.heat_map(
                x, y, SIDE / NUM_TOKENS, own, title=f"{tr('head {head}', head=head)}  {name}", masked=masked
            )
        canvas.scale(0, canvas.height - 2 * PAD - 22)
        scale = tr("weight (rows: queries, columns: keys)")
        canvas.text(176, canvas.height - 2 * PAD - 18, scale, size=10, anchor="lm")
        rights = {heads: percent(self.accuracy(heads)[0].item()) for heads in HEAD_COUNTS}
        state = tr(
            "{heads} of {size} features: {share} of the tokens name all {letters} letters, "
            "{valid} of {keys} keys valid.",
            heads=tr("1 head") if self.num_heads == 1 else tr("{count} heads", count=self.num_heads),
            size=NUM_HIDDENS // self.num_heads,
            share=rights[self.num_heads],
            letters=self.num_letters,
            valid=self.valid_lens,
            keys=NUM_TOKENS,
        )
        every = tr("By num_heads: {shares}.", shares=", ".join(f"{heads} {right}" for heads, right in rights.items()))
        means = listed((f"{tr('head {head}', head=head)} {name}" for head, name in enumerate(jobs)), "; ")
        return canvas, sentences([state, every, tr("Mean weights: {heads}.", heads=means)]), state

    def _draw_bars(self, canvas: Canvas) -> None:
        title = "num_heads, and the share of tokens that name all {letters} letters (line: {seeds} seeds)"
        canvas.text(0, 0, tr(title, letters=self.num_letters, seeds=len(SEEDS)), size=11, colour="text")
        bottom = BARS - 34
        for i, heads in enumerate(HEAD_COUNTS):
            right, x, colour = self.accuracy(heads), i * BAR, "text" if heads == self.num_heads else "soft"
            canvas.text(x + BAR / 2, 22, percent(right[0].item()), size=10, anchor="ma", colour=colour)
            canvas.box(x + 8, bottom - BAR_HEIGHT, BAR - 16, BAR_HEIGHT, fill="card")
            height = max(BAR_HEIGHT * right[0].item(), 2)
            canvas.box(x + 8, bottom - height, BAR - 16, height, fill=colour)
            ends = [(x + BAR - 4, bottom - BAR_HEIGHT * end.item()) for end in right.aminmax()]
            canvas.line(ends, colour="text", thickness=2)
            canvas.text(x + BAR / 2, bottom + 4, str(heads), size=12, anchor="ma", colour=colour)


def percent(share: float) -> str:
    """Format a share from 0 to 1 as a percentage, with one decimal only near 0 and near 100 %."""
    digits = 1 if 0.0005 < share < 0.0095 or 0.99 < share < 1 else 0
    return f"{100 * share:.{digits}f} %"


def job(on_message: list[float]) -> str:
    """Describe in words which neighbours a head attends to, given its mean weight on each neighbour."""
    most = max(on_message)
    named = [message for message, weight in enumerate(on_message) if weight >= max(LEAST, most / 2)]
    if len(named) == 1:
        return f"{tr(NAMES[named[0]]) if most >= 0.5 else SIGNS[named[0]]} {most:.2f}".replace(" 0.", " .")
    return " ".join(SIGNS[message] for message in named) or tr("spread")
