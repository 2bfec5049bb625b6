"""Colours of weights against their definition, and ink that can be read on them."""

import itertools

import numpy as np
import pytest

from mha_course.pictures.shared_with_js import colours, is_dark, weight_colours

# What an eye without one kind of cone sees, in linear red, green and blue. Source: Machado et al. 2009.
SEEN = {
    "all": np.eye(3),
    "no long": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no middle": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no short": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colour):
    """Linear red, green and blue of "#rrggbb". Source: IEC 61966-2-1."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]


def oklab(colour, seen=SEEN["all"]):
    """Source: Ottosson 2020, "A perceptual color space for image processing"."""
    r, g, b = np.clip(np.array(seen) @ linear(colour), 0, 1)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    middle = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return np.array([
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    ])  # fmt: skip


def as_hex(colour):
    return "#{:02x}{:02x}{:02x}".format(*colour)


@pytest.mark.parametrize("dark", [False, True])
def test_between_its_named_colours_the_scale_is_straight_in_oklab(dark):
    low, mid, high = (oklab(colours(dark)[name]) for name in ("low", "mid", "high"))
    for weight in (0.0, 0.13, 0.5, 0.71, 1.0):
        due = low + (mid - low) * weight * 2 if weight <= 0.5 else mid + (high - mid) * (weight * 2 - 1)
        got = oklab(as_hex(weight_colours(np.array(weight), dark)))
        assert got == pytest.approx(due, abs=4e-3)  # of whole numbers from 0 to 255


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("cones", SEEN)
def test_colours_of_different_meanings_stay_apart_for_the_colour_blind(cones, dark):
    """Those of a query, a key, a value and what is wrong, from each other and from plain words."""
    named = {
        name: oklab(colours(dark)[name], SEEN[cones]) for name in ("query", "key", "value", "wrong", "text", "soft")
    }
    for one, other in itertools.combinations(named, 2):
        if "soft" in (one, other) and "wrong" not in (one, other):
            continue  # beside their own words a query, a key and a value have their names
        assert 100 * np.linalg.norm(named[one] - named[other]) >= 8, (one, other)


def test_ink_is_the_one_of_more_contrast():
    """By the contrast ratio of WCAG 2: (lighter + 0.05) / (darker + 0.05)."""
    for colour in np.random.default_rng(0).integers(0, 256, (300, 3)):
        r, g, b = linear(as_hex(colour))
        luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b
        white, black = 1.05 / (luminance + 0.05), (luminance + 0.05) / 0.05
        assert is_dark(colour) == (white > black) or white == pytest.approx(black, rel=0.01)
