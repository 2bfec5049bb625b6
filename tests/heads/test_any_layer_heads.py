"""Every measure of heads on layers of other classes: the library's numbers, or a sentence on what is lacking."""

import pytest
import torch
from learners_layers import FixedSizes, LoopOverHeads, OfTheBook, OtherNames, WithoutGates
from on_device import DEVICE
from torch import nn

from mha_course.heads import evaluate, prune, prune_attention
from mha_course.heads.measures import measured
from mha_course.models import find_task, shipped_model, with_layer

TASK = find_task("lookups")
BATCH = TASK.held_out[:16].to(DEVICE)
WITH_W_O = [OfTheBook, WithoutGates, FixedSizes]
FOUND = [*WITH_W_O, OtherNames]


def renamed(model):
    """A model with the trained weights in the layer that has other names."""
    made = with_layer(model, OfTheBook)
    for block, ours in zip(made.blocks.values(), model.attentions, strict=True):
        block.attention = OtherNames(48, 6)
        for theirs, name in zip(("q_proj", "k_proj", "v_proj", "out_proj"), "qkvo", strict=True):
            setattr(block.attention, theirs, getattr(ours, f"W_{name}"))
    return made.eval()


@pytest.fixture(scope="module")
def model():
    return shipped_model("lookups")


@pytest.fixture(params=FOUND, ids=lambda Layer: Layer.__name__)
def inside(request, model):
    return renamed(model) if request.param is OtherNames else with_layer(model, request.param)


@pytest.mark.parametrize(
    ("measure", "options"),
    [
        ("leave_one_out", {"score": "accuracy"}),
        ("leave_one_out", {"by": "mean"}),
        ("leave_one_out", {"by": "resample"}),
        ("gate_gradient", {"signed": False}),
        ("output_norm", {}),
        ("confidence", {}),
    ],
    ids=str,
)
def test_measures(model, inside, measure, options):
    found, expected = (measured(one, BATCH, TASK, measure, **options) for one in (inside, model))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("Layer", [*FOUND, LoopOverHeads], ids=lambda Layer: Layer.__name__)
def test_sets_of_heads(model, Layer):
    inside = renamed(model) if Layer is OtherNames else with_layer(model, Layer)
    gates = torch.randint(2, (40, 2, 6), generator=torch.Generator().manual_seed(0))
    found, expected = (evaluate(one, BATCH[:2], TASK, gates).loss for one in (inside, model))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("Layer", [OfTheBook, WithoutGates, LoopOverHeads], ids=lambda Layer: Layer.__name__)
@pytest.mark.parametrize(
    "plan", [{"layer 0": [0, 2, 5], "layer 1": [0, 1, 2, 3, 4]}, {"layer 0": [*range(6)], "layer 1": [1, 3, 4, 5]}]
)
def test_heads_are_removed_from_a_learners_layer(model, Layer, plan):
    inside = with_layer(model, Layer)
    inside(BATCH.inputs)  # keeps weights that have a gradient
    pruned, left = prune(inside.train(), remove=plan), 6 - len(plan["layer 1"])
    assert type(pruned.attentions[1]) is Layer and pruned.attentions[1].num_heads == left
    assert pruned.attentions[1].training and inside.attentions[1].training
    assert pruned.attentions[1].W_o.weight.shape == (48, 8 * left)
    with torch.no_grad():
        expected = prune(model, remove=plan)(BATCH.inputs)
        torch.testing.assert_close(pruned.eval()(BATCH.inputs), expected, rtol=1e-4, atol=1e-4)
    pruned(BATCH.inputs).sum().backward()


def test_what_a_layer_lacks_for_a_measure_is_named(model):
    other, loop = renamed(model), with_layer(model, LoopOverHeads)
    with pytest.raises(TypeError, match=r"LoopOverHeads must call W_o as a layer, self.W_o\(heads\)"):
        evaluate(loop, BATCH, TASK, torch.ones(1, 2, 6), [torch.zeros(6, 1, 8)] * 2)
    with pytest.raises(TypeError, match=r"layer 0.attention: .* the output projection must be called as a module; bl"):
        measured(loop, BATCH, TASK, "leave_one_out")
    with pytest.raises(TypeError, match=r"OtherNames must have W_o as nn.Linear"):
        prune(other, remove={"layer 0": [1]})


def test_a_layer_that_does_not_say_how_many_heads_it_has_is_named(model):
    inside = with_layer(model, OfTheBook)
    del inside.attentions[1].num_heads
    with pytest.raises(TypeError, match=r"OfTheBook must have num_heads: store it in __init__, self.num_heads"):
        measured(inside, BATCH, TASK, "leave_one_out")


def test_a_layer_that_would_compute_something_else_without_heads_is_not_cut(model):
    with pytest.raises(
        ValueError, match="cannot be cut: with the rows of 2 of its heads, FixedSizes computes something"
    ):
        prune(with_layer(model, FixedSizes), remove={"layer 0": [0, 3, 4, 5]})

    class Merges(OfTheBook):
        def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
            return super().forward(queries, keys, values, valid_lens, head_mask)

        def split(self, X):
            return super().split(X.view(*X.shape[:2], 6 * 8))

    with pytest.raises(ValueError, match="with the rows of 2 of its heads, Merges raises RuntimeError"):
        prune(with_layer(model, Merges), remove={"layer 0": [0, 3, 4, 5]})


def test_a_wrong_split_is_measured_as_it_is(model):
    class Wrong(OfTheBook):
        def split(self, X):
            return X.reshape(len(X) * self.num_heads, X.shape[1], -1)

    inside = with_layer(model, Wrong)
    gates = torch.ones(1, 2, 6)
    with torch.no_grad():
        logits = TASK.logits(inside(BATCH.inputs)).flatten(0, -2)
        expected = nn.functional.cross_entropy(logits, BATCH.targets.flatten())
    assert evaluate(inside, BATCH, TASK, gates).loss.item() == pytest.approx(expected.item(), rel=1e-4)
    with pytest.raises(ValueError, match=r"Wrong computes something else. Its forward should give head i its own rows"):
        prune_attention(inside.attentions[0], [0, 1])
