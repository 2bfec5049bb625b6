"""What 09 says beyond its cells: for which numbers of shared heads the mean wins, what places do, the answers."""

import math

import pytest
import torch
from notebook_tools import ROOT, make_notebooks
from torch.utils.flop_counter import FlopCounterMode

from mha_lib import models
from mha_lib.heads import load_results
from mha_lib.models.induction import draw_repeats

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


PLACES = load_results("places")
GUESS = PLACES.pop("guess")
TEXT = "\n".join(cell.source for cell in NOTEBOOK.cells if cell.cell_type == "markdown")


def kept(kind, column, steps=4500):
    """Shares of right letters, seed by seed."""
    shares = [run[column] for run in PLACES[f"{kind}, {steps} steps"]]
    assert len(shares) >= 5
    return shares


def ends(shares):
    return f"{min(shares):.2f} to {max(shares):.2f}"


def test_padding_changes_nothing_for_rotated_places_if_it_is_masked():
    for steps in (1500, 4500):
        assert kept("rotated", "left", steps) == kept("rotated", "trained", steps)
    unmasked, trained = kept("rotated", "not_masked"), kept("rotated", "trained")
    assert all(one < other - 0.01 for one, other in zip(unmasked, trained, strict=True))
    assert f"if the padding may be looked at, {ends(unmasked)} are right after 4,500 steps" in TEXT


@pytest.mark.parametrize("kind", ["learned", "sines"])
def test_added_places_lose_much_behind_padding_and_nothing_where_they_are_counted(kind):
    for steps in (1500, 4500):
        assert kept(kind, "counted", steps) == kept(kind, "trained", steps)
    drops = [one - other for one, other in zip(kept(kind, "trained"), kept(kind, "left"), strict=True)]
    assert min(drops) > 0.2


def test_without_places_little_is_right_beyond_a_guess():
    for column in ("trained", "longer", "left", "counted"):
        assert GUESS[column] - 0.02 < min(kept("none", column)) and max(kept("none", column)) < GUESS[column] + 0.06
        assert max(kept("none", column)) < min(kept(kind, column)[0] for kind in ("rotated", "learned", "sines"))
    assert (f"{GUESS['trained']:.0%}", f"{GUESS['longer']:.0%}") == ("5%", "3%")
    assert "right in 5 % of the cases on rows of 32, and in 3 % on rows of 48" in TEXT


def test_on_longer_rows_all_fall_and_rotated_places_are_behind_sines_with_every_seed():
    for kind in ("rotated", "learned", "sines", "none"):
        falls = [one - other for one, other in zip(kept(kind, "trained"), kept(kind, "longer"), strict=True)]
        assert min(falls) > (0.15 if kind != "none" else 0)
    assert max(kept("rotated", "longer")) < min(kept("sines", "longer"))
    falls = {kind: kept(kind, "trained")[0] - kept(kind, "longer")[0] for kind in ("rotated", "learned", "sines")}
    assert max(falls, key=falls.get) == "rotated"  # of the models that ship


def test_tables_know_places_and_rotation_knows_distances():
    for kind in ("learned", "sines"):
        assert max(kept(kind, "late")) < GUESS["late"] and min(kept(kind, "early")) > 0.5
        assert min(kept(kind, "far")) > 0.5
    assert max(kept("rotated", "far")) < 0.5 < min(kept("rotated", "near"))
    near, far = ends(kept("rotated", "near")), ends(kept("rotated", "far"))
    assert f"up to 22 tokens back, {near} are right there, and farther back {far}." in TEXT
    assert f"differs from seed to seed: from {ends(kept('rotated', 'late'))} are right" in TEXT
    assert max(kept("rotated", "late")) < min(kept("rotated", "near"))
    assert f"{GUESS['late']:.0%}" == "3%" and "not even as much as a guess (3 %)" in TEXT


def test_in_training_the_right_key_stood_up_to_place_22_and_22_tokens_back_and_later_it_is_beyond_both():
    for num_tokens, beyond in ((32, False), (48, True)):
        rows = draw_repeats(50_000, torch.Generator().manual_seed(7), num_tokens)
        keys = rows.right_keys[rows.predictable]
        far = rows.predictable.nonzero()[:, 1] - keys
        assert (keys.max() > 22, far.max() > 22) == (beyond, beyond)
        assert beyond or (keys.max(), far.max()) == (22, 22)


def test_after_fewer_steps_the_comparison_is_about_who_is_first():
    """Learned: more than half of the letters of rows as in training are right."""
    kinds = "rotated", "learned", "sines"
    learned = {kind: sum(share > 0.5 for share in kept(kind, "trained", 1500)) for kind in kinds}
    assert learned == {"rotated": 5, "learned": 3, "sines": 0}
    assert min(share for kind in kinds for share in kept(kind, "trained")) > 0.8
    assert "with every seed, learned ones with three of five, and sines with none" in TEXT


def test_sines_are_made_for_more_tokens_than_these_rows_have():
    """The text's numbers of the cell that compares places; those of two bases follow from the formula."""
    shown = shown_by("alike = ")
    for base, neighbours, first_and_last in ((10_000, "0.96", "0.67"), (100, "0.94", "0.32")):
        speeds = [base ** (-pair / 24) for pair in range(24)]
        for distance, told in ((1, neighbours), (11, first_and_last)):
            assert f"{sum(math.cos(distance * speed) for speed in speeds) / 24:.2f}" == told
        assert f"neighbours  {neighbours}, first and last  {first_and_last}" in shown
        assert sum(11 * speed < 0.1 for speed in speeds) == {10_000: 11, 100: 0}[base]
    assert shown_by("slow = ") == "pairs that hardly turn, of 24: base 10,000 11, base 100 0\n"
    P = models.shipped_model("lookups").embedding.positions.detach()
    cosines = torch.corrcoef(P)[~torch.eye(12, dtype=torch.bool)]
    drawn = torch.corrcoef(torch.randn(200, 48, generator=torch.Generator().manual_seed(1)))
    assert cosines.std() < 1.5 * drawn[~torch.eye(200, dtype=torch.bool)].std() and cosines.mean().abs() < 0.05
