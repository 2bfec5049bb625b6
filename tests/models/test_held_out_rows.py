"""Held-out rows come from a stream of random numbers that no training run reads, whatever its small seed."""

from datetime import date

import pytest
import torch
from torch.nn import functional as F

from mha_course.models import find_task, right_words, train_one_head
from mha_course.models.induction import held_out_repeats, sample_induction_batch
from mha_course.models.neighbours import draw_rows, held_out_rows
from mha_course.models.one_head import draw_letters
from mha_course.models.recurrent import draw_words

LOOKUPS, DATES = find_task("lookups"), find_task("dates")


def first_values(batch):
    return batch.inputs[0, :, 0]  # of look-ups: the first that is drawn


def first_tenth_day(batch):
    """The first that is drawn of a batch of dates is the number of ten days; training adds one to nine days."""
    day = date.fromisoformat("".join(DATES.target_characters[i] for i in batch.targets[0]))
    return torch.tensor((day - date(1969, 1, 1)).days // 10)


def judged_words(length):
    """The words that ``right_words`` gives to a model."""
    given = []

    def model(letters):
        given.append(letters)
        return F.one_hot(letters, 26), None

    right_words(model, length)
    return given[0]


ROWS = {  # held-out rows, and the same of a generator
    "lookups": (lambda: first_values(LOOKUPS.held_out), lambda rng: first_values(next(LOOKUPS.batches(rng)))),
    "dates": (lambda: first_tenth_day(DATES.held_out), lambda rng: first_tenth_day(next(DATES.batches(rng)))),
    "one head": (lambda: train_one_head(keep=[0]).letters, lambda rng: draw_letters(1, rng)[0][0]),
    "neighbours": (lambda: held_out_rows(4)[0], lambda rng: draw_rows(256, 4, rng)[0]),
    "induction": (lambda: held_out_repeats().letters, lambda rng: sample_induction_batch(128, rng).letters),
} | {
    f"words of {n}": (lambda n=n: judged_words(n), lambda rng, n=n: draw_words(256, n, rng)[0]) for n in (4, 8, 12, 16)
}  # fmt: skip


@pytest.mark.parametrize(("held_out", "drawn"), ROWS.values(), ids=ROWS)
def test_no_training_seed_gives_the_held_out_rows(held_out, drawn):
    """``digits`` holds out images, not draws: test_tasks."""
    rows = held_out()
    same = [seed for seed in range(32) if torch.equal(drawn(torch.Generator().manual_seed(seed)), rows)]
    assert rows.shape == drawn(torch.Generator()).shape and not same
