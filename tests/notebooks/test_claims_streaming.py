"""What the report and 07 say of streaming heads is what the kept results give, word for word."""

import json

import pytest
import torch
from in_words import interval, span, two
from notebook_tools import ROOT, text_of

from mha_course.heads import load_results, mean_and_ci95

TEXT = text_of("07_head_importance", "report_what_survives")
WRITING = json.loads((ROOT / "benchmarks" / "results" / "writing.json").read_text(encoding="utf-8"))
LONG, SHORT = "write after 8191, batch 1", "write after 64, batch 1"
MIDDLE, STREAMS = "write after 2048, batch {}", "two thirds stream"


class Results:
    """Kept results, and times, as the texts say them."""

    def __init__(self, found: dict, writing: dict, repair: dict, speed: dict):
        self.found, self.writing, self.repair, self.speed = found, writing, repair, speed

    def rise(self, part: str, kind: str) -> torch.Tensor:
        return torch.tensor(self.found[part][kind]["plan"]).double()

    def draws(self, part: str, kind: str) -> torch.Tensor:
        return torch.tensor(self.found[part][kind]["draws"]).double()

    def mean(self, part: str, kind: str = "copying") -> str:
        return two(self.rise(part, kind).mean())

    def ends(self, part: str, kind: str = "copying", by: str = " to ") -> str:
        """The lowest and the highest mean of a part's draws."""
        return span(*self.draws(part, kind).mean(dim=1).aminmax(), by)

    def row(self, part: str) -> str:
        cells = (f"{interval(self.rise(part, kind))}; {self.ends(part, kind, '–')}" for kind in ("prose", "copying"))
        return " | ".join(cells)

    def trained(self, name: str, when: str, kind: str) -> torch.Tensor:
        """How much more a model of the repair loses than the whole one, before or after its training."""
        part, whole = (torch.tensor(self.repair[each][when][kind]).double() for each in (name, "whole"))
        return part - whole

    def trained_draws(self, when: str, kind: str) -> torch.Tensor:
        return torch.stack([self.trained(f"streaming, draw {number}", when, kind) for number in range(1, 6)])

    def lead(self, when: str, kind: str) -> torch.Tensor:
        """What the measure's choice loses less than its draws."""
        return self.trained_draws(when, kind).mean(dim=0) - self.trained("streaming, measure", when, kind)

    def allowed(self, cell: str, kind: str = STREAMS, what: str = "bytes") -> str:
        return two(self.writing[cell]["whole"][what] / self.writing[cell][kind][what])

    def faster(self, cell: str, kind: str = STREAMS) -> str:
        mean, *ends = self.writing[cell][kind]["ratio"]
        return f"{two(mean)} ({span(*ends)})"

    def at_4096(self, plan: str, words: str) -> tuple[str, str]:
        """How much faster a token is written, in these words, and what is left of the cache."""
        mean, *ends = self.speed[plan]["ratio"]
        return words.format(two(mean), span(*ends)), two(self.speed[plan]["cache"] / self.speed["whole"]["cache"])


