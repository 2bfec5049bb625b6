"""Guesses at what is wrong in a room of the museum: asked for, kept, unveiled and counted; and repairs."""

import contextlib
import io

import pytest

from mha_course import kept_work
from mha_course.museum import bugs
from mha_course.museum.editable_layer import Layer


@pytest.fixture(autouse=True)
def empty_record(monkeypatch):
    monkeypatch.setattr(kept_work, "this_sitting", {})


def test_guesses_are_counted_and_shown_beside_what_is_wrong():
    assert bugs.score() == "named: 0 of 0; rooms without a guess: 17"
    for room, suspect in ((2, bugs.SUMS), (3, bugs.NAN), (6, bugs.NAN)):
        bugs.guess(room).keep(suspect)
    assert bugs.score() == "named: 2 of 3 (rooms 2, 6); rooms without a guess: 14"
    assert "weights are too flat or too sharp" in repr(bugs.reveal(3, "seen"))
    assert "<details open>" in bugs.reveal(3, "seen")._repr_html_()


def test_a_suspect_is_picked_and_takes_the_place_of_the_list():
    guess = bugs.guess(1)
    with contextlib.redirect_stdout(io.StringIO()):
        guess._ipython_display_()
    suspects, button = guess.field.children
    button.click()
    assert not guess.predicted
    suspects.value = bugs.LEAK
    button.click()
    assert bugs.guess(1).predicted == bugs.LEAK


class Halved(Layer):
    def forward(self, *inputs):
        return super().forward(*inputs) / 2


class NoTranspose(Layer):
    def split_heads(self, X):
        return X.reshape(X.shape[0], self.num_heads, X.shape[1], -1)


@pytest.mark.usefixtures("in_this_process")
def test_a_repair_is_clean_or_untouched_or_told_what_still_catches_it():
    assert bugs.check_fix(Halved, Layer)
    assert bugs.check_fix(Halved, Halved).text == bugs.SAME
    assert bugs.check_fix(Halved, NoTranspose).text.startswith("Still caught by: round trip, all ones, ")
