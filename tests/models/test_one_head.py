"""One head learns to look back: the task, the run, and what is kept of it."""

import pytest
import torch
from on_device import DEVICE

from mha_course.models import train_one_head
from mha_course.models.neighbours import NUM_TOKENS, NeighbourModel
from mha_course.models.one_head import draw_letters, target_keys


@pytest.fixture(scope="module")
def run():
    return train_one_head(seed=0)


def test_each_answer_is_the_letter_before():
    letters, answers = draw_letters(5, torch.Generator().manual_seed(3))
    for row, answer in zip(letters.tolist(), answers.tolist(), strict=True):
        assert answer == [row[0], *row[:-1]]
    assert letters.unique().numel() > 5


def test_it_reads_no_letter_but_through_its_one_head():
    """With queries of 0 the head looks everywhere alike, and every token gets the same answer: nothing passes it by."""
    torch.manual_seed(2)
    model = NeighbourModel(1, 1, num_hiddens=32).eval()
    torch.nn.init.zeros_(model.attention.W_q.weight)
    letters, _ = draw_letters(1, torch.Generator().manual_seed(4))
    output = model(letters.to(DEVICE))
    torch.testing.assert_close(output, output[:, :1].expand_as(output))


@pytest.mark.cpu
def test_the_head_learns_to_look_back(run):
    assert run.steps == [0, 20, 50, 100, 500]
    assert run.weight_on_right_key[0] < 0.15 and run.weight_on_right_key[-1] > 0.9
    assert run.weight_on_right_key == sorted(run.weight_on_right_key)
    assert run.losses[-1] < 0.1 < 2 < run.losses[0]
    assert run.accuracy[0] < 0.25 and run.accuracy[-1] > 0.99
    assert torch.equal(run.letters, train_one_head(seed=3, keep=[0]).letters)  # the same example with every seed


@pytest.mark.cpu
def test_maps_are_weights_of_the_example_and_their_right_keys_are_the_strongest_in_the_end(run):
    assert run.maps.shape == (5, NUM_TOKENS, NUM_TOKENS) and run.letters.shape == (NUM_TOKENS,)
    torch.testing.assert_close(run.maps.sum(dim=-1), torch.ones(5, NUM_TOKENS))
    assert run.maps[-1].argmax(dim=-1).tolist() == target_keys(NUM_TOKENS).tolist() == [0, *range(NUM_TOKENS - 1)]
