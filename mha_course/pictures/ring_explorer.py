"""The Ring, live: heads learn to predict the neighbours of twelve letters while the reader watches."""

import functools
import math
from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_course.language import listed, sentences, tr
from mha_course.models.any_layer import copied, num_heads_of
from mha_course.models.heads_needed import HEAD_COUNTS, SEEDS, accuracy, accuracy_by_seed, trained_neighbours
from mha_course.models.neighbours import SHIFTS, NeighbourModel, held_out_rows, weights_on_messages
from mha_course.models.one_head import NUM_TOKENS
from mha_course.models.training import seeded
from mha_course.pictures.live import LivePicture, OneOf, Place, choice, pack, refuse
from mha_course.pictures.picture import Canvas

ALPHABET, ROW, TEST_ROWS = "abcdefghij", "ejdadjhdhdbg", 64
NAMES, SIGNS = (
    ("one before", "one after", "two before", "two after"),
    ("−1", "+1", "−2", "+2"),
)  # in the order of SHIFTS
ORDER = sorted(range(len(SHIFTS)), key=lambda message: -SHIFTS[message])  # as in the row, from left to right
LEAST, MOST = 0.15, 0.5  # mean weights from which a head's key is named, and named in words
SAME = 1e-2  # by how much logits of a layer of another's own may be off
SIDE, BAR, BAR_HEIGHT = 320, 40, 70  # of the still picture, in pixels: the ring, a bar and its ground
FAINT = 0.05  # weight from which the still picture draws a chord


