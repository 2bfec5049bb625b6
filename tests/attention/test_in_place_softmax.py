"""Without gradients the softmax writes into its scores: never into a caller's tensor, nor where that cannot be done."""

import pytest
import torch
from torch.func import vmap

from mha_lib import masked_softmax
from mha_lib.attention import FusedAttention


@pytest.mark.parametrize("valid_lens", [None, torch.tensor([3, 0])])
def test_reading_weights_leaves_queries_and_keys_alone(valid_lens):
    queries, keys = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    copies = queries.clone(), keys.clone()
    layer = FusedAttention()
    layer(queries, keys, keys, valid_lens)
    first = layer.attention_weights
    assert torch.equal(layer.attention_weights, first)
    assert torch.equal(queries, copies[0]) and torch.equal(keys, copies[1])


@torch.no_grad()
def test_vmap_without_gradients():
    scores, valid_lens = torch.randn(3, 5, 6), torch.randint(0, 7, (4, 3))
    expected = torch.stack([masked_softmax(scores, lengths) for lengths in valid_lens])
    torch.testing.assert_close(vmap(masked_softmax, (None, 0))(scores, valid_lens), expected)


@torch.no_grad()
def test_the_scores_of_the_caller_stay():
    scores = torch.randn(3, 5, 6)
    before = scores.clone()
    for valid_lens in (None, torch.tensor([0, 6, 2])):
        masked_softmax(scores, valid_lens)
        assert torch.equal(scores, before)
