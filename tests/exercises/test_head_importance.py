"""Exercises of 06 that are judged in their own way: shares by hand, and a measure of importance of one's own."""

import itertools
import math

import pytest
import torch

from mha_lib import heads
from mha_lib.exercises import fair_shares, head_importance, order_of_cuts, own_importance

# ---------------------------------------------------------------------------------------------------------------------
# Fair shares


def test_the_shares_are_those_of_the_library():
    table = torch.zeros(8, dtype=torch.float64)
    for names, value in head_importance.GAME.items():
        table[sum(2 ** "ABC".index(name) for name in names)] = value
    assert head_importance.worked_shares() == pytest.approx(heads.shapley(table).tolist())


def test_shares_in_single_orders_are_what_heads_add():
    def worth(heads):
        return head_importance.GAME["".join(sorted(heads))]

    for order in map("".join, itertools.permutations("ABC")):
        gains = {name: worth(order[: i + 1]) - worth(order[:i]) for i, name in enumerate(order)}
        assert "in a single order" in fair_shares([gains[name] for name in "ABC"]).text


@pytest.mark.parametrize(("shares", "text"), head_importance.WRONG_SHARES.items())
def test_typical_shares_are_named(shares, text):
    assert fair_shares([round(share, 3) for share in shares]).text == text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([0.5, 0.2, 0.1], "They add up, but A does not earn 0.50"),
        ([0.5, 0.2, 0.2], "The shares add up to 0.90, but all three together add 0.80"),
        ([0.4, 0.4], "Three finite numbers are needed"),
        ([0.4, math.inf, 0.2], "Three finite numbers are needed"),
        (0.4, "this is a float"),
        ([0.4, None, 0.2], "Put a number"),
    ],
)
def test_other_shares_are_told_apart(answer, words):
    verdict = fair_shares(answer)
    assert verdict.state == ("not yet" if "Put" in words else "wrong") and words in verdict.text, verdict


def test_a_wrong_question_to_the_score_is_told():
    assert "once, got [1, 1, 1]" in str(order_of_cuts(lambda score, n: [score([1] * n)]))


# ---------------------------------------------------------------------------------------------------------------------
# A measure of one's own


def gate_gradients(model, batch, task, at=1.0):
    gates = torch.full((len(batch), *heads.head_shape(model)), at, requires_grad=True)
    losses = task.losses(model(batch.inputs, batch.valid_lens, gates), batch.targets).mean(dim=1)
    return torch.autograd.grad(losses.sum(), gates)[0]


def half_way(model, batch, task):
    return -sum(gate_gradients(model, batch, task, at=at).mean(dim=0) for at in (0.1, 0.3, 0.5, 0.7, 0.9))


def loop_without(model, batch, task):
    shape = heads.head_shape(model)
    costs = torch.empty(shape)
    for place in itertools.product(*map(range, shape)):
        gates = torch.ones(shape)
        gates[place] = 0
        costs[place] = task.accuracy(model, batch) - task.accuracy(model, batch, gates)
    return costs


def weights_of(model, batch):
    with torch.no_grad():
        model(batch.inputs)
        return torch.stack(model.attention_weights)


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


MEASURES = {
    "same number": lambda m, b, t: torch.ones(2, 4),
    "one and the same table": lambda m, b, t: torch.arange(8.0).view(2, 4),
    "upside down": lambda m, b, t: -half_way(m, b, t),
    "changes the model's weights": changes_weights,
    "in train mode": in_train_mode,
    "leaves gradients": with_backward,
    "changes the examples": changes_examples,
    "The shape must be (2, 4), yours is (64, 2, 4)": lambda m, b, t: gate_gradients(m, b, t).abs(),
    "how sure they look": lambda m, b, t: weights_of(m, b).amax(dim=-1).mean(dim=(1, 3)),
    "how narrowly they look": lambda m, b, t: -torch.special.entr(weights_of(m, b)).sum(dim=-1).mean(dim=(1, 3)),
    "drops the sign after": lambda m, b, t: gate_gradients(m, b, t).mean(dim=0).abs(),
    "with its sign": lambda m, b, t: gate_gradients(m, b, t).mean(dim=0),
    "is the mean gradient": lambda m, b, t: -gate_gradients(m, b, t).mean(dim=0),
    "the bar itself": lambda m, b, t: gate_gradients(m, b, t).abs().sum(dim=0),
    "It is leave-one-out": loop_without,
}


@pytest.mark.parametrize("words", MEASURES)
def test_a_measure_that_will_not_do_is_told_why(words):
    verdict = own_importance(MEASURES[words])
    assert verdict.state == "wrong" and [name for name in MEASURES if name in verdict.text] == [words], verdict
    assert not any(model.training for model, _, _ in head_importance.small_models())


def test_what_is_asked_lies_between_two_bars():
    text = own_importance(loop_without).text
    assert text.startswith("The rank correlation with the exact Shapley values is 0.6")
    assert "the gate's gradient 0.6" in text and "the path gradient 0.9" in text and "more than 0.8 is asked" in text


def test_the_truth_is_the_mean_over_orders():
    model, _, unseen = head_importance.small_models()[1]
    table = heads.evaluate_all(model, unseen, head_importance.TASK).accuracy
    total = torch.zeros(8, dtype=torch.float64)
    for order in list(itertools.permutations(range(8)))[::97]:
        sets = torch.tensor([0, *itertools.accumulate(2**head for head in order)])
        total[list(order)] += table[sets].diff()
    assert heads.spearman(total, head_importance.truths()[1].flatten()) > 0.9
