"""Scores of many sets of heads at once, against a plain loop; ablations against heads told apart from outside."""

import pytest
import torch
from head_models import TASK, encoder, encoder_decoder, examples
from torch import nn

from mha_course.heads.ablation import (
    TOKENS_AT_ONCE,
    ablation_values,
    evaluate,
    evaluate_all,
    found_in,
    head_grid,
    losses_without_each,
    patch_heads,
)
from mha_course.heads.coalitions import set_members
from mha_course.models.any_layer import heads_before_output

MODELS = {"encoder": encoder, "deep": lambda dtype=None: encoder(num_layers=3, num_heads=2), "decoder": encoder_decoder}


def plain_loop(model, batch, gates):
    """One call of the model for every setting of the gates."""
    accuracy, loss = [], []
    for setting in gates:
        with torch.no_grad():
            output = model(batch.inputs, batch.valid_lens, setting)
        accuracy.append((output.argmax(dim=-1) == batch.targets).double().mean())
        loss.append(nn.functional.cross_entropy(output.flatten(0, 1), batch.targets.flatten()).double())
    return torch.stack(accuracy), torch.stack(loss)


class Ablated(nn.Module):
    """An attention some of whose heads say something else; heads are told apart by calls with one gate open."""

    def __init__(self, attention, gates, substitutes):
        super().__init__()
        self.whole, self.gates, self.substitutes, self.said = attention, gates, substitutes, None

    def forward(self, *arguments):
        *sequences, _ = arguments
        closed = torch.zeros(self.whole.num_heads, dtype=torch.float64)
        nothing = self.whole(*sequences, closed)
        one_open = torch.eye(self.whole.num_heads, dtype=torch.float64)
        self.said = [self.whole(*sequences, gates) - nothing for gates in one_open]
        heads = zip(self.gates, self.said, self.substitutes or self.said, strict=True)
        return nothing + sum(gate * said + (1 - gate) * other for gate, said, other in heads)


def ablated_loss(model, batch, gates, substitute):
    """The loss with ``substitute(said, counts)`` for closed heads; counts are the tokens that are no padding."""
    attentions = model.attentions
    own_padding = [True] * len(attentions) if "layer 0" in model.blocks else [True, False, False]
    unchanged = [Ablated(attention, torch.ones(attention.num_heads), None) for attention in attentions]
    _replace_attentions(model, unchanged)
    model(batch.inputs, batch.valid_lens)
    changed = []
    for layer, setting, padded in zip(unchanged, gates, own_padding, strict=True):
        number = layer.said[0].shape[1]
        counts = torch.arange(number) < (batch.valid_lens[:, None] if padded else number)
        counts = counts.expand(len(batch), number)
        changed.append(Ablated(layer.whole, setting, [substitute(said, counts) for said in layer.said]))
    _replace_attentions(model, changed)
    loss = TASK.losses(model(batch.inputs, batch.valid_lens), batch.targets).mean()
    _replace_attentions(model, attentions)
    return loss


def _replace_attentions(model, attentions):
    for block, attention in zip(model.blocks.values(), attentions, strict=True):
        block.attention = attention


