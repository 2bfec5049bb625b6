"""What 07 and the report say of SmolLM2 on fresh texts is in the kept results."""

import pytest
import torch
from notebook_tools import rounded, text_of

from mha_course import heads
from mha_course.heads import load_results

TEXT = text_of("07_head_importance", "report_what_survives")
RANDOM = "random tokens 401", "random tokens 402"
WORDS = "real words"


class Results:
    """Kept results, as means and shares."""

    def __init__(self, found: dict):
        self.found = found
        self.whole = torch.tensor(found["whole"]["loss"])

    def cost(self, kind: str, part: str = "cut") -> torch.Tensor:
        """What layer 16, head 0 costs, of each sequence; of draws, of each draw and sequence."""
        return torch.tensor(self.found["circuit"]["costs"][kind][part])

    def shares(self, part: str, kinds: tuple = RANDOM) -> list[float]:
        """The means of a part, as shares of the cost."""
        return [round((self.cost(kind, part).mean() / self.cost(kind).mean()).item(), 2) for kind in kinds]

    def lost(self, losses: list) -> tuple[float, float, float]:
        """Nats lost, of losses by calibration and text: the mean over calibrations, with its interval over texts."""
        return rounded(heads.mean_and_ci95(torch.tensor(losses).mean(dim=0) - self.whole))

    def unit(self, unit: str, cut: str) -> tuple[float, float, float]:
        return self.lost([row[cut]["loss"] for row in self.found["units"][unit].values()])

    def between_units(self, unit: str, other: str, cut: str) -> tuple[float, float, float]:
        """What a unit loses more than another, text by text."""
        mine, base = (
            torch.tensor([row[cut]["loss"] for row in self.found["units"][one].values()]).mean(dim=0)
            for one in (unit, other)
        )
        return rounded(heads.mean_and_ci95(mine - base))

    def cache(self, unit: str, cut: str) -> set[int]:
        return {row[cut]["key-value heads"] for row in self.found["units"][unit].values()}

    def lead(self, measure: str, cut: str) -> tuple[tuple[float, float, float], int]:
        """What a measure loses more than its layer-matched baseline, and how many draws of this lose less."""
        runs = [run[cut] for run in self.found["means"][measure].values()]
        own, matched = (torch.tensor([run[key] for run in runs]) for key in ("measure", "matched"))
        lower = matched.mean(dim=2) < own.mean(dim=1, keepdim=True)
        return rounded(heads.mean_and_ci95(own.mean(dim=0) - matched.mean(dim=(0, 1)))), int(lower.sum())

    def between_measures(self, cut: str, part: str = "measure") -> tuple:
        """What the gate gradient loses more than the gradient towards the mean; or what "matched" draws of it do."""
        texts = len(self.whole)
        gate, towards = (
            torch.tensor([run[cut][part] for run in self.found["means"][measure].values()]).view(-1, texts).mean(dim=0)
            for measure in ("gate gradient", "towards the mean")
        )
        return rounded(heads.mean_and_ci95(gate - towards))

    def halves(self, name: str) -> list[float]:
        return [round(number, 2) for number in self.found["halves"][name]]

    def three(self, place: str, given: str) -> tuple[float, float, float]:
        return rounded(heads.mean_and_ci95(torch.tensor(self.found["three heads"][place][given])))

    def words(self, kind: str) -> list[int]:
        """How many of the 22 words each draw changes."""
        return sorted(self.found["words"]["means"][kind][0], reverse=True)


