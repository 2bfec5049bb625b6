"""The exercises of notebook 03: heads set by hand, and the output as a sum over heads."""

import math

import torch
from torch import Tensor

from mha_course.checking.exercise import exercise, judged
from mha_course.checking.running import MistakeError, NotYetError
from mha_course.checking.wording import kind_of
from mha_course.museum.wrong_attention import attention, programs
from mha_lib.attention import masked_softmax

NUM_TOKENS = 6
ENOUGH = 0.9  # weight on the previous token that counts as attending to it
TIED = 0.01  # weights closer than this count as equal


def attention_trial(batch_size, num_queries, num_keys, sizes, num_heads, head_size, lengths) -> tuple:
    """Return random arguments of ``sum_over_heads``: queries, keys, values, lengths, W_q, W_k, W_v, W_o, num_heads."""
    numbers = (num_queries, num_keys, num_keys)
    sequences = [torch.randn(batch_size, number, size) for number, size in zip(numbers, sizes, strict=True)]
    num_hiddens = num_heads * head_size
    matrices = [0.5 * torch.randn(num_hiddens, size) for size in (*sizes, num_hiddens)]
    return (*sequences, torch.tensor(lengths), *matrices, num_heads)


def with_lengths(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads, attention=attention):
    """Apply ``attention``, perhaps a wrong version of multi-head attention, with a mask made from ``valid_lens``."""
    allowed = torch.arange(keys.shape[1]) < valid_lens[:, None, None, None]
    return attention(queries, keys, values, allowed, W_q, W_k, W_v, W_o, num_heads)


