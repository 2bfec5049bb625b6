"""Results of long runs, which ship with the library: over thirty small models, and over texts of a language model."""

import json
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from mha_course.heads.controls import OF_EACH, SIGNED
from mha_course.models.shipped import package_data

__all__ = ["LanguageModelResults", "SmallModelResults"]

COMMANDS = {
    "heads": "make research-measures",
    "pruning_speed": "make bench-full",
    "births": "make research-births",
    "packing": "make research-packing",
    "head_writes": "make research-head-writes",
    "places": "make research-places",
    "sinks": "make research-sinks",
    "real_heads": "make research-real",
    "next_word": "make research-next-word",
    "fresh_texts": "make research-fresh-texts",
    "streaming": "make research-streaming",
    "repair": "make research-repair",
    "writing_speed": "make bench-writing",
}
BLOCK_MEANS = "the layers alone"  # every head counts as the mean of its block


def load_results(name: str) -> dict | list:
    """Load the stored results of the experiment ``name``, such as "heads" or "sinks", from the package's JSON files.

    >>> len(load_results("heads")["lookups"])
    30

    Args:
        name: "heads", what was found over thirty seeds: for "lookups" and "dates" the results of ``compare`` in
            ``research/league.py`` (with training after cuts for the first eight), for "planted" those of
            ``planted_controls`` there, for "company" those of ``research/relations.py`` on the look-ups, for
            "controls, …" those of ``research/signs.py``; ``SmallModelResults`` reads them.
            "pruning_speed": for each cut of a layer its shape, the number of heads kept, and how many times faster it
            became (median and quartiles), with ideals.
            "births": for each of eight seeds how heads come into being in ``mha_course.models.induction``, with losses,
            scores of the heads, and losses without a head. "head_writes": what the heads of layer 1 of that model write
            with six seeds, and how far one layer comes, as ``research/head_writes.py`` says.
            "packing": for each of ``RUNS`` of ``research/packing.py``, neighbours and mask of texts in one row, what
            ``measure`` there gives with five seeds.
            "places": for each of ``RUNS`` of ``research/places.py`` what five seeds give, by the names of its
            ``COLUMNS``, and the same for a guess. "real_heads": what was
            measured on the language model SmolLM2, part by part, as the functions of ``research/real_heads.py`` say.
            "next_word": what that model says next on texts that nobody chose, with heads cut, as
            ``research/next_word.py`` says. "fresh_texts": claims about it on texts that no measure saw, part by part,
            as ``research/fresh_texts.py`` says. "sinks": how much weight that model puts on the first position
            behind each of the "first tokens", and on "copies" of one word, and what "windows" cost, as
            ``research/sinks.py`` says. "streaming": what that model loses where heads attend to few tokens, by the
            names of ``PARTS`` in ``research/streaming.py``. "repair": losses before and after further training without
            heads, by the names of ``NAMES`` in ``research/repair.py``. "writing_speed": how fast such plans write one
            token, by the names of ``PLANS`` in ``benchmarks/writing.py``.

    Raises:
        ValueError: no such results are kept; the message lists those that are.
        FileNotFoundError: this copy of the library lacks them; the message names the command that makes them.
    """
    if name not in COMMANDS:
        raise ValueError(f"name must be one of {', '.join(COMMANDS)}, got {name!r}")
    return json.loads(package_data(f"heads/results/{name}.json", COMMANDS[name]))


class SmallModelResults:
    """Read stored results of head pruning in thirty small models of ``task``, as tensors with one entry for each model.

    >>> SmallModelResults("lookups").column("greedy").shape
    torch.Size([30])

    Args:
        task: "lookups" or "dates".
    """

    def __init__(self, task: str):
        results = cast(dict, load_results("heads"))
        self.compared, self.controlled = results[task], results[f"controls, {task}"]
        self.orders = [*self.compared[0]["orders"], BLOCK_MEANS]

    def column(self, order: str, key: str = "area", form: str | None = None) -> Tensor:
        """One number of each model, such as its ``area``, how many heads are ``num_prunable``, or ``shaped_area``.

        Args:
            form: with its sign or without; left out, as ``research/league.py`` has it: the gate gradient by the
                absolute value of each example, all else with its sign.
        """
        of_each = zip(self.compared, self.controlled, strict=True)
        return torch.tensor([self._row(compared, controlled, order, form)[key] for compared, controlled in of_each])

    def forms(self, measure: str) -> list[str]:
        """Return the forms that a measure with a sign is kept in."""
        return list(self.controlled[0]["forms"][measure])

    @staticmethod
    def _row(compared: dict, controlled: dict, order: str, form: str | None) -> dict:
        if order not in controlled["forms"]:
            return compared["orders"].get(order, {}) | controlled["orders"].get(order, {})
        usual = OF_EACH if order == "gate gradient" else SIGNED
        row = controlled["forms"][order][form or usual]
        return row if form else compared["orders"][order] | row


class LanguageModelResults:
    """Read stored losses of the language model SmolLM2 on sixteen texts with heads removed in several orders."""

    def __init__(self):
        self.real = cast(dict, load_results("real_heads"))
        self.whole = torch.tensor(self.real["of all"]["all"])
        parts = "chance", "chance, gate gradient", "chance, leave one out"
        self.chance = {kind: draws for part in parts for kind, draws in self.real[part].items()}

    def lost(self, order: str, cut: int) -> Tensor:
        """On each text, with so many heads cut in this order: (16,)."""
        return torch.tensor(self.real["cuts"][order][str(cut)]) - self.whole

    def drawn(self, kind: str | Sequence[Mapping[str, list]], cut: int) -> Tensor:
        """Return the mean over texts of each draw of a kind of chance, or of any other draws: (20,)."""
        draws = self.chance[kind] if isinstance(kind, str) else kind
        return torch.tensor([draw[str(cut)] for draw in draws]).mean(dim=1) - self.whole.mean()

    def better(self, kind: str, order: str, cut: int) -> int:
        """Return how many draws of a kind of chance lose less than an order."""
        return int((self.drawn(kind, cut) < self.lost(order, cut).mean()).sum())
