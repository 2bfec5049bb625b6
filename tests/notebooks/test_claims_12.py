"""What 12 says beyond its cells: caches of any layer and on any schedule, which test catches which mistake, costs."""

import random

import pytest
import torch
from learners_layers import OfTheBook
from notebook_tools import ROOT, make_notebooks, output_of, told
from torch.utils.flop_counter import FlopCounterMode

from mha_course import models, pictures
from mha_course.exercises.whole_layer import CompleteAttention
from mha_course.pictures.paged_cache_stepper import PLACES, VISITS

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "12_serving.ipynb")


def shown_by(words):
    """What the one cell prints or answers whose source has these words."""
    (cell,) = [cell for cell in NOTEBOOK.cells if cell.cell_type == "code" and words in cell.source]
    return output_of(cell)


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


def test_what_windows_and_shared_heads_leave_of_sixteen_gibibytes():
    text = "\n".join(cell.source for cell in NOTEBOOK.cells)
    token_and_layer, tokens = 2 * 32 * 128 * 2, 32_768
    assert 32 * tokens * token_and_layer == 16 * 2**30 and 32 * tokens * token_and_layer / 4 == 4 * 2**30
    assert 16 * (tokens + 4_096) * token_and_layer == 9 * 2**30
    assert "would be 9 GiB and not 16" in text and "13 + 16 GiB" in text and "13 + 4" in text


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
    shown = shown_by("each_pair = ")
    corners = (counted(way, queries, keys) * (1, -1)[queries != keys] for queries in (1, 2) for keys in (1, 2))
    assert sum(corners) == each_pair and f"'{way}': {each_pair}" in shown
    for queries in (1, 4096):
        (line,) = [line for line in shown.splitlines() if line.split()[:3] == ["queries", f"{queries},", way]]
        assert line.split()[3] == f"{counted(way, queries, 4096) / 1e6:,.1f}"


def test_the_number_of_queries_from_which_the_plain_form_is_cheaper():
    """The model answer of exercise 2, on both sides of the border and far beyond."""
    (answer,) = [cell.source for cell in NOTEBOOK.cells if "a model answer" in cell.source]
    assert counted("plain", 163, 4096) > counted("absorbed", 163, 4096)
    assert counted("plain", 164, 4096) < counted("absorbed", 164, 4096) and "from 164 queries on" in answer
    assert f"{128 * 512 / (512 - 128):.1f}" == "170.7" and "= 170.7$" in answer
    assert counted("plain", 171, 10**8) < counted("absorbed", 171, 10**8)
    assert counted("plain", 170, 10**8) > counted("absorbed", 170, 10**8)


def test_absorbing_buys_bytes_and_not_arithmetic():
    shown, text = shown_by("each_pair = "), "\n".join(cell.source for cell in NOTEBOOK.cells)
    kept = counted("plain", 1, 4096) - 2 * 128 * 512 * 4095  # keys and values of the new token alone are made
    assert kept < counted("absorbed", 1, 4096) and f"1 query, all kept {kept / 1e6:.1f} million" in shown
    assert f"$512 + 64 = {512 + 64}$ numbers a token in place of" in text
    assert f"+ 64 = {128 * 2 * 128 + 64:,}$".replace(",", "{,}") in text


@pytest.fixture(scope="module")
def story():
    """Everything that the notebook defines before its summary."""
    return told("12_serving", before="## Summary")


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


@pytest.mark.parametrize("kind", [CompleteAttention, OfTheBook])
@torch.no_grad()
def test_a_learners_class_in_pieces_gives_what_one_pass_gives(story, kind):
    """The class that notebook 00 leads to, and one with heads merged with the batch, which knows no library."""
    layer, X = kind(12, 3, bias=True).double().eval(), torch.randn(3, 7, 12, dtype=torch.float64)
    one_pass = layer(X, X, X, torch.arange(1, 8).expand(3, 7))
    for cuts in ([1] * 7, [7], [2, 4, 1]):
        torch.testing.assert_close(story["in_pieces"](layer, X, cuts), one_pass, rtol=0, atol=1e-12)


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
                    blocks.leave(visits[i][0])
        for (_, _, text), output in zip(visits, outputs, strict=True):
            alone = story["decode"](story["rotary"], text[None], [len(text)])[0]
            torch.testing.assert_close(torch.stack(output), alone, rtol=0, atol=1e-12)
        assert sorted(blocks.free) == list(range(needed)), "all blocks are given back"


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_picture_shows_the_tables_of_the_notebooks_own_blocks(story, size):
    """In every step; the texts are present as in the notebook, and leave after their last token."""
    blocks, picture = story["Blocks"](PLACES // size, size), pictures.PagedCacheStepper(block_size=size)
    for step in range(18):
        here = [visit for visit in VISITS if visit[1] <= step < visit[1] + visit[2]]
        for row, _, _ in here:
            blocks.write(row, *torch.zeros(2, 4, 4, dtype=torch.float64))
        picture.step = step
        assert picture.tables() == {row: table for row, table in sorted(blocks.table.items()) if table}
        for row, first, length in here:
            if step + 1 == first + length:
                blocks.leave(row)


def test_the_text_below_the_picture_counts_its_opening_step():
    (text,) = [cell.source for cell in NOTEBOOK.cells if cell.source.startswith("In step 9,")]
    tables = [pictures.PagedCacheStepper(block_size=size).tables().values() for size in (1, 4, 8)]
    ones, numbers, few = (sum(map(len, own)) for own in tables)
    tokens, fours, eights = ones, 4 * numbers, 8 * few
    for words in (
        f"the texts have {tokens} tokens",
        f"takes {PLACES} places",
        f"blocks of 4 take {fours}, and blocks of 8 take {eights} as well",
        f"the tables hold {ones} numbers instead of {numbers}",
    ):
        assert words in text
    assert eights == PLACES


def test_who_asks_for_more_blocks_than_there_are_is_told_so(story):
    blocks = story["Blocks"](number=2, size=3)
    token = torch.zeros(2, 4, 4, dtype=torch.float64)
    for row in "abbb":
        blocks.write(row, *token)
    with pytest.raises(MemoryError, match="row b needs one more block; all are taken"):
        blocks.write("b", *token)
    assert blocks.length == {"a": 1, "b": 3}


def test_three_guesses_are_all_kept_and_of_four_one_is_rejected(story):
    for guesses, gained in ((3, 4), (4, 4)):
        text = [5]
        for _ in range(10):
            longer = story["speculate"](text, guesses)
            assert len(longer) == len(text) + gained
            text = longer
