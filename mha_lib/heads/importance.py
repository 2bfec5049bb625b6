"""How important heads are, by layer, with the number of each example."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mha_lib.heads.found_layers import text_table


class Importance(dict[str, Tensor]):
    """Hold each head's importance by layer, (num_heads,), float64 on the CPU; higher means more important.

    Attributes:
        each: by layer (num_heads, n), the number of each of n examples; of each batch if the loss is a mean.
        weights: by layer (n,), how much each of them counts.
    """

    def __init__(self, each: Mapping[str, Tensor], weights: Mapping[str, Tensor]):
        super().__init__({name: rows @ weights[name] / weights[name].sum() for name, rows in each.items()})
        self.each, self.weights = dict(each), dict(weights)

    def __repr__(self) -> str:
        rows: list[tuple[str, ...]] = [("layer", "head", "importance", "95 % interval over examples")]
        for name, values in self.items():
            ends = bootstrap(self.each[name], self.weights[name]).tolist() if len(self.weights[name]) > 1 else []
            for head, value in enumerate(values.tolist()):
                span = "{:.4g} to {:.4g}".format(*ends[head]) if ends else "–"
                rows.append((name or "the model itself", str(head), f"{value:.4g}", span))
        return "\n".join(text_table(rows))

    @property
    def table(self) -> Tensor:
        """All of it as (num_layers, num_heads), where layers have equally many heads."""
        return torch.stack([*self.values()])

    def intervals(self, level: float = 0.95, draws: int = 1000, seed: int = 0) -> dict[str, Tensor]:
        """Return the ends of each head's interval by bootstrap over examples, (num_heads, 2), by layer.

        Raises:
            ValueError: there are fewer than two examples, or batches where the loss is their mean.

        Source: Efron 1979, "Bootstrap Methods: Another Look at the Jackknife"; the percentile interval.
        """
        return {name: bootstrap(rows, self.weights[name], level, draws, seed) for name, rows in self.each.items()}


def bootstrap(rows: Tensor, weights: Tensor, level: float = 0.95, draws: int = 1000, seed: int = 0) -> Tensor:
    """Return the ends of an interval for the weighted mean of each row, (m, 2), of examples drawn again: (m, n).

    Raises:
        ValueError: ``n`` is below 2: there is nothing to draw.
    """
    if (number := len(weights)) < 2:
        raise ValueError(
            "an interval needs two examples or more: let the loss give a number for each example, or give more batches"
        )
    drawn = torch.randint(number, (draws, number), generator=torch.Generator().manual_seed(seed))
    counts = torch.zeros(draws, number, dtype=torch.float64)
    counts.scatter_add_(1, drawn, torch.ones_like(counts))
    counts *= weights
    means = rows @ counts.T / counts.sum(dim=1)  # (m, draws)
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    return means.quantile(ends, dim=1).T


def joined(parts: Sequence[tuple[Mapping[str, Tensor], Mapping[str, Tensor]]]) -> Importance:
    """Put what batches gave, by layer (num_heads, n) and (n,), one behind the other."""
    each, weights = (
        {name: torch.cat([part[which][name] for part in parts], dim=-1) for name in parts[0][which]} for which in (0, 1)
    )
    return Importance(each, weights)
