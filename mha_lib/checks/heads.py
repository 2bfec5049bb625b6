"""Checks of notebook 03: what a layer costs, the loop over heads, a head that looks at the previous token."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mha_lib.attention import masked_softmax
from mha_lib.checks.answers import in_tensors
from mha_lib.checks.calls import kind_of, tensor_from
from mha_lib.checks.compare import Slip, compare
from mha_lib.checks.verdict import MistakeError, check

NUM_TOKENS = 6
ENOUGH = 0.9  # weight on the previous token that counts as attending to it
TIED = 0.01  # weights closer than this count as equal


@check
def parameter_count(function: Callable[..., int]) -> str:
    """Check a count of the numbers that a multi-head attention layer learns.

    Args:
        function: (num_hiddens, num_heads, input_size, bias) → number of parameters of W_q, W_k, W_v and W_o together.
            Queries, keys and values all have input_size features, the output has num_hiddens. With ``bias``, each of
            the four maps adds one number to each of its outputs.

    Source: d2l 11.5.1.
    """
    trials = [
        (6, 3, 5, False),
        (6, 2, 5, True),
        (8, 4, 11, True),
        (15, 5, 4, False),
        (12, 3, 7, True),
        (10, 2, 3, False),
    ]
    compare(in_tensors(function), in_tensors(count_parameters), trials, PARAMETER_SLIPS)
    return "the number of heads does not matter: it only says how the same rows are shared out."


def count_parameters(num_hiddens: int, num_heads: int, input_size: int, bias: bool) -> int:
    """Three maps from the input to all heads, one from all heads to the output."""
    return 3 * num_hiddens * input_size + num_hiddens**2 + bias * 4 * num_hiddens


def miscounted(text: str, count: Callable[..., float]) -> Slip:
    """A mistake in counting."""
    return Slip("{example} you count {got}, it is {right}: " + text, in_tensors(count))


PARAMETER_SLIPS = [
    miscounted(
        "you count W_q, W_k and W_v once for each head at full size; the heads share num_hiddens rows.",
        lambda d, h, size, bias: h * 3 * d * size + d**2 + bias * 4 * d,
    ),
    miscounted(
        "you count everything once for each head; the heads share one budget of num_hiddens.",
        lambda d, h, size, bias: h * count_parameters(d, h, size, bias),
    ),
    miscounted(
        "you count the matrices of one head only, and there are num_heads of them.",
        lambda d, h, size, bias: 3 * (d // h) * size + d**2 + bias * (3 * (d // h) + d),
    ),
    miscounted(
        "you count the matrices of one head only, and no biases.",
        lambda d, h, size, bias: 3 * (d // h) * size + d**2,
    ),
    miscounted(
        "you count one head's share of all four maps, and there are num_heads such shares.",
        lambda d, h, size, bias: 3 * (d // h) * size + d * (d // h) + bias * (3 * (d // h) + d),
    ),
    miscounted(
        "you count one head's share of all four maps, without biases.",
        lambda d, h, size, bias: 3 * (d // h) * size + d * (d // h),
    ),
    miscounted(
        "you count three maps from the input; there is a fourth map, W_o, which mixes the heads.",
        lambda d, h, size, bias: 3 * d * size + bias * 3 * d,
    ),
    miscounted(
        "W_o does not read the input, it reads the heads put side by side: what is their size?",
        lambda d, h, size, bias: 4 * d * size + bias * 4 * d,
    ),
    miscounted(
        "W_q, W_k and W_v do not read num_hiddens features, they read the input.",
        lambda d, h, size, bias: 4 * d**2 + bias * 4 * d,
    ),
    miscounted("the biases are missing.", lambda d, h, size, bias: count_parameters(d, h, size, False)),
    miscounted(
        "a bias is counted although bias is False.", lambda d, h, size, bias: count_parameters(d, h, size, True)
    ),
    miscounted(
        "you count the bias of one map; all four have one.",
        lambda d, h, size, bias: count_parameters(d, h, size, False) + bias * d,
    ),
    miscounted(
        "you count the biases of three maps; there are four (W_o has one too).",
        lambda d, h, size, bias: count_parameters(d, h, size, False) + bias * 3 * d,
    ),
    miscounted(
        "a bias is not a single number: each output of a map has its own.",
        lambda d, h, size, bias: count_parameters(d, h, size, False) + bias * 4,
    ),
    miscounted(
        "you count one map from the input; queries, keys and values each have their own.",
        lambda d, h, size, bias: d * size + d**2 + bias * 2 * d,
    ),
]


@check
def operation_count(function: Callable[..., int]) -> str:
    """Check a count of the arithmetic in one call of multi-head self-attention.

    Args:
        function: (batch_size, num_tokens, num_hiddens, num_heads) → number of floating-point operations of all matrix
            products: the four maps, the scores, the averages. A multiplication and the addition that goes with it
            are two operations; input and output have num_hiddens features. Softmax and biases are left out.

    Source: Vaswani et al. 2017, table 1; the convention of two is that of ``torch.utils.flop_counter``.
    """
    trials = [(2, 3, 4, 2), (3, 5, 6, 3), (2, 7, 8, 4), (4, 2, 9, 3), (1, 6, 10, 5), (5, 1, 6, 2)]
    compare(in_tensors(function), in_tensors(count_operations), trials, OPERATION_SLIPS)
    return "the maps grow with n, scores and averages with n²: at n = 2 · num_hiddens they cost the same."


def count_operations(b: int, n: int, d: int, h: int, maps: int = 4, pairs: float = 2) -> float:
    """Two operations for each multiplication: ``maps`` products (n, d) @ (d, d), ``pairs`` of the size n · n · d."""
    return 2 * b * (maps * n * d * d + pairs * n * n * d)


OPERATION_SLIPS = [
    miscounted(
        "you count the multiplications alone, exactly half; each comes with an addition.",
        lambda b, n, d, h: count_operations(b, n, d, h) / 2,
    ),
    miscounted(
        "you count everything once for each head, but each head has only a share of num_hiddens.",
        lambda b, n, d, h: h * count_operations(b, n, d, h),
    ),
    miscounted(
        "you count scores and averages once for each head at full size; a head compares num_hiddens / num_heads "
        "features.",
        lambda b, n, d, h: count_operations(b, n, d, h, pairs=2 * h),
    ),
    miscounted(
        "you count scores and averages of one head only, and there are num_heads of them.",
        lambda b, n, d, h: count_operations(b, n, d, h, pairs=2 / h),
    ),
    miscounted(
        "you count three maps; there are four (W_o is one of them).",
        lambda b, n, d, h: count_operations(b, n, d, h, maps=3),
    ),
    miscounted(
        "the four maps are missing; you count scores and averages only.",
        lambda b, n, d, h: count_operations(b, n, d, h, maps=0),
    ),
    miscounted(
        "for scores and averages together you count half of what they take: both are products, and in both each "
        "multiplication comes with an addition.",
        lambda b, n, d, h: count_operations(b, n, d, h, pairs=1),
    ),
    miscounted(
        "you count the four maps only; scores and averages are missing.",
        lambda b, n, d, h: count_operations(b, n, d, h, pairs=0),
    ),
    miscounted(
        "you count a single example; every example of the batch is computed.",
        lambda b, n, d, h: count_operations(1, n, d, h),
    ),
    miscounted(
        "every query is compared with every key: that is n · n scores, not n.",
        lambda b, n, d, h: count_operations(b, n, d, h, pairs=2 / n),
    ),
    miscounted(
        "a map from num_hiddens to num_hiddens features has num_hiddens² numbers, all used for every token.",
        lambda b, n, d, h: count_operations(b, n, d, h, maps=4 / d),
    ),
]


@check
def sum_over_heads(function: Callable[..., Tensor]) -> str:
    """Check a loop over heads that reads each head's share of stacked matrices.

    Args:
        function: (queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads) → (batch, num_queries,
            num_hiddens); ``valid_lens`` (batch,); W_q, W_k, W_v (num_hiddens, size of their input) hold the heads'
            matrices on top of each other, W_o (num_hiddens, num_hiddens) their columns side by side.

    Source: Vaswani et al. 2017, section 3.2.2; d2l 11.5.1.
    """
    trials = [
        attention_trial(2, 1, 2, (3, 4, 5), 2, 3, [1, 2]),
        attention_trial(2, 3, 4, (5, 6, 7), 3, 2, [4, 2]),
        attention_trial(3, 2, 5, (7, 4, 6), 2, 4, [3, 1, 4]),
    ]
    compare(function, mix, trials, HEAD_SLIPS)
    return "the output is a sum with one part for each head, so a head can be taken out without the others."


def attention_trial(
    batch_size: int,
    num_queries: int,
    num_keys: int,
    sizes: tuple[int, int, int],
    num_heads: int,
    head_size: int,
    lengths: list[int],
) -> tuple:
    """Random arguments of multi-head attention, with stacked matrices."""
    numbers = (num_queries, num_keys, num_keys)
    sequences = [torch.randn(batch_size, number, size) for number, size in zip(numbers, sizes, strict=True)]
    num_hiddens = num_heads * head_size
    matrices = [0.5 * torch.randn(num_hiddens, size) for size in (*sizes, num_hiddens)]
    return (*sequences, torch.tensor(lengths), *matrices, num_heads)


def head_outputs(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    valid_lens: Tensor | None,
    W_q: Tensor,
    W_k: Tensor,
    W_v: Tensor,
    W_o: Tensor,
    num_heads: int,
    *,
    divided_by: str = "√head size",
    rows: str = "consecutive",
    masked: str = "before",
) -> list[Tensor]:
    """Each head's average, (batch, num_queries, head_size). The options put mistakes in.

    Args:
        divided_by: what divides the scores: "√head size", "√num_hiddens", "head size" or "nothing".
        rows: which rows of the stacks head i takes: "consecutive", "strided" (every num_heads-th) or "first" (those
            of head 0).
        masked: whether padding is kept out "before" the softmax or "after" it.
    """
    head_size = len(W_q) // num_heads
    divisor = {
        "√head size": math.sqrt(head_size),
        "√num_hiddens": math.sqrt(len(W_q)),
        "head size": head_size,
        "nothing": 1,
    }[divided_by]
    heads = []
    for i in range(num_heads):
        own = {
            "consecutive": slice(i * head_size, (i + 1) * head_size),
            "strided": slice(i, None, num_heads),
            "first": slice(head_size),
        }[rows]
        q, k, v = queries @ W_q[own].T, keys @ W_k[own].T, values @ W_v[own].T
        scores = q @ k.transpose(1, 2) / divisor
        weights = masked_softmax(scores, valid_lens if masked == "before" else None)
        if masked == "after":
            weights = weights * (torch.arange(keys.shape[1]) < valid_lens[:, None, None])
        heads.append(weights @ v)
    return heads


def mix(*trial: Any, **mistakes: str) -> Tensor:
    """The heads side by side, mixed by W_o."""
    return torch.cat(head_outputs(*trial, **mistakes), dim=-1) @ W_o_of(trial).T


def W_o_of(trial: tuple) -> Tensor:
    """The last matrix of a trial."""
    return trial[7]


def mix_some(*trial: Any, some: slice) -> Tensor:
    """What some of the heads add to the output."""
    columns = W_o_of(trial).chunk(trial[8], dim=1)
    return torch.cat(head_outputs(*trial)[some], dim=-1) @ torch.cat(columns[some], dim=1).T


def wrong_output(text: str, imitation: Callable[..., Tensor]) -> Slip:
    """A mistake in the loop over heads."""
    return Slip("output {place} is {got} instead of {right}: " + text, imitation)


HEAD_SLIPS = [
    wrong_output(
        "the scores are divided by √num_hiddens, but a head compares vectors of size num_hiddens / num_heads.",
        lambda *trial: mix(*trial, divided_by="√num_hiddens"),
    ),
    wrong_output(
        "the scores are divided by the size of a head itself; its square root is asked for.",
        lambda *trial: mix(*trial, divided_by="head size"),
    ),
    wrong_output(
        "the scores are not divided by the root of the head's size.", lambda *trial: mix(*trial, divided_by="nothing")
    ),
    wrong_output("valid_lens has no effect: padding gets weight.", lambda *trial: mix(*trial[:3], None, *trial[4:])),
    wrong_output(
        "padding adds nothing to the averages, but it still takes its share in the softmax: mask the scores, not what "
        "comes after.",
        lambda *trial: mix(*trial, masked="after"),
    ),
    wrong_output(
        "W_o is missing: the heads only stand side by side.", lambda *trial: torch.cat(head_outputs(*trial), dim=-1)
    ),
    wrong_output(
        "W_o is the wrong way round: a head owns columns of W_o, you use rows.",
        lambda *trial: torch.cat(head_outputs(*trial), dim=-1) @ W_o_of(trial),
    ),
    wrong_output(
        "each head takes every num_heads-th row of the stacks; its rows follow one another.",
        lambda *trial: mix(*trial, rows="strided"),
    ),
    wrong_output("every head uses the rows of head 0.", lambda *trial: mix(*trial, rows="first")),
    wrong_output(
        "the heads meet the columns of W_o in reverse order.",
        lambda *trial: torch.cat(head_outputs(*trial)[::-1], dim=-1) @ W_o_of(trial).T,
    ),
    wrong_output(
        "each head meets every num_heads-th column of W_o, as if features of the heads alternated; its columns follow "
        "one another.",
        lambda *trial: torch.stack(head_outputs(*trial), dim=-1).flatten(start_dim=2) @ W_o_of(trial).T,
    ),
    wrong_output(
        "every head is mixed by the columns of head 0; each head has columns of its own.",
        lambda *trial: sum(head_outputs(*trial)) @ W_o_of(trial).chunk(trial[8], dim=1)[0].T,
    ),
    wrong_output("you average the heads' parts; add them.", lambda *trial: mix(*trial) / trial[8]),
    wrong_output(
        "only head 0 reaches the output: does the loop end too early?",
        lambda *trial: mix_some(*trial, some=slice(1)),
    ),
    wrong_output(
        "only the last head reaches the output: does each head overwrite the one before?",
        lambda *trial: mix_some(*trial, some=slice(-1, None)),
    ),
    wrong_output(
        "the last head does not reach the output: does the loop stop one head short?",
        lambda *trial: mix_some(*trial, some=slice(-1)),
    ),
    wrong_output(
        "head 0 does not reach the output: heads are counted from 0.",
        lambda *trial: mix_some(*trial, some=slice(1, None)),
    ),
]


@check
def previous_token(W_q: Tensor, W_k: Tensor) -> str:
    """Check a head, set by hand, in which every token attends to the one before it.

    The six tokens hold their positions only, one-hot: token i is row i of ``torch.eye(6)``. Token 0, which has none
    before it, attends to itself. At least 0.9 of each token's weight must be where it belongs.

    Args:
        W_q, W_k: (head_size, 6), any head_size.

    Source: the scores are those of Vaswani et al. 2017, section 3.2.1; heads of this kind occur in trained models
        (Voita et al. 2019, "Analyzing Multi-Head Self-Attention", call them positional).
    """
    weights = position_weights(matrix("W_q", W_q), matrix("W_k", W_k))
    wanted = [0, *range(NUM_TOKENS - 1)]
    shares = [weights[token, target].item() for token, target in enumerate(wanted)]
    if min(shares) >= ENOUGH:
        return f"every token gives at least {floor(min(shares))} of its weight to the one before it, token 0 to itself."
    raise MistakeError(describe(weights, wanted))


def matrix(name: str, value: Any) -> Tensor:
    """The value, if it can be W_q or W_k of one head on one-hot positions.

    Raises:
        MistakeError: it cannot.
    """
    needed = f"{name} must be a tensor of shape (head_size, {NUM_TOKENS}), with a column for each position"
    if not isinstance(value, Tensor):
        raise MistakeError(f"{needed}; yours is {kind_of(value)}.")
    if value.dim() != 2 or value.shape[1] != NUM_TOKENS or not len(value):
        raise MistakeError(f"{needed}; yours has the shape {tuple(value.shape)}.")
    if not value.isfinite().all():
        raise MistakeError(f"{name} holds numbers that are not finite.")
    return tensor_from(value, tuple(value.shape), floating=False).to("cpu", torch.float64)


def position_weights(W_q: Tensor, W_k: Tensor) -> Tensor:
    """Attention weights (6, 6) among one-hot positions.

    Raises:
        MistakeError: queries and keys differ in size, or are too large to compare.
    """
    if len(W_q) != len(W_k):
        raise MistakeError(
            f"queries and keys are compared entry by entry: W_q makes queries of size {len(W_q)}, "
            f"W_k keys of size {len(W_k)}."
        )
    positions = torch.eye(NUM_TOKENS, dtype=torch.float64)
    queries, keys = positions @ W_q.T, positions @ W_k.T
    scores = queries @ keys.T / math.sqrt(len(W_q))
    if not scores.isfinite().all():
        raise MistakeError("the scores overflow: take smaller numbers.")
    return torch.softmax(scores, dim=-1)


def describe(weights: Tensor, wanted: list[int]) -> str:
    """What a head does instead of attending to the previous token."""
    looks = [most(row) for row in weights]
    lowest = [most(-row) for row in weights]
    last = NUM_TOKENS - 1
    if is_even(weights):
        return f"every token spreads its weight evenly, 1/{NUM_TOKENS} on each: the scores of a row hardly differ."
    if looks == wanted:
        shares = [weights[token, target].item() for token, target in enumerate(wanted)]
        token = next(token for token, share in enumerate(shares) if share < ENOUGH)
        return (
            f"every token looks most where it should, but not sharply enough: token {token} gives only "
            f"{floor(shares[token])} of its weight there, {ENOUGH} is asked. What makes a softmax sharper?"
        )
    if looks == list(range(NUM_TOKENS)):
        return "every token attends to itself: its query should match another token's key, not its own."
    if looks[1:last] == list(range(2, NUM_TOKENS)):  # where token 0 looks depends on how the shift treats it
        return (
            "tokens attend to the next one: token 1 looks at token 2, and should look at token 0. "
            "Are the roles of W_q and W_k exchanged, or is a shift the wrong way round?"
        )
    if looks[2:] == list(range(NUM_TOKENS - 2)):
        return "tokens attend to the one two before: token 2 looks at token 0, and should look at token 1."
    if looks[1:] == wanted[1:]:
        return describe_first(weights[0], looks[0])
    if len(set(looks)) == 1 and looks[0] is not None:
        return f"every token attends to token {looks[0]}: queries of different tokens must look for different things."
    if lowest == wanted:
        return "every token gives the least weight where it should give the most: is a sign wrong?"
    if all(is_even(row[:token]) and row[:token].sum() > ENOUGH for token, row in enumerate(weights) if token):
        return "tokens spread their weight over all tokens before them; only the one just before is asked for."
    token = next(token for token, target in enumerate(wanted) if weights[token, target] < ENOUGH)
    return describe_row(weights[token], token, wanted[token])


def describe_row(row: Tensor, token: int, target: int) -> str:
    """Where a token's weight goes instead of to the target."""
    if is_even(row):
        return f"token {token} spreads its weight evenly over all tokens; {ENOUGH} of it should go to token {target}."
    top = [str(other) for other, weight in enumerate(row) if row.max() - weight < TIED]
    if len(top) > 1:
        return (
            f"token {token} gives its largest weight to tokens {', '.join(top[:-1])} and {top[-1]} alike, "
            f"{floor(row.max().item())} each; {ENOUGH} should go to token {target}."
        )
    return (
        f"token {token} gives {floor(row[target].item())} of its weight to token {target}, {ENOUGH} is asked; "
        f"the most, {floor(row.max().item())}, goes to token {top[0]}."
    )


def describe_first(row: Tensor, target: int | None) -> str:
    """What token 0 does, where all others look at the one before them."""
    if is_even(row):
        return "the others are right, but token 0 spreads its weight evenly: its query matches all keys alike."
    if target == NUM_TOKENS - 1:
        return (
            f"the others are right, but it wraps around: token 0 attends to the last one, token {target}; "
            "it should attend to itself."
        )
    return f"the others are right, but token 0 gives only {floor(row[0].item())} of its weight to itself."


def most(row: Tensor) -> int | None:
    """Where a row is largest; None where two are about equally large."""
    first, second = row.topk(2).values.tolist()
    return int(row.argmax()) if first - second >= TIED else None


def is_even(weights: Tensor) -> bool:
    """Whether weights hardly differ."""
    return bool(weights.max() - weights.min() < TIED)


def floor(share: float) -> str:
    """A share in two digits, not rounded up."""
    return f"{math.floor(share * 100) / 100:.2f}"
