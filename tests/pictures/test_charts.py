"""Charts of regression and of scores draw the numbers they were given, and say in words what they show."""

import itertools
import math
import re

import pytest
import torch

from mha_course import pictures


@pytest.fixture
def regression():
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(0, 6, 31)
    x_train, y_train = 6 * torch.rand(9, generator=generator), torch.randn(9, generator=generator)
    curves = {"near": torch.sin(x) + 0.25, "far": torch.sin(x) - 2}
    return x_train, y_train, x, curves, torch.sin(x)


def lines(picture):
    return {line.get_label(): torch.tensor(line.get_xydata()) for line in picture.drawing.axes[0].lines}


def assert_drawn(line, x, y):
    torch.testing.assert_close(line, torch.stack([x, y], dim=1), check_dtype=False)


def test_regression_curves_draw_points_truth_and_curves(regression):
    x_train, y_train, x, curves, truth = regression
    labels = {"x_label": "hour", "y_label": "metres", "points": "readings"}
    picture = pictures.regression_curves(*regression[:-1], truth=truth, **labels)
    drawn = lines(picture)
    assert set(drawn) == {"truth", "readings", "near", "far"}
    assert_drawn(drawn["readings"], x_train, y_train)
    assert_drawn(drawn["truth"], x, truth)
    for name, curve in curves.items():
        assert_drawn(drawn[name], x, curve)
    axes = picture.drawing.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("hour", "metres")
    assert {text.get_text(): text.xy for text in axes.texts} == {name: tuple(line[-1]) for name, line in drawn.items()}
    heights = sorted(text.xyann[1] for text in axes.texts)
    assert all(high - low > 0.06 for low, high in itertools.pairwise(heights)), "no name lies on another"
    assert picture.alt == (
        "9 readings, truth, near, far. Distance from the truth (root mean square): near 0.25; far 2.00."
    )


def test_distances_are_measured_where_every_curve_predicts(regression):
    *points, curves, truth = regression
    curves["near"][3:7] = math.nan
    curves["far"][:2] += 9
    curves["far"][5:9] += 9
    curves["near"][:2] = curves["near"][7:9] = math.nan
    picture = pictures.regression_curves(*points, curves, truth=truth)
    expected = "(root mean square, at the 23 of 31 points where all predict): near 0.25; far 2.00."
    assert expected in picture.reading


def test_a_caption_stands_for_the_reading_which_says_where_there_is_no_curve(regression):
    *points, _, truth = regression
    picture = pictures.regression_curves(*points, {}, truth=truth, caption="Look at the gap.")
    assert picture.reading == "No curve yet."
    assert "<figcaption>Look at the gap.</figcaption>" in picture._repr_html_()


def test_curves_are_told_apart_without_colour(regression):
    *points, _, truth = regression
    curves = {str(shift): truth + shift for shift in range(4)}
    picture = pictures.regression_curves(*points, curves, truth=truth)
    drawn = [line for line in picture.drawing.axes[0].lines if line.get_label() in curves]
    assert len({line.get_linestyle() for line in drawn}) == len({line.get_color() for line in drawn}) == 4


def test_the_still_of_masks_writes_every_number_of_every_way():
    scores = 3 * torch.randn(5, generator=torch.Generator().manual_seed(1))
    for length in (3, 0):
        picture = pictures.MaskExplorer(scores, valid_len=length).still()
        written = [word.replace("−", "-") for word in picture.drawing.words]
        cells = torch.tensor([float(word) for word in written if re.fullmatch(r"-?\d+\.\d+|NaN", word)])
        masked = torch.arange(5) >= length
        ways = [scores.masked_fill(masked, fill).softmax(-1) for fill in (-1e6, -torch.inf)]
        expected = torch.stack([scores, ways[1].nan_to_num() * ~masked, *ways])
        torch.testing.assert_close(cells.view(4, 5), expected, atol=0.0051, rtol=0, equal_nan=True)


def test_weights_are_written_into_their_cells_on_request():
    own = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(1)).softmax(dim=-1)
    written = pictures.heatmaps(own, numbers=True, query_labels="abc", key_labels="vwxyz").drawing.words
    assert [word for word in written if re.fullmatch(r"\.\d\d", word)] == [
        f"{weight:.2f}"[1:] for weight in own.flatten()
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_train": torch.ones(8)}, "y_train must have one value for each of x_train, which is (9,); got (8,)"),
        ({"truth": torch.ones(31, 1)}, "truth must have one value for each of x, which is (31,); got (31, 1)"),
        ({"curves": {"far": torch.ones(30)}}, "far must have one value for each of x, which is (31,); got (30,)"),
        (
            {"curves": {str(i): torch.ones(31) for i in range(5)}},
            "curves must be at most 4, got 5: ['0', '1', '2', '3', '4']",
        ),
    ],
)
def test_regression_curves_that_do_not_fit_are_named(regression, change, message):
    arguments = dict(zip(("x_train", "y_train", "x", "curves", "truth"), regression, strict=True))
    with pytest.raises(ValueError, match=re.escape(message)):
        pictures.regression_curves(**arguments | change)


def test_training_curves_draw_what_they_are_given():
    steps, curves = [0, 50, 200], {"first": [4.25, 2.0, 0.5], "second": torch.tensor([3.0, 3.5, 1.25])}
    picture = pictures.training_curves(steps, curves, y_label="loss", caption="Where does it fall?")
    drawn = lines(picture)
    for name, curve in curves.items():
        assert_drawn(drawn[name], torch.tensor(steps), torch.as_tensor(curve))
    assert picture.reading == "First and last: first 4.25 → 0.50; second 3.00 → 1.25."
    assert picture.caption == "Where does it fall?" and picture.alt.startswith("loss from training step 0 to 200: ")
    with pytest.raises(ValueError, match="second must have one value for each of steps"):
        pictures.training_curves(steps, {"second": [1.0, 2.0]}, y_label="loss")
