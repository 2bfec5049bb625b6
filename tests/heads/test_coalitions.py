"""Shapley values, and the best, worst and mean sets, against definitions counted out one by one."""

import itertools
import math

import pytest
import torch
from scipy import stats

from mha_course.heads.coalitions import (
    best_sets,
    block_mean_baseline,
    greedy,
    mean_ranks,
    permute_within_blocks,
    pruning_curve,
    random_pruning_curve,
    ranks,
    set_members,
    shapley,
    spearman,
    top_k_sets,
    worst_sets,
)


def random_game(num_heads, seed=0):
    return torch.randn(2**num_heads, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def number(heads):
    return sum(2**head for head in heads)


def by_permutations(values, num_heads):
    """The Shapley value as it is defined in words: what a head adds, averaged over all orders of joining."""
    shares = torch.zeros(num_heads, dtype=torch.float64)
    for order in itertools.permutations(range(num_heads)):
        for place, head in enumerate(order):
            shares[head] += values[number(order[: place + 1])] - values[number(order[:place])]
    return shares / math.factorial(num_heads)


@pytest.mark.parametrize("num_heads", [1, 2, 6])
def test_shapley_equals_all_permutations(num_heads):
    values = random_game(num_heads)
    torch.testing.assert_close(shapley(values), by_permutations(values, num_heads), rtol=0, atol=1e-12)


def test_best_worst_and_mean_of_every_size():
    values = random_game(5)
    for size in range(6):
        of_size = [number(heads) for heads in itertools.combinations(range(5), size)]
        assert best_sets(values)[size] == max(of_size, key=lambda s: values[s])
        assert worst_sets(values)[size] == min(of_size, key=lambda s: values[s])
        torch.testing.assert_close(random_pruning_curve(values)[size], values[of_size].mean())


WITH_EQUALS = torch.tensor([[0.5, 0.9, -1.0], [0.5, 2.0, 0.5]])


def test_ranks_count_from_the_most_important_and_draw_the_order_of_equals():
    drawn = {tuple(ranks(WITH_EQUALS, seed).flatten().tolist()) for seed in range(100)}
    assert drawn == {(one, 2, 6, other, 1, third) for one, other, third in itertools.permutations((3, 4, 5))}
    assert torch.equal(ranks(WITH_EQUALS, 7), ranks(WITH_EQUALS, 7))


def test_mean_ranks_are_those_of_scipy():
    expected = stats.rankdata(-WITH_EQUALS.cpu().numpy()).reshape(2, 3)
    torch.testing.assert_close(mean_ranks(WITH_EQUALS), torch.tensor(expected, dtype=torch.float64))


def test_sets_kept_hold_the_most_important_heads():
    importance = torch.tensor([[0.1, 3.0], [-2.0, 0.1]])
    drawn = {tuple(top_k_sets(importance, seed).tolist()) for seed in range(20)}
    assert drawn == {(0, 2, 3, 11, 15), (0, 2, 10, 11, 15)}  # head 1, then 0 and 3 in either order, then 2


@pytest.mark.parametrize(
    "importance", [[2.0, 1.0, 2.0, 1.0, 1.0], [3.0, 3.0, 3.0, 0.0, 7.0], [1.0, 5.0, 3.0, 2.0, 4.0]]
)
def test_a_curve_is_the_mean_over_all_orders_of_equals(importance):
    values = random_game(5)
    orders = {
        order
        for order in itertools.permutations(range(5))
        if all(importance[one] >= importance[next_one] for one, next_one in itertools.pairwise(order))
    }
    curves = [torch.stack([values[number(order[:size])] for size in range(6)]) for order in orders]
    torch.testing.assert_close(pruning_curve(values, torch.tensor(importance)), torch.stack(curves).mean(dim=0))


def test_twelve_equal_heads_have_no_order_but_a_random_one():
    values = random_game(12)
    torch.testing.assert_close(pruning_curve(values, torch.zeros(3, 4)), random_pruning_curve(values))


def test_an_importance_that_does_not_fit_the_table():
    with pytest.raises(ValueError, match="importance must have a number for each of the 3 heads, got 4"):
        pruning_curve(random_game(3), torch.ones(2, 2))


def test_greedy_removes_what_costs_least():
    values, kept, order = random_game(5), {0, 1, 2, 3, 4}, []
    while kept:
        gone = max(kept, key=lambda head: values[number(kept - {head})])
        kept -= {gone}
        order.append(gone)
    assert greedy(values).argsort().tolist() == order


def test_greedy_draws_between_heads_that_cost_the_same():
    # Either head 0 or head 1 will do, and head 2 matters most of all: 0 and 1 take turns to go first.
    sets = set_members(torch.arange(8), 3)
    values = sets[:, :2].any(dim=1) + 2.0 * sets[:, 2]
    orders = {tuple(greedy(values, seed).argsort().tolist()) for seed in range(20)}
    assert orders == {(0, 1, 2), (1, 0, 2)}


def test_a_guess_by_blocks_knows_nothing_else():
    shares = torch.tensor([[1.0, 4.0, 1.0], [0.0, -3.0, 0.0]])
    assert block_mean_baseline(shares).tolist() == [[2, 2, 2], [-1, -1, -1]]


def test_orders_shuffled_in_their_blocks_cut_as_many_heads_of_each_at_every_size():
    importance = torch.rand(4, 5, generator=torch.Generator().manual_seed(3))
    others = [permute_within_blocks(importance, seed) for seed in range(30)]
    for size in range(21):
        counts = [(ranks(order) <= size).sum(dim=1).tolist() for order in (importance, *others)]
        assert all(count == counts[0] for count in counts)
    firsts = torch.stack([other.argmax(dim=1) for other in others])
    assert all(len(column.unique()) == 5 for column in firsts.T)  # any head of a block may come first
    assert torch.equal(others[0], permute_within_blocks(importance, 0))


def test_spearman_equals_scipy_with_and_without_ties():
    generator = torch.Generator().manual_seed(0)
    for first, second in (torch.randn(2, 12, generator=generator), torch.randint(4, (2, 12), generator=generator)):
        expected = stats.spearmanr(first.cpu(), second.cpu()).statistic
        assert spearman(first.view(3, 4), second.view(3, 4)) == pytest.approx(expected)
    assert math.isnan(spearman(torch.ones(4), torch.arange(4)))
    for size in range(3, 40):  # a mean of equal ranks may be off in the last bit
        assert math.isnan(spearman(torch.arange(size), torch.full((size,), 0.1)))


@pytest.mark.parametrize("table", [torch.zeros(3), torch.zeros(2, 2), torch.zeros(0)])
def test_a_table_has_a_value_for_every_set(table):
    for function in (shapley, best_sets, random_pruning_curve, greedy):
        with pytest.raises(ValueError, match=r"values must have shape \(2\*\*num_heads,\), got"):
            function(table)
