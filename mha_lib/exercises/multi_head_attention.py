"""The exercises of notebook 03: what a layer costs, the loop over heads, a head that looks at the previous token."""

import math

import torch
from torch import Tensor

from mha_lib.attention import masked_softmax
from mha_lib.checking.exercise import exercise, judged
from mha_lib.checking.running import MistakeError
from mha_lib.checking.wording import kind_of
from mha_lib.museum.wrong_attention import attention, programs

NUM_TOKENS = 6
ENOUGH = 0.9  # weight on the previous token that counts as attending to it
TIED = 0.01  # weights closer than this count as equal


@exercise(
    trials=lambda: [(6, 3, 5, False), (6, 2, 5, True), (8, 4, 11, True), (15, 5, 4, False), (12, 3, 7, True)],
    praise="The number of heads does not matter: it only says how the same rows are shared out.",
    idea="Count the numbers of each of the four matrices by what it reads and what it gives.",
    begin="Begin with the three maps from the input, all heads together.",
    mistakes="""
    3 * num_hiddens -> num_heads * $ => W_q, W_k and W_v count once for each head at full size. How many rows do all
        heads share?
    from_input + to_output + biases -> num_heads * ($) => Everything counts once for each head. What do heads share?
    3 * num_hiddens -> $ // num_heads || 3 * num_hiddens -> $ // num_heads ; 4 * num_hiddens if -> 3 * num_hiddens //
        num_heads + num_hiddens if => W_q, W_k and W_v count for one head only.
    num_hiddens * num_hiddens -> $ // num_heads || num_heads * $ => W_o does not count once, at full size.
    + to_output -> _ || + to_output -> _ ; 4 * -> 3 * || 3 * num_hiddens -> num_hiddens || 4 * num_hiddens || 3 *
        num_hiddens -> num_hiddens ; 4 * -> 2 * => Not exactly four maps are counted. Which is left out, or counted
        twice?
    num_hiddens * num_hiddens -> num_hiddens * input_size || 3 * num_hiddens * input_size -> 3 * num_hiddens *
        num_hiddens => A map counts as if it read something else. What does W_o read, and what the others?
    + biases -> _ => The biases are missing.
    if bias else 0 -> _ => Biases count even where bias is False.
    4 * num_hiddens if -> num_hiddens if || 3 * num_hiddens if => Not all of the four maps have their biases counted.
    4 * num_hiddens if -> 4 if || 1 if || 3 * input_size + num_hiddens if || 4 * input_size if => Biases do not count by
        outputs. How many numbers does a map give, each with a bias?
    """,
)
def parameter_count(num_hiddens, num_heads, input_size, bias):
    """How many numbers a multi-head attention layer learns: W_q, W_k, W_v and W_o, with a bias each or without.

    Queries, keys and values have input_size features, the output has num_hiddens. → a whole number.
    Source: d2l 11.5.1.
    """
    from_input = 3 * num_hiddens * input_size
    to_output = num_hiddens * num_hiddens
    biases = 4 * num_hiddens if bias else 0
    return from_input + to_output + biases


@exercise(
    trials=lambda: [(2, 3, 4, 2), (3, 5, 6, 3), (2, 7, 8, 4), (4, 2, 9, 3), (1, 6, 10, 5), (5, 1, 6, 2)],
    praise="The maps grow with n, scores and averages with n²: at n = 2 · num_hiddens they cost the same.",
    idea="List the matrix products of one example: four maps, then scores, then averages. Which depend on the heads?",
    begin="Begin with one map of all tokens of one example.",
    mistakes="""
    batch_size * (maps + pairs) -> $ // 2 => This is exactly half. Does a multiplication count without the addition that
        comes with it?
    batch_size * (maps + pairs) -> num_heads * $ => Everything counts once for each head. What share of num_hiddens has
        a head?
    2 * 2 -> num_heads * 2 * 2 => Scores and averages count once for each head at full size. How many features does a
        head compare?
    num_tokens * num_tokens * num_hiddens -> $ // num_heads => Scores and averages count for one head only.
    4 * 2 -> num_heads * 4 * 2 => The maps count once for each head at full size. How many rows do all heads share?
    4 * 2 -> 3 * 2 => Not exactly four maps are counted. Which is left out, or counted twice?
    4 * 2 -> 4 => The maps count half. Does each multiplication of a map come with an addition?
    maps + pairs -> pairs => The four maps are missing.
    maps + pairs -> maps => Scores and averages are missing.
    2 * 2 -> 2 => Scores and averages together count half. Are scores and averages both counted, each multiplication
        with an addition?
    batch_size * -> _ || batch_size * (maps + pairs) -> batch_size * maps + pairs => Not everything counts for each
        example. Where does batch_size come in?
    num_tokens * num_tokens -> num_tokens => Scores and averages grow with the tokens. How many pairs are there?
    num_hiddens * num_hiddens -> num_hiddens => The maps grow with num_hiddens. How many numbers has such a map?
    """,
)
def operation_count(batch_size, num_tokens, num_hiddens, num_heads):
    """How many floating-point operations the matrix products of one call of multi-head self-attention take.

    A multiplication and the addition that goes with it are two; softmax and biases are left out. → a whole number.
    Source: Vaswani et al. 2017, table 1; the convention of two is that of ``torch.utils.flop_counter``.
    """
    maps = 4 * 2 * num_tokens * num_hiddens * num_hiddens
    pairs = 2 * 2 * num_tokens * num_tokens * num_hiddens
    return batch_size * (maps + pairs)


