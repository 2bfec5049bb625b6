"""The exercises of notebook 06: reading maps of heads, and turning what one sees into numbers."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mha_lib.checking.comparing import Result, plain
from mha_lib.checking.edits import rows_of, with_edits
from mha_lib.checking.exercise import exercise, judged
from mha_lib.checking.running import MistakeError, NotYetError, run_safely
from mha_lib.checking.wording import as_sentence
from mha_lib.heads import spearman

__all__ = ["unknown_heads"]

WORDS = ("the", "dog", "saw", "the", "cat", "and", "the", "cat", "ran")
NEAR = {  # what a head looks at → its weights for query i and key j of n, up to a factor for each row
    "the token itself": lambda i, j, n: j == i,
    "the previous token": lambda i, j, n: j == (i - 1).clamp(min=0),
    "the next token": lambda i, j, n: j == (i + 1).clamp(max=n - 1),
    "the token two after": lambda i, j, n: j == torch.where(i + 2 < n, i + 2, i - 2),  # before, where there is none
    "all tokens up to two away": lambda i, j, n: (i - j).abs() <= 2,
    "tokens around itself, softly": lambda i, j, n: 0.4 ** (i - j).abs(),
}
FAR = {
    "the token three after": lambda i, j, n: j == torch.where(i + 3 < n, i + 3, i - 3),
    "the first token": lambda i, j, n: j == 0 * i,
    "the last token": lambda i, j, n: j == 0 * i + n - 1,
    "all tokens evenly": lambda i, j, n: j >= 0 * i,
    "the mirror place": lambda i, j, n: j == n - 1 - i,
    "half the text away": lambda i, j, n: j == (i + n // 2) % n,
}
LOOKS = {
    "itself": "the token itself",
    "previous": "the previous token",
    "next": "the next token",
    "first": "the first token",
    "last": "the last token",
    "even": "all tokens evenly",
}
ROLES = ("same word", *LOOKS)


def roles_of_unknown_heads():
    """What heads 0 to 5 do; in every row of such a head, that is where its weight is."""
    return ["same word", "next", "even", "previous", "first", "itself"]


def unknown_heads() -> Tensor:
    """Attention weights (6, 9, 9) among ``WORDS``, of six heads with a role each, and a little noise."""
    roles = roles_of_unknown_heads()
    noise = torch.randn(len(roles), len(WORDS), len(WORDS), generator=torch.Generator().manual_seed(2))
    loudness = torch.tensor([0.2 if role == "even" else 0.7 for role in roles])
    return torch.softmax(5 * torch.stack([wanted(role) for role in roles]) + loudness[:, None, None] * noise, dim=-1)


def wanted(role: str) -> Tensor:
    """1 where a head of this role looks, else 0: (9, 9)."""
    if role == "same word":
        return torch.tensor([[float(word == other) for other in WORDS] for word in WORDS])
    n = len(WORDS)
    return (NEAR | FAR)[LOOKS[role]](torch.arange(n)[:, None], torch.arange(n), n).float()


@judged(
    right=roles_of_unknown_heads,
    idea="Read row by row: a row is the word that asks. Does its darkest cell depend on the word or the place?",
    begin="Begin with the rows of “the”, which stands at 0, 3 and 6: they tell a place from a word.",
)
def head_roles(answer: list[str] | dict[int, str]) -> str:
    """What someone read off the maps of ``unknown_heads``.

    answer: one of ``ROLES`` for each head from 0 to 5, as a list, or as a dictionary by the head's number.
    Source: roles as found in trained models by K. Clark et al., What Does BERT Look At?, 2019, and E. Voita et al.,
    Analyzing Multi-Head Self-Attention, 2019.
    """
    roles, right = roles_from(answer), roles_of_unknown_heads()
    exchanged = {"previous": "next", "next": "previous"}
    if roles == right[::-1]:
        raise MistakeError("These are the right words in reverse order. Which head comes first?")
    if roles == [exchanged.get(role, role) for role in right]:
        raise MistakeError(
            "“previous” and “next” have changed places throughout, the rest is right. A row belongs to the word that "
            "asks, a column to the word that is looked at: which way does a stripe below the diagonal look?"
        )
    wrong = [head for head, role in enumerate(roles) if role != right[head]]
    if wrong:
        told = objection(unknown_heads()[wrong[0]], roles[wrong[0]], right[wrong[0]])
        raise MistakeError(f"{len(roles) - len(wrong)} of {len(roles)} are right. Head {wrong[0]}: {told}")
    return "All six. Each of these words can be tested by a number, and that is what the check did."


def roles_from(answer: Any) -> list[str]:
    """A role for each head, in order; a ``MistakeError`` if there is none, a ``NotYetError`` if some are dots."""
    heads = range(len(roles_of_unknown_heads()))
    if isinstance(answer, dict) and set(answer) <= set(heads):
        answer = [answer.get(head) for head in heads]
    if not isinstance(answer, list | tuple) or len(answer) != len(heads):
        raise MistakeError(f"A list of {len(heads)} words is needed, one for each head from 0 to {heads[-1]}.")
    if any(role is None or role is ... for role in answer):
        raise NotYetError("Put a word in the place of each `...`.")
    roles = [role.strip().lower() if isinstance(role, str) else role for role in answer]
    for head, role in enumerate(roles):
        if role not in ROLES:
            raise MistakeError(f"What is said of head {head} is not one of the words: {', '.join(ROLES)}.")
    return roles


def objection(weights: Tensor, claim: str, role: str) -> str:
    """Why a head with this role and these weights (9, 9) does not have the role that is claimed."""
    itself, alike = wanted("itself"), wanted("same word")
    if claim == "even":
        largest = weights.amax(dim=1).mean()
        return f"an even look gives 1/9 = 0.11 to each; here the largest weight of a row is {largest:.2f} on average."
    if {claim, role} == {"itself", "same word"}:
        repeated = alike.sum(dim=1) > 1
        own, others = ((weights * places).sum(dim=1)[repeated].mean() for places in (itself, alike - itself))
        return (
            f"words that occur more than once give {own:.2f} of their weight to their own place, and {others:.2f} to "
            "the places where the same word stands again, on average."
        )
    share, even = (weights * wanted(claim)).sum(dim=1).mean(), wanted(claim).mean()
    return (
        f"for “{claim}” most of the weight would have to be there; it is {share:.2f} on average (an even look has "
        f"{even:.2f}). Where is the darkest cell of a row?"
    )


def mixed_heads(batch: int, n: int) -> tuple[Tensor, list[str]]:
    """Weights (batch, 12, n, n) of near and far heads in random order, with a little noise, and where each looks."""
    looks = NEAR | FAR
    i, j = torch.arange(n)[:, None], torch.arange(n)
    maps = torch.stack([look(i, j, n).float() for look in looks.values()])
    noise = torch.softmax(torch.randn(batch, len(looks), n, n), dim=-1)
    share = 0.01 + 0.02 * torch.rand(len(looks), 1, 1)
    order = torch.randperm(len(looks))
    weights = (1 - share) * maps / maps.sum(dim=-1, keepdim=True) + share * noise
    return weights[:, order], [list(looks)[number] for number in order]


def share_beyond_two(weights):
    apart = torch.arange(weights.shape[-1]) - torch.arange(weights.shape[-1])[:, None]
    is_far = apart.abs() > 2
    return (weights * is_far).sum(dim=-1).mean(dim=(0, 2))


MISREADINGS = """
    weights * is_far -> torch.special.entr(weights) => Heads are ordered by how many tokens they look at. A head that
        looks sharply at the first token is narrow; does it look near?
    (weights * is_far).sum(dim=-1) -> weights.amax(dim=-1) => Heads are ordered by how sharp their look is, as the
        largest weight is. Can a head not look sharply at a token far away?
    .abs() > 2 -> == 0 => Heads are ordered by their weight on the diagonal. And one that looks at the previous token?
    .abs() > 2 -> == -1 => Heads are ordered by their weight on the previous token. And one that looks at the next?
    .abs() > 2 -> == 1 => Heads are ordered by their weight on the next token. And one that looks back?
    .abs() > 2 -> _ => Heads are ordered by where in the text they look, so that looks back and ahead cancel. Has a
        distance a sign?
    (weights * is_far).sum(dim=-1) -> (weights * apart**2).sum(dim=-1).sub((weights * apart).sum(dim=-1) ** 2) => Heads
        are ordered by how far the attended tokens lie from one another. From which token is far measured?
    .abs() > 2 -> .cumsum(0) == apart[0] => Heads are ordered by their weight on the first token. Is no other one far?
    .abs() > 2 -> .relu() => Heads are ordered by how far they look ahead. Can far not lie before?
    .abs() > 2 -> .neg().relu() => Heads are ordered by how far they look back. Can far not lie after?
    """


@judged(
    right=share_beyond_two,
    idea="How far a query looks does not depend on how sharply it looks. What does each weight have to be asked?",
    begin="Begin with a table of how many places lie between query and key.",
)
def reach(function: Callable[[Tensor], Tensor]) -> str:
    """A number of one's own that tells heads that look near from heads that look far.

    weights (batch, num_heads, n, n) → (num_heads,), any scale: every head with most of its weight at most two tokens
    away must get a smaller number than every other head.
    Source: the mean distance as in J. Vig, Y. Belinkov, Analyzing the Structure of Attention in a Transformer Language
    Model, 2019; any number that keeps the two kinds apart is right here.
    """
    mixes = [mixed_heads(batch, n) for batch, n in ((2, 12), (3, 16), (2, 21))]
    outcomes = run_safely(function, [(weights,) for weights, _ in mixes])
    numbers = [numbers_from(outcome, weights) for outcome, (weights, _) in zip(outcomes, mixes, strict=True)]
    if all((result == result[0]).all() for result in numbers):
        raise MistakeError("All heads get the same number, whatever they look at.")
    if any(disorder(names, result) for (_, names), result in zip(mixes, numbers, strict=True)):
        raise MistakeError(what_is_measured(mixes, numbers))
    return "Heads that look near and heads that look far are told apart, sharp or soft, before or after."


def numbers_from(outcome: Any, weights: Tensor) -> Tensor:
    """The number of each head; a ``MistakeError`` if there is not one finite number for each."""
    result = Result((weights,), outcome, weights.new_zeros(weights.shape[1]))
    if result.numbers is None or result.numbers.shape != result.expected.shape:
        axes = {4: " All weights are still there.", 2: " How do the examples become one?", 0: " Which axes must stay?"}
        hint = "" if result.numbers is None else axes.get(result.numbers.dim(), "")
        raise MistakeError(as_sentence(result.problem() or "") + hint)
    if not plain(result.numbers).isfinite().all():
        raise MistakeError("Some heads get NaN or infinity. What happens where a weight is 0?")
    return plain(result.numbers)


def disorder(names: list[str], numbers: Tensor) -> str:
    """A far head whose number is not larger than that of some near head, in words; "" if there is none."""
    found = dict(zip(names, numbers.tolist(), strict=True))
    high, low = max(NEAR, key=found.__getitem__), min(FAR, key=found.__getitem__)
    told = f"A head that looks at {low} gets {found[low]:.3g}, one that looks at {high} gets {found[high]:.3g}"
    return f"{told}; the first must get the larger number." if found[high] >= found[low] else ""


def what_is_measured(mixes: list[tuple[Tensor, list[str]]], numbers: list[Tensor]) -> str:
    """What the numbers measure instead of reach, if it ranks the heads of all mixes the same way; else a disorder."""
    disorders = [disorder(names, result) for (_, names), result in zip(mixes, numbers, strict=True)]
    if not any(disorder(names, -result) for (_, names), result in zip(mixes, numbers, strict=True)):
        return "It tells them apart, but upside down. Which heads must get the larger number?"
    for text, edits in rows_of(MISREADINGS):
        measure = with_edits(share_beyond_two, edits)
        alike = [spearman(measure(weights), result) for (weights, _), result in zip(mixes, numbers, strict=True)]
        if min(alike) > 0.999 or max(alike) < -0.999:
            return text
    return next(filter(None, disorders))


def ragged_weights(num_heads: int, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Weights of self-attention with padding; padded queries look, too."""
    n, valid_lens = max(lengths) + 1, torch.tensor(lengths)
    padding = torch.arange(n) >= valid_lens[:, None, None, None]
    scores = 2 * torch.randn(len(lengths), num_heads, n, n)
    return torch.softmax(scores.masked_fill(padding, -math.inf), dim=-1), valid_lens


