"""What the exercises of 06 take for true: a normalised entropy, and what a head contributes."""

import pytest
import torch

from mha_course.exercises import contribution_map, normalized_entropy, reading_heads


def test_uniform_attention_is_1_at_any_length():
    valid_lens = torch.tensor([2, 5])
    weights = (torch.arange(6) < valid_lens[:, None, None, None]) / valid_lens[:, None, None, None]
    assert normalized_entropy.right(weights.expand(2, 3, 6, 6), valid_lens).tolist() == pytest.approx([1.0] * 3)


def test_a_dead_head_contributes_nothing():
    weights, values, W_o = reading_heads.contribution_trial(2, 3, 4, 5, 2)
    W_o[:, 2:4] = 0
    lengths = contribution_map.right(weights, values, W_o)
    assert (lengths[:, 1] == 0).all() and (lengths[:, ::2] > 0).all()
