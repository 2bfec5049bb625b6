"""The checks of notebook 03: typical mistakes get their own message, right answers pass, other mistakes no name."""

import math

import pytest
import torch
from judged import Answers
from torch.utils.flop_counter import FlopCounterMode

from mha_lib import MultiHeadAttention, checks, masked_softmax
from mha_lib.attention import other_libraries
from mha_lib.checks import heads

# ---------------------------------------------------------------------------------------------------------------------
# Counting parameters


def by_counting_a_layer(num_hiddens, num_heads, input_size, bias):
    sizes = dict.fromkeys(["query_size", "key_size", "value_size"], input_size)
    layer = MultiHeadAttention(num_hiddens, num_heads, bias=bias, **sizes)
    return sum(parameter.numel() for parameter in layer.parameters())


def by_heads(num_hiddens, num_heads, input_size, bias):
    total = num_hiddens * num_hiddens + (num_hiddens if bias else 0)
    for _ in range(num_heads):
        for _ in ("query", "key", "value"):
            total += num_hiddens // num_heads * (input_size + bias)
    return total


RIGHT_PARAMETERS = [
    lambda d, h, size, bias: d * (3 * size + d + 4 * bias),
    by_counting_a_layer,
    by_heads,
    lambda d, h, size, bias: torch.tensor(d * (3 * (size + int(bias)) + d + int(bias))),
    lambda d, h, size, bias: float(d * (3 * size + d + 4 * bias)),
]
WRONG_PARAMETERS = {
    "once for each head at full size": lambda d, h, size, bias: h * 3 * d * size + d * d + 4 * d * bias,
    "everything once for each head": lambda d, h, size, bias: h * d * (3 * size + d + 4 * bias),
    "only, and there are num_heads of": lambda d, h, size, bias: 3 * d // h * (size + bias) + d * (d + bias),
    "only, and no biases": lambda d, h, size, bias: 3 * d // h * size + d * d,
    "num_heads such shares": lambda d, h, size, bias: d // h * (3 * size + d) + bias * (3 * d // h + d),
    "maps, without biases": lambda d, h, size, bias: d // h * (3 * size + d),
    "a fourth map, W_o": lambda d, h, size, bias: 3 * d * (size + bias),
    "W_o does not read the input": lambda d, h, size, bias: 4 * d * (size + bias),
    "they read the input": lambda d, h, size, bias: 4 * d * (d + bias),
    "biases are missing": lambda d, h, size, bias: d * (3 * size + d),
    "although bias is False": lambda d, h, size, bias: d * (3 * size + d + 4),
    "the bias of one map": lambda d, h, size, bias: d * (3 * size + d + bias),
    "W_o has one too": lambda d, h, size, bias: d * (3 * size + d + 3 * bias),
    "not a single number": lambda d, h, size, bias: d * (3 * size + d) + 4 * bias,
    "one map from the input": lambda d, h, size, bias: d * (size + d + 2 * bias),
}
UNLISTED_PARAMETERS = [
    lambda d, h, size, bias: d * (3 * size + d + 5 * bias),
    lambda d, h, size, bias: 3 * d * size + bias,
    lambda d, h, size, bias: d * (3 * size + d + 4 * bias) + h,
    lambda d, h, size, bias: 4 * d * size if bias else 3 * d * size,
]

# ---------------------------------------------------------------------------------------------------------------------
# Counting operations


def by_torch(batch_size, num_tokens, num_hiddens, num_heads):
    X = torch.randn(batch_size, num_tokens, num_hiddens)
    W = [torch.randn(num_hiddens, num_hiddens) for _ in range(4)]
    with FlopCounterMode(display=False) as counter:
        Q, K, V = ((X @ matrix).unflatten(-1, (num_heads, -1)).transpose(1, 2) for matrix in W[:3])
        ((Q @ K.mT).softmax(-1) @ V).transpose(1, 2).flatten(2) @ W[3]
    return counter.get_total_flops()