@exercise(
    trials=lambda: [ragged_weights(3, [2, 4]), ragged_weights(2, [3, 7, 5]), ragged_weights(5, [6, 2, 4, 3])],
    praise="1 is an even look at whatever is valid, at any length, and padding has no say.",
    idea="Two things differ from a mean of entropies: what each entropy is divided by, and which queries count.",
    begin="Begin with the entropies of all rows; a weight of 0 must add 0 to them.",
    mistakes="""
    valid_lens.log()[:, None, None] -> math.log(weights.shape[-1]) || valid_lens.max().log() => Entropies are held
        against an even look at more keys than are valid. How many can a query look at?
    total / valid_lens.sum() -> rows.mean(dim=(0, 2)) || (rows * valid).mean(dim=(0, 2)) || (rows * valid) -> rows =>
        Padded queries are counted, above the fraction bar or below. Over which queries is the mean?
    < valid_lens[:, None, None] -> <= valid_lens[:, None, None] || < valid_lens[:, None, None] -> <= valid_lens[:, None,
        None] ; / valid_lens.sum() -> / (valid_lens + 1).sum() => One query too many of each example counts.
    < valid_lens[:, None, None] -> >= valid_lens[:, None, None] || < valid_lens[:, None, None] -> >= valid_lens[:, None,
        None] ; / valid_lens.sum() -> / (weights.shape[-1] - valid_lens).sum() => Padded queries alone count. Which way
        round is the mask?
    entropies / valid_lens.log()[:, None, None] -> entropies ; / valid_lens.sum() -> / (valid_lens *
        valid_lens.log()).sum() || total / valid_lens.sum() -> ((rows * valid).sum(dim=2) / valid_lens[:,
        None]).mean(dim=0) => Queries of short and long examples do not count alike. Is a mean taken of means, or a sum
        divided by a sum?
    / valid_lens.log()[:, None, None] -> _ => This grows with the number of keys. What are entropies divided by?
    entr(weights).sum(dim=-1) -> $ / math.log(2) => Every number is 1.443 times too large. Are there bits above, and
        nats below?
    valid_lens.log() -> valid_lens => Entropies are divided by the number of keys. Which entropy has an even look?
    torch.special.entr(weights) -> -(weights * weights.log()) => The result is NaN. What is 0 times its logarithm?
    total / valid_lens.sum() -> (rows * valid).sum(dim=2) / valid_lens[:, None] => There is one number for each example
        and head. How do the examples become one?
    / valid_lens.sum() -> _ || / len(valid_lens) => The sum is not divided by the number of valid queries.
    """,
)
def evenness(weights, valid_lens):
    """An entropy that can be compared between examples of different lengths, averaged over all valid queries alike.

    weights (batch, num_heads, n, n) of self-attention, valid_lens (batch,), each from 2 to n → (num_heads,): of each
    query the entropy of its weights over the entropy of an even look at its valid keys.
    Source: known as Pielou's evenness (E. C. Pielou, The measurement of diversity in different types of biological
    collections, 1966).
    """
    entropies = torch.special.entr(weights).sum(dim=-1)  # (b, h, q, k) -> (b, h, q)
    rows = entropies / valid_lens.log()[:, None, None]
    valid = torch.arange(weights.shape[-1]) < valid_lens[:, None, None]  # (q,) < (b, 1, 1) -> (b, 1, q)
    total = (rows * valid).sum(dim=(0, 2))  # (b, h, q) -> (h,)
    return total / valid_lens.sum()


