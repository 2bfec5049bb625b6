"""What the report and 07 say of streaming heads is in the kept results."""

import json

import pytest
import torch
from notebook_tools import ROOT, rounded, text_of

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

    def trained(self, choice: str, when: str, kind: str = "copying") -> tuple:
        """The measure's mean rise, its draws' lowest and highest, and the interval of the difference."""
        rows = {name: torch.tensor(part[when][kind]).double() for name, part in self.repair.items()}
        own = rows[f"{choice}, measure"] - rows["whole"]
        draws = torch.stack([rows[f"{choice}, draw {number}"] - rows["whole"] for number in range(1, 6)])
        ends = rounded(end.item() for end in draws.mean(dim=1).aminmax())
        return round(own.mean().item(), 2), ends, rounded(mean_and_ci95(own - draws.mean(dim=0)))

    def draws_change(self, choice: str, kind: str) -> tuple:
        """How much more its draws' rise is after training than before."""
        rise = [
            torch.stack([
                torch.tensor(self.repair[f"{choice}, draw {number}"][when][kind]).double()
                - torch.tensor(self.repair["whole"][when][kind])
                for number in range(1, 6)
            ]).mean(dim=0)
            for when in ("before", "after")
        ]  # fmt: skip
        return rounded(mean_and_ci95(rise[1] - rise[0]))

    def ends(self, part: str, kind: str) -> tuple:
        """The lowest and the highest mean of a part's draws."""
        return rounded(end.item() for end in self.draws(part, kind).mean(dim=1).aminmax())

    def row(self, part: str) -> list:
        return [(self.interval(part, kind), self.ends(part, kind)) for kind in ("prose", "copying")]

    def allowed(self, cell: str, kind: str, what: str = "bytes") -> float:
        return round(self.writing[cell]["whole"][what] / self.writing[cell][kind][what], 2)

    def at_4096(self, plan: str) -> tuple:
        """How much faster a token is written, and what is left of the cache."""
        return rounded(self.speed[plan]["ratio"]), round(self.speed[plan]["cache"] / self.speed["whole"]["cache"], 2)

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


