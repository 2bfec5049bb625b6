"""What the cells of 02 define is right: each definition is held against the library on random input."""

import math

import pytest
import torch
from notebook_tools import ROOT, cell_definitions

import mha_lib

DEFINED_IN_02 = ["masked_softmax", "dot_product_attention", "additive_scores"]
LENGTHS = [None, torch.tensor([5, 0, 2]), torch.tensor([[1, 6, 0, 2], [4, 0, 5, 6], [3, 3, 1, 0]])]


@pytest.fixture(scope="module")
def in_02():
    return cell_definitions(ROOT / "notebooks" / "02_scoring_functions.ipynb", DEFINED_IN_02)


@pytest.fixture
def sequences():
    torch.manual_seed(6)
    return tuple(torch.randn(3, number, size) for number, size in ((4, 5), (6, 5), (6, 2)))


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


@pytest.mark.parametrize("valid_lens", LENGTHS, ids=["none", "per example", "per query"])
def test_masked_softmax_and_dot_product_of_02(in_02, sequences, valid_lens):
    scores = torch.randn(3, 4, 6)
    torch.testing.assert_close(in_02["masked_softmax"](scores, valid_lens), mha_lib.masked_softmax(scores, valid_lens))
    layer = mha_lib.DotProductAttention()
    expected = layer(*sequences, valid_lens), layer.attention_weights
    for ours, theirs in zip(in_02["dot_product_attention"](*sequences, valid_lens), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_additive_scores_of_02(in_02):
    layer = mha_lib.AdditiveAttention(num_hiddens=6, query_size=5, key_size=7)
    queries, keys = torch.randn(2, 3, 5), torch.randn(2, 4, 7)
    ours = in_02["additive_scores"](queries, keys, layer.W_q.weight, layer.W_k.weight, layer.w_v.weight[0])
    torch.testing.assert_close(ours, layer.scores(queries, keys))
