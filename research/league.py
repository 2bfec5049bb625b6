"""What is each measure of importance good for? All of them, on small models of which every set of heads can be tried.

Each is held against two things, over as many seeds as you like: the exact Shapley values of the accuracy, where heads
that are gone give zeros (one reference of several that one could take), and the accuracy that is left after cuts.

This script asks it in two processes of one machine, as ``mha_course.heads.seeds`` says:

    from mha_course.heads import sweep
    from research.league import compare, summarise

    if __name__ == "__main__":
        results = sweep(compare, seeds=range(30))
        print(summarise(results))
"""

import copy
import inspect
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from mha_course.heads.ablation import ablation_values, evaluate, evaluate_all, head_grid
from mha_course.heads.coalitions import (
    area_under_curve,
    best_sets,
    block_baseline_correlation,
    greedy,
    mean_ranks,
    pruning_curve,
    random_pruning_curve,
    ranks,
    set_members,
    shapley,
    spearman,
    top_k_sets,
    worst_sets,
)
from mha_course.heads.measures import measured
from mha_course.heads.planted_heads import HeadIndex, Planted, plant_heads
from mha_course.heads.removal import prune
from mha_course.models.tasks import Batch, Task, find_task
from mha_course.models.training import finetune, trained
from mha_course.models.transformer import Transformer
from research.learned_gates import hard_concrete

Measure = Callable[[Transformer, Batch, Task], Tensor]
RepeatableMeasure = Callable[..., Tensor]  # a measure that takes ``kept``, too

leave_one_out = partial(measured, measure="leave_one_out", score="accuracy")
gate_gradient = partial(measured, measure="gate_gradient", signed=False)
path_gradient = partial(measured, measure="integrated_gradients")


def sampled_shapley(model: Transformer, batch: Batch, task: Task, num_orders: int = 50, seed: int = 0) -> Tensor:
    """Shapley values of the accuracy, from random orders of the heads."""
    return measured(model, batch, task, "shapley", "accuracy", num_orders=num_orders, seed=seed)


MEASURES: Mapping[str, Measure] = {
    "leave one out, zero, accuracy": leave_one_out,
    "leave one out, zero, loss": partial(leave_one_out, score="loss"),
    "leave one out, mean, loss": partial(leave_one_out, by="mean", score="loss"),
    "leave one out, resample, loss": partial(leave_one_out, by="resample", score="loss"),
    "gate gradient": gate_gradient,
    "gate gradient, normalised": lambda *of: torch.nn.functional.normalize(gate_gradient(*of), dim=1),
    "path gradient": path_gradient,
    "confidence": partial(measured, measure="confidence"),
    "minus entropy": partial(measured, measure="entropy"),
    "output norm": partial(measured, measure="output_norm"),
    "hard-concrete gates": hard_concrete,
    "Shapley, 50 orders": sampled_shapley,
}
# By ``iterative_importance``, after every cut.
ITERATIVE = "leave one out, zero, loss", "gate gradient", "path gradient"
SHAPLEY, GREEDY, ORACLE, RANDOM, WORST = "Shapley, exact", "greedy", "oracle", "random", "worst"
NUM_SEARCHES = 100  # searches over which the greedy order is averaged: they differ where several heads cost least

# Training draws from torch's one generator and sets its one number of threads: within a process, runs take turns.
_turn = threading.Lock()


