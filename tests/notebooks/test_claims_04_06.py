"""What 06 reads into its heads comes from training, and the figures in the text of 04 and 06 are those measured."""

import itertools
import re
from collections import Counter
from functools import partial

import notebook_tools
import numpy as np
import pytest
import torch
from notebook_tools import ROOT, make_notebooks, run_cells

from mha_course import models
from mha_course.models import pretrained

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "06_heads_at_work.ipynb")


def test_models_that_learned_with_the_shortcut_do_what_04_says():
    text = (ROOT / "notebooks" / "04_transpose_qkv.ipynb").read_text(encoding="utf-8")
    report = (ROOT / "research" / "wrong_reshape.md").read_text(encoding="utf-8").splitlines()[4:]
    digits, lookups, _ = ([float(share) for share in row.split("|")[2:5]] for row in report)
    (said,) = re.findall(r"digits model then reaches an accuracy of ([\d.]+), .* falls from (\d.\d+) to (\d.\d+)", text)
    assert said == tuple(f"{share:.2f}" for share in (digits[2], lookups[0], lookups[2]))
    assert digits[2] >= digits[0] > digits[1]


def test_the_rule_of_04_holds_for_every_number_and_one_stride_cannot_lead_to_all_tables():
    told = notebook_tools.told("04_transpose_qkv", "## 3. A single")
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


def table_of(name, title):
    """The cells of a table of research/<name>.md below a line that begins with ``title``."""
    page = (ROOT / "research" / f"{name}.md").read_text(encoding="utf-8")
    (_, below) = page.split(f"\n{title}")
    lines = below.split("\n\n")[1].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_heads_that_find_the_same_words_cost_what_06_says_and_named_heads_are_not_the_important_ones():
    text = notebook_tools.text_of("06_heads_at_work")
    articles, same = ([float(cost) for cost in row[1:]] for row in table_of("sentence_costs", "Two heads"))
    assert "(2, 8) and (3, 1), cost {} and {}, and {} together: they add up".format(*articles) in text
    assert "cost {} and {}, and {} together: they partly replace each other".format(*same) in text
    assert abs(articles[2] / sum(articles[:2]) - 1) < 0.1 < 0.5 < same[2] / sum(same[:2]) - 1
    ranks = [int(row[3]) for row in table_of("sentence_costs", "1 − cosine")]
    assert len(ranks) == 8 and f"the eight rank {min(ranks)}th to {max(ranks)}th of 72" in text


def test_weight_on_the_markers_adds_little_and_matters():
    text = notebook_tools.text_of("06_heads_at_work")
    weight, length = ([float(share) for share in row[2:6]] for row in table_of("sentence_costs", "Share of [CLS]"))
    said = (
        f"{min(weight)} to {max(weight)} of the weight in layers 1 to 4, but contribute {min(length)} to {max(length)}"
    )
    assert said in text
    cosines = {name: float(cosine) for name, cosine in table_of("sentence_costs", "Cosine with")}
    markers, words = (cosines[f"{two}, mean of the words"] for two in ("[CLS] and [SEP]", "two words"))
    assert f"falls to {markers:.2f}. Doing the same to two words leaves it at {words:.2f}." in text


def test_the_person_is_found_less_often_in_other_sentences():
    shares = [float(row[1]) for row in table_of("person_frames", "Shares of")]
    said = f"finds the person in {min(shares):.2f} to {max(shares):.2f} of the cases"
    assert said in notebook_tools.text_of("06_heads_at_work")


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
    assert notebook_tools.told("06_heads_at_work", "## 3. Tokens")["guess"].tolist() == pytest.approx([*guess.values()])
    for question, *off in (("first", 1), ("wanted label", 3), ("count < 5", 2), ("3 back", 0, 4), ("1 back", 0, 5)):
        assert right_without(*((0, head) for head in off))[question] < guess[question] + 0.02
    assert right_without((0, 5))["1 back"] > guess["1 back"] + 0.1
    assert min(right_without((0, head))["3 back"] for head in (0, 4)) > 0.95 and right_without((0, 0))["1 back"] > 0.95


