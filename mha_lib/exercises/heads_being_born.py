"""The exercises of notebook 11: two scores of a head, what an induction head says, and heads that change places."""

import torch
from torch import Tensor

from mha_lib.checking.exercise import exercise
from mha_lib.checking.running import must_be_integers


def causal_maps(num_heads: int, num_tokens: int) -> Tensor:
    """Causal attention weights, (num_heads, n, n)."""
    scores = 2 * torch.randn(num_heads, num_tokens, num_tokens)
    later = torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(later, -torch.inf), dim=-1)


def repeated_letters(num_tokens: int, length: int, back: int) -> Tensor:
    """Different letters, except that the last ``length`` repeat those ``back`` places earlier."""
    letters = torch.randperm(60)[:num_tokens]
    letters[num_tokens - length :] = letters[num_tokens - length - back : num_tokens - back].clone()
    return letters


@exercise(
    trials=lambda: [(causal_maps(1, 3),), (causal_maps(2, 4),), (causal_maps(3, 7),)],
    praise="This is one point of the curves of section 4.",
    idea="Query t has one key that counts, t − 1. Where do these weights stand in the map?",
    begin="Begin with the diagonal just below the main one.",
    mistakes="""
        offset=-1 -> offset=0 => This is the weight of each token on itself.
        offset=-1 -> offset=1 => This is the weight on the next token, which a causal head never sees.
        .mean(dim=-1) -> .sum(dim=-1) / weights.shape[-1] => The sum is divided by the number of tokens. How many of
            them have a token before them?
        .mean(dim=-1) -> .sum(dim=-1) => These are sums over the queries; a mean is asked for.
        .mean(dim=-1) -> .mean() => The heads are averaged too; one number a head is asked for.
        .mean(dim=-1) -> .amax(dim=-1) => This is the largest of these weights, not their mean.
        .mean(dim=-1) -> .mean(dim=0) => The mean runs over the heads. Over what should it run?
        .mean(dim=-1) -> _ => These are the weights of all queries; their mean is asked for.
        offset=-1 -> offset=-2 => This is the weight on the token two places before.
        dim1=1, dim2=2 -> dim1=0, dim2=1 => The diagonal runs through heads and queries. Which two axes are a map?
        .mean(dim=-1) -> [:, :-1].mean(dim=-1) => The last query is left out.
        .mean(dim=-1) -> .sum(dim=-1).add(weights[:, 0, 0]) / weights.shape[-1] => Query 0 counts, with its weight on
            itself. Has it a token before it?
        weights.diagonal(offset=-1, dim1=1, dim2=2).mean(dim=-1) -> (weights[:, 1:].argmax(dim=2) ==
            torch.arange(weights.shape[2] - 1)).float().mean(dim=1) => This counts how often the token before gets most;
            the mean of its weight is asked for.
    """,
)
def previous_token_share(weights):
    """How much weight each head gives to the token before, on average over the queries that have one.

    weights (num_heads, n, n), causal → (num_heads,).
    """
    return weights.diagonal(offset=-1, dim1=1, dim2=2).mean(dim=-1)


