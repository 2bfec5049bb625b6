"""masked_softmax: whose weights are 0, what the rest sum to, and what must not matter."""

import pytest
import references
import torch
from references import assert_same, random_numbers

from mha_lib import masked_softmax

LENGTHS = {
    "none": None,
    "per example": torch.tensor([4, 0, 6]),
    "per query": torch.tensor([[1, 2, 0, 4, 5], [6, 1, 6, 1, 2], [0, 0, 0, 0, 0]]),
    "float": torch.tensor([4.0, 0.0, 6.0]),
}


@pytest.mark.parametrize("valid_lens", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("heads", [(), (4,)])
def test_agrees_with_softmax_over_the_valid_part_of_each_row(heads, valid_lens):
    scores = random_numbers(3, *heads, 5, 6)
    assert_same(masked_softmax(scores, valid_lens), references.masked_softmax(scores.numpy(), valid_lens))


def test_an_example_worked_by_hand():
    weights = masked_softmax(torch.tensor([[[1.0, 0.0, -1.0, 7.0, 7.0, 7.0]]]), torch.tensor([3]))
    assert [round(weight, 3) for weight in weights.flatten().tolist()] == [0.665, 0.245, 0.09, 0, 0, 0]


@pytest.mark.parametrize("junk", [torch.nan, torch.inf, -torch.inf, 1e300])
def test_what_stands_at_invalid_keys_has_no_effect(junk):
    scores, valid_lens = random_numbers(3, 5, 6), LENGTHS["per query"]
    spoilt = torch.where(torch.arange(6) < valid_lens[:, :, None], scores, junk).requires_grad_()
    weights = masked_softmax(spoilt, valid_lens)
    assert torch.equal(weights, masked_softmax(scores, valid_lens))
    weights.square().sum().backward()
    assert spoilt.grad.isfinite().all()
    assert (spoilt.grad[torch.arange(6) >= valid_lens[:, :, None]] == 0).all()
    assert (spoilt.grad[valid_lens > 1][:, 0] != 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_precision_keeps_its_dtype_and_has_no_nan(dtype):
    weights = masked_softmax(random_numbers(3, 5, 6).to(dtype), LENGTHS["per example"])
    assert weights.dtype == dtype
    assert (weights[1] == 0).all()
    torch.testing.assert_close(weights[[0, 2]].sum(-1), torch.ones(2, 5, dtype=dtype))


def test_scores_are_not_written_to_and_may_be_a_leaf_with_gradient():
    scores = random_numbers(3, 5, 6).requires_grad_()
    before = scores.detach().clone()
    masked_softmax(scores, LENGTHS["per example"]).sum().backward()
    assert torch.equal(scores, before)
    assert scores._version == 0


INTEGERS = [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.float16, torch.float64])
def test_lengths_of_any_number_type(dtype):
    scores = random_numbers(3, 5, 300)
    valid_lens = torch.tensor([4, 0, 100], dtype=dtype)
    assert_same(masked_softmax(scores, valid_lens), references.masked_softmax(scores.numpy(), valid_lens))


@pytest.mark.parametrize("dtype, length", [(torch.bfloat16, 260), (torch.float16, 2052)])
def test_lengths_in_low_precision_keep_their_last_key(dtype, length):
    weights = masked_softmax(torch.zeros(1, 1, length + 10), torch.tensor([length], dtype=dtype))
    assert (weights > 0).sum() == length
