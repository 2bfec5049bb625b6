"""Tokens that name their neighbours: the right answers, what a run tells of its heads, and what it refuses."""

import pytest
import torch

from mha_course.models.neighbours import draw_rows, train_neighbours


def test_the_answers_are_the_letters_before_and_after_on_a_ring():
    letters, answers = draw_rows(5, 4, torch.Generator().manual_seed(3))
    for row, named in zip(letters.tolist(), answers.tolist(), strict=True):
        n = len(row)
        assert named == [[row[i - 1], row[(i + 1) % n], row[i - 2], row[(i + 2) % n]] for i in range(n)]


@pytest.mark.cpu
def test_a_head_that_has_learned_one_message_looks_where_it_comes_from():
    run = train_neighbours(1, num_messages=1, seed=1, steps=200)
    assert run.right.item() == pytest.approx(run.all_right) and run.all_right > 0.9
    assert run.weights.shape == run.ranked.shape == (1, 1) and run.weights.item() > 0.7


@pytest.mark.cpu
def test_weights_are_told_by_head_and_message_and_ranked_ones_fall():
    run = train_neighbours(2, num_messages=3, read_out_size=5, steps=0)
    assert run.weights.shape == run.ranked.shape == (2, 3) and len(run.right) == 3
    torch.testing.assert_close(run.weights.sum(dim=1), run.ranked.sum(dim=1))
    assert (run.ranked.diff(dim=1) < 0).all() and not torch.allclose(run.weights, run.ranked)


@pytest.mark.parametrize(("heads", "messages", "words"), [(1, 5, "from 1 to 4, got 5"), (5, 2, "num_heads that fit")])
def test_what_does_not_fit_is_named(heads, messages, words):
    with pytest.raises(ValueError, match=words):
        train_neighbours(heads, messages)
