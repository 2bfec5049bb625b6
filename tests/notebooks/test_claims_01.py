"""What notebook 01 says of its forty readings, counted anew: without torch, or by the layer, one reading at a time."""

import math

import notebook_tools
import pytest
import torch

from mha_lib import KernelPooling


@pytest.fixture(scope="module")
def told():
    """Everything that the story defines, its optional end too."""
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


def test_the_masked_error_is_that_of_the_layer_with_one_reading_left_out_and_least_at_the_learned_width(told):
    keys, values, sigma = told["x_train"], told["y_train"], 1 / told["w_from_others"]
    others = [torch.arange(40) != j for j in range(40)]

    def error(width):
        predictions = [
            KernelPooling(width)(keys[None, ~o, None], keys[None, o, None], values[None, o, None]) for o in others
        ]
        return (torch.cat(predictions).flatten() - values).square().mean().sqrt()

    torch.testing.assert_close(told["training_error"](1 / sigma, told["itself"])[0], error(sigma))
    some = [error(width) for width in told["sigmas"][::9].tolist()]
    torch.testing.assert_close(told["left_out"][::9], torch.stack(some))
    assert sigma == pytest.approx(0.88, abs=0.005) and error(sigma) <= told["left_out"].min() + 1e-6


def test_the_learned_width_gains_millimetres_on_all_points_and_loses_them_where_the_boxcar_answers(told):
    everywhere = [minutes / 60 for minutes in range(0, 24 * 60 + 1, 6)]
    answered = [hour for hour in everywhere if min(abs(hour - key) for key in told["x_train"].tolist()) <= 0.5]

    def off(width, hours):
        return math.sqrt(sum((gaussian(told, hour, width) - tide(hour)) ** 2 for hour in hours) / len(hours))

    assert (len(everywhere), len(answered)) == (241, 209) and round(off(1, answered), 2) == 0.30
    gains = [off(1, hours) - off(1 / told["w_from_others"], hours) for hours in (everywhere, answered)]
    assert gains == pytest.approx([0.0035, -0.0028], abs=0.0005)
    text = notebook_tools.text_of("01_attention_pooling")
    assert "only a few millimetres better" in text and "our guess is even a few millimetres ahead" in text


def test_the_error_on_the_readings_only_falls_to_the_left_and_the_others_turn_round(told):
    assert told["on_readings"].diff().min() > 0 and 1 / told["w"] < 0.06
    assert (told["left_out"] > told["from_truth"]).all()
    for errors in (told["left_out"], told["from_truth"]):
        assert told["sigmas"][int(errors.argmin())].item() == pytest.approx(0.89, abs=0.01)
