"""Answers that a check once judged or described wrongly, each with the verdict it must get."""

import pytest
import torch

from mha_lib import checks
from mha_lib.checks.reading import PLAYED


def valid(scores, valid_lens):
    return torch.arange(scores.shape[-1]) < (
        valid_lens[:, None, None] if valid_lens.dim() == 1 else valid_lens[..., None]
    )


def nan_in_padding_at_low_scores(scores, valid_lens):
    weights = torch.softmax(scores.masked_fill(~valid(scores, valid_lens), -torch.inf), dim=-1).nan_to_num(0)
    return weights.where(valid(scores, valid_lens) | (scores > -1000), torch.nan)


def constant_below(scores, valid_lens):
    heights = scores.exp() * valid(scores, valid_lens)
    return heights / (heights.sum(dim=-1, keepdim=True) + 1e-9)


def softmax_first(scores, valid_lens):
    heights = torch.softmax(scores, dim=-1) * valid(scores, valid_lens)
    return heights / (heights.sum(dim=-1, keepdim=True) + 1e-9)


def share_beyond(distance):
    def reach(weights):
        places = torch.arange(weights.shape[-1])
        return (weights * ((places - places[:, None]).abs() > distance)).sum(dim=-1).mean(dim=(0, 2))

    return reach


def mean_of_powers(power):
    def reach(weights):
        places = torch.arange(weights.shape[-1])
        return (weights * (places - places[:, None]).abs() ** power).sum(dim=-1).mean(dim=(0, 2))

    return reach


def by_a_matrix(X, num_heads):
    """Each head's columns picked by a matrix of 0 and 1."""
    head_size = X.shape[-1] // num_heads
    picked = [X @ torch.eye(X.shape[-1])[:, h * head_size : (h + 1) * head_size] for h in range(num_heads)]
    return torch.stack(picked, dim=1).flatten(end_dim=1)


def without_query(queries, keys, values, W_q, W_k, w_v):
    scores = (torch.tanh(keys @ W_k.T) @ w_v)[:, None].expand(-1, queries.shape[1], -1)
    return torch.softmax(scores, dim=-1) @ values


RIGHT = [
    (checks.reach, share_beyond(2)),
    (checks.reach, mean_of_powers(1)),
    (checks.reach, mean_of_powers(2)),
    (checks.transpose_qkv, by_a_matrix),
]
WRONG = [
    (checks.masked_softmax_1d, nan_in_padding_at_low_scores, r"holds nan instead of 0 where all scores are"),
    (checks.masked_softmax_2d, nan_in_padding_at_low_scores, r"holds nan instead of 0 where all scores are"),
    (checks.masked_softmax_2d, constant_below, "where all scores are 100 higher"),
    (checks.masked_softmax_2d, softmax_first, "where padding scores 30 higher than valid keys do"),
    (checks.masked_softmax_1d, softmax_first, "where padding scores 30 higher than valid keys do"),
    (checks.reach, share_beyond(1), "must get the larger number"),
    (checks.reach, share_beyond(3), "must get the larger number"),
    (checks.transpose_output, lambda X, h: X.unflatten(0, (-1, h)).mean(1), "you averaged the heads"),
    (checks.effective_number, lambda weights: torch.ones(len(weights)), "every row gives 1, whatever it holds. Is a"),
    (checks.additive_attention, without_query, "one and the same answer, by the bent keys alone. Does the query take"),
    (checks.order_of_cuts, lambda score, n: [str(head) for head in range(n)], "numbers are needed, yours holds a str"),
    (
        checks.head_roles,
        [{"previous": "next", "next": "previous"}.get(role, role) for role in PLAYED],
        "have changed places throughout, the rest is right",
    ),
]


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_a_right_answer_is_right(check, answer):
    assert check(answer), check(answer)


@pytest.mark.parametrize(("check", "answer", "words"), WRONG)
def test_a_wrong_answer_gets_its_message(check, answer, words):
    verdict = check(answer)
    assert verdict.state == "wrong"
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(verdict.text)
