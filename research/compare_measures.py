"""Every measure of a head's importance on small models, over thirty seeds: ``python -m research.compare_measures``.

Takes hours of CPU time, on two processes. Writes heads.json into the library, where notebooks read it, and the same as
tables, compare_measures.md. Each seed is written as soon as it is done, and nothing that stands there is run again:
delete the file to measure anew. Training after a cut, which takes longest, is done for the first eight seeds. Times are
not in the files, so that another run on one machine changes nothing.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from statistics import median

import torch

from benchmarks.report import markdown
from mha_course.heads.intervals import mean_and_ci95
from mha_course.heads.seeds import sweep
from research.kept import kept_file, rounded, write_compact, write_report
from research.league import MEASURES, compare, planted_controls, summarise
from research.relations import interaction_report
from research.signs import controls

SEEDS, TUNED_SEEDS = range(30), range(8)
RESULTS = kept_file("heads")
ENOUGH = 0.98
TASKS = {
    "lookups": "Look-ups (2 layers of 6 heads)",
    "dates": "Dates (encoder, decoder and cross-attention, 4 heads each)",
}
HEAD = ("order of heads", "area ± sd", "Spearman (lowest)", "5 kept", "tuned (lowest)", f"≥ {ENOUGH}",
        "tuned longer (lowest)", f"≥ {ENOUGH}", "area, training data")  # fmt: skip


def measured(seed: int, task: str) -> dict:
    """What ``compare`` says, with training after cuts for some seeds."""
    steps: dict = {} if seed in TUNED_SEEDS else {"tuning_steps": None, "longer_tuning_steps": None}
    return compare(seed, task, **steps)


RUNS: dict[str, Callable[..., dict]] = {  # what is run for every seed
    "company": interaction_report,
    "planted": planted_controls,
    **{name: partial(measured, task=name) for name in TASKS},
    **{f"controls, {name}": partial(controls, task=name) for name in TASKS},
}


def main() -> None:
    """Measure what is missing, keeping each seed as it comes, and write the report."""
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    complete(results)
    write_report(__file__, report(results))


def complete(results: dict[str, list[dict]], executor: Executor | None = None) -> None:
    """Measure the missing seeds; write each as it comes."""
    for part in RUNS:
        found = {result["seed"]: result for result in results.get(part, [])}

        def keep(seed: int, result: dict, part: str = part, found: dict = found) -> None:
            found[seed] = result
            results[part] = [found[seed] for seed in sorted(found)]
            write_compact(RESULTS, results)
            print(f"{part}: seed {seed}", file=sys.stderr, flush=True)

        sweep(partial(kept_digits, part=part), [seed for seed in SEEDS if seed not in found], executor, keep)


def kept_digits(seed: int, part: str) -> dict:
    """The results of one seed, with more digits than examples can tell apart; small differences stay as they are."""
    return rounded(RUNS[part](seed), 4, small=1e-3)


def report(results: Mapping[str, Sequence[dict]]) -> str:
    """All results as tables in Markdown."""
    seeds = f"seeds {SEEDS[0]}–{SEEDS[-1]}"
    parts = [f"# What measures of a head's importance are worth, {seeds}", EXPLANATION]
    for name, caption in TASKS.items():
        parts += [f"## {caption}", markdown(HEAD, [row(*item) for item in summarise(results[name], ENOUGH).items()])]
        parts += [what_blocks_tell(results[name]), CONTROLS, table_of_controls(results[f"controls, {name}"])]
    planted = results["planted"]
    change = max(result["change"] for result in planted)
    parts += ["## Planted controls", f"Largest change of an output by planting: {change:.0e}.", table_of_costs(planted)]
    parts += ["Median rank among 18 heads, 1 being the most important; equals share the mean of theirs:"]
    parts += [table_of_ranks(planted)]
    return "\n\n".join(parts) + "\n"


EXPLANATION = """\
*Area*: accuracy, averaged over 0 to 12 heads kept in that order. *Spearman*: rank correlation with the exact Shapley
value of the accuracy, where absent heads give zeros: one reference of several. *5 kept*, *tuned*, *tuned longer*:
accuracy with the best five heads, before and after 300 and 600 steps of training, which the first eight models had.
*Lowest* is over the seeds, as is the count of those whose five heads tune back to at least 0.98. *Training data*: the
area where the measure saw training data instead of held-out data. Heads of equal importance have no order: areas are
means over all orders that they could have (of the greedy search: over 100 searches), and which five heads are kept is
drawn. All that a measure draws, and which heads are planted, comes from the model's own seed."""


