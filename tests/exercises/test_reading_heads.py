"""What the exercises of 06 take for true: the roles of the unknown heads, evenness, what is heard of a head."""

import pytest
import torch
from right_answers import ROLES

from mha_lib.exercises import evenness, head_roles, heard, reading_heads


def test_the_roles_are_what_the_weights_show():
    weights, words = reading_heads.unknown_heads(), reading_heads.WORDS
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(6, 9))
    places = {
        "next": [[min(i + 1, 8)] for i in range(9)],
        "previous": [[max(i - 1, 0)] for i in range(9)],
        "first": [[0]] * 9,
        "itself": [[i] for i in range(9)],
        "same word": [[j for j in range(9) if words[j] == words[i]] for i in range(9)],
    }
    for role, head in zip(ROLES, weights, strict=True):
        rows = places.get(role, [])
        assert all(head[i, js].sum() > 0.6 for i, js in enumerate(rows)) if rows else head.max() < 0.3


def test_no_verdict_names_the_role_of_a_head():
    for head, role in enumerate(ROLES):
        for claim in set(reading_heads.ROLES) - {role}:
            assert f"“{role}”" not in head_roles([*ROLES[:head], claim, *ROLES[head + 1 :]]).text


def test_an_even_look_is_1_at_any_length():
    valid_lens = torch.tensor([2, 5])
    weights = (torch.arange(6) < valid_lens[:, None, None, None]) / valid_lens[:, None, None, None]
    assert evenness.right(weights.expand(2, 3, 6, 6), valid_lens).tolist() == pytest.approx([1.0] * 3)


def test_a_dead_head_is_not_heard():
    weights, values, W_o = reading_heads.heard_trial(2, 3, 4, 5, 2)
    W_o[:, 2:4] = 0
    lengths = heard.right(weights, values, W_o)
    assert (lengths[:, 1] == 0).all() and (lengths[:, ::2] > 0).all()
