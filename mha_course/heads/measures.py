"""How important is each head of the course's models? All (model, batch, task) → (num_blocks, num_heads).

Each is a measure of ``FoundHeads`` as a table, float64; higher means more important. ``score`` is what falls without
the head: "accuracy", or "loss" for minus the loss. ``kept`` (num_blocks, num_heads), where a measure takes it, says
which heads are still there: so a measure can be taken again after each cut.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mha_course.heads.ablation import evaluate, head_grid
from mha_course.models.tasks import Batch, Task
from mha_course.models.threads import single_thread
from mha_course.models.transformer import Transformer
from mha_lib.heads import FoundHeads, of
from mha_lib.heads.importance import Importance

SCORES = ("accuracy", "loss")


def leave_one_out(
    model: Transformer, batch: Batch, task: Task, ablation: str = "zero", score: str = "accuracy",
    kept: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return how much the ``score`` of the model drops when each head alone is ablated: (num_blocks, num_heads).

    >>> model, task = models.shipped_model("lookups"), models.find_task("lookups")
    >>> leave_one_out(model, task.held_out[:32], task).shape
    torch.Size([2, 6])

    ``ablation`` is what takes its place: "zero", "mean" or "resample", the next example's output.
    """
    loss = falls(batch, task, score)
    return _table(model, batch, kept, lambda found: found.leave_one_out(loss, by=ablation))


def gate_gradient(
    model: Transformer, batch: Batch, task: Task, normalise: bool = False, kept: Tensor | None = None,
    signed: bool = False,
) -> Tensor:  # fmt: skip
    """Return each head's mean absolute gradient of the loss by its mask value ξ_h: ``E_x |∂L(x) / ∂ξ_h|`` at ξ = 1.

    Args:
        normalise: whether each block's values are divided by their ℓ2 norm (Molchanov et al. 2017).
        signed: whether it is −E_x ∂L(x) / ∂ξ_h, the first-order guess at what the head's absence costs.
    """
    loss = falls(batch, task, "loss")
    table = _table(model, batch, kept, lambda found: found.gate_gradient(loss, signed=signed))
    return torch.nn.functional.normalize(table, dim=1) if normalise else table


def integrated_gradients(
    model: Transformer, batch: Batch, task: Task, steps: int = 20, kept: Tensor | None = None, signed: bool = True
) -> Tensor:
    """Compute each head's integrated gradient as all head mask values rise from 0 to 1: −∫₀¹ ∂L / ∂ξ_h (α, …, α) dα.

    They are the Aumann–Shapley values of the gates, the Shapley values' counterpart for heads that join bit by bit:
    that the two agree is partly built in. Source: Aumann & Shapley 1974, "Values of Non-Atomic Games".
    """
    loss = falls(batch, task, "loss")
    return _table(model, batch, kept, lambda found: found.integrated_gradients(loss, signed=signed, steps=steps))


def completeness_residual(attributions: Tensor, model: Transformer, batch: Batch, task: Task) -> float:
    """Return L(no head) − L(all heads) minus the sum of integrated gradients, which is 0 if they are exact.

    If this is far from 0, too few steps were taken, and single values say little. It costs two forward passes.
    ``attributions`` must be of this model, batch and task, with all heads there.
    """
    shape = head_grid(model)
    without, whole = evaluate(model, batch, task, torch.stack([torch.zeros(shape), torch.ones(shape)])).loss
    return (without - whole - attributions.sum()).item()


def confidence(model: Transformer, batch: Batch, task: Task, leave_out: Sequence[int] = ()) -> Tensor:
    """Return each head's largest attention weight, averaged over unpadded queries: (num_blocks, num_heads).

    ``leave_out`` are positions of keys that do not count. A language model often puts much weight on position 0, an
    attention sink, and then the weight there decides the measure.
    """
    return _table(model, batch, None, lambda found: found.confidence(ignore=leave_out))


def negative_entropy(model: Transformer, batch: Batch, task: Task) -> Tensor:
    """Return each head's negative attention entropy in nats, averaged over unpadded queries."""
    return _table(model, batch, None, lambda found: found.entropy())


def output_norm(model: Transformer, batch: Batch, task: Task) -> Tensor:
    """Return the norm of each head's contribution to its layer's output, averaged over unpadded queries."""
    return _table(model, batch, None, lambda found: found.output_norm())


def monte_carlo_shapley(
    model: Transformer, batch: Batch, task: Task, num_orders: int = 50, score: str = "accuracy", seed: int = 0
) -> Tensor:
    """Estimate every head's Shapley value for accuracy or loss from ``num_orders`` random orders of the heads."""
    loss = falls(batch, task, score)
    return _table(model, batch, None, lambda found: found.shapley(loss, num_orders=num_orders, seed=seed))


def falls(batch: Batch, task: Task, score: str = "loss") -> Callable[[Transformer], Tensor]:
    """Return a loss for ``FoundHeads``: that of each example, or for "accuracy" minus the share of right answers."""
    if score not in SCORES:
        raise ValueError(f"score must be one of {', '.join(SCORES)}, got {score!r}")

    def loss(model: Transformer) -> Tensor:
        output = model(batch.inputs, batch.valid_lens)
        if score == "loss":
            return task.losses(output, batch.targets).reshape(len(batch), -1).mean(dim=1)
        return -task.correct(output, batch.targets).double().mean()  # a mean of means would round equals apart

    return loss


def _table(
    model: Transformer, batch: Batch, kept: Tensor | None, measure: Callable[[FoundHeads], Importance]
) -> Tensor:
    """The measure of all heads that are kept, as a table: 0 for the others.

    A layer of a learner's own whose heads are not found is named, with the reason, by a TypeError.
    """
    kept = torch.ones(head_grid(model)) if kept is None else kept
    if tuple(kept.shape) != head_grid(model):
        raise ValueError(f"kept must have shape {head_grid(model)}, got {tuple(kept.shape)}")
    with single_thread():
        found = of(model, batch.inputs, batch.valid_lens)
        if found.unknown:
            raise TypeError("; ".join(f"{name}: {why}" for name, why in found.unknown.items()))
        gone = {name: (row == 0).nonzero().flatten().tolist() for name, row in zip(found.layers, kept, strict=True)}
        with found.ablated(gone):
            return torch.stack(list(measure(found).values())).to(model.device)