def test_the_head_from_an_article_to_its_noun_is_fooled_by_a_tall_thin_man():
    (one,) = (one for one in pretrained.kept_maps() if one.tokens[1:5] == ["a", "tall", "thin", "man"])
    tall, man = one.weights[2, 8, 1, [2, 4]]
    assert tall > man


def test_a_head_of_layer_3_attends_from_she_to_the_other_noun():
    queen = pretrained.kept_maps()[0]
    received = queen.weights[3, 1, queen.tokens.index("she")]
    assert queen.tokens[received.argmax()] == "waiter"
    said = f"choose layer 3, head 1: from *she* it gives *waiter* a weight of {received.max():.2f}."
    assert said in notebook_tools.text_of("06_heads_at_work")


def test_heads_that_begin_alike_and_a_single_layer_do_what_the_report_and_06_say():
    text = notebook_tools.text_of("06_heads_at_work")
    assert "with three seeds, get 0.97 of *count < 5* right, and all the rest" in text
    report = (ROOT / "research" / "alike_heads.md").read_text(encoding="utf-8").splitlines()[4:]
    right = {}  # of each variant, a row for each seed and a column for each question
    for variant, _, *shares in (map(str.strip, row.strip("|").split("|")) for row in report):
        right.setdefault(variant, []).append([float(share) for share in shares])
    usual, alike, alike_too, _, one_layer = torch.tensor([*right.values()]).unbind()
    copies = torch.cat([alike, alike_too])
    assert usual.min() > 0.99 and copies.amin(dim=1).max() < 0.4 and (copies[:, 3] < 0.3).sum() == 5
    assert one_layer[:, :4].min() > 0.999 and one_layer[:, 4].mul(100).round().eq(97).all()


def test_layer_1_of_the_lookups_is_even_and_needed(guess):
    right = right_without(*((1, head) for head in range(6)))
    assert right["count < 5"] < guess["count < 5"] + 0.02 and round(right["first"], 2) == 0.66
    assert min(right[question] for question in ("1 back", "3 back", "wanted label")) > 0.99


@pytest.fixture(scope="module")
def story():
    """What 06 says, in one string, and what it has defined where it ends."""
    return notebook_tools.text_of("06_heads_at_work"), notebook_tools.told("06_heads_at_work", "## Summary")


@pytest.fixture(scope="module")
def needed():
    """Python's own answer to which place each question needs: question → (rows, 12)."""
    places = {question: [] for question in ("1 back", "3 back", "first", "wanted label")}
    for row in models.find_task("lookups").held_out.inputs.tolist():
        at = {key: place for place, (_, key, _) in enumerate(row)}
        for question, needs in (
            ("1 back", [(i + 11) % 12 for i in range(12)]),
            ("3 back", [(i + 9) % 12 for i in range(12)]),
            ("first", [0] * 12),
            ("wanted label", [at[query - 12] for _, _, query in row]),
        ):
            places[question].append(needs)
    return {question: np.array(rows) for question, rows in places.items()}


MEAN_OWN, MEAN_PLACE, WHAT, WHERE = range(4)


@pytest.fixture(scope="module")
def parts():
    """Scores of layer 0 by the summands of the query and of the key, in numpy; "untrained" is drawn as 06 draws it.

    Name of the model → (4, 4, heads, rows, queries, keys). The summands are the mean of the tokens' own vectors, that
    of the places, with the bias, and what is left of both.
    """
    task, found = models.find_task("lookups"), {}
    torch.manual_seed(0)
    for name, model in {"untrained": task.model(), "trained": models.shipped_model("lookups")}.items():
        read = {key: tensor.double().numpy() for key, tensor in model.state_dict().items()}
        places = read["embedding.positions"]
        own = read["embedding.tokens.weight"][task.held_out.inputs.numpy()].sum(axis=2)  # (rows, 12, 48)
        middle, centre = own.mean(axis=(0, 1)), places.mean(axis=0)
        sides = []
        for side in ("W_q", "W_k"):
            W, bias = (read[f"blocks.layer 0.attention.{side}.{part}"] for part in ("weight", "bias"))
            summands = middle @ W.T, centre @ W.T + bias, (own - middle) @ W.T, (places - centre) @ W.T
            sides.append(np.stack([np.broadcast_to(one, own.shape) for one in summands]).reshape(4, 512, 12, 6, 8))
        found[name] = np.einsum("anihd,bnjhd->abhnij", *sides, optimize=True) / 8**0.5
    return found


