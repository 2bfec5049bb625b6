"""How heads depend on each other: redundant pairs, and later heads without an earlier one."""

from itertools import combinations

import torch
from torch import Tensor

from mha_course.heads.ablation import eval_mode, evaluate, found_in, head_grid, patch_heads
from mha_course.models.tasks import Batch, Task
from mha_course.models.transformer import Transformer

__all__ = ["frozen_downstream_costs", "most_redundant_pair"]


def most_redundant_pair(model: Transformer, batch: Batch, task: Task, block: int = 0) -> dict:
    """Find the two heads of ``block`` whose joint ablation costs most accuracy beyond the sum of their single costs.

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
    """Return how much ablating each head of ``block`` raises the loss, with later heads recomputed and with them fixed.

    The costs ``free`` and ``frozen`` are (num_heads,), float64. Frozen heads say what they say with all heads there.
    Where ``frozen`` costs more than ``free``, later heads make up for part of what is missing (self-repair); where it
    costs less, they carry the damage on.

    Source: McGrath et al. 2023, "The Hydra Effect"; Rushing & Nanda 2024, "Explorations of Self-Repair".
    """
    shape = head_grid(model)
    said = [*found_in(model, batch).outputs().values()]
    frozen = torch.ones(shape, device=model.device)
    frozen[block + 1 :] = 0
    gates = torch.ones(1 + shape[1], *shape, device=model.device)
    gates[1:, block] -= torch.eye(shape[1], device=gates.device)

    def costs() -> Tensor:
        with torch.no_grad(), eval_mode(model):
            outputs = [model(batch.inputs, batch.valid_lens, gate) for gate in gates]
        losses = torch.stack([task.losses(output, batch.targets).double().mean() for output in outputs])
        return losses[1:] - losses[0]

    free = costs()
    with patch_heads(model, said, frozen):
        return {"free": free, "frozen": costs()}
