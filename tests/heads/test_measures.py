"""Each measure of a task's loss or of maps against its formula written as a plain loop."""

import math
from dataclasses import replace

import pytest
import torch
from head_models import TASK, encoder, encoder_decoder, examples

from mha_course.heads.ablation import ablation_values, evaluate, head_grid
from mha_course.heads.measures import measured

MODELS = {"encoder": encoder, "decoder": encoder_decoder}
MEASURES = {
    "leave_one_out": {}, "gate_gradient": {}, "integrated_gradients": {"steps": 2}, "confidence": {}, "entropy": {},
    "output_norm": {}, "shapley": {"num_orders": 3},
}  # fmt: skip


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


@pytest.fixture
def batch(model):
    return examples(model)


@pytest.fixture
def kept(model):
    """The first head of each block is gone."""
    kept = torch.ones(head_grid(model), dtype=torch.float64)
    kept[:, 0] = 0
    return kept


def mean_loss(model, batch, gates):
    return TASK.losses(model(batch.inputs, batch.valid_lens, gates), batch.targets).mean()


def values_of_heads(model, value):
    """``value(block, head)`` for every head, as a table."""
    num_blocks, num_heads = head_grid(model)
    table = [[value(block, head) for head in range(num_heads)] for block in range(num_blocks)]
    return torch.tensor(table, dtype=torch.float64)


def without(kept, block, head):
    kept = kept.clone()
    kept[block, head] = 0
    return kept


def test_leave_one_out_equals_a_plain_loop(model, batch, kept):
    for given, there in ((None, torch.ones_like(kept)), (kept, kept)):

        def drop(block, head, there=there):
            return TASK.accuracy(model, batch, there) - TASK.accuracy(model, batch, without(there, block, head))

        def rise(block, head, there=there):
            with torch.no_grad():
                return mean_loss(model, batch, without(there, block, head)) - mean_loss(model, batch, there)

        by_accuracy = measured(model, batch, TASK, "leave_one_out", "accuracy", kept=given)
        torch.testing.assert_close(by_accuracy, values_of_heads(model, drop), rtol=0, atol=1e-12)
        by_loss = measured(model, batch, TASK, "leave_one_out", kept=given)
        torch.testing.assert_close(by_loss, values_of_heads(model, rise))


@pytest.mark.parametrize("ablation", ["mean", "resample"])
def test_leave_one_out_ablates_as_it_is_told(model, batch, ablation):
    substitutes = ablation_values(model, batch, ablation)
    gates = torch.ones(head_grid(model))

    def rise(block, head):
        settings = torch.stack([gates, without(gates, block, head)])
        whole, ablated = evaluate(model, batch, TASK, settings, substitutes).loss
        return ablated - whole

    found = measured(model, batch, TASK, "leave_one_out", by=ablation)
    torch.testing.assert_close(found, values_of_heads(model, rise))
    assert not torch.allclose(found, measured(model, batch, TASK, "leave_one_out"))


def test_gradients_equal_one_example_at_a_time_and_the_path_its_midpoints(model, batch, kept):
    def one_by_one(gates):
        found = []
        for number in range(len(batch)):
            own = gates.clone().requires_grad_()
            mean_loss(model, batch[number : number + 1], own).backward()
            found.append(own.grad)
        return torch.stack(found)

    for name, points, options in (
        ("gate_gradient", [1.0], {}), ("integrated_gradients", [0.25, 0.75], {"steps": 2})
    ):  # fmt: skip
        for there in (torch.ones_like(kept), kept):
            each = -sum(one_by_one(point * there) for point in points) / len(points)
            for signed, expected in ((True, each.mean(dim=0)), (False, each.abs().mean(dim=0))):
                found = measured(model, batch, TASK, name, kept=there, signed=signed, **options)
                torch.testing.assert_close(found, expected * there)


def test_measures_of_maps_are_means_over_queries_that_are_no_padding(model, batch):
    def over_real_queries(of_row):
        def mean(block, head):
            weights = model.attention_weights[block][:, head]
            padded = list(model.blocks)[block] not in ("decoder", "cross")
            rows = [
                of_row(row[row > 0])
                for example, length in zip(weights, batch.valid_lens.tolist(), strict=True)
                for row in (example[:length] if padded else example)
            ]
            return sum(rows) / len(rows)

        with torch.no_grad():
            model(batch.inputs, batch.valid_lens)
        return values_of_heads(model, mean)

    entropies = over_real_queries(lambda row: sum(weight * math.log(weight) for weight in row))
    torch.testing.assert_close(measured(model, batch, TASK, "entropy"), entropies)
    torch.testing.assert_close(measured(model, batch, TASK, "confidence"), over_real_queries(max))
    some = over_real_queries(lambda row: max([*row[1:3], *row[4:]], default=0))
    torch.testing.assert_close(measured(model, batch, TASK, "confidence", ignore=(0, 3)), some)
    with pytest.raises(ValueError, match=r"ignore must hold positions from 0 to \d+, got \[99\]"):
        measured(model, batch, TASK, "confidence", ignore=(0, 99))


def test_output_norm_is_what_a_head_adds():
    model = encoder()
    batch = examples(model)
    real = torch.arange(7) < batch.valid_lens[:, None]
    with torch.no_grad():
        last_inputs = model.before_last_attention(batch.inputs, batch.valid_lens)
        first = model.embedding(batch.inputs)
        for block, inputs in enumerate([(first, first, batch.valid_lens), last_inputs]):
            X, _, lengths = inputs
            layer = model.attentions[block]
            nothing = layer(X, X, X, lengths, torch.zeros(3, dtype=torch.float64))
            added = [layer(X, X, X, lengths, gates) - nothing for gates in torch.eye(3, dtype=torch.float64)]
            expected = torch.stack([one[real].norm(dim=-1).mean() for one in added])
            torch.testing.assert_close(measured(model, batch, TASK, "output_norm")[block], expected)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_measure_has_the_shape_of_the_heads_and_leaves_no_trace(measure, model, batch):
    model.train()
    importance = measured(model.float(), batch, TASK, measure, **MEASURES[measure])
    assert (tuple(importance.shape), importance.dtype) == (head_grid(model), torch.float64)
    assert not importance.requires_grad and importance.isfinite().all()
    assert model.training and all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_what_does_not_fit_is_named():
    model = encoder()
    with pytest.raises(ValueError, match=r"kept must have shape \(2, 3\), got \(3, 2\)"):
        measured(model, examples(model), TASK, "entropy", kept=torch.ones(3, 2))
    with pytest.raises(ValueError, match="score must be one of loss, accuracy, got 'bleu'"):
        measured(model, examples(model), TASK, "leave_one_out", "bleu")


def test_a_model_without_padding():
    model = encoder()
    batch = replace(examples(model), valid_lens=None)
    torch.nn.init.zeros_(model.attentions[1].W_q.weight)
    torch.nn.init.zeros_(model.attentions[1].W_q.bias)
    expected = torch.full((3,), 1 / 7, dtype=torch.float64)
    torch.testing.assert_close(measured(model, batch, TASK, "confidence")[1], expected)