def compare(
    seed: int,
    task: Task | str = "lookups",
    num_kept: int = 5,
    tuning_steps: int | None = 300,
    longer_tuning_steps: int | None = 600,
    num_examples: int = 128,
    measures: Mapping[str, Measure] = MEASURES,
    steps: int | None = None,
) -> dict:
    """Every measure on one trained model: how it agrees with exact Shapley values, and what is left after its cuts.

    Measures, exact Shapley values and the greedy order see the first ``num_examples`` held-out examples. Curves are of
    the next ones; oracle and worst are the best and the worst sets there, so every curve lies between them.

    Heads of equal importance have no order: ``curve`` is the mean over all orders in which they could stand (for the
    greedy order, over NUM_SEARCHES searches), and the one cut that is followed by training is drawn with ``seed``, as
    is all that a measure draws.

    Args:
        task: a task, or the name of one of this library.
        num_kept: number of heads kept in the cut that is followed by more training.
        tuning_steps: number of steps of that training, which takes longest of all; None leaves it out.
        longer_tuning_steps: number of steps of a second, longer training after the same cut; None leaves it out.
        steps: number of steps that the model itself is trained for; left out, the task's own.

    Returns:
        What JSON can hold: ``task``, ``seed``, and ``orders``, for each order of heads by name:
        ``curve`` (accuracy with 0, 1, …, N heads kept) and ``area`` (its mean);
        ``kept``, ``tuned`` and ``tuned_longer`` (accuracy with ``num_kept`` heads on all examples but the first ones,
        before and after tuning); where each head has an importance, ``sum`` (of all of them; of exact Shapley values,
        what all heads together add to the accuracy), ``spearman`` (rank correlation with the exact Shapley value) and
        ``tied`` (the number of heads whose importance another head has, too);
        ``training_area``, for measures: the area where they saw training data instead.
        And ``block_alone``: the rank correlation of exact Shapley values with a guess that gives every head the mean of
        its block.
    """
    task = find_task(task) if isinstance(task, str) else task
    measures = drawing_with(seed, measures)
    with _turn:
        model = trained(task, seed, steps, progress=False)
        seen, rest = task.held_out[:num_examples], task.held_out[num_examples:]
        table = evaluate_all(model, rest[:num_examples], task).accuracy
        values = evaluate_all(model, seen, task).accuracy
        searches = [greedy(values, search) for search in range(NUM_SEARCHES)]
        importances = all_importances(model, seen, task, values, measures, seed)
        curves = {name: pruning_curve(table, importance) for name, importance in importances.items()}
        curves[GREEDY] = torch.stack([pruning_curve(table, search) for search in searches]).mean(dim=0)
        sets = {name: top_k_sets(importance, seed) for name, importance in importances.items()}
        extremes = {ORACLE: best_sets(table), WORST: worst_sets(table)}
        curves |= {name: table[numbers] for name, numbers in extremes.items()} | {RANDOM: random_pruning_curve(table)}
        cuts = {name: int(numbers[num_kept]) for name, numbers in (sets | extremes).items()}
        cuts[RANDOM] = random_set(model, num_kept, seed)
        wanted = {"kept": 0, "tuned": tuning_steps, "tuned_longer": longer_tuning_steps}
        budgets = {name: budget for name, budget in wanted.items() if budget is not None}
        outcomes = {
            cut: {name: after_cut(model, rest, task, cut, seed, budget) for name, budget in budgets.items()}
            for cut in set(cuts.values())
        }
        orders: dict[str, dict] = {}
        for name, curve in curves.items():
            orders[name] = {"curve": curve.tolist(), "area": area_under_curve(curve)} | outcomes[cuts[name]]
        for name, importance in importances.items():
            orders[name]["sum"] = importance.sum().item()
            orders[name]["spearman"] = spearman(importance, importances[SHAPLEY])
            orders[name]["tied"] = num_ties(importance)
        agreements = [spearman(search, importances[SHAPLEY]) for search in searches]
        orders[GREEDY]["spearman"] = sum(agreements) / len(agreements)
        training = training_data(task, seed, num_examples)
        for name, measure in measures.items():
            orders[name]["training_area"] = area_under_curve(pruning_curve(table, measure(model, training, task)))
        fair = importances[SHAPLEY]
        return {
            "task": task.name,
            "seed": seed,
            "orders": orders,
            "block_alone": block_baseline_correlation(fair),
        }


