"""What a head does in numbers, against loops in plain Python."""

import math

import pytest
import torch

from mha_lib.heads import statistics


@pytest.fixture
def weights():
    torch.manual_seed(0)
    return torch.softmax(2 * torch.randn(3, 2, 5, 5, dtype=torch.float64), dim=-1)


def mean_over(weights, number):
    """The mean of ``number(row, query)`` for each head."""
    batch, heads, queries, _ = weights.shape
    return [
        sum(number(weights[b, h, q].tolist(), q) for b in range(batch) for q in range(queries)) / (batch * queries)
        for h in range(heads)
    ]


def test_mean_distance_on_a_line_and_on_a_plane(weights):
    line = mean_over(weights, lambda row, q: sum(w * abs(q - k) for k, w in enumerate(row)))
    assert statistics.mean_distance(weights).tolist() == pytest.approx(line)
    places = torch.tensor([[0, 0], [0, 2], [1, 5], [3, 1], [4, 4]])
    plane = mean_over(weights, lambda row, q: sum(w * math.dist(places[q], places[k]) for k, w in enumerate(row)))
    assert statistics.mean_distance(weights, places).tolist() == pytest.approx(plane)


def test_weight_on_self_and_on_a_token(weights):
    assert statistics.weight_on_self(weights).tolist() == pytest.approx(mean_over(weights, lambda row, q: row[q]))
    assert statistics.weight_on_token(weights, 3).tolist() == pytest.approx(mean_over(weights, lambda row, q: row[3]))


def test_entropy(weights):
    expected = mean_over(weights, lambda row, q: -sum(w * math.log(w) for w in row))
    assert statistics.entropy(weights).tolist() == pytest.approx(expected)
    one_hot = torch.eye(5).expand(1, 1, 5, 5)
    assert statistics.entropy(one_hot).tolist() == [0.0]


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
