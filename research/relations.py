"""What heads of one small model are to each other, and how far its exact Shapley values agree with each other.

Exact Shapley values differ where another score or another ablation defines them.
"""

from collections.abc import Mapping

from torch import Tensor

from mha_course.heads.ablation import evaluate_all, head_grid
from mha_course.heads.coalitions import block_baseline_correlation, shapley, spearman
from mha_course.heads.interactions import frozen_downstream_costs, most_redundant_pair
from mha_course.models.tasks import Batch, Task, find_task
from mha_course.models.training import trained
from mha_course.models.transformer import Transformer
from mha_lib.heads.gated_heads import ABLATIONS
from research import league
from research.league import Measure

MEASURES: Mapping[str, Measure] = {
    "leave one out": league.MEASURES["leave one out, zero, accuracy"],
    **{
        name: league.MEASURES[name]
        for name in ("gate gradient", "path gradient", "confidence", "minus entropy", "output norm")
    },
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
