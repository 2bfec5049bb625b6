"""The library makes every tensor where the model and the batch are: on a second device, pretended, it says the same."""

import pytest
import torch
from head_models import TASK, encoder, encoder_decoder, examples
from second_device import AWAY, pretend

from mha_course import heads
from mha_course.heads import coalitions
from mha_course.heads.ablation import evaluate_all, losses_without_each
from mha_course.heads.measures import measured
from mha_course.heads.removal import prune
from mha_course.models.training import training_loop
from mha_lib import MultiHeadAttention

pytestmark = pytest.mark.cpu  # with MHA_DEVICE all tests are on the other device, and this one has nothing to add


def both(compute):
    """What ``compute`` gives on the CPU and on the second device, brought back."""
    there = torch.device("cpu"), AWAY
    with pretend():
        here, away = ([X.cpu().detach() for X in compute(device)] for device in there)
    torch.testing.assert_close(away, here)


@pytest.mark.parametrize("num_groups", [4, 2])
@pytest.mark.parametrize("keep_weights", [False, True])
@pytest.mark.parametrize("masks", [{}, {"causal": True}, {"valid_lens": [2, 0, 5]}], ids=str)
def test_the_layer_and_its_gradients(num_groups, keep_weights, masks):
    def compute(device):
        torch.manual_seed(1)
        sizes = dict(query_size=6, key_size=6, value_size=6)
        layer = MultiHeadAttention(8, 4, bias=True, num_key_value_heads=num_groups, **sizes).to(device)
        layer.attention.keep_weights = keep_weights
        X, gates = (made.to(device).requires_grad_() for made in (torch.randn(3, 5, 6), torch.rand(4)))
        given = {name: torch.tensor(m).to(device) if name == "valid_lens" else m for name, m in masks.items()}
        output = layer(X, X, X, head_mask=gates, **given)
        output.square().sum().backward()
        with torch.no_grad():
            alone = layer(X, X, X, **given)
        return output, alone, layer.attention_weights, X.grad, gates.grad, *(W.grad for W in layer.parameters())

    both(compute)


@pytest.mark.parametrize("make", [encoder, encoder_decoder])
def test_a_training_step(make):
    def compute(device):
        model = make()  # float64: in float32, AdamW takes whole steps along gradients that are 0 but for rounding
        batch = examples(model).to(device)
        model.to(device)
        losses = (TASK.losses(model(batch.inputs, batch.valid_lens), batch.targets).mean() for _ in range(2))
        training_loop(model, losses, 1e-3, cycle=2)
        return model.parameters()

    both(compute)


def test_measures_exact_values_and_a_cut():
    def compute(device):
        model = encoder(num_layers=2, num_heads=2)
        batch = examples(model).to(device)
        model.to(device)
        measures = "leave_one_out", "gate_gradient", "integrated_gradients", "confidence", "entropy", "output_norm"
        found = [measured(model, batch, TASK, measure) for measure in measures]
        found += [measured(model, batch, TASK, "leave_one_out", by=ablation) for ablation in ("mean", "resample")]
        found.append(losses_without_each(model, batch, TASK))
        values = evaluate_all(model, batch, TASK).accuracy
        found += [coalitions.shapley(values), coalitions.greedy(values), coalitions.pruning_curve(values, found[0])]
        pruned = prune(model, remove=heads.ranks(found[1]) > 2)
        return *found, pruned(batch.inputs, batch.valid_lens)

    both(compute)
