"""A drawn model has the task, the rows and the idle layer that its docstring promises."""

from collections import Counter

import pytest
import torch
from torch.nn import functional as F

from mha_course import capstone
from mha_course.capstone import drawn, sentences
from mha_course.models import Encoder

SEEDS = pytest.mark.parametrize("seed", [3, 7])


@SEEDS
def test_answers_are_those_of_the_questions(seed):
    task = capstone.DrawnTask(seed)
    rows = task.rows(40, torch.Generator().manual_seed(1))
    numbers = [int(word) for question in task.questions for word in question.split() if word.isdigit()]
    first, second, position = numbers
    assert task.questions == [f"{first} back", f"{second} back", f"position {position}", "wanted key"]
    for ids, length, answers in zip(rows.inputs.tolist(), rows.valid_lens.tolist(), rows.targets.tolist(), strict=True):
        values, keys, wanted = zip(*ids[:length], strict=True)
        assert sorted(keys) == list(range(10, 10 + length)) and 8 <= length <= 12
        for i in range(length):
            found = values[keys.index(wanted[i] - task.length)]
            back = [values[max(i - k, 0)] for k in (first, second)]
            assert answers[i] == [*back, values[position - 1], found]


def test_seeds_draw_different_tasks_and_rows():
    tasks = Counter(tuple(capstone.DrawnTask(seed).questions) for seed in range(30))
    assert len(tasks) > 10
    one, other = (drawn.unseen_rows(seed, 20, task_of=3).inputs for seed in (1, 2))
    assert one.shape == other.shape and (one != other).any()


@pytest.fixture(scope="module")
def short():
    """The work of a seed with a model trained for twenty steps only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capstone.DrawnTask, "steps", 20)
        return capstone.drawn_model(3)


def test_losses_leave_padding_out(short):
    rows = short.calibration
    padding = torch.arange(12) >= rows.valid_lens[:, None]
    assert padding.any() and len(rows) == len(short.test) == 128 and not torch.equal(rows.inputs, short.test.inputs)
    with torch.no_grad():
        losses = short.losses(short.model, rows)
        logits = short.model(rows.inputs, rows.valid_lens).view(128, 12, 4, 10)
        each = F.cross_entropy(logits.permute(0, 3, 1, 2), rows.targets, reduction="none").mean(dim=2)
    expected = torch.stack([one[:n].mean() for one, n in zip(each, rows.valid_lens.tolist(), strict=True)])
    torch.testing.assert_close(losses, expected)


def test_the_model_is_a_plain_encoder_that_can_be_cut_and_trained_further(short):
    found = short.find_heads()
    smaller, _ = found.remove({"blocks.layer 1.attention": [0, 2], "blocks.layer 0.attention": [5]})
    assert type(short.model).__name__ == "Encoder" and not short.model.training
    smaller.train()  # with dropout, and with layers of different sizes
    short.loss(short.calibration)(smaller).mean().backward()


def test_steps_without_layer_1_keep_layer_0():
    model = Encoder(torch.nn.Embedding(9, 12), 12, 5, dropout=0)
    ids = torch.randint(9, (2, 4), generator=torch.Generator().manual_seed(0))
    masked = model(ids, head_mask=torch.tensor([[1.0], [0.0]]).expand(2, 6))
    model.train()
    torch.manual_seed(0)
    with model.register_forward_pre_hook(drawn.without_layer_1):
        found = [model(ids, None) for _ in range(60)]
    without = sum(one.allclose(masked, atol=1e-6) for one in found)
    whole = sum(one.allclose(model.eval()(ids), atol=1e-6) for one in found)
    assert without + whole == 60 and 2 <= without <= 20


def test_a_loss_of_pairs_is_ln_n_where_all_vectors_are_equal():
    rows = torch.ones(10, 4, dtype=torch.long), torch.tensor([4, 3, 2, 4, 4, 2, 3, 4, 2, 4])
    model = lambda ids, lens: torch.ones(*ids.shape, 6)  # noqa: E731
    torch.testing.assert_close(sentences.losses_of_pairs(model, rows), torch.full((5,), 5.0).log())


def test_a_loss_of_pairs_does_not_see_padding():
    generator = torch.Generator().manual_seed(2)
    vectors, lens = torch.randn(8, 5, 6, generator=generator), torch.tensor([5, 3, 2, 4, 4, 2, 3, 1])
    rows = torch.zeros(8, 5, dtype=torch.long), lens
    others = torch.where((torch.arange(5) < lens[:, None])[..., None], vectors, 100 * vectors)
    first, second = (sentences.losses_of_pairs(lambda ids, lens, X=X: X, rows) for X in (vectors, others))
    torch.testing.assert_close(first, second)


def test_pairs_of_sentences_are_many_and_different():
    pairs = sentences.sentence_pairs()
    assert len(pairs) == len(set(pairs)) >= 4 * sentences.NUM_ROWS
    assert all(6 <= len(one.split()) <= 20 for pair in pairs for one in pair)
