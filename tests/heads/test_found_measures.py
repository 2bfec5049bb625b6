"""Measures on a loss of one's own, held against the library's for its own models."""

import pytest
import torch
from head_models import TASK, encoder, examples
from on_device import DEVICE

from mha_lib import heads
from mha_lib.heads.coalitions import permute_within_blocks


def made():
    """A model of two layers of three heads, its examples without padding, its heads, and its loss for each example."""
    model = encoder()
    batch = examples(model)
    batch = type(batch)(batch.inputs, None, batch.targets)

    def loss(model):
        return TASK.losses(model(batch.inputs), batch.targets).mean(dim=1)

    return model, batch, heads.of(model, batch.inputs), loss


def stacked(rows):
    return torch.stack(list(rows.values()))


def close(first, second):
    torch.testing.assert_close(first, second, rtol=0, atol=1e-9 if DEVICE.type == "cpu" else 1e-8)


@pytest.mark.parametrize("by", ["zero", "mean", "resample"])
def test_leave_one_out_is_the_librarys(by, capsys):
    model, batch, found, loss = made()
    costs = found.leave_one_out(loss, by, label="each head")
    close(stacked(costs), heads.leave_one_out(model, batch, TASK, by, score="loss").cpu())
    assert capsys.readouterr().err == "each head\n"


def test_gate_gradients_are_the_librarys_and_towards_the_mean_are_differences():
    model, batch, found, loss = made()
    for signed in (True, False):
        expected = heads.gate_gradient(model, batch, TASK, signed=signed).cpu()
        close(stacked(found.gate_gradient(loss, signed=signed)), expected)
    towards, step = found.gate_gradient(loss, by="mean"), 1e-5
    name, substitutes = next(iter(found.layers)), found.substitutes("mean")
    for head in range(3):
        ends = []
        for sign in (1, -1):
            gates = torch.ones(3, dtype=torch.float64)
            gates[head] += sign * step
            with torch.no_grad(), found.gates({name: gates}, substitutes):
                ends.append(loss(model).mean())
        expected = (ends[1] - ends[0]).cpu() / (2 * step)
        torch.testing.assert_close(towards[name][head], expected, rtol=1e-4, atol=1e-7)


def test_losses_without_the_least_important_heads_are_those_of_all_subsets():
    model, batch, found, loss = made()
    table = heads.evaluate_all(model, batch, TASK, "mean").loss
    importance = {name: torch.rand(3) for name in found.layers}
    expected = table[heads.top_k_sets(stacked(importance))].flip(0).cpu()  # with all heads first
    close(found.losses_without(loss, importance, range(7), by="mean"), expected)
    with pytest.raises(ValueError, match=r"importance must have \(num_heads,\) for each layer, blocks.layer 0.atten"):
        found.losses_without(loss, {name: torch.rand(2) for name in found.layers}, [1])
    with pytest.raises(ValueError, match=r"numbers must be from 0 to 6, all heads, got \[-3, 99\]"):
        found.losses_without(loss, importance, [-3, 2, 99])


def test_a_layer_matched_random_baseline():
    even = {"a": torch.rand(5), "b": torch.rand(5)}
    torch.testing.assert_close(stacked(heads.permute_within_layers(even, 3)), permute_within_blocks(stacked(even), 3))
    uneven = {"a": torch.rand(5), "b": torch.rand(2)}
    permuted = [heads.permute_within_layers(uneven, seed) for seed in range(9)]
    assert all(torch.equal(one[name].sort()[0], uneven[name].sort()[0]) for one in permuted for name in uneven)
    assert len({tuple(one["a"].tolist()) for one in permuted}) > 1


def test_a_loss_must_have_what_a_measure_needs():
    _, _, found, loss = made()
    with pytest.raises(
        ValueError, match=r"with signed=False, loss must give a number for each example, \(batch,\), got"
    ):
        found.gate_gradient(lambda model: loss(model).mean(), signed=False)
    with pytest.raises(ValueError, match=r"loss must give a number for each example, \(batch,\), got shape \(\)"):
        found.gate_gradient(lambda model: loss(model).mean().item(), signed=False)
    with pytest.raises(ValueError, match=r"loss must give a tensor with a gradient: without torch\.no_grad"):
        found.gate_gradient(lambda model: loss(model).detach())
