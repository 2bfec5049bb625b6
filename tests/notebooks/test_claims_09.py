"""What 09 says beyond its cells: for which numbers of shared heads the mean wins, what places do, the answers."""

import math
import random

import pytest
import torch
from notebook_tools import ROOT, make_notebooks, told
from torch.utils.flop_counter import FlopCounterMode

from mha_lib import models
from mha_lib.heads import load_results
from mha_lib.models.induction import sample_induction_batch

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "09_heads_today.ipynb")


@pytest.mark.slow
@pytest.mark.parametrize(("num_key_value_heads", "winner_at_once"), [(3, "first"), (2, "mean"), (1, "first")])
def test_who_wins_at_once_and_that_the_mean_wins_after_30_steps(num_key_value_heads, winner_at_once):
    task, model = models.find_task("digits"), models.shipped_model("digits")
    before, after = {}, {}
    for how in ("mean", "first"):
        grouped = models.to_grouped(model, num_key_value_heads, how)
        before[how] = task.accuracy(grouped)
        after[how] = task.accuracy(models.finetune(grouped, task, seed=1, steps=30, progress=False))
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
    assert max(kept("sines", "near")) < min(kept("rotated", "near"))
    rows = sample_induction_batch(5_000, torch.Generator().manual_seed(3), 48)
    far = rows.predictable.nonzero()[:, 1] - rows.target_keys[rows.predictable] > 22
    assert 0.51 < far.double().mean() < 0.6
    assert "mainly the mix of these rows: more than half of their right keys are farther back than 22 tokens" in TEXT
    assert "On the others each rotated model is ahead of each with sines" in TEXT
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
        rows = sample_induction_batch(50_000, torch.Generator().manual_seed(7), num_tokens)
        keys = rows.target_keys[rows.predictable]
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
        for distance, shown_there in ((1, neighbours), (11, first_and_last)):
            assert f"{sum(math.cos(distance * speed) for speed in speeds) / 24:.2f}" == shown_there
        assert f"neighbours  {neighbours}, first and last  {first_and_last}" in shown
        assert sum(11 * speed < 0.1 for speed in speeds) == {10_000: 11, 100: 0}[base]
    assert shown.endswith("pairs that hardly turn, of 24: base 10,000 11, base 100 0\n")
    P = models.shipped_model("lookups").embedding.positions.detach()
    cosines = torch.corrcoef(P)[~torch.eye(12, dtype=torch.bool)]
    drawn = torch.corrcoef(torch.randn(200, 48, generator=torch.Generator().manual_seed(1)))
    assert cosines.std() < 1.5 * drawn[~torch.eye(200, dtype=torch.bool)].std() and cosines.mean().abs() < 0.05


@pytest.fixture(scope="module")
def story():
    """Everything that the notebook defines before its summary."""
    return told("09_heads_today", before="## Summary")


def random_visits(draw):
    """Texts that take rows one after the other, with pauses: row, step at which the text enters, text."""
    visits = []
    for row in range(draw.randint(1, 3)):
        now = draw.randint(0, 4)
        for _ in range(draw.randint(1, 3)):
            length = draw.randint(1, 6)
            visits.append((row, now, torch.randn(length, 16, dtype=torch.float64)))
            now += length + draw.randint(0, 2)
    return visits


@pytest.mark.slow
@torch.no_grad()
def test_on_any_schedule_blocks_give_every_token_what_its_text_gives_alone(story):
    """All outputs of 200 random schedules, in blocks of 1 to 5 tokens and never more of them than are needed."""
    for seed in range(200):
        draw = random.Random(seed)
        visits, size = random_visits(draw), draw.randint(1, 5)
        outputs = [[] for _ in visits]
        steps = range(max(enters + len(text) for _, enters, text in visits))
        here = [[i for i, (_, enters, text) in enumerate(visits) if 0 <= now - enters < len(text)] for now in steps]
        needed = max(sum((now - visits[i][1]) // size + 1 for i in who) for now, who in enumerate(here))
        blocks = story["Blocks"](needed, size)
        for now, who in enumerate(here):
            rows = {visits[i][0]: visits[i][2][now - visits[i][1]] for i in who}
            for i, output in zip(who, story["advance"](blocks, rows) if rows else (), strict=True):
                outputs[i].append(output)
                if len(outputs[i]) == len(visits[i][2]):
                    story["leave"](blocks, visits[i][0])
        for (_, _, text), output in zip(visits, outputs, strict=True):
            alone = story["decode"](story["rotary"], text[None], [len(text)])[0]
            torch.testing.assert_close(torch.stack(output), alone, rtol=0, atol=1e-12)
        assert sorted(blocks.free) == list(range(needed)), "all blocks are given back"


def test_who_asks_for_more_blocks_than_there_are_is_told_so(story):
    blocks = story["Blocks"](number=2, size=3)
    token = torch.zeros(2, 4, 4, dtype=torch.float64)
    for row in "abbb":
        blocks.write(row, *token)
    with pytest.raises(MemoryError, match="row b needs one more block, and all 2 are taken"):
        blocks.write("b", *token)
    assert blocks.length == {"a": 1, "b": 3}


def test_each_mistake_with_blocks_passes_a_weak_test_and_is_caught_by_the_strong_one():
    header, *lines = shown_by("two of 8").splitlines()
    assert [column.strip() for column in header.split("  ") if column.strip()] == [
        "two of 8",
        "9, 3, 6",
        "8 after 8",
        "11 after 3",
    ]
    words = {line[:10].strip(): line[10:].split() for line in lines}
    assert words == {
        "right": ["passes"] * 4,
        "places": ["passes", "passes", "passes", "CAUGHT"],
        "tail": ["passes", "CAUGHT", "passes", "CAUGHT"],
        "still read": ["passes", "passes", "passes", "CAUGHT"],
    }


def test_what_windows_and_shared_heads_leave_of_sixteen_gibibytes():
    token_and_layer, tokens = 2 * 32 * 128 * 2, 32_768
    assert 32 * tokens * token_and_layer == 16 * 2**30 and 32 * tokens * token_and_layer / 4 == 4 * 2**30
    assert 16 * (tokens + 4_096) * token_and_layer == 9 * 2**30
    assert "would be 9 GiB and not 16" in TEXT and "13 + 16 GiB" in TEXT and "13 + 4" in TEXT
