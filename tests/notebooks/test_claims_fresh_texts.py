"""What 07 and the report say of SmolLM2 on fresh texts is what the kept results give, word for word."""

import pytest
import torch
from in_words import interval, span, two
from notebook_tools import text_of

from mha_course.heads import load_results, mean_and_ci95

TEXT = text_of("07_head_importance", "report_what_survives")
RANDOM = "random tokens 401", "random tokens 402"
WORDS = "real words"


class Results:
    """Kept results, by text or as the texts say them."""

    def __init__(self, found: dict):
        self.found = found
        self.whole = torch.tensor(found["whole"]["loss"])

    def cost(self, kind: str, part: str = "cut") -> torch.Tensor:
        """What layer 16, head 0 costs, of each sequence; of draws, of each draw and sequence."""
        return torch.tensor(self.found["circuit"]["costs"][kind][part])

    def shares(self, part: str) -> list[int]:
        """The means of a part, as percentages of the cost, the lower one first."""
        return sorted(round(100 * (self.cost(kind, part).mean() / self.cost(kind).mean()).item()) for kind in RANDOM)

    def unit(self, unit: str, cut: str) -> torch.Tensor:
        """Nats lost on each text, mean over the calibrations."""
        losses = torch.tensor([row[cut]["loss"] for row in self.found["units"][unit].values()])
        return losses.mean(dim=0) - self.whole

    def cache(self, unit: str, cut: str) -> set[int]:
        return {row[cut]["key-value heads"] for row in self.found["units"][unit].values()}

    def measured(self, measure: str, cut: str, part: str) -> torch.Tensor:
        """The losses of a measure's choices, or of those that are "matched" to it by layers: runs, draws, texts."""
        runs = torch.tensor([run[cut][part] for run in self.found["means"][measure].values()])
        return runs.view(len(runs), -1, len(self.whole))

    def lead(self, measure: str, cut: str) -> tuple[torch.Tensor, int]:
        """What a measure loses more than its layer-matched baseline, and how many draws of this lose less."""
        own, matched = (self.measured(measure, cut, part) for part in ("measure", "matched"))
        lower = matched.mean(dim=2) < own.mean(dim=2)
        return own.mean(dim=(0, 1)) - matched.mean(dim=(0, 1)), int(lower.sum())

    def between_measures(self, cut: str, part: str = "measure") -> torch.Tensor:
        """What the gate gradient loses more than the gradient towards the mean; or what "matched" draws of it do."""
        gate, towards = (self.measured(each, cut, part) for each in ("gate gradient", "towards the mean"))
        return gate.mean(dim=(0, 1)) - towards.mean(dim=(0, 1))

    def half(self, name: str) -> str:
        mean, *ends = self.found["halves"][f"{name} half"]
        return f"{two(mean)} ({span(*ends)})"

    def three(self, given: str, what: str = "") -> str:
        return interval(torch.tensor(self.found["three heads"]["(1, 4)"][given]), what, digits=1)

    def most_words(self, kind: str) -> int:
        """How many of the 22 words a draw changes at most."""
        return max(self.found["words"]["means"][kind][0])


def said(r: Results) -> list[str]:
    """The words of the texts, with the numbers that the results give."""
    (five, same), three, (low, high), patched = map(
        r.shares, ("five fixed", "three fixed", "five patched", "three patched")
    )
    assert five == same
    more = {unit: r.unit(unit, "54") - r.unit("heads", "54") for unit in ("key-value groups", "layers")}
    signed = r.unit("layers", "54") - r.unit("layers by signed costs", "54")
    tenth = sorted(r.unit(unit, "27").mean() for unit in r.found["units"] if unit != "heads")
    ceilings = [row["ceiling"] for row in r.found["speed"].values() if "ceiling" in row]
    faster, *ends = r.found["speed"]["heads"]["4 x 64"]
    lead = mean_and_ci95(r.lead("towards the mean", "81")[0])
    layers = [two(r.between_measures(cut, "matched").mean()) for cut in ("54", "81")]
    return [
        f"Holding the five fixed leaves {five} % of that, and holding three of them, (17, 3), (18, 6) and (18, 7), "
        f"leaves {three[0]} to {three[1]} %",
        f"Patching the five causes {low} to {high} % of it, patching the three {patched[0]} to {patched[1]} %",
        f"and the other two alone {max(r.shares('other two patched'))} %",
        f"On *real words* that come twice the head costs {interval(r.cost(WORDS), 'nats ')}, an eighth",
        f"A tenth costs {span(tenth[0], tenth[-1])} nats",
        "allows {:.3f} for heads, and {:.3f} for groups and layers".format(*ceilings),
        "its removal costs {} and {} nats".format(*(two(r.cost(kind).mean()) for kind in RANDOM)),
        f"{r.half('lower')} in the lower half of the layers, and at {r.half('upper')} in the upper",
        f"costs {r.three('zeros', 'nats ')} on repeats when it gives zeros, {r.three('mean of these sequences')} when "
        "it gives its mean",
        f"{r.three('mean of prose')} when it gives its mean over prose",
        f"cost {interval(more['key-value groups'])} and {interval(more['layers'], 'nats ')} more than single heads",
        f"ordering layers by signed costs saves {interval(signed)}",
        f"{two(faster)} times as fast ({span(*ends)}, three runs; multiplications alone would give {ceilings[0]:.3f})",
        f"no lead of its own gradient is established on fresh prose ({two(lead[0])}, {span(*lead[1:])})",
        f"Of this, {layers[0]} and {layers[1]} are a better choice of layers",
        f"by {interval(r.between_measures('54'), 'nats ')} with 54 heads",
        f"with 54 heads and {interval(r.between_measures('81'))} with 81",
        f"the five change {r.found['words']['means']['five'][0]} words, five others of the same layers at most "
        f"{r.most_words('same layers')}, and five of all heads at most {r.most_words('all heads')}",
    ]


CLAIMS = {
    "that come twice the head costs 0.64 nats (0.52 to 0.76), an eighth": lambda r: (
        7 < r.cost(RANDOM[0]).mean() / r.cost(WORDS).mean() < 9
    ),
    "Whole groups and layers save cache, single heads hardly any": lambda r: (
        {*r.cache("layers", "27"), *r.cache("key-value groups", "27")} == {81}
    ),
    "and no unit is established as better": lambda r: all(
        low < 0 < high < 0.09
        for unit in r.found["units"]
        if unit != "heads"
        for _, low, high in [mean_and_ci95(r.unit(unit, "27") - r.unit("heads", "27"))]
    ),
    "If they give their means, which cost less, no lead is established": lambda r: all(
        low < 0 < high and lower in (2, 3) and r.cost(RANDOM[0]).mean() > 4
        for measure in r.found["means"]
        for cut in ("54", "81")
        for lead, lower in [r.lead(measure, cut)]
        for _, low, high in [mean_and_ci95(lead)]
    ),
}


@pytest.fixture(scope="module")
def results():
    return Results(load_results("fresh_texts"))


def test_the_texts_say_what_was_measured(results):
    assert [words for words in said(results) if words not in TEXT] == []


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_is_in_the_text_and_the_results(results, words):
    assert words in TEXT and CLAIMS[words](results)