def attention_trial(batch_size, num_queries, num_keys, sizes, num_heads, head_size, lengths) -> tuple:
    """Random arguments of multi-head attention, with stacked matrices."""
    numbers = (num_queries, num_keys, num_keys)
    sequences = [torch.randn(batch_size, number, size) for number, size in zip(numbers, sizes, strict=True)]
    num_hiddens = num_heads * head_size
    matrices = [0.5 * torch.randn(num_hiddens, size) for size in (*sizes, num_hiddens)]
    return (*sequences, torch.tensor(lengths), *matrices, num_heads)


def with_lengths(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads, attention=attention):
    """Compute multi-head attention with an ``attention`` that makes a mistake."""
    allowed = torch.arange(keys.shape[1]) < valid_lens[:, None, None, None]
    return attention(queries, keys, values, allowed, W_q, W_k, W_v, W_o, num_heads)


@exercise(
    trials=lambda: [
        attention_trial(2, 1, 2, (3, 4, 5), 2, 3, [1, 2]),
        attention_trial(2, 3, 4, (5, 6, 7), 3, 2, [4, 2]),
        attention_trial(3, 2, 5, (7, 4, 6), 2, 4, [3, 1, 4]),
        attention_trial(2, 3, 4, (6, 5, 4), 2, 3, [4, 2]),  # a residual can be added here: the sizes allow it
    ],
    praise="The output is a sum with one part for each head, so a head can be taken out without the others.",
    idea="A head is ordinary attention with its own share of each matrix; what it says goes through its share of W_o.",
    begin="Begin with the size of a head, then with the slice of rows that head number i owns.",
    mistakes="""
    values @ W_v -> values @ W_k => An error is raised: the values meet W_k. Which matrix is theirs?
    """,
    programs=programs(with_lengths),
)
def sum_over_heads(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    """Multi-head attention as a loop over heads that reads each head's share of stacked matrices.

    W_q, W_k, W_v (num_hiddens, size of their input) hold the heads' matrices on top of each other, W_o (num_hiddens,
    num_hiddens) their columns side by side; valid_lens (batch,) → (batch, num_queries, num_hiddens).
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


def previous_token_matrices():
    """W_q and W_k: a token asks for the position before its own, and a key says its own, loud enough to be heard."""
    W_k = 20 * torch.eye(6)
    W_q = torch.eye(6).roll(-1, dims=0)  # column i asks for i - 1
    W_q[:, 0] = torch.eye(6)[0]
    return W_q, W_k


@judged(
    right=previous_token_matrices,
    idea="With one-hot positions, column i of W_q is what token i asks for, and column j of W_k is what key j offers.",
    begin="Begin with keys that simply say their own position; then let each query ask for another one.",
)
def previous_token(W_q, W_k):
    """A head, set by hand, in which every token attends to the one before it, and token 0 to itself.

    The six tokens hold their positions only: token i is row i of ``torch.eye(6)``. At least 0.9 of each token's weight
    must be where it belongs. W_q, W_k (head_size, 6), any head_size.
    Source: the scores are those of Vaswani et al. 2017, section 3.2.1; heads of this kind occur in trained models
    (Voita et al. 2019, "Analyzing Multi-Head Self-Attention", call them positional).
    """
    weights = position_weights(W_q, W_k)
    shares = [row[target].item() for row, target in zip(weights, WANTED, strict=True)]
    if min(shares) >= ENOUGH:
        return f"Every token gives at least {floor(min(shares))} of its weight to the one before it, token 0 to itself."
    raise MistakeError(describe(weights, shares))


def position_weights(W_q: Tensor, W_k: Tensor) -> Tensor:
    """Attention weights (6, 6) among one-hot positions.

    Raises:
        MistakeError: there are none, or too large scores.
    """
    for name, W in (("W_q", W_q), ("W_k", W_k)):
        if type(W) is not Tensor or W.dim() != 2 or W.shape[1] != NUM_TOKENS or not len(W) or W.is_complex():
            shape = f"shape (head_size, {NUM_TOKENS}), a column for each position"
            raise MistakeError(f"{name} must be a tensor of real numbers of {shape}; yours is {kind_of(W)}.")
    if len(W_q) != len(W_k):
        raise MistakeError(
            f"Queries and keys are compared entry by entry: W_q makes queries of size {len(W_q)}, W_k keys of size "
            f"{len(W_k)}."
        )
    scores = W_q.double().T @ W_k.double() / math.sqrt(len(W_q))
    if not scores.isfinite().all():
        raise MistakeError("The scores are not finite. Do the matrices hold infinity or NaN, or do they overflow?")
    return torch.softmax(scores, dim=-1)


NO_ONE, ANY = -1, None
WANTED = [0, 0, 1, 2, 3, 4]
STRAY: dict[str, list[int | None]] = {  # what is said → whom tokens 0 to 5 look at most
    "Every token attends to itself. Whose key should its query match?": [0, 1, 2, 3, 4, 5],
    "Tokens attend to the next one: token 1 looks at token 2, and should look at token 0. Are the roles of W_q and W_k "
    "exchanged, or is a shift the wrong way round?": [ANY, 2, 3, 4, 5, ANY],  # the ends depend on the kind of shift
    "Tokens attend to the one two before: token 2 looks at token 0 instead of token 1.": [ANY, ANY, 0, 1, 2, 3],
    "The others are right, but token 0 looks at no key most. What does its query ask for?": [NO_ONE, 0, 1, 2, 3, 4],
    "The others are right, but token 0 attends to the last one, as if positions were a ring.": [5, 0, 1, 2, 3, 4],
}


def describe(weights: Tensor, shares: list[float]) -> str:
    """What a head does instead of attending to the previous token."""
    looks = [most(row) for row in weights]
    token = next(token for token, share in enumerate(shares) if share < ENOUGH)
    if weights.max() - weights.min() < TIED:
        return f"Every token spreads its weight evenly, 1/{NUM_TOKENS} on each: the scores of a row hardly differ."
    if looks == WANTED:
        return (
            f"Every token looks most where it should, but not sharply enough: token {token} gives only "
            f"{floor(shares[token])} of its weight there, {ENOUGH} is asked. What makes a softmax sharper?"
        )
    for text, stray in STRAY.items():
        if all(seen in (look, ANY) for look, seen in zip(looks, stray, strict=True)):
            return text
    if len(set(looks)) == 1 and NO_ONE not in looks:
        return f"Every token attends to token {looks[0]}: queries of different tokens must look for different things."
    if [most(-row) for row in weights] == WANTED:
        return "Every token gives the least weight where it should give the most: is a sign wrong?"
    if all(row[:t].sum() > ENOUGH and row[:t].max() - row[:t].min() < TIED for t, row in enumerate(weights) if t):
        return "Tokens spread their weight over all tokens before them; only the one just before is asked for."
    return (
        f"Token {token} gives {floor(shares[token])} of its weight to token {WANTED[token]}, {ENOUGH} is asked; "
        f"the most, {floor(weights[token].max().item())}, goes to token {weights[token].argmax()}."
    )


def most(row: Tensor) -> int:
    """Where a row is largest; ``NO_ONE`` where two are about equally large."""
    first, second = row.topk(2).values.tolist()
    return int(row.argmax()) if first - second >= TIED else NO_ONE


def floor(share: float) -> str:
    """A share in two digits, not rounded up."""
    return f"{math.floor(share * 100) / 100:.2f}"
