"""Exercises that are judged in their own way: what is said of typical answers, and of what is no answer at all."""

import itertools
import math

import pytest
import torch
from right_answers import mask

from mha_lib import heads
from mha_lib.exercises import COURSE, head_importance, masked_softmax_2d
from mha_lib.exercises.multi_head_attention import previous_token_matrices

pytestmark = pytest.mark.usefixtures("in_this_process")

W_Q, W_K = previous_token_matrices()
E = torch.eye(6)


def gate_gradients(model, batch, task, at=1.0):
    gates = torch.full((len(batch), *heads.head_grid(model)), at, requires_grad=True)
    losses = task.losses(model(batch.inputs, batch.valid_lens, gates), batch.targets).mean(dim=1)
    return torch.autograd.grad(losses.sum(), gates)[0]


def half_way(model, batch, task):
    return -sum(gate_gradients(model, batch, task, at=at).mean(dim=0) for at in (0.1, 0.3, 0.5, 0.7, 0.9))


def loop_without(model, batch, task):
    shape = heads.head_grid(model)
    costs = torch.empty(shape)
    for place in itertools.product(*map(range, shape)):
        gates = torch.ones(shape)
        gates[place] = 0
        costs[place] = task.accuracy(model, batch) - task.accuracy(model, batch, gates)
    return costs


def changes_weights(model, batch, task):
    found = half_way(model, batch, task)
    with torch.no_grad():
        model.attentions[0].W_o.weight[:, 0] = 0
    return found


def in_train_mode(model, batch, task):
    model.train()
    return half_way(model, batch, task)


def with_backward(model, batch, task):
    task.losses(model(batch.inputs), batch.targets).mean().backward()
    return torch.stack([layer.W_o.weight.grad.unflatten(1, (4, -1)).norm(dim=(0, 2)) for layer in model.attentions])


def changes_examples(model, batch, task):
    batch.targets.zero_()
    return half_way(model, batch, task)


TOLD = {  # exercise → answers, and words of what is said of each
    "order_of_cuts": [(lambda score, n: [score([1] * n)], "each once, got [1, 1, 1]")],
    "own_importance": [
        *((measure, text) for text, measure in head_importance.LOW_MEASURES.items()),
        (loop_without, "It is leave-one-out"),
        (lambda m, b, t: gate_gradients(m, b, t).abs().sum(dim=0), "the bar itself"),
        (lambda m, b, t: torch.ones(2, 4), "same number"),
        (lambda m, b, t: torch.arange(8.0).view(2, 4), "one and the same table"),
        (lambda m, b, t: -half_way(m, b, t), "upside down"),
        (lambda m, b, t: gate_gradients(m, b, t).abs(), "The shape must be (2, 4), yours is (64, 2, 4)"),
        (changes_weights, "changes the model's weights"),
        (in_train_mode, "in train mode"),
        (with_backward, "leaves gradients"),
        (changes_examples, "changes the examples"),
    ],
    "previous_token": [
        ((E, W_K), "Every token attends to itself"),
        ((W_K, W_Q), "Tokens attend to the next one"),
        ((E.roll(-2, dims=0), W_K), "Tokens attend to the one two before"),
        ((W_Q * (torch.arange(6) > 0), W_K), "token 0 looks at no key most"),
        ((E.roll(-1, dims=0), W_K), "as if positions were a ring"),
        ((0 * W_Q, W_K), "spreads its weight evenly, 1/6 on each"),
        ((W_Q, 0.1 * W_K), "not sharply enough"),
        ((torch.ones(1, 6), 20 * E[2:3]), "Every token attends to token 2"),
        ((-W_Q, W_K), "is a sign wrong?"),
        ((torch.ones(6, 6).triu(1) + E * E[0], W_K), "over all tokens before them"),
        (
            (E.roll(-3, dims=0), W_K),
            "Token 0 gives 0.00 of its weight to token 0, 0.9 is asked; the most, 0.99, goes",
        ),
        ((W_Q[:, :5], W_K), "W_q must be a tensor of real numbers of shape (head_size, 6)"),
        ((W_Q, W_K[:4]), "W_q makes queries of size 6, W_k keys of size 4"),
        ((W_Q * math.inf, W_K), "The scores are not finite"),
    ],
    "masked_softmax_2d": [
        (lambda scores, lens: masked_softmax_2d.right(scores, lens).detach(), "does not find its way back"),
        (
            lambda scores, lens: (scores + torch.where(mask(scores, lens), 0, -math.inf)).softmax(-1).nan_to_num(0),
            "The weights are right, but the gradient of the scores holds NaN at [0, 1, 0], where the length is 0.",
        ),
    ],
}


CASES = [
    pytest.param(name, *told, id=f"{name}-{number}") for name, rows in TOLD.items() for number, told in enumerate(rows)
]


@pytest.mark.parametrize(("name", "answer", "words"), CASES)
def test_an_answer_is_told_what_is_wrong_with_it(name, answer, words):
    verdict = COURSE[name](*answer) if name == "previous_token" else COURSE[name](answer)
    assert verdict.state == ("not yet" if words.startswith("Put") else "wrong") and words in verdict.text, verdict


def test_a_measure_is_held_between_two_bars_and_changes_no_model():
    text = COURSE["own_importance"](in_train_mode).text + COURSE["own_importance"](loop_without).text
    assert "The rank correlation with the exact Shapley values is 0.6" in text and "more than 0.8 is asked" in text
    assert "the gate's gradient 0.6" in text and "the path gradient 0.9" in text
    assert not any(model.training for model, _, _ in head_importance.small_models())
