"""The Ring, live: heads learn to predict the neighbours of twelve letters while the reader watches."""

import functools
import math
from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_course.language import sentences, tr
from mha_course.models.heads_needed import HEAD_COUNTS, SEEDS, accuracy, accuracy_by_seed, trained_neighbours
from mha_course.models.neighbours import SHIFTS, NeighbourModel, held_out_rows, weights_on_messages
from mha_course.models.one_head import NUM_TOKENS
from mha_course.pictures.live import LivePicture, Place, choice, pack, refuse
from mha_course.pictures.picture import Canvas

ALPHABET, ROW, TEST_ROWS = "abcdefghij", "ejdadjhdhdbg", 64
NAMES, SIGNS = (
    ("one before", "one after", "two before", "two after"),
    ("−1", "+1", "−2", "+2"),
)  # in the order of SHIFTS
ORDER = sorted(range(len(SHIFTS)), key=lambda message: -SHIFTS[message])  # as in the row, from left to right
LEAST = 0.15  # mean weight from which a head's key is named
SIDE, BAR, BAR_HEIGHT = 320, 40, 70  # of the still picture, in pixels: the ring, a bar and its ground
FAINT = 0.05  # weight from which the still picture draws a chord


class RingExplorer(LivePicture):
    """Show heads that learn in a widget: twelve letters on a ring, of which each token predicts its four neighbours.

    A chord is an attention weight, its colour the head. The browser trains a model for any number of heads; the models
    that are shown before, and in a still picture, ship with the library (``make weights``).

    Args:
        model: a trained ``NeighbourModel`` to show instead; it is left as it is, and nothing is trained.
        first: first values of the attributes; without any, the widget opens with two trainings, of 1 and of 4 heads.

    Attributes:
        num_heads: 1, 2, 3, 4, 6, 8 or 12; with a model, its own.
        split_into: into how many heads its weights are split without training, of these; 0 leaves them as trained.
        off: the heads that are switched off.
        valid_lens: how many keys are valid, 1 to 12.
        letters: the row, 12 letters from a to j.
        query: the token whose chords stand out, 0 to 11.

    Raises:
        ValueError: ``model`` has other parameters than a ``NeighbourModel`` for four letters.
    """

    module = "ring_explorer"

    num_heads, split_into = choice(traitlets.Int(4)), choice(traitlets.Int(0))
    off, valid_lens = choice(traitlets.List()), choice(traitlets.Int(NUM_TOKENS))
    letters = choice(traitlets.Unicode(ROW))
    query = Place(lambda self: NUM_TOKENS)

    def __init__(self, model: torch.nn.Module | None = None, **first: Any):
        self.models = {heads: trained_neighbours(heads) for heads in HEAD_COUNTS} if model is None else _own(model)
        self.num_hiddens = self.models[next(iter(self.models))].attention.num_hiddens
        self.test, self.truth = (part[:TEST_ROWS] for part in held_out_rows(len(SHIFTS)))
        tensors = {f"{n}.{name}": part for n, one in self.models.items() for name, part in one.state_dict().items()}
        data = pack(tensors, halves=model is None) | {
            "test": bytes(self.test.flatten().tolist()),
            "counts": [heads for heads in HEAD_COUNTS if self.num_hiddens % heads == 0],
            "ranges": [] if model else _ranges(),
            "names": [tr(name) for name in NAMES],
            "opens": model is None and not first,
        }
        first = {"num_heads": 4 if model is None else next(iter(self.models)), **first}
        super().__init__(tr("How many heads does it take?"), data, **first)

    @traitlets.validate("num_heads")
    def _validate_num_heads(self, proposal):
        if proposal["value"] not in self.models:
            refuse("num_heads", f"one of {list(self.models)}", proposal["value"])
        return proposal["value"]

    @traitlets.validate("split_into")
    def _validate_split_into(self, proposal):
        if proposal["value"] not in (0, *self.data["counts"]):
            refuse("split_into", f"one of {[0, *self.data['counts']]}", proposal["value"])
        return proposal["value"]

    @traitlets.validate("off")
    def _validate_off(self, proposal):
        off = proposal["value"]
        if any(type(head) is not int or not 0 <= head < self.heads for head in off) or len(set(off)) < len(off):
            refuse("off", f"different heads from 0 to {self.heads - 1}", off)
        return sorted(off)

    @traitlets.validate("valid_lens")
    def _validate_valid_lens(self, proposal):
        if not 1 <= proposal["value"] <= NUM_TOKENS:
            refuse("valid_lens", f"between 1 and {NUM_TOKENS}", proposal["value"])
        return proposal["value"]

    @traitlets.validate("letters")
    def _validate_letters(self, proposal):
        if len(proposal["value"]) != NUM_TOKENS or not set(proposal["value"]) <= set(ALPHABET):
            refuse("letters", f"{NUM_TOKENS} letters of {ALPHABET}", proposal["value"])
        return proposal["value"]

    @traitlets.observe("num_heads", "split_into")
    def _stay_among_the_heads(self, _change):
        self.off = [head for head in self.off if head < self.heads]

    @property
    def heads(self) -> int:
        """How many heads compute: those of the training, or those into which its weights are split."""
        return self.split_into or self.num_heads

    def model(self) -> NeighbourModel:
        """Return a model that computes the present state, but for ``valid_lens`` and the heads that are off."""
        trained = self.models[self.num_heads]
        if not self.split_into:
            return trained
        with torch.random.fork_rng(devices=()):
            split = NeighbourModel(self.split_into, num_hiddens=self.num_hiddens)
        split.load_state_dict(trained.state_dict())
        return split.eval()

    def gates(self) -> Tensor:
        """Return the gates on the heads, (heads,): 0 for those that are off."""
        return torch.tensor([float(head not in self.off) for head in range(self.heads)])

    def accuracy(self, *more_off: int) -> float:
        """Return the share of letters in 64 held-out rows with all four neighbours right, ``more_off`` switched off."""
        gates = self.gates()
        gates[list(more_off)] = 0
        return accuracy(self.model(), self.test, self.truth, self.valid_lens, gates)

    @torch.no_grad()
    def look(self) -> tuple[Tensor, Tensor]:
        """Return the row's attention weights, (heads, 12, 12), and its answers as numbers of letters, (12, 4)."""
        model = self.model()
        logits = model(self._row()[None], torch.tensor([self.valid_lens]), self.gates())
        return model.attention.attention_weights[0], logits[0].argmax(dim=-1)

    def _row(self) -> Tensor:
        return torch.tensor([ALPHABET.index(letter) for letter in self.letters])

    def jobs(self) -> list[str]:
        """Return what each head attends to, by its mean weights in the row."""
        on_message = weights_on_messages(self.look()[0][None], len(SHIFTS)).mean(dim=(0, 2))
        return [job(own.tolist()) for own in on_message]

    def draw(self) -> tuple[Canvas, str, str]:
        """Draw the ring with its chords; beside it the accuracy of all models, and the heads in words."""
        weights, answers = self.look()
        canvas = Canvas(SIDE + 30 + len(HEAD_COUNTS) * BAR, SIDE + 8)
        self._draw_ring(canvas, weights, answers)
        right = self.accuracy()
        heads = [
            (tr("head {head}", head=head), tr("off") if head in self.off else percent(right - self.accuracy(head)), own)
            for head, own in enumerate(self.jobs())
        ]
        x, y = SIDE + 30, 0.0
        if self.data["ranges"]:
            self._draw_bars(canvas, x)
            y = BAR_HEIGHT + 70.0
        canvas.text(x, y, tr("accuracy lost without a head"), size=11, colour="text")
        for head, (name, worth, own) in enumerate(heads):
            across, down = (head // 6 * 142, y + 20 + head % 6 * 24)
            canvas.box(across + x, down, 4, 20, fill=f"ring-{head % 4}")
            canvas.text(across + x + 10, down - 1, f"{name}  {worth}", size=10, colour="text")
            canvas.text(across + x + 10, down + 10, own, size=10)
        state = tr(
            "{heads} of {size} features: all four neighbours right for {share} of the letters, "
            "{valid} of {keys} keys valid.",
            heads=many(self.heads),
            size=self.num_hiddens // self.heads,
            share=percent(right),
            valid=self.valid_lens,
            keys=NUM_TOKENS,
        )
        split = tr("The weights were trained with {heads}.", heads=many(self.num_heads)) if self.split_into else ""
        every = ", ".join(f"{heads} {percent(seeds[0].item())}" for heads, seeds in accuracy_by_seed().items())
        bars = tr("By num_heads: {shares}.", shares=every) if self.data["ranges"] else ""
        told = "; ".join(f"{name} {own}, {worth}" for name, worth, own in heads)
        means = tr("Mean weights, and accuracy lost without the head: {heads}.", heads=told)
        return canvas, sentences([one for one in (state, split, bars, means) if one]), state

    def _draw_ring(self, canvas: Canvas, weights: Tensor, answers: Tensor) -> None:
        middle, radius, row = SIDE / 2, SIDE * 0.345, self._row()

        def place(token: float, far: float = 1.0) -> tuple[float, float]:
            angle = 2 * math.pi * token / NUM_TOKENS - math.pi / 2
            return middle + far * radius * math.cos(angle), middle + far * radius * math.sin(angle)

        chords = weights * self.gates()[:, None, None]
        for weight, head, query, key in sorted(
            (chords[at].item(), *at) for at in map(tuple, (chords > FAINT).nonzero().tolist()) if at[1] != at[2]
        ):
            around = (key - query + 6) % NUM_TOKENS - 6
            bend = place(query + around / 2, 0.74 - 0.12 * abs(around) + 0.04 * (head - (self.heads - 1) / 2))
            canvas.line(
                [
                    tuple((1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c for a, b, c in zip(*ends, strict=True))
                    for ends in [(place(query), bend, place(key))]
                    for t in (step / 16 for step in range(17))
                ],
                colour=f"ring-{head % 4}",
                thickness=(6 if query == self.query else 2.5) * weight,
            )
        arc = [place(-0.5 + step * self.valid_lens / 60, 1.36) for step in range(61)]
        canvas.line(arc, colour="key", thickness=2)
        for token, letter in enumerate(self.letters):
            x, y = place(token)
            chosen, valid = token == self.query, token < self.valid_lens
            fill = "text" if chosen else "paper" if valid else "card"
            canvas.box(x - 12, y - 12, 24, 24, fill=fill, line="text" if valid else "edge", radius=12)
            canvas.text(x, y, letter, size=13, anchor="mm", colour="paper" if chosen else "text" if valid else "soft")
            for slot, message in enumerate(ORDER):
                x, y = place(token + 0.19 * (slot - 1.5), 1.23)
                right = answers[token, message] == row[(token - SHIFTS[message]) % NUM_TOKENS]
                fill, line = ("text", "text") if right else ("paper", "wrong")
                canvas.box(x - 2.5, y - 2.5, 5, 5, fill=fill, line=line, radius=2.5)
        canvas.text(middle, middle - 6, percent(self.accuracy()), size=26, anchor="mm", colour="text")
        canvas.text(middle, middle + 16, tr("all four right"), size=11, anchor="mm")
        canvas.text(0, 0, f"valid_lens {self.valid_lens}", size=11, colour="key")

    def _draw_bars(self, canvas: Canvas, x: float) -> None:
        title = tr("num_heads, and accuracy (line: {seeds} seeds)", seeds=len(SEEDS))
        canvas.text(x, 0, title, size=11, colour="text")
        bottom = BAR_HEIGHT + 36
        for i, (heads, seeds) in enumerate(accuracy_by_seed().items()):
            left, colour = x + i * BAR, "text" if heads == self.num_heads else "soft"
            canvas.text(left + BAR / 2, 20, percent(seeds[0].item()), size=10, anchor="ma", colour=colour)
            height = max(BAR_HEIGHT * seeds[0].item(), 2)
            canvas.box(left + 6, bottom - BAR_HEIGHT, BAR - 14, BAR_HEIGHT, fill="card")
            canvas.box(left + 6, bottom - height, BAR - 14, height, fill=colour)
            ends = [(left + BAR - 5, bottom - BAR_HEIGHT * end.item()) for end in seeds.aminmax()]
            canvas.line(ends, colour="text", thickness=2)
            canvas.text(left + BAR / 2, bottom + 4, str(heads), size=12, anchor="ma", colour=colour)


@functools.cache
def _ranges() -> list[list[float]]:
    """For each number of heads the least and the largest accuracy of all seeds, and that of the model that ships."""
    test, truth = (part[:TEST_ROWS] for part in held_out_rows(len(SHIFTS)))
    ends = {heads: [end.item() for end in seeds.aminmax()] for heads, seeds in accuracy_by_seed().items()}
    return [[*own, accuracy(trained_neighbours(heads), test, truth)] for heads, own in ends.items()]


def _own(model: torch.nn.Module) -> dict[int, Any]:
    """Return a model by its number of heads; raise a ValueError if it is none for this task."""
    need = "a NeighbourModel for four letters with a linear read-out"
    try:
        attention: Any = model.attention
        num_heads, size = attention.num_heads, attention.num_hiddens
        with torch.random.fork_rng(devices=()):
            needed = NeighbourModel(num_heads, num_hiddens=size).state_dict()
        given = model.state_dict()
        fits = {name: part.shape for name, part in needed.items()} == {name: part.shape for name, part in given.items()}
    except (AttributeError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(f"model must be {need}, got {type(model).__name__}")
    return {num_heads: model}


def many(count: int) -> str:
    """Return a number of heads in words."""
    return tr("1 head") if count == 1 else tr("{count} heads", count=count)


def percent(share: float) -> str:
    """Format a share from 0 to 1 as a percentage, with one decimal only near 0 and near 100 %."""
    digits = 1 if 0.0005 < share < 0.0095 or 0.99 < share < 1 else 0
    return f"{100 * share:.{digits}f} %".replace("-0 %", "0 %").replace("-", "−")


def job(on_message: list[float]) -> str:
    """Describe in words which neighbours a head attends to, given its mean weight on each neighbour."""
    most = max(on_message)
    named = [message for message, weight in enumerate(on_message) if weight >= max(LEAST, most / 2)]
    if len(named) == 1:
        return f"{tr(NAMES[named[0]]) if most >= 0.5 else SIGNS[named[0]]} {most:.2f}".replace(" 0.", " .")
    return " ".join(SIGNS[message] for message in named) or tr("spread")