@exercise(
    trials=lambda: [
        (causal_maps(1, 4), torch.tensor([5, 8, 5, 8])),
        (causal_maps(2, 8), repeated_letters(8, 3, 4)),
        (causal_maps(3, 12), repeated_letters(12, 4, 7)),
    ],
    praise="Only queries count whose letter stood there before; their right key is one place behind the earlier copy.",
    idea="A query counts if its letter stood there before. Its right key is not that letter, but the one after it.",
    begin="Begin with an empty list, and loop over the queries.",
    mistakes="""
        earlier + 1] -> earlier] => This is the weight on the earlier copy of the query's own letter. Which letter comes
            next, and where did it stand?
        earlier + 1] -> earlier - 1] => This is the weight on the token before the earlier copy. Which letter comes
            next?
        earlier + 1] -> t - 1] => This is the weight on the token before the query. Where is the earlier copy?
        weights[:, t, earlier + 1] -> weights[:, earlier + 1, t] => Queries and keys have changed places: whose row is
            it?
        .mean(dim=0) -> .sum(dim=0) / len(row) => Every token counts in the mean; those whose letter is new count
            with 0. How many have an earlier copy?
        .mean(dim=0) -> .sum(dim=0) => These are sums; a mean is asked for.
        .mean(dim=0) -> .amax(dim=0) || .median(dim=0).values => This is the largest or the middle weight, not the mean.
        .mean(dim=0) -> _ => These are the weights of all queries that count; their mean is asked for.
        .mean(dim=0) -> .mean() => The heads are averaged too; one number a head is asked for.
        shares.append(weights[:, t, earlier + 1]) -> shares = [weights[:, t, earlier + 1]] => Only the last query
            counts. Does each overwrite the one before?
        if letter in row[:t]: -> if row.count(letter) > 1: => First copies count too, which have nobody to look back to.
        weights[:, t, earlier + 1] -> (weights[:, t].argmax(dim=1) == earlier + 1).float() => This counts how often the
            right key gets most; the mean of its weight is asked for.
        weights[:, t, earlier + 1] -> weights[:, t - 1, earlier + 1] || weights[:, t - 1, earlier] => The row is that of
            the token before. Who is the query?
    """,
)
def induction_share(weights, letters):
    """How much weight each head gives to the token after the earlier copy of the query's letter, on average.

    weights (num_heads, n, n), causal; letters (n,), integers of which each occurs once or twice. Queries whose letter
    stands there for the first time do not count → (num_heads,).
    Source: Olsson et al. 2022, "In-context Learning and Induction Heads".
    """
    row, shares = letters.tolist(), []
    for t, letter in enumerate(row):
        if letter in row[:t]:
            earlier = row.index(letter)
            shares.append(weights[:, t, earlier + 1])
    return torch.stack(shares).mean(dim=0)


@exercise(
    then=must_be_integers(torch.tensor([4, 7, 4])),
    trials=lambda: [
        (torch.tensor([4, 7, 4]),),
        (repeated_letters(9, 3, 5),),
        (torch.tensor([1, 2, 1, 3, 1, 2]),),
        (torch.tensor([6, 6, 6, 5, 6]),),
    ],
    praise="This rule, and no more, is what the two heads had to find.",
    idea="Look for the last earlier place of the same letter. What stands one place behind it?",
    begin="Begin with an answer of −1 for every token.",
    mistakes="""
        earlier + 1] -> earlier] => This repeats the token's own letter. Which letter came after it the last time?
        earlier + 1] -> earlier - 1] => This is the letter that stood before the earlier copy.
        range(t) -> range(t + 1) => An error is raised: here a token can be its own earlier copy, and the last one
            has nobody behind it. Where does the past end?
        range(t) -> reversed(range(t)) => Where a letter has stood twice before, this takes the first place; which is
            asked for?
        torch.full_like(letters, -1) -> torch.zeros_like(letters) => A token without an earlier copy gets 0, which is a
            letter. What is asked for?
        torch.full_like(letters, -1) -> letters.clone() => A token without an earlier copy gets its own letter. What is
            asked for?
        range(t) -> range(t + 1) ; == letters[t]: -> == letters[t] and earlier + 1 < len(letters): => A token is its own
            earlier copy here, and knows what comes after it. Where does the past end?
        range(t) -> range(len(letters) - 1) || range(t) -> range(len(letters) - 1) ; == letters[t]: -> == letters[t] and
            earlier != t: => Copies count that stand later. What does a token know?
        range(t) -> range(t - 1) => A copy directly before the token is not seen. Where does the past end?
        range(t) -> range(1, t) => A copy at the very first place is not seen. Where does the past begin?
        letters[earlier + 1] -> earlier + 1 || earlier => This is a place. Which letter stands there?
    """,
)
def goes_on(letters):
    """What a perfect induction head foretells at each token: the letter that followed its last earlier occurrence.

    letters (n,), integers → (n,), integers; −1 where the letter stands there for the first time. Where it has stood
    there several times, the last time counts; a token knows itself and what comes before it, nothing later.
    """
    answers = torch.full_like(letters, -1)
    for t in range(len(letters)):
        for earlier in range(t):
            if letters[earlier] == letters[t]:
                answers[t] = letters[earlier + 1]
    return answers


