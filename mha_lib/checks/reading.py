"""Checks of notebook 05: reading maps of heads, and turning what one sees into numbers."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from mha_lib.checks.calls import call, kind_of, tensor_from
from mha_lib.checks.compare import SEEN, Slip, compare, same_order
from mha_lib.checks.verdict import MistakeError, NotYetError, check, trimmed
from mha_lib.heads import statistics

WORDS = ("the", "dog", "saw", "the", "cat", "and", "the", "cat", "ran")
ROLES = ("itself", "same word", "previous", "next", "first", "last", "even")
PLAYED = ("same word", "next", "even", "previous", "first", "itself")  # by heads 0 to 5

# ---------------------------------------------------------------------------------------------------------------------
# Reading maps


def unknown_heads() -> Tensor:
    """Attention weights (6, 9, 9) among ``WORDS``, of six heads with a role each."""
    generator = torch.Generator().manual_seed(2)
    noise = torch.randn(len(PLAYED), len(WORDS), len(WORDS), generator=generator)
    scores = [
        5 * wanted(role) + (0.2 if role == "even" else 0.7) * own for role, own in zip(PLAYED, noise, strict=True)
    ]
    return torch.softmax(torch.stack(scores), dim=-1)


def wanted(role: str) -> Tensor:
    """1 where a head of this role looks, else 0: (9, 9)."""
    same = torch.tensor([[word == other for other in WORDS] for word in WORDS])
    return (looks_by_place(len(WORDS)) | {"same word": same})[role].float()


def looks_by_place(n: int) -> dict[str, Tensor]:
    """Role → where a head looks that minds nothing but places: bool (n, n).

    The first token has none before it, the last none after; there they look at themselves.
    """
    i, j = torch.arange(n)[:, None], torch.arange(n).expand(n, n)
    return {
        "itself": j == i,
        "previous": j == (i - 1).clamp(min=0),
        "next": j == (i + 1).clamp(max=n - 1),
        "first": j == 0,
        "last": j == n - 1,
        "even": j >= 0,
    }


@check
def head_roles(answer: list[str] | dict[int, str]) -> str:
    """Check what someone read off the maps of ``unknown_heads``.

    Args:
        answer: one of ``ROLES`` for each head from 0 to 5, as a list, or as a dictionary by the head's number.

    Source: roles as found in trained models by Clark et al. 2019, "What Does BERT Look At?", and Voita et al. 2019,
        "Analyzing Multi-Head Self-Attention".
    """
    roles = roles_from(answer)
    wrong = [head for head, role in enumerate(roles) if role != PLAYED[head]]
    if not wrong:
        return "all six. Each of these words can be tested by a number, and that is what the check did."
    if roles == list(reversed(PLAYED)):
        raise MistakeError("these are the right words in reverse order: head 0 comes first.")
    exchanged = {"previous": "next", "next": "previous"}
    if roles == [exchanged.get(role, role) for role in PLAYED]:
        raise MistakeError(
            "“previous” and “next” have changed places throughout, the rest is right. A row belongs to the word that "
            "asks, a column to the word that is looked at: which way does a stripe below the diagonal look?"
        )
    right = len(PLAYED) - len(wrong)
    raise MistakeError(f"{right} of {len(PLAYED)} are right; head {wrong[0]}: {objection(wrong[0], roles[wrong[0]])}")


def roles_from(answer: Any) -> list[str]:
    """A role for each head, in order.

    Raises:
        NotYetError: some are still dots.
        MistakeError: there is not one known role for each head.
    """
    heads = list(range(len(PLAYED)))
    if isinstance(answer, Mapping):
        if sorted(answer, key=str) != heads:
            raise MistakeError(
                f"a dictionary needs the heads {heads} as keys, yours has {trimmed(str([*answer]), 80)}."
            )
        answer = [answer[head] for head in heads]
    if not isinstance(answer, list | tuple):
        raise MistakeError(f"a list of {len(heads)} words is needed, one for each head; this is {kind_of(answer)}.")
    if any(role is None or role is ... for role in answer):
        raise NotYetError("put a word in the place of every dots.")
    if len(answer) != len(heads):
        raise MistakeError(f"{len(heads)} words are needed, one for each head; there are {len(answer)}.")
    roles = [role.strip().lower() if isinstance(role, str) else role for role in answer]
    unknown = next((role for role in roles if not isinstance(role, str) or role not in ROLES), None)
    if unknown is not None:
        name = f"“{trimmed(unknown, 40)}”" if isinstance(unknown, str) else kind_of(unknown)
        raise MistakeError(f"{name} is not one of the words to choose from: {', '.join(ROLES)}.")
    return roles


def objection(head: int, claim: str) -> str:
    """Why a head has not the role that is claimed, by what its weights do there."""
    weights = unknown_heads()[head]
    own, alike, repeated = wanted("itself"), wanted("same word"), wanted("same word").sum(dim=1) > 1
    place = (weights * own).sum(dim=1)
    if claim == "even":
        return (
            f"an even look gives 1/{len(WORDS)} = {1 / len(WORDS):.2f} to each; here the largest weight of a row is "
            f"{weights.amax(dim=1).mean():.2f} on average."
        )
    if claim == "itself" and PLAYED[head] == "same word":
        return (
            "words that occur once do look at themselves, but words that occur more than once give only "
            f"{place[repeated].mean():.2f} of their weight to their own place, on average."
        )
    if claim == "same word" and PLAYED[head] == "itself":
        others = (weights * (alike - own)).sum(dim=1)[repeated].mean()
        return (
            f"words that occur more than once give {place[repeated].mean():.2f} of their weight to their own place, "
            f"and {others:.2f} to the places where the same word stands again."
        )
    share = (weights * wanted(claim)).sum(dim=1).mean()
    even = wanted(claim).mean()
    return (
        f"for “{claim}” most of the weight would have to be there; it is {share:.2f} on average (an even look has "
        f"{even:.2f}). Take one row, and find its brightest cell."
    )


# ---------------------------------------------------------------------------------------------------------------------
# Near or far


@check
def reach(function: Callable[[Tensor], Tensor]) -> str:
    """Check a number of one's own that tells heads that look near from heads that look far.

    Args:
        function: ``reach(weights)``, (batch, num_heads, n, n) → (num_heads,), any scale: every head that looks at most
            two tokens away must get a smaller number than every head that looks farther.

    Source: the mean distance as in Vig and Belinkov 2019, "Analyzing the Structure of Attention in a Transformer
        Language Model"; any number that keeps the two kinds apart is right here.
    """
    mixes = [mixed_heads(batch, n) for batch, n in ((2, 12), (3, 16), (2, 21))]
    numbers = []
    for weights, _ in mixes:
        result = call(function, weights)
        if isinstance(result, Tensor) and result.shape == weights.shape[:2]:
            raise MistakeError("there is one number for each example and head: the mean over the examples is missing.")
        if isinstance(result, Tensor) and result.dim() == 0:
            raise MistakeError("there is one number for all heads together; each head needs its own.")
        result = tensor_from(result, (weights.shape[1],), floating=False).to("cpu", torch.float64)
        numbers.append(result)
    if all((result == result[0]).all() for result in numbers):
        raise MistakeError("all heads get the same number.")
    for (_, names), result in zip(mixes, numbers, strict=True):
        if disorder(names, result):
            raise MistakeError(misread(mixes, numbers) or confused(names, result))
    return "heads that look near and heads that look far are told apart, sharp or soft, before or after."


NEAR = (
    "the token itself",
    "the previous token",
    "the next token",
    "the token two after",
    "all tokens up to two away",
    "tokens around itself, softly",
)
FAR = (
    "the token three after",
    "the first token",
    "the last token",
    "all tokens evenly",
    "the mirror place",
    "half the text away",
)


def mixed_heads(batch: int, n: int) -> tuple[Tensor, list[str]]:
    """Weights (batch, 12, n, n) of near and far heads in random order, and where each looks."""
    names = NEAR + FAR
    i, j = torch.arange(n)[:, None], torch.arange(n)
    apart = (i - j).abs()
    by_place = looks_by_place(n)
    looks = {
        "the token itself": by_place["itself"],
        "the previous token": by_place["previous"],
        "the next token": by_place["next"],
        "the token two after": j == torch.where(i + 2 < n, i + 2, i - 2),  # before, where there is none after
        "the token three after": j == torch.where(i + 3 < n, i + 3, i - 3),
        "all tokens up to two away": apart <= 2,
        "tokens around itself, softly": 0.4**apart,
        "the first token": by_place["first"],
        "the last token": by_place["last"],
        "all tokens evenly": by_place["even"],
        "the mirror place": j == n - 1 - i,
        "half the text away": (j == (i + n // 2) % n),
    }
    maps = torch.stack([looks[name].float() / looks[name].float().sum(dim=1, keepdim=True) for name in names])
    noise = torch.softmax(torch.randn(batch, len(names), n, n), dim=-1)
    share = 0.01 + 0.02 * torch.rand(len(names), 1, 1)
    order = torch.randperm(len(names))
    return ((1 - share) * maps + share * noise)[:, order], [names[number] for number in order.tolist()]


def disorder(names: list[str], numbers: Tensor) -> bool:
    """Whether some near head's number is not smaller than some far head's."""
    near = torch.tensor([name in NEAR for name in names])
    return bool(numbers[near].max() >= numbers[~near].min())


def misread(mixes: list[tuple[Tensor, list[str]]], numbers: list[Tensor]) -> str | None:
    """What numbers measure instead of reach, if they rank the heads of every mix just as that does."""
    if all(not disorder(names, -result) for (_, names), result in zip(mixes, numbers, strict=True)):
        return "it tells them apart, but upside down: a head that looks far must get the larger number."
    for measure, text in MISREADINGS:
        measured = [measure(weights) for weights, _ in mixes]
        if all(map(same_order, measured, numbers)) or all(map(same_order, [-row for row in measured], numbers)):
            return text
    return None


def confused(names: list[str], numbers: Tensor) -> str:
    """The pair of heads that is furthest out of order."""
    near = [place for place, name in enumerate(names) if name in NEAR]
    far = [place for place, name in enumerate(names) if name in FAR]
    high, low = max(near, key=lambda place: numbers[place]), min(far, key=lambda place: numbers[place])
    return (
        f"a head that looks at {names[low]} gets {numbers[low].item():.3g}, one that looks at "
        f"{names[high]} gets {numbers[high].item():.3g}; the first must get the larger number."
    )


def offsets(weights: Tensor) -> Tensor:
    """Key's place − query's place, (n, n)."""
    places = torch.arange(weights.shape[-1], dtype=weights.dtype)
    return places - places[:, None]


def ahead(weights: Tensor) -> Tensor:
    """Mean distance with its sign."""
    return (weights * offsets(weights)).sum(dim=-1).mean(dim=(0, 2))


def scatter(weights: Tensor) -> Tensor:
    """Mean variance of the attended places."""
    offset = offsets(weights)
    centre = (weights * offset).sum(dim=-1, keepdim=True)
    return (weights * (offset - centre) ** 2).sum(dim=-1).mean(dim=(0, 2))


def on_previous(weights: Tensor) -> Tensor:
    """Mean weight on the token before."""
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(dim=(0, 2))


MISREADINGS = [
    (
        statistics.entropy,
        "it orders heads by how many tokens they look at, not by how far away these are: a head that looks sharply at "
        "the first token is narrow, and yet looks far.",
    ),
    (
        lambda weights: weights.amax(dim=-1).mean(dim=(0, 2)),
        "it orders heads by how sharp their look is, as the largest weight does; a head may look sharply at a token "
        "far away.",
    ),
    (
        statistics.weight_on_self,
        "it orders heads by their weight on the diagonal alone: a head that looks at the previous token counts as far "
        "as one that looks at the other end.",
    ),
    (
        on_previous,
        "it orders heads by their weight on the previous token alone: a head that looks at itself, or at the next "
        "token, is near, too.",
    ),
    (
        ahead,
        "it orders heads by where in the text they look, from the beginning to the end, so that looks back and looks "
        "ahead cancel; a distance has no sign.",
    ),
    (
        scatter,
        "it orders heads by how far the attended tokens lie from one another, not from the token that asks: a head "
        "that looks sharply at a far token gets next to nothing.",
    ),
    (
        lambda weights: statistics.weight_on_token(weights, 0),
        "it orders heads by their weight on the first token alone; a head may look far without looking there.",
    ),
]

# ---------------------------------------------------------------------------------------------------------------------
# How even a look is


@check
def evenness(function: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Check an entropy that can be compared between examples of different lengths.

    Args:
        function: ``evenness(weights, valid_lens)``, weights (batch, num_heads, n, n) of self-attention, valid_lens
            (batch,), each from 2 to n → (num_heads,): the entropy of a query's weights over the entropy of an even
            look at its valid keys, averaged over all valid queries of all examples alike.

    Source: the normalised entropy is known as Pielou's evenness (E. C. Pielou, The measurement of diversity in
        different types of biological collections, 1966).
    """
    trials = [ragged_weights(2, 4, [2, 4]), ragged_weights(3, 5, [3, 7, 5]), ragged_weights(5, 3, [6, 2, 4, 3])]
    compare(function, mean_evenness, trials, EVENNESS_SLIPS)
    return "1 is an even look at whatever is valid, at any length, and padding has no say."


