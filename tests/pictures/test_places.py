"""All that is drawn lies inside its canvas or its axes, no two words touch, and names stand where they belong."""

import functools
import itertools

import numpy as np
import pytest
import torch
from layer_of_lookups import layer_of_lookups
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from mha_course import pictures
from mha_course.models import train_on_repeats
from mha_course.models.neighbours import NeighbourModel
from mha_course.models.pretrained import SentenceMaps
from mha_course.models.tasks import find_task
from mha_course.pictures.picture import FINER, INCH, PAD, PAGE, SCALE, Canvas
from mha_course.pictures.sentence_explorer import FAINT


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def weights(*shape, scale=3):
    return (scale * random(*shape)).softmax(-1)


LONG = ["internationalisation", "of", "a", "sentence", "that", "grew"]
CURVES = {"first": random(7).cumsum(0), "second": 3 * random(7, seed=1)}


def kernel(**options):
    return pictures.KernelExplorer(7 * random(12), 40 * random(12, seed=1), x_unit="h", y_unit="m", **options)


def sentence(weights, query=0):
    """One head over six words, with the same weights from each of them."""
    maps = SentenceMaps(" ".join(LONG), LONG, weights.expand(1, 1, 6, 6))
    return pictures.SentenceExplorer([maps], named={}, query=query)


CANVASES = {
    "heat maps": lambda: pictures.heatmaps(weights(5, 4, 7), columns=3),
    "heat maps with names": lambda: pictures.heatmaps(weights(2, 6, 6), query_labels=LONG, key_labels=LONG),
    "heat maps of many keys": lambda: pictures.heatmaps(weights(2, 47, 53)),
    "one narrow map": lambda: pictures.heatmaps(weights(9, 1), titles=["a title that is longer than its map"]),
    "maps with numbers": lambda: pictures.heatmaps(weights(2, 3, 5), numbers=True, key_labels=LONG[:5]),
    "scores of millions": lambda: pictures.MaskExplorer(3e6 * random(6), valid_len=0),
    "ranks": lambda: pictures.head_ranks({f"measure {i}": random(2, 6, seed=i) for i in range(5)}, ["layer 0", "1"]),
    "digits": lambda: pictures.HeadExplorer(find_task("digits").model(), query=6),
    "layer": layer_of_lookups,
    "ring": lambda: pictures.RingExplorer(),
    "ring, twelve": lambda: pictures.RingExplorer(num_heads=12, valid_lens=5, off=[0, 11]),
    "ring of a model": lambda: pictures.RingExplorer(NeighbourModel(8, num_hiddens=48)),
    "transpose": lambda: pictures.TransposeStepper(num_heads=3, step=2),
    "masks": lambda: pictures.MaskExplorer(40 * random(8), valid_len=3, shift=-3_000_000),
    "kernel": kernel,
    "kernel beyond its points": lambda: kernel(x_range=(-60, 90), query=-59.0),
    "slow motion": pictures.DotProductStepper,
    "cache": lambda: pictures.CacheStepper(pieces="4, 3, 1", mistake="aligned at the top left", step=8),
    "packed texts": lambda: pictures.PackedTextsExplorer(border=4, positions="go on"),
    "paged cache": lambda: pictures.PagedCacheStepper(step=11, block_size=1, row=0),
    "paged cache of large blocks": lambda: pictures.PagedCacheStepper(step=17, block_size=8),
    "words": lambda: sentence(torch.ones(6) / 6, query=1),
    "sentence": lambda: pictures.SentenceExplorer(example=7, query=15),
    "next word": lambda: pictures.NextWordExplorer(cut=[156, 157, 158, 168, 169]),
    "births": lambda: pictures.BirthExplorer(train_on_repeats(keep=[0], progress=False), cut=[(0, 1)]),
    "hand-made head": lambda: pictures.HandMadeHead(
        random(8, 16), *random(2, 3, 16), LONG[:6] + LONG[:2], [f"feature {i}" for i in range(16)]
    ),
    "head switches": lambda: pictures.HeadSwitches(
        random(4096).sigmoid(), {f"measure {i}": random(2, 6, seed=i) for i in range(7)}, cut=[(0, 1), (1, 5)]
    ),
    "next word of signs": lambda: pictures.NextWordExplorer(example=4, cut=[188]),
    "scrubber": lambda: pictures.TrainingScrubber(weights(4, 3, 5, 5), range(4), step=2),
}


