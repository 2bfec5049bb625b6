"""What 06 reads into its heads comes from training, and the figures in the text of 04 and 06 are those measured."""

import itertools
import re
from collections import Counter
from functools import partial

import notebook_tools
import pytest
import torch
from notebook_tools import ROOT, make_notebooks, run_cells

from mha_lib import models
from mha_lib.models import pretrained

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "06_heads_at_work.ipynb")


def test_models_that_learned_with_the_shortcut_do_what_04_says():
    text = (ROOT / "notebooks" / "04_transpose_qkv.ipynb").read_text(encoding="utf-8")
    report = (ROOT / "benchmarks" / "wrong_reshape.md").read_text(encoding="utf-8").splitlines()[4:]
    digits, lookups, _ = ([float(share) for share in row.split("|")[2:5]] for row in report)
    (said,) = re.findall(r"digits model then gets ([\d.]+) of the images .* fall from (\d.\d+) to (\d.\d+)", text)
    assert said == tuple(f"{share:.2f}" for share in (digits[2], lookups[0], lookups[2]))
    assert digits[2] >= digits[0] > digits[1]


def test_the_rule_of_04_holds_for_every_number_and_one_stride_cannot_lead_to_all_tables():
    told = notebook_tools.told("04_transpose_qkv", "## 4. The way back")
    X, folded, h, p = told["X"], told["folded"], told["num_heads"], 20
    for e, i, t, f in itertools.product(range(2), range(h), range(4), range(p)):
        assert folded[e * h + i, t, f] == X[e, t, i * p + f]
    starts = [table.storage_offset() for example in told["by_head"] for table in example]
    assert starts == [0, 20, 40, 60, 80, 400, 420, 440, 460, 480]
    with pytest.raises(RuntimeError, match="view"):
        told["by_head"].view(-1, 4, p)


def test_a_model_that_has_learned_nothing_stops_it(monkeypatch):
    monkeypatch.setattr(models, "shipped_model", partial(models.fit, seed=1, steps=1, progress=False))
    with pytest.raises(AssertionError):
        run_cells(NOTEBOOK)


def test_the_shares_of_its_text_are_the_kept_ones():
    kept = {(one["layer"], one["head"]): one for one in pretrained.kept_figures()}
    person, same, noun = kept[1, 3], kept[2, 9], kept[2, 8]
    text = "\n".join(cell.source for cell in NOTEBOOK.cells)
    right, distance, redrawn = (round(100 * person[name]) for name in ("right", "one distance", "redrawn"))
    said = f"in {right} of 100 cases, the most frequent distance in {distance}, and the head with random matrices in "
    assert f"{said}{redrawn}." in text
    others = [round(100 * one["best other"]) for one in (same, noun)]
    assert "the same word in {} of 100 cases, another the article's noun in {}.".format(*others) in text


def right_without(*off):
    """Share of right answers to each question about the look-ups, with these heads off."""
    task, model = models.find_task("lookups"), models.shipped_model("lookups")
    gates = torch.ones(2, 6)
    for layer, head in off:
        gates[layer, head] = 0
    with torch.no_grad():
        answers = task.correct(model(task.held_out.inputs, None, gates), task.held_out.targets)
    return dict(zip(task.questions, answers.double().mean(dim=(0, 1)).tolist(), strict=True))


@pytest.fixture(scope="module")
def guess():
    """Share that the row's commonest value gets right, and 6 for the count, as Python counts it."""
    task = models.find_task("lookups")
    right = Counter()
    for row, targets in zip(task.held_out.inputs[..., 0].tolist(), task.held_out.targets.tolist(), strict=True):
        commonest = min(row, key=lambda value: (-row.count(value), value))
        for answers in targets:
            guesses = [*[commonest] * 4, 6]
            right.update(q for q, g, a in zip(task.questions, guesses, answers, strict=True) if g == a)
    return {question: right[question] / task.held_out.targets[..., 0].numel() for question in task.questions}


def test_a_question_without_its_heads_is_left_with_a_guess(guess):
    assert notebook_tools.told("06_heads_at_work", "## 2. From")["guess"].tolist() == pytest.approx([*guess.values()])
    for question, *off in (("first", 1), ("recall", 3), ("count", 2), ("back3", 0, 4), ("prev", 0, 5)):
        assert right_without(*((0, head) for head in off))[question] < guess[question] + 0.02
    assert right_without((0, 5))["prev"] > guess["prev"] + 0.1
    assert min(right_without((0, head))["back3"] for head in (0, 4)) > 0.95 and right_without((0, 0))["prev"] > 0.95


def test_the_head_from_an_article_to_its_noun_is_fooled_by_a_tall_thin_man():
    (one,) = (one for one in pretrained.kept_maps() if one.tokens[1:5] == ["a", "tall", "thin", "man"])
    tall, man = one.weights[2, 8, 1, [2, 4]]
    assert tall > man


def test_heads_that_begin_alike_and_a_single_layer_do_what_05_says():
    text = notebook_tools.text_of("06_heads_at_work")
    assert "None of the six learned all five questions, and five of them never learned *recall*." in text
    assert "with three seeds, get 0.97 of *count* right, and all the rest" in text
    report = (ROOT / "benchmarks" / "alike_heads.md").read_text(encoding="utf-8").splitlines()[4:]
    right = {}  # of each variant, a row for each seed and a column for each question
    for variant, _, *shares in (map(str.strip, row.strip("|").split("|")) for row in report):
        right.setdefault(variant, []).append([float(share) for share in shares])
    usual, alike, alike_too, _, one_layer = torch.tensor([*right.values()]).unbind()
    copies = torch.cat([alike, alike_too])
    assert usual.min() > 0.99 and copies.amin(dim=1).max() < 0.4 and (copies[:, 3] < 0.3).sum() == 5
    assert one_layer[:, :4].min() > 0.999 and one_layer[:, 4].mul(100).round().eq(97).all()


def test_layer_1_of_the_lookups_is_even_and_needed(guess):
    right = right_without(*((1, head) for head in range(6)))
    assert right["count"] < guess["count"] + 0.02 and round(right["first"], 2) == 0.65
    assert min(right[question] for question in ("prev", "back3", "recall")) > 0.99
