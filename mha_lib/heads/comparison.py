"""What a removal costs, compared with random removals of the same shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mha_lib.heads.found_layers import text_table
from mha_lib.heads.importance import bootstrap
from mha_lib.heads.plans import PlanTable


@dataclass(frozen=True, repr=False)
class Comparison:
    """Hold the loss after several removals, and after as many random ones of the same heads in each layer.

    It prints as a table; ``figure`` draws it. Intervals are by bootstrap over examples.

    Attributes:
        plans: for each removal, the heads that go.
        whole: (n,), the loss of n examples with all heads.
        losses: (number of removals, n).
        random: (number of removals, draws, n).
        weights: (n,), how much each example counts.
    """

    plans: Sequence[PlanTable]
    whole: Tensor
    losses: Tensor
    random: Tensor
    weights: Tensor

    def rows(self) -> list[dict[str, Any]]:
        """Return for each removal its loss, that of the draws, and their difference by example, with intervals."""
        rows = []
        for plan, loss, random in zip(self.plans, self.losses, self.random, strict=True):
            drawn = self._mean(random)  # (draws,)
            both = torch.stack([loss, random.mean(dim=0) - loss])
            of_loss, difference = self._mean(both).tolist()
            ends = bootstrap(both, self.weights).tolist() if len(self.weights) > 1 else [[torch.nan] * 2] * 2
            row = {"removed": plan.num_heads, "loss": of_loss, "loss low": ends[0][0], "loss high": ends[0][1]}
            row |= {"random": drawn.mean().item(), "random low": drawn.min().item(), "random high": drawn.max().item()}
            row |= {"gain": difference, "gain low": ends[1][0], "gain high": ends[1][1]}
            rows.append(row | {"draws that cost more": (drawn > of_loss).double().mean().item()})
        return rows

    def __repr__(self) -> str:
        table: list[tuple[str, ...]] = [
            ("heads removed", "loss", "random heads", "random − ours", "draws that cost more")
        ]
        whole = self._mean(self.whole[None]).item()
        table.append(("0", f"{whole:.3f}", "", "", ""))
        for row in self.rows():
            spans = [
                f"{row[name]:.3f}" + ("" if row[f"{name} low"] != row[f"{name} low"] else
                f" ({row[f'{name} low']:.3f} to {row[f'{name} high']:.3f})")
                for name in ("loss", "random", "gain")
            ]  # fmt: skip
            table.append((str(row["removed"]), *spans, f"{row['draws that cost more']:.0%}"))
        note = "In brackets: 95 % intervals over examples; of random heads, the least and the largest of "
        return "\n".join([*text_table(table), f"{note}{self.random.shape[1]} draws."])

    def figure(self):
        """Return a figure of matplotlib: the loss after each removal, and the mean and the span of the random ones."""
        from matplotlib.figure import Figure

        rows = self.rows()
        removed = [0, *(row["removed"] for row in rows)]
        whole = self._mean(self.whole[None]).item()
        figure = Figure(figsize=(5, 3.2), layout="constrained")
        axes = figure.add_subplot(xlabel="heads removed", ylabel="loss")
        low, high = ([whole, *(row[f"random {end}"] for row in rows)] for end in ("low", "high"))
        axes.fill_between(removed, low, high, alpha=0.3, color="tab:gray")
        label = f"random heads of the same layers,\nmean and span of {self.random.shape[1]} draws"
        mean = [whole, *(row["random"] for row in rows)]
        axes.plot(removed, mean, linestyle="--", label=label, color="tab:gray")
        axes.plot(removed, [whole, *(row["loss"] for row in rows)], marker="o", label="least important heads")
        axes.set_xticks(removed)
        axes.legend()
        return figure

    def _mean(self, rows: Tensor) -> Tensor:
        return rows @ self.weights / self.weights.sum()