@functools.cache
def canvas_of(name):
    picture = CANVASES[name]()
    return (picture.still() if isinstance(picture, pictures.live.LivePicture) else picture).drawing


@pytest.mark.parametrize("name", CANVASES)
def test_all_that_is_drawn_lies_inside_its_canvas_and_no_two_words_touch(name):
    canvas = canvas_of(name)
    for what, (left, top, right, bottom) in [*canvas.written, *(("a shape", box) for box in canvas.shapes)]:
        assert min(left, top) >= -PAD and right <= canvas.width - PAD and bottom <= canvas.height - PAD, what
    for word, box in canvas.written:
        ink = canvas.image.crop([round(SCALE * FINER * (PAD + end)) for end in box])
        assert not word.strip() or ink.getcolors(1) is None, f"{word} is not to be seen"
    for (one, a), (other, b) in itertools.combinations(canvas.written, 2):
        across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
        assert across < -0.5 or down <= 0, (one, other)


@pytest.mark.parametrize("name", CANVASES)
def test_letters_of_a_drawing_have_ten_pixels_on_a_page(name):
    canvas = canvas_of(name)
    assert canvas.smallest * min(1, PAGE / canvas.width) >= 10


FIGURES = {
    "regression": lambda: pictures.regression_curves(
        random(9), random(9, seed=1), torch.arange(7), CURVES, truth=random(7, seed=2)
    ),
    "training": lambda: pictures.training_curves(
        range(7), {name: curve.abs() for name, curve in CURVES.items()}, y_label="loss"
    ),
    "league": lambda: pictures.ranking_chart({"one": (0.7, 0.1, 0.8), "other": (-2, -3, 5)}, (0.4, 9), x_label="area"),
    "slopes": lambda: pictures.slopes(
        {name: {"prose": (0.1, 0.0, 0.3), "copying": (2, -1, 2.5)} for name in ("chosen here", "chosen there")},
        y_label="nats",
    ),
    "trade-offs": lambda: pictures.trade_offs(
        {"a long name of a curve": ["few", "many"], "other": ["many"]},
        {name: {"few": (1.0, 0.9, 1.1), "many": (0.5, 0.4, 0.9)} for name in ("time", "cache")},
        {name: {"few": (0.0, -0.1, 0.1), "many": (2, 1.5, 3)} for name in ("prose, nats", "copying, nats")},
    ),
    "chance": lambda: pictures.curves_and_chance(
        range(7),
        CURVES,
        {name: torch.ones(7) for name in CURVES},
        (range(9), torch.zeros(9) - 9, torch.ones(9)),
        x_label="cut",
        y_label="nats",
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_all_points_of_a_chart_lie_inside_its_axes(name):
    figure = FIGURES[name]().drawing
    renderer = FigureCanvasAgg(figure).get_renderer()
    for panel in figure.axes:
        frame = panel.get_window_extent(renderer)
        for line in panel.lines:
            points = line.get_transform().transform(line.get_xydata())
            assert ((points >= frame.min - 1) & (points <= frame.max + 1)).all(), line.get_label()
        for area in panel.collections:
            for part in area.get_paths():
                points = area.get_transform().transform(part.vertices)
                assert ((points >= frame.min - 1) & (points <= frame.max + 1)).all(), area.get_label()
    written = figure.get_tightbbox(renderer)  # inches, the words at its axes and beside it included
    assert written.xmin >= 0 and written.ymin >= 0
    assert written.xmax <= figure.get_figwidth() and written.ymax <= figure.get_figheight()


@pytest.mark.parametrize("name", FIGURES)
def test_letters_of_a_chart_have_ten_pixels_on_a_page(name):
    figure = FIGURES[name]().drawing
    points = [words.get_fontsize() for words in figure.findobj(Text) if words.get_text() and words.get_visible()]
    assert min(points) / 72 * INCH * min(1, PAGE / (figure.get_figwidth() * INCH)) >= 10


def places(canvas, words):
    """The middle of each of these words, from left to right."""
    return sorted((left + right) / 2 for word, (left, _, right, _) in canvas.written if word in words)


@pytest.mark.parametrize("keys", [["a", "b", "c", "d", "e"], LONG[:5]])
def test_names_of_keys_stand_in_the_middle_of_their_columns(keys):
    maps = pictures.heatmaps(weights(2, 3, 5), key_labels=keys, columns=2).drawing
    middles = [x + (key + 0.5) * cell for (x, _), (cell, _) in maps.maps.items() for key in range(5)]
    assert places(maps, keys) == pytest.approx(middles, abs=1.5)


def test_of_many_tokens_every_third_has_its_name():
    canvas = pictures.heatmaps(weights(1, 4, 47)).drawing
    assert [word for word in canvas.words if word.isdigit()][:18] == ["0", "3", *map(str, range(0, 47, 3))]


def test_the_numbers_of_a_kernels_axes_are_those_of_its_range():
    x = torch.linspace(-1, 13, 9)
    canvas = pictures.KernelExplorer(x, 2 * x - 5, x_unit="h").still().drawing
    ticks = [f"{x} h" for x in (0, 5, 10)]
    assert [word for word in canvas.words if word.endswith(" h")] == ticks
    apart = torch.tensor(places(canvas, ticks)).diff()
    torch.testing.assert_close(apart, torch.full((2,), 600 * 5 / 14), atol=5, rtol=0)


def test_names_in_slow_motion_stand_at_the_tips_of_arrows():
    canvas = canvas_of("slow motion")
    tips = [box for box in canvas.shapes if max(box[2] - box[0], box[3] - box[1]) < 7]
    middles = np.array([((a + c) / 2, (b + d) / 2) for _, (a, b, c, d) in canvas.written])
    for left, top, right, bottom in tips:
        far = np.hypot(*(middles - [(left + right) / 2, (top + bottom) / 2]).T)
        assert (abs(far - 10) < 2).any()
    assert len(tips) >= 8  # the query, and keys, values and their sum


def test_bows_lead_to_all_words_with_some_weight():
    own = torch.tensor([0.3, 0.041, 0.039, 0.25, 0.012, 0.358])
    faint = int((own < FAINT).sum())
    assert faint == 2
    shapes = [len(sentence(row).still().drawing.shapes) for row in (own, torch.ones(6) / 6)]
    assert shapes[1] - shapes[0] == faint


def test_the_farther_the_word_the_wider_and_higher_its_bow():
    for query in (0, 3, 5):
        canvas = sentence(torch.ones(6) / 6, query).still().drawing
        bows = np.array([(right - left, bottom - top) for left, top, right, bottom in canvas.shapes[:5]])
        middle = dict(zip(LONG, ((left + right) / 2 for _, (left, _, right, _) in canvas.written[2:8]), strict=True))
        apart = sorted(abs(middle[word] - middle[LONG[query]]) for word in LONG if word != LONG[query])
        wide, high = bows[bows[:, 0].argsort()].T
        assert wide == pytest.approx(apart, abs=1.5)
        assert np.polyfit(wide, high, 1)[0] > 0.1 and (np.diff(high) > 0).all()


def test_a_readings_dot_has_an_area_for_its_weight():
    explorer = pictures.KernelExplorer(torch.tensor([0.0, 1, 2, 3]), random(4), bandwidth=0.8, query=0.4)
    weight = torch.softmax(-(torch.tensor([0.4, 0.6, 1.6, 2.6]) ** 2) / (2 * 0.8**2), dim=0).numpy()
    boxes = explorer.still().drawing.shapes
    dots = [box for box in boxes if abs((box[2] - box[0]) - (box[3] - box[1])) < 0.3 and box[2] - box[0] > 4.5]
    grown = np.sort([right - left for left, _, right, _ in dots])[::-1] - 5  # that of no weight is 5 pixels wide
    assert grown[:2] / grown[0] == pytest.approx((np.sort(weight)[::-1][:2] / weight.max()) ** 0.5, abs=0.06)
    heights = [(top + bottom) / 2 for _, top, _, bottom in sorted(dots)]  # of a dot's middle, 250 pixels in all
    span = explorer.y.max() - explorer.y.min()
    assert heights == pytest.approx(((explorer.y.max() - explorer.y) / span * 250).tolist(), abs=0.5)


def test_the_hatching_of_a_masked_cell_fills_it_and_an_edge_stands_before_it():
    canvas, masked = Canvas(150, 120), np.array([[False, False, True], [True, False, False]])
    canvas.heat_map(10, 20, 40, np.full((2, 3), 0.5), masked=masked)
    due = [(90, 20, 110, 40), (90, 20, 130, 60), (10, 60, 30, 80), (10, 60, 50, 100), (90, 20, 90, 60)]
    lines = [box for box in canvas.shapes if (box[2] - box[0] < 1) or box[:2] in ((90, 20), (10, 60))]
    assert np.array(lines) == pytest.approx(np.array(due), abs=0.6)
