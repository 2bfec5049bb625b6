"""What the exercise of 07 takes for true: the importance of heads in the small models."""

import itertools

import torch

from mha_course import heads
from mha_course.exercises import head_importance, own_importance
from mha_course.heads.measures import measured


def test_the_truth_is_the_mean_over_orders():
    model, _, unseen = head_importance.small_models()[1]
    table = heads.evaluate_all(model, unseen, head_importance.TASK).accuracy
    total = torch.zeros(8, dtype=torch.float64)
    for order in list(itertools.permutations(range(8)))[::97]:
        sets = torch.tensor([0, *itertools.accumulate(2**head for head in order)])
        total[list(order)] += table[sets].diff()
    assert heads.spearman(total, head_importance.truths()[1].flatten()) > 0.9


def half_out(model, batch, task):
    """As leave-one-out, but the head only goes half."""
    halves = torch.ones(8, 8).fill_diagonal_(0.5).view(8, *head_importance.SHAPE)
    costs = [task.accuracy(model, batch) - task.accuracy(model, batch, gates) for gates in halves]
    return torch.tensor(costs).view(head_importance.SHAPE)


def with_means(model, batch, task):
    return measured(model, batch, task, "leave_one_out", "accuracy", by="mean")


def test_a_weak_measure_is_told_to_vary_the_other_heads_and_what_it_is_close_to():
    near, far = own_importance(half_out).text, own_importance(with_means).text
    assert "Its order is nearly that of leave-one-out (rank correlation 0.97)" in near and "nearly" not in far
    assert all("Measure a head with several sets of other heads present" in text for text in (near, far))
