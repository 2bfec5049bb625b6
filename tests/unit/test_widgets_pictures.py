"""What the widgets show is right: pixels and texts against computations of their own, at 20 random settings each.

Texts are matched to the pictures they stand beside, so that a control wired to another axis goes red.
"""

import math
import random
import re

import matplotlib
import numpy as np
import pytest
import torch
from torch.nn import functional as F
from widget_tools import (
    GALLERY,
    LAYERS,
    LENGTHS,
    UNTRAINED,
    digits_model,
    log_of,
    random_move,
    record,
    some_digits,
    token_names,
    training_points,
)

from mha_lib import widgets
from mha_lib.attention import MultiHeadAttention
from mha_lib.models.tasks import TASKS, to_patches
from mha_lib.pictures.heat_maps import INK
from mha_lib.pictures.picture import HEAD_COLOURS
from mha_lib.widgets import kernel
from mha_lib.widgets.heat_map import HATCHING, NOT_A_NUMBER
from mha_lib.widgets.images import PATCHES

SEED = 1


def explorers(name, count=20, moves=6):
    """The explorer of that name at so many random settings."""
    chooser = random.Random(SEED)
    explorer = GALLERY[name]()
    for _ in range(count):
        for _ in range(moves):
            random_move(explorer, chooser)
        yield explorer


@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    record(monkeypatch)


def cells(picture, rows, columns):
    """A heat map's pixels cell by cell: (rows, columns, pixels of a cell, 3)."""
    height, width = picture.shape[0] // rows, picture.shape[1] // columns
    assert picture.shape == (rows * height, columns * width, 3)
    return picture.reshape(rows, height, columns, width, 3).swapaxes(1, 2).reshape(rows, columns, -1, 3)


def assert_shows(picture, weights, masked=None):
    """A heat map's cells have the colours of the weights, and hatching where they are masked."""
    weights = np.asarray(weights)
    masked = np.zeros(weights.shape, bool) if masked is None else np.asarray(masked)
    shown = cells(picture, *weights.shape)
    expected = matplotlib.colormaps["Blues"](weights)[..., :3] * 255
    expected[np.isnan(weights)] = NOT_A_NUMBER
    assert np.abs(np.median(shown, axis=2) - expected).max() <= 3
    hatched = (shown == HATCHING).all(axis=3).any(axis=2)
    assert np.array_equal(hatched, masked)


def assert_names(log, title, size, queries, keys):
    """Beside the picture right below a title stand the names of its rows, under it those of its columns."""
    (place,) = [
        (left, top, pixels.shape)
        for left, top, pixels in log.pictures
        for x, y in log.places(title)
        if x == left and 0 < top - y <= 20 and max(pixels.shape) >= size
    ]
    left, top, (height, width, _) = place
    rows = {y: text for x, y, text, anchor in log.texts if anchor == "rm" and 0 < left - x < 10}
    columns = {x: text for x, y, text, anchor in log.texts if anchor == "ma" and 0 < y - top - height < 10}
    for index, name in enumerate(queries):
        assert rows[top + (index + 0.5) * height / len(queries)] == name
    for index, name in enumerate(keys):
        assert columns[left + (index + 0.5) * width / len(keys)] == name


def masked_keys(valid_lens, example, num_queries, num_keys):
    """Which keys are masked, by a loop."""
    lengths = valid_lens[example]
    lengths = [int(lengths)] * num_queries if lengths.dim() == 0 else lengths.tolist()
    return np.array([[key >= length for key in range(num_keys)] for length in lengths])


