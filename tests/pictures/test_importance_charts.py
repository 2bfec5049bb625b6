"""Pictures of heads' importance draw the numbers they were given, and say in words what they show."""

import re

import pytest
import torch

from mha_course import pictures


@pytest.fixture
def curves():
    generator = torch.Generator().manual_seed(0)
    worst, random, best = torch.rand(3, 7, generator=generator, dtype=torch.float64).sort(dim=0).values
    orders = {"one": torch.lerp(worst, best, 0.75), "other": torch.lerp(worst, best, 0.25)}
    return orders, best, random, worst


@pytest.fixture
def importances():
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(2, 5, generator=generator) for name in ("gradient", "norm", "truth", "guess")}


BLOCKS = ["early", "late"]


def test_pruning_curves_draw_each_order_and_random_sets(curves):
    orders, _, random, _ = curves
    panel = pictures.pruning_curves(*curves).drawing.axes[0]
    drawn = {line.get_label(): torch.tensor(line.get_xydata()) for line in panel.lines}
    assert list(drawn) == ["random sets, mean", "one", "other"]
    for name, curve in {"random sets, mean": random, **orders}.items():
        torch.testing.assert_close(drawn[name], torch.stack([torch.arange(7.0).double(), curve], dim=1))
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("heads kept", "accuracy")


def test_what_is_possible_is_shaded_between_worst_and_best(curves):
    _, best, _, worst = curves
    (area,) = pictures.pruning_curves(*curves).drawing.axes[0].collections
    corners = {(round(x), round(y, 6)) for x, y in area.get_paths()[0].vertices.tolist()}
    assert corners == {(size, round(y, 6)) for end in (best, worst) for size, y in enumerate(end.tolist())}


def test_pruning_curves_say_the_mean_of_each(curves):
    orders, best, random, worst = curves
    picture = pictures.pruning_curves(*curves)
    named = {"best sets": best, **orders, "random sets": random, "worst sets": worst}
    means = "; ".join(f"{name} {sum(curve.tolist()) / 7:.2f}" for name, curve in named.items())
    assert picture.reading == f"Mean over 0 to 6 heads kept: {means}."
    assert "by one, other" in picture.alt


def test_curves_of_another_length_are_named(curves):
    orders, best, random, worst = curves
    with pytest.raises(ValueError, match=re.escape("worst must have one value for each of best, which is (7,); got")):
        pictures.pruning_curves(orders, best, random, worst[1:])


def places(picture):
    """The ranks that are written in the cells, in order."""
    return [float(word) for word in picture.drawing.words if re.fullmatch(r"\d+(\.5)?", word)]


def test_head_ranks_write_every_rank_below_its_measure(importances):
    picture = pictures.head_ranks(importances, BLOCKS, columns=4)
    expected = []
    for importance in importances.values():
        order = sorted(importance.flatten().tolist(), reverse=True)
        expected += [order.index(value) + 1 for value in importance.flatten().tolist()] + [1, 2, 3, 4]  # names of heads
    assert places(picture) == expected
    assert [picture.drawing.words.count(name) for name in [*importances, *BLOCKS]] == [1] * 6


def test_head_ranks_name_blocks_and_heads_beside_the_outer_tables(importances):
    words = pictures.head_ranks(importances, BLOCKS, columns=2).drawing.words
    assert [words.count(name) for name in (*BLOCKS, "head 0")] == [2, 2, 2]


def test_head_ranks_say_who_comes_first():
    first = {"one": torch.tensor([[0.0, 3, 1], [2, 2.5, 0]]), "other": torch.tensor([[0.0, 1, 2], [4, 3, 0]])}
    picture = pictures.head_ranks(first, BLOCKS)
    assert picture.reading == "In the first place, by one: early, head 1; other: late, head 0."
    assert "2 × 3 heads by 2 measures" in picture.alt


def test_equals_share_their_mean_rank():
    picture = pictures.head_ranks({"some": torch.tensor([[4.0, 1, 1], [1, 4, 0]]), "none": torch.zeros(2, 3)}, BLOCKS)
    heads = [1, 2]  # their names, below each table
    assert places(picture) == [1.5, 4, 4, 4, 1.5, 6, *heads, *[3.5] * 6, *heads]
    assert picture.reading == "In the first place, by some: 2 heads alike; none: 6 heads alike."


def test_ranks_that_do_not_fit_are_named(importances):
    with pytest.raises(ValueError, match=re.escape("odd must have the shape of the others, (2, 5), got (5, 2)")):
        pictures.head_ranks(importances | {"odd": torch.ones(5, 2)}, BLOCKS)
    with pytest.raises(ValueError, match="block_names must have 2 entries, got 1"):
        pictures.head_ranks(importances, ["early"])
