"""How far a mean can be trusted: intervals from a handful of seeds or texts."""

import torch
from torch import Tensor

NORMAL = 1.959964  # 97.5 % of a normal distribution lie below


def mean_and_ci95(values: Tensor) -> tuple[float, float, float]:
    """Return the mean of a sample and the ends of its 95 % confidence interval (Student's t).

    >>> ["{:.2f}".format(end) for end in mean_and_ci95(torch.tensor([0.1, 0.2, 0.3, 0.4]))]
    ['0.25', '0.05', '0.45']

    Args:
        values: (n,), one number for each seed or text, at least four.

    Raises:
        ValueError: there are fewer.
    """
    values = torch.as_tensor(values, dtype=torch.float64)
    if values.dim() != 1 or len(values) < 4:
        raise ValueError(f"values must be four numbers or more in one row, got shape {tuple(values.shape)}")
    mean = values.mean().item()
    half = quantile(len(values) - 1) * values.std().item() / len(values) ** 0.5
    return mean, mean - half, mean + half


def quantile(freedom: int) -> float:
    """Approximate the 97.5 % quantile of Student's t distribution with ``freedom`` degrees of freedom (3 or more).

    The error is below 1 %.

    Source: Abramowitz & Stegun 1964, "Handbook of Mathematical Functions", 26.7.5.
    """
    z = NORMAL
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def num_prunable(curve: Tensor, points: float = 1.0) -> int:
    """Return how many heads can be pruned along ``curve`` before accuracy drops more than ``points`` percentage points.

    >>> num_prunable(torch.tensor([0.2, 0.9, 0.995, 1.0]))
    1

    ``curve`` is (N + 1,), the accuracy with 0, 1, …, N heads kept.
    """
    enough = (curve >= curve[-1] - points / 100 - 1e-9).flip(0).long()  # with none, one, two heads cut …
    return int(enough.cumprod(dim=0).sum()) - 1
