"""What the cells of 01 and 02 define is right: each definition is held against the library on random input."""

import pytest
import torch
from notebook_tools import ROOT, cell_definitions

import mha_lib

DEFINED_IN_01 = [
    "nadaraya_watson",
    "boxcar",
    "constant",
    "gaussian",
    "gaussian_scores",
    "predict",
    "training_scores",
    "training_error",
    "learn_width",
    "leave_one_out_scores",
    "errors_by_width",
]
DEFINED_IN_02 = ["masked_softmax", "dot_product_attention", "additive_scores", "softmax_with_minus_a_million"]
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
    in_01["predict"].__globals__.update(x_train=keys, y_train=values, n_train=11, sigmas=torch.tensor([0.4, 1.7]))
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


def test_other_kernels_of_01(in_01, readings):
    queries, keys, values = readings
    everybody, weights = in_01["nadaraya_watson"](*readings, in_01["constant"])
    torch.testing.assert_close(everybody, values.mean().expand(7))
    assert weights.eq(weights[0, 0]).all()
    windowed, _ = in_01["nadaraya_watson"](*readings, in_01["boxcar"])
    for query, prediction in zip(queries, windowed, strict=True):
        near = values[(keys >= query - 0.5) & (keys <= query + 0.5)]
        torch.testing.assert_close(prediction, near.mean(), equal_nan=True)


@pytest.mark.parametrize("sigma", [0.3, 2.5])
def test_scores_of_01_and_their_softmax(in_01, readings, sigma):
    queries, keys, _ = readings
    scores = mha_lib.KernelPooling(sigma).scores(queries[None, :, None], keys[None, :, None])[0]
    torch.testing.assert_close(in_01["gaussian_scores"](queries, keys, sigma), scores)
    torch.testing.assert_close(in_01["predict"](queries, sigma), kernel_pooling(sigma, *readings)[0])


@pytest.mark.parametrize("w", [0.4, 3.0])
def test_training_errors_of_01(in_01, readings, w):
    _, keys, values = readings
    for scores, predictions in (
        (in_01["training_scores"](w), kernel_pooling(1 / w, keys, keys, values)[0]),
        (in_01["leave_one_out_scores"](w), left_out(1 / w, keys, values)),
    ):
        error = torch.nn.functional.mse_loss(predictions, values).sqrt()
        torch.testing.assert_close(in_01["training_error"](scores), error)


def test_errors_by_width_of_01(in_01, readings):
    queries, keys, values = readings
    targets = torch.randn(7)
    held_out = [(kernel_pooling(s, *readings)[0] - targets).square().mean().sqrt() for s in (0.4, 1.7)]
    torch.testing.assert_close(in_01["errors_by_width"](queries, targets, keys, values), torch.stack(held_out))
    alone = [(left_out(s, keys, values) - values).square().mean().sqrt() for s in (0.4, 1.7)]
    ours = in_01["errors_by_width"](keys, values, keys, values, leave_one_out=True)
    torch.testing.assert_close(ours, torch.stack(alone))


def test_no_width_beats_the_one_learned_in_01(in_01, readings):
    _, keys, values = readings
    w = in_01["learn_width"](in_01["leave_one_out_scores"], torch.tensor(1.0))
    learned, *others = (
        (left_out(1 / width, keys, values) - values).square().mean().sqrt()
        for width in [w.item(), *torch.logspace(-1, 1, 40).tolist()]
    )
    assert learned < min(others) + 0.001


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


def test_a_million_below_zero_of_02_is_right_for_common_scores(in_02):
    scores = torch.randn(2, 3, 6)
    valid = torch.arange(6) < 4
    ours = in_02["softmax_with_minus_a_million"](scores, valid)
    expected = mha_lib.masked_softmax(scores, torch.tensor([4, 4]))
    torch.testing.assert_close(torch.tensor(ours), expected)
