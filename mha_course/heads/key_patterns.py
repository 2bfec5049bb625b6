"""What a head attends to, measured from its map: the previous token, an earlier copy, one key from every query.

Each pattern is compared with uniform attention over the same keys, which has some weight on every pattern, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class KeyPattern:
    """Hold the keys that a head prefers: their name, and their mean weight over the queries that have such a key.

    Attributes:
        words: "the previous token", or "“d” at 6" for a key that is the same for every query.
        weight: the head's mean weight on these keys.
        uniform: the weight that uniform attention gives them.
    """

    words: str
    weight: float
    uniform: float


def strongest_patterns(maps: Tensor, queries: Sequence[str], keys: Sequence[str]) -> list[list[KeyPattern]]:
    """Return for each map the pattern whose weight is farthest above that of uniform attention.

    >>> one_back = torch.eye(3)[[0, 0, 1]].expand(1, 1, 3, 3)
    >>> strongest_patterns(one_back, list("abc"), list("abc"))[0][0].words
    'the previous token'

    Args:
        maps: attention weights, (num_steps, num_heads, num_queries, num_keys). Without any weight above the diagonal
            of square maps, later keys count as masked.
        queries, keys: the tokens' names. Equal names are copies of a token.
    """
    maps = maps.cpu()
    valid = torch.ones(maps.shape[-2:])
    if len(queries) == len(keys) and not maps.triu(1).any():
        valid = valid.tril()
    uniform = valid / valid.sum(dim=-1, keepdim=True)
    free = valid.sum(dim=-1) > 1  # a query with a single valid key has no choice
    every = {words: wanted & free[:, None] for words, wanted in wanted_keys(queries, keys).items()}
    every = {words: wanted for words, wanted in every.items() if (wanted & (valid > 0)).any()}
    weights, expected = [], []
    for wanted in every.values():
        count = wanted.any(dim=-1).sum()
        weights.append((maps * wanted).sum(dim=(-2, -1)) / count)
        expected.append((uniform * wanted).sum() / count)
    weight, null = torch.stack(weights), torch.stack(expected)  # (num_patterns, num_steps, num_heads), (num_patterns,)
    best, names = (weight - null[:, None, None]).argmax(dim=0), list(every)
    return [
        [
            KeyPattern(names[pattern], weight[pattern, step, head].item(), null[pattern].item())
            for head, pattern in enumerate(row)
        ]
        for step, row in enumerate(best.tolist())
    ]


def wanted_keys(queries: Sequence[str], keys: Sequence[str]) -> dict[str, Tensor]:
    """Return the patterns by name, each with its keys for every query: bool, (num_queries, num_keys)."""
    shape = len(queries), len(keys)
    patterns = {}
    for key, name in enumerate(keys):
        words = f"key {key}" if str(name) == str(key) else f"“{name}” at {key}"
        patterns[words] = (torch.arange(len(keys)) == key).expand(shape)
    if list(queries) != list(keys):
        return patterns
    copy, after = torch.zeros(2, *shape, dtype=torch.bool)
    latest: dict[str, int] = {}
    for query, name in enumerate(queries):
        if name in latest:
            copy[query, latest[name]] = after[query, latest[name] + 1] = True
        latest[name] = query
    own = torch.eye(len(queries), dtype=torch.bool)
    return patterns | {
        "its own token": own,
        "the previous token": own.roll(1, dims=0).tril(-1),
        "the next token": own.roll(-1, dims=0).triu(1),
        "the earlier copy": copy,
        "the token after the earlier copy": after,
    }
