"""What the fault of a seed would have done to a choice of heads, told when its test is written."""

import copy
from dataclasses import dataclass
from typing import Any

import torch

from mha_course.capstone.drawn import DrawnTask, drawn_model
from mha_course.capstone.faults import FAULTS, Pipeline, fault_of, made
from mha_course.capstone.measuring import Means, Plan
from mha_course.capstone.work import Work
from mha_course.checking.verdict import Page
from mha_course.checking.wording import as_sentence
from mha_course.models import Batch
from mha_course.models.training import seeded
from mha_lib import heads

REMOVED = 6  # heads, of twelve


@dataclass(frozen=True)
class Choice:
    """Hold what a pipeline chooses and says, and what is true of it by the right pipeline, in nats.

    Attributes:
        plan: the heads that go, by layer.
        largest: the largest cost of a single head that it reports.
        reported: the rise that it reports for its plan.
        true: the rise of its plan.
        cut: how much higher the loss of the model is that it cuts than with gates.
    """

    plan: Plan
    largest: float
    reported: float
    true: float
    cut: float


def harm(seed: int, work: Work | None = None) -> Page:
    """Return what the fault of a seed does to a choice of six heads by leave-one-out, beside the right pipeline.

    The choice is made on half of the calibration rows and judged on the other half, so that no test row is opened.

    Args:
        work: the drawn model of the seed; left out, it is trained again.

    Raises:
        ValueError: ``work`` is of another model.
    """
    work = drawn_model(seed) if work is None else work
    if not isinstance(work.task, DrawnTask):
        raise ValueError(f"work must be drawn_model({seed}), got {work.name}")
    fault, (right, faulty) = fault_of(seed), (choice("", work), choice(fault_of(seed), work))
    return Page("\n".join([f"Your fault: {fault}. {as_sentence(FAULTS[fault].rstrip('.'))}", *told(right, faulty)]))


def told(right: Choice, faulty: Choice) -> list[str]:
    """Say in sentences what a fault does: whether the choice changes, and whether its numbers warn of it."""
    lines = [f"The right choice: {_heads(right.plan)}. The loss rises by {_nats(right.true)} nats."]
    if faulty.plan == right.plan:
        lines.append("The fault does not change the choice. Only a test can find it.")
    else:
        lines.append(f"With the fault: {_heads(faulty.plan)}. The loss rises by {_nats(faulty.true)} nats.")
    lines += [
        f"The faulty pipeline says {_nats(faulty.reported)}.",
        f"Its largest cost of a single head is {_nats(faulty.largest)}; the right one is {_nats(right.largest)}.",
    ]
    if abs(faulty.cut) >= 0.001:
        lines.append(f"The loss of the model that it cuts is {_nats(faulty.cut)} off that with gates.")
    return lines


def choice(fault: str, work: Work) -> Choice:
    """Let a pipeline with this fault choose six heads of a drawn model; judge it by the right one."""
    p, right = made(fault, 0), made("", 0)
    model = copy.deepcopy(work.model)  # which a fault may leave in another mode
    with seeded(0):
        some, others = p.split(work.calibration, len(work.calibration) // 2)
        means = p.means(model, some)
        whole = p.losses(model, some, {}, means).mean()
        every = [(name, head) for name, mean in means.items() for head in range(len(mean))]
        alone = [p.losses(model, some, {name: [head]}, means).mean() - whole for name, head in every]
        costs = dict(zip(means, torch.stack(alone).split([len(mean) for mean in means.values()]), strict=True))
        plan = heads.of(model, some.inputs, some.valid_lens).plan(
            {name: row.round(decimals=4) for name, row in costs.items()}, remove=REMOVED
        )
        reported = _rise(p, model, others, plan, means)
        _, judging = right.split(work.calibration, len(work.calibration) // 2)
        right_means = right.means(work.model, some)
        smaller = p.cut(work.model, some, plan, right_means)
        cut = right.losses(smaller, judging, {}, right.means(smaller, some)).mean()
        gated = right.losses(work.model, judging, plan, right_means).mean()
        true = _rise(right, work.model, judging, plan, right_means)
    return Choice(plan, max(row.max().item() for row in costs.values()), reported, true, (cut - gated).item())


def _rise(p: Pipeline, model: Any, rows: Batch, plan: Plan, means: Means) -> float:
    return (p.losses(model, rows, plan, means) - p.losses(model, rows, {}, means)).mean().item()


def _heads(plan: Plan) -> str:
    return "; ".join(f"{name}: {', '.join(map(str, off))}" for name, off in plan.items() if off)


def _nats(number: float) -> str:
    return f"{round(number, 3) + 0.0:.3f}"
