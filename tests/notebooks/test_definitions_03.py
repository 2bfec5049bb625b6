"""What the cells of 03 define is right: each definition is held against a reference on random input."""

import pytest
import torch
from notebook_tools import ROOT, cell_definitions

from mha_lib import MultiHeadAttention
from mha_lib.attention import other_libraries

DEFINED_IN_03 = ["one_head", "loop_over_heads", "split_heads", "all_heads_at_once"]


@pytest.fixture(scope="module")
def in_03():
    return cell_definitions(ROOT / "notebooks" / "03_multi_head_attention.ipynb", DEFINED_IN_03)


@pytest.fixture
def layer():
    torch.manual_seed(3)
    return MultiHeadAttention(num_hiddens=12, num_heads=3, query_size=5, key_size=7, value_size=8).double()


@pytest.fixture
def sequences():
    torch.manual_seed(4)
    return tuple(torch.randn(2, number, size).double() for number, size in ((4, 5), (6, 7), (6, 8)))


def stacked(layer):
    return [W.weight.detach() for W in (layer.W_q, layer.W_k, layer.W_v)], layer.W_o.weight.detach()


LENGTHS = [torch.tensor([5, 2]), torch.tensor([0, 6]), torch.tensor([[1, 6, 3, 2], [4, 0, 5, 6]])]


@pytest.mark.parametrize("valid_lens", LENGTHS)
def test_loop_and_all_at_once_of_03(in_03, layer, sequences, valid_lens):
    expected = other_libraries.loop_over_heads(layer, *sequences, valid_lens)
    (W_q, W_k, W_v), W_o = stacked(layer)
    loop = in_03["loop_over_heads"](*sequences, valid_lens, W_q.chunk(3), W_k.chunk(3), W_v.chunk(3), W_o)
    at_once = in_03["all_heads_at_once"](*sequences, valid_lens, W_q, W_k, W_v, W_o, num_heads=3)
    for result in (loop, at_once):
        for ours, theirs in zip(result, expected, strict=True):
            torch.testing.assert_close(ours, theirs.detach(), rtol=0, atol=1e-12)
