"""A claim, a small model without training, a worked test of the pipeline: what several files here test with."""

import torch
from torch import nn

from mha_course import capstone
from mha_course.models import Batch
from mha_course.models.training import seeded

CLAIM = capstone.Claim(
    model="a model", remove=3, measure="greedy", instead="means", promise=0.2, baseline="layer-matched draws",
    rows="the test rows", refuted_by="a rise above 0.2",
)  # fmt: skip


def work_of(name="a model"):
    return capstone.Work(name, nn.Linear(2, 1), (torch.ones(3, 2),), (torch.zeros(5, 2),), lambda model, rows: rows[0])


def numbers(mean, spread=0.05, number=64, seed=0):
    """Numbers of exactly this mean, and about this spread."""
    noise = torch.randn(number, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return mean + spread * (noise - noise.mean())


def draws(mean, between=0.02, number=20):
    """Draws whose means differ, of as many rows."""
    means = numbers(mean, between, number, seed=1)
    return torch.stack([numbers(one, seed=5 + i) for i, one in enumerate(means)])


def answered(model, rows):
    """Rows whose right answers are those that a model gives, so that it needs its heads without any training."""
    with torch.no_grad():
        answers = model(rows.inputs, rows.valid_lens).unflatten(-1, (4, -1)).argmax(dim=-1)
    return Batch(rows.inputs, rows.valid_lens, answers)


def untrained(seed=7):
    """The model of a drawn task with large weights, and rows that are ``answered``."""
    task = capstone.DrawnTask(seed)
    with seeded(seed) as generator:
        model, rows = task.model(), task.rows(64, generator)
    with torch.no_grad():
        for weights in (model.output.parameters(), *(layer.parameters() for layer in model.attentions)):
            for weight in weights:
                weight.mul_(3)
    rows = answered(model.eval(), rows)

    def losses(model, rows):
        each = task.losses(model(rows.inputs, rows.valid_lens), rows.targets).mean(dim=2)
        return torch.stack([row[:n].mean() for row, n in zip(each, rows.valid_lens.tolist(), strict=True)])

    inputs = lambda rows: (rows.inputs, rows.valid_lens)  # noqa: E731
    return capstone.Work(f"untrained {seed}", model, rows[:32], rows[32:], losses, inputs, task)


def with_other_padding(rows):
    """The same rows with other tokens and other answers at padding."""
    padding = torch.arange(rows.inputs.shape[1]) >= rows.valid_lens[:, None]
    targets = torch.where(padding[..., None], 0, rows.targets)
    return Batch(rows.inputs.masked_fill(padding, 3), rows.valid_lens, targets)


def twice(p):
    """A test that notices only what differs from call to call."""
    means = p.means(p.model, p.rows)
    return torch.equal(*(p.losses(p.model, p.rows, {}, means) for _ in range(2)))


def worked_test(p):
    """Check each promise of the docstrings on any model."""
    some, others = p.split(p.rows, 10)
    distinct = {tuple(row) for part in (some, others) for row in part.inputs.tolist()}
    assert len(distinct) == len(p.rows), "rows in both sets"
    means = p.means(p.model, some)
    for name, same in p.means(p.model, with_other_padding(some)).items():
        assert same.allclose(means[name], atol=1e-4), "padding in the mean"
    plan = {name: [1] for name in means}
    whole, without = (p.losses(p.model, others, off, means) for off in ({}, plan))
    assert p.losses(p.model, others, {}, means).allclose(whole, atol=1e-4), "the same call twice"
    padded = p.losses(p.model, with_other_padding(others), plan, means)
    assert padded.allclose(without, atol=1e-4), "padding in the loss"
    smaller = p.cut(p.model, others, plan, means)
    cut = p.losses(smaller, others, {}, p.means(smaller, some))
    assert cut.allclose(without, atol=1e-3), "cut and gated"
