"""Every widget, driven through its settings: it never breaks, never grows, and depends on its controls alone."""

import base64
import gc
import html
import io
import random

import numpy as np
import pytest
import torch
from ipywidgets import HTML
from ipywidgets.widgets.widget import _instances
from matplotlib.figure import Figure
from PIL import Image
from widget_tools import GALLERY, LAYERS, buttons, digits_model, random_move, record, settings, some_digits

from mha_lib import widgets
from mha_lib.models.tasks import TASKS
from mha_lib.widgets.masks import PER_QUERY
from mha_lib.widgets.sheet import Sheet

# What has to be chosen first, for a control to have an effect; all else shows at the first state.
FIRST = {
    ("masks", "length"): {},
    **{("masks", f"length_{query}"): {"kind": PER_QUERY} for query in range(4)},
    ("layer", "length_1"): {"example": 1},
}


@pytest.fixture(params=GALLERY)
def name(request):
    return request.param


@pytest.fixture
def make(name):
    """Makes explorers of one kind; all widgets are gone afterwards."""
    before = set(_instances)
    yield GALLERY[name]
    close(before)


def close(before):
    """Close all widgets but those of ``before``."""
    for key in set(_instances) - before:
        if key in _instances:
            _instances[key].close()


def test_every_setting_of_every_control(name, make, monkeypatch):
    """The picture changes whenever a control does."""
    record(monkeypatch)
    explorer = make()
    for key, control in explorer.controls.items():
        start = explorer.values
        explorer.set(**FIRST.get((name, key), {}))
        assert not control.disabled, f"{key} cannot be moved"
        pictures = {}
        for value in settings(control):
            control.value = value
            pictures[explorer.sheet.pixels.tobytes()] = value
            assert explorer.reading
        assert len(pictures) == len(settings(control)), f"{key} leaves the picture as it was"
        explorer.set(**start)


def test_random_walk(make, monkeypatch):
    """After 300 moves all is as in a fresh widget with the same values, and nothing is left behind."""
    record(monkeypatch)
    chooser = random.Random(0)
    figures_before = count_figures()
    explorer = make()
    widgets_before = len(_instances)
    for move in range(1, 301):
        random_move(explorer, chooser)
        assert explorer.reading in html.unescape(explorer.children[2].value)
        if move % 30 == 0:
            before = set(_instances)
            fresh = make()
            fresh.set(**explorer.values)
            assert fresh.values == explorer.values
            assert fresh.reading == explorer.reading
            assert np.array_equal(fresh.sheet.pixels, explorer.sheet.pixels)
            close(before)
            del fresh
    assert len(_instances) == widgets_before
    assert count_figures() - figures_before <= 1


def count_figures():
    """Matplotlib's figures that are alive."""
    gc.collect()
    return sum(type(thing) is Figure for thing in gc.get_objects())


def test_picture_and_reading_reach_the_page(make):
    explorer = make()
    picture, status = explorer.children[1:]
    assert isinstance(picture, HTML) and isinstance(status, HTML)
    assert 'role="status"' in status.value
    assert np.array_equal(pixels_in(picture.value), explorer.sheet.pixels)


