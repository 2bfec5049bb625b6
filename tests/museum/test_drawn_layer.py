"""A layer with a fault drawn by a seed: each fault is a row of the table, is visible, and only a good test sees all."""

import pytest
import torch
from torch.nn import functional as F

from mha_course.museum import drawn_layer
from mha_course.museum.drawn_layer import (
    LAYER_FAULTS,
    check_layer_fault,
    check_layer_test,
    layer_fault_of,
    layer_test_points,
    made,
)
from mha_course.museum.wrong_attention import wrong_attentions

SEED_OF = {layer_fault_of(seed): seed for seed in range(300, 0, -1)}
ALL = pytest.mark.parametrize("fault", LAYER_FAULTS)


def reference(layer, queries, keys, values, lens):
    """By torch's own function, a head at a time."""
    p = layer.num_hiddens // layer.num_heads
    keep = torch.arange(keys.shape[1]) < lens[:, None, None]
    outputs = []
    for i in range(layer.num_heads):
        own = [linear(X)[..., i * p : (i + 1) * p] for linear, X in zip(
            (layer.W_q, layer.W_k, layer.W_v), (queries, keys, values), strict=True)]  # fmt: skip
        outputs.append(F.scaled_dot_product_attention(*own, attn_mask=keep))
    return layer.W_o(torch.cat(outputs, dim=-1))


def worked_test(layer):
    """Sizes differ, so do lengths, and some scores are large."""
    for size in (1, 10**6):
        torch.manual_seed(size)
        queries, keys, values = (torch.randn(3, n, layer.num_hiddens) for n in (4, 6, 6))
        lens = torch.tensor([6, 2, 3])
        given = size * queries, keys, values, lens
        assert torch.allclose(layer(*given), reference(layer, *given), atol=1e-3)


def shape_test(layer):
    X = torch.randn(2, 5, layer.num_hiddens)
    assert layer(X, X, X, torch.tensor([5, 2])).shape == X.shape


def test_a_right_layer_is_the_formula():
    worked_test(made("", 3))
    layer, X = made("", 5), torch.randn(2, 5, made("", 5).num_hiddens)
    layer(X, X, X, torch.tensor([5, 2]))
    weights = layer.attention_weights
    assert weights.shape == (2, layer.num_heads, 5, 5) and not weights[1, :, :, 2:].any()
    assert weights.sum(-1).allclose(torch.ones(()))


@ALL
def test_a_fault_is_a_row_of_the_table_changes_numbers_and_no_shape(fault):
    assert LAYER_FAULTS[fault] in dict(wrong_attentions())
    layer = made(fault, 4)
    shape_test(layer)
    with pytest.raises(AssertionError):
        worked_test(layer)


def test_every_fault_is_drawn():
    assert SEED_OF.keys() == LAYER_FAULTS.keys()
    assert len({tuple(one.W_q.weight.shape) for one in map(drawn_layer.drawn_layer, range(12))}) > 3


def test_points_are_for_a_test_of_the_fault_and_of_others():
    assert layer_test_points(worked_test, 3).given == [10, 6]
    assert layer_test_points(shape_test, 3).given == [0, 0]
    assert layer_test_points(lambda layer: False, 3).given == [0, 0]
    nothing = layer_test_points(..., 3)
    assert nothing.total == 0 and "Give the function itself" in repr(nothing)


def test_a_fault_is_named_or_another_or_none():
    assert check_layer_fault(layer_fault_of(3), 3)
    another = check_layer_fault(next(name for name in LAYER_FAULTS if name != layer_fault_of(3)), 3)
    assert another.state == "wrong" and layer_fault_of(3) not in repr(another)
    assert check_layer_fault(..., 3).state == check_layer_fault("something", 3).state == "not yet"


def test_a_test_of_one_fault_has_no_points_for_another():
    """A look at padding alone finds the faults of masks, and no others."""

    def padding(layer):
        X = torch.randn(2, 6, layer.num_hiddens)
        other = X.clone()
        other[1, 2:] += 5
        lens = torch.tensor([6, 2])
        return torch.allclose(layer(X, X, X, lens), layer(X, other, other, lens), atol=1e-4)

    assert layer_test_points(padding, SEED_OF["masked scores 0"]).given[0] == 10
    assert layer_test_points(padding, SEED_OF["no scale"]).given == [0, 0]
    assert check_layer_test(padding, SEED_OF["no scale"]).state == "not yet"


def test_what_a_layer_shows_of_its_code_does_not_name_the_fault():
    layer = made("no scale", 3)
    code = layer._attention.__code__
    assert len({len(made("no scale", 3)._attention.__code__.co_code) for _ in range(8)}) > 1
    assert not any(name in repr(vars(layer)) + repr(code.co_consts) for name in LAYER_FAULTS)
