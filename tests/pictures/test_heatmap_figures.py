"""The library's heat maps are a figure of matplotlib that has the weights, one scale, and names."""

import sys

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from mha_course import pictures
from mha_lib import heatmaps


@pytest.fixture
def weights():
    return torch.softmax(3 * torch.randn(5, 3, 7, generator=torch.Generator().manual_seed(0)), dim=-1)


def panels(figure):
    """The Axes of the heads, without the colour bar."""
    return [panel for panel in figure.axes if panel.images]


def names(axis):
    return [name.get_text() for name in axis.get_ticklabels()]


def test_every_head_has_an_axes_with_its_weights_on_one_scale_from_0(weights):
    figure = heatmaps(weights.requires_grad_().bfloat16(), columns=3)
    assert [panel.get_title() for panel in panels(figure)] == [f"head {head}" for head in range(5)]
    for panel, own in zip(panels(figure), weights.detach().bfloat16().float(), strict=True):
        np.testing.assert_array_equal(panel.images[0].get_array(), own.numpy())
        assert panel.images[0].get_clim() == (0, weights.bfloat16().max().item())
    [bar] = [one for one in figure.axes if not one.images]
    assert bar.get_ylabel() == "attention weight"
    assert panels(heatmaps(weights.detach(), top=0.5))[2].images[0].get_clim() == (0, 0.5)


def test_outer_panels_name_queries_and_keys(weights):
    queries, keys = ["x", "y", "z"], [f"key{i}" for i in range(7)]
    shown = panels(heatmaps(weights, columns=3, query_labels=queries, key_labels=keys, titles="abcde"))
    assert [panel.get_ylabel() for panel in shown] == ["queries", "", "", "queries", ""]
    assert [panel.get_xlabel() for panel in shown] == ["", "", "keys", "keys", "keys"]
    assert (names(shown[3].yaxis), names(shown[3].xaxis)) == (queries, keys)
    assert [panel.get_title() for panel in shown] == list("abcde")
    [one] = panels(heatmaps(weights[1]))
    assert (one.get_title(), one.get_xlabel(), one.get_ylabel()) == ("", "keys", "queries")


@pytest.mark.parametrize("nothing", [0, torch.nan])
def test_a_fully_masked_row_is_hatched_and_only_that(weights, nothing):
    weights[3, 1], weights[2, 0, :6] = nothing, 0
    hatched = [[patch.get_extents() for patch in panel.patches] for panel in panels(heatmaps(weights))]
    assert [len(rows) for rows in hatched] == [0, 0, 0, 1, 0]
    panel = panels(heatmaps(weights))[3]
    [box] = [panel.transData.inverted().transform(patch.get_extents()) for patch in panel.patches]
    np.testing.assert_allclose(sorted(box[:, 1]), [0.5, 1.5])


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_it_is_saved_as_what_a_paper_takes(weights, tmp_path, ending, begins):
    heatmaps(weights).savefig(tmp_path / f"heads.{ending}")
    assert (tmp_path / f"heads.{ending}").read_bytes().startswith(begins)


def test_it_draws_into_axes_that_are_handed_in(weights):
    figure = Figure()
    grid = figure.subplots(2, 3)
    assert heatmaps(weights, ax=grid.flat[1:]) is figure and not grid[0, 0].images
    np.testing.assert_array_equal(grid[1, 1].images[0].get_array(), weights[3].numpy())
    assert heatmaps(weights[4], ax=grid[0, 0]) is figure
    np.testing.assert_array_equal(grid[0, 0].images[0].get_array(), weights[4].numpy())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: heatmaps(w[None]), r"weights must be those of one example.*\(1, 5, 3, 7\)"),
        (lambda w: heatmaps(w[:0]), r"weights must hold at least one head, got \(0, 3, 7\)"),
        (lambda w: heatmaps(w[:, :0]), r"weights must hold at least one query and one key, got \(5, 0, 7\)"),
        (lambda w: heatmaps(w - 2), "weights must be at least 0, where the colour scale begins, got -2"),
        (lambda w: heatmaps(w, key_labels="abc"), "key_labels must have 7 entries, got 3"),
        (lambda w: heatmaps(w, query_labels="a"), "query_labels must have 3 entries, got 1"),
        (lambda w: heatmaps(w, titles="a"), "titles must have 5 entries, got 1"),
        (lambda w: heatmaps(w, columns=0), "columns must be at least 1, got 0"),
        (lambda w: heatmaps(w, top=0), "top must be above 0, got 0"),
        (lambda w: heatmaps(w, ax=Figure().subplots(2, 3)), "ax must be one Axes for each head, 5 in all, got 6"),
    ],
)
def test_what_cannot_be_drawn_is_named(weights, call, message):
    with pytest.raises(ValueError, match=message):
        call(weights)


def test_without_matplotlib_the_error_names_the_command(weights, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install \"mha-lib\[plots\]\""):
        heatmaps(weights)


def test_the_course_s_picture_is_saved_as_it_is_shown(weights, tmp_path):
    picture = pictures.heatmaps(weights).titled("Five heads")
    picture.save(tmp_path / "heads.png")
    with Image.open(tmp_path / "heads.png") as image:
        assert image.width == 2 * picture.width
    assert (tmp_path / "heads.png").read_bytes() == picture.png
    with pytest.raises(ValueError, match=r"path must end in \.png, got 'heads\.pdf'"):
        picture.save("heads.pdf")