def summarise(results: Sequence[dict], enough: float = 0.98) -> dict[str, dict[str, float]]:
    """What ``compare`` found over several seeds: for each order of heads, the best area first.

    Returns:
        By name of the order: ``area``, ``spearman``, ``kept``, ``tuned``, ``tuned_longer``, ``training_area`` are means
        over the seeds that have one (NaN where none has); ``area_sd`` the standard deviation (NaN for one seed);
        ``spearman_worst``, ``tuned_worst`` and ``tuned_longer_worst`` the lowest; ``tuned_enough`` and
        ``tuned_longer_enough`` the number of seeds in which the accuracy is at least ``enough``, ``num_tuned`` that of
        seeds that were tuned.

    Raises:
        ValueError: there are no results.
    """
    if not results:
        raise ValueError("results must hold what compare found for one seed or more, got none")
    rows = {}
    for name in results[0]["orders"]:
        columns = {
            key: torch.tensor(
                [order[key] for result in results if key in (order := result["orders"][name])], dtype=torch.float64
            )
            for key in ("area", "spearman", "kept", "tuned", "tuned_longer", "training_area")
        }
        rows[name] = {key: column.mean().item() for key, column in columns.items()}
        rows[name]["area_sd"] = columns["area"].std().item() if len(results) > 1 else math.nan
        rows[name]["num_tuned"] = len(columns["tuned"])
        for key in ("spearman", "tuned", "tuned_longer"):
            rows[name][f"{key}_worst"] = min(columns[key].tolist(), default=math.nan)
        for key in ("tuned", "tuned_longer"):
            rows[name][f"{key}_enough"] = (columns[key] >= enough).sum().item()
    return dict(sorted(rows.items(), key=lambda item: -item[1]["area"]))


def all_importances(
    model: Transformer, batch: Batch, task: Task, values: Tensor, measures: Mapping[str, Measure], seed: int
) -> dict[str, Tensor]:
    """By name: exact Shapley values, a greedy order, each measure, and those of ITERATIVE also after every cut.

    Args:
        values: accuracy of every set of heads on ``batch``, as from ``evaluate_all``.
        seed: draws the order of equals in orders of cuts.
    """
    shape = head_grid(model)
    importances = {SHAPLEY: shapley(values).view(shape), GREEDY: greedy(values, seed).view(shape)}
    for name, measure in measures.items():
        importances[name] = measure(model, batch, task)
        if name in ITERATIVE and takes("kept", measure):
            importances[f"{name}, taken again"] = iterative_importance(measure, model, batch, task, seed)
    return importances


def iterative_importance(
    measure: RepeatableMeasure, model: Transformer, batch: Batch, task: Task, seed: int = 0
) -> Tensor:
    """Importance as an order of cuts: measure, cut the least important head, measure what is left, and so on.

    It is (num_blocks, num_heads), 0 for the head that went first, N − 1 for the one that was left. ``seed`` draws the
    head that goes where several are least important.

    Raises:
        TypeError: the measure does not take ``kept``.
    """
    if not takes("kept", measure):
        name = getattr(measure, "__name__", measure)
        raise TypeError(f"measure must take kept, the heads that are still there; {name} does not")
    kept = torch.ones(head_grid(model), dtype=torch.float64, device=model.device)
    importance = torch.zeros_like(kept)
    for turn in range(kept.numel()):
        left = measure(model, batch, task, kept=kept).masked_fill(kept == 0, torch.inf)
        gone = ranks(left, seed).argmax()  # heads that are gone already rank first
        importance.view(-1)[gone], kept.view(-1)[gone] = turn, 0
    return importance


def drawing_with(seed: int, measures: Mapping[str, Callable[..., Tensor]]) -> dict[str, Measure]:
    """The same measures by name; those that draw, and so take ``seed``, get this one."""
    return {
        name: partial(measure, seed=seed) if takes("seed", measure) else measure for name, measure in measures.items()
    }


