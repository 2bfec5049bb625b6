"""Held, not held or undecided: a claim against its test rows."""

from dataclasses import dataclass, field

from torch import Tensor

from mha_course.capstone.claim import Claim
from mha_course.heads import mean_and_ci95
from mha_course.heads.intervals import quantile

Interval = tuple[float, float, float]  # a mean and the ends of its 95 % interval
NEXT = {  # by what decides
    "draws are better": "A draw does better. Claim fewer heads, or choose them by greedy if you did not: it measures "
    "again after each removal. A new claim needs new test rows.",
    "costs too much": "They cost more than you promised. Claim fewer heads, or choose them by greedy if you did not. A "
    "new claim needs new test rows.",
    "rows are few": "Your promise lies in the interval. Four times as many rows make it half as wide.",
    "draws are like it": "The loss rises little, but so it may without other heads of these layers. Claim more heads, "
    "or test with more rows and draws.",
    "held": "Ask how far it goes: rows of another kind, another training, one head more.",
}
KEPT = "every draw keeps your promise, so it tests nothing"


@dataclass(frozen=True)
class Verdict:
    """Hold what test rows say of a claim.

    Attributes:
        rise: how much the loss rises without the heads, with an interval over rows.
        ahead: how much more it rises without random heads of the same layers, paired by row; the interval is over rows
            and draws.
        share: the share of draws that cost more.
        promise, baseline: what each of the two says: "held", "not held" or "undecided".
        breaking: how many draws cost more than the promise; where none does, the promise tests nothing.
        draws: the mean rise of each draw.
    """

    rise: Interval
    ahead: Interval
    share: float
    promise: str
    baseline: str
    breaking: int
    draws: list[float] = field(repr=False)

    @property
    def outcome(self) -> str:
        """What both say together: "held" where both do, "not held" where one does not, else "undecided"."""
        both = {self.promise, self.baseline}
        return next(one for one in ("not held", "undecided", "held") if one in both)

    @property
    def next_step(self) -> str:
        """What to do next."""
        if self.baseline == "not held":
            return NEXT["draws are better"]
        if self.promise == "not held":
            return NEXT["costs too much"]
        if self.promise == "undecided":
            return NEXT["rows are few"]
        return NEXT["draws are like it" if self.baseline == "undecided" else "held"]

    def __str__(self) -> str:
        broken = f"{self.breaking} of {len(self.draws)} draws break your promise" if self.breaking else KEPT
        return "\n".join(
            [
                f"{self.outcome}",
                f"promise: {self.promise}. The loss rises by {told(self.rise)} nats",
                f"baseline: {self.baseline}. Draws minus plan: {told(self.ahead)}; {self.share:.0%} of them cost more",
                broken,
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
    breaking = int((means > claim.promise).sum())
    return Verdict(own, ahead, share, promise, baseline, breaking, means.tolist())


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
