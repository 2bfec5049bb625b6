"""Pictures show the numbers they were given, on one scale, and say in words what they show."""

import html
import io
import itertools
import re

import numpy as np
import pytest
import torch
from PIL import Image

from mha_lib import pictures
from mha_lib.attention import shape_trace
from mha_lib.pictures.picture import HEAD_COLOURS


@pytest.fixture
def weights():
    generator = torch.Generator().manual_seed(0)
    weights = torch.softmax(3 * torch.randn(5, 6, 8, generator=generator), dim=-1)
    weights[:, :, 5:] = 0
    return weights


def panels(picture):
    return [axes for axes in picture.figure.axes if axes.images]


def shown(axes):
    return torch.as_tensor(axes.images[0].get_array().data)


def test_heatmaps_show_every_head_on_the_same_scale(weights):
    picture = pictures.heatmaps(weights)
    assert len(panels(picture)) == 5
    for head, axes in enumerate(panels(picture)):
        assert axes.get_title() == f"head {head}"
        assert axes.images[0].get_clim() == (0, 1)
        torch.testing.assert_close(shown(axes), weights[head], check_dtype=False)
    labels = [axes.get_ylabel() for axes in picture.figure.axes]
    assert labels.count("attention weight") == 1


def test_heatmaps_take_one_matrix(weights):
    torch.testing.assert_close(shown(panels(pictures.heatmaps(weights[3]))[0]), weights[3], check_dtype=False)


def test_heatmaps_label_the_outer_axes_with_the_tokens(weights):
    queries, keys = list("abcdef"), list("stuvwxyz")
    axes = panels(pictures.heatmaps(weights, query_labels=queries, key_labels=keys))
    assert [text.get_text() for text in axes[0].get_yticklabels()] == queries
    assert [text.get_text() for text in axes[3].get_xticklabels()] == keys
    assert axes[0].get_ylabel() == "queries" and axes[3].get_xlabel() == "keys"


@pytest.mark.parametrize("valid_lens", [torch.tensor(5), torch.tensor([8, 0, 3, 5, 8, 1])])
def test_masked_cells_are_hatched_and_no_others(weights, valid_lens):
    for axes in panels(pictures.heatmaps(weights, valid_lens=valid_lens)):
        hatched = torch.zeros(6, 8, dtype=torch.bool)
        for patch in axes.patches:
            assert patch.get_hatch()
            hatched[round(patch.get_y() + 0.5), round(patch.get_x() + 0.5) :] = True
        assert torch.equal(hatched, torch.arange(8) >= valid_lens.expand(6)[:, None])


def test_the_reading_names_the_strongest_link(weights):
    weights[2, 4, 1] = 0.99
    picture = pictures.heatmaps(weights, query_labels=list("abcdef"), key_labels=list("stuvwxyz"))
    assert "head 2: e → t 0.99" in picture.reading


def test_weights_over_image_draws_the_image_and_every_heads_weights(weights):
    image = torch.arange(64.0).reshape(8, 8)
    grids = weights[:, :2].reshape(5, 4, 4)
    picture = pictures.weights_over_image(image, grids, query="patch 5", query_patch=(1, 2))
    first, *heads = panels(picture)
    torch.testing.assert_close(shown(first), image / 63, check_dtype=False)
    outline = first.patches[0]
    assert (outline.get_x(), outline.get_y(), outline.get_width()) == (4, 2, 2)
    for head, axes in enumerate(heads):
        assert axes.get_title() == f"head {head}"
        torch.testing.assert_close(shown(axes), grids[head], check_dtype=False)
        assert axes.images[0].get_clim() == (0, pytest.approx(grids.max().item()))
    row, column = divmod(int(grids[3].argmax()), 4)
    assert f"head 3 ({row}, {column})" in picture.reading


@pytest.mark.parametrize("seed", range(3))
def test_the_colour_of_a_patch_is_its_weight_whatever_its_ink(weights, seed):
    image = torch.rand(8, 8, generator=torch.Generator().manual_seed(seed))
    grids = weights[:, :2].reshape(5, 4, 4) + 0.05
    with_ink, without_ink = (
        pictures.weights_over_image(pixels, grids, query="patch 5") for pixels in (image, torch.full((8, 8), 1e-6))
    )
    for panel, blank, grid in zip(panels(with_ink)[1:], panels(without_ink)[1:], grids, strict=True):
        colours = patch_colours(with_ink, panel)
        assert np.array_equal(colours, patch_colours(without_ink, blank))
        assert colours.sum(axis=-1).argmin() == grid.argmax()  # the darkest patch is the heaviest