def layer_trial(num_heads: int, head_size: int, order: list[int]) -> tuple:
    """Random stacked matrices of a layer, and a new order of its heads."""
    num_hiddens = num_heads * head_size
    return (*torch.randn(4, num_hiddens, num_hiddens), num_heads, torch.tensor(order))


def overwritten(heads: Tensor, order: Tensor) -> Tensor:
    """What comes of moving heads one by one within one tensor."""
    heads = heads.clone()
    for place, head in enumerate(order):
        heads[place] = heads[head]
    return heads


@exercise(
    trials=lambda: [layer_trial(2, 1, [1, 0]), layer_trial(3, 2, [2, 0, 1]), layer_trial(4, 3, [2, 0, 3, 1])],
    praise="The new layer computes what the old one did: a head's number means nothing.",
    idea="A head owns rows of three matrices and columns of the fourth. They have to move together.",
    begin="Begin by cutting the rows of one matrix into heads.",
    mistakes="""
        W_o.T.unflatten(0, sizes)[order].flatten(0, 1).T -> W_o => W_o has stayed as it was, so that every head meets
            another one's columns.
        W_o.T.unflatten(0, sizes)[order].flatten(0, 1).T -> W_o.unflatten(0, sizes)[order].flatten(0, 1) => The rows of
            W_o have moved. What does a head own of it?
        W_o.T.unflatten(0, sizes)[order].flatten(0, 1).T -> W_o.T.unflatten(0, sizes)[order].flatten(0, 1) => The
            columns of W_o have become rows. Is a transpose missing at the end?
        (W_q, W_k, W_v)] -> (W_q, W_k)] + [W_v] => W_v has stayed as it was, so that heads pass on what others should.
        rows = [W.unflatten(0, sizes)[order] -> rows = [W.unflatten(0, sizes)[order.argsort()] ; W_o.T.unflatten(0,
            sizes)[order] -> W_o.T.unflatten(0, sizes)[order.argsort()] => This is the order read backwards: place i
            should get head order[i].
        rows = [W.unflatten(0, sizes)[order] -> rows = [W.unflatten(0, sizes)[order.argsort()] || W_o.T.unflatten(0,
            sizes)[order] -> W_o.T.unflatten(0, sizes)[order.argsort()] => W_q, W_k and W_v are in one order, W_o in
            another.
        sizes = (num_heads, -1) -> sizes = (-1, num_heads) ; rows = [W.unflatten(0, sizes)[order] -> rows =
            [W.unflatten(0, sizes)[:, order] ; W_o.T.unflatten(0, sizes)[order] -> W_o.T.unflatten(0, sizes)[:, order]
            => Rows and columns are dealt out to the heads in turn. Which ones does head 0 own?
        rows = [W.unflatten(0, sizes)[order] -> rows = [overwritten(W.unflatten(0, sizes), order) ; W_o.T.unflatten(0,
            sizes)[order] -> overwritten(W_o.T.unflatten(0, sizes), order) => Heads are overwritten before they are
            read, so that some stand there twice.
        sizes = (num_heads, -1) -> sizes = (-1, num_heads) => The rows are cut into pieces of num_heads rows, and an
            error is raised. How many rows has a head?
    """,
)
def reorder_heads(W_q, W_k, W_v, W_o, num_heads, order):
    """The same layer with its heads in another order: place i gets head order[i], and the output stays as it was.

    W_q, W_k, W_v (num_hiddens, num_hiddens) hold the heads' matrices on top of each other, W_o their columns side by
    side; order (num_heads,), integers → a tuple (W_q, W_k, W_v, W_o) of the new matrices.
    """
    sizes = (num_heads, -1)
    rows = [W.unflatten(0, sizes)[order].flatten(0, 1) for W in (W_q, W_k, W_v)]
    return (*rows, W_o.T.unflatten(0, sizes)[order].flatten(0, 1).T)
