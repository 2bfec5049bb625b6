"""What 07 and the report say of thirty models stands in the kept results; and 07 holds for another seed too."""

from functools import partial
from itertools import combinations

import pytest
import torch
from notebook_tools import ROOT, make_notebooks, run_cells, text_of

from mha_course import heads, models
from mha_course.exercises.first_pruning import BEST, found_by_greedy_search
from mha_course.heads.controls import SIGNED
from mha_course.heads.kept_results import BLOCK_MEANS, load_results
from mha_course.models.shipped import shipped_figures

TEXT = text_of("07_head_importance", "report_what_survives")
LEAVE_ONE_OUT, BY_LOSS = "leave one out, zero, accuracy", "leave one out, zero, loss"
BY_WEIGHTS = "confidence", "minus entropy"
BY_MEANS = "leave one out, mean, loss"
TASKS = "lookups", "dates"


class Results:
    """Kept results, as columns over the seeds."""

    def __init__(self, heads: dict):
        self.heads = heads

    def cost(self, *gone: str) -> torch.Tensor:
        """Of planted heads, one row for each name."""
        return torch.tensor([[result["costs"][name] for result in self.heads["planted"]] for name in gone])

    def ranks(self, measure: str, control: str) -> torch.Tensor:
        return torch.tensor([result["ranks"][measure][control] for result in self.heads["planted"]])

    def company(self, *keys: str) -> torch.Tensor:
        found = self.heads["company"]
        for key in keys:
            found = [result[key] for result in found]
        return torch.tensor(found)

    def column(self, task: str, order: str, key: str = "area") -> torch.Tensor:
        return torch.tensor([result["orders"][order].get(key, torch.nan) for result in self.heads[task]])

    def tuned(self, task: str, order: str, key: str = "tuned") -> torch.Tensor:
        """Only of models that were trained on after cuts."""
        column = self.column(task, order, key)
        return column[column.isfinite()]

    def block_baseline_correlation(self, task: str) -> torch.Tensor:
        return torch.tensor([result["block_alone"] for result in self.heads[task]])

    def chance(self, task: str, order: str, key: str) -> float:
        """The mean over the models of what chance reaches."""
        found = [result["orders"][order][key] for result in self.heads[f"controls, {task}"]]
        return sum(found) / len(found)

    def can_go(self, task: str, order: str) -> float:
        """How many heads can go in this order, on average."""
        curves = self.column(task, order, "curve")
        return sum(heads.num_prunable(curve) for curve in curves) / len(curves)


def beyond_shape(results: "Results", task: str, order: str) -> torch.Tensor:
    """How much of an order's area chance of its own shape does not reach."""
    found = [
        result["forms"][order][SIGNED] if order in result["forms"] else result["orders"][order]
        for result in results.heads[f"controls, {task}"]
    ]
    return torch.tensor([row["area"] - row["shaped_area"] for row in found])


def level(differences: torch.Tensor) -> bool:
    """Whether thirty models do not tell which is ahead, and the difference is small."""
    mean, low, high = heads.mean_and_ci95(differences)
    return low < 0 < high and abs(mean) < 0.02


def agreement(results: Results, order: str) -> float:
    """Rank correlation with exact Shapley values on the look-ups, mean over the seeds."""
    return results.column("lookups", order, "spearman").mean().item()


def within(results: Results) -> dict[str, list[float]]:
    """Rank correlations among the heads of each layer alone, means over the models."""
    measures = results.heads["company"][0]["within"]
    return {name: results.company("within", name).mean(dim=0).tolist() for name in measures}


def references_agree(results: Results) -> bool:
    """Whether the five other exact references agree with that of accuracy and zeros at 0.75 to 0.94, on average."""
    means = [results.company("references", name).mean() for name in results.heads["company"][0]["references"]]
    return [round(end(means).item(), 2) for end in (min, max)] == [0.75, 0.94]


