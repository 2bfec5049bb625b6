"""Sets of heads, and what the score of each adds to the heads' Shapley values."""

from math import comb

import torch
from torch import Tensor


def shapley_shares(num_heads: int, num_orders: int | None = None, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return sets of heads, bool (num_sets, num_heads), and what each set's score adds to each head's Shapley value.

    The shares (num_heads, num_sets), times the scores of the sets, are the values: exact ones from all 2**num_heads
    sets in the order of their numbers, or estimates from ``num_orders`` random orders in which heads join.
    """
    if num_orders is None:
        sets = set_members(torch.arange(2**num_heads), num_heads)
        sizes = sets.sum(dim=1)
        weights = [1 / (num_heads * comb(num_heads - 1, size)) for size in range(num_heads)]
        of_size = torch.tensor([0.0, *weights, 0.0], dtype=torch.float64)
        return sets, torch.where(sets.T, of_size[sizes], -of_size[sizes + 1])
    generator = torch.Generator().manual_seed(seed)
    place = torch.rand(num_orders, num_heads, generator=generator).argsort(dim=1).argsort(dim=1)
    joined = place[:, None] < torch.arange(num_heads + 1)[:, None]  # (num_orders, size, num_heads)
    sets, which = joined.flatten(0, 1).unique(dim=0, return_inverse=True)
    which = which.view(num_orders, num_heads + 1)
    shares = torch.zeros(num_heads, len(sets), dtype=torch.float64)
    for step, sign in ((1, 1.0), (0, -1.0)):  # with the head, and without
        shares.scatter_add_(1, which.gather(1, place + step).T, torch.full_like(place.T, sign, dtype=torch.float64))
    return sets, shares / num_orders


def set_members(sets: Tensor, num_heads: int) -> Tensor:
    """Convert set numbers, whose bit i is 1 if head i is in the set, to Booleans ``(*sets.shape, num_heads)``.

    >>> set_members(torch.tensor([5]), num_heads=3)
    tensor([[ True, False,  True]])
    """
    return (sets[..., None] >> torch.arange(num_heads, device=sets.device) & 1).bool()
