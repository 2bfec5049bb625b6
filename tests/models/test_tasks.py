"""The tasks' data is what their docstrings say, recomputed here another way."""

import hashlib
from datetime import date, datetime

import numpy as np
import pytest
import torch
from on_device import DEVICE

from mha_course.models import shipped_figures, shipped_model, trained
from mha_course.models.tasks import IMAGES, Batch, find_task, to_images, to_patches


def draw(name, seed=0):
    return next(find_task(name).batches(torch.Generator().manual_seed(seed))).to(DEVICE)


def test_patches_are_cut_row_by_row_and_put_together_again():
    images = torch.randn(3, 8, 8)
    patches = to_patches(images)
    for row in range(4):
        for column in range(4):
            cut = images[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].flatten(1)
            assert torch.equal(patches[:, 4 * row + column], cut)
    assert torch.equal(to_images(patches), images)


def test_digits_holds_out_every_fifth_image():
    held_out, kept = find_task("digits").held_out, np.load(IMAGES)
    # Of scikit-learn 1.9.1's load_digits(), as bytes: images, then labels.
    there = hashlib.sha256(kept["images"].tobytes() + kept["labels"].tobytes()).hexdigest()
    assert there == "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
    assert (to_images(held_out.inputs).numpy() * 16 == kept["images"][::5]).all()
    assert held_out.targets.tolist() == kept["labels"][::5].tolist()


@pytest.mark.parametrize(
    ("name", "told_apart_by"), [("digits", lambda batch: batch.inputs), ("dates", lambda batch: batch.targets)]
)
def test_no_held_out_example_is_trained_on(name, told_apart_by):
    def rows(batch):
        return {tuple(row.flatten().tolist()) for row in told_apart_by(batch)}

    held_out = rows(find_task(name).held_out)
    batches = find_task(name).batches(torch.Generator().manual_seed(0))
    for _, batch in zip(range(20), batches, strict=False):
        assert held_out.isdisjoint(rows(batch))


def test_digits_are_read_from_the_class_token():
    output = torch.randn(3, 17, 10)
    assert torch.equal(find_task("digits").logits(output), output[:, 0])


def test_lookups_answers_recomputed_in_plain_python():
    task, batch = find_task("lookups"), draw("lookups")
    for example, answers in zip(batch.inputs[:20].tolist(), batch.targets[:20].tolist(), strict=True):
        values = [token[0] for token in example]
        keys = [token[1] - 10 for token in example]
        queries = [token[2] - 10 - task.length for token in example]
        assert sorted(keys) == list(range(task.length))
        for i in range(task.length):
            recalled = values[keys.index(queries[i])]
            expected = [values[i - 1], values[i - 3], values[0], recalled, sum(value < 5 for value in values)]
            assert answers[i] == expected


def test_dates_say_the_same_day_twice():
    task = find_task("dates")
    batch = task.held_out
    for example, (day, notation) in enumerate(task.held_out_dates[:100]):
        source = "".join(task.source_characters[i] for i in batch.inputs[0][example]).rstrip()
        answer = "".join(task.target_characters[i] for i in batch.targets[example])
        given = "".join(task.target_characters[i] for i in batch.inputs[1][example])
        assert datetime.strptime(source, notation).date() == day
        assert answer == day.isoformat() and given == "^" + answer[:-1]
        assert batch.valid_lens[example] == len(source)


def test_a_date_is_aligned_with_the_field_that_spells_it():
    task = find_task("dates")
    notations = ["%b %d, %Y", "%m/%d/%y", "%Y/%m/%d", "%a %d %b %Y", "%d %B %Y"]
    alignment = task.alignment([(date(2024, 3, 17), notation) for notation in notations])
    spelled = {
        "Mar 17, 2024": ("2024", "Mar", "17"),
        "03/17/24": ("24", "03", "17"),
        "2024/03/17": ("2024", "03", "17"),
        "Sun 17 Mar 2024": ("2024", "Mar", "17"),
        "17 March 2024": ("2024", "March", "17"),
    }
    assert alignment.shape == (5, 10, task.source_length)
    for rows, (text, fields) in zip(alignment.tolist(), spelled.items(), strict=True):
        year, month, day = fields
        for row, field in zip(rows, [year] * 4 + [""] + [month] * 2 + [""] + [day] * 2, strict=True):
            start = text.rindex(field) if field == year and text.index(field) else text.index(field)
            expected = [start <= place < start + len(field) for place in range(task.source_length)]
            assert row == expected


