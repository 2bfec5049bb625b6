"""Pictures of heads' importance draw the numbers they were given, and say in words what they show."""

import re

import pytest
import torch

from mha_lib import pictures


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
    panel = pictures.pruning_curves(*curves).figure.axes[0]
    drawn = {line.get_label(): torch.tensor(line.get_xydata()) for line in panel.lines}
    assert list(drawn) == ["random sets, mean", "one", "other"]
    for name, curve in {"random sets, mean": random, **orders}.items():
        torch.testing.assert_close(drawn[name], torch.stack([torch.arange(7.0).double(), curve], dim=1))
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("heads kept", "accuracy")


def test_what_is_possible_is_shaded_between_worst_and_best(curves):
    _, best, _, worst = curves
    (area,) = pictures.pruning_curves(*curves).figure.axes[0].collections
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


def test_head_ranks_write_and_colour_every_rank(importances):
    axes = pictures.head_ranks(importances, BLOCKS).figure.axes
    assert [panel.get_title() for panel in axes] == list(importances)
    for panel, importance in zip(axes, importances.values(), strict=True):
        places = sorted(importance.flatten().tolist(), reverse=True)
        expected = [[places.index(value) + 1 for value in row] for row in importance.tolist()]
        assert panel.images[0].get_array().tolist() == expected
        texts = {text.get_position(): text.get_text() for text in panel.texts}
        assert [[int(texts[head, block]) for head in range(5)] for block in range(2)] == expected
    red_of_last, red_of_first = (axes[0].images[0].to_rgba(rank)[0] for rank in (10, 1))
    assert red_of_first < 0.2 and red_of_last > 0.9


def test_head_ranks_name_blocks_and_heads(importances):
    axes = pictures.head_ranks(importances, BLOCKS, columns=2).figure.axes
    assert [text.get_text() for text in axes[0].get_yticklabels()] == BLOCKS
    assert [text.get_text() for text in axes[3].get_xticklabels()] == list("01234")
    assert (axes[2].get_ylabel(), axes[2].get_xlabel()) == ("blocks", "heads")


def test_head_ranks_say_who_comes_first():
    first = {"one": torch.tensor([[0.0, 3, 1], [2, 2.5, 0]]), "other": torch.tensor([[0.0, 1, 2], [4, 3, 0]])}
    picture = pictures.head_ranks(first, BLOCKS)
    assert picture.reading == "In the first place, by one: early, head 1; other: late, head 0."
    assert "2 × 3 heads by 2 measures" in picture.alt


def test_equals_share_their_mean_rank():
    picture = pictures.head_ranks({"some": torch.tensor([[4.0, 1, 1], [1, 4, 0]]), "none": torch.zeros(2, 3)}, BLOCKS)
    some, none = ([text.get_text() for text in panel.texts] for panel in picture.figure.axes)
    assert some == ["1.5", "4", "4", "4", "1.5", "6"] and none == ["3.5"] * 6
    assert picture.reading == "In the first place, by some: 2 heads alike; none: 6 heads alike."


def test_ranks_that_do_not_fit_are_named(importances):
    with pytest.raises(ValueError, match=re.escape("odd must have the shape of the others, (2, 5), got (5, 2)")):
        pictures.head_ranks(importances | {"odd": torch.ones(5, 2)}, BLOCKS)
    with pytest.raises(ValueError, match="block_names must name 2, got 1"):
        pictures.head_ranks(importances, ["early"])
