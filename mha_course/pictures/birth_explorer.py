"""A model at the steps of its training, live: change what it reads, cut its heads, see what it can still predict."""

import itertools
import math
import string
from collections.abc import Iterable
from typing import Any

import torch
import traitlets
from torch import Tensor
from torch.nn import functional as F

from mha_course.models import induction
from mha_course.pictures.heat_maps import draw_maps, room_for
from mha_course.pictures.live import Heads, LivePicture, Place, choice, pack, refuse
from mha_course.pictures.picture import Canvas

MOST_STEPS, ALPHABET = 20, string.ascii_letters + string.digits + "+-"  # a step travels as 25 KB
ROWS = 64  # that the page has for those who want another one


class BirthExplorer(LivePicture):
    """Show a small Transformer at several training steps in a widget: attention maps, predictions, and head switches.

    For learners who want to cut heads before and after the loss falls, on rows of their own. Browser and still picture
    compute with parameters rounded to float16.

    Args:
        run: what ``train_on_repeats`` kept; 20 of its steps are shown (all, if it kept fewer), evenly chosen, the
            first and the last among them.
        letters: the first value of the attribute; left out, a row that the training did not see.
        first: first values of the other attributes.

    Attributes:
        step: which of ``steps`` is shown, from 0; at first the last one.
        letters: the row, 33 of the model's 64 letters. The model reads all but the last, which is there to be foretold.
        query: the letter that looks, from 0, and that a key replaces.
        layer, head: the head whose weights colour the row.
        cut: the heads that are switched off, each as (layer, head).

    Raises:
        ValueError: ``run`` has ``keys_from_before``.
    """

    module = "birth_explorer"

    step, query = Place(lambda self: len(self.steps)), Place(lambda self: induction.NUM_TOKENS + 1)
    layer, head = Place(lambda self: self.shape[0]), Place(lambda self: self.shape[1])
    letters, cut = choice(traitlets.Any()), Heads()

    def __init__(self, run: induction.BirthRun, *, letters: str | None = None, **first: Any):
        if run.sizes["keys_from_before"]:
            raise ValueError("run must be of a model without keys_from_before, got keys_from_before=True")
        self.run, last = run, len(run.steps) - 1
        self.shape = run.sizes["num_layers"], run.sizes["num_heads"]
        shown = sorted({round(i) for i in torch.linspace(0, last, MOST_STEPS).tolist()})
        self.steps, states = [run.steps[i] for i in shown], [run.states[i] for i in shown]
        parameters = {name: torch.stack([state[name] for state in states]) for name in states[0]}  # (steps, …) each
        rows = ["".join(ALPHABET[i] for i in own) for own in induction.held_out_repeats().letters[:ROWS]]
        data = pack(parameters, halves=True) | {
            **{"steps": self.steps, "alphabet": list(ALPHABET), "base": induction.ROTATION_BASE},
            **{"tokens": induction.NUM_TOKENS, "rows": rows},
            **{"layers": self.shape[0], "heads": self.shape[1]},
        }
        row = rows[0] if letters is None else letters
        query = next(iter(foretold(row)), 0)
        first = {"step": len(shown) - 1, "letters": row, "query": query, "cut": []} | first
        super().__init__("A model that learns to predict a repeated piece", data, **first)

    @traitlets.validate("letters")
    def _validate_letters(self, proposal):
        row, count = proposal["value"], induction.NUM_TOKENS + 1
        if not isinstance(row, str) or len(row) != count or not set(row) <= set(ALPHABET):
            refuse("letters", f"{count} letters of {ALPHABET}", row)
        return row

    @torch.no_grad()
    def read(self, without: Iterable[Any] = ()) -> tuple[Tensor, str, Tensor]:
        """What torch makes of the row at this step: losses (n,), n guessed letters, weights (layers, heads, n, n)."""
        model = self.run.model_at(self.steps[self.step])
        model.load_state_dict({name: value.half() for name, value in model.state_dict().items()})
        ids = torch.tensor([ALPHABET.index(letter) for letter in self.letters])
        logits = model(ids[None, :-1], model.all_but(*without))[0]  # (1, n, NUM_LETTERS) -> (n, NUM_LETTERS)
        guesses = "".join(ALPHABET[i] for i in logits.argmax(dim=-1))
        return F.cross_entropy(logits, ids[1:], reduction="none"), guesses, model.attention_weights[:, 0]

    def draw(self) -> tuple[Canvas, str, str]:
        (losses, guesses, weights), (whole, _, _), row = self.read(self.cut), self.read(), self.letters
        heads = [f"layer {layer}, head {head}" for layer, head in itertools.product(*map(range, self.shape))]
        gone = [f"layer {layer}, head {head}" for layer, head in self.cut]
        state = f"Step {self.steps[self.step]}, {'without ' + ' and '.join(gone) if gone else 'all heads are on'}"
        result, places = "nothing to predict, no piece of this row is repeated", foretold(row)
        if places:
            right, before = sum(guesses[i - 1] == row[i] for i in places), [i - 1 for i in places]
            result = f"{losses[before].mean():.2f} nats on the repeat, {right} of {len(places)} letters right"
            result += f" (with all heads {whole[before].mean():.2f} nats, a guess {math.log(len(ALPHABET)):.2f})"
        titles = [f"{name}, cut" if name in gone else name for name in heads]
        canvas = draw_maps(list(weights.flatten(0, 1)), titles, 4, room_for(4))
        alt = f"{state}: {result}. Row {row}, guessed after each letter {guesses}."
        return canvas, alt, f"{state}: {result}."


def foretold(row: str) -> list[int]:
    """Return the positions i where row[i] equals the letter that followed the previous occurrence of row[i − 1]."""
    earlier = {i: row.rfind(row[i - 1], 0, i - 1) for i in range(1, len(row))}
    return [i for i, place in earlier.items() if place >= 0 and row[place + 1] == row[i]]