# Words of the notebooks, and what they mean in the results.
CLAIMS = {
    "in all of them a fifth or more is missing": lambda r: (
        r.column("lookups", LEAVE_ONE_OUT, "sum") <= 0.8 * r.column("lookups", "Shapley, exact", "sum")
    ).all(),
    "has such a pair, which costs at least 0.05 more together than one by one": lambda r: (
        r.company("twins", "together") - r.company("twins", "alone").sum(dim=1) >= 0.05
    ).all(),
    "In all thirty models, holding later heads fixed removes two fifths or more of the cost": lambda r: (
        r.company("later", "frozen").sum(dim=1) <= 0.6 * r.company("later", "free").sum(dim=1)
    ).all(),
    "The cancelling pair behaves in this way in all thirty models": lambda r: (
        r.cost("cancelling, one", "cancelling, other").min() >= 0.3 and r.cost("cancelling, both").max() <= 0.01
    ),
    "In 26 of thirty models, each twin costs at most 0.05, and both cost at least 0.1": lambda r: (
        ((r.cost("twins, one", "twins, other").amax(dim=0) <= 0.05) & (r.cost("twins, both")[0] >= 0.1)).sum() == 26
    ),
    "relies on it. So do the gate gradient, the path gradient and the Shapley values": lambda r: all(
        r.ranks(name, "constant").median() == 1
        for name in (LEAVE_ONE_OUT, "gate gradient", "path gradient", "Shapley, 50 orders")
    ),
    "With mean ablation it is 16th": lambda r: r.ranks(BY_MEANS, "constant").quantile(0.5) == 16,
    "**Output norm** ranks the unread head fourth, and the constant head third": lambda r: (
        [r.ranks("output norm", head).quantile(0.5) for head in ("unheard", "constant")] == [4, 3]
    ),
    "ranks the dead head in the middle (median 9; a random order, 9.5)": lambda r: (
        r.ranks("confidence", "dead").quantile(0.5) == 9
    ),
    "although no later layer can read it, and the cancelling pair fourth": lambda r: (
        r.ranks("confidence", "cancelling").sort(dim=1).values.quantile(0.5, dim=0).tolist() == [4, 4]
    ),
    "at the front by leave-one-out, gate gradient and output norm. The Shapley values are wrong, too": lambda r: (
        all(
            r.ranks(name, "cancelling").max() <= 4 for name in (LEAVE_ONE_OUT, BY_MEANS, "gate gradient", "output norm")
        )
        and r.ranks("Shapley, 50 orders", "cancelling").max() <= 7
    ),
    "so one is near the front and the other near the end": lambda r: (
        r.ranks("path gradient", "cancelling").amax(dim=1).min() >= 17
        and r.ranks("path gradient", "cancelling").amin(dim=1).median() <= 3
    ),
    "in two of the thirty, ours and that of *loss, mean* are unrelated": lambda r: (
        (r.company("references", "loss, mean").abs() < 0.13).sum() == 2
        and r.company("references", "loss, mean").mean() > 0.7
    ),
    "on average no other measure of these does better": lambda r: (
        max(agreement(r, name) for name in ("output norm", LEAVE_ONE_OUT, "gate gradient", *BY_WEIGHTS))
        <= r.block_baseline_correlation("lookups").mean()
    ),
    "only the path gradient and, in layer 0, leave-one-out reach a half": lambda r: (
        {(name, layer) for name, layers in within(r).items() for layer in (0, 1) if layers[layer] >= 0.5}
        == {("path gradient", 0), ("path gradient", 1), ("leave one out", 0)}
    ),
    "In layer 1, the intervals of confidence, minus entropy and output norm contain 0": lambda r: all(
        low < 0 < high
        for name in (*BY_WEIGHTS, "output norm")
        for _, low, high in [heads.mean_and_ci95(r.company("within", name)[:, 1])]
    ),
    "The path gradient agrees best, on average, and the gate gradient least": lambda r: (
        agreement(r, "gate gradient")
        < min(agreement(r, name) for name in (LEAVE_ONE_OUT, "output norm", *BY_WEIGHTS))
        <= max(agreement(r, name) for name in (LEAVE_ONE_OUT, "output norm", *BY_WEIGHTS))
        < agreement(r, "path gradient")
    ),
    "integrated gradients and leave-one-out by loss have no lead; exact Shapley values": lambda r: (
        all(level(beyond_shape(r, "lookups", name)) for name in ("path gradient", BY_LOSS))
        and all(
            0 < heads.mean_and_ci95(beyond_shape(r, "lookups", name))[1]
            and beyond_shape(r, "lookups", name).mean() < 0.0305
            for name in ("Shapley, exact", "output norm", "confidence", "hard-concrete gates")
        )
    ),
    "On the dates none of these is more than a few thousandths above it": lambda r: all(
        abs(beyond_shape(r, "dates", name).mean()) < 0.005 and (beyond_shape(r, "lookups", "confidence").mean() > 0.01)
        for name in ("Shapley, exact", "output norm", "confidence", "path gradient", BY_LOSS)
    ),
    "0.8 of twelve heads can go by random orders on the look-ups and 5.1 on the dates, 1.0 and 5.8": lambda r: (
        [[round(r.chance(task, order, "num_prunable"), 1) for task in TASKS] for order in ("random", BLOCK_MEANS)]
        == [[0.8, 5.1], [1.0, 5.8]]
    ),
    "1.2 and 6.0 by exact Shapley values, and 2.6 and 7.9 by greedy search": lambda r: (
        [round(r.can_go(task, "Shapley, exact"), 1) for task in TASKS] == [1.2, 6.0]
        and [round(r.chance(task, "greedy", "num_prunable"), 1) for task in TASKS] == [2.6, 7.9]
    ),
    "integrated gradients and leave-one-out by loss rise on both tasks": lambda r: all(
        heads.mean_and_ci95(r.column(task, f"{name}, taken again") - r.column(task, name))[1] > 0
        and heads.mean_and_ci95(beyond_shape(r, task, f"{name}, taken again"))[1] > 0
        for task in TASKS
        for name in ("path gradient", BY_LOSS)
    ),
    "the other five agree with the first one at 0.75 to 0.94 by rank": references_agree,
    "the other five agree with ours at 0.75 to 0.94 by rank, on average": references_agree,
    "*The layers alone* agree at 0.80": lambda r: (
        r.block_baseline_correlation("lookups").mean().round(decimals=2) == 0.8
    ),
}


