"""What the cells of 03 and 04 define is right: each definition is held against a reference on random input."""

import re

import pytest
import torch
from notebook_tools import ROOT, cell_definitions

from mha_lib import MultiHeadAttention
from mha_lib.attention import other_libraries

DEFINED_IN_03 = ["one_head", "loop_over_heads", "split_heads", "all_heads_at_once"]
DEFINED_IN_04 = ["transpose_qkv", "transpose_output", "wrong_transpose_qkv", "multi_head_attention"]


@pytest.fixture(scope="module")
def in_03():
    return cell_definitions(ROOT / "notebooks" / "03_multi_head_attention.ipynb", DEFINED_IN_03)


@pytest.fixture(scope="module")
def in_04():
    return cell_definitions(ROOT / "notebooks" / "04_transpose_qkv.ipynb", DEFINED_IN_04)


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


def test_transpose_qkv_and_back_of_04(in_04):
    X = torch.randn(2, 4, 15)
    folded = in_04["transpose_qkv"](X, 3)
    wrong = in_04["wrong_transpose_qkv"](X, 3)
    for i, h in torch.cartesian_prod(torch.arange(2), torch.arange(3)):
        assert torch.equal(folded[i * 3 + h], X[i, :, h * 5 : h * 5 + 5])
    assert torch.equal(in_04["transpose_output"](folded, 3), X)
    assert wrong.shape == folded.shape and not torch.equal(wrong, folded)


def test_the_layer_of_04(in_04, layer, sequences):
    valid_lens = torch.tensor([5, 2])
    expected, _ = other_libraries.loop_over_heads(layer, *sequences, valid_lens)
    split_and_merge = in_04["transpose_qkv"], in_04["transpose_output"]
    output = in_04["multi_head_attention"](layer, *sequences, valid_lens, *split_and_merge)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


def test_what_04_says_of_models_that_learned_with_the_shortcut_was_measured():
    text = (ROOT / "notebooks" / "04_transpose_qkv.ipynb").read_text(encoding="utf-8")
    report = (ROOT / "benchmarks" / "wrong_reshape.md").read_text(encoding="utf-8").splitlines()[4:]
    right, after, learned = zip(*([float(cell) for cell in row.split("|")[2:5]] for row in report), strict=True)
    digits, lookups = 0, 1
    said = re.findall(r"digits model then gets ([\d.]+) of the images|fall from (\d.\d+) to (\d.\d+)", text)
    assert "".join(said[0]) == f"{learned[digits]:.2f}" and learned[digits] >= right[digits] > after[digits]
    assert said[1][1:] == (f"{right[lookups]:.2f}", f"{learned[lookups]:.2f}")
