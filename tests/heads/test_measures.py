"""Each measure against its formula written as a plain loop."""

import math
from dataclasses import replace

import pytest
import torch
from head_models import TASK, encoder, encoder_decoder, examples

from mha_course.heads.ablation import ablation_values, evaluate, evaluate_all, head_grid
from mha_course.heads.coalitions import shapley
from mha_course.heads.measures import (
    completeness_residual,
    confidence,
    gate_gradient,
    integrated_gradients,
    leave_one_out,
    monte_carlo_shapley,
    negative_entropy,
    output_norm,
)

MODELS = {"encoder": encoder, "decoder": encoder_decoder}
ALL = [
    leave_one_out, gate_gradient, integrated_gradients, confidence, negative_entropy, output_norm, monte_carlo_shapley
]  # fmt: skip


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


@pytest.mark.parametrize("some_gone", [False, True])
def test_leave_one_out_equals_a_plain_loop(model, batch, kept, some_gone):
    given = kept if some_gone else None
    kept = kept if some_gone else torch.ones_like(kept)

    def drop(block, head):
        return TASK.accuracy(model, batch, kept) - TASK.accuracy(model, batch, without(kept, block, head))

    def rise(block, head):
        with torch.no_grad():
            return mean_loss(model, batch, without(kept, block, head)) - mean_loss(model, batch, kept)

    torch.testing.assert_close(
        leave_one_out(model, batch, TASK, kept=given), values_of_heads(model, drop), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(
        leave_one_out(model, batch, TASK, score="loss", kept=given), values_of_heads(model, rise)
    )


@pytest.mark.parametrize("ablation", ["mean", "resample"])
def test_leave_one_out_ablates_as_it_is_told(model, batch, ablation):
    substitutes = ablation_values(model, batch, ablation)
    gates = torch.ones(head_grid(model))

    def rise(block, head):
        settings = torch.stack([gates, without(gates, block, head)])
        whole, ablated = evaluate(model, batch, TASK, settings, substitutes).loss
        return ablated - whole

    measured = leave_one_out(model, batch, TASK, ablation, "loss")
    torch.testing.assert_close(measured, values_of_heads(model, rise))
    assert not torch.allclose(measured, leave_one_out(model, batch, TASK, score="loss"))


def gradients_one_by_one(model, batch, gates):
    found = []
    for number in range(len(batch)):
        own = gates.clone().requires_grad_()
        mean_loss(model, batch[number : number + 1], own).backward()
        found.append(own.grad)
    return torch.stack(found)


def test_gate_gradient_equals_one_example_at_a_time(model, batch, kept):
    expected = gradients_one_by_one(model, batch, torch.ones_like(kept)).abs().mean(dim=0)
    torch.testing.assert_close(gate_gradient(model, batch, TASK), expected)
    norms = expected.square().sum(dim=1, keepdim=True).sqrt()
    torch.testing.assert_close(gate_gradient(model, batch, TASK, normalise=True), expected / norms)
    expected = gradients_one_by_one(model, batch, kept).abs().mean(dim=0) * kept
    torch.testing.assert_close(gate_gradient(model, batch, TASK, kept=kept), expected)


def test_a_gate_gradient_with_its_sign_guesses_what_a_slightly_closed_gate_costs(model, batch, kept):
    def cost(block, head):
        closed = without(kept, block, head)
        little = kept + 1e-6 * (closed - kept)
        return (mean_loss(model, batch, little) - mean_loss(model, batch, kept)) / 1e-6

    with torch.no_grad():
        expected = values_of_heads(model, cost)
    found = gate_gradient(model, batch, TASK, kept=kept, signed=True)
    assert (found < 0).any() and (found > 0).any()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_a_path_gradient_without_sign_counts_each_example(model, batch, kept):
    middles = (0.25, 0.75)
    each = -sum(gradients_one_by_one(model, batch, middle * kept) for middle in middles) / len(middles)
    for signed, expected in ((True, each.mean(dim=0)), (False, each.abs().mean(dim=0))):
        found = integrated_gradients(model, batch, TASK, steps=2, kept=kept, signed=signed)
        torch.testing.assert_close(found, expected * kept)


@pytest.mark.parametrize("some_gone", [False, True])
def test_path_gradient_equals_differences_along_the_path(model, batch, kept, some_gone):
    end, width = kept if some_gone else torch.ones_like(kept), 1e-6

    def attribution(block, head):
        total = 0.0
        for middle in (0.125, 0.375, 0.625, 0.875):
            step = width * (end - without(end, block, head))
            total -= mean_loss(model, batch, middle * end + step) - mean_loss(model, batch, middle * end - step)
        return total / (2 * width) / 4

    with torch.no_grad():
        expected = values_of_heads(model, attribution)
    found = integrated_gradients(model, batch, TASK, steps=4, kept=kept if some_gone else None)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def test_what_path_gradients_lack_of_the_loss_that_all_heads_take_away(model, batch):
    found = integrated_gradients(model, batch, TASK, steps=2)
    with torch.no_grad():
        due = mean_loss(model, batch, torch.zeros(head_grid(model))) - mean_loss(model, batch, None)
    lacking = completeness_residual(found, model, batch, TASK)
    assert lacking == pytest.approx((due - found.sum()).item(), abs=1e-6) and abs(lacking) > 1e-3
    many = integrated_gradients(model, batch, TASK, steps=60)
    assert abs(completeness_residual(many, model, batch, TASK)) < abs(lacking) / 2


def over_real_queries(model, batch, of_row):
    """Mean of ``of_row(weights of one query)`` over all queries that are no padding, for each head."""
    with torch.no_grad():
        model(batch.inputs, batch.valid_lens)

    def mean(block, head):
        weights = model.attention_weights[block][:, head]
        padded = list(model.blocks)[block] not in ("decoder", "cross")
        rows = [
            of_row(row[row > 0])
            for example, length in zip(weights, batch.valid_lens.tolist(), strict=True)
            for row in (example[:length] if padded else example)
        ]
        return sum(rows) / len(rows)

    return values_of_heads(model, mean)


def test_confidence_is_the_mean_largest_weight(model, batch):
    torch.testing.assert_close(confidence(model, batch, TASK), over_real_queries(model, batch, max))


def test_confidence_does_not_count_positions_that_are_left_out(model, batch):
    expected = over_real_queries(model, batch, lambda row: max([*row[1:3], *row[4:]], default=0))
    torch.testing.assert_close(confidence(model, batch, TASK, leave_out=(0, 3)), expected)
    with pytest.raises(ValueError, match=r"ignore must hold positions from 0 to \d+, got \[99\]"):
        confidence(model, batch, TASK, leave_out=(0, 99))


def test_entropy_is_that_of_the_weights(model, batch):
    expected = over_real_queries(model, batch, lambda row: sum(weight * math.log(weight) for weight in row))
    torch.testing.assert_close(negative_entropy(model, batch, TASK), expected)


def test_a_head_that_looks_everywhere_alike():
    model = encoder()
    batch = replace(examples(model), valid_lens=None)
    torch.nn.init.zeros_(model.attentions[1].W_q.weight)
    torch.nn.init.zeros_(model.attentions[1].W_q.bias)
    expected = torch.full((3,), 1 / 7, dtype=torch.float64)
    torch.testing.assert_close(confidence(model, batch, TASK)[1], expected)
    torch.testing.assert_close(negative_entropy(model, batch, TASK)[1], expected.log())


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
            torch.testing.assert_close(output_norm(model, batch, TASK)[block], expected)


@pytest.mark.parametrize("score", ["accuracy", "loss"])
def test_monte_carlo_comes_close_to_the_exact_values(model, batch, score):
    scores = evaluate_all(model, batch, TASK)
    exact = shapley(scores.accuracy if score == "accuracy" else -scores.loss).view(head_grid(model))
    sampled = monte_carlo_shapley(model, batch, TASK, num_orders=3000, score=score)
    torch.testing.assert_close(sampled, exact, rtol=0, atol=0.02)


@pytest.mark.parametrize("measure", ALL)
def test_a_measure_has_the_shape_of_the_heads_and_leaves_no_trace(measure, model, batch):
    model.train()
    importance = measure(model.float(), batch, TASK)
    assert (tuple(importance.shape), importance.dtype) == (head_grid(model), torch.float64)
    assert not importance.requires_grad and importance.isfinite().all()
    assert model.training and all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("measure", [leave_one_out, gate_gradient, integrated_gradients])
def test_kept_must_fit_the_model(measure):
    model = encoder()
    with pytest.raises(ValueError, match=r"kept must have shape \(2, 3\), got \(3, 2\)"):
        measure(model, examples(model), TASK, kept=torch.ones(3, 2))


@pytest.mark.parametrize("measure", [leave_one_out, monte_carlo_shapley])
def test_unknown_score(measure):
    model = encoder()
    with pytest.raises(ValueError, match="score must be one of accuracy, loss, got 'bleu'"):
        measure(model, examples(model), TASK, score="bleu")
