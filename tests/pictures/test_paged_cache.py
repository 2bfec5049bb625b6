"""The places of tokens in a memory of blocks, on random schedules, and what the picture of them counts."""

import itertools
import random
import re

import pytest
from turns import LONG

from mha_course import pictures
from mha_course.pictures.paged_cache_stepper import LONGEST, PLACES, ROWS, VISITS, token_places

SIZES = (1, 2, 3, 4, 8)


def random_visits(draw):
    """Texts that take rows one after the other, with pauses, in a random order: row, first step, length."""
    visits = []
    for row in range(draw.randint(1, 4)):
        now = draw.randint(0, 3)
        for _ in range(draw.randint(1, 4)):
            length = draw.randint(1, 9)
            visits.append((row, now, length))
            now += length + draw.randint(0, 2)
    return draw.sample(visits, len(visits))


def needed(visits, size):
    """Places of the most blocks that are taken at once."""
    ends = range(max(first + length for _, first, length in visits))
    taken = [sum(-(-(now - first + 1) // size) for _, first, n in visits if first <= now < first + n) for now in ends]
    return size * max(taken)


@pytest.mark.parametrize("size", SIZES)
def test_on_any_schedule_no_block_has_two_texts_and_its_tokens_come_in_order(size):
    for seed in range(100):
        visits = random_visits(random.Random(seed))
        places = token_places(visits, size, needed(visits, size))  # and never more blocks than are needed
        assert [len(own) for own in places] == [length for _, _, length in visits]
        for own in places:
            table = [place // size for place in own[::size]]
            assert own == [size * table[t // size] + t % size for t in range(len(own))], "read through its table"
        for now in range(max(first + length for _, first, length in visits)):
            blocks = [
                {place // size for place in own[: now - first + 1]}
                for own, (_, first, length) in zip(places, visits, strict=True)
                if first <= now < first + length
            ]
            assert sum(map(len, blocks)) == len(set().union(*blocks)), (seed, now)


def test_the_schedule_has_one_text_a_row_at_a_time_and_fits_the_rectangle():
    steps = {(row, now) for row, first, length in VISITS for now in range(first, first + length)}
    assert len(steps) == sum(length for _, _, length in VISITS)
    assert max(length for _, _, length in VISITS) <= LONGEST and {row for row, _, _ in VISITS} == set(range(ROWS))


def test_the_picture_counts_what_is_reserved_and_holds_no_token():
    """Unused places by counting the places that no text of this step has written, for each step and size."""
    picture = pictures.PagedCacheStepper()
    for size in (1, 2, 4, 8):
        for step in range(0, 18, 1 if LONG else 5):
            picture.block_size, picture.step = size, step
            written = {
                (row, now - first)
                for row, first, length in VISITS
                for now in range(first, min(step + 1, first + length))
                if step < first + length
            }
            rectangle = sum((row, place) not in written for row in range(ROWS) for place in range(LONGEST))
            own = [sum(row == each for row, _ in written) for each in range(ROWS)]
            blocks = sum(-tokens % size for tokens in own)
            numbers = [int(number) for number in re.findall(r"\d+", picture.still().caption)]
            assert numbers == [size, blocks, rectangle]
            assert size * sum(map(len, picture.tables().values())) == blocks + sum(own) <= PLACES


@pytest.mark.parametrize("step", [0, 9, 17])
def test_what_a_text_has_left_is_hatched_and_nothing_else(step):
    """By two lines in each place, of the rectangle and of the memory, beside the boxes of places and blocks."""
    picture = pictures.PagedCacheStepper(block_size=4, step=step)
    gone = [i for i, (_, first, length) in enumerate(VISITS) if first + length <= step]
    hatched = sum(held is not None and held[0] in gone for held in itertools.chain(*picture.contents()))
    assert len(picture.still().drawing.shapes) == 2 * PLACES + PLACES // 4 + 2 * hatched
    assert (hatched > 0) == (step > 0)