def takes(argument: str, measure: Callable) -> bool:
    """Whether a measure can be told this: "kept", which heads are still there; or "seed", where its draws come from."""
    return argument in inspect.signature(measure).parameters


def num_ties(importance: Tensor) -> int:
    """How many heads have an importance that another head has, too."""
    _, counts = importance.unique(return_counts=True)
    return int(counts[counts > 1].sum())


def after_cut(model: Transformer, batch: Batch, task: Task, kept: int, seed: int, steps: int) -> float:
    """Accuracy with only the heads of set number ``kept``, after training what is left for ``steps`` steps."""
    shape = head_grid(model)
    heads = set_members(torch.tensor(kept), shape[0] * shape[1]).view(shape)
    pruned = prune(model, remove=~heads)
    return task.accuracy(finetune(pruned, task, seed, steps, progress=False) if steps else pruned, batch)


def random_set(model: Transformer, num_kept: int, seed: int) -> int:
    """Number of a random set of heads: what an importance that tells no heads apart would keep."""
    return int(top_k_sets(torch.zeros(head_grid(model)), seed)[num_kept])


def training_data(task: Task, seed: int, num_examples: int) -> Batch:
    """Examples from the data that models are trained on."""
    task = copy.copy(task)
    task.batch_size = num_examples
    return next(task.batches(torch.Generator().manual_seed(seed)))


def planted_controls(
    seed: int,
    num_examples: int = 128,
    measures: Mapping[str, Measure] = MEASURES,
    steps: int | None = None,
) -> dict:
    """Heads that were planted (``planted_heads``) in a model of the look-ups, and how each measure ranks them.

    Training, the planted heads and all that a measure draws come from ``seed``.

    Returns:
        What JSON can hold: ``seed``; ``change``, the largest difference that planting made to an output; ``costs``, the
        accuracy that is lost without a planted head, or without both of a pair; ``ranks``, for each measure the places
        of each control among all heads, from 1, the most important; equals share the mean of their places.
    """
    measures = drawing_with(seed, measures)
    with _turn:
        task = find_task("lookups")
        model = trained(task, seed, steps, progress=False)
        batch = task.held_out[:num_examples]
        planted = plant_heads(model, batch, task, seed)
        with torch.no_grad():
            change = (model(batch.inputs) - planted.model(batch.inputs)).abs().max().item()
        importances = {name: measure(planted.model, batch, task) for name, measure in measures.items()}
        return {
            "seed": seed,
            "change": change,
            "costs": costs(planted, batch, task),
            "ranks": {name: places_of(planted, importance) for name, importance in importances.items()},
        }


def costs(planted: Planted, batch: Batch, task: Task) -> dict[str, float]:
    """Accuracy lost without planted heads (put to zero, but for "constant, mean")."""
    gone: dict[str, tuple[HeadIndex, ...]] = {}
    for name, places in planted.controls.items():
        if len(places) == 1:
            gone[name] = places
        else:
            gone |= {f"{name}, one": places[:1], f"{name}, other": places[1:], f"{name}, both": places}
    found = {name: _cost(planted.model, batch, task, places, "zero") for name, places in gone.items()}
    return found | {"constant, mean": _cost(planted.model, batch, task, [planted.constant], "mean")}


def places_of(planted: Planted, importance: Tensor) -> dict[str, list[float]]:
    """Places of the planted heads in the order of importance, from 1; equals share the mean of their places."""
    rank = mean_ranks(importance)
    return {name: [rank[place].item() for place in places] for name, places in planted.controls.items()}


def _cost(model: Transformer, batch: Batch, task: Task, places: Iterable[HeadIndex], ablation: str) -> float:
    gates = torch.ones(2, *head_grid(model))
    for place in places:
        gates[1][place] = 0
    with_all, without = evaluate(model, batch, task, gates, ablation_values(model, batch, ablation)).accuracy
    return (with_all - without).item()
