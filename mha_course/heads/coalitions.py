"""What a table of all sets of heads shows: each head's fair share, the best and the worst set of every size.

A table ``values`` is (2**N,), float64: what each set of N heads is worth, as from ``evaluate_all``. Set number s holds
head i, counted row by row, if bit i of s is 1; so number 0 is no head and the last is all. Importance comes as (N,):
``view(head_grid(model))`` gives it the model's shape. A curve is (N + 1,): a value with 0, 1, …, N heads kept.

Heads of equal importance have no order. Where one is needed, it is drawn at random; where orders are compared,
``mean_ranks`` and ``pruning_curve`` give the exact mean over all draws.
"""

import math
from itertools import combinations

import torch
from torch import Tensor

from mha_lib.heads.plans import ranks
from mha_lib.heads.shapley_shares import set_members, shapley_shares


def shapley(values: Tensor) -> Tensor:
    """Compute the exact Shapley value of every head from ``values`` (2**N,), the scores of all subsets of N heads.

    >>> shapley(torch.tensor([0.0, 1.0, 2.0, 4.0]))
    tensor([1.5000, 2.5000], dtype=torch.float64)

    ``φ_i = Σ_S |S|! (N − |S| − 1)! / N! · (w(S + i) − w(S))`` over all sets S without i, where w is the score. The
    shares add up to w(all) − w(none).

    Source: Shapley 1953, "A Value for n-Person Games".
    """
    _, shares = shapley_shares(_num_heads(values))
    return shares.to(values.device) @ values.double()


def best_sets(values: Tensor) -> Tensor:
    """Return, given the scores of all 2**N sets, the best set of heads of each size as a bit mask (bit i: head i).

    The sets need not be nested.

    >>> best_sets(torch.tensor([0.0, 1.0, 2.0, 4.0]))
    tensor([0, 2, 3])

    Of sets with the same value, the one with the lowest number is given.
    """
    sizes = _sizes(values)
    return torch.stack([torch.where(sizes == size, values, -torch.inf).argmax() for size in range(sizes.max() + 1)])


def worst_sets(values: Tensor) -> Tensor:
    """Return, given the scores of all 2**N sets, the worst set of heads of each size as a bit mask (bit i: head i).

    >>> worst_sets(torch.tensor([0.0, 1.0, 2.0, 4.0]))
    tensor([0, 1, 3])
    """
    return best_sets(-values)


def random_pruning_curve(values: Tensor) -> Tensor:
    """Return the mean score of all sets of heads of each size 0, …, N, given the scores ``values`` of all 2**N sets.

    >>> random_pruning_curve(torch.tensor([0.0, 1.0, 2.0, 4.0]))
    tensor([0.0000, 1.5000, 4.0000])
    """
    sizes = _sizes(values)
    return torch.stack([values[sizes == size].mean() for size in range(sizes.max() + 1)])


def mean_ranks(importance: Tensor) -> Tensor:
    """Return every head's rank by ``importance``, 1 for the most important; tied heads get the mean of their ranks.

    >>> mean_ranks(torch.tensor([0.5, 0.9, 0.5]))
    tensor([2.5000, 1.0000, 2.5000], dtype=torch.float64)
    """
    flat = importance.flatten()
    above = (flat[:, None] < flat).sum(dim=1)
    equal = (flat[:, None] == flat).sum(dim=1)  # with the head itself
    return (above + (equal + 1) / 2).double().view(importance.shape)


def top_k_sets(importance: Tensor, seed: int = 0) -> Tensor:
    """Return for k = 0, …, N the set of the k most important heads as a bit mask (bit i: head i).

    >>> top_k_sets(torch.tensor([0.1, 0.9, 0.5]))
    tensor([0, 2, 6, 7])

    ``importance`` is (N,), or (num_blocks, num_heads); ``seed`` draws which of equals is kept longer.
    """
    order = ranks(importance, seed).flatten().argsort()
    return torch.cat([order.new_zeros(1), (2**order).cumsum(dim=0)])