@pytest.fixture(scope="module")
def results():
    return Results(load_results("heads"))


def test_there_are_thirty_models_of_each_kind_and_planting_changes_none(results):
    assert {name: len(found) for name, found in results.heads.items()} == dict.fromkeys(
        ("lookups", "dates", "planted", "company", "controls, lookups", "controls, dates"), 30
    )
    assert all(len(results.tuned(task, "greedy")) == 8 for task in ("lookups", "dates"))
    assert max(result["change"] for result in results.heads["planted"]) <= 1e-4


def test_exercise_1_knows_the_best_five_of_all_choices():
    task, choices = models.find_task("lookups"), list(combinations(range(12), 5))
    gates = torch.ones(len(choices), 12).scatter(1, torch.tensor(choices), 0).view(-1, 2, 6)
    right = heads.evaluate(models.shipped_model("lookups"), task.held_out[128:256], task, gates).accuracy
    assert f"the best five of all {len(choices)} choices" in TEXT
    best = choices[right.argmax()]
    assert [(head // 6, head % 6) for head in best] == sorted(found_by_greedy_search())
    assert right.max().item() == pytest.approx(BEST, abs=5e-4)


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_is_in_the_text_and_the_results(results, words):
    assert words in TEXT and CLAIMS[words](results)


@pytest.mark.long
@pytest.mark.slow
def test_07_holds_for_another_seed_and_its_model_is_as_good_as_the_one_that_ships(monkeypatch):
    def on_a_quarter(model, batch, *others, **options):  # 4096 sets, three times, would take most of the time
        return evaluate_all(model, batch[: len(batch) // 4], *others, **options)

    evaluate_all = heads.evaluate_all
    monkeypatch.setattr(heads, "evaluate_all", on_a_quarter)
    monkeypatch.setattr(models, "shipped_model", partial(models.fit, seed=2, progress=False))
    found = run_cells(make_notebooks.read(ROOT / "notebooks" / "07_head_importance.ipynb"))
    assert found["calibration"].targets.shape == (128, 12, 5)
    task, model, figures = found["task"], found["model"], shipped_figures("lookups")
    assert task.accuracy(model) == pytest.approx(figures["accuracy"], abs=0.01)
    assert task.exact_match(model) == pytest.approx(figures["exact_match"], abs=0.03)
