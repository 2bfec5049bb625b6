"""Every measure on one trained model, beside its other signs and beside chance of its own shape."""

from collections.abc import Mapping
from functools import partial

import torch

from mha_course.heads.ablation import evaluate, evaluate_all, head_grid
from mha_course.heads.coalitions import area_under_curve, best_sets, block_mean_baseline, greedy
from mha_course.heads.controls import OF_EACH, OF_MEAN, SHAPED_DRAWS, SIGNED, beside_chance, mean_worth
from mha_course.heads.intervals import num_prunable
from mha_course.heads.kept_results import BLOCK_MEANS
from mha_course.models.tasks import Batch, Task, find_task
from mha_course.models.training import trained
from mha_course.models.transformer import Transformer
from research.league import (
    GREEDY,
    MEASURES,
    NUM_SEARCHES,
    ORACLE,
    RANDOM,
    SHAPLEY,
    Measure,
    all_importances,
    drawing_with,
    gate_gradient,
    path_gradient,
)

GRADIENTS: Mapping[str, Mapping[str, Measure]] = {  # what has a sign in every example
    "gate gradient": {SIGNED: partial(gate_gradient, signed=True), OF_EACH: gate_gradient},
    "path gradient": {SIGNED: path_gradient, OF_EACH: partial(path_gradient, signed=False)},
}
COSTS = (  # what has a sign, and is known as a mean over examples alone
    "leave one out, zero, accuracy",
    "leave one out, zero, loss",
    "leave one out, mean, loss",
    "leave one out, resample, loss",
    "Shapley, 50 orders",
    SHAPLEY,
)
PATH_STEPS = (20, 40)
RANDOM_DRAWS = 500


def controls(
    seed: int,
    task: Task | str = "lookups",
    num_examples: int = 128,
    measures: Mapping[str, Measure] = MEASURES,
    steps: int | None = None,
) -> dict:
    """Every measure on one trained model, beside its other signs and beside chance of its own shape.

    Model, examples and draws are those of ``league.compare``.

    Returns:
        What JSON can hold: ``task`` and ``seed``; ``orders``, by name, and ``forms``, of everything that has a sign, by
        name and by sign. Each has ``area``; ``num_prunable``, the mean over the orders that equals could have; where
        heads have an importance, ``spearman``, its rank correlation with exact Shapley values (of absolute values with
        absolute values); ``shaped_area``, the mean area of orders that are shuffled in their blocks, and
        ``shaped_ahead``, the share of these whose area is higher. ``negatives`` counts the heads whose signed
        importance is below 0, by name. ``path_sums`` has what path gradients add up to, by number of steps, and the
        ``due``.
    """
    task = find_task(task) if isinstance(task, str) else task
    model = trained(task, seed, steps, progress=False)
    seen, rest = task.held_out[:num_examples], task.held_out[num_examples : 2 * num_examples]
    table, values = (evaluate_all(model, batch, task).accuracy for batch in (rest, seen))
    importances = all_importances(model, seen, task, values, drawing_with(seed, measures), seed)
    fair = importances[SHAPLEY]
    best = table[best_sets(table)]
    orders = {
        ORACLE: {"area": area_under_curve(best), "num_prunable": float(num_prunable(best))},
        GREEDY: mean_worth(table, [greedy(values, search) for search in range(NUM_SEARCHES)]),
        BLOCK_MEANS: mean_worth(table, [block_mean_baseline(fair)], draws=SHAPED_DRAWS),
        RANDOM: mean_worth(table, [torch.zeros_like(fair)], draws=RANDOM_DRAWS),
    }
    forms = {name: {SIGNED: importances[name]} for name in COSTS if name in importances}
    for name, by_sign in GRADIENTS.items():
        forms[name] = {form: measure(model, seen, task) for form, measure in by_sign.items()}
    unsigned = {name: importance for name, importance in importances.items() if name not in (*forms, GREEDY)}
    orders |= {name: beside_chance(table, importance, fair) for name, importance in unsigned.items()}
    return {
        "task": task.name,
        "seed": seed,
        "orders": orders,
        "forms": {
            name: {
                form: beside_chance(table, importance, fair if form == SIGNED else fair.abs())
                for form, importance in (by_sign | {OF_MEAN: by_sign[SIGNED].abs()}).items()
            }
            for name, by_sign in forms.items()
        },
        "negatives": {name: int((by_sign[SIGNED] < 0).sum()) for name, by_sign in forms.items()},
        "path_sums": path_sums(model, seen, task),
    }


def path_sums(model: Transformer, batch: Batch, task: Task) -> dict[str, float]:
    """What path gradients add up to with each of two grids, and what is due: L(no head) − L(all heads)."""
    paths = {steps: path_gradient(model, batch, task, steps=steps) for steps in PATH_STEPS}
    ends = torch.zeros(2, *head_grid(model))
    ends[1] = 1
    without, whole = evaluate(model, batch, task, ends).loss
    return {"due": (without - whole).item()} | {str(steps): path.sum().item() for steps, path in paths.items()}