@exercise(
    trials=lambda: [
        attention_trial(2, 1, 2, (3, 4, 5), 2, 3, [1, 2]),
        attention_trial(2, 3, 4, (5, 6, 7), 3, 2, [4, 2]),
        attention_trial(3, 2, 5, (7, 4, 6), 2, 4, [3, 1, 4]),
        attention_trial(2, 3, 4, (6, 5, 4), 2, 3, [4, 2]),  # a residual can be added here: the sizes allow it
    ],
    praise="The output is a sum with one part for each head, so a head can be removed without changing the others.",
    idea="A head is attention with its own rows of W_q, W_k and W_v. Its output is multiplied by its own columns of "
    "W_o.",
    begin="Begin with the head size. Then write the slice of rows that belongs to head i.",
    mistakes="""
    values @ W_v -> values @ W_k => An error is raised: the values are multiplied by W_k. They need W_v.
    values @ W_v[own].T -> values @ W_v.T ; W_o[:, own].T -> W_o.T => Each head uses all of W_v and W_o. It needs its
        own rows of W_v and its own columns of W_o.
    queries @ W_q[own].T -> queries @ W_q[:head_size].T ; keys @ W_k[own].T -> keys @ W_k[:head_size].T => All heads
        have the attention weights of head 0. Each head needs its own rows of W_q and W_k.
    """,
    programs=programs(with_lengths),
)
def sum_over_heads(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    """Compute multi-head attention as a sum over heads, from the concatenated matrices of all heads.

    W_q, W_k, W_v (num_hiddens, size of their input): head 0 has the first rows; W_o (num_hiddens, num_hiddens): head 0
    has the first columns; valid_lens (batch,) → (batch, num_queries, num_hiddens).
    Source: Vaswani et al. 2017, section 3.2.2; d2l 11.5.1.
    """
    head_size = len(W_q) // num_heads
    output = 0
    for i in range(num_heads):
        own = slice(i * head_size, (i + 1) * head_size)
        q = queries @ W_q[own].T  # (b, n, s) @ (s, d) -> (b, n, d)
        k = keys @ W_k[own].T
        v = values @ W_v[own].T
        scores = q @ k.mT / math.sqrt(head_size)  # -> (b, q, k)
        weights = masked_softmax(scores, valid_lens)
        output = output + weights @ v @ W_o[:, own].T
    return output


def two_head_matrices():
    """Return W_q and W_k of two stacked heads: head 0 attends to the previous token, head 1 to the token itself."""
    positions = torch.eye(6)
    W_k = torch.cat([positions, positions])  # the key of a token is its own position, in both heads
    W_q = 30 * torch.cat([positions[:, WANTED[0]], positions[:, WANTED[1]]])  # column i is the query of token i
    return W_q, W_k


@judged(
    right=two_head_matrices,
    idea="Column i of a head's W_q is the query of token i, and column j of its W_k is the key of token j. A score is "
    "large where the query and the key have large numbers in the same rows.",
    begin="Begin with one head. Let its W_k give each token a key that no other token has, such as a one-hot vector.",
)
def two_heads(W_q, W_k):
    """Check a learner's W_q and W_k of two heads: head 0 must attend to the previous token, head 1 to the token itself.

    Token i of six is row i of ``torch.eye(6)``. W_q, W_k (2 · head size, 6), any head size: the upper half of the rows
    belongs to head 0, the lower half to head 1. Each token must give at least 0.9 of its weight to the right one.
    Source: scores as in Vaswani et al. 2017, section 3.2.1; positional heads in Voita et al. 2019, "Analyzing
    Multi-Head Self-Attention".
    """
    require_matrices(W_q, W_k)
    maps = [position_weights(*halves) for halves in zip(W_q.chunk(2), W_k.chunk(2), strict=True)]
    shares = [shares_of(weights, wanted) for weights, wanted in zip(maps, WANTED, strict=True)]
    if min(map(min, shares)) >= ENOUGH:
        return (
            f"Each token gives at least {floor(min(map(min, shares)))} of its weight to the correct token, in both "
            f"heads."
        )
    raise MistakeError(about_both(W_q, W_k) or next(filter(None, map(about_one, (0, 1), maps))))


def require_matrices(W_q: Tensor, W_k: Tensor) -> None:
    """Raise a ``MistakeError`` unless W_q and W_k are real tensors of six columns and the same even number of rows."""
    for name, W in (("W_q", W_q), ("W_k", W_k)):
        if type(W) is not Tensor or W.dim() != 2 or W.shape[1] != NUM_TOKENS or not len(W) or W.is_complex():
            shape = f"shape (2 · head size, {NUM_TOKENS}), a column for each position"
            raise MistakeError(f"{name} must be a tensor of real numbers of {shape}; yours is {kind_of(W)}.")
    if len(W_q) != len(W_k):
        raise MistakeError(f"W_q has {len(W_q)} rows and W_k {len(W_k)}. A query and a key must have the same size.")
    if len(W_q) % 2:
        raise MistakeError(f"W_q and W_k have {len(W_q)} rows. Two heads of one size need an even number of rows.")


def position_weights(W_q: Tensor, W_k: Tensor) -> Tensor:
    """Return the attention weights (6, 6) of a head with these matrices, where the six tokens are one-hot vectors.

    Raises:
        MistakeError: a score is infinite or NaN.
    """
    scores = W_q.double().T @ W_k.double() / math.sqrt(len(W_q))
    if not scores.isfinite().all():
        raise MistakeError("A score is infinite or NaN. Check the size of the numbers in W_q and W_k.")
    return torch.softmax(scores, dim=-1)


NO_ONE, ANY = -1, None
WANTED = [0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]  # in each head, the token that tokens 0 to 5 must attend to
TASKS = "the token before it", "itself"
STRAY: dict[str, list[int | None]] = {  # what is said → the largest weight of tokens 0 to 5, where it is not the wanted
    "every token attends to itself": [0, 1, 2, 3, 4, 5],
    "every token attends to the one before it": [ANY, 0, 1, 2, 3, 4],
    "tokens attend to the next one: token 1 attends to token 2. Check the direction of the shift, and which matrix "
    "makes the queries": [ANY, 2, 3, 4, 5, ANY],  # the ends depend on the kind of shift
    "tokens attend two positions back: token 2 attends to token 0": [ANY, ANY, 0, 1, 2, 3],
}
TOKEN_0 = {  # what is said of token 0 of head 0, where the others are right → its largest weight
    "token 0 attends to token 5, as if the positions were a ring": 5,
    "token 0 attends to two or more tokens equally": NO_ONE,
}


def about_both(W_q: Tensor, W_k: Tensor) -> str:
    """Return a message if the learner's heads were right with the rows of W_q and W_k in another order, or ""."""

    def right(queries: Tensor, keys: Tensor) -> list[bool]:
        weights = position_weights(queries, keys)
        return [min(shares_of(weights, wanted)) >= ENOUGH for wanted in WANTED]

    upper, lower = (right(*halves) for halves in zip(W_q.chunk(2), W_k.chunk(2), strict=True))
    if upper[1] and lower[0]:
        return "The two heads have changed places: head 0 attends to the token itself, head 1 to the token before."
    if right(W_q[::2], W_k[::2])[0] and right(W_q[1::2], W_k[1::2])[1]:
        return "The rows of the two heads alternate. The upper half of the rows must belong to head 0."
    if any(right(W_q, W_k)) and not (upper[0] or lower[1]):
        return (
            f"All {len(W_q)} rows together form one head that works. Two heads need the rows of head 0 above those of "
            "head 1, in both matrices."
        )
    return ""


def about_one(head: int, weights: Tensor) -> str:
    """Return a message on which wrong tokens ``head`` attends to, by its (6, 6) ``weights``; "" if they are right."""
    wanted, task = WANTED[head], TASKS[head]
    shares = shares_of(weights, wanted)
    if min(shares) >= ENOUGH:
        return ""
    largest = [most(row) for row in weights]
    token = next(token for token, share in enumerate(shares) if share < ENOUGH)
    if weights.max() - weights.min() < TIED:
        return (
            f"Head {head}: every token gives 1/{NUM_TOKENS} of its weight to each. The scores of a row hardly differ."
        )
    if largest == wanted:
        return (
            f"Head {head}: each token gives its largest weight to {task}, but token {token} gives only "
            f"{floor(shares[token])}; {ENOUGH} is needed. Make the differences between the scores of a row larger."
        )
    for text, place in TOKEN_0.items():
        if largest == [place, *wanted[1:]] and head == 0:
            return f"Head 0: the other tokens are right, but {text}. Check column 0 of W_q; token 0 attends to itself."
    for text, stray in STRAY.items():
        matches = all(seen in (place, ANY) for place, seen in zip(largest, stray, strict=True))
        if matches and stray[1:] != wanted[1:]:
            return f"Head {head}: {text}. It must attend to {task}."
    if len(set(largest)) == 1 and NO_ONE not in largest:
        return f"Head {head}: every token attends to token {largest[0]}. Different tokens need different queries."
    if [most(-row) for row in weights] == wanted:
        return f"Head {head}: each token gives its smallest weight to {task}. Check the signs."
    if head == 0 and all(
        row[:t].sum() > ENOUGH and row[:t].max() - row[:t].min() < TIED for t, row in enumerate(weights) if t
    ):
        return "Head 0: tokens spread their weight over all earlier tokens. Only the previous token must receive it."
    other = max(set(range(NUM_TOKENS)) - {wanted[token]}, key=lambda key: weights[token, key].item())
    return (
        f"Head {head}: token {token} gives {floor(shares[token])} of its weight to token {wanted[token]}, {ENOUGH} is "
        f"needed. Of the others, token {other} receives most, {floor(weights[token, other].item())}."
    )


def shares_of(weights: Tensor, wanted: list[int]) -> list[float]:
    """Return, for each of six query tokens, its weight on the key token that ``wanted`` lists for it."""
    return weights[range(NUM_TOKENS), wanted].tolist()


def most(row: Tensor) -> int:
    """Return the index of the largest number of ``row``, or ``NO_ONE`` (−1) if the two largest are nearly equal."""
    first, second = row.topk(2).values.tolist()
    return int(row.argmax()) if first - second >= TIED else NO_ONE


def floor(share: float) -> str:
    """Format a number as text with two decimals, rounded down."""
    return f"{math.floor(share * 100) / 100:.2f}"


HUNGRY, CATS, CHASE, OTHER_ADJECTIVES, MICE = 0, 1, 2, [3, 4, 5], 6  # words of the sentence in notebook 03, section 1


def map_of_a_verb():
    """Return attention weights (7, 7) in which *chase* attends to the two nouns, and all other words to all."""
    weights = torch.full((7, 7), 1 / 7)
    weights[CHASE] = 0
    weights[CHASE, [CATS, MICE]] = 0.5
    return weights


@judged(
    right=map_of_a_verb,
    idea="A word attends to keys that are large and have the same sign as its query. All other words have the key 0.",
    begin="Begin with the query of chase, the only verb: write a number at *verb* in W_q. Then give the nouns a key.",
)
def hand_made_head(weights):
    """Check the map of the head that a learner made by hand in notebook 03, section 1, for one task or the other.

    weights (7, 7): rows are queries, columns are keys. Either *chase* gives each noun at least 0.45, or *cats* give
    *hungry*, and *mice* the other three adjectives together, at least 0.9.
    """
    if type(weights) is not Tensor or weights.shape != (7, 7):
        raise MistakeError(f"The weights must be a tensor of shape (7, 7); yours is {kind_of(weights)}.")
    nouns, own, others = (
        weights[CHASE, [CATS, MICE]].min(),
        weights[CATS, HUNGRY],
        weights[MICE, OTHER_ADJECTIVES].sum(),
    )
    if own >= ENOUGH and others >= ENOUGH:
        return "cats attends to hungry, and mice to the other three adjectives."
    if nouns >= ENOUGH / 2:
        return "chase attends to the two nouns. Now the second task: cats and mice need queries of opposite sign."
    if torch.allclose(own, weights[CATS, OTHER_ADJECTIVES[0]]) and torch.allclose(nouns, weights[CHASE, HUNGRY]):
        raise NotYetError("Change numbers in the picture, then run this cell.")
    raise MistakeError(
        f"chase gives one of the nouns only {nouns:.2f}: the first task needs {ENOUGH / 2} or more for each. cats "
        f"gives "
        f"hungry {own:.2f}, and mice gives the other three adjectives {others:.2f}: the second needs {ENOUGH} or more."
    )