def head_by_head(b, n, d, h):
    total = 0
    for _ in range(b * h):
        p = d // h
        total += 2 * (3 * n * d * p + n * p * n + n * n * p + n * p * d)
    return total


RIGHT_OPERATIONS = [
    lambda b, n, d, h: 8 * b * n * d**2 + 4 * b * n**2 * d,
    lambda b, n, d, h: 4 * b * n * d * (2 * d + n),
    by_torch,
    head_by_head,
]
WRONG_OPERATIONS = {
    "multiplications alone": lambda b, n, d, h: 2 * b * n * d * (2 * d + n),
    "everything once for each head": lambda b, n, d, h: 4 * b * n * d * (2 * d + n) * h,
    "scores and averages once for each head": lambda b, n, d, h: 8 * b * n * d**2 + 4 * b * n**2 * d * h,
    "of one head only": lambda b, n, d, h: 8 * b * n * d**2 + 4 * b * n**2 * d // h,
    "W_o is one of them": lambda b, n, d, h: 6 * b * n * d**2 + 4 * b * n**2 * d,
    "the four maps are missing": lambda b, n, d, h: 4 * b * n**2 * d,
    "half of what they take": lambda b, n, d, h: 8 * b * n * d**2 + 2 * b * n**2 * d,
    "the four maps only": lambda b, n, d, h: 8 * b * n * d**2,
    "a single example": lambda b, n, d, h: 4 * n * d * (2 * d + n),
    "n · n scores": lambda b, n, d, h: 8 * b * n * d**2 + 4 * b * n * d,
    "num_hiddens² numbers": lambda b, n, d, h: 8 * b * n * d + 4 * b * n**2 * d,
}
UNLISTED_OPERATIONS = [
    lambda b, n, d, h: 3 * b * n * d * (2 * d + n),
    lambda b, n, d, h: 6 * b * n * d**2 + 2 * b * n**2 * d,
    lambda b, n, d, h: 8 * b * n * d**2 + 4 * b * n**2 * d + b * h * n**2,
    lambda b, n, d, h: 4 * n * d * (2 * d + n) * (b if n < 6 else 1),
]

# ---------------------------------------------------------------------------------------------------------------------
# The loop over heads


def loop(
    queries,
    keys,
    values,
    valid_lens,
    W_q,
    W_k,
    W_v,
    W_o,
    num_heads,
    *,
    divide=lambda scores, p, d: scores / math.sqrt(p),
    lengths=True,
    after=False,
    take=slice(None),
    rows=lambda i, p, h: slice(i * p, i * p + p),
    columns=lambda i, p, h: slice(i * p, i * p + p),
    over=2,
):
    """A loop with places to put mistakes in."""
    d = W_q.shape[0]
    p = d // num_heads
    output = 0
    for i in range(num_heads)[take]:
        own = rows(i, p, num_heads)
        q = torch.einsum("bnd,pd->bnp", queries, W_q[own])
        k = torch.einsum("bnd,pd->bnp", keys, W_k[own])
        v = torch.einsum("bnd,pd->bnp", values, W_v[own])
        scores = divide(torch.bmm(q, k.permute(0, 2, 1)), p, d)
        if lengths:
            for example, length in enumerate(valid_lens.tolist()):
                scores[example, :, length:] = -1e9
        weights = torch.softmax(scores, dim=over)
        if after:
            for example, length in enumerate(valid_lens.tolist()):
                weights[example, :, length:] = 0
        output = output + weights @ v @ W_o[:, columns(i, p, num_heads)].T
    return output


def with_mistake(**mistake):
    return lambda *arguments: loop(*arguments, **mistake)