def test_heads():
    seen = set()
    for explorer in explorers("heads"):
        values, log = explorer.values, log_of(explorer.sheet)
        layer = list(LAYERS).index(values["layer"])
        source = list(LAYERS.values()) if values["weights"] == "trained" else UNTRAINED
        weights = source[layer][values["example"]].numpy()
        masked = masked_keys(LENGTHS[layer], values["example"], *weights.shape[1:])
        for head, matrix in enumerate(weights):
            assert_shows(log.below(f"head {head}")[0], matrix, masked)
        queries, keys = token_names(layer, values["example"])
        head, compare = f"head {values['head']}", values["compare"]
        assert_shows(log.below(head)[1], weights[values["head"]], masked)
        if head != compare:
            assert_names(log, head, 200, queries, keys)
        if compare == "average of all heads":
            assert_shows(*log.below(compare), weights.mean(axis=0), masked)
        elif compare != head:
            assert_shows(log.below(compare)[1], weights[int(compare[5:])], masked)
        assert_reading(explorer.reading, weights[values["head"]], queries, keys)
        assert f"{values['layer'].capitalize()}, example {values['example']}, {values['weights']}" in explorer.reading
        seen |= set(values.items())
    assert len(seen) >= 15, "the walk has hardly moved"


def assert_reading(reading, weights, queries, keys):
    """The strongest links that a reading names are those of the weights."""
    links = re.findall(r"(\S+) → (\S+) (\d\.\d\d)", reading)
    strongest = sorted(weights.flatten().tolist(), reverse=True)[: len(links)]
    assert len(links) == 5
    for (query, key, weight), expected in zip(links, strongest, strict=True):
        assert f"{weights[queries.index(query), keys.index(key)]:.2f}" == weight == f"{expected:.2f}"


def test_layer():
    for explorer in explorers("layer"):
        values, log = explorer.values, log_of(explorer.sheet)
        lengths = torch.tensor([values["length_0"], values["length_1"]])
        weights = weights_of_layer(values["num_heads"], values["numbers"], values["seed"], lengths, values["example"])
        masked = masked_keys(lengths, values["example"], 4, 6)
        assert len(weights) == values["num_heads"]
        for head, matrix in enumerate(weights):
            assert_shows(log.below(f"head {head}")[0], matrix, masked)
        assert_shows(log.below(f"head {values['head']}")[1], weights[values["head"]], masked)


def weights_of_layer(num_heads, numbers, seed, lengths, example):
    """Weights of a fresh layer from its matrices, head by head, query by query."""
    torch.manual_seed(seed)
    layer = MultiHeadAttention(100, num_heads, query_size=100, key_size=100, value_size=100)
    make = torch.ones if numbers == "all ones" else torch.randn
    queries, keys = make(2, 4, 100)[example], make(2, 6, 100)[example]
    size = 100 // num_heads
    weights = np.zeros((num_heads, 4, 6))
    length = int(lengths[example])
    for head in range(num_heads):
        rows = slice(head * size, (head + 1) * size)
        q = (queries @ layer.W_q.weight[rows].T).detach().double().numpy()
        k = (keys @ layer.W_k.weight[rows].T).detach().double().numpy()
        exponentials = np.exp(q @ k.T / math.sqrt(size))[:, :length]
        weights[head, :, :length] = exponentials / exponentials.sum(axis=1, keepdims=True)
    return weights


def test_masks():
    for explorer in explorers("masks"):
        values, log = explorer.values, log_of(explorer.sheet)
        scores = widgets.masks.random_scores()[values["example"]].double().numpy() / values["divisor"]
        lengths = {
            "one per example": [values["length"]] * 4,
            "one per query": [values[f"length_{query}"] for query in range(4)],
            "None": [6] * 4,
        }[values["kind"]]
        masked = np.array([[key >= length for key in range(6)] for length in lengths])
        shift = -3e6 if values["shift"] == "−3,000,000" else 0
        safe, low, infinite = (weights_with_fill(scores + shift, masked, fill) for fill in (None, -1e6, -math.inf))
        for title, weights in (
            ("masked_softmax", safe),
            ("masked scores set to −1e6", low),
            ("masked scores set to −∞", infinite),
        ):
            assert_shows(*log.below(title), weights, masked)
        title = f"scores ÷ {values['divisor']:.3g}" + (" − 3,000,000" if shift else "")
        assert_shows(*log.below(title), np.zeros((4, 6)))
        assert_shows(*log.below("mask"), np.zeros((4, 6)), masked)
        numbers = [text.replace("−", "-") for x, y, text, anchor in log.texts if anchor == "mm"]
        expected = [(scores, 1), (scores, 1), (safe, 2), (low, 2), (infinite, 2)]
        assert len(numbers) == 5 * 24
        for place, (matrix, decimals) in enumerate(expected):
            shown = np.array([float(number) for number in numbers[24 * place : 24 * (place + 1)]])
            assert np.allclose(shown, matrix.flatten(), atol=0.51 * 10**-decimals, equal_nan=True)
        empty = [str(query) for query, length in enumerate(lengths) if length == 0]
        assert f"Queries without a valid key: {', '.join(empty) or 'none'}." in explorer.reading


