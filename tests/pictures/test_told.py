"""What pictures tell by size is told alike by every processor: a tie goes to the first, whatever the last bits are."""

import pytest
import torch

from mha_course import pictures
from mha_course.pictures.picture import signed
from mha_course.rounding import first_largest, rounded


def both_ways(numbers):
    """The numbers with two units in the last place added to some and taken from others, and the other way round."""
    signs = torch.randint(0, 2, numbers.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return [numbers * (1 + sign * signs * 2**-22) for sign in (1, -1)]


def test_the_first_of_equal_numbers_is_the_largest_and_nan_is_none():
    weights = torch.tensor([[torch.nan, 0.1, 0.125], [0.125, 0.124, 0.0]])
    assert [first_largest(own) for own in (weights, *both_ways(weights))] == [2, 2, 2]
    assert first_largest(torch.tensor([0.4512, 0.4534])) == 0, "both are told as 0.45"
    assert first_largest(torch.tensor([0.4512, 0.4534]), digits=3) == 1
    assert first_largest(torch.tensor([-torch.inf, -3.0, -torch.inf])) == 1


@pytest.mark.parametrize("number", [0.125, -0.375, 2.5, 12.5])
def test_a_half_is_told_alike_whatever_its_last_bit_is(number):
    alike = [torch.tensor(number), *both_ways(torch.tensor(number))]
    assert {signed(own.item()) for own in alike} == {signed(number)}
    assert {signed(own.item(), 0) for own in alike} == {signed(number, 0)}
    assert signed(0.125) == "0.13" and signed(-0.375) == "−0.38" and signed(-0.004) == "0.00"
    assert rounded(torch.inf, 2) == torch.inf and signed(float("nan")) == "NaN"


def test_no_last_bit_decides_what_a_picture_says_in_words():
    scores = torch.zeros(2, 3, 8)
    scores[1, 1, 2:4] = 3.0  # two equal largest
    even = torch.linspace(0, 7, 8)
    pictured = [
        lambda weights: pictures.heatmaps(weights).reading,
        lambda weights: pictures.SentenceExplorer(
            [pictures.sentence_explorer.SentenceMaps("s", list("abcdefgh"), weights[1:].expand(2, 1, 3, 8))], named={}
        ).still().caption,
        lambda weights: pictures.KernelExplorer(even + weights[0, 0] / 1e6, even, bandwidth=1e6).still().alt,
    ]  # fmt: skip
    weights = scores.softmax(dim=-1)
    for words in pictured:
        assert {words(own) for own in both_ways(weights)} == {words(weights)}
    assert "head 1: query 1 puts most weight, 0.44, on key 2" in pictured[0](weights)
