"""What the exercise of 07 takes for true: the importance of heads in the small models."""

import itertools

import torch

from mha_course import heads
from mha_course.exercises import head_importance, own_importance


def test_the_truth_is_the_mean_over_orders():
    model, _, unseen = head_importance.small_models()[1]
    table = heads.evaluate_all(model, unseen, head_importance.TASK).accuracy
    total = torch.zeros(8, dtype=torch.float64)
    for order in list(itertools.permutations(range(8)))[::97]:
        sets = torch.tensor([0, *itertools.accumulate(2**head for head in order)])
        total[list(order)] += table[sets].diff()
    assert heads.spearman(total, head_importance.truths()[1].flatten()) > 0.9


def half_out(accuracy, shape):
    """As leave-one-out, but the head only goes half."""
    halves = [accuracy(1 - only / 2) for only in torch.eye(8).view(8, *shape)]
    return -torch.tensor(halves).view(shape)


def pairs(accuracy, shape):
    """The costs of all pairs that a head is in."""
    heads_of_pairs = [torch.eye(8)[list(pair)].sum(dim=0) for pair in itertools.combinations(range(8), 2)]
    costs = [accuracy(torch.ones(shape)) - accuracy(1 - pair.view(shape)) for pair in heads_of_pairs]
    return (torch.tensor(costs) @ torch.stack(heads_of_pairs)).view(shape)


def test_a_weak_measure_is_told_to_vary_the_other_heads_and_what_it_is_close_to():
    near, far = own_importance(half_out).text, own_importance(pairs).text
    assert "Its order is nearly that of leave-one-out (rank correlation 0.97)" in near and "nearly" not in far
    assert all("Measure a head with several sets of other heads present" in text for text in (near, far))
