"""Pictures show the numbers they were given, on one scale, and say in words what they show."""

import functools
import html
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from mha_course import pictures
from mha_course.models import shape_trace, shipped_model
from mha_course.pictures.head_explorer import ink_outline
from mha_course.pictures.picture import PAD, PAGE, SCALE
from mha_course.pictures.shared_with_js import colours, head_colour, rgb, weight_colours
from mha_course.pictures.transpose_stepper import draw_tables


@pytest.fixture
def weights():
    generator = torch.Generator().manual_seed(0)
    weights = torch.softmax(3 * torch.randn(5, 6, 8, generator=generator), dim=-1)
    weights[:, :, 5:] = 0
    return weights


def maps(picture):
    """The weights of every map in order, and how large a cell is."""
    return [torch.as_tensor(weights) for _, weights in picture.drawing.maps.values()]


@functools.lru_cache(maxsize=1)
def pixels_of(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def colour_at(picture, x, y):
    """The colour that most of a little square around a place of the page has: red, green, blue."""
    pixels = pixels_of(picture.png)
    column, row = (round(SCALE * (place + PAD)) for place in (x, y))
    return np.median(pixels[row - 2 : row + 3, column - 2 : column + 3], axis=(0, 1))


def cells(picture):
    """Every cell of every map: which map, row and column, its weight, and the colour that it has in the picture."""
    for number, ((x, y), (cell, weights)) in enumerate(picture.drawing.maps.items()):
        for (row, column), weight in np.ndenumerate(weights):
            place = x + (column + 0.25) * cell, y + (row + 0.75) * cell
            yield number, row, column, weight, colour_at(picture, *place)


def is_shade(colour, weight):
    return np.abs(colour - weight_colours(weight).astype(int)).max() <= 20  # a picture has few colours


def test_heatmaps_show_every_head_on_the_one_scale_of_weights(weights):
    picture = pictures.heatmaps(weights)
    for head, shown in enumerate(maps(picture)):
        torch.testing.assert_close(shown, weights[head])
    assert [f"head {head}" in picture.drawing.words for head in range(6)] == [True] * 5 + [False]
    assert picture.drawing.words.count("attention weight") == 1
    assert all(is_shade(colour, weight) for *_, weight, colour in cells(picture))


def test_heatmaps_name_what_else_they_show(weights):
    picture = pictures.heatmaps((weights > 0.5).float(), scale="mask")
    assert picture.drawing.words.count("mask") == 1 and "attention weight" not in picture.drawing.words
    assert repr(picture).startswith("Heat maps of masks, 5 ×")


def test_heatmaps_take_one_matrix(weights):
    (shown,) = maps(pictures.heatmaps(weights[3]))
    torch.testing.assert_close(shown, weights[3])


def test_heatmaps_name_the_tokens_beside_the_outer_maps(weights):
    queries, keys = list("abcdef"), list("stuvwxyz")
    words = pictures.heatmaps(weights, query_labels=queries, key_labels=keys).drawing.words
    counts = {name: words.count(name) for name in [*queries, *keys]}
    assert counts == dict.fromkeys(queries, 2) | dict.fromkeys(keys, 3)  # 5 maps in 2 rows and 3 columns


@pytest.mark.parametrize("valid_lens", [torch.tensor(5), torch.tensor([8, 0, 3, 5, 8, 1])])
def test_masked_cells_are_hatched_and_no_others(weights, valid_lens):
    lengths = valid_lens.expand(6)
    for _, query, key, weight, colour in cells(pictures.heatmaps(weights + 0.5, valid_lens=valid_lens)):
        assert is_shade(colour, weight) == (key < lengths[query])


def test_the_reading_names_the_strongest_link(weights):
    weights[2, 4, 1] = 0.99
    picture = pictures.heatmaps(weights, query_labels=list("abcdef"), key_labels=list("stuvwxyz"))
    assert "head 2: query “e” puts most weight, 0.99, on key “t”" in picture.reading


def of_digits(image, query):
    """A still picture of a drawn image, and what it should show of each head, as shares of the scale's end."""
    explorer = pictures.HeadExplorer(shipped_model("digits"), query=query, drawn=image.flatten().tolist())
    return explorer.still(), torch.cat([heads[:, query, 1:].reshape(-1, 4, 4) for heads in explorer.answer()[1]]) / 0.4


def test_an_image_carries_every_heads_weights_and_the_query():
    picture, grids = of_digits(torch.linspace(0, 1, 64), query=7)
    for shown, grid in zip(maps(picture), grids, strict=True):
        torch.testing.assert_close(shown, grid)
    assert {"from patch r1c2", "0.40"} <= set(picture.drawing.words)
    for (x, y), (cell, _) in picture.drawing.maps.items():
        edge = colour_at(picture, x + 2 * cell + 1.5, y + 1.5 * cell)
        assert np.abs(edge - rgb(colours()["query"])).max() <= 25


@pytest.mark.parametrize("seed", range(3))
def test_the_colour_of_a_patch_is_its_weight_whatever_its_ink(seed):
    picture, _ = of_digits(torch.rand(64, generator=torch.Generator().manual_seed(seed)), query=0)
    assert all(is_shade(colour, weight) for *_, weight, colour in cells(picture))


def test_the_outline_runs_around_the_dark_pixels():
    image = torch.rand(8, 6, generator=torch.Generator().manual_seed(0))
    dark = {(y, x): image[y, x] > 0.5 for y in range(8) for x in range(6)}
    edges = set()
    for y in range(9):
        for x in range(7):
            here, left, above = (bool(dark.get(place, False)) for place in ((y, x), (y, x - 1), (y - 1, x)))
            edges |= {((x, y), (x, y + 1))} if here != left else set()
            edges |= {((x, y), (x + 1, y))} if here != above else set()
    assert set(ink_outline(image)) == edges


@pytest.mark.parametrize(
    "make",
    [
        lambda w: pictures.heatmaps(w),
    ],
)
def test_images_are_twice_as_fine_and_of_few_colours(weights, make):
    picture = make(weights.clamp(min=0.01))
    image = Image.open(io.BytesIO(picture.png))
    assert image.width == 2 * picture.width and image.mode == "P" and len(image.getcolors()) <= 64


@pytest.mark.parametrize("sizes", [(2, 3, 2, 2), (1, 2, 4, 1), (3, 2, 1, 5)])
def test_tables_of_tags_write_every_number_the_shape_and_one_address(sizes):
    tags = shape_trace.tagged_tokens(*sizes)
    for step in shape_trace.trace_heads(tags, sizes[2], (0, 3, 2, 1)):
        words = draw_tables(step).words
        assert [word for word in words if word.isdigit()] == [f"{tag:04d}" for tag in step.tensor.flatten().tolist()]
        assert sum(str(tuple(step.tensor.shape)) in word for word in words) == 1
        (legend,) = [word for word in words if " = " in word]
        tag, address = legend.split(" = ")
        assert words.count(tag) == 1 and re.findall(r"\d", address) == list(tag)


def test_a_strip_has_the_colours_of_heads_in_the_order_of_reading():
    stepper = pictures.TransposeStepper(batch_size=1, num_tokens=3, num_heads=2, head_size=1, step=2)
    picture = stepper.still()
    strips = [box for box in picture.drawing.shapes if box[0] >= 46 and 12 <= box[3] - box[1] <= 13.1][-12:]
    for tag, (left, top, right, bottom) in zip(
        [0, 10, 100, 110, 200, 210, 0, 100, 200, 10, 110, 210], strips, strict=True
    ):
        _, token, head, _ = shape_trace.read_tag(tag)
        colour = rgb(head_colour(head)) * (1 - 0.09 * token)
        assert np.abs(colour_at(picture, (left + right) / 2, (top + bottom) / 2) - colour).max() <= 9


def test_a_table_of_tags_has_the_colours_of_its_heads():
    canvas = draw_tables(shape_trace.trace_heads(shape_trace.tagged_tokens(2, 3, 2, 2), 2)[0])
    pixels = canvas.image.convert("RGB").getcolors(10**7)
    for head in range(2):
        assert any(np.abs(np.array(colour) - rgb(head_colour(head))).max() <= 8 for _, colour in pixels)


def test_a_picture_carries_its_text_wherever_it_goes(weights):
    picture = pictures.heatmaps(weights, titles=['"quoted" <b>', "b", "c", "d", "e"])
    shown_html = picture._repr_html_()
    (alt,) = re.findall(r'alt="([^"]*)"', shown_html)
    assert html.unescape(alt) == picture.alt == repr(picture)
    assert picture.reading in html.unescape(shown_html.split("<figcaption>")[1])
    assert "data:image/png;base64," in shown_html


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: pictures.heatmaps(w.unsqueeze(0)), r"weights must be those of one example.*\(1, 5, 6, 8\)"),
        (lambda w: pictures.heatmaps(w, key_labels=["a"]), r"key_labels must have 8 entries, got 1: \['a'\]"),
        (lambda w: pictures.heatmaps(w, query_labels=["a"]), "query_labels must have 6 entries, got 1"),
        (lambda w: pictures.heatmaps(w, titles=["a"]), "titles must have 5 entries, got 1"),
        (lambda w: pictures.heatmaps(w[:0]), r"weights must hold at least one head, got \(0, 6, 8\)"),
        (lambda w: pictures.heatmaps(w, columns=0), "columns must be at least 1, got 0"),
        (
            lambda w: pictures.heatmaps(w, valid_lens=torch.tensor([3, 4])),
            r"valid_lens must be those of one example, a scalar or \(6,\), got \(2,\)",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(weights, call, message):
    with pytest.raises(ValueError, match=message):
        call(weights)


def test_a_caption_says_what_to_notice_and_the_alt_text_keeps_the_data(weights):
    picture = pictures.heatmaps(weights, caption="One head < the others.")
    page = picture._repr_html_()
    assert "<figcaption>One head &lt; the others.</figcaption>" in page
    assert picture.reading in picture.alt and "puts most weight" in page.partition("<figcaption>")[0]


def test_half_precision_is_drawn_as_its_numbers(weights):
    for shown, own in zip(maps(pictures.heatmaps(weights.bfloat16())), weights.bfloat16(), strict=True):
        torch.testing.assert_close(shown, own.float())


def test_a_weight_that_is_no_number_is_a_cross_and_said(weights):
    weights[1, 2, 3:5] = torch.nan
    picture = pictures.heatmaps(weights)
    assert "(2 of 48 weights are NaN)" in picture.reading and picture.reading.count("NaN") == 1
    for number, row, column, weight, colour in cells(picture):
        is_hole = (number, row, column) in {(1, 2, 3), (1, 2, 4)}
        assert is_hole == np.isnan(weight) == (colour > 250).all()  # white, where a weight of 0 has a shade


def test_a_title_stands_above_the_image_and_first_in_its_text(weights):
    picture = pictures.heatmaps(weights[0])
    alt, before = picture.alt, np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB"))
    assert picture.titled("All heads attend to the first key, " * 5) is picture
    after = np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB"))
    assert picture.alt == f"{picture.title}. {alt}"
    (added, *_), apart = np.subtract(after.shape, before.shape), after[-len(before) :].astype(int) - before
    assert added > 3 * SCALE * PAD and np.abs(apart).max() < 30, "several lines, and the image below them as it was"
    assert after[:added].min() < 80 and (after[:added, : SCALE * PAD] == 255).all()


@pytest.mark.parametrize("shape", [(6, 12, 12), (6, 4, 30), (6, 30, 4)])
def test_maps_fit_a_page_so_that_their_letters_stay_as_large_as_they_are(shape):
    assert pictures.heatmaps(torch.rand(*shape), columns=5, query_labels=["a long name"] * shape[1]).width <= PAGE


def test_names_that_occur_twice_are_told_apart_by_their_positions():
    picture = pictures.heatmaps(torch.eye(3)[[1, 2, 0]], query_labels=["e", "s", "e"], key_labels=["t", "e", "e"])
    assert "head 0: query “e” (position 0) puts most weight, 1.00, on key “e” (position 1)" in picture.alt


def test_of_weights_that_are_printed_alike_the_first_is_named():
    """They differ in the last bit, where processors differ; the larger one is named only where the number shows it."""
    tied = torch.tensor([[0.05, 0.475 - 1e-7, 0.475], [0.2, 0.475, 0.325]])
    names = {"query_labels": ["a", "b"], "key_labels": ["c", "d", "e"], "titles": [""]}
    assert "Query “a” puts most weight, 0.48, on key “d”" in pictures.heatmaps(tied, **names).alt
    tied[1, 1] += 0.01
    assert "Query “b” puts most weight, 0.49, on key “d”" in pictures.heatmaps(tied, **names).alt