def shares_of(parts):
    """Share of each pair of summands in the variance of the scores along the keys, (4, 4, heads)."""
    varied = parts - parts.mean(axis=-1, keepdims=True)
    whole = varied.sum(axis=(0, 1))
    return (varied * whole).mean(axis=(3, 4, 5)) / (whole**2).mean(axis=(1, 2, 3))


def test_a_score_has_the_parts_that_06_tells(story, parts):
    text, told = story
    trained, untrained = (shares_of(parts[name]) for name in ("trained", "untrained"))
    for shares, shown in ((trained, told["parts"]), (untrained, told["in_parts"](told["untrained"]))):
        assert np.abs(shares[:, [MEAN_OWN, MEAN_PLACE]]).max() < 1e-9
        six = np.stack([shares[MEAN_OWN] + shares[MEAN_PLACE], shares[WHAT], shares[WHERE]])[:, [WHAT, WHERE]]
        np.testing.assert_allclose(told["share_by_part"](shown).numpy(), six.reshape(6, 6), atol=1e-4)
        assert shown.keys() == {f"{asks} → {key}" for asks in ("common", "what", "where") for key in ("what", "where")}
    assert 0.90 <= trained[WHERE, WHERE][[5, 4, 0]].min() < 0.91 and "*where → where* has 0.90 or more." in text
    assert f"*what → what* has {trained[WHAT, WHAT, 3]:.2f}." in text
    assert f"*common → where* has {trained[:2, WHERE, 1].sum():.2f}." in text
    assert (untrained.reshape(16, 6).argmax(axis=0) == 4 * WHAT + WHAT).all()
    assert f"none of the six heads without training has more than {untrained[WHAT, WHAT].max():.2f} there" in text
    spread = parts["trained"].sum(axis=(0, 1)).std(axis=-1).mean(axis=(1, 2))
    assert spread.argmin() == 2 and spread[2] < 0.2 and np.delete(spread, 2).min() > 2
    lengths = [np.linalg.norm(each, axis=-1).mean() for each in told["summands"](told["untrained"]).values()]
    assert lengths[1] > lengths[2]


def test_a_head_of_06_finds_its_place_by_one_part_alone(story, parts, needed):
    text, _ = story
    pieces, whole = parts["trained"], parts["trained"].sum(axis=(0, 1))
    part_of = {
        "1 back": (5, pieces[WHERE, WHERE]),
        "3 back": (4, pieces[WHERE, WHERE]),
        "first": (1, pieces[MEAN_OWN, WHERE] + pieces[MEAN_PLACE, WHERE]),
        "wanted label": (3, pieces[WHAT, WHAT]),
    }
    others = {}
    for question, (head, part) in part_of.items():
        assert (part[head].argmax(axis=-1) == needed[question]).all()
        others[question] = ((whole - part)[head].argmax(axis=-1) == needed[question]).mean()
    assert f"and for *first* in {others.pop('first'):.2f} of the cases" in text
    assert max(abs(share - 1 / 12) for share in others.values()) < 0.01


