"""Held, not held or undecided: a claim against its test rows."""

from dataclasses import dataclass, field

from torch import Tensor

from mha_course.capstone.claim import Claim
from mha_course.heads import mean_and_ci95
from mha_course.heads.intervals import quantile

Interval = tuple[float, float, float]  # a mean and the ends of its 95 % interval
NEXT = {  # by the answers about promise and baseline
    ("not held", "held"): "The heads beat a draw, but cost more than you promised. Search for a better plan on the "
    "calibration rows, or claim fewer heads; then draw new rows to test on.",
    ("not held", "not held"): "A draw does better. Do the heads replace each other? Remove them one by one and measure "
    "again after each; a new claim needs new test rows.",
    (
        "not held",
        "undecided",
    ): "The heads cost more than you promised. Measure again after each removal, or claim fewer "
    "heads; a new claim needs new test rows.",
    ("held", "not held"): "The loss rises little, but a draw does better: the choice by your measure adds nothing.",
    (
        "held",
        "undecided",
    ): "The loss rises little, but that may be true of any heads of these layers. Claim more heads, "
    "or test on more rows and with more draws.",
    ("undecided", "not held"): "A draw does better. Whether your number holds needs more rows.",
    ("undecided", "held"): "The interval has your promise in it. Four times as many rows halve the interval.",
    ("undecided", "undecided"): "Both intervals are too wide. Four times as many rows halve them.",
    ("held", "held"): "Ask how far it goes: another seed of the training, rows of another kind, one head more.",
}


@dataclass(frozen=True)
class Verdict:
    """Hold what test rows say of a claim.

    Attributes:
        rise: how much the loss rises without the heads, with an interval over rows.
        ahead: how much more it rises without random heads of the same layers, paired by row; the interval is over rows
            and draws.
        share: the share of draws that cost more.
        promise, baseline: what each of the two says: "held", "not held" or "undecided".
        draws: the mean rise of each draw.
    """

    rise: Interval
    ahead: Interval
    share: float
    promise: str
    baseline: str
    draws: list[float] = field(repr=False)

    @property
    def outcome(self) -> str:
        """What both say together: "held" where both do, "not held" where one does not, else "undecided"."""
        both = {self.promise, self.baseline}
        return next(one for one in ("not held", "undecided", "held") if one in both)

    @property
    def next_step(self) -> str:
        """What to do next."""
        return NEXT[self.promise, self.baseline]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.outcome}",
                f"promise: {self.promise}. The loss rises by {told(self.rise)} nats",
                f"baseline: {self.baseline}. Draws cost {told(self.ahead)} more; {self.share:.0%} of them cost more",
                self.next_step,
            ]
        )


def verdict(claim: Claim, rise: Tensor, draws: Tensor) -> Verdict:
    """Judge a claim by the rises of its plan and of fair draws, both on the same test rows.

    The promise is held where the whole interval of the mean rise is at or below it, not held where it is above, else
    undecided; the baseline is held where the interval of draws minus plan is above 0, not held where it is below.

    Args:
        rise: (n,), by how much the loss of each row rises without the plan's heads.
        draws: (m, n), the same for m fair draws, at least four.

    Raises:
        ValueError: the rows of ``draws`` and ``rise`` are not as many.
    """
    if draws.dim() != 2 or draws.shape[1:] != rise.shape:
        raise ValueError(f"draws must have shape (m, {len(rise)}), as many rows as rise, got {tuple(draws.shape)}")
    own, ahead = mean_and_ci95(rise), _over_rows_and_draws(draws.double() - rise.double())
    means = draws.double().mean(dim=1)
    share = (means > own[0] + 1e-6).double().mean().item()  # rounding is no difference
    promise = "held" if own[2] <= claim.promise else "not held" if own[1] > claim.promise else "undecided"
    baseline = "held" if ahead[1] > 0 else "not held" if ahead[2] < 0 else "undecided"
    return Verdict(own, ahead, share, promise, baseline, means.tolist())


def told(interval: Interval) -> str:
    """Return a mean with its interval as text.

    >>> told((0.1, 0.05, 0.15))
    '0.100 (0.050 to 0.150)'
    """
    return "{:.3f} ({:.3f} to {:.3f})".format(*(one + 0.0 if abs(one) >= 5e-4 else 0.0 for one in interval))


def _over_rows_and_draws(more: Tensor) -> Interval:
    """Mean of (m, n) with an interval whose variance is that of the mean over n rows plus that over m draws."""
    m, n = more.shape
    mean = more.mean().item()
    variance = more.mean(dim=0).var().item() / n + more.mean(dim=1).var().item() / m
    half = quantile(min(m, n) - 1) * variance**0.5
    return mean, mean - half, mean + half