def pruning_curve(values: Tensor, importance: Tensor) -> Tensor:
    """Return the score of keeping the k most important heads, k = 0 to N, given the scores ``values`` of all 2**N sets.

    Ties count as the mean over their orders.

    >>> pruning_curve(torch.tensor([0.0, 1.0, 2.0, 4.0]), importance=torch.tensor([0.9, 0.1]))
    tensor([0., 1., 4.])

    ``importance`` is (N,), or (num_blocks, num_heads). Where all heads are equal, the result is
    ``random_pruning_curve(values)``.
    """
    flat, num_heads = importance.flatten(), _num_heads(values)
    if len(flat) != num_heads:
        raise ValueError(f"importance must have a number for each of the {num_heads} heads, got {len(flat)}")
    curve = [values[0]]
    for size, last in enumerate(flat.sort(descending=True).values, start=1):  # last: the least important head kept
        above, equals = (2 ** which.nonzero().flatten() for which in (flat > last, flat == last))
        chosen = list(combinations(equals.tolist(), size - len(above)))
        choices = torch.tensor(chosen, device=values.device)  # (num_choices, num_chosen)
        curve.append(values[above.sum() + choices.sum(dim=1)].mean())
    return torch.stack(curve)


def greedy(values: Tensor, seed: int = 0) -> Tensor:
    """Rank heads by greedy removal, given all sets' scores: 0 for the head removed first, N − 1 for the last one left.

    >>> greedy(torch.tensor([0.0, 1.0, 2.0, 4.0]))
    tensor([0., 1.], dtype=torch.float64)

    ``seed`` draws among equal costs.
    """
    num_heads = _num_heads(values)
    generator = torch.Generator().manual_seed(seed)
    kept, importance = len(values) - 1, torch.zeros(num_heads, dtype=torch.float64, device=values.device)
    for turn in range(num_heads):
        present = torch.tensor([head for head in range(num_heads) if kept >> head & 1], device=values.device)
        left = values[kept - 2**present]
        cheapest = present[left == left.max()]
        gone = int(cheapest[torch.randint(len(cheapest), (), generator=generator)])
        importance[gone] = turn
        kept -= 2**gone
    return importance


def area_under_curve(curve: Tensor) -> float:
    """Return the mean of a pruning curve, the scores with 0, 1, …, N heads kept: its normalised area.

    >>> area_under_curve(torch.tensor([0.0, 0.5, 1.0]))
    0.5
    """
    return curve.mean().item()


def spearman(first: Tensor, second: Tensor) -> float:
    """Compute Spearman's rank correlation of two tensors; ties share their mean rank; NaN if one is constant.

    >>> round(spearman(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 30.0, 20.0])), 2)
    0.5
    """
    pair = torch.stack([mean_ranks(first.flatten()), mean_ranks(second.flatten())])
    is_constant = (pair == pair[:, :1]).all(dim=1).any()  # of constants, corrcoef may give any number by rounding
    return math.nan if is_constant else torch.corrcoef(pair)[0, 1].item()


def block_mean_baseline(shares: Tensor) -> Tensor:
    """Replace each entry of ``shares`` (num_blocks, num_heads) by the mean of its block, as a baseline."""
    return shares.mean(dim=1, keepdim=True).expand_as(shares)


def block_baseline_correlation(shares: Tensor) -> float:
    """Return the rank correlation of ``shares`` (num_blocks, num_heads) with the same values averaged in each block."""
    return spearman(block_mean_baseline(shares), shares)


def permute_within_blocks(importance: Tensor, seed: int) -> Tensor:
    """Shuffle the scores ``importance`` (num_blocks, num_heads) at random within each block, as a random baseline.

    Chance of the same shape for a measure (num_blocks, num_heads): what it keeps of this is which block comes when.
    """
    places = torch.rand(importance.shape, generator=torch.Generator().manual_seed(seed)).argsort(dim=1)
    return importance.gather(1, places.to(importance.device))


def _num_heads(values: Tensor) -> int:
    num_heads = len(values).bit_length() - 1
    if values.dim() != 1 or len(values) != 2**num_heads:
        raise ValueError(f"values must have shape (2**num_heads,), got {tuple(values.shape)}")
    return num_heads


def _sizes(values: Tensor) -> Tensor:
    """Number of heads in each set."""
    return set_members(torch.arange(len(values), device=values.device), _num_heads(values)).sum(dim=1)