def weights_with_fill(scores, masked, fill):
    """Softmax row by row; masked scores become ``fill``, or are left out where it is None."""
    weights = np.zeros(scores.shape)
    for row, (line, hidden) in enumerate(zip(scores, masked, strict=True)):
        kept = line[~hidden] if fill is None else np.where(hidden, fill, line)
        if fill == -math.inf and hidden.all():
            weights[row] = math.nan
        elif len(kept):
            shares = np.exp(kept - kept.max()) / np.exp(kept - kept.max()).sum()
            weights[row, ~hidden if fill is None else slice(None)] = shares
    return weights


def test_stepper():
    kinds = set()
    for explorer in explorers("stepper", count=40):
        values, log = explorer.values, log_of(explorer.sheet)
        step = values.pop("step")
        expected = expected_steps(**values)
        shapes = [tuple(tensor.shape) for tensor in expected]
        assert log.matching(re.compile(r"\(\d[\d, ]+\)")) == [str(shape) for shape in shapes]
        assert [int(tag) for tag in log.matching(re.compile(r"\d{4}"))] == expected[step].flatten().tolist()
        assert f"Step {step} of {len(shapes) - 1}, " in explorer.reading and str(shapes[step]) in explorer.reading
        assert_cells(explorer, log)
        cut = step in (1, 5) and not values["wrong"] and values["num_heads"] > 1
        assert_tokens_apart(log, expected[step], cut)
        (legend,) = log.matching(re.compile(r"\d{4} = .*"))
        assert int(legend[:4]) in expected[step] and re.findall(r"\d", legend[4:]) == list(legend[:4])
        kinds.add((values["wrong"], step))
    assert len(kinds) >= 7, "the walk has hardly moved"


def assert_tokens_apart(log, tensor, cut):
    """The rows of a table touch, except where they are tokens cut into heads: there each token stands by itself."""
    places = {int(text): y for _, y, text, anchor in log.texts if anchor == "mm"}
    firsts = tensor[:, :, 0, 0] if cut else tensor.reshape(-1, *tensor.shape[-2:])[:, :, 0]  # of each row of each table
    for table in firsts.tolist():
        distances = np.diff([places[tag] for tag in table])
        assert (distances > 28).all() if cut else (distances == 22).all()


def expected_steps(wrong, batch_size, num_tokens, num_heads, head_size):
    """Every step's tensor of tags, written down index by index."""
    X = np.zeros((batch_size, num_tokens, num_heads * head_size), int)
    split = np.zeros((batch_size, num_tokens, num_heads, head_size), int)
    by_head = np.zeros((batch_size, num_heads, num_tokens, head_size), int)
    folded = np.zeros((batch_size * num_heads, num_tokens, head_size), int)
    for example, token, head, feature in np.ndindex(split.shape):
        tag = 1000 * example + 100 * token + 10 * head + feature
        X[example, token, head * head_size + feature] = tag
        split[example, token, head, feature] = by_head[example, head, token, feature] = tag
        folded[example * num_heads + head, token, feature] = tag
    if wrong:
        return [X, X.reshape(folded.shape), X]
    return [X, split, by_head, folded, by_head, split, X]


