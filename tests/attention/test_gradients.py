"""Analytic gradients against finite differences, in float64."""

import pytest
import torch
from references import FORMULA, KERNEL, on_path, random_numbers
from torch import nn
from torch.autograd import gradcheck
from torch.func import functional_call

from mha_lib import AdditiveAttention, DotProductAttention, KernelPooling, MultiHeadAttention, masked_softmax

LENGTHS = {
    "all": None,
    "per example": torch.tensor([2, 0]),
    "per query": torch.tensor([[1, 2, 0], [3, 4, 2]]),
}
both_paths = pytest.mark.parametrize("path", [KERNEL, FORMULA])
every_length = pytest.mark.parametrize("valid_lens", LENGTHS.values(), ids=LENGTHS)


def differentiable(*shape: int) -> torch.Tensor:
    return random_numbers(*shape).requires_grad_()


def sequences(query_size: int, key_size: int, value_size: int) -> tuple[torch.Tensor, ...]:
    return differentiable(2, 3, query_size), differentiable(2, 4, key_size), differentiable(2, 4, value_size)


def check_gradients(layer: nn.Module, *inputs: torch.Tensor, valid_lens) -> None:
    """gradcheck over queries, keys, values, perhaps gates, and all parameters of ``layer`` that can be trained."""
    parameters = {name: parameter for name, parameter in layer.named_parameters() if parameter.requires_grad}

    def call(*tensors):
        state = dict(zip(parameters, tensors, strict=False))
        names = ("queries", "keys", "values", "head_mask")
        given = dict(zip(names, tensors[len(parameters) :], strict=False))
        return functional_call(layer, state, kwargs={**given, "valid_lens": valid_lens})

    assert gradcheck(call, (*parameters.values(), *inputs))


@every_length
def test_masked_softmax(valid_lens):
    for heads in ((), (2,)):
        scores = differentiable(2, *heads, 3, 4)
        assert gradcheck(lambda scores: masked_softmax(scores, valid_lens), (scores,))


@every_length
@both_paths
@pytest.mark.parametrize("gates", [(2,), (2, 2)], ids=str)
def test_multi_head_attention(valid_lens, path, gates):
    torch.manual_seed(0)
    layer = MultiHeadAttention(4, 2, bias=True, query_size=2, key_size=3, value_size=5).double()
    layer = on_path(layer, path)
    check_gradients(layer, *sequences(2, 3, 5), differentiable(*gates), valid_lens=valid_lens)


@every_length
@both_paths
def test_dot_product_attention(valid_lens, path):
    layer = on_path(DotProductAttention(), path)
    check_gradients(layer, *sequences(2, 2, 3), valid_lens=valid_lens)


@every_length
def test_additive_attention(valid_lens):
    torch.manual_seed(0)
    layer = AdditiveAttention(3, query_size=2, key_size=4).double()
    check_gradients(layer, *sequences(2, 4, 3), valid_lens=valid_lens)


@every_length
@pytest.mark.parametrize("learnable", [False, True])
def test_kernel_pooling(valid_lens, learnable):
    layer = KernelPooling(0.7, learnable).double()
    assert [name for name, p in layer.named_parameters() if p.requires_grad] == ["log_bandwidth"] * learnable
    check_gradients(layer, *sequences(2, 2, 3), valid_lens=valid_lens)
