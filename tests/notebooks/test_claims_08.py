"""What 08 says beyond its cells: for which numbers of shared heads the mean wins, and that the answers are those."""

import pytest
from notebook_tools import ROOT, make_notebooks

from mha_lib import models

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "08_heads_today.ipynb")


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
