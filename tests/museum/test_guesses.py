"""Guesses at what is wrong in a room of the museum: asked for, kept, unveiled and counted; and repairs."""

import contextlib
import io

import pytest

from mha_lib.checking import kept_work
from mha_lib.museum import guesses
from mha_lib.museum.editable_layer import Layer


@pytest.fixture(autouse=True)
def empty_record(monkeypatch):
    monkeypatch.setattr(kept_work, "this_sitting", {})


def test_guesses_are_counted_and_shown_beside_what_is_wrong():
    assert guesses.score() == "named: 0 of 0; not guessed at yet: 16"
    for room, suspect in ((2, guesses.SUMS), (3, guesses.NAN), (6, guesses.NAN)):
        guesses.guess(room).keep(suspect)
    assert guesses.score() == "named: 2 of 3 (rooms 2, 6); not guessed at yet: 13"
    assert "weights are too flat or too sharp" in repr(guesses.unveil(3, "seen"))
    assert "<details open>" in guesses.unveil(3, "seen")._repr_html_()


def test_a_suspect_is_picked_and_takes_the_place_of_the_list():
    guess = guesses.guess(1)
    with contextlib.redirect_stdout(io.StringIO()):
        guess._ipython_display_()
    suspects, button = guess.field.children
    button.click()
    assert not guess.predicted
    suspects.value = guesses.HEARD
    button.click()
    assert guesses.guess(1).predicted == guesses.HEARD


class Halved(Layer):
    def forward(self, *inputs):
        return super().forward(*inputs) / 2


class NoTranspose(Layer):
    def split_heads(self, X):
        return X.reshape(X.shape[0], self.num_heads, X.shape[1], -1)


@pytest.mark.usefixtures("in_this_process")
def test_a_repair_is_clean_or_untouched_or_told_what_still_catches_it():
    assert guesses.mend(Halved, Layer)
    assert guesses.mend(Halved, Halved).text == "The panel sees in it what it sees in the room."
    assert guesses.mend(Halved, NoTranspose).text.startswith("Still caught by: round trip, all ones, ")