def patch_colours(picture, panel):
    """The colour that most of a patch has in the finished picture: (4, 4, 3)."""
    pixels = np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB")).astype(int)
    height, width, _ = pixels.shape
    box = panel.get_position()
    rows = np.linspace((1 - box.y1) * height, (1 - box.y0) * height, 5).round().astype(int)
    columns = np.linspace(box.x0 * width, box.x1 * width, 5).round().astype(int)
    patches = [
        [pixels[top + 2 : bottom - 2, left + 2 : right - 2] for left, right in itertools.pairwise(columns)]
        for top, bottom in itertools.pairwise(rows)
    ]
    return np.array([[np.median(patch, axis=(0, 1)) for patch in row] for row in patches])


def test_the_ink_is_outlined_on_every_head(weights):
    image = torch.rand(8, 6, generator=torch.Generator().manual_seed(0))
    dark = {(y, x): image[y, x] > image.max() / 2 for y in range(8) for x in range(6)}
    edges = set()
    for y in range(9):
        for x in range(7):
            here, left, above = (bool(dark.get(place, False)) for place in ((y, x), (y, x - 1), (y - 1, x)))
            edges |= {((x, y), (x, y + 1))} if here != left else set()
            edges |= {((x, y), (x + 1, y))} if here != above else set()
    picture = pictures.weights_over_image(image, weights[:, :2].reshape(5, 8, 2), query="patch 5")
    for panel in panels(picture)[1:]:
        (lines,) = panel.collections
        assert {tuple(map(tuple, line.astype(int).tolist())) for line in lines.get_segments()} == edges


def test_tagged_numbers_draws_every_number_in_the_colour_of_its_head():
    trace = shape_trace.trace_transpose_qkv(shape_trace.tagged_tokens(2, 3, 2, 2), 2)
    picture = pictures.tagged_numbers(trace)
    assert len(picture.figure.axes) == 4
    for axes, step in zip(picture.figure.axes, trace.steps, strict=True):
        numbers = [text for text in axes.texts if text.get_text().isdigit()]
        assert sorted(int(text.get_text()) for text in numbers) == sorted(step.tensor.flatten().tolist())
        colours = {patch.get_xy(): patch.get_facecolor()[:3] for patch in axes.patches}
        for text in numbers:
            corner = (text.get_position()[0] - 0.5, text.get_position()[1] - 0.52)
            at = min(colours, key=lambda xy: abs(xy[0] - corner[0]) + abs(xy[1] - corner[1]))
            expected = HEAD_COLOURS[int(text.get_text()[2])]
            assert "#{:02X}{:02X}{:02X}".format(*(round(255 * part) for part in colours[at])) == expected
    assert "holds the numbers of one head" in picture.reading


def test_after_the_first_reshape_every_token_still_stands_in_a_frame_of_its_own():
    trace = shape_trace.trace_transpose_qkv(shape_trace.tagged_tokens(2, 3, 4, 2), 4)
    panel = pictures.tagged_numbers(trace).figure.axes[1]
    frames = [patch.get_extents() for patch in panel.patches if not patch.get_fill()]
    numbers = {
        int(text.get_text()): text.get_transform().transform(text.get_position())
        for text in panel.texts
        if text.get_text().isdigit()
    }
    inside = [sorted(tag for tag, place in numbers.items() if frame.contains(*place)) for frame in frames]
    assert sorted(inside) == trace.steps[0].tensor.flatten(0, 1).tolist()


@pytest.mark.parametrize("sizes", [(2, 3, 2, 2), (1, 2, 4, 1), (3, 2, 1, 5)])
def test_the_number_in_the_legend_is_in_the_picture(sizes):
    trace = shape_trace.trace_transpose_qkv(shape_trace.tagged_tokens(*sizes), sizes[2])
    figure = pictures.tagged_numbers(trace).figure
    (legend,) = [text.get_text() for text in figure.legends[0].get_texts() if "=" in text.get_text()]
    tag, address = legend.split(" = ")
    assert all(tag in [text.get_text() for text in panel.texts] for panel in figure.axes)
    assert re.findall(r"\d", address) == list(tag)


def test_tagged_numbers_counts_the_mixed_tables():
    trace = shape_trace.trace_wrong_reshape(shape_trace.tagged_tokens(2, 3, 2, 2), 2)
    assert pictures.tagged_numbers(trace).reading == "4 of 4 tables mix numbers of different heads."


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
        (lambda w: pictures.heatmaps(w, key_labels=["a"]), r"key_labels must name 8, got 1: \['a'\]"),
        (lambda w: pictures.heatmaps(w, query_labels=["a"]), "query_labels must name 6, got 1"),
        (lambda w: pictures.heatmaps(w, titles=["a"]), "titles must name 5, got 1"),
        (lambda w: pictures.tagged_numbers(shape_trace.ShapeTrace()), "trace must have at least one step"),
        (
            lambda w: pictures.weights_over_image(torch.ones(8, 9), w[:, :2].reshape(5, 4, 4), query="x"),
            "image must divide into 4 × 4 patches, got 8 × 9 pixels",
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
    assert picture.reading in picture.alt and "Strongest link" in page.partition("<figcaption>")[0]