def assert_cells(explorer, log):
    """The colour of every cell is its number's head; an outline says that the number is in a foreign table."""
    tables = {(y, x): text for x, y, text, _ in log.texts if re.match(r"\[\d+\] example \d, head", text)}
    strangers = 0
    for x, y, tag, anchor in log.texts:
        if anchor != "mm":
            continue
        left, top = int(x) - 17, int(y) - 11
        colour = 255 * np.array(matplotlib.colors.to_rgb(HEAD_COLOURS[int(tag[2])]))
        assert np.abs(explorer.sheet.pixels[top + 3, left + 3] - (0.55 * colour + 0.45 * 255)).max() <= 1
        above = [place for place in tables if place[0] <= y and place[1] <= x]
        foreign = bool(above) and re.findall(r"\d+", tables[max(above)])[1:] != [tag[0], tag[2]]
        assert foreign == (tuple(explorer.sheet.pixels[top, left]) == (192, 0, 0))
        strangers += foreign
    assert re.findall(r"(\d+) of \d+ numbers are in the wrong table", explorer.reading) == [str(strangers)] * (
        strangers > 0
    )


def test_kernel_pooling(monkeypatch):
    figures = []
    build = kernel.KernelFigure.__init__

    def keeping_init(self, *args, **kwargs):
        build(self, *args, **kwargs)
        figures.append(self)

    monkeypatch.setattr(kernel.KernelFigure, "__init__", keeping_init)
    x, y = (points.double().numpy() for points in training_points())
    order = np.argsort(x)
    for explorer in explorers("kernel pooling"):
        bandwidth, query = explorer.values["bandwidth"], explorer.values["query"]
        for column, width in zip(figures[-1].columns, (bandwidth, 0.4), strict=True):
            grid = np.linspace(x.min(), x.max(), 200)
            bells = np.exp(-((grid[:, None] - x) ** 2) / (2 * width**2))
            bell = np.exp(-((query - x) ** 2) / (2 * width**2))
            assert np.allclose(column.curve.get_xdata(), grid, atol=1e-5)
            assert np.allclose(column.curve.get_ydata(), bells @ y / bells.sum(axis=1), atol=1e-3)
            weights = np.asarray(column.weights.get_array()).flatten()
            assert np.allclose(weights, (bell / bell.sum())[order], atol=1e-4)
            assert np.allclose(column.answer.get_data(), [[query], [bell @ y / bell.sum()]], atol=1e-3)
            tips = np.array([segment[1] for segment in column.stems.get_segments()])
            assert np.allclose(tips, np.stack([x, bell], axis=1)[order], atol=1e-4)
            assert all(line.get_xdata()[0] == query for line in column.lines)
            assert f"bandwidth {width:.2f}: prediction {bell @ y / bell.sum():.2f}" in explorer.reading
        assert f"Query x = {query:.2f}" in explorer.reading
        texts = [text for _, _, text, _ in log_of(explorer.sheet).texts]
        assert f"bandwidth {bandwidth:.2f}" in texts and "learned bandwidth 0.40" in texts


def test_images():
    images, targets = some_digits()
    model = digits_model()
    for explorer in explorers("images"):
        values, log = explorer.values, log_of(explorer.sheet)
        image = images[values["example"]]
        with torch.no_grad():
            answer = model(to_patches(image[None]))[0, 0].argmax().item()
        token = ["class", *PATCHES].index(values["query"])
        for layer, weights in enumerate(model.attention_weights, start=1):
            for head, row in enumerate(weights[0, :, token].double().numpy()):
                (place,) = log.places(f"layer {layer}, head {head}")
                assert_shows_on_image(explorer.sheet, place, row[1:].reshape(4, 4), image.numpy(), token)
            classes = [f"class {weight:.2f}" for weight in weights[0, :, token, 0].tolist()]
            assert log.matching(re.compile(r"class \d.*"))[6 * (layer - 1) : 6 * layer] == classes
            most = [f"head {head} {['class', *PATCHES][row.argmax()]}" for head, row in enumerate(weights[0, :, token])]
            assert all(f"{text} " in explorer.reading for text in most)
        shown = f"Example {values['example']}, shows a {targets[values['example']]}, read as a {answer}"
        assert explorer.reading.startswith(f"{shown}. From {values['query']}: ")
        assert_query_outlined(explorer, log, token)


