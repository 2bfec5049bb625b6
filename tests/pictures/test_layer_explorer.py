"""The layer explorer on the reader's own layer: its weights are the layer's, cut into as many heads as asked for."""

import pytest
import torch
import traitlets
from layer_of_lookups import layer_of_lookups

from mha_course import exercises, pictures
from mha_course.models.shipped import shipped_model
from mha_course.models.tasks import find_task
from mha_lib import MultiHeadAttention

SIZES = {"query_size": 8, "key_size": 6, "value_size": 6}


def own_layer():
    torch.manual_seed(3)
    layer = MultiHeadAttention(12, 3, bias=True, **SIZES)
    return layer, torch.randn(3, 2, 8), torch.randn(3, 5, 6)


def test_weights_are_those_of_the_readers_layer():
    layer, queries, keys = own_layer()
    explorer = pictures.LayerExplorer(layer, queries, keys, valid_lens=torch.tensor([5, 0, 2]))
    with torch.no_grad():
        layer(queries, keys, keys, torch.tensor([5, 0, 2]))
    torch.testing.assert_close(explorer.weights(), layer.attention_weights)
    assert explorer.valid_lens == [5, 0, 2]
    explorer.num_heads = 6
    assert explorer.weights().shape == (3, 6, 2, 5)
    assert layer.num_heads == 3, "the reader's layer stays as it is"


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_of_another_class_is_shown_with_its_own_weights(bias):
    torch.manual_seed(1)
    layer, X = exercises.my_layer()(12, 3, bias=bias), torch.randn(2, 5, 12)
    with torch.no_grad():
        layer(X, X, X, torch.tensor([5, 3]))
    explorer = pictures.LayerExplorer(layer, X, X, valid_lens=[5, 3])
    torch.testing.assert_close(explorer.weights(), layer.attention_weights)


def test_it_opens_where_one_head_outdoes_all_others():
    layer, queries, keys = own_layer()
    torch.manual_seed(5)
    explorer = pictures.LayerExplorer(layer, queries, keys, valid_lens=[5, 4, 2], example=1)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), drawn), "no random number is used up"
    lead = {}
    for head, rows in enumerate(explorer.weights()[1].flatten(1).tolist()):
        for cell, weight in enumerate(rows):
            others = [own.flatten()[cell].item() for h, own in enumerate(explorer.weights()[1]) if h != head]
            lead[head, cell] = weight - max(others)
    assert (explorer.head, explorer.cell) == max(lead, key=lead.get)
    assert pictures.LayerExplorer(layer, queries, keys, cell=3).head == 0


def test_head_stays_among_the_heads():
    explorer = pictures.LayerExplorer(*own_layer(), head=2)
    explorer.num_heads = 2
    assert explorer.head == 1


@pytest.mark.parametrize(
    ("choice", "value", "message"),
    [
        ("num_heads", 5, r"num_heads must be one of \[1, 2, 3, 4, 6, 12\], got 5"),
        ("valid_lens", [5, 5], "valid_lens must be 3 whole numbers from 0 to 5"),
        ("valid_lens", [5, 5, 6], "valid_lens must be 3 whole numbers from 0 to 5"),
        ("valid_lens", torch.tensor([1.5, 2, 3]), "valid_lens must be 3 whole numbers"),
        ("cell", 10, "cell must be between 0 and 9, got 10"),
        ("example", 3, "example must be between 0 and 2"),
    ],
)
def test_a_wrong_choice_is_named(choice, value, message):
    explorer = pictures.LayerExplorer(*own_layer())
    with pytest.raises(traitlets.TraitError, match=message):
        setattr(explorer, choice, value)


def test_tensors_that_do_not_fit_are_named():
    layer, queries, keys = own_layer()
    with pytest.raises(ValueError, match=r"keys must have shape \(batch, tokens, 6\), got \(3, 2, 8\)"):
        pictures.LayerExplorer(layer, queries, queries)
    with pytest.raises(ValueError, match="one batch size, got 3 and 2"):
        pictures.LayerExplorer(layer, queries, keys[:2])
    with pytest.raises(ValueError, match="key_names"):
        pictures.LayerExplorer(layer, queries, keys, key_names=["abcde", "abcd", "abcde"])


def test_the_shipped_layer_has_its_own_maps_and_names():
    explorer, task = layer_of_lookups(), find_task("lookups")
    model = shipped_model("lookups")
    with torch.no_grad():
        X = model.embedding(task.held_out.inputs[:2])
        model.attentions[0](X, X, X, torch.tensor([12, 8]))
    torch.testing.assert_close(explorer.weights(), model.attentions[0].attention_weights)
    values = task.held_out.inputs[:2, :, 0].tolist()
    assert [[int(name.split()[0]) for name in own] for own in explorer.data["key_names"]] == values
    assert "6 heads of 8 features; sequence 1 has 8 valid keys" in repr(explorer)
