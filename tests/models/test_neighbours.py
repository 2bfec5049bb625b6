"""Tokens that name their neighbours: the right answers, what a run tells of its heads, and the ring's laboratory."""

import itertools

import pytest
import torch

from mha_course.models.neighbours import (
    draw_rows,
    fit_neighbours,
    held_out_rows,
    train_neighbours,
    weights_on_messages,
)
from mha_course.models.ring_lab import right_without, ring_lab, train_ring_lab


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


# The laboratory of the ring: its weights are those of its training, and its heads cover for each other in pairs.

PAIRS = [{1, 3}, {0, 5}, {2, 6}, {4, 7}]  # one before, one after, two before, two after


def test_two_heads_attend_most_to_each_neighbour():
    model, (letters, _) = ring_lab(), held_out_rows(4)
    with torch.no_grad():
        model(letters)
    jobs = weights_on_messages(model.attention.attention_weights, 4).mean(dim=(0, 2)).argmax(dim=1).tolist()
    assert [{head for head in range(8) if jobs[head] == message} for message in range(4)] == PAIRS


def test_of_seventy_choices_of_four_heads_sixteen_lose_nothing_one_of_each_pair():
    right = {four: right_without(ring_lab(), list(four)).mean().item() for four in itertools.combinations(range(8), 4)}
    good = {four for four, share in right.items() if share > 0.99}
    assert good == {four for four in right if all(len(pair & {*four}) == 1 for pair in PAIRS)} and len(good) == 16
    assert max(share for four, share in right.items() if four not in good) < 0.85


def test_no_head_costs_anything_alone_and_a_pair_costs_its_neighbour_and_no_other():
    model = ring_lab()
    assert all((right_without(model, [head]) == 1).all() for head in range(8))
    for message, pair in enumerate(PAIRS):
        right = right_without(model, list(pair))
        assert right[message] < 0.35 and (right[torch.arange(4) != message] > 0.99).all()


@pytest.mark.cpu
@pytest.mark.long
def test_the_weights_are_those_of_the_training():
    for kept, trained in zip(ring_lab().parameters(), train_ring_lab().parameters(), strict=True):
        torch.testing.assert_close(kept, trained, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("drop", [-0.1, 1.0])
def test_a_probability_that_leaves_no_head_is_refused(drop):
    with pytest.raises(ValueError, match="drop must be a number from 0 to below 1, got"):
        fit_neighbours(8, 4, drop=drop, steps=1)
