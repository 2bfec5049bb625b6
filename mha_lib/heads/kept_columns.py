"""Results of long runs as columns: over thirty small models, and over texts and draws of a language model."""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from mha_lib.heads.controls import OF_EACH, SIGNED
from mha_lib.heads.kept_results import load_results

BLOCK_MEANS = "the layers alone"  # every head counts as the mean of its block
PASSES: Mapping[str, str] = {  # what an order costs, in passes of the model over the examples, for N heads
    "leave one out, zero, loss": "N + 1 forward",
    "gate gradient": "1 forward, 1 backward",
    "leave one out, zero, loss, taken again": "N (N + 1) / 2 forward",
    "path gradient": "20 forward, 20 backward",
    "path gradient, taken again": "20 N forward, 20 N backward",
    "confidence": "1 forward",
    "output norm": "1 forward",
    "hard-concrete gates": "600 forward, 600 backward, of 32 examples",
    "Shapley, 50 orders": "50 N forward",
    "Shapley, exact": "2^N forward",
    "greedy": "N (N + 1) / 2 forward",
    "oracle": "2^N forward",
    BLOCK_MEANS: "2^N forward",
    "random": "none",
}


class SmallModelResults:
    """What was measured on thirty small models of a task, as columns over them, for notebooks and reports.

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
            form: with its sign or without; left out, as the league has it: the gate gradient by the absolute value of
                each example, all else with its sign.
        """
        of_each = zip(self.compared, self.controlled, strict=True)
        return torch.tensor([self._row(compared, controlled, order, form)[key] for compared, controlled in of_each])

    def forms(self, measure: str) -> list[str]:
        """The forms that a measure with a sign is kept in."""
        return list(self.controlled[0]["forms"][measure])

    @staticmethod
    def _row(compared: dict, controlled: dict, order: str, form: str | None) -> dict:
        if order not in controlled["forms"]:
            return compared["orders"].get(order, {}) | controlled["orders"].get(order, {})
        usual = OF_EACH if order == "gate gradient" else SIGNED
        row = controlled["forms"][order][form or usual]
        return row if form else compared["orders"][order] | row


class LanguageModelResults:
    """What SmolLM2 lost on sixteen texts where heads were cut, for notebooks and reports; in nats."""

    def __init__(self):
        self.real = cast(dict, load_results("real_heads"))
        self.whole = torch.tensor(self.real["of all"]["all"])
        parts = "chance", "chance, gate gradient", "chance, leave one out"
        self.chance = {kind: draws for part in parts for kind, draws in self.real[part].items()}

    def lost(self, order: str, cut: int) -> Tensor:
        """On each text, with so many heads cut in this order: (16,)."""
        return torch.tensor(self.real["cuts"][order][str(cut)]) - self.whole

    def drawn(self, kind: str | Sequence[Mapping[str, list]], cut: int) -> Tensor:
        """The mean over texts of each draw of a kind of chance, or of any other draws: (20,)."""
        draws = self.chance[kind] if isinstance(kind, str) else kind
        return torch.tensor([draw[str(cut)] for draw in draws]).mean(dim=1) - self.whole.mean()

    def better(self, kind: str, order: str, cut: int) -> int:
        """How many draws of a kind of chance lose less than an order."""
        return int((self.drawn(kind, cut) < self.lost(order, cut).mean()).sum())
