"""A learner's figure is read: what misleads in it is named, and every fair way of drawing passes."""

import numpy as np
import pytest
from matplotlib import pyplot as plt

from mha_course.exercises import draw_heads

pytestmark = pytest.mark.usefixtures("in_this_process")
FROM_0_TO_1 = {"vmin": 0, "vmax": 1}


def drawing(
    method="imshow", numbers=lambda W: W, names=lambda q, k: (q, k), edge=False, title="head", finish=None, **options
):
    """An answer that draws in this way."""

    def draw(weights, queries, keys):
        figure, axes = plt.subplots(1, len(weights), squeeze=False)
        at = 0 if method == "imshow" or edge else 0.5
        for W, ax in zip(weights, axes[0], strict=True):
            getattr(ax, method)(numbers(W), **(options or FROM_0_TO_1))
            ax.set_title(title)
            rows, columns = names(queries, keys)
            ax.set_yticks(np.arange(len(rows)) + at, rows)
            ax.set_xticks(np.arange(len(columns)) + at, columns)
            if finish:
                finish(ax)
        return figure

    return draw


def in_figures_of_their_own(weights, queries, keys):
    for head, W in enumerate(weights):
        plt.figure()
        plt.imshow(W, vmin=0, vmax=weights.max())
        plt.xticks(range(len(keys)), keys)
        plt.yticks(range(len(queries)), queries)
        plt.title(f"head {head}")
        plt.colorbar()
    return plt.gcf().axes


def with_shared_rows(weights, queries, keys):
    figure, axes = plt.subplots(1, len(weights), sharey=True, squeeze=False)
    for W, ax in zip(weights, axes[0], strict=True):
        image = ax.imshow(W, vmin=0, vmax=1)
        ax.set_xticks(range(len(keys)), keys)
    axes[0, 0].set_yticks(range(len(queries)), queries)
    figure.suptitle("all heads")
    figure.colorbar(image, ax=axes)


def mean_of_heads(weights, queries, keys):
    return drawing()(weights.mean(axis=0, keepdims=True), queries, keys)


RIGHT = {
    "imshow": drawing(),
    "pcolormesh": drawing("pcolormesh"),
    "pcolor": drawing("pcolor"),
    "origin": drawing(origin="lower", **FROM_0_TO_1),
    "a figure for each head": in_figures_of_their_own,
    "shared rows": with_shared_rows,
}
WRONG = {
    "Heat map 0 is transposed: its rows are keys": drawing(numbers=lambda W: W.T, names=lambda q, k: (k, q)),
    "names of rows and columns are exchanged in heat map 0": drawing(names=lambda q, k: (k, q)),
    "Each head has a scale of its own": drawing(cmap="Purples"),
    "names of the rows are missing": drawing(names=lambda q, k: ([], k)),
    "names of the columns are missing": drawing(names=lambda q, k: (q, [])),
    "at the edges of its cells": drawing("pcolormesh", edge=True),
    "names of the rows are in reverse order": drawing(names=lambda q, k: (q[::-1], k)),
    "row 0 has the name": drawing(names=lambda q, k: (q[1:] + q[:1], k)),
    "does not reach all weights": drawing(vmin=0, vmax=0.3),
    "rescaled by their largest": drawing(numbers=lambda W: W / W.max()),
    "reverse order. Draw the weights as they are": drawing(numbers=lambda W: W[::-1]),
    "does not show the weights of head 0": drawing(numbers=lambda W: W**2),
    "The cells are blurred": drawing(interpolation="bilinear", **FROM_0_TO_1),
    "has no title": drawing(title=""),
    "the mean over the heads": mean_of_heads,
    "shows head": lambda W, q, k: drawing()(W[::-1], q, k),
    "2 heat maps for 3 heads": lambda W, q, k: drawing()(W[:2], q, k),
    "no heat map": lambda W, q, k: plt.figure(),
    "holds colours": drawing(numbers=lambda W: np.stack([W] * 3, axis=-1)),
    "Your code raises": lambda W, q, k: plt.imshow(W),
}


@pytest.mark.parametrize("answer", RIGHT.values(), ids=RIGHT)
def test_a_fair_drawing_passes(answer):
    assert draw_heads(answer), draw_heads(answer)
    assert plt.get_fignums() == []


@pytest.mark.parametrize(("words", "answer"), WRONG.items(), ids=WRONG)
def test_what_misleads_is_named(words, answer):
    verdict = draw_heads(answer)
    assert verdict.state == "wrong" and words in verdict.text, verdict


def test_rows_from_below_are_noted_under_a_right_verdict():
    from_above = drawing("pcolormesh", finish=lambda ax: ax.invert_yaxis())
    assert "lowest row" in draw_heads(RIGHT["pcolormesh"]).text
    assert not any("lowest row" in draw_heads(answer).text for answer in (from_above, RIGHT["imshow"]))