CLAIMS = {
    "and holding three of them, (17, 3), (18, 6) and (18, 7), leaves 4 to 5 %": (
        lambda r: [sorted(r.shares(f"{number} fixed")) for number in ("three", "five")] == [[0.04, 0.05], [0.02, 0.02]]
    ),
    "Patching the five causes 94 to 96 % of it, patching the three 66 to 67 %": (
        lambda r: (
            [sorted(r.shares(f"{number} patched")) for number in ("three", "five")] == [[0.66, 0.67], [0.94, 0.96]]
        )
    ),
    "and the other two alone 2 %": (lambda r: max(r.shares("other two patched")) == 0.02),
    "On *real words* that come twice the head costs 0.64 nats (0.52 to 0.76), an eighth": (
        lambda r: (
            rounded(heads.mean_and_ci95(r.cost(WORDS))) == (0.64, 0.52, 0.76)
            and 7 < r.cost(RANDOM[0]).mean() / r.cost(WORDS).mean() < 9
        )
    ),
    "A tenth costs 0.04 to 0.10 nats": (
        lambda r: (
            sorted(r.unit(unit, "27")[0] for unit in r.found["units"] if unit != "heads") == [0.04, 0.09, 0.1]
            and {*r.cache("layers", "27"), *r.cache("key-value groups", "27")} == {81}
        )
    ),
    "and no unit is established as better": (
        lambda r: all(
            low < 0 < high < 0.09
            for unit in r.found["units"]
            if unit != "heads"
            for _, low, high in [r.between_units(unit, "heads", "27")]
        )
    ),
    "allows 1.036 for heads, and 1.044 for groups and layers": (
        lambda r: (
            [round(row["ceiling"], 3) for row in r.found["speed"].values() if "ceiling" in row] == [1.036, 1.044, 1.044]
        )
    ),
    "If they give their means, which cost less, no lead is established": (
        lambda r: all(
            low < 0 < high and lower in (2, 3) and r.cost(RANDOM[0]).mean() > 4
            for measure in r.found["means"]
            for cut in ("54", "81")
            for (_, low, high), lower in [r.lead(measure, cut)]
        )
    ),
    "its removal costs 4.76 and 5.02 nats": lambda r: (
        rounded(r.cost(kind).mean().item() for kind in RANDOM) == (4.76, 5.02)
    ),
    "0.31 (0.10 to 0.51) in the lower half of the layers, and at −0.19 (−0.41 to 0.03) in the upper": lambda r: (
        [r.halves(f"{half} half") for half in ("lower", "upper")] == [[0.31, 0.1, 0.51], [-0.19, -0.41, 0.03]]
    ),
    "costs 6.2 nats (4.5 to 7.8) on repeats when it gives zeros, 0.2 (−0.2 to 0.7) when it gives its mean": lambda r: (
        [r.three("(1, 4)", given) for given in ("zeros", "mean of these sequences")]
        == [(6.16, 4.53, 7.79), (0.23, -0.22, 0.67)]
    ),
    "3.7 (2.3 to 5.1) when it gives its mean over prose": lambda r: (
        r.three("(1, 4)", "mean of prose") == (3.69, 2.26, 5.13)
    ),
    "cost 0.13 (0.05 to 0.21) and 0.15 nats (0.08 to 0.21) more than single heads": lambda r: (
        [r.between_units(unit, "heads", "54") for unit in ("key-value groups", "layers")]
        == [(0.13, 0.05, 0.21), (0.15, 0.08, 0.21)]
    ),
    "ordering layers by signed costs saves 0.12 (0.04 to 0.19)": lambda r: (
        r.between_units("layers", "layers by signed costs", "54") == (0.12, 0.04, 0.19)
    ),
    "1.05 times as fast (1.02 to 1.07, three runs; multiplications alone would give 1.036)": lambda r: (
        [round(number, 2) for number in r.found["speed"]["heads"]["4 x 64"]] == [1.05, 1.02, 1.07]
        and round(r.found["speed"]["heads"]["ceiling"], 3) == 1.036
    ),
    "no lead of its own gradient is established on fresh prose (−0.08, −0.17 to 0.02)": lambda r: (
        r.lead("towards the mean", "81")[0] == (-0.08, -0.17, 0.02)
    ),
    "Of this, 0.05 and 0.08 are a better choice of layers": lambda r: (
        [r.between_measures(cut, "matched")[0] for cut in ("54", "81")] == [0.05, 0.08]
    ),
    "by 0.08 nats (0.03 to 0.12) with 54 heads and 0.13 (0.06 to 0.19) with 81": lambda r: (
        [r.between_measures(cut) for cut in ("54", "81")] == [(0.08, 0.03, 0.12), (0.13, 0.06, 0.19)]
    ),
    "the five change 19 words, five others of the same layers at most 6, and five of all heads at most 15": lambda r: (
        r.found["words"]["means"]["five"][0] == 19
        and [r.words(kind)[0] for kind in ("same layers", "all heads")] == [6, 15]
    ),
}


@pytest.fixture(scope="module")
def results():
    return Results(load_results("fresh_texts"))


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_is_in_the_text_and_the_results(results, words):
    assert words in TEXT and CLAIMS[words](results)
