"""The Ring, live: heads learn to predict the neighbours of twelve letters while the reader watches."""

import functools
import math
from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_course.language import listed, sentences, tr
from mha_course.models.any_layer import copied, num_heads_of
from mha_course.models.heads_needed import HEAD_COUNTS, accuracy, accuracy_by_seed, trained_neighbours
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
OPENING = 1, 4  # heads of the two rings that the widget opens with
SIDE = 320  # of a ring in the still picture, in pixels
FAINT = 0.05  # weight from which the still picture draws a chord


class RingExplorer(LivePicture):
    """Show heads that learn in a widget: twelve letters on a ring, of which each token predicts its four neighbours.

    A chord is an attention weight, its colour the head. The widget opens with two rings, on which 1 head and 4 heads
    learn; a button opens the rest. The browser trains a model for any number of heads; the models shown before, and
    in a still picture, ship with the library (``make weights``).

    Args:
        model: a trained ``NeighbourModel`` to show instead, such as ``ring_lab()``, or a copy of it with another layer
            (``with_layer``); it is left as it is, and nothing is trained. Heads that attend to the same neighbour stand
            together, and are switched off together, too.
        first: first values of the attributes.

    Attributes:
        num_heads: 1, 2, 3, 4, 6, 8 or 12; with a model, its own.
        split_into: into how many heads its weights are split without training, of these; 0 leaves them as trained.
        off: the heads that are switched off.
        valid_lens: how many keys are valid, 1 to 12.
        letters: the row, 12 letters from a to j.
        query: the token whose chords stand out, 0 to 11.
        explore: whether all this is shown, or only the two rings; True with a model or another first value, and after
            a change of another attribute.

    Raises:
        ValueError: ``model`` has other parameters than a ``NeighbourModel`` for four letters, or its layer computes
            something else with them.
    """

    module = "ring_explorer"

    num_heads, split_into = OneOf(lambda self: self.models), OneOf(lambda self: (0, *self.data["counts"]))
    off, valid_lens = choice(traitlets.List()), Place(lambda _: NUM_TOKENS + 1, first=1)
    letters = choice(traitlets.Unicode(ROW))
    query = Place(lambda self: NUM_TOKENS)
    explore = OneOf(lambda self: (True, *[False for _ in self.data["ranges"][:1]]))

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
        }
        heads = own.attention.num_heads if own else 4
        first = {"explore": bool(own or first), "num_heads": heads, "split_into": 0, "valid_lens": NUM_TOKENS, **first}
        title = tr("What is each head worth?") if own else tr("How many heads does it take?")
        super().__init__(title, data, **first)
        others = [name for name in self.choices if name != "explore"]
        self.observe(lambda _change: self.set_trait("explore", True), others)

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

    def look(self) -> tuple[Tensor, Tensor]:
        """Return the row's attention weights, (heads, 12, 12), and its answers as numbers of letters, (12, 4)."""
        return self._look(self.model(), self.gates())

    @torch.no_grad()
    def _look(self, model: NeighbourModel, gates: Tensor) -> tuple[Tensor, Tensor]:
        logits = model(self._row()[None], torch.tensor([self.valid_lens]), gates)
        return model.attention.attention_weights[0], logits[0].argmax(dim=-1)

    def _row(self) -> Tensor:
        return torch.tensor([ALPHABET.index(letter) for letter in self.letters])

    def jobs(self) -> list[str]:
        """Return what each head attends to, by its mean weights in the row."""
        on_message = weights_on_messages(self.look()[0][None], len(SHIFTS)).mean(dim=(0, 2))
        return [job(own.tolist()) for own in on_message]

    def draw(self) -> tuple[Canvas, str, str]:
        """Draw the two rings of the opening, or one ring, and tell what its heads are worth."""
        opening = [(self.models[heads], torch.ones(heads)) for heads in OPENING if not self.explore]
        shown, states = opening or [(self.model(), self.gates())], []
        canvas = Canvas(len(shown) * (SIDE + 20) - 20, SIDE + 24)
        for i, (model, gates) in enumerate(shown):
            heads, right = len(gates), accuracy(model, self.test, self.truth, self.valid_lens, gates)
            self._draw_ring(canvas, i * (SIDE + 20), model, gates)
            middle = i * (SIDE + 20) + SIDE / 2
            canvas.text(middle, SIDE / 2 - 6, percent(right), size=32, anchor="mm", colour="text")
            canvas.text(middle, SIDE / 2 + 20, tr("all four right"), size=12, anchor="mm")
            canvas.text(middle, SIDE, many(heads), size=16, anchor="ma", colour="text")
            state = tr(
                "{heads} of {size} features: all four neighbours right for {share} of the letters, "
                "{valid} of {keys} keys valid.",
                heads=many(heads),
                size=self.num_hiddens // heads,
                share=percent(right),
                valid=self.valid_lens,
                keys=NUM_TOKENS,
            )
            states.append(state)
        split = tr("The weights were trained with {heads}.", heads=many(self.num_heads)) if self.split_into else ""
        every = listed(
            tr("{heads} {share}", heads=heads, share=percent(seeds[0].item()))
            for heads, seeds in accuracy_by_seed().items()
        )
        bars = tr("By number of heads: {shares}.", shares=every) if self.data["ranges"] else ""
        if opening:
            return canvas, sentences([*states, bars]), sentences(states)
        worth = [self._worth(tr("head {head}", head=head), own, head) for head, own in enumerate(self.jobs())]
        means = tr("Mean weights, and accuracy lost without the head: {heads}.", heads=listed(worth, "; "))
        shares = [
            self._worth(" + ".join(map(str, own)), tr(NAMES[message]), *own)
            for message, own in zip(ORDER, self.shares, strict=False)
            if len(own) > 1
        ]
        both = tr("Accuracy lost without a neighbour's heads: {heads}.", heads=listed(shares, "; ")) if shares else ""
        return canvas, sentences([*states, split, bars, means, both]), sentences([*states, both])

    def _worth(self, name: str, job: str, *heads: int) -> str:
        """What these heads do, and the accuracy that is lost without them, too."""
        is_off = {*heads} <= {*self.off}
        lost = tr("off") if is_off else percent(self.accuracy() - self.accuracy(*heads))
        return tr("{heads} {job}, {lost}", heads=name, job=job, lost=lost)

    def _colour(self, head: int) -> str:
        """The colour of a head, which is its neighbour's if every head attends to one."""
        is_by_neighbour = sum(map(len, self.shares)) == self.heads
        return f"ring-{[head in own for own in self.shares].index(True) if is_by_neighbour else head % 4}"

    def _draw_ring(self, canvas: Canvas, left: float, model: NeighbourModel, gates: Tensor) -> None:
        weights, answers = self._look(model, gates)
        row, chords, heads = self._row(), weights * gates[:, None, None], len(gates)

        def place(token: float, far: float = 1.0) -> tuple[float, float]:
            angle = 2 * math.pi * token / NUM_TOKENS - math.pi / 2
            return left + SIDE * (0.5 + 0.4 * far * math.cos(angle)), SIDE * (0.5 + 0.4 * far * math.sin(angle))

        for weight, head, query, key in sorted(
            (chords[at].item(), *at) for at in map(tuple, (chords > FAINT).nonzero().tolist()) if at[1] != at[2]
        ):
            around = (key - query + 6) % NUM_TOKENS - 6
            aside = 0.09 * (head - (heads - 1) / 2) / max(1, heads / 4)
            ends = place(query), place(query + around / 2, 0.8 / math.sqrt(abs(around)) + aside), place(key)
            curve = [
                tuple((1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c for a, b, c in zip(*ends, strict=True))
                for t in (step / 16 for step in range(17))
            ]
            canvas.line(curve, colour=self._colour(head), thickness=4 * weight)
        for token, letter in enumerate(self.letters):
            (x, y), is_valid = place(token), token < self.valid_lens
            canvas.box(x - 12, y - 12, 24, 24, fill="paper" if is_valid else "card", line="edge", radius=12)
            canvas.text(x, y, letter, size=13, anchor="mm", colour="text" if is_valid else "soft")
            for slot, message in enumerate(ORDER):
                x, y = place(token + 0.19 * (slot - 1.5), 1.2)
                is_right = answers[token, message] == row[(token - SHIFTS[message]) % NUM_TOKENS]
                fill, line = ("text", "text") if is_right else ("paper", "wrong")
                canvas.box(x - 2.5, y - 2.5, 5, 5, fill=fill, line=line, radius=2.5)


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
