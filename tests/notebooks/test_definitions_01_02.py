"""What the cells of 01 and 02 define is right: each definition is held against the library on random input."""

import math

import pytest
import torch
from notebook_tools import ROOT, cell_definitions

import mha_lib

DEFINED_IN_01 = [
    "nadaraya_watson",
    "boxcar",
    "gaussian",
    "gaussian_scores",
    "pool",
    "training_error",
    "learn_width",
    "errors_by_width",
]
DEFINED_IN_02 = ["masked_softmax", "dot_product_attention", "additive_scores"]
NOBODY = torch.tensor(False)
LENGTHS = [None, torch.tensor([5, 0, 2]), torch.tensor([[1, 6, 0, 2], [4, 0, 5, 6], [3, 3, 1, 0]])]


@pytest.fixture(scope="module")
def in_01():
    return cell_definitions(ROOT / "notebooks" / "01_attention_pooling.ipynb", DEFINED_IN_01)


@pytest.fixture(scope="module")
def in_02():
    return cell_definitions(ROOT / "notebooks" / "02_scoring_functions.ipynb", DEFINED_IN_02)


@pytest.fixture
def readings(in_01):
    """Queries, keys and values; keys and values are what the definitions know as training data."""
    torch.manual_seed(5)
    queries, keys = 4 * torch.rand(7), 4 * torch.rand(11)
    values = torch.sin(2 * keys) + 0.3 * torch.randn(11)
    in_01["pool"].__globals__.update(x_train=keys, y_train=values)
    return queries, keys, values


@pytest.fixture
def sequences():
    torch.manual_seed(6)
    return tuple(torch.randn(3, number, size) for number, size in ((4, 5), (6, 5), (6, 2)))


def kernel_pooling(bandwidth, queries, keys, values):
    layer = mha_lib.KernelPooling(bandwidth)
    output = layer(queries[None, :, None], keys[None, :, None], values[None, :, None])
    return output[0, :, 0], layer.attention_weights[0]


def left_out(bandwidth, keys, values):
    """Every key's value as the other keys predict it, one at a time."""
    others = [torch.arange(len(keys)) != i for i in range(len(keys))]
    return torch.cat([kernel_pooling(bandwidth, keys[~o], keys[o], values[o])[0] for o in others])


def test_gaussian_kernel_of_01_is_kernel_pooling(in_01, readings):
    for ours, theirs in zip(
        in_01["nadaraya_watson"](*readings, in_01["gaussian"]), kernel_pooling(1.0, *readings), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_boxcar_of_01_averages_what_is_within_half_an_hour(in_01, readings):
    queries, keys, values = readings
    windowed, _ = in_01["nadaraya_watson"](*readings, in_01["boxcar"])
    for query, prediction in zip(queries, windowed, strict=True):
        near = values[(keys >= query - 0.5) & (keys <= query + 0.5)]
        torch.testing.assert_close(prediction, near.mean(), equal_nan=True)


@pytest.mark.parametrize("sigma", [0.3, 2.5])
def test_scores_of_01_and_their_softmax(in_01, readings, sigma):
    queries, keys, _ = readings
    scores = mha_lib.KernelPooling(sigma).scores(queries[None, :, None], keys[None, :, None])[0]
    torch.testing.assert_close(in_01["gaussian_scores"](queries, keys, sigma), scores)
    torch.testing.assert_close(in_01["pool"](queries, sigma), kernel_pooling(sigma, *readings)[0])


@pytest.mark.parametrize("w", [0.4, 3.0])
def test_errors_of_01_with_and_without_a_mask(in_01, readings, w):
    queries, keys, values = readings
    for hidden, predictions in (
        (NOBODY, kernel_pooling(1 / w, keys, keys, values)[0]),
        (torch.eye(11, dtype=torch.bool), left_out(1 / w, keys, values)),
    ):
        error, weights = in_01["training_error"](w, hidden)
        torch.testing.assert_close(error, torch.nn.functional.mse_loss(predictions, values).sqrt())
        torch.testing.assert_close(weights @ values, predictions)
        in_01["errors_by_width"].__globals__["sigmas"] = torch.tensor([9.0, 1 / w])
        torch.testing.assert_close(in_01["errors_by_width"](keys, values, keys, values, hidden)[1], error)
    expected = (kernel_pooling(1 / w, *readings)[0] - queries).square().mean().sqrt()
    torch.testing.assert_close(in_01["errors_by_width"](queries, queries, keys, values, NOBODY)[1], expected)


def test_no_width_beats_the_one_learned_in_01(in_01, readings):
    _, keys, values = readings
    w = in_01["learn_width"](torch.eye(11, dtype=torch.bool))
    learned, *others = (
        (left_out(1 / width, keys, values) - values).square().mean().sqrt()
        for width in [w, *torch.logspace(-1, 1, 40).tolist()]
    )
    assert learned < min(others) + 0.001


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