def assert_shows_on_image(sheet, title, weights, image, token):
    """Below the title each patch has the colour of its weight, whatever its ink, and thin lines go around the ink."""
    left, top = int(title[0]), int(title[1]) + 3
    picture = sheet.pixels[top : top + 88, left : left + 88].astype(int)
    patches = np.median(cells(picture, 4, 4), axis=2)
    colours = matplotlib.colormaps["Oranges"](np.sqrt(weights))[..., :3] * 255
    assert np.abs(patches - colours).max() <= 3
    assert np.isclose(weights.flatten()[patches.sum(axis=-1).argmin()], weights.max(), atol=0.005)
    ink = np.rint(255 * np.array(matplotlib.colors.to_rgb(INK)))
    dark = image > 0.5
    for row, column in np.ndindex(8, 8):
        if 4 * (row // 2) + column // 2 != token - 1:  # where no outline of the query may hide it
            line = (picture[11 * row + 5, 11 * column] == ink).all()
            assert line == (dark[row, column] != (column > 0 and dark[row, column - 1]))


def assert_query_outlined(explorer, log, token):
    """On the image alone, the first picture, the chosen patch has an outline and no other."""
    left, top, image = log.pictures[0]
    size = image.shape[0] // 4
    for patch in range(16):
        row, column = divmod(patch, 4)
        corner = explorer.sheet.pixels[top + row * size + 1, left + column * size + 1]
        assert (tuple(corner) == (0, 0x72, 0xB2)) == (patch == token - 1)


def test_board():
    model, task = digits_model(), TASKS["digits"]
    batch = task.held_out
    with torch.no_grad():
        whole = model(batch.inputs)[:, 0].argmax(dim=1)
    masks = set()
    for explorer in explorers("board", moves=12):
        log = log_of(explorer.sheet)
        mask = torch.tensor([[explorer.values[f"block_{b}_head_{h}"] for h in range(6)] for b in range(2)])
        with torch.no_grad():
            logits = model(batch.inputs, head_mask=mask.float())[:, 0].double()
        answers = logits.argmax(dim=1)
        accuracy = (answers == batch.targets).double().mean().item()
        loss = F.cross_entropy(logits, batch.targets).item()
        changed = int((answers != whole).sum())
        texts = [text for _, _, text, _ in log.texts]
        for shown in (f"{accuracy:.3f}", f"{loss:.3f}", f"{changed / 360:.1%}"):
            assert shown in texts
        assert f"{changed} of 360 answers changed" in explorer.reading
        squares = [text for x, y, text, anchor in log.texts if anchor == "mm"]
        assert squares == [str(head) if mask[block, head] else "off" for block in range(2) for head in range(6)]
        captions = [
            f"{batch.targets[i]}: {whole[i]} → {answers[i]}" for i in (answers != whole).nonzero().flatten()[:9]
        ]
        assert log.matching(re.compile(r"\d: \d → \d")) == captions
        masks.add(tuple(mask.flatten().tolist()))
    assert len(masks) >= 10


def test_even_weights_have_no_strongest_link():
    explorer = widgets.layer_explorer()
    explorer.set(numbers="all ones")
    assert "Strongest links, query → key: none, as all weigh the same 0.33." in explorer.reading
    explorer.set(length_0=0)
    assert "Strongest links, query → key: none, as no key is valid." in explorer.reading
