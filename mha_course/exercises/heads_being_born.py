"""The exercise of notebook 11: a score for induction heads."""

import torch
from torch import Tensor

from mha_course.checking.exercise import exercise


def causal_maps(num_heads: int, num_tokens: int) -> Tensor:
    """Return random causal attention weights, (num_heads, num_tokens, num_tokens)."""
    scores = 2 * torch.randn(num_heads, num_tokens, num_tokens)
    later = torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(later, -torch.inf), dim=-1)


def repeated_letters(num_tokens: int, length: int, back: int) -> Tensor:
    """Return letters as integers: all different, but the last ``length`` copy those ``back`` positions before them."""
    letters = torch.randperm(60)[:num_tokens]
    letters[num_tokens - length :] = letters[num_tokens - length - back : num_tokens - back].clone()
    return letters


@exercise(
    trials=lambda: [
        (causal_maps(1, 4), torch.tensor([5, 8, 5, 8])),
        (causal_maps(2, 8), repeated_letters(8, 3, 4)),
        (causal_maps(3, 12), repeated_letters(12, 4, 7)),
    ],
    praise="Only queries whose letter occurred before count. Their right key is the token after the earlier copy.",
    idea="A query counts if its letter occurred before. Its right key is the token after the earlier copy.",
    begin="Begin with an empty list, and loop over the queries.",
    mistakes="""
        earlier + 1] -> earlier] => This is the weight on the earlier copy of the query's own letter. The right key is
            the token after it.
        earlier + 1] -> earlier - 1] => This is the weight on the token before the earlier copy. The right key is the
            token after it.
        earlier + 1] -> t - 1] => This is the weight on the token before the query. The right key is the token after
            the earlier copy.
        weights[:, t, earlier + 1] -> weights[:, earlier + 1, t] => Queries and keys are swapped: the first of the two
            axes belongs to the query.
        .mean(dim=0) -> .sum(dim=0) / len(row) => Every token counts in the mean; those whose letter is new count
            with 0. Divide by the number of queries that have an earlier copy.
        .mean(dim=0) -> .sum(dim=0) => These are sums; a mean is needed.
        .mean(dim=0) -> .amax(dim=0) || .median(dim=0).values => This is the largest or the middle weight, not the mean.
        .mean(dim=0) -> _ => These are the weights of all queries that count; their mean is needed.
        .mean(dim=0) -> .mean() => The heads are averaged too; one number for each head is needed.
        shares.append(weights[:, t, earlier + 1]) -> shares = [weights[:, t, earlier + 1]] => Only the last query
            counts. Check whether each overwrites the one before.
        if letter in row[:t]: -> if row.count(letter) > 1: => First copies count too. Only queries whose letter occurred
            before should count.
        weights[:, t, earlier + 1] -> (weights[:, t].argmax(dim=1) == earlier + 1).float() => This counts how often the
            right key receives most; the mean of its weight is needed.
        weights[:, t, earlier + 1] -> weights[:, t - 1, earlier + 1] || weights[:, t - 1, earlier] => The row is that of
            the previous token. Use the row of the query.
    """,
)
def induction_share(weights, letters):
    """Return each head's mean attention to the token that follows the previous occurrence of the query's letter.

    weights (num_heads, n, n), causal; letters (n,), integers of which each occurs once or twice. Queries whose letter
    did not occur before do not count → (num_heads,).
    Source: Olsson et al. 2022, "In-context Learning and Induction Heads".
    """
    row, shares = letters.tolist(), []
    for t, letter in enumerate(row):
        if letter in row[:t]:
            earlier = row.index(letter)
            shares.append(weights[:, t, earlier + 1])
    return torch.stack(shares).mean(dim=0)