SUBSTITUTES = {
    "zero": lambda said, counts: torch.zeros_like(said),
    "mean": lambda said, counts: said[counts].mean(dim=0).expand_as(said),
    "resample": lambda said, counts: said[[*range(1, len(said)), 0]],
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_all_sets_equal_a_plain_loop(name, dtype, atol):
    model = MODELS[name](dtype=torch.float64).to(dtype)
    batch, shape = examples(model), head_grid(model)
    scores = evaluate_all(model, batch, TASK)
    gates = set_members(torch.arange(2 ** (shape[0] * shape[1])), shape[0] * shape[1]).view(-1, *shape).to(dtype)
    accuracy, loss = plain_loop(model, batch, gates)
    torch.testing.assert_close(scores.loss, loss, rtol=0, atol=atol)
    torch.testing.assert_close(scores.accuracy, accuracy, rtol=0, atol=1e-9)
    assert len(scores.loss.unique()) > 0.8 * len(gates)  # heads matter here


def test_gates_may_be_half_open_and_come_in_any_order_and_number():
    model, generator = encoder(), torch.Generator().manual_seed(2)
    batch = examples(model)
    gates = torch.rand(40, 2, 3, dtype=torch.float64, generator=generator)
    gates[::3, 0] = gates[0, 0]  # equal where the work is shared, at odds in the last block
    torch.testing.assert_close(evaluate(model, batch, TASK, gates).loss, plain_loop(model, batch, gates)[1])


def test_sets_that_do_not_fit_in_one_pass(monkeypatch):
    model = encoder()
    batch = examples(model)
    whole = evaluate_all(model, batch, TASK)
    assert TOKENS_AT_ONCE > 8 * 6 * 7
    monkeypatch.setattr("mha_course.heads.ablation.TOKENS_AT_ONCE", 100)
    torch.testing.assert_close(evaluate_all(model, batch, TASK).loss, whole.loss)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ablation", SUBSTITUTES)
def test_ablations_equal_heads_replaced_from_outside(name, ablation):
    model = MODELS[name]()
    batch, shape = examples(model), head_grid(model)
    gates = torch.rand(5, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).round()
    scores = evaluate(model, batch, TASK, gates, ablation_values(model, batch, ablation))
    with torch.no_grad():
        expected = [ablated_loss(model, batch, setting, SUBSTITUTES[ablation]) for setting in gates]
    torch.testing.assert_close(scores.loss, torch.stack(expected))


def test_a_model_is_left_as_it_was_and_judged_in_eval_mode():
    model = encoder()
    batch, threads = examples(model), torch.get_num_threads()
    expected = evaluate_all(model, batch, TASK).loss
    torch.testing.assert_close(evaluate_all(model.train(), batch, TASK).loss, expected)
    ablation_values(model, batch, "resample")
    assert model.training and torch.get_num_threads() == threads
    assert not any(module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_progress_is_shown_where_it_is_asked_for(capsys):
    model = encoder()
    evaluate_all(model, examples(model), TASK)
    assert capsys.readouterr().err == ""
    evaluate_all(model, examples(model), TASK, label="all sets")
    assert "all sets" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(2, 3), (4, 3, 2), (4, 2, 4)])
def test_gates_of_a_wrong_shape(shape):
    model = encoder()
    with pytest.raises(ValueError, match=r"gates must have shape \(num_sets, 2, 3\), got"):
        evaluate(model, examples(model), TASK, torch.ones(shape))


def test_blocks_with_different_numbers_of_heads():
    model = encoder()
    model.blocks["layer 1"].attention.num_heads = 1
    with pytest.raises(ValueError, match=r"same number of heads in every block, got \{'layer 0': 3, 'layer 1': 1\}"):
        head_grid(model)


@pytest.mark.parametrize("some_gone", [False, True])
def test_losses_without_each_head_are_those_of_gates_one_by_one(some_gone):
    model = encoder(num_layers=3, num_heads=2)
    batch = examples(model)
    there = torch.tensor([[1.0, 0], [1, 1], [0, 1]]) if some_gone else torch.ones(3, 2)
    found = losses_without_each(model, batch, TASK, kept=there if some_gone else None)
    assert found.shape == (3, 2, *batch.targets.shape)
    for block in range(3):
        for head in range(2):
            gates = there.clone()
            gates[block, head] = 0
            with torch.no_grad():
                expected = TASK.losses(model(batch.inputs, batch.valid_lens, gates), batch.targets)
            torch.testing.assert_close(found[block, head], expected.float(), rtol=0, atol=1e-5)


def test_heads_that_say_given_words_are_heard_and_no_others_change():
    model = encoder(num_layers=3, num_heads=2)
    batch = examples(model)
    without, (one, later) = torch.tensor([[0.0, 1], [1, 1], [1, 1]]), torch.ones(2, 3, 2)
    one[1, 1] = later[1:] = 0
    found = found_in(model, batch)
    whole = [*found.outputs().values()]
    with found.gates(dict(zip(found.layers, without, strict=True))):
        lacking = [*found.outputs().values()]
    assert not any(torch.equal(*pair) for pair in zip(whole, lacking, strict=True))

    def output(*arguments):
        with torch.no_grad():
            return model(batch.inputs, batch.valid_lens, *arguments)

    before = output(without)
    heard: list = []
    with patch_heads(model, whole, one), heads_before_output(model.attentions[1], heard.append):
        output(without)
    torch.testing.assert_close(heard[0][:, 0], lacking[1][:, 0])  # not frozen: says what it says without the head
    torch.testing.assert_close(heard[0][:, 1], whole[1][:, 1])
    with patch_heads(model, lacking, later):
        misled = output()
    assert not torch.allclose(misled, output())
    with patch_heads(model, whole, later):
        torch.testing.assert_close(output(), output())
    assert torch.equal(output(without), before)  # nothing stays behind


@pytest.mark.parametrize("shape", [(4, 2), (3, 3)])
def test_gates_of_heads_that_the_model_lacks(shape):
    model = encoder(num_layers=3, num_heads=2)
    with pytest.raises(ValueError, match=r"gates must have shape \(3, 2\), got"):
        with patch_heads(model, [], torch.ones(shape)):
            pass