def said(r: Results) -> list[str]:
    """The words of the texts, with the numbers that the results give."""
    base, spared = r.rise("base", "copying"), r.draws("circuit spared", "copying").mean(dim=0)
    streams = sorted(map(two, r.draws("18 groups", "copying").mean(dim=1)))
    less = {kind: r.rise("18 groups, means", kind) - r.rise("18 groups", kind) for kind in ("prose", "copying")}
    falls = {when: span(*r.trained_draws(when, "copying").mean(dim=1).aminmax(), "–") for when in ("before", "after")}
    own = {when: two(r.trained("streaming, measure", when, "copying").mean()) for when in falls}
    worse = (r.trained_draws("after", "prose") - r.trained_draws("before", "prose")).mean(dim=0)
    at_4096, cache = r.at_4096("base", "{} times as fast ({}; bytes allow ")
    some, some_cache = r.at_4096("45 groups", "45 streaming groups ({} times as fast, {}) lose ")
    gone, gone_cache = r.at_4096("18 groups removed", "18 removed groups ({}, {}) lose ")
    pruned = {
        cell: (r.faster(cell, "two thirds pruned"), r.allowed(cell, "two thirds pruned")) for cell in (LONG, SHORT)
    }
    return [
        f"five draws that spare both cost {r.ends('circuit spared')}",
        f"it loses {r.mean('base')} nats with one calibration and {r.mean('seed 2')} with another, and the draws lose "
        f"{r.ends('base')} (five) and {r.ends('seed 2')} (three)",
        f"the one where it streams loses {streams[2]}, and the others {streams[0]}",
        f"lose {r.ends('circuit spared')}, and on average {interval(spared - base, 'more than the choice ')}",
        f"{r.rise('base', 'prose').mean():.3f} on prose, and {r.rise('seed 2', 'prose').mean():.3f} with seed 2",
        f"On prose alone it loses {r.mean('prose alone')}, between the two calibrations of the base",
        f"It is {interval(r.rise('base', 'prose') - r.draws('base', 'prose').mean(dim=0))}",
        f"lose {interval(less['prose'], 'nats less on prose ')} than 18 that give their means",
        f"on copying {interval(less['copying'], 'less ')}",
        *(
            f"| {after} | {r.faster(cell)} | {r.allowed(cell)} |"
            for after, cell in (
                ("8,191", LONG),
                ("64", SHORT),
                ("2,048", MIDDLE.format(1)),
                ("2,048, four texts at once", MIDDLE.format(4)),
            )
        ),
        f"{r.faster('read 512')[:-1]}; multiplications allow {r.allowed('read 512', what='products')})",
        f"prose loses {r.mean('all', 'prose')} nats, copying {r.mean('all')} and code {r.mean('all', 'code')}",
        f"cost {interval(r.rise('layers', 'copying') - base, 'more on copying ')}",
        f"gradients towards means lose {r.mean('towards means')} nats, about as much as the base's draws",
        f"outside the window {r.mean('weight outside')}, more than random groups ({r.ends('random groups')})",
        f"Calibrated on code alone, copying loses {r.mean('code alone')}",
        *map(r.row, ("18 groups, zeros", "18 groups, means", "18 groups")),
        f"{at_4096}{two(r.speed['whole']['bytes'] / r.speed['base']['bytes'])}), with {cache} of the cache",
        f"{some}{r.mean('45 groups', 'prose')} nats on prose and {r.mean('45 groups')} on copying, with {some_cache}",
        f"{gone}{r.mean('18 groups, means', 'prose')} and {r.mean('18 groups, means')}, with {gone_cache}",
        f"training makes the draws worse by {interval(worse, 'nats ')}, and a difference of "
        f"{interval(-r.lead('after', 'prose'))} appears",
        f"falls from {own['before']} to {own['after']} nats for the measure, and for the draws from "
        f"{falls['before']} to {falls['after']}",
        f"from {interval(r.lead('before', 'copying'))} to {interval(r.lead('after', 'copying'), 'nats ')}",
        f"cost {r.mean('code alone', 'prose')} on prose and {r.mean('code alone')} on copying",
        f"{pruned[LONG][0].replace('(', 'times as fast (')[:-1]}; bytes allow {pruned[LONG][1]}) after 8,191 others "
        f"and {pruned[SHORT][0].replace('(', 'times (')[:-1]}; {pruned[SHORT][1]}) after 64",
    ]


CLAIMS = {
    "groups of 90 that contain the five heads of the first edition's circuit, (18, 2) and (17, 1)": lambda r: all(
        first[:2] == [[18, 2], [17, 1]] for first in r.found["induction groups"]["first"]
    ),
    "these two make up two thirds of the lead": lambda r: (
        abs(
            (r.draws("base", "copying") - r.draws("circuit spared", "copying")).mean()
            / (r.draws("base", "copying").mean() - r.rise("base", "copying").mean())
            - 2 / 3
        )
        < 0.01
    ),
    "on code there is one in one calibration of two": lambda r: (
        [
            mean_and_ci95(r.rise(part, "code") - r.draws(part, "code").mean(dim=0))[2] < bound
            for part, bound in (("base", 0), ("seed 2", 0), ("seed 2", 0.1))
        ]
        == [True, False, True]
    ),
    "From 2,048 on 0.34 of the cache is left": lambda r: all(
        two(row[STREAMS]["cache"] / row["whole"]["cache"]) == "0.34"
        for row in (r.writing[MIDDLE.format(1)], r.writing[LONG])
    ),
    "a bad choice of 60 groups loses more": lambda r: r.mean("weight outside") > r.mean("all"),
    "about as much as the base's draws, and attention weights": lambda r: (
        1.46 < r.rise("towards means", "copying").mean() < 2.41
    ),
    "with 18, 30 or 45 groups streaming, or 18 removed, no gain in time is established": lambda r: (
        [name for name, row in r.speed.items() if row["ratio"][1] <= 1 < row["ratio"][2]]
        == ["18 groups", "30 groups", "45 groups", "18 groups removed"]
    ),
}


@pytest.fixture(scope="module")
def results():
    return Results(load_results("streaming"), WRITING, load_results("repair"), load_results("writing_speed"))


def test_the_texts_say_what_was_measured(results):
    assert [words for words in said(results) if words not in TEXT] == []


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_is_in_the_text_and_the_results(results, words):
    assert words in TEXT and CLAIMS[words](results)
