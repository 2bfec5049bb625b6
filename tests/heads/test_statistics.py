"""What a head does in numbers, against loops in plain Python."""

import math

import pytest
import torch

from mha_lib.heads import statistics


@pytest.fixture
def weights():
    torch.manual_seed(0)
    return torch.softmax(2 * torch.randn(3, 2, 5, 5, dtype=torch.float64), dim=-1)


PLACES = torch.tensor([[0, 0], [0, 2], [1, 5], [3, 1], [4, 4]])
NUMBERS = {  # of a head, and of one of its rows
    "distance on a line": (
        statistics.mean_distance,
        lambda row, q: sum(w * abs(q - k) for k, w in enumerate(row)),
    ),
    "distance on a plane": (
        lambda weights: statistics.mean_distance(weights, PLACES),
        lambda row, q: sum(w * math.dist(PLACES[q], PLACES[k]) for k, w in enumerate(row)),
    ),
    "weight on self": (statistics.weight_on_self, lambda row, q: row[q]),
    "weight on a token": (lambda weights: statistics.weight_on_token(weights, 3), lambda row, q: row[3]),
    "entropy": (statistics.entropy, lambda row, q: -sum(w * math.log(w) for w in row)),
}


@pytest.mark.parametrize(("number", "of_row"), NUMBERS.values(), ids=NUMBERS)
def test_a_number_is_the_mean_over_examples_and_queries(weights, number, of_row):
    rows = [[[of_row(row, q) for q, row in enumerate(head)] for head in example] for example in weights.tolist()]
    expected = torch.tensor(rows, dtype=torch.float64).mean(dim=(0, 2))
    assert number(weights).tolist() == pytest.approx(expected.tolist())


def test_the_entropy_of_one_key_is_zero():
    assert statistics.entropy(torch.eye(5).expand(1, 1, 5, 5)).tolist() == [0.0]


def test_strongest_inside(weights):
    wanted = torch.rand(3, 5, 5) < 0.4
    wanted[0, 1] = False
    hits, total = [0, 0], 0
    for b in range(3):
        for q in range(5):
            total += bool(wanted[b, q].any())
            for h in range(2):
                hits[h] += bool(wanted[b, q, int(weights[b, h, q].argmax())])
    assert statistics.top1_hit_rate(weights, wanted).tolist() == pytest.approx([hit / total for hit in hits])


def test_what_does_not_fit_is_refused(weights):
    with pytest.raises(ValueError, match=r"weights must be \(batch, num_heads, n, n\) with n=4 places"):
        statistics.mean_distance(weights, torch.rand(4, 2))
    with pytest.raises(ValueError, match=r"wanted must have shape \(3, 5, 5\), got \(3, 5, 4\)"):
        statistics.top1_hit_rate(weights, torch.zeros(3, 5, 4, dtype=torch.bool))
