"""What heads are to each other: natural twins, what later heads do when an earlier one goes, and who agrees in a block.

And how far exact Shapley values agree with each other, if another score or another ablation defines them.
``interaction_report`` asks all this of one small model, so that ``sweep`` can ask it of many.
"""

from collections.abc import Callable, Collection, Mapping
from itertools import combinations

import torch
from torch import Tensor

from mha_lib.heads.ablation import (
    ABLATIONS,
    constant_patch,
    eval_mode,
    evaluate,
    evaluate_all,
    head_grid,
    head_outputs,
    hook_heads,
    patch_heads,
)
from mha_lib.heads.coalitions import block_baseline_correlation, shapley, spearman
from mha_lib.heads.measures import (
    confidence,
    gate_gradient,
    integrated_gradients,
    leave_one_out,
    negative_entropy,
    output_norm,
)
from mha_lib.models.tasks import Batch, Task, find_task
from mha_lib.models.training import trained
from mha_lib.models.transformer import Transformer

MEASURES: Mapping[str, Callable[..., Tensor]] = {
    "leave one out": leave_one_out,
    "gate gradient": gate_gradient,
    "path gradient": integrated_gradients,
    "confidence": confidence,
    "minus entropy": negative_entropy,
    "output norm": output_norm,
}


def most_redundant_pair(model: Transformer, batch: Batch, task: Task, block: int = 0) -> dict:
    """The two heads of a block whose single costs say least about what both cost together, in accuracy.

    Returns their numbers, ``heads``; what each costs ``alone``; and what both cost ``together``.
    """
    shape = head_grid(model)
    groups = [*combinations(range(shape[1]), 1), *combinations(range(shape[1]), 2)]
    gates = torch.ones(1 + len(groups), *shape)
    for gate, gone in zip(gates[1:], groups, strict=True):
        gate[block, list(gone)] = 0
    accuracy = evaluate(model, batch, task, gates).accuracy
    costs = dict(zip(groups, (accuracy[0] - accuracy[1:]).tolist(), strict=True))
    one, other = max(groups[shape[1] :], key=lambda pair: costs[pair] - costs[pair[:1]] - costs[pair[1:]])
    alone = [costs[one,], costs[other,]]
    return {"heads": [one, other], "alone": alone, "together": costs[one, other]}


def frozen_downstream_costs(model: Transformer, batch: Batch, task: Task, block: int = 0) -> dict[str, Tensor]:
    """What each head of a block costs, in nats, while later heads may react to its absence, and while they are frozen.

    The costs ``free`` and ``frozen`` are (num_heads,), float64. Frozen heads say what they say with all heads there.
    Where ``frozen`` costs more than ``free``, later heads make up for part of what is missing (self-repair); where it
    costs less, they carry the damage on.

    Source: McGrath et al. 2023, "The Hydra Effect"; Rushing & Nanda 2024, "Explorations of Self-Repair".
    """
    shape = head_grid(model)
    said = head_outputs(model, batch)[block + 1 :]
    later = model.attentions[block + 1 :]
    gates = torch.ones(1 + shape[1], *shape, device=model.device)
    gates[1:, block] -= torch.eye(shape[1], device=gates.device)

    def costs() -> Tensor:
        with torch.no_grad(), eval_mode(model):
            outputs = [model(batch.inputs, batch.valid_lens, gate) for gate in gates]
        losses = torch.stack([task.losses(output, batch.targets).double().mean() for output in outputs])
        return losses[1:] - losses[0]

    free = costs()
    with hook_heads(later, [constant_patch(kept) for kept in said]):
        return {"free": free, "frozen": costs()}


def direct_effects(
    model: Transformer, batch: Batch, task: Task, head: tuple[int, int], listeners: Collection[tuple[int, int]]
) -> dict[str, Tensor]:
    """Who hears a head? The loss of every answer, in nats, where only some later heads hear of its absence, or all but.

    Each is as ``batch.targets``: ``whole``, of the model as it is; ``cut``, without the head; ``frozen``, without it,
    but the listeners say what they say with it; ``misled``, with it, but the listeners say what they say without it.
    If these listeners are all who hear the head, ``frozen`` is as low as ``whole``, and ``misled`` as high as ``cut``.

    Args:
        head: (block, head).
        listeners: (block, head) of later ones.
    """
    gone = torch.ones(head_grid(model), device=model.device)
    gone[head] = 0
    with_it, without_it = (head_outputs(model, batch, mask) for mask in (None, gone))

    def losses(mask: Tensor | None, words: list[Tensor], places: Collection[tuple[int, int]]) -> Tensor:
        with torch.no_grad(), eval_mode(model), patch_heads(model, words, places):
            return task.losses(model(batch.inputs, batch.valid_lens, mask), batch.targets)

    return {
        "whole": losses(None, with_it, ()),
        "cut": losses(gone, with_it, ()),
        "frozen": losses(gone, with_it, listeners),
        "misled": losses(None, without_it, listeners),
    }


def agreement_within(importances: Mapping[str, Tensor], reference: Tensor) -> dict[str, list[float]]:
    """For each measure, its rank correlation with the reference among the heads of each block alone."""
    return {
        name: [spearman(*rows) for rows in zip(importance, reference, strict=True)]
        for name, importance in importances.items()
    }


def exact_references(model: Transformer, batch: Batch, task: Task) -> dict[str, Tensor]:
    """Six exact Shapley values of every head: of accuracy and of minus the loss, for three meanings of "gone".

    They are (num_blocks, num_heads), float64, by score and ablation, as in "loss, mean".
    """
    references = {}
    for ablation in ABLATIONS:
        scores = evaluate_all(model, batch, task, ablation)
        for score, values in (("accuracy", scores.accuracy), ("loss", -scores.loss)):
            references[f"{score}, {ablation}"] = shapley(values).view(head_grid(model))
    return references


def interaction_report(
    seed: int, task: Task | str = "lookups", num_examples: int = 128, steps: int | None = None
) -> dict:
    """All of this about one trained model, in a form that JSON can hold.

    It holds ``seed``; ``twins`` and ``later``, of the first block; and rank correlations with exact Shapley values of
    accuracy and zeros: ``across`` all heads and ``within`` each block, for each measure; ``block_alone``, of a guess
    that knows only the blocks; ``references``, of the five other exact ones.
    """
    task = find_task(task) if isinstance(task, str) else task
    model = trained(task, seed, steps, progress=False)
    seen = task.held_out[:num_examples]
    references = exact_references(model, seen, task)
    fair = references.pop("accuracy, zero")
    importances = {name: measure(model, seen, task) for name, measure in MEASURES.items()}
    frozen = frozen_downstream_costs(model, seen, task)
    return {
        "seed": seed,
        "twins": most_redundant_pair(model, seen, task),
        "later": {name: costs.tolist() for name, costs in frozen.items()},
        "across": {name: spearman(importance, fair) for name, importance in importances.items()},
        "within": agreement_within(importances, fair),
        "block_alone": block_baseline_correlation(fair),
        "references": {name: spearman(reference, fair) for name, reference in references.items()},
    }