def with_cat(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads, finish=None):
    matrices = zip(W_q.chunk(num_heads), W_k.chunk(num_heads), W_v.chunk(num_heads), strict=True)
    outputs = []
    for A, B, C in matrices:
        q, k, v = queries @ A.T, keys @ B.T, values @ C.T
        outputs.append(masked_softmax(q @ k.mT / q.shape[-1] ** 0.5, valid_lens) @ v)
    return finish(outputs, W_o) if finish else torch.cat(outputs, -1) @ W_o.T


def finished(finish):
    return lambda *arguments: with_cat(*arguments, finish=finish)


def with_the_layer(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    layer = MultiHeadAttention(
        len(W_q), num_heads, query_size=W_q.shape[1], key_size=W_k.shape[1], value_size=W_v.shape[1]
    )
    layer.load_state_dict({"W_q.weight": W_q, "W_k.weight": W_k, "W_v.weight": W_v, "W_o.weight": W_o})
    return layer(queries, keys, values, valid_lens)


def query_by_query(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    layer = MultiHeadAttention(
        len(W_q), num_heads, query_size=W_q.shape[1], key_size=W_k.shape[1], value_size=W_v.shape[1]
    )
    layer.load_state_dict({"W_q.weight": W_q, "W_k.weight": W_k, "W_v.weight": W_v, "W_o.weight": W_o})
    return other_libraries.loop_over_heads(layer, queries, keys, values, valid_lens)[0]


def einsum_at_once(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    Q, K, V = (
        torch.einsum("bnd,hpd->bhnp", X, W.unflatten(0, (num_heads, -1)))
        for X, W in ((queries, W_q), (keys, W_k), (values, W_v))
    )
    weights = masked_softmax(torch.einsum("bhqp,bhkp->bhqk", Q, K) / Q.shape[-1] ** 0.5, valid_lens)
    return torch.einsum("bhqk,bhkp,ohp->bqo", weights, V, W_o.unflatten(1, (num_heads, -1)))


RIGHT_LOOPS = [loop, with_cat, with_the_layer, query_by_query, einsum_at_once]
WRONG_LOOPS = {
    "divided by √num_hiddens": with_mistake(divide=lambda scores, p, d: scores / d**0.5),
    "size of a head itself": with_mistake(divide=lambda scores, p, d: scores / p),
    "not divided by the root": with_mistake(divide=lambda scores, p, d: scores),
    "valid_lens has no effect": with_mistake(lengths=False),
    "takes its share in the softmax": with_mistake(lengths=False, after=True),
    "W_o is missing": finished(lambda outputs, W_o: torch.cat(outputs, 2)),
    "wrong way round": finished(lambda outputs, W_o: torch.cat(outputs, 2) @ W_o),
    "every num_heads-th row": with_mistake(rows=lambda i, p, h: slice(i, None, h)),
    "the rows of head 0": with_mistake(rows=lambda i, p, h: slice(p)),
    "reverse order": finished(lambda outputs, W_o: torch.cat([*reversed(outputs)], 2) @ W_o.T),
    "every num_heads-th column": finished(
        lambda outputs, W_o: torch.stack(outputs, 3).reshape(*outputs[0].shape[:2], -1) @ W_o.T
    ),
    "the columns of head 0": with_mistake(columns=lambda i, p, h: slice(p)),
    "you average": finished(lambda outputs, W_o: torch.cat(outputs, 2) @ W_o.T / len(outputs)),
    "only head 0": finished(lambda outputs, W_o: outputs[0] @ W_o[:, : outputs[0].shape[2]].T),
    "only the last head": finished(lambda outputs, W_o: outputs[-1] @ W_o[:, -outputs[0].shape[2] :].T),
    "the last head does not": with_mistake(take=slice(-1)),
    "counted from 0": with_mistake(take=slice(1, None)),
}
UNLISTED_LOOPS = [
    with_mistake(divide=lambda scores, p, d: scores / p**0.75),
    with_mistake(lengths=False, after=True, take=slice(-1)),
    with_mistake(rows=lambda i, p, h: slice(i, None, h), lengths=False),
    with_mistake(over=1),
    finished(lambda outputs, W_o: torch.cat([outputs[1], outputs[0], *outputs[2:]], 2) @ W_o.T / 2),
    finished(lambda outputs, W_o: torch.cat(outputs, 2) @ W_o.T + 0.01),
    lambda *arguments: loop(*arguments) if len(arguments[0]) == 3 else loop(*arguments, lengths=False) + 0.1,
]

EXERCISES = [
    Answers(checks.parameter_count, RIGHT_PARAMETERS, WRONG_PARAMETERS, UNLISTED_PARAMETERS),
    Answers(checks.operation_count, RIGHT_OPERATIONS, WRONG_OPERATIONS, UNLISTED_OPERATIONS),
    Answers(checks.sum_over_heads, RIGHT_LOOPS, WRONG_LOOPS, UNLISTED_LOOPS),
]


@pytest.mark.parametrize(
    ("answers", "slips"),
    list(zip(EXERCISES, [heads.PARAMETER_SLIPS, heads.OPERATION_SLIPS, heads.HEAD_SLIPS], strict=True)),
    ids=["parameter_count", "operation_count", "sum_over_heads"],
)
def test_every_mistake_that_has_a_name_is_tried(answers, slips):
    assert len({answers.check(answer).text for answer in answers.wrong.values()}) == len(slips)


def test_a_count_must_be_a_number():
    assert "one whole number is needed" in checks.parameter_count(lambda *sizes: "150").text
    assert "raises ZeroDivisionError" in checks.parameter_count(lambda *sizes: 1 / 0).text
    assert "give the function itself" in checks.operation_count(312).text


def test_counts_are_told_in_full():
    text = checks.operation_count(lambda b, n, d, h: 2 * b * n * d * (2 * d + n)).text
    assert text.startswith("for (2, 3, 4, 2) you count 528, it is 1056:")


# ---------------------------------------------------------------------------------------------------------------------
# The head that attends to the previous token

EYE = torch.eye(6)
BEFORE = [0, 0, 1, 2, 3, 4]


def looking_at(targets, strength=40.0):
    """W_q and W_k by which token i attends to token targets[i]; None: it does not care."""
    W_q = torch.stack([torch.zeros(6) if t is None else strength * EYE[t] for t in targets], dim=1)
    return W_q, EYE


def random_keys():
    keys = torch.linalg.qr(torch.randn(9, 6, generator=torch.Generator().manual_seed(5)))[0]  # orthonormal columns
    return 50 * keys[:, BEFORE], keys


def keys_on_a_circle():
    angles = torch.arange(6) * math.tau / 6
    keys = torch.stack([angles.cos(), angles.sin()])
    return 20 * keys[:, BEFORE], keys


def keys_moved():
    """The keys are shifted instead of the queries, and token 0 gets a feature of its own."""
    W_k = torch.zeros(7, 6)
    for token in range(5):
        W_k[token + 1, token] = 6.5
    W_k[6, 0] = 6.5
    W_q = torch.cat([6.5 * EYE, torch.zeros(1, 6)])
    W_q[6, 0] = 6.5
    return W_q, W_k


@pytest.mark.parametrize(
    "matrices",
    [
        looking_at(BEFORE),
        random_keys(),
        keys_on_a_circle(),
        keys_moved(),
        (30 * EYE[BEFORE].T.long(), EYE.long()),
        tuple(torch.nn.Parameter(W) for W in looking_at(BEFORE)),
    ],
)
def test_right_matrices_pass(matrices):
    verdict = checks.previous_token(*matrices)
    assert verdict, verdict


def spread_before():
    scores = torch.full((6, 6), -60.0).masked_fill(torch.ones(6, 6).tril(-1).bool(), 0.0)
    return scores.T * math.sqrt(6), EYE


def divided():
    """Token 3 looks at three tokens."""
    W_q = 40 * EYE[:, BEFORE]
    W_q[[1, 5], 3] = 40
    return W_q, EYE


DEEDS = [
    (looking_at([0, 1, 2, 3, 4, 5]), "attends to itself"),
    (looking_at([1, 2, 3, 4, 5, 5]), "attend to the next one"),
    (looking_at([1, 2, 3, 4, 5, 0]), "attend to the next one"),
    (looking_at([0, 2, 3, 4, 5, 5]), "attend to the next one"),
    (looking_at(BEFORE)[::-1], "attend to the next one"),
    ((torch.zeros(3, 6), torch.zeros(3, 6)), "spreads its weight evenly, 1/6 on each"),
    (looking_at(BEFORE, strength=0.01), "spreads its weight evenly, 1/6 on each"),
    (looking_at([5, 0, 1, 2, 3, 4]), "wraps around"),
    (looking_at([None, 0, 1, 2, 3, 4]), "token 0 spreads its weight evenly"),
    (looking_at([3, 0, 1, 2, 3, 4]), "token 0 gives only 0.00 of its weight to itself"),
    (looking_at(BEFORE, strength=5), "not sharply enough: token 0 gives only 0.60 of"),
    (looking_at([0, 0, 0, 1, 2, 3]), "two before"),
    (looking_at([4, 4, 4, 4, 4, 4]), "every token attends to token 4"),
    (looking_at(BEFORE, strength=-40.0), "the least weight where it should give the most"),
    (spread_before(), "over all tokens before them"),
]


@pytest.mark.parametrize(("matrices", "words"), DEEDS)
def test_what_the_head_does_is_told(matrices, words):
    verdict = checks.previous_token(*matrices)
    assert verdict.state == "wrong" and words in verdict.text, verdict


@pytest.mark.parametrize(
    ("matrices", "words"),
    [
        (looking_at([0, 0, 1, 5, 3, 4]), "token 3 gives 0.00 of its weight to token 2, 0.9 is asked; the most, 0.99"),
        (looking_at([0, 1, 2, 3, 4, 0]), "token 1 gives 0.00 of its weight to token 0"),
        (looking_at([0, 0, 1, 2, None, 4]), "token 4 spreads its weight evenly over all tokens; 0.9 of it"),
        (divided(), "token 3 gives its largest weight to tokens 1, 2 and 5 alike, 0.33 each; 0.9 should go to token 2"),
        (looking_at([5, 0, 1, 2, 3, 5]), "token 0 gives 0.00 of its weight to token 0"),
    ],
)
def test_a_head_that_does_none_of_these_is_told_where_it_goes_wrong(matrices, words):
    verdict = checks.previous_token(*matrices)
    assert verdict.state == "wrong" and words in verdict.text, verdict
    assert not any(deed in verdict.text for _, deed in DEEDS)


@pytest.mark.parametrize(
    ("W_q", "W_k", "words"),
    [
        (
            EYE.tolist(),
            EYE,
            "W_q must be a tensor of shape (head_size, 6), with a column for each position; yours is a",
        ),
        (EYE, torch.eye(6, 4), "W_k must be a tensor of shape (head_size, 6), with a column for each position; yours"),
        (torch.zeros(0, 6), torch.zeros(0, 6), "yours has the shape (0, 6)"),
        (torch.eye(5, 6), EYE, "W_q makes queries of size 5, W_k keys of size 6"),
        (EYE / 0, EYE, "W_q holds numbers that are not finite"),
        (EYE, EYE.to(torch.complex64), "real numbers, yours are torch.complex64"),
        (EYE.double() * 1e300, EYE.double() * 1e300, "overflow"),
    ],
)
def test_what_are_no_such_matrices(W_q, W_k, words):
    verdict = checks.previous_token(W_q, W_k)
    assert verdict.state == "wrong" and words in verdict.text, verdict


def test_dots_are_not_yet_matrices():
    assert checks.previous_token(..., ...).state == checks.previous_token(EYE, ...).state == "not yet"