LONG, SHORT = "write after 8191, batch 1", "write after 64, batch 1"
MIDDLE, STREAMS = "write after 2048, batch {}", "two thirds stream"
CLAIMS = {
    "Two groups make up most of this gap: five draws that spare both cost 0.33 to 1.14": lambda r: (
        r.ends("circuit spared", "copying") == (0.33, 1.14)
    ),
    "it loses 0.21 nats with one calibration and 0.45 with another, and the draws lose 1.46 to 2.41 (five) and 1.91": (
        lambda r: (
            (r.mean("base", "copying"), r.mean("seed 2", "copying")) == (0.21, 0.45)
            and [r.ends(part, "copying") for part in ("base", "seed 2")] == [(1.46, 2.41), (1.91, 2.19)]
            and [len(r.draws(part, "copying")) for part in ("base", "seed 2")] == [5, 3]
        )
    ),
    "groups of 90 that contain the five heads of the first edition's circuit, (18, 2) and (17, 1)": lambda r: all(
        first[:2] == [[18, 2], [17, 1]] for first in r.found["induction groups"]["first"]
    ),
    "the one where it streams loses 1.23, and the others 0.03": lambda r: (
        rounded(sorted(r.draws("18 groups", "copying").mean(dim=1).tolist())) == (0.03, 0.03, 1.23)
    ),
    "lose 0.33 to 1.14, and on average 0.58 more than the choice (0.45 to 0.71)": lambda r: (
        r.ends("circuit spared", "copying") == (0.33, 1.14)
        and rounded(mean_and_ci95(r.draws("circuit spared", "copying").mean(dim=0) - r.rise("base", "copying")))
        == (0.58, 0.45, 0.71)
    ),
    "these two make up two thirds of the lead": lambda r: (
        abs(
            (r.draws("base", "copying") - r.draws("circuit spared", "copying")).mean()
            / (r.draws("base", "copying").mean() - r.rise("base", "copying").mean())
            - 2 / 3
        )
        < 0.01
    ),
    "0.144 on prose, and 0.217 with seed 2": lambda r: (
        [round(r.rise(part, "prose").mean().item(), 3) for part in ("base", "seed 2")] == [0.144, 0.217]
    ),
    "On prose alone it loses 0.36, between the two calibrations of the base": lambda r: (
        [r.mean(part, "copying") for part in ("base", "prose alone", "seed 2")] == [0.21, 0.36, 0.45]
    ),
    "It is −0.07 (−0.18 to 0.04)": lambda r: r.lead("base", "prose") == (-0.07, -0.18, 0.04),
    "on code there is one in one calibration of two": lambda r: (
        r.lead("base", "code")[2] < 0 < r.lead("seed 2", "code")[2] < 0.1
    ),
    "lose 0.26 nats less on prose (0.09 to 0.44) than 18 that give their means": lambda r: (
        r.less("prose") == (-0.26, -0.44, -0.09)
    ),
    "on copying 0.21 less (0.16 to 0.27)": lambda r: r.less("copying") == (-0.21, -0.27, -0.16),
    "| 8,191 | 1.37 (1.30 to 1.93) | 1.38 |": lambda r: (
        (r.faster(LONG, STREAMS), r.allowed(LONG, STREAMS)) == ((1.37, 1.3, 1.93), 1.38)
    ),
    "| 64 | 0.90 (0.81 to 1.00) | 1.00 |": lambda r: (
        (r.faster(SHORT, STREAMS), r.allowed(SHORT, STREAMS)) == ((0.9, 0.81, 1.0), 1)
    ),
    "| 2,048 | 0.99 (0.96 to 1.07) | 1.11 |": lambda r: (
        (r.faster(MIDDLE.format(1), STREAMS), r.allowed(MIDDLE.format(1), STREAMS)) == ((0.99, 0.96, 1.07), 1.11)
    ),
    "| 2,048, four texts at once | 1.24 (1.22 to 1.41) | 1.37 |": lambda r: (
        (r.faster(MIDDLE.format(4), STREAMS), r.allowed(MIDDLE.format(4), STREAMS)) == ((1.24, 1.22, 1.41), 1.37)
    ),
    "From 2,048 on 0.34 of the cache is left": lambda r: all(
        round(row[STREAMS]["cache"] / row["whole"]["cache"], 2) == 0.34
        for row in (r.writing[MIDDLE.format(1)], r.writing[LONG])
    ),
    "1.00 (1.00 to 1.01; multiplications allow 1.05)": lambda r: (
        (r.faster("read 512", STREAMS), r.allowed("read 512", STREAMS, "products")) == ((1, 1, 1.01), 1.05)
    ),
    "a bad choice of 60 groups loses more": lambda r: r.mean("weight outside", "copying") > r.mean("all", "copying"),
    "prose loses 0.55 nats, copying 3.54 and code 0.79": lambda r: (
        [r.mean("all", kind) for kind in ("prose", "copying", "code")] == [0.55, 3.54, 0.79]
    ),
    "cost 0.17 more on copying (0.12 to 0.22)": lambda r: r.interval("layers", "copying", "base") == (0.17, 0.12, 0.22),
    "gradients towards means lose 2.09 nats, about as much as the base's draws, and attention weights": lambda r: (
        r.mean("towards means", "copying") == 2.09 and 1.46 < r.mean("towards means", "copying") < 2.41
    ),
    "outside the window 3.64, more than random groups (2.18 to 3.02)": lambda r: (
        r.mean("weight outside", "copying") == 3.64 and r.ends("random groups", "copying") == (2.18, 3.02)
    ),
    "Calibrated on code alone, copying loses 1.63": lambda r: r.mean("code alone", "copying") == 1.63,
    "0.80 (0.62 to 0.97); 0.68–0.91 | 0.45 (0.34 to 0.56); 0.44–0.61": lambda r: (
        r.row("18 groups, zeros") == [((0.8, 0.62, 0.97), (0.68, 0.91)), ((0.45, 0.34, 0.56), (0.44, 0.61))]
    ),
    "0.27 (0.10 to 0.44); 0.25–0.31 | 0.21 (0.15 to 0.27); 0.28–0.30": lambda r: (
        r.row("18 groups, means") == [((0.27, 0.1, 0.44), (0.25, 0.31)), ((0.21, 0.15, 0.27), (0.28, 0.3))]
    ),
    "0.01 (−0.01 to 0.02); 0.01–0.07 | −0.00 (−0.01 to 0.01); 0.03–1.23": lambda r: (
        r.row("18 groups") == [((0.01, -0.01, 0.02), (0.01, 0.07)), ((0, -0.01, 0.01), (0.03, 1.23))]
    ),
    "1.18 times as fast (1.06 to 1.31; bytes allow 1.21), with 0.34 of the cache": lambda r: (
        r.at_4096("base") == ((1.18, 1.06, 1.31), 0.34)
        and round(r.speed["whole"]["bytes"] / r.speed["base"]["bytes"], 2) == 1.21
    ),
    "45 streaming groups (1.11 times as fast, 0.97 to 1.26) lose 0.08 nats on prose and 0.04 on copying, with 0.50": (
        lambda r: (
            r.at_4096("45 groups") == ((1.11, 0.97, 1.26), 0.5)
            and [r.mean("45 groups", kind) for kind in ("prose", "copying")] == [0.08, 0.04]
        )
    ),
    "18 removed groups (1.10, 0.98 to 1.20) lose 0.27 and 0.21, with 0.80": lambda r: (
        r.at_4096("18 groups removed") == ((1.1, 0.98, 1.2), 0.8)
        and [r.mean("18 groups, means", kind) for kind in ("prose", "copying")] == [0.27, 0.21]
    ),
    "with 18, 30 or 45 groups streaming, or 18 removed, no gain in time is established": lambda r: (
        [name for name, row in r.speed.items() if row["ratio"][1] <= 1 < row["ratio"][2]]
        == ["18 groups", "30 groups", "45 groups", "18 groups removed"]
    ),
    "training makes the draws worse by 0.17 nats (0.02 to 0.32), and a difference of −0.18 (−0.27 to −0.08) appears": (
        lambda r: (
            r.draws_change("streaming", "prose") == (0.17, 0.02, 0.32)
            and r.trained("streaming", "after", "prose")[2] == (-0.18, -0.27, -0.08)
        )
    ),
    "falls from 0.10 to 0.01 nats for the measure, and for the draws from 1.19–2.02 to 0.10–0.81": lambda r: (
        [r.trained("streaming", when)[:2] for when in ("before", "after")] == [(0.1, (1.19, 2.02)), (0.01, (0.1, 0.81))]
    ),
    "from 1.56 (1.27 to 1.85) to 0.35 nats (0.18 to 0.52)": lambda r: (
        [r.trained("streaming", when)[2] for when in ("before", "after")]
        == [(-1.56, -1.85, -1.27), (-0.35, -0.52, -0.18)]
    ),
    "Groups chosen on Python code cost 0.14 on prose and 1.63 on copying": lambda r: (
        [r.mean("code alone", kind) for kind in ("prose", "copying")] == [0.14, 1.63]
    ),
    "1.61 times as fast (1.45 to 2.23; bytes allow 1.54) after 8,191 others and 1.15 times (0.90 to 1.22; 1.16)": (
        lambda r: (
            [(r.faster(cell, "two thirds pruned"), r.allowed(cell, "two thirds pruned")) for cell in (LONG, SHORT)]
            == [((1.61, 1.45, 2.23), 1.54), ((1.15, 0.9, 1.22), 1.16)]
        )
    ),
}


@pytest.fixture(scope="module")
def results():
    return Results(load_results("streaming"), WRITING, load_results("repair"), load_results("writing_speed"))


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_is_in_the_text_and_the_results(results, words):
    assert words in TEXT and CLAIMS[words](results)
