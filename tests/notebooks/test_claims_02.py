"""What 02 says of numbers to follow by hand, of the root of p, and of more training."""

import json
import math

import pytest
import torch
from notebook_tools import text_of, told

from mha_course.models.shipped import package_data
from tools.weights import LONGER


def test_the_numbers_of_the_first_picture_give_what_its_text_says():
    section = told("02_scoring_functions", "## 1. Attention")
    query, keys, values = (section[name].tolist() for name in ("query", "keys", "values"))
    products = [sum(a * b for a, b in zip(query, key, strict=True)) for key in keys]
    heights = [math.exp(product / 2**0.5) for product in products]
    weights = [round(height / sum(heights), 2) for height in heights]
    first = sum(height * value[0] for height, value in zip(heights, values, strict=True)) / sum(heights)
    assert products[0] == 4 and weights == [0.72, 0.25, 0.02, 0.0] and round(first, 2) == 0.43


@pytest.mark.parametrize(
    ("d", "dead_without"), [(4, (0.0, 0.01)), (64, (0.15, 0.25)), (1024, (0.6, 0.7))], ids=["4", "64", "1024"]
)
def test_without_the_root_the_gradient_of_the_query_dies_but_is_not_smaller_on_average(d, dead_without):
    """What 02 measures by autograd, by the formula ∂α/∂q = α (k* − Σ αⱼ kⱼ) / scale."""
    torch.manual_seed(8)
    queries, keys = torch.randn(2000, 1, d), torch.randn(2000, 10, d)
    lengths = {}
    for scale in (1, math.sqrt(d)):
        weights = torch.softmax((queries * keys).sum(dim=2) / scale, dim=1)
        largest, best = weights.max(dim=1)
        pull = keys[torch.arange(2000), best] - (weights[:, :, None] * keys).sum(dim=1)
        lengths[scale] = (largest[:, None] * pull).norm(dim=1) / scale
    without, divided = lengths.values()
    assert without.mean() > divided.mean()
    assert dead_without[0] <= (without < 0.01).float().mean() <= dead_without[1]
    assert (divided < 0.01).float().mean() == 0


@pytest.fixture(scope="module")
def train():
    """What section 3 trains a head with, and the loss of uniform attention."""
    section = told("02_scoring_functions", "## 4. Masking")
    nothing = torch.zeros(64, 64)
    return section["train"], section["loss"](nothing, nothing, 1, b=5000).item()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_without_the_root_a_head_begins_worse_and_adam_takes_longer_but_not_plain_descent(train, seed):
    (train, even), sgd = train, {"optimizer": torch.optim.SGD, "lr": 0.1}
    assert train(1, steps=0, seed=seed) > 1.5 * even
    by_adam, by_sgd = [[train(d, seed=seed, **how) for d in (1, 8, 64)] for how in ({}, sgd)]
    assert min(by_adam[0], by_adam[2]) > 3 * by_adam[1] and by_sgd[0] < by_sgd[1] < by_sgd[2]
    assert "`train(1, steps=300)` is enough" in text_of("02_scoring_functions")
    assert train(1, steps=300, seed=seed) < 0.05 * even


def test_with_the_root_a_head_begins_a_little_worse_than_uniform_attention(train):
    train, even = train
    losses = [even, train(8, steps=0), train(1, steps=0)]
    assert losses == pytest.approx([0.90, 1.00, 1.61], abs=0.03)
    words = "a loss of 0.90. The head with $\\sqrt p$ starts slightly above it, at 1.00. "
    assert f"{words}The head without a divisor starts much higher, at 1.61" in text_of("02_scoring_functions")


def test_more_training_helps_the_model_without_attention_but_does_not_cure_it():
    words = "the model writes 43 % of the words with twelve letters correctly, and 1 % of those with sixteen"
    assert words in text_of("02_scoring_functions")
    right = json.loads(package_data("models/weights/figures.json", "make weights"))[LONGER]
    assert (round(right["12"], 2), round(right["16"], 2)) == (0.43, 0.01)
