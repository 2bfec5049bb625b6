"""What the report and 07 say of streaming heads is in the kept results; opposite ones break it."""

import json

import pytest
import torch
from notebook_tools import ROOT, text_of, with_numbers

from mha_course.heads import load_results, mean_and_ci95

TEXT = text_of("07_head_importance", "report_what_survives")
WRITING = json.loads((ROOT / "benchmarks" / "results" / "writing.json").read_text(encoding="utf-8"))


class Results:
    """Kept results, and times, as means."""

    def __init__(self, found: dict, writing: dict, repair: dict, speed: dict):
        self.found, self.writing, self.repair, self.speed = found, writing, repair, speed

    def interval(self, part: str, kind: str, other: str | None = None) -> tuple:
        less = self.rise(other, kind) if other else 0
        return rounded(mean_and_ci95(self.rise(part, kind) - less))

    def trained(self, choice: str, when: str) -> tuple:
        """On copying the measure's mean rise, its draws' lowest and highest, and the interval of the difference."""
        rows = {name: torch.tensor(part[when]["copying"]).double() for name, part in self.repair.items()}
        own = rows[f"{choice}, measure"] - rows["whole"]
        draws = torch.stack([rows[f"{choice}, draw {number}"] - rows["whole"] for number in range(1, 6)])
        ends = rounded(end.item() for end in draws.mean(dim=1).aminmax())
        return round(own.mean().item(), 2), ends, rounded(mean_and_ci95(own - draws.mean(dim=0)))

    def rise(self, part: str, kind: str) -> torch.Tensor:
        return torch.tensor(self.found[part][kind]["plan"]).double()

    def draws(self, part: str, kind: str) -> torch.Tensor:
        return torch.tensor(self.found[part][kind]["draws"]).double()

    def lead(self, part: str, kind: str) -> tuple:
        return rounded(mean_and_ci95(self.rise(part, kind) - self.draws(part, kind).mean(dim=0)))

    def less(self, kind: str) -> tuple:
        """What 18 groups lose more where they stream than where they give their means."""
        return rounded(mean_and_ci95(self.rise("18 groups", kind) - self.rise("18 groups, means", kind)))

    def mean(self, part: str, kind: str) -> float:
        return round(self.rise(part, kind).mean().item(), 2)

    def faster(self, cell: str, kind: str) -> tuple:
        return rounded(self.writing[cell][kind]["ratio"])


def rounded(numbers) -> tuple:
    return tuple(round(number, 2) for number in numbers)


LONG, SHORT = "write after 8191, batch 1", "write after 64, batch 1"
CLAIMS = {
    "every layer-matched draw loses at least 1.46 nats": lambda r: (
        round(min(r.draws(part, "copying").mean(dim=1).min().item() for part in ("base", "seed 2")), 2) == 1.46
    ),
    "the measure loses 0.21 with one calibration and 0.45 with another": lambda r: (
        (r.mean("base", "copying"), r.mean("seed 2", "copying")) == (0.21, 0.45)
    ),
    "the first two groups of 90 are (18, 2) and (17, 1)": lambda r: all(
        first[:2] == [[18, 2], [17, 1]] for first in r.found["induction groups"]["first"]
    ),
    "with prose alone, copying loses 0.15 nats more": lambda r: (
        rounded(mean_and_ci95(r.rise("prose alone", "copying") - r.rise("base", "copying"))) == (0.15, 0.11, 0.19)
    ),
    "It is −0.07 (−0.18 to 0.04)": lambda r: r.lead("base", "prose") == (-0.07, -0.18, 0.04),
    "on code there is one in one calibration of two": lambda r: (
        r.lead("base", "code")[2] < 0 < r.lead("seed 2", "code")[2] < 0.1
    ),
    "lose 0.26 nats less on prose (0.09 to 0.44) than 18 that give their means": lambda r: (
        r.less("prose") == (-0.26, -0.44, -0.09)
    ),
    "on copying 0.21 less (0.16 to 0.27)": lambda r: r.less("copying") == (-0.21, -0.27, -0.16),
    "1.37 times as fast (1.30 to 1.93)": lambda r: r.faster(LONG, "two thirds stream") == (1.37, 1.3, 1.93),
    "the bytes that are read allow 1.38": lambda r: (
        round(r.writing[LONG]["whole"]["bytes"] / r.writing[LONG]["two thirds stream"]["bytes"], 2) == 1.38
    ),
    "After 64 tokens it is not faster: 0.90 (0.81 to 1.00)": lambda r: (
        r.faster(SHORT, "two thirds stream") == (0.9, 0.81, 1.0)
    ),
    "prose loses 0.55 nats, copying 3.54 and code 0.79": lambda r: (
        [r.mean("all", kind) for kind in ("prose", "copying", "code")] == [0.55, 3.54, 0.79]
    ),
    "cost 0.17 more on copying (0.12 to 0.22)": lambda r: r.interval("layers", "copying", "base") == (0.17, 0.12, 0.22),
    "2.09 and 3.64 nats on copying": lambda r: (
        [r.mean(part, "copying") for part in ("towards means", "weight outside")] == [2.09, 3.64]
    ),
    "with code alone, 1.42 more": lambda r: r.interval("code alone", "copying", "base")[0] == 1.42,
    "0.80 (0.62 to 0.97) | 0.45 (0.34 to 0.56)": lambda r: (
        [r.interval("18 groups, zeros", kind) for kind in ("prose", "copying")]
        == [(0.8, 0.62, 0.97), (0.45, 0.34, 0.56)]
    ),
    "1.18 times as fast (1.06 to 1.31), where the bytes allow 1.21": lambda r: (
        rounded(r.speed["base"]["ratio"]) == (1.18, 1.06, 1.31)
        and round(r.speed["whole"]["bytes"] / r.speed["base"]["bytes"], 2) == 1.21
    ),
    "falls from 0.10 to 0.01 nats for the measure, and from 1.19 to 2.02 to 0.11 to 0.81 for the draws": lambda r: (
        [r.trained("streaming", when)[:2] for when in ("before", "after")]
        == [(0.1, (1.19, 2.02)), (0.01, (0.11, 0.81))]
    ),
    "from 1.56 (1.27 to 1.85) to 0.35 nats (0.18 to 0.52)": lambda r: (
        [r.trained("streaming", when)[2] for when in ("before", "after")]
        == [(-1.56, -1.85, -1.27), (-0.35, -0.52, -0.18)]
    ),
    "Groups chosen on Python code cost 0.14 on prose and 1.63 on copying": lambda r: (
        [r.mean("code alone", kind) for kind in ("prose", "copying")] == [0.14, 1.63]
    ),
    "the same are 1.61 (1.45 to 2.23) and 1.15 (0.90 to 1.22)": lambda r: (
        [r.faster(cell, "two thirds pruned") for cell in (LONG, SHORT)] == [(1.61, 1.45, 2.23), (1.15, 0.9, 1.22)]
    ),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_report_says_what_was_measured(claim):
    assert claim in TEXT
    holds = CLAIMS[claim]
    kept = [load_results("streaming"), WRITING, load_results("repair"), load_results("writing_speed")]
    assert holds(Results(*kept))
    others = (with_numbers(each, lambda number: 3 - number * abs(number)) for each in kept)
    assert not holds(Results(*others))