def heard_trial(batch: int, num_heads: int, num_queries: int, num_keys: int, head_size: int) -> tuple:
    """Random weights, values and a square W_o."""
    num_hiddens = num_heads * head_size
    weights = torch.softmax(torch.randn(batch, num_heads, num_queries, num_keys), dim=-1)
    return weights, torch.randn(batch, num_heads, num_keys, head_size), torch.randn(num_hiddens, num_hiddens)


@exercise(
    trials=lambda: [heard_trial(2, 2, 3, 4, 2), heard_trial(3, 4, 2, 5, 3), heard_trial(2, 3, 5, 4, 4)],
    praise="A head whose columns of W_o are 0 has an empty map now, however sharply it looks.",
    idea="Follow one value on its way: it is taken through its head's share of W_o, then weighed, then measured.",
    begin="Begin by cutting W_o into the heads' columns, which stand side by side.",
    mistakes="""
    values @ columns.mT -> values => This is the length of what a head says. What becomes of a value on its way out?
    W_o.unflatten -> W_o.T.unflatten => The values are sent through the rows of W_o. What does a head own of it?
    W_o.unflatten(1, (weights.shape[1], -1)).transpose(0, 1) -> W_o.unflatten(1, (-1, weights.shape[1])).permute(2, 0,
        1) || .transpose(0, 1) -> $[:1] || $.flip(0) => A head does not meet its own columns of W_o. Which ones stand
        side by side?
    weights * lengths[:, :, None] -> 0 * weights + lengths[:, :, None] || lengths => All queries hear the same: the
        weights have no say.
    arriving.norm(dim=-1) -> values.norm(dim=-1) * columns.norm(dim=(1, 2))[:, None] => Two lengths are multiplied. Is a
        product's length the product of the lengths?
    norm(dim=-1) -> square().sum(dim=-1) || square().mean(dim=-1).sqrt() || abs().sum(dim=-1) || sum(dim=-1) => Another
        number is taken of a vector than its length. What is the length of a vector?
    weights * lengths[:, :, None] -> torch.nn.functional.normalize($, p=1, dim=-1) => Every row sums to 1. Does a row
        that sums to 1 show how much a head says?
    weights * lengths[:, :, None] -> (weights @ arriving).norm(dim=-1) => The keys are added up before the length is
        taken. What do single keys add?
    weights * lengths[:, :, None] -> weights[..., None] * arriving[:, :, None] => The vectors come back. What of them is
        asked for?
    values @ columns.mT -> ($).sum(dim=1, keepdim=True) => All heads get the length of what they say together.
    """,
)
def heard(weights, values, W_o):
    """A map of what reaches the output, which a map of weights is not: the length of what each key adds through a head.

    weights (batch, num_heads, num_queries, num_keys), values (batch, num_heads, num_keys, head_size), W_o (num_hiddens,
    num_heads · head_size) as in ``nn.Linear`` → lengths of the shape of the weights.
    Source: G. Kobayashi et al., Attention is Not Only a Weight: Analyzing Transformers with Vector Norms, 2020.
    """
    columns = W_o.unflatten(1, (weights.shape[1], -1)).transpose(0, 1)  # (d, h · p) -> (h, d, p)
    arriving = values @ columns.mT  # (b, h, k, p) @ (h, p, d) -> (b, h, k, d)
    lengths = arriving.norm(dim=-1)  # -> (b, h, k)
    return weights * lengths[:, :, None]  # (b, h, q, k) * (b, h, 1, k)
