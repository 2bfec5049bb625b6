"""What the report says of a language model stands in the kept results."""

import pytest
import torch
from notebook_tools import text_of

from mha_course import heads
from mha_course.heads import load_results
from mha_course.heads.controls import OF_EACH, SIGNED

TEXT = text_of("report_what_survives")
GATE, COSTS = f"gate gradient | {OF_EACH}", f"leave one out | {OF_EACH}"
PREVIOUS, EARLY = (16, 0), (1, 4)
FIVE = [[17, 3], [17, 4], [17, 5], [18, 6], [18, 7]]
LARGE = 27, 54, 81


class Results:
    """Kept results of SmolLM2, as tensors."""

    def __init__(self, real: dict):
        self.real = real

    def cost(self, order: str, cut: int) -> torch.Tensor:
        """Nats lost on each of the sixteen texts."""
        return self.lost(self.real["cuts"][order][str(cut)])

    def lost(self, losses: list) -> torch.Tensor:
        return torch.tensor(losses) - torch.tensor(self.real["of all"]["all"])

    def mean(self, order: str, cut: int) -> float:
        return self.cost(order, cut).mean().item()

    def chance(self, kind: str, cut: int) -> torch.Tensor:
        """Mean nats lost by each draw."""
        kinds = self.real["chance"] | self.real["chance, gate gradient"] | self.real["chance, leave one out"]
        return torch.stack([self.lost(draw[str(cut)]).mean() for draw in kinds[kind]])

    def better(self, kind: str, order: str, cut: int) -> int:
        """How many draws lose less than an order."""
        return int((self.chance(kind, cut) < self.mean(order, cut)).sum())

    def calibrated(self, kind: str, rows: int, form: str, cut: int) -> torch.Tensor:
        """Mean nats lost by the gate gradient of each draw of calibration texts."""
        draws = self.real[f"calibrated on {kind}"][str(rows)][form]
        return torch.stack([self.lost(draw[str(cut)]).mean() for draw in draws])

    def first(self, part: str, number: int) -> set[tuple[int, int]]:
        """The heads whose absence costs most."""
        costs = torch.tensor(self.real[part]["mean"])
        return {divmod(place, costs.shape[1]) for place in costs.flatten().topk(number).indices.tolist()}


def both_stand(r: Results) -> bool:
    """Whether no draw of any chance is better than a measure by absolute values."""
    shapes = ("as many of each layer", "its layers spared", "the layers alone")
    return all(
        r.better(kind, order, cut) == 0
        for order in (GATE, COSTS)
        for kind in ("free", *(f"{shape}: {order}" for shape in shapes))
        for cut in LARGE
    )


def signed_draws(r: Results) -> bool:
    """What the signed gate gradient loses over twenty draws of 24 paragraphs, and what random orders lose."""
    found = [[draws(cut).mean().item() for cut in LARGE] for draws in (
        lambda cut: r.calibrated("prose", 24, SIGNED, cut), lambda cut: r.chance("free", cut),
    )]  # fmt: skip
    return [[round(nats, 2) for nats in row] for row in found] == [[0.48, 0.96, 1.27], [0.31, 1.01, 1.73]]


def signed_beside_chance(r: Results) -> bool:
    """Whether signed gate gradients lose more than random orders at a tenth of the heads, and as much at a fifth."""
    more, same = (r.calibrated("prose", 24, SIGNED, cut) - r.chance("free", cut).mean() for cut in (27, 54))
    return (
        heads.mean_and_ci95(more)[1] > 0 and abs(same.mean()) < r.chance("free", 54).std() / 2 and r.mean(GATE, 27) > 0
    )


def ranks_by_three(r: Results) -> bool:
    ranks = r.real["costs on prose"]["ranks by three"]
    return sum(3 <= rank <= 31 for rank in ranks) == 17 and max(ranks) == 229 and len(ranks) == 20


def largest_behind(r: Results) -> bool:
    """Whether the five heads give most weight to the place behind the earlier copy."""
    behind = torch.tensor(r.real["costs on repeats"]["induction"])
    highest = behind.flatten().topk(5)
    places = sorted(divmod(place, 9) for place in highest.indices.tolist())
    return places == [tuple(place) for place in FIVE] and (
        [round(weight, 2) for weight in (highest.values.min().item(), highest.values.max().item())] == [0.54, 0.87]
    )


CLAIMS = {
    "in one of twenty draws a head that is 14th by 24 texts is 229th": lambda r: (
        ranks_by_three(r) and heads.ranks(torch.tensor(r.real["costs on prose"]["mean"]))[PREVIOUS] == 14
    ),
    "they are also the five with the largest weight on the position after the earlier copy": largest_behind,
    "the signed gate gradient loses 0.48, 0.96 and 1.27 nats on average, where free random": signed_draws,
    "it loses more than random orders with a tenth of the heads removed, and as much with a fifth": (
        signed_beside_chance
    ),
    "**With zeros** and absolute values of each text, both measures lose less than each of twenty": (both_stand),
    "with 81 of 270 heads removed it loses 0.43 nats, and the draws 0.87 to 2.10": lambda r: (
        round(r.mean(GATE, 81), 2) == 0.43
        and [round(end.item(), 2) for end in r.chance(f"as many of each layer: {GATE}", 81).aminmax()] == [0.87, 2.10]
    ),
    "draws of 3 calibration texts lose from 0.27 to 0.61 nats, of 24 from 0.34 to 0.54": lambda r: (
        [[round(end.item(), 2) for end in r.calibrated("prose", rows, OF_EACH, 81).aminmax()] for rows in (3, 24)]
        == [[0.27, 0.61], [0.34, 0.54]]
    ),
    "(1, 4) costs most when it is set to zero": lambda r: r.first("costs on repeats", 1) == {EARLY},
    "5.2 nats are due; one grid of forty points gives 11.2, another 8.9": lambda r: (
        [round(r.real["path"]["sums"][grid], 1) for grid in ("even", "odd")] == [11.2, 8.9]
        and round(r.real["path"]["due"], 1) == 5.2
    ),
}


@pytest.fixture(scope="module")
def results():
    return Results(load_results("real_heads"))


def test_there_are_twenty_draws_of_everything_and_sixteen_texts(results):
    parts = ("chance", "chance, gate gradient", "chance, leave one out")
    kinds = [kind for part in parts for kind in results.real[part].values()]
    assert len(kinds) == 1 + 4 * 3
    for kind in kinds:
        assert len(kind) == 20 and all(len(losses) == 16 for draw in kind for losses in draw.values())
    for kind in ("prose", "docstrings"):
        calibrated = results.real[f"calibrated on {kind}"]
        assert list(calibrated) == ["3", "24", "48"]
        assert all(len(draws) == 20 for forms in calibrated.values() for draws in forms.values())
    assert len(results.real["gate gradient, taken again"]) == 20


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_is_in_the_text_and_the_results(results, words):
    assert words in TEXT and CLAIMS[words](results)