def test_an_exact_match_is_what_decoding_step_by_step_gives():
    task = find_task("dates")
    batch = task.held_out[:8].to(DEVICE)
    torch.manual_seed(0)
    model = task.model().eval()
    decoded = torch.full((8, 1), task.target_characters.index("^"))
    with torch.no_grad():
        for _ in range(10):
            output = model((batch.inputs[0], decoded), batch.valid_lens)
            decoded = torch.cat([decoded, output[:, -1:].argmax(dim=-1)], dim=1)
    wanted = decoded.clone()
    wanted[:2, 7] = (wanted[:2, 7] + 1) % 10  # two of eight want another character somewhere
    answers = Batch((batch.inputs[0], wanted[:, :-1]), batch.valid_lens, wanted[:, 1:])
    assert task.exact_match(model, answers) == 6 / 8


@pytest.mark.parametrize("name", ["digits", "lookups", "dates"])
def test_rows_of_a_batch_stay_together(name):
    batch = draw(name)
    some = torch.tensor([5, 2, 40])
    for chosen in (batch[some], batch[torch.arange(64) == 7], batch[3:9]):
        assert len(chosen) == len(chosen.targets)
    parts = batch[some].inputs if name == "dates" else (batch[some].inputs,)
    wholes = batch.inputs if name == "dates" else (batch.inputs,)
    assert all(torch.equal(part, whole[[5, 2, 40]]) for part, whole in zip(parts, wholes, strict=True))
    assert torch.equal(batch[some].targets, batch.targets[[5, 2, 40]])
    if name == "dates":
        assert torch.equal(batch[some].valid_lens, batch.valid_lens[[5, 2, 40]])


@pytest.mark.parametrize("name", ["digits", "lookups", "dates"])
def test_batches_depend_on_the_generator_alone(name):
    first, again, other = draw(name, 3), draw(name, 3), draw(name, 4)
    assert torch.equal(first.targets, again.targets) and not torch.equal(first.targets, other.targets)


@pytest.mark.parametrize("name", ["digits", "lookups", "dates"])
def test_losses_and_answers_follow_the_logits(name):
    task, batch = find_task(name), draw(name)
    torch.manual_seed(0)
    output = task.model().eval()(batch.inputs, batch.valid_lens)
    logits = task.logits(output)
    probability = torch.softmax(logits, dim=-1).gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(task.losses(output, batch.targets), -probability.log())
    assert torch.equal(task.correct(output, batch.targets), logits.max(-1).indices == batch.targets)


@pytest.mark.parametrize("name", ["digits", "lookups", "dates"])
def test_every_query_and_key_has_a_label(name):
    task = find_task(name)
    torch.manual_seed(0)
    model = task.model().eval()
    held_out = task.held_out[:2].to(DEVICE)
    model(held_out.inputs, held_out.valid_lens)
    for weights, (queries, keys) in zip(model.attention_weights, task.token_labels(held_out, 0), strict=True):
        assert tuple(weights.shape[-2:]) == (len(queries), len(keys))


def test_a_query_of_the_look_ups_is_named_by_the_label_it_wants_and_a_key_by_its_own():
    batch = draw("lookups")
    for (queries, keys), example in zip(find_task("lookups").token_labels(batch, 1), (1, 1), strict=True):
        for token, query, key in zip(batch.inputs[example].tolist(), queries, keys, strict=True):
            value, own, wanted = token[0], token[1] - 10, token[2] - 22
            assert (query, key) == (f"{value} wants {wanted}", f"{value} has {own}")


@pytest.mark.parametrize("find", [find_task, shipped_model, shipped_figures, trained])
def test_an_unknown_task_is_told_the_known_ones(find):
    with pytest.raises(ValueError, match="task must be one of digits, lookups, dates, got 'digit'"):
        find("digit")
