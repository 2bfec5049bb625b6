"""Pictures of heads' importance draw the numbers they were given, and say in words what they show."""

import re

import pytest
import torch

from mha_course import pictures


@pytest.fixture
def importances():
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(2, 5, generator=generator) for name in ("gradient", "norm", "truth", "guess")}


BLOCKS = ["early", "late"]


def places(picture):
    """The ranks that are written in the cells, in order."""
    return [float(word) for word in picture.drawing.words if re.fullmatch(r"\d+(\.5)?", word)]


def test_head_ranks_write_every_rank_below_its_measure(importances):
    del importances["guess"]  # three tables stand in a row
    picture = pictures.head_ranks(importances, BLOCKS)
    expected = []
    for importance in importances.values():
        order = sorted(importance.flatten().tolist(), reverse=True)
        expected += [order.index(value) + 1 for value in importance.flatten().tolist()] + [1, 2, 3, 4]  # names of heads
    assert places(picture) == expected
    assert [picture.drawing.words.count(name) for name in [*importances, *BLOCKS]] == [1] * 5


def test_head_ranks_name_blocks_and_heads_beside_the_outer_tables(importances):
    words = pictures.head_ranks(importances, BLOCKS).drawing.words
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