def ragged_weights(num_heads: int, n: int, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Weights of self-attention with padding; padded queries look, too."""
    n = max(n, *lengths) + 1
    valid_lens = torch.tensor(lengths)
    scores = 2 * torch.randn(len(lengths), num_heads, n, n)
    padding = torch.arange(n) >= valid_lens[:, None, None, None]
    return torch.softmax(scores.masked_fill(padding, -math.inf), dim=-1), valid_lens


def valid_queries(weights: Tensor, valid_lens: Tensor) -> Tensor:
    """1 for valid queries: (batch, 1, n)."""
    return (torch.arange(weights.shape[-1]) < valid_lens[:, None, None]).to(weights.dtype)


def row_evenness(weights: Tensor, valid_lens: Tensor) -> Tensor:
    """Of each query: (batch, num_heads, n)."""
    return torch.special.entr(weights).sum(dim=-1) / valid_lens.log()[:, None, None]


def mean_of_valid(rows: Tensor, valid_lens: Tensor) -> Tensor:
    """Mean over valid queries of all examples: (batch, num_heads, n) → (num_heads,)."""
    valid = valid_queries(rows, valid_lens)
    return (rows * valid).sum(dim=(0, 2)) / valid.sum()


def mean_evenness(weights: Tensor, valid_lens: Tensor) -> Tensor:
    return mean_of_valid(row_evenness(weights, valid_lens), valid_lens)


def mean_by_example(weights: Tensor, valid_lens: Tensor) -> Tensor:
    """(batch, num_heads)."""
    rows = row_evenness(weights, valid_lens) * valid_queries(weights, valid_lens)
    return rows.sum(dim=2) / valid_lens[:, None]


def uneven(text: str, imitation: Callable[[Tensor, Tensor], Tensor]) -> Slip:
    """A mistake in the evenness that leaves its shape right."""
    return Slip("{example}, head {place} gets {got} instead of {right}: " + text, imitation)


EVENNESS_SLIPS = [
    uneven(
        "you divide by the logarithm of all keys; an example can only look at its valid ones.",
        lambda w, lens: mean_of_valid(row_evenness(w, torch.full_like(lens, w.shape[-1])), lens),
    ),
    uneven("queries that are padding have a say, too.", lambda w, lens: row_evenness(w, lens).mean(dim=(0, 2))),
    uneven("the sign is wrong: logarithms of weights are negative.", lambda w, lens: -mean_evenness(w, lens)),
    uneven("this is 1 − the evenness: an even look must come out as 1.", lambda w, lens: 1 - mean_evenness(w, lens)),
    uneven(
        "this is the entropy itself, which grows with the number of keys; the division is missing.",
        lambda w, lens: mean_of_valid(torch.special.entr(w).sum(dim=-1), lens),
    ),
    uneven(
        "numerator and denominator have different logarithms: bits above, nats below.",
        lambda w, lens: mean_evenness(w, lens) / math.log(2),
    ),
    uneven(
        "you averaged over each example first, so queries of short examples count more than others.",
        lambda w, lens: mean_by_example(w, lens).mean(dim=0),
    ),
    uneven(
        "you left out the padded queries above, and counted them below the fraction bar.",
        lambda w, lens: (row_evenness(w, lens) * valid_queries(w, lens)).mean(dim=(0, 2)),
    ),
    uneven(
        "you divided by the number of keys, where the entropy of an even look at them belongs.",
        lambda w, lens: mean_of_valid(torch.special.entr(w).sum(dim=-1) / lens[:, None, None], lens),
    ),
    Slip(
        "your result holds NaN: a weight of 0 times its logarithm, −∞, is not a number. A key without weight adds "
        "nothing to the entropy.",
        lambda w, lens: torch.full(w.shape[1:2], math.nan),
    ),
    Slip(
        "one number for each head is needed, shape {right}, yours has {got}: examples are not averaged yet.",
        mean_by_example,
    ),
    Slip(
        "one number for each head is needed, shape {right}, yours has {got}: you averaged over the heads, too.",
        lambda w, lens: mean_evenness(w, lens).mean(),
    ),
]

# ---------------------------------------------------------------------------------------------------------------------
# What is heard


@check
def heard(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> str:
    """Check a map of what reaches the output, which a map of weights is not.

    Args:
        function: ``heard(weights, values, W_o)``, weights (batch, num_heads, num_queries, num_keys), values (batch,
            num_heads, num_keys, head_size), W_o (num_hiddens, num_heads · head_size) as in ``nn.Linear`` → the length
            of what each key adds to each query's output through each head, of the shape of the weights.

    Source: Kobayashi et al. 2020, "Attention is Not Only a Weight: Analyzing Transformers with Vector Norms".
    """
    trials = [heard_trial(2, 2, 3, 4, 2), heard_trial(3, 4, 2, 5, 3), heard_trial(2, 3, 5, 4, 4)]
    compare(function, length_heard, trials, HEARD_SLIPS)
    return "a head whose columns of W_o are 0 has an empty map now, however sharply it looks."


def heard_trial(batch: int, num_heads: int, num_queries: int, num_keys: int, head_size: int) -> tuple:
    """Random weights, values and a square W_o."""
    num_hiddens = num_heads * head_size
    weights = torch.softmax(torch.randn(batch, num_heads, num_queries, num_keys), dim=-1)
    return weights, torch.randn(batch, num_heads, num_keys, head_size), torch.randn(num_hiddens, num_hiddens)


def columns_by_head(W_o: Tensor, num_heads: int) -> Tensor:
    """(num_heads, num_hiddens, head_size)."""
    return W_o.unflatten(1, (num_heads, -1)).transpose(0, 1)


def spoken(values: Tensor, columns: Tensor) -> Tensor:
    """W_o⁽ʰ⁾ v of each key: (batch, num_heads, num_keys, num_hiddens)."""
    return values @ columns.transpose(1, 2)


def heard_through(weights: Tensor, values: Tensor, columns: Tensor) -> Tensor:
    """What is heard where the heads speak through these columns."""
    return weights * spoken(values, columns).norm(dim=-1).unsqueeze(2)


def length_heard(weights: Tensor, values: Tensor, W_o: Tensor) -> Tensor:
    return heard_through(weights, values, columns_by_head(W_o, weights.shape[1]))


def heard_by(length: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """As ``length_heard``, with another length of a vector."""
    return lambda w, v, W_o: w * length(spoken(v, columns_by_head(W_o, w.shape[1]))).unsqueeze(2)


HEARD_SLIPS = [
    Slip(
        SEEN + "W_o is missing: this is the length of what the head says, not of what arrives.",
        lambda w, v, W_o: w * v.norm(dim=-1).unsqueeze(2),
    ),
    Slip(
        SEEN + "a head owns columns of W_o, you use its rows.",
        lambda w, v, W_o: heard_through(w, v, columns_by_head(W_o.T, w.shape[1])),
    ),
    Slip(
        SEEN + "you take every num_heads-th column; a head's columns stand side by side.",
        lambda w, v, W_o: heard_through(w, v, W_o.unflatten(1, (-1, w.shape[1])).permute(2, 0, 1)),
    ),
    Slip(
        SEEN + "every head is sent through the columns of head 0.",
        lambda w, v, W_o: heard_through(w, v, W_o[:, : v.shape[-1]][None]),
    ),
    Slip(
        SEEN + "the weights have no say in it, so all queries hear the same.",
        lambda w, v, W_o: length_heard(torch.ones_like(w), v, W_o),
    ),
    Slip(SEEN + "this is the square of the length.", lambda w, v, W_o: length_heard(w, v, W_o).square() / w),
    Slip(SEEN + "the whole is squared; take the root.", lambda w, v, W_o: length_heard(w, v, W_o).square()),
    Slip(
        SEEN + "you add up absolute values; the length is the root of the sum of squares.",
        heard_by(lambda vectors: vectors.abs().sum(dim=-1)),
    ),
    Slip(SEEN + "you add up the features, whose signs cancel.", heard_by(lambda vectors: vectors.sum(dim=-1))),
    Slip(
        SEEN + "you brought each row back to a sum of 1: how much a head says is lost by that.",
        lambda w, v, W_o: torch.nn.functional.normalize(length_heard(w, v, W_o), p=1, dim=-1),
    ),
    Slip(
        "the shape is {got} instead of {right}: you added up the keys before taking the length, and it is the single "
        "keys that are asked for.",
        lambda w, v, W_o: (w @ spoken(v, columns_by_head(W_o, w.shape[1]))).norm(dim=-1),
    ),
    Slip(
        "the shape is {got} instead of {right}: these are the vectors; their length is asked for.",
        lambda w, v, W_o: w.unsqueeze(-1) * spoken(v, columns_by_head(W_o, w.shape[1])).unsqueeze(2),
    ),
]