def test_one_head_an_average_and_rollout_are_worth_what_06_tells(story, needed):
    text, told = story
    model, ids = models.shipped_model("lookups"), models.find_task("lookups").held_out.inputs
    with torch.no_grad():
        model(ids)
    layer_0, layer_1 = (weights.double().numpy() for weights in model.attention_weights)
    through = [0.5 * layer.mean(axis=1) + 0.5 * np.eye(12) for layer in (layer_0, layer_1)]
    rollout = np.einsum("nik,nkj->nij", through[1], through[0])

    def on(weights, rows):
        """Weight on the needed keys, for each question."""
        rest = np.arange(512)[rows, None], np.arange(12)
        return [weights[*rest, keys[rows]].mean() for keys in needed.values()]

    def right(weights):
        return [(weights.argmax(axis=-1) == keys)[256:].mean() for keys in needed.values()]

    first_half, second_half = slice(256), slice(256, 512)
    heads = np.argmax([on(layer_0[:, head], first_half) for head in range(6)], axis=0)
    assert heads.tolist() == told["choose_by"].argmax(dim=0).tolist() == [5, 4, 1, 3]
    chosen = [on(layer_0[:, head], second_half)[question] for question, head in enumerate(heads)]
    mean, rolled = on(layer_0.mean(axis=1), second_half), on(rollout, second_half)
    shown = [told["on_needed"](each)[256:].mean(dim=0).tolist() for each in told["maps"].values()]
    np.testing.assert_allclose(shown, [chosen, mean, rolled, [1 / 12] * 4], atol=1e-4)
    assert f"the mean gives it {min(mean):.2f} to {max(mean):.2f}, and rollout {max(rolled):.2f} at most" in text
    assert min(chosen) > 0.99 and "The chosen head gives the needed token nearly all the weight" in text
    assert "the head chosen for *3 back*, head 4, is redundant" in text and right_without((0, 4))["3 back"] > 0.95

    assert [right(layer_0[:, head])[question] for question, head in enumerate(heads)] == [1] * 4
    by_mean = right(layer_0.mean(axis=1))
    assert f"right in {by_mean.pop(1):.2f} of the cases for *3 back*" in text
    assert {f"{share:.2f}" for share in by_mean} == {"0.24", "0.25"} and "in 0.24 or 0.25 for the others" in text
    assert (rollout.argmax(axis=-1) == np.arange(12)).all()


def test_answers_hang_on_the_tokens_that_06_tells(story, needed):
    text, told = story
    task, keys = models.find_task("lookups"), np.stack([*needed.values()], axis=1)[256:]
    rows = task.held_out[256:512]

    def answers(model, ids):
        return task.logits(model(ids)).softmax(dim=-1)[:, :, :4]

    def hang_on(model):
        """The place whose exchange moves each answer most, (rows, questions, 12)."""
        with torch.no_grad():
            here = answers(model, rows.inputs)
            other = rows.inputs.repeat_interleave(12, dim=0)
            other[torch.arange(len(other)), torch.arange(12).repeat(256), 0] += 5
            other[..., 0] %= 10
            moved = answers(model, other).unflatten(0, (256, 12)) - here[:, None]
        return moved.abs().sum(dim=-1).argmax(dim=1).mT.numpy()

    assert (hang_on(models.shipped_model("lookups")) == keys).all() and "In all cases. A **gradient**" in text

    model = models.shipped_model("lookups").double()

    def right_scores(tokens):
        first, second = model.blocks.values()
        output = task.logits(model.output(second(*[first(tokens, tokens, None, None)] * 2, None, None)))
        return output.gather(-1, rows.targets[..., None])[:, :, :4, 0].sum(dim=0)  # (12, questions)

    tokens = model.embedding(rows.inputs).detach()
    slopes = torch.autograd.functional.jacobian(right_scores, tokens)  # (12, questions, rows, 12, 48)
    strongest = slopes.norm(dim=-1).argmax(dim=-1).permute(2, 1, 0).numpy()  # (rows, questions, 12)
    by_gradient = (strongest == keys).mean(axis=(0, 2))
    assert f"The gradient is right in {by_gradient.min():.2f} of the cases or more" in text
    np.testing.assert_allclose(told["table"][1].numpy(), by_gradient, atol=2e-3)
