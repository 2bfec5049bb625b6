"""The recurrent encoder–decoder: what reaches its decoder, and the two models that ship."""

import json

import pytest
import torch
from on_device import DEVICE

from mha_course.models import RecurrentEncoderDecoder, fit_recurrent, right_words, shipped_recurrent
from mha_course.models.recurrent import draw_words, weights_name
from mha_course.models.shipped import package_data

both = pytest.mark.parametrize("attends", [False, True], ids=["last state", "attention"])


@pytest.fixture
def words():
    return [part.to(DEVICE) for part in draw_words(5, 7, torch.Generator().manual_seed(3))]


def test_answers_are_the_words_backwards(words):
    letters, answers = words
    assert [row[::-1] for row in letters.tolist()] == answers.tolist()
    assert letters.unique().numel() > 10


@pytest.mark.real_device
@both
def test_all_states_but_the_last_reach_the_decoder_through_attention_alone(attends, words):
    torch.manual_seed(1)
    model, (letters, answers) = RecurrentEncoderDecoder(attends), words
    before, _ = model(letters, answers)
    model.encoder.register_forward_hook(lambda _, __, given: (torch.zeros_like(given[0]), given[1]))
    after, _ = model(letters, answers)
    assert torch.equal(before, after) != attends


@pytest.mark.real_device
@both
def test_no_letter_is_written_with_a_look_at_later_answers(attends, words):
    torch.manual_seed(2)
    model, (letters, answers) = RecurrentEncoderDecoder(attends), words
    before, weights = model(letters, answers)
    changed = answers.clone()
    changed[:, 4] = (changed[:, 4] + 1) % 26
    after, _ = model(letters, changed)
    assert torch.equal(before[:, :5], after[:, :5]) and not torch.equal(before[:, 5:], after[:, 5:])
    if attends:
        torch.testing.assert_close(weights.sum(dim=2), torch.ones(5, 7))


@pytest.mark.cpu
@both
def test_a_shipped_model_is_as_good_as_its_figures_say(attends):
    model = shipped_recurrent(attends)
    figures = json.loads(package_data("models/weights/figures.json", "make weights"))[weights_name(attends)]
    assert figures["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    for length, right in figures["right_words"].items():
        assert right_words(model, int(length)) == pytest.approx(right, abs=0.01)


@pytest.mark.cpu
def test_each_written_letter_comes_from_where_it_was_read(words):
    model = shipped_recurrent(attends=True)
    written, weights = model.write("stressed")
    assert written == "desserts" and weights.argmax(dim=1).tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    logits, _ = model(words[0])
    torch.testing.assert_close(logits, model(*words)[0])  # all right: its own letters are the given ones


@pytest.mark.cpu
@both
def test_a_short_training_is_enough_for_words_of_one_letter(attends):
    assert right_words(fit_recurrent(attends, seed=1, steps=1), length=1) < 0.3
    assert right_words(fit_recurrent(attends, seed=1, steps=150), length=1) > 0.9


@pytest.mark.parametrize("word", ["", "Tide", "two words"])
def test_a_word_of_other_characters_is_refused(word):
    with pytest.raises(ValueError, match=f"word must consist of the letters a to z, got {word!r}"):
        RecurrentEncoderDecoder(attends=True).write(word)