CONTROLS = """\
Beside chance, and by sign. *Can go*: heads that can be cut before more than one answer in a hundred is lost, counted
order by order. *Own shape*: orders that cut as many heads of each block at every size. In brackets: 95 % intervals over
the seeds. Rank correlations are with exact Shapley values; those of absolute values with their absolute values."""


def table_of_controls(results: Sequence[dict]) -> str:
    """Areas against random orders and against orders of the same shape, by measure and sign."""
    rows = {name: [result["orders"][name] for result in results] for name in results[0]["orders"]}
    for name, forms in results[0]["forms"].items():
        rows |= {f"{name}, {form}": [result["forms"][name][form] for result in results] for form in forms}
    random = torch.tensor([row["area"] for row in rows["random"]])
    body = []
    for name, row in sorted(rows.items(), key=lambda item: -mean_of(item[1], "area")):
        areas = torch.tensor([one["area"] for one in row])
        shaped = [torch.tensor([one["shaped_area"] for one in row])] if "shaped_area" in row[0] else []
        beyond = [f"{mean:+.3f} ({low:+.3f} to {high:+.3f})" for mean, low, high in (
            mean_and_ci95(areas - chance) for chance in (random, *shaped)
        )]  # fmt: skip
        agreement = f"{mean_of(row, 'spearman'):.2f}" if "spearman" in row[0] else ""
        beyond += [""] * (2 - len(beyond))
        body.append([name, f"{areas.mean():.3f}", *beyond, f"{mean_of(row, 'num_prunable'):.1f}", agreement])
    return markdown(("order of heads", "area", "above random", "above its own shape", "can go", "Spearman"), body)


def mean_of(rows: Sequence[dict], key: str) -> float:
    """The mean over the seeds."""
    return sum(row[key] for row in rows) / len(rows)


def what_blocks_tell(results: Sequence[dict]) -> str:
    """How good a guess is that knows only which block matters, not which head; and how many costs are equal."""
    alone = [result["block_alone"] for result in results]
    tied = [result["orders"]["leave one out, zero, accuracy"]["tied"] for result in results]
    return (
        f"A guess that gives every head the mean Shapley value of its block: Spearman {sum(alone) / len(alone):.2f} "
        f"({min(alone):.2f}). Heads whose cost by leave one out, zero, accuracy another head has, too: {min(tied)} to "
        f"{max(tied)} of 12."
    )


def row(name: str, means: Mapping[str, float]) -> list[str]:
    """One order of heads."""
    has_importance, is_measure = (means[key] == means[key] for key in ("spearman", "training_area"))
    return [
        name,
        f"{means['area']:.3f} ± {means['area_sd']:.3f}",
        f"{means['spearman']:.2f} ({means['spearman_worst']:.2f})" if has_importance else "",
        f"{means['kept']:.3f}",
        *after_tuning("tuned", means),
        *after_tuning("tuned_longer", means),
        f"{means['training_area']:.3f}" if is_measure else "",
    ]


def after_tuning(key: str, means: Mapping[str, float]) -> tuple[str, str]:
    """Mean and lowest accuracy, and in how many seeds it is enough."""
    return f"{means[key]:.3f} ({means[f'{key}_worst']:.3f})", f"{means[f'{key}_enough']} of {means['num_tuned']}"


def table_of_costs(planted: Sequence[dict]) -> str:
    """Accuracy lost without planted heads: the lowest and the highest over the seeds."""
    body = []
    for name in planted[0]["costs"]:
        costs = [result["costs"][name] for result in planted]
        body.append([name, f"{min(costs):.4f}", f"{max(costs):.4f}"])
    return markdown(("without", "lowest loss of accuracy", "highest"), body)


def table_of_ranks(planted: Sequence[dict]) -> str:
    """How each measure ranks the planted heads; of a pair, the better and the worse rank."""
    controls = list(next(iter(planted[0]["ranks"].values())))
    body = []
    for measure in MEASURES:
        ranks = [[sorted(result["ranks"][measure][control]) for result in planted] for control in controls]
        body.append(
            [measure, *(", ".join(f"{median(places):g}" for places in zip(*one, strict=True)) for one in ranks)]
        )
    return markdown(("measure", *controls), body)


if __name__ == "__main__":
    main()