def pixels_in(image):
    """The pixels of an ``<img>``, as Pillow reads them."""
    data = image.split('src="data:image/png;base64,')[1].split('"')[0]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_static_picture(make):
    """Without a kernel there is a picture with alt text, and one line of text."""
    explorer = make()
    bundle = explorer._repr_mimebundle_()
    assert bundle["text/plain"] == explorer.alt and "\n" not in explorer.alt
    assert np.array_equal(pixels_in(bundle["text/html"]), explorer.sheet.pixels)
    assert '<img alt="' + explorer.name in bundle["text/html"]
    assert "onload" not in bundle["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_every_control_has_a_name(make):
    explorer = make()
    controls = [*explorer.controls.values(), *buttons(explorer)]
    names = [control.description for control in controls]
    assert all(names) and len(set(names)) == len(names)
    assert all(control.tooltip for control in controls)


def test_the_box_never_shrinks():
    explorer = widgets.transpose_stepper()
    heights = []
    for tokens in (6, 1, 4):
        explorer.controls["num_tokens"].value = tokens
        heights.append(int(explorer.children[1].layout.min_height.removesuffix("px")))
    assert heights[0] == heights[1] == heights[2] >= explorer.sheet.pixels.shape[0]


def test_one_move_is_one_picture(make):
    explorer = make()
    pictures = pictures_of(explorer)
    for control in explorer.controls.values():
        if not control.disabled:
            del pictures[:]
            control.value = next(value for value in settings(control) if value != control.value)
            assert len(pictures) == 1


def test_setting_several_controls_is_one_picture():
    explorer = widgets.head_explorer(LAYERS)
    pictures = pictures_of(explorer)
    explorer.set(layer="cross", head=4, compare="head 4")
    assert len(pictures) == 1


def pictures_of(explorer):
    """A list to which every new picture is added."""
    pictures = []
    explorer.children[1].observe(lambda change: pictures.append(change.new), "value")
    return pictures


def test_set_refuses_unknown_controls():
    with pytest.raises(ValueError, match=r"controls are example, .*; got layers"):
        widgets.mask_explorer().set(layers=1)


class TestImpossibleSettings:
    def test_heads_divide_the_layer(self):
        options = widgets.layer_explorer(100).controls["num_heads"].options
        assert list(options) == [1, 2, 4, 5, 10, 20, 25]

    def test_heads_that_are_not_there(self):
        explorer = widgets.head_explorer(LAYERS)
        controls = explorer.controls
        explorer.set(layer="cross", head=4, compare="head 4")
        controls["layer"].value = "encoder"
        assert controls["head"].max == controls["head"].value == 2
        assert controls["compare"].value == "average of all heads"
        assert controls["compare"].options == ("average of all heads", "head 0", "head 1", "head 2")

    def test_one_head_cannot_be_moved(self):
        explorer = widgets.layer_explorer()
        explorer.controls["num_heads"].value = 1
        assert explorer.controls["head"].disabled
        explorer.controls["num_heads"].value = 2
        assert not explorer.controls["head"].disabled

    def test_length_of_the_other_example(self):
        controls = widgets.layer_explorer().controls
        assert [controls[f"length_{example}"].disabled for example in range(2)] == [False, True]
        controls["example"].value = 1
        assert [controls[f"length_{example}"].disabled for example in range(2)] == [True, False]

    def test_lengths_of_the_other_kind(self):
        controls = widgets.mask_explorer().controls
        for kind, enabled in (("one per example", [True, False]), (PER_QUERY, [False, True]), ("None", [False] * 2)):
            controls["kind"].value = kind
            assert [not controls[key].disabled for key in ("length", "length_3")] == enabled

    def test_steps_that_are_not_there(self):
        explorer = widgets.transpose_stepper()
        back, forward = buttons(explorer)
        assert back.disabled and not forward.disabled
        for _ in range(10):
            forward.click()
        assert explorer.controls["step"].value == 6 and forward.disabled and not back.disabled
        explorer.controls["wrong"].value = True
        assert explorer.controls["step"].max == explorer.controls["step"].value == 2


class TestButtons:
    def test_patches(self):
        images, _ = some_digits()
        explorer = widgets.image_explorer(digits_model(), images)
        for button in buttons(explorer):
            button.click()
            assert explorer.controls["query"].value == button.description
            assert [other.description for other in buttons(explorer) if other.button_style] == [button.description]

    def test_presets(self):
        some = torch.tensor([[1, 0, 1, 0, 1, 0], [0, 0, 1, 1, 1, 1]])
        explorer = widgets.head_board(digits_model(), TASKS["digits"], presets={"some": some})
        masks = {"no heads": torch.zeros(2, 6), "some": some, "all heads": torch.ones(2, 6)}
        pressed = {button.description: button for button in buttons(explorer)}
        for name, mask in masks.items():
            pressed[name].click()
            assert list(explorer.values.values()) == mask.bool().flatten().tolist()


WEIGHTS = torch.full((2, 3, 4, 4), 0.25)
ERRORS = {
    "no layers": (lambda: widgets.head_explorer([]), r"layers must be attention weights .* got shapes \[\]"),
    "one example": (lambda: widgets.head_explorer([WEIGHTS[0]]), r"layers must .* got shapes \[\(3, 4, 4\)\]"),
    "batches": (lambda: widgets.head_explorer([WEIGHTS, WEIGHTS[:1]]), "layers must all have the same batch size"),
    "untrained": (lambda: widgets.head_explorer([WEIGHTS], untrained=[WEIGHTS[:1]]), "untrained must have the shapes"),
    "names": (lambda: widgets.head_explorer([WEIGHTS], ["a", "b"]), r"tokens \(queries\) must name 4, got 2"),
    "layers' lengths": (
        lambda: widgets.head_explorer([WEIGHTS], valid_lens=[None, None]),
        "valid_lens must have an entry for each of 1 layers, got 2",
    ),
    "lengths": (lambda: widgets.head_explorer([WEIGHTS], valid_lens=torch.tensor([5, 1])), "valid_lens"),
    "hiddens": (lambda: widgets.layer_explorer(0), "num_hiddens must be at least 1, got 0"),
    "points": (lambda: widgets.kernel_pooling(torch.zeros(3), torch.zeros(2)), r"got \(3,\) and \(2,\)"),
    "same x": (lambda: widgets.kernel_pooling(torch.ones(3), torch.zeros(3)), "at least two different numbers"),
    "bandwidth": (
        lambda: widgets.kernel_pooling(torch.arange(3.0), torch.zeros(3), learned_bandwidth=-1),
        "bandwidth must be positive, got -1",
    ),
    "scores": (lambda: widgets.mask_explorer(torch.zeros(4, 6)), r"scores must have shape .* got \(4, 6\)"),
    "many scores": (lambda: widgets.mask_explorer(torch.zeros(1, 7, 6)), "at most 6 queries and 6 keys"),
    "images": (lambda: widgets.image_explorer(digits_model(), torch.zeros(2, 16, 4)), r"got \(2, 16, 4\)"),
    "preset's shape": (
        lambda: widgets.head_board(digits_model(), TASKS["digits"], presets={"odd": torch.ones(2, 5)}),
        r"presets: 'odd' must be a mask of zeros and ones, \(2, 6\)",
    ),
    "preset's gates": (
        lambda: widgets.head_board(digits_model(), TASKS["digits"], presets={"half": torch.full((2, 6), 0.5)}),
        "presets: 'half' must be a mask of zeros and ones",
    ),
}


@pytest.mark.parametrize(("call", "message"), ERRORS.values(), ids=ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_learners_random_numbers_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    widgets.layer_explorer().controls["seed"].value = 7
    widgets.mask_explorer()
    assert torch.rand(3).equal(expected)


class TestSheet:
    def test_png_is_what_pillow_reads(self):
        sheet = Sheet(37, 23)
        sheet.pixels[:] = np.random.default_rng(0).integers(0, 256, sheet.pixels.shape)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(sheet.png()))), sheet.pixels)

    def test_text_beyond_the_edge_is_cut_off(self):
        sheet = Sheet(40, 20)
        for x, y in ((-10, -5), (30, 15), (100, 50), (-200, -200)):
            sheet.write(x, y, "head 0")
        assert sheet.pixels.min() < 128

    def test_anchors(self):
        for anchor, (x, y) in {"la": (0, 0), "mm": (50, 25), "rd": (100, 50)}.items():
            sheet = Sheet(100, 50)
            sheet.write(x, y, "8", anchor=anchor)
            rows, columns = np.nonzero(sheet.pixels.min(axis=2) < 128)
            assert abs(rows.mean() - y) < 12 and abs(columns.mean() - x) < 8

    def test_outline_is_outside(self):
        sheet = Sheet(20, 20)
        sheet.outline(5, 6, 7, 8, "black", 2)
        dark = sheet.pixels[..., 0] == 0
        assert not dark[6:14, 5:12].any()
        assert dark.sum() == 11 * 12 - 7 * 8
