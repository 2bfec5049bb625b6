"""What a guess reaches where tokens are told their places in four ways."""

import pytest

from mha_course.models.induction import held_out_repeats
from research import places


def test_a_guess_is_split_by_where_the_right_key_stands_and_how_far_back():
    """Token by token, against what ``places.guesses`` keeps."""
    guesses = {"longer": [], "early": [], "late": [], "near": [], "far": []}
    rows = held_out_repeats(places.NUM_ROWS, places.LONGER)
    for t, key, letters in ((t, rows.target_keys[row, t], rows.letters[row]) for row, t in rows.predictable.nonzero()):
        for part in ("longer", "late" if key > 22 else "early", "far" if t - key > 22 else "near"):
            guesses[part].append(1 / len(set(letters[: t + 1].tolist())))
    found = places.guesses()
    assert {part: found[part] for part in guesses} == pytest.approx(
        {part: sum(shares) / len(shares) for part, shares in guesses.items()}, abs=1e-4
    )
