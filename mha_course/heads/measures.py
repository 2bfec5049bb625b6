"""A measure of ``heads.of`` on a task, as a table: what comparisons of many models call."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mha_course.heads.ablation import found_in, head_grid
from mha_course.heads.old_measures import behind
from mha_course.models.tasks import Batch, Task
from mha_course.models.threads import single_thread
from mha_course.models.transformer import Transformer

BY_LOSS = ("leave_one_out", "gate_gradient", "integrated_gradients", "shapley")

if not TYPE_CHECKING:
    __getattr__ = behind(__name__)


def measured(
    model: Transformer, batch: Batch, task: Task, measure: str, score: str = "loss", kept: Tensor | None = None,
    **options: Any,
) -> Tensor:  # fmt: skip
    """Return a measure of ``FoundHeads`` for the heads of a model on a batch: (num_blocks, num_heads), float64.

    >>> model, task = models.shipped_model("lookups"), models.find_task("lookups")
    >>> measured(model, task.held_out[:32], task, "leave_one_out", by="mean").shape
    torch.Size([2, 6])

    Args:
        measure: the name of the method, such as "gate_gradient".
        score: what ``Task.loss_on`` gives the measure, where it takes a loss.
        kept: (num_blocks, num_heads), which heads are still there; the others get 0. Left out, all are.
        options: what the method takes besides.

    Raises:
        TypeError: the heads of a layer of a learner's own are not found; the message names it, with the reason.
    """
    kept = torch.ones(head_grid(model)) if kept is None else kept
    if tuple(kept.shape) != head_grid(model):
        raise ValueError(f"kept must have shape {head_grid(model)}, got {tuple(kept.shape)}")
    given = [task.loss_on(batch, score)] if measure in BY_LOSS else []
    with single_thread():
        found = found_in(model, batch)
        gone = {name: (row == 0).nonzero().flatten().tolist() for name, row in zip(found.layers, kept, strict=True)}
        with found.ablated(gone):
            return getattr(found, measure)(*given, **options).table.to(model.device)