class RingExplorer(LivePicture):
    """Show heads that learn in a widget: twelve letters on a ring, of which each token predicts its four neighbours.

    A chord is an attention weight, its colour the head. The browser trains a model for any number of heads; the models
    that are shown before, and in a still picture, ship with the library (``make weights``).

    Args:
        model: a trained ``NeighbourModel`` to show instead, such as ``ring_lab()``, or a copy of it with another layer
            (``with_layer``); it is left as it is, and nothing is trained. Heads that attend to the same neighbour stand
            together, and are switched off together, too.
        first: first values of the attributes; without any, the widget opens with two trainings, of 1 and of 4 heads.

    Attributes:
        num_heads: 1, 2, 3, 4, 6, 8 or 12; with a model, its own.
        split_into: into how many heads its weights are split without training, of these; 0 leaves them as trained.
        off: the heads that are switched off.
        valid_lens: how many keys are valid, 1 to 12.
        letters: the row, 12 letters from a to j.
        query: the token whose chords stand out, 0 to 11.

    Raises:
        ValueError: ``model`` has other parameters than a ``NeighbourModel`` for four letters, or its layer computes
            something else with them.
    """

    module = "ring_explorer"

    num_heads, split_into = OneOf(lambda self: self.models), OneOf(lambda self: (0, *self.data["counts"]))
    off, valid_lens = choice(traitlets.List()), Place(lambda _: NUM_TOKENS + 1, first=1)
    letters = choice(traitlets.Unicode(ROW))
    query = Place(lambda self: NUM_TOKENS)

    def __init__(self, model: torch.nn.Module | None = None, **first: Any):
        self.test, self.truth = (part[:TEST_ROWS] for part in held_out_rows(len(SHIFTS)))
        own = None if model is None else _own(model, self.test)
        shown = [own] if own else map(trained_neighbours, HEAD_COUNTS)
        self.models = {one.attention.num_heads: one for one in shown}
        self.num_hiddens = next(iter(self.models.values())).attention.num_hiddens
        tensors = {f"{n}.{name}": part for n, one in self.models.items() for name, part in one.state_dict().items()}
        data = pack(tensors, halves=model is None) | {
            "test": bytes(self.test.flatten().tolist()),
            "counts": [heads for heads in HEAD_COUNTS if self.num_hiddens % heads == 0],
            "ranges": [] if model else _ranges(),
            "names": [tr(name) for name in NAMES],
            "shares": _shares(own, self.test) if own else [],
            "opens": model is None and not first,
        }
        heads = own.attention.num_heads if own else 4
        first = {"num_heads": heads, "split_into": 0, "valid_lens": NUM_TOKENS, **first}
        title = tr("What is each head worth?") if own else tr("How many heads does it take?")
        super().__init__(title, data, **first)

    @traitlets.validate("off")
    def _validate_off(self, proposal):
        off = proposal["value"]
        if any(type(head) is not int or not 0 <= head < self.heads for head in off) or len(set(off)) < len(off):
            refuse("off", f"different heads from 0 to {self.heads - 1}", off)
        return sorted(off)

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

    @property
    def shares(self) -> list[list[int]]:
        """The heads of a given model that attend to each neighbour, two before to two after."""
        return self.data["shares"] if self.heads == self.num_heads else []

    def model(self) -> NeighbourModel:
        """Return a model that computes the present state, but for ``valid_lens`` and the heads that are off."""
        trained = self.models[self.num_heads]
        if not self.split_into:
            return trained
        return _with_parameters(self.split_into, self.num_hiddens, trained.state_dict())

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
        heads = [(tr("head {head}", head=head), self._lost(head), own) for head, own in enumerate(self.jobs())]
        x, y = SIDE + 30, 0.0
        if self.data["ranges"]:
            self._draw_bars(canvas, x)
            y = BAR_HEIGHT + 70.0
        canvas.text(x, y, tr("accuracy lost without a head"), size=11, colour="text")
        for head, (name, worth, own) in enumerate(heads):
            across, down = (head // 6 * 142, y + 20 + head % 6 * 24)
            canvas.box(across + x, down, 4, 20, fill=self._colour(head))
            canvas.text(across + x + 10, down - 1, f"{name}  {worth}", size=10, colour="text")
            canvas.text(across + x + 10, down + 10, own, size=10)
        shares = [
            (self._colour(own[0]), self._worth(" + ".join(map(str, own)), tr(NAMES[message]), *own))
            for message, own in zip(ORDER, self.shares, strict=False)
            if len(own) > 1
        ]
        if shares:
            y += 36 + 24 * min(len(heads), 6)
            canvas.text(x, y, tr("accuracy lost without a neighbour's heads"), size=11, colour="text")
        for i, (colour, words) in enumerate(shares):
            canvas.box(x, y + 22 + 18 * i, 4, 14, fill=colour)
            canvas.text(x + 10, y + 22 + 18 * i, words, size=10)
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
        every = listed(
            tr("{heads} {share}", heads=heads, share=percent(seeds[0].item()))
            for heads, seeds in accuracy_by_seed().items()
        )
        bars = tr("By number of heads: {shares}.", shares=every) if self.data["ranges"] else ""
        told = listed((self._worth(name, own, head) for head, (name, _, own) in enumerate(heads)), "; ")
        means = tr("Mean weights, and accuracy lost without the head: {heads}.", heads=told)
        together = listed((words for _, words in shares), "; ")
        both = tr("Accuracy lost without a neighbour's heads: {heads}.", heads=together) if shares else ""
        return canvas, sentences([state, split, bars, means, both]), state

    def _worth(self, name: str, job: str, *heads: int) -> str:
        """What these heads do, and the accuracy that is lost without them."""
        return tr("{heads} {job}, {lost}", heads=name, job=job, lost=self._lost(*heads))

    def _lost(self, *heads: int) -> str:
        """The accuracy that is lost without these heads, too, in words."""
        return tr("off") if {*heads} <= {*self.off} else percent(self.accuracy() - self.accuracy(*heads))

    def _colour(self, head: int) -> str:
        """The colour of a head, which is its neighbour's if every head attends to one."""
        is_by_neighbour = sum(map(len, self.shares)) == self.heads
        return f"ring-{[head in own for own in self.shares].index(True) if is_by_neighbour else head % 4}"

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
            aside = 0.09 * (head - (self.heads - 1) / 2) / max(1, self.heads / 4)
            bend = place(query + around / 2, 0.8 / math.sqrt(abs(around)) + aside)
            canvas.line(
                [
                    tuple((1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c for a, b, c in zip(*ends, strict=True))
                    for ends in [(place(query), bend, place(key))]
                    for t in (step / 16 for step in range(17))
                ],
                colour=self._colour(head),
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
        canvas.text(0, 0, tr("valid keys: {valid}", valid=self.valid_lens), size=11, colour="key")

    def _draw_bars(self, canvas: Canvas, x: float) -> None:
        title = tr("number of heads, and accuracy (line: {seeds} runs)", seeds=len(SEEDS))
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


def _own(model: torch.nn.Module, letters: Tensor) -> NeighbourModel:
    """Return a model of this library with the parameters of ``model``; raise a ValueError if it is none for this task,
    or computes something else with ``letters``."""
    try:
        attention, given = model.get_submodule("attention"), model.state_dict()
        num_heads = num_heads_of(attention)
        own = _with_parameters(num_heads, given["embedding.positions"].shape[-1], given)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError):
        got = type(model).__name__
        if isinstance(model, NeighbourModel):
            got += f" for {model.num_messages} letters with {len(model.read_out)} layers of read-out"
        raise ValueError(f"model must be a NeighbourModel for four letters with a linear read-out, got {got}") from None
    copy = copied(model).cpu().float().eval()
    for gates in (None, torch.arange(num_heads) % 2.0):
        with torch.no_grad():
            apart = (copy(letters, head_mask=gates) - own(letters, head_mask=gates)).abs().max().item()
        if not apart < SAME:
            with_gates = "" if gates is None else f", with head_mask {gates.tolist()}"
            raise ValueError(
                "the attention of model must be multi-head attention with its weights, but its class "
                f"{type(attention).__name__} gives logits that are up to {apart:.2g} off{with_gates}"
            )
    return own


def _with_parameters(num_heads: int, num_hiddens: int, given: dict[str, Tensor]) -> NeighbourModel:
    """A model for four letters, in eval mode, with the parameters that it needs of those that are given."""
    with seeded(0):  # the caller's random numbers stay as they were
        model = NeighbourModel(num_heads, num_hiddens=num_hiddens)
    model.load_state_dict({name: given[name] for name in model.state_dict()})
    return model.eval()


@torch.no_grad()
def _shares(model: NeighbourModel, letters: Tensor) -> list[list[int]]:
    """The heads that put most weight on each neighbour, two before to two after."""
    model(letters)
    means = weights_on_messages(model.attention.attention_weights, len(SHIFTS)).mean(dim=(0, 2))
    return [[head for head, own in enumerate(means.tolist()) if own[message] >= MOST] for message in ORDER]


def many(count: int) -> str:
    """Return a number of heads in words."""
    return tr("1 head") if count == 1 else tr("{count} heads", count=count)


def percent(share: float) -> str:
    """Format a share from 0 to 1 as a percentage, with one decimal only near 0 and near 100 %."""
    digits = 1 if 0.0005 < share < 0.0095 or 0.99 < share < 1 else 0
    number = f"{100 * share:.{digits}f}"
    return tr("{share} %", share="0" if number == "-0" else number.replace("-", "−"))


def job(on_message: list[float]) -> str:
    """Describe in words which neighbours a head attends to, given its mean weight on each neighbour."""
    most = max(on_message)
    named = [message for message, weight in enumerate(on_message) if weight >= max(LEAST, most / 2)]
    if len(named) == 1:
        return f"{tr(NAMES[named[0]]) if most >= MOST else SIGNS[named[0]]} {most:.2f}".replace(" 0.", " .")
    if len(named) == len(SIGNS):
        return tr("all four")
    return " ".join(SIGNS[message] for message in named) or tr("spread")
