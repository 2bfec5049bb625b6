"""What a head does, in numbers: how far it attends, and to what.

Each function takes attention weights (batch, num_heads, num_queries, num_keys), rows that sum to 1, and returns one
number for each head, (num_heads,), the mean over examples and queries.
"""

import torch
from torch import Tensor


def mean_distance(weights: Tensor, places: Tensor | None = None) -> Tensor:
    """Return each head's mean distance from query to key token, weighted by attention; ``places`` are their positions.

    >>> mean_distance(torch.tensor([[[[0.5, 0.5], [1.0, 0.0]]]]))
    tensor([0.7500])

    Args:
        weights: of self-attention; rows may sum to less than 1 where tokens without a position were left out.
        places: (n, number of coordinates), the position of each token; left out, 0, 1, 2, … on a line.
    """
    if places is None:
        places = torch.arange(weights.shape[-1])[:, None]
    if len(places) != weights.shape[-1] or weights.shape[-2] != weights.shape[-1]:
        raise ValueError(
            f"weights must be (batch, num_heads, n, n) with n={len(places)} places, got {tuple(weights.shape)}"
        )
    places = places.to(weights)
    distances = torch.cdist(places, places)
    return (weights * distances).sum(dim=(0, 2, 3)) / weights.sum(dim=(0, 2, 3))


def weight_on_self(weights: Tensor) -> Tensor:
    """Return each head's mean attention weight from a token to itself; it is 1 / n for uniform attention.

    >>> weight_on_self(torch.tensor([[[[0.5, 0.5], [0.2, 0.8]]]]))
    tensor([0.6500])
    """
    return weights.diagonal(dim1=-2, dim2=-1).mean(dim=(0, 2))


def weight_on_token(weights: Tensor, token: int) -> Tensor:
    """Return each head's mean attention weight on the key number ``token``; it is 1 / n for uniform attention."""
    return weights[..., token].mean(dim=(0, 2))


def entropy(weights: Tensor) -> Tensor:
    """Return each head's mean attention entropy in nats: 0 if concentrated on one token, ln n if uniform.

    >>> entropy(torch.tensor([[[[0.5, 0.5], [0.0, 1.0]]]]))
    tensor([0.3466])
    """
    return torch.special.entr(weights).sum(dim=-1).mean(dim=(0, 2))


def top1_hit_rate(weights: Tensor, wanted: Tensor) -> Tensor:
    """Return each head's share of queries with their largest weight on a ``wanted`` key, among queries that have one.

    Args:
        wanted: bool, (batch, num_queries, num_keys).
    """
    if wanted.shape != weights[:, 0].shape:
        raise ValueError(f"wanted must have shape {tuple(weights[:, 0].shape)}, got {tuple(wanted.shape)}")
    strongest = weights.argmax(dim=-1, keepdim=True)  # (batch, num_heads, num_queries, 1)
    hits = wanted.unsqueeze(1).expand_as(weights).gather(-1, strongest).squeeze(-1)
    return hits.sum(dim=(0, 2)) / wanted.any(dim=-1).sum()
