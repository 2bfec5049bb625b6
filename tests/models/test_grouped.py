"""A model whose heads share keys and values, made of one whose heads do not."""

import pytest
import torch
from on_device import DEVICE

from mha_course.models import find_task, to_grouped


@pytest.fixture
def model():
    torch.manual_seed(0)
    return find_task("digits").model().eval()


def tie(model, num_groups):
    """Give neighbouring heads the keys and values of the first of their group."""
    for layer in model.attentions:
        for W in (layer.W_k, layer.W_v):
            for parameter in W.parameters():
                heads = parameter.data.unflatten(0, (num_groups, -1, layer.head_size))
                heads.copy_(heads[:, :1].expand_as(heads).clone())


@pytest.mark.parametrize("how", ["mean", "first"])
@pytest.mark.parametrize("num_groups", [1, 2, 3])
def test_tied_heads_give_the_same_model(model, num_groups, how):
    tie(model, num_groups)
    grouped, batch = to_grouped(model, num_groups, how), find_task("digits").held_out[:20].to(DEVICE)
    torch.testing.assert_close(grouped(batch.inputs), model(batch.inputs))
    layer = grouped.attentions[0]
    assert layer.W_k.weight.shape == (num_groups * layer.head_size, layer.num_hiddens)
    assert layer.W_k.out_features == len(layer.W_k.weight)


def test_mean_and_first_head(model):
    W = model.attentions[1].W_v.weight.detach().clone()
    size = model.attentions[1].head_size
    mean, first = (to_grouped(model, 3, how).attentions[1].W_v.weight for how in ("mean", "first"))
    torch.testing.assert_close(mean[:size], (W[:size] + W[size : 2 * size]) / 2)
    torch.testing.assert_close(first[size : 2 * size], W[2 * size : 3 * size])
    assert torch.equal(model.attentions[1].W_v.weight, W)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((4,), "num_key_value_heads must divide num_heads"), ((2, "last"), 'how must be "mean" or "first", got \'last\'')],
)
def test_what_cannot_be_is_named(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        to_grouped(model, *arguments)


def test_a_grouped_model_is_not_grouped_again(model):
    with pytest.raises(ValueError, match="share keys and values already"):
        to_grouped(to_grouped(model, 2), 2)
