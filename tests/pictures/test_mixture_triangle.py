"""The triangle of mixtures draws the averages it speaks of, and says rightly whether their segments meet."""

import numpy as np
import pytest

from mha_course import pictures

NAMES = ["cats", "mice", "dogs"]


def segments(panel):
    return {line.get_label(): np.asarray(line.get_xydata()) for line in panel.lines}


def meet(one, other):
    """Whether two segments have a point in common: a least distance of 0 between points of a fine grid on both."""
    steps = np.linspace(0, 1, 301)[:, None]
    first, second = (ends[0] + steps * (ends[1] - ends[0]) for ends in (one, other))
    return np.linalg.norm(first[:, None] - second, axis=-1).min() < 4e-3


@pytest.mark.parametrize("share", [0.35, 0.5, 0.7])
def test_six_averages_are_joined_by_role_and_the_reading_is_what_is_seen(share):
    picture = pictures.mixture_triangle(NAMES, share)
    corners = dict(zip(NAMES, np.array([[0, 0], [1, 0], [0.5, 0.75**0.5]]), strict=True))
    for panel, role in zip(picture.drawing.axes, ("before", "after"), strict=True):
        drawn = segments(panel)
        for name, ends in ((label.removeprefix(f"{role}: "), ends) for label, ends in drawn.items()):
            weight = share if role == "before" else 1 - share
            expected = [weight * corners[name] + (1 - weight) * corners[other] for other in NAMES if other != name]
            np.testing.assert_allclose(ends, expected)
        one, other, third = drawn.values()
        met = {meet(one, other), meet(one, third), meet(other, third)}
        said = {f"{role}, segments stay apart": {False}, f"{role}, segments meet": {True}}
        assert [pairs for words, pairs in said.items() if words in picture.reading] == [met]
    for panel in picture.drawing.axes:
        at = {text.get_text(): np.array(text.get_position()) for text in panel.texts}
        assert all(np.linalg.norm(at[name] - corner) < 0.15 for name, corner in corners.items())


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="names must be three, got 2"):
        pictures.mixture_triangle(NAMES[:2], 0.6)
    with pytest.raises(ValueError, match=r"share must lie between 0 and 1, got 1\.5"):
        pictures.mixture_triangle(NAMES, 1.5)
