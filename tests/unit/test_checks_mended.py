"""Answers that a check once judged or described wrongly, each with the verdict it must get."""

import pytest
import torch

from mha_lib import checks


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


def without_query(queries, keys, values, W_q, W_k, w_v):
    scores = (torch.tanh(keys @ W_k.T) @ w_v)[:, None].expand(-1, queries.shape[1], -1)
    return torch.softmax(scores, dim=-1) @ values


WRONG = [
    (checks.masked_softmax_1d, nan_in_padding_at_low_scores, r"holds nan instead of 0 where all scores are"),
    (checks.masked_softmax_2d, nan_in_padding_at_low_scores, r"holds nan instead of 0 where all scores are"),
    (checks.masked_softmax_2d, constant_below, "where all scores are 100 higher"),
    (checks.masked_softmax_2d, softmax_first, "where padding scores 30 higher than valid keys do"),
    (checks.masked_softmax_1d, softmax_first, "where padding scores 30 higher than valid keys do"),
    (checks.effective_number, lambda weights: torch.ones(len(weights)), "every row gives 1, whatever it holds. Is a"),
    (checks.additive_attention, without_query, "one and the same answer, by the bent keys alone. Does the query take"),
]


@pytest.mark.parametrize(("check", "answer", "words"), WRONG)
def test_a_wrong_answer_gets_its_message(check, answer, words):
    verdict = check(answer)
    assert verdict.state == "wrong"
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(verdict.text)
