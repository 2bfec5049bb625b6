"""What notebook 01 says of its forty readings, counted anew: without torch, or by the layer, one reading at a time."""

import math

import notebook_tools
import pytest
import torch

from mha_lib import KernelPooling


@pytest.fixture(scope="module")
def told():
    """Everything that the story defines."""
    return notebook_tools.told("01_attention_pooling")


def tide(hour):
    return 2 * math.sin(2 * math.pi * hour / 12.4) + 0.7 * math.sin(2 * math.pi * hour / 24.8)


def gaussian(told, hour, width=1):
    heights = [math.exp(-(((hour - key) / width) ** 2) / 2) for key in told["x_train"].tolist()]
    return sum(h * value for h, value in zip(heights, told["y_train"].tolist(), strict=True)) / sum(heights)


def test_the_readings_are_the_tide_and_half_a_metre_of_noise(told):
    readings = list(zip(told["x_train"].tolist(), told["y_train"].tolist(), strict=True))
    noise = math.sqrt(sum((value - tide(key)) ** 2 for key, value in readings) / 40)
    assert len(readings) == 40 and noise == pytest.approx(0.5, abs=0.1)
    assert max((value, key) for key, value in readings if key > 12) == pytest.approx((1.64, 16.36))


def test_the_gaussian_cuts_off_the_second_high_water_and_is_far_too_low_at_the_end(told):
    assert max(tide(hour) for hour in range(13, 18)) > 1.5 and gaussian(told, 15.2) < tide(15.2) - 0.2
    assert gaussian(told, 24) < tide(24) - 1


def test_the_learned_width_is_that_which_predicts_readings_best_when_each_is_left_out(told):
    keys, values, sigma = told["x_train"], told["y_train"], told["from_others"]
    others = [torch.arange(40) != j for j in range(40)]

    def error(width):
        predictions = [
            KernelPooling(width)(keys[None, ~o, None], keys[None, o, None], values[None, o, None]) for o in others
        ]
        return (torch.cat(predictions).flatten() - values).square().mean().sqrt()

    assert sigma == pytest.approx(0.88, abs=0.005)
    assert error(sigma) < min(error(sigma + 0.02), error(sigma - 0.02))


def test_the_readings_are_met_the_better_the_narrower_the_width_and_training_goes_on_shrinking_it(told):
    errors = [told["pool"](told["x_train"], width) - told["y_train"] for width in (1, 0.3, 0.1, told["from_all"], 0.03)]
    squares = torch.stack([error.square().mean() for error in errors])
    assert squares.diff().max() < 0 and told["from_all"] < 0.06
    assert told["learn_width"](torch.tensor(False), steps=5000) < told["from_all"] - 0.01


def test_of_the_four_rules_only_the_exponential_ignores_a_constant(told):
    scores = torch.tensor([2.0, 1.0, -1.0])
    rows = {name: [rule(s) / rule(s).sum() for s in (scores, scores - 3)] for name, rule in told["rules"].items()}
    assert [name for name, (row, lowered) in rows.items() if torch.allclose(row, lowered)] == ["exp"]
    answer = rows["as they are"][0] @ torch.tensor([2.5, 0.9, -1.4])
    assert f"the answer would be {answer:.2f} m" in notebook_tools.text_of("01_attention_pooling")


def test_bank_receives_what_its_neighbour_means(told):
    for beside, expected in (("boat", [1.18, 0.68]), ("loan", [0.68, 1.18])):
        words = ["the", beside, "at", "the", "bank"]
        vectors = [told["vectors"][word] for word in words]
        heights = [
            math.exp(-sum((a - b) ** 2 for a, b in zip(vector, vectors[-1], strict=True)) / 2) for vector in vectors
        ]
        pooled = [sum(h * vector[i] for h, vector in zip(heights, vectors, strict=True)) / sum(heights) for i in (0, 1)]
        assert pooled == pytest.approx(expected, abs=0.005)
        torch.testing.assert_close(told["last_word"](" ".join(words))[1], torch.tensor(pooled))


def test_the_soft_answer_has_the_slope_that_differences_show_and_the_best_match_none(told):
    assert told["slope"] == pytest.approx((gaussian(told, 8.01) - gaussian(told, 7.99)) / 0.02, abs=1e-3)
    assert told["best"] == told["a_little_later"]


def everywhere_and_answered(told):
    """Every six minutes of the day, and those of them that have a reading within half an hour."""
    hours = [minutes / 60 for minutes in range(0, 24 * 60 + 1, 6)]
    return hours, [hour for hour in hours if min(abs(hour - key) for key in told["x_train"].tolist()) <= 0.5]


def off(told, width, hours):
    return math.sqrt(sum((gaussian(told, hour, width) - tide(hour)) ** 2 for hour in hours) / len(hours))


def test_the_learned_width_gains_millimetres(told):
    everywhere, answered = everywhere_and_answered(told)
    assert (len(everywhere), len(answered)) == (241, 209) and round(off(told, 1, answered), 2) == 0.30
    gain = off(told, 1, everywhere) - off(told, told["from_others"], everywhere)
    assert gain == pytest.approx(0.0035, abs=0.0005)
    assert "only a few millimetres better" in notebook_tools.text_of("01_attention_pooling")


def test_the_gaussian_is_closer_to_the_truth_than_one_reading_is(told):
    everywhere, _ = everywhere_and_answered(told)
    noise = (told["y_train"] - told["tide"](told["x_train"])).square().mean().sqrt()
    assert f"The Gaussian is {off(told, 1, everywhere):.2f} m" in notebook_tools.text_of("01_attention_pooling")
    assert off(told, 1, everywhere) < noise


def test_a_gaussian_with_the_boxcars_spread_is_hardly_closer_than_the_boxcar(told):
    _, answered = everywhere_and_answered(told)
    spread = math.sqrt(1 / 12)  # of numbers from -0.5 to 0.5
    by_boxcar = told["by_boxcar"][[round(10 * hour) for hour in answered]].tolist()
    boxcar = math.sqrt(sum((y - tide(h)) ** 2 for y, h in zip(by_boxcar, answered, strict=True)) / len(answered))
    said = f"spread, $\\sigma = {spread:.2f}$ h, is {off(told, spread, answered):.2f} m from the truth"
    text = notebook_tools.text_of("01_attention_pooling")
    said += f"; the boxcar is {boxcar:.2f} m, and the Gaussian with $\\sigma = 1$ h {off(told, 1, answered):.2f} m"
    assert said in text
