"""What 09 says beyond its cells: for which numbers of shared heads the mean wins, and that the answers are those."""

import pytest
import torch
from notebook_tools import ROOT, make_notebooks
from torch.utils.flop_counter import FlopCounterMode

from mha_lib import models

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "09_heads_today.ipynb")


@pytest.mark.slow
@pytest.mark.parametrize(("num_key_value_heads", "winner_at_once"), [(3, "first"), (2, "mean"), (1, "first")])
def test_who_wins_at_once_and_that_the_mean_wins_after_30_steps(num_key_value_heads, winner_at_once):
    task, model = models.find_task("digits"), models.shipped_model("digits")
    before, after = {}, {}
    for how in ("mean", "first"):
        grouped = models.to_grouped(model, num_key_value_heads, how)
        before[how] = task.accuracy(grouped)
        after[how] = task.accuracy(models.tune(grouped, task, seed=1, steps=30, progress=False))
    assert max(before, key=before.get) == winner_at_once
    assert after["mean"] > after["first"] + 0.02
    assert task.steps * 0.05 == 30


def test_every_mistake_passes_one_test_and_is_caught_by_another():
    """The table of mistakes, the two conventions, the lengths of a window: each cell shows both words."""
    shown = ["".join(o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in c.get("outputs", []))
             for c in NOTEBOOK.cells]  # fmt: skip
    both = [text for text in shown if "CAUGHT" in text and "passes" in text]
    assert len(both) >= 6
    (table,) = [text for text in shown if "MasksOnlyAtFirst" in text and "whole" in text]
    words = {line.split()[0]: line.split()[1:] for line in table.splitlines()[1:]}
    assert words == {
        "CachedAttention": ["passes"] * 4,
        "MasksOnlyAtFirst": ["passes", "passes", "CAUGHT", "passes"],
        "NewBeforeOld": ["passes", "passes", "CAUGHT", "passes"],
        "NeverEmptied": ["passes", "passes", "passes", "CAUGHT"],
    }


def shown_by(words):
    """What the one cell prints whose source has these words."""
    (cell,) = [cell for cell in NOTEBOOK.cells if cell.cell_type == "code" and words in cell.source]
    return "".join(output["text"] for output in cell.outputs)


def counted(way, queries, keys):
    """One head's multiplications at DeepSeek's sizes, as torch counts them in matrix products."""
    Q, Q_turned, C, K_turned, U, V = (
        torch.empty(shape, device="meta")
        for shape in ((queries, 128), (queries, 64), (keys, 512), (keys, 64), (128, 512), (128, 512))
    )
    with FlopCounterMode(display=False) as counter:
        if way == "plain":
            (Q @ (C @ U.T).T + Q_turned @ K_turned.T) @ (C @ V.T)
        else:
            ((Q @ U) @ C.T + Q_turned @ K_turned.T) @ C @ V.T
    return counter.get_total_flops() // 2  # an addition stands beside each multiplication


@pytest.mark.parametrize(("way", "each_pair"), [("plain", 320), ("absorbed", 1088)])
def test_absorbing_takes_what_the_text_says(way, each_pair):
    shown = shown_by("each_pair")
    corners = (counted(way, queries, keys) * (1, -1)[queries != keys] for queries in (1, 2) for keys in (1, 2))
    assert sum(corners) == each_pair and f"'{way}': {each_pair}" in shown
    for queries in (1, 4096):
        (line,) = [line for line in shown.splitlines() if line.split()[:3] == ["queries", f"{queries},", way]]
        assert line.split()[3] == f"{counted(way, queries, 4096) / 1e6:,.1f}"


def test_keys_rotated_once_are_wrong_where_places_are_counted_in_the_cache():
    assert shown_by("moved_up").splitlines() == [
        "rotated once: token 0 CAUGHT, others passes",
        "turned again: token 0 passes, others passes",
    ]
