"""What 08 and the report say of a language model stands in the kept results; opposite ones break it."""

import pytest
import torch
from notebook_tools import text_of

from mha_lib import heads

TEXT = text_of("08_head_pruning", "report_what_survives")
GATE, ABSOLUTE, SIGNED, PATH = "gate gradient", "leave one out, absolute", "leave one out", "path gradient"
NORMALISED, OTHER_TEXT = "gate gradient, normalised", "gate gradient, other text"
PREVIOUS, INDUCTION, EARLY = (16, 0), (18, 6), (1, 4)


class Results:
    """Kept results of SmolLM2, as tensors."""

    def __init__(self, real: dict):
        self.real = real

    def cost(self, order: str, cut: str) -> torch.Tensor:
        """Nats lost on each of the sixteen texts."""
        return torch.tensor(self.real["cuts"][order][cut]) - torch.tensor(self.real["of all"]["judged"]["all"])

    def more(self, order: str, other: str, cut: str) -> tuple[float, float, float]:
        """How much more an order loses than another: mean and 95 % interval over texts."""
        return heads.interval(self.cost(order, cut) - self.cost(other, cut))

    def chance(self, cut: str) -> torch.Tensor:
        """Mean nats lost by each random order."""
        return torch.stack([self.cost(name, cut).mean() for name in self.real["cuts"] if name.startswith("random")])

    def of_head(self, part: str, key: str, place: tuple[int, int]) -> float:
        return torch.tensor(self.real[part][key])[place].item()

    def first(self, part: str, number: int) -> set[tuple[int, int]]:
        """The heads whose absence costs most."""
        costs = torch.tensor(self.real[part]["mean"])
        return {divmod(place, costs.shape[1]) for place in costs.flatten().topk(number).indices.tolist()}

    def without_on_prose(self, place: tuple[int, int]) -> tuple[float, float, float]:
        """What a head costs on the sixteen texts: mean and 95 % interval."""
        found = self.real["induction"]
        return heads.interval(torch.tensor(found["prose without"][str(place)]) - torch.tensor(found["prose"]))

    def induction(self, name: str):
        """Mean loss over sequences; for draws, of each."""
        return torch.tensor(self.real["induction"][name]).mean(dim=-1)

    def later(self, place: tuple[int, int], kind: str) -> tuple[float, float, float]:
        """What a head costs on repeats with later heads free or frozen: mean and interval."""
        return heads.interval(torch.tensor(self.real["later heads"][str(place)][kind]))

    def carried_on(self, place: tuple[int, int]) -> tuple[float, float, float]:
        """How much more a head costs with later heads free than frozen, on the same sequences: mean and interval."""
        kinds = self.real["later heads"][str(place)]
        return heads.interval(torch.tensor(kinds["free"]) - torch.tensor(kinds["frozen"]))

    def sums(self) -> dict[str, float]:
        """What path gradients and single costs add up to, and what is due."""
        found = self.real["gradients"]
        tables = {"8 steps": found["path gradient, 8 steps"], "40 steps": self.real["long path"]}
        tables["single"] = self.real["costs on prose"]["mean"]
        return {name: torch.tensor(table).sum().item() for name, table in tables.items()} | {"due": found["due"]}


def below_chance(r: Results) -> bool:
    """Whether the two absolute measures lose less than each random order, at both sizes that these were cut to."""
    return all(max(r.cost(name, cut).mean() for name in (GATE, ABSOLUTE)) < r.chance(cut).min() for cut in ("27", "81"))


CLAIMS = {
    "All three cost much, and they are of three kinds": lambda r: (
        min(r.of_head("costs on repeats", "mean", place) for place in (PREVIOUS, INDUCTION, EARLY)) > 1.5
        and r.of_head("costs on repeats", "previous", PREVIOUS)
        > 0.85
        > 0.2
        > r.of_head("costs on repeats", "previous", EARLY)
        and r.of_head("costs on repeats", "induction", INDUCTION) > 0.85
        and r.of_head("costs on repeats", "induction", EARLY) < 0.2
    ),
    "it costs on ordinary text as well": lambda r: (
        r.of_head("costs on prose", "mean", EARLY) > 3 * r.of_head("costs on prose", "error", EARLY)
    ),
    "On repeats this head is worth almost six nats a token": lambda r: (
        5.5 < r.of_head("costs on repeats", "mean", PREVIOUS) < 6
        and abs(r.of_head("costs on prose", "mean", PREVIOUS)) < 0.03
    ),
    "the two lists of costs have a rank correlation of about 0": lambda r: (
        abs(heads.spearman(*(torch.tensor(r.real[part]["mean"]) for part in ("costs on repeats", "costs on prose"))))
        < 0.1
        and r.of_head("costs on repeats", "mean", PREVIOUS) > 0
    ),
    "three heads of layer 1 are among the first five of both": lambda r: (
        sum(place[0] == 1 for place in r.first("costs on repeats", 5) & r.first("costs on prose", 5)) == 3
    ),
    "On prose the first of these costs 0.04 nats (0.01 to 0.07)": lambda r: (
        [round(nats, 2) for nats in r.without_on_prose(PREVIOUS)] == [0.04, 0.01, 0.07]
    ),
    "four lie in layers 1 and 2": lambda r: sum(place[0] in (1, 2) for place in r.first("costs on repeats", 10)) == 4,
    "three of them cost 0.2 to 0.3 nats each on prose as well (all ten together 2.3)": lambda r: (
        all(0.15 < r.without_on_prose((1, head))[0] < 0.35 for head in (3, 4, 5))
        and round((r.induction("prose without the first ten") - r.induction("prose")).item(), 1) == 2.3
    ),
    "later heads carry the damage on instead of mending it": lambda r: all(
        r.carried_on(place)[1] > 0 for place in (PREVIOUS, INDUCTION, EARLY)
    ),
    "one of five heads of this model that give more than half of their weight there": lambda r: (
        (torch.tensor(r.real["costs on repeats"]["induction"]) > 0.5).sum() == 5
    ),
    "four more heads give over half of their weight behind the earlier copy": lambda r: (
        (torch.tensor(r.real["costs on repeats"]["induction"]) > 0.5).sum() == 5
        and r.of_head("costs on repeats", "induction", INDUCTION) > 0.5
    ),
    "with 54 heads cut it loses 0.42 nats where the plain one loses 0.22": lambda r: (
        [round(r.cost(name, "54").mean().item(), 2) for name in (NORMALISED, GATE)] == [0.42, 0.22]
        and r.more(NORMALISED, GATE, "27")[1] < 0 < r.more(NORMALISED, GATE, "27")[2]
        and r.more(NORMALISED, GATE, "54")[1] > 0
    ),
    "with later heads frozen its absence costs nothing at all": lambda r: (
        abs(r.later(PREVIOUS, "frozen")[0]) < 0.1 and r.later(PREVIOUS, "free")[1] > 4
    ),
    "now leads together with single costs by **absolute value**": lambda r: below_chance(r),
    "both by absolute value, lose less than each of ten random orders with 27 and with 81": lambda r: below_chance(r),
    "with 27 heads cut, confidence and the output's norm lose more than any of ten random orders": lambda r: all(
        r.cost(name, "27").mean() > r.chance("27").max() for name in ("confidence", "output norm")
    ),
    "The single costs are a little ahead with 13 heads cut, the gradient is with 54": lambda r: (
        r.more(GATE, ABSOLUTE, "13")[1] > 0
        and r.more(ABSOLUTE, GATE, "54")[1] > 0
        and all(r.more(GATE, ABSOLUTE, cut)[1] < 0 < r.more(GATE, ABSOLUTE, cut)[2] for cut in ("27", "81"))
    ),
    "no difference shows with up to 54 heads cut, and with 81 it loses 0.13 nats less": lambda r: (
        all(r.more(OTHER_TEXT, GATE, cut)[1] < 0 < r.more(OTHER_TEXT, GATE, cut)[2] for cut in ("13", "27", "54"))
        and r.more(GATE, OTHER_TEXT, "81")[1] > 0
        and round(r.more(GATE, OTHER_TEXT, "81")[0], 2) == 0.13
    ),
    "**Signed** single costs are ahead with 13 heads cut, and lose more than a nat with 54": lambda r: (
        r.more(GATE, SIGNED, "13")[1] > 0 and r.cost(SIGNED, "54").mean() > 1
    ),
    "loses what random orders lose with 27 heads cut. With 81 it is level with the plain gate gradient": lambda r: (
        r.chance("27").min() < r.cost(PATH, "27").mean() < r.chance("27").max()
        and r.more(PATH, GATE, "81")[1] < 0 < r.more(PATH, GATE, "81")[2]
        and r.more(PATH, GATE, "27")[1] > 0
    ),
    "**Confidence** is far behind chance, and so is the order that keeps late layers": lambda r: all(
        r.cost(name, cut).mean() > r.chance(cut).max() + 1
        for name in ("confidence", "late layers stay")
        for cut in ("27", "81")
    ),
    "nearly as good as a measure with 13 heads cut, and a disaster with 81": lambda r: (
        0 < r.more("early layers stay", GATE, "13")[0] < 0.1 and r.cost("early layers stay", "81").mean() > 3
    ),
    "**Costs on repeats**, taken for prose, do what chance does": lambda r: all(
        r.chance(cut).min() < r.cost("leave one out, on repeats", cut).mean() < r.chance(cut).max() + 0.05
        and r.more("leave one out, on repeats", GATE, cut)[1] > 0
        for cut in ("27", "81")
    ),
    "Here eight steps miss even the sign, and forty are off by a nat": lambda r: (
        r.sums()["8 steps"] < 0 < r.sums()["due"] and 0.8 < r.sums()["40 steps"] - r.sums()["due"] < 1.2
    ),
    "Single costs fall short of the sum": lambda r: 0 < r.sums()["single"] < 0.5 * r.sums()["due"],
    "brings the loss back to that of the first time; ten others change it by less than a nat": lambda r: (
        abs(r.induction("without the first ten") - r.induction("first time")) < 0.5
        and r.induction("without the first ten") > r.induction("second time") + 5
        and max(abs(row - r.induction("second time")) for row in r.induction("without ten others")) < 1
    ),
    "Hardly anything is gained, and a tenth to half a nat is lost": lambda r: (
        all(0.9 < row["pruned"] < 1.15 for row in r.real["speed"].values())
        and 0.05 < r.cost(GATE, "27").mean()
        and r.cost(GATE, "81").mean() < 0.55
    ),
}


@pytest.fixture(scope="module")
def results():
    return Results(heads.load_results("real_heads"))


def test_there_are_ten_random_orders_and_sixteen_texts(results):
    assert len(results.chance("27")) == len(results.chance("81")) == 10
    assert all(len(losses) == 16 for sizes in results.real["cuts"].values() for losses in sizes.values())


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_stands_in_the_text_and_holds_in_the_results(results, words):
    assert words in TEXT
    assert CLAIMS[words](results)


@pytest.mark.parametrize("words", CLAIMS)
def test_opposite_results_break_it(results, words):
    assert not CLAIMS[words](Results(opposite(results.real)))


def opposite(value):
    """Results in which what cost much costs little, and what lost least loses most."""
    if isinstance(value, dict):
        return {key: opposite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [opposite(item) for item in value]
    return 3 - value
