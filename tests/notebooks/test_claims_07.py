"""What 07, 08 and the report say of thirty models stands in the kept results; and 07 holds for another seed too."""

from functools import partial

import pytest
import torch
from notebook_tools import ROOT, make_notebooks, run_cells, text_of

from mha_lib import heads, models
from mha_lib.heads.controls import OF_EACH, OF_MEAN, SIGNED
from mha_lib.heads.kept_results import BLOCK_MEANS, load_results
from mha_lib.models.shipped import shipped_figures

TEXT = text_of("07_head_importance", "08_head_pruning", "report_what_survives")
LEAVE_ONE_OUT, BY_LOSS = "leave one out, zero, accuracy", "leave one out, zero, loss"
BY_WEIGHTS = "confidence", "minus entropy"
BY_MEANS = "leave one out, mean, loss"
AGAIN = "path gradient, taken again"
TASKS = "lookups", "dates"
TAKEN_ONCE = (
    "gate gradient",
    "path gradient",
    "confidence",
    "output norm",
    LEAVE_ONE_OUT,
    BY_LOSS,
    "Shapley, exact",
    "Shapley, 50 orders",
    "hard-concrete gates",
)


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

    def orders(self, task: str) -> list[str]:
        return list(self.heads[task][0]["orders"])

    def block_baseline_correlation(self, task: str) -> torch.Tensor:
        return torch.tensor([result["block_alone"] for result in self.heads[task]])

    def ahead(self, task: str, high: str, low: str) -> int:
        """In how many models one order's area is above another's."""
        return int((self.column(task, high) > self.column(task, low)).sum())

    def guess(self, task: str) -> torch.Tensor:
        """The area of a guess that knows the layers alone."""
        return torch.tensor([result["orders"][BLOCK_MEANS]["area"] for result in self.heads[f"controls, {task}"]])

    def chance(self, task: str, order: str, key: str) -> float:
        """The mean over the models of what chance reaches."""
        found = [result["orders"][order][key] for result in self.heads[f"controls, {task}"]]
        return sum(found) / len(found)

    def form(self, task: str, measure: str, form: str, key: str = "area") -> torch.Tensor:
        """Of a measure with this sign or without."""
        return torch.tensor([result["forms"][measure][form][key] for result in self.heads[f"controls, {task}"]])

    def negatives(self, task: str, measure: str) -> float:
        """How many of its heads are below 0, on average."""
        found = [result["negatives"][measure] for result in self.heads[f"controls, {task}"]]
        return sum(found) / len(found)

    def can_go(self, task: str, order: str) -> float:
        """How many heads can go in this order, on average."""
        curves = self.column(task, order, "curve")
        return sum(heads.num_prunable(curve) for curve in curves) / len(curves)

    def moved_by_training_data(self, task: str) -> dict[str, float]:
        """By how much an area changes at most where the measure sees training data."""
        orders = [name for name in self.orders(task) if self.column(task, name, "training_area").isfinite().all()]
        return {
            name: (self.column(task, name) - self.column(task, name, "training_area")).abs().max().item()
            for name in orders
        }


def path_gradient_comes_next(results: Results, task: str) -> bool:
    """Whether, of all measures taken once, only sampled Shapley values may agree better with the exact ones."""
    found = {name: results.column(task, name, "spearman").mean() for name in results.moved_by_training_data(task)}
    here = found.pop("path gradient")
    del found["Shapley, 50 orders"]
    return not any(value >= here for value in found.values())


def beyond_shape(results: "Results", task: str, order: str) -> torch.Tensor:
    """How much of an order's area chance of its own shape does not reach."""
    found = [
        result["forms"][order][SIGNED] if order in result["forms"] else result["orders"][order]
        for result in results.heads[f"controls, {task}"]
    ]
    return torch.tensor([row["area"] - row["shaped_area"] for row in found])


def path_settles(results: "Results") -> bool:
    """Whether path gradients add up to what is due on every model, better with more steps."""
    sums = [result["path_sums"] for task in TASKS for result in results.heads[f"controls, {task}"]]
    lacking = {steps: max(abs(found[steps] - found["due"]) for found in sums) for steps in ("20", "40")}
    return lacking["20"] < 0.0125 and lacking["40"] < 0.0045 and min(found["due"] for found in sums) > 1


def gate_is_behind_the_layers(results: "Results") -> bool:
    gate = results.column("lookups", "gate gradient")
    ahead_of_chance = heads.mean_and_ci95(gate - results.column("lookups", "random"))[1] > 0
    return ahead_of_chance and heads.mean_and_ci95(gate - results.guess("lookups"))[2] < 0


def sign_of_the_gate(results: "Results") -> bool:
    """Whether it raises the area on the look-ups, lets no head go there, and is worse than chance on the dates."""
    signed, each = (results.form("lookups", "gate gradient", form) for form in (SIGNED, OF_EACH))
    return (
        heads.mean_and_ci95(signed - each)[1] > 0
        and results.form("lookups", "gate gradient", SIGNED, "num_prunable").max() == 0
        and heads.mean_and_ci95(results.form("dates", "gate gradient", SIGNED) - results.column("dates", "random"))[2]
        < 0
    )


def level(differences: torch.Tensor) -> bool:
    """Whether thirty models do not tell which is ahead, and the difference is small."""
    mean, low, high = heads.mean_and_ci95(differences)
    return low < 0 < high and abs(mean) < 0.02


def agreement(results: Results, order: str) -> float:
    """Rank correlation with exact Shapley values on the look-ups, mean over the seeds."""
    return results.column("lookups", order, "spearman").mean().item()


def gap(results: Results) -> torch.Tensor:
    """Accuracy of the best seven heads minus that of the worst seven, on the look-ups."""
    return (results.column("lookups", "oracle", "curve") - results.column("lookups", "worst", "curve"))[:, 7]


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
    "Each of the thirty models has such a pair, which costs at least 0.05 more together than one by one": lambda r: (
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
    "**Output norm** ranks the unread head fourth": lambda r: r.ranks("output norm", "unheard").quantile(0.5) == 4,
    "ranks the dead head in the middle (median 9; a random order, 9.5)": lambda r: (
        r.ranks("confidence", "dead").quantile(0.5) == 9
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
    "five heads of the greedy order are back at 0.98 in all eight models": lambda r: (
        r.tuned("lookups", "greedy").min() >= 0.98
    ),
    "five by exact Shapley value in six of them, five random ones in one": lambda r: (
        [(r.tuned("lookups", name) >= 0.98).sum() for name in ("Shapley, exact", "random")] == [6, 1]
    ),
    "our worst five stayed below 0.9 after 600 steps": lambda r: (
        all(0.5 < r.tuned(task, "worst", "tuned_longer").min() for task in ("lookups", "dates"))
        and max(r.tuned(task, "worst", "tuned_longer").max() for task in ("lookups", "dates")) < 0.9
    ),
    "the best keep 0.38 to 0.74 more of the answers right in each of thirty models": lambda r: (
        gap(r).min().round(decimals=2) == 0.38 and gap(r).max().round(decimals=2) == 0.74
    ),
    "By random orders 0.8 of the twelve heads can go, and a guess that knows the layers alone lets 1.0 go": lambda r: (
        [round(r.chance("lookups", order, "num_prunable"), 1) for order in ("random", BLOCK_MEANS)] == [0.8, 1.0]
    ),
    "confidence do about as well; the Shapley values and the path gradient reach 1.2": lambda r: (
        all(abs(r.can_go("lookups", name) - 0.85) < 0.2 for name in ("gate gradient", "confidence"))
        and all(1.1 < r.can_go("lookups", name) < 1.25 for name in ("Shapley, exact", "path gradient"))
    ),
    "What reaches 2.2 or more is trained for it, or asks again after every cut": lambda r: (
        {name for name in r.orders("lookups") if name != "oracle" and r.can_go("lookups", name) > 2.15}
        == {"hard-concrete gates", "greedy", f"{BY_LOSS}, taken again"}
    ),
    "Greedy search asks again after every cut, and sees that. The Shapley values cannot": lambda r: (
        r.ahead("lookups", "greedy", "Shapley, exact") == 30
        and r.chance("lookups", "greedy", "num_prunable") > 2.5
        and r.can_go("lookups", "Shapley, exact") < 1.5
    ),
    "better than any other measure that is taken once, except the sampled Shapley values": lambda r: (
        path_gradient_comes_next(r, "lookups")
    ),
    "For cutting, taken once, it is worth what the layers alone are worth": lambda r: level(
        r.column("lookups", "path gradient") - r.guess("lookups")
    ),
    "asking the path gradient again after every cut helps it": lambda r: all(
        r.ahead(task, AGAIN, "path gradient") >= 29 for task in TASKS
    ),
    "greedy search is ahead of the Shapley values in all sixty models": lambda r: (
        [r.ahead(task, "greedy", "Shapley, exact") for task in TASKS] == [30, 30]
    ),
    "Confidence, ahead of random orders in every model of the look-ups, is behind them in most": lambda r: (
        r.ahead("lookups", "confidence", "random") == 30 and r.ahead("dates", "random", "confidence") > 20
    ),
    "leave-one-out by accuracy offers no order there. (The loss changes even where no answer does.)": lambda r: (
        r.column("dates", LEAVE_ONE_OUT, "tied").min() >= 10 and r.column("dates", BY_LOSS, "tied").max() == 0
    ),
    "the path gradient, taken again, stays at 1.2": lambda r: 1.15 < r.can_go("lookups", AGAIN) < 1.25,
    "the path gradient is behind the gate's gradient on the dates, 6.0 against 7.1": lambda r: (
        [round(r.can_go("dates", name), 1) for name in ("path gradient", "gate gradient")] == [6.0, 7.1]
    ),
    "The gate's gradient lets 1.0 and 7.1 go, learned gates 2.2 and 8.0": lambda r: (
        [[round(r.can_go(task, name), 1) for task in TASKS] for name in ("gate gradient", "hard-concrete gates")]
        == [[1.0, 7.1], [2.2, 8.0]]
    ),
    "lets 1.6 heads go in place of 1.0; the path gradient's area rises on both small tasks, but on": lambda r: (
        [round(r.can_go("lookups", name), 1) for name in ("gate gradient, taken again", "gate gradient")] == [1.6, 1.0]
        and all(heads.mean_and_ci95(r.column(task, AGAIN) - r.column(task, "path gradient"))[1] > 0 for task in TASKS)
        and r.can_go("lookups", AGAIN) - r.can_go("lookups", "path gradient") < 0.1
    ),
    "on the look-ups it was behind a guess that knows the layers alone": lambda r: gate_is_behind_the_layers(r),
    "on the look-ups the gate's gradient was behind a guess that knows the layers alone": lambda r: (
        gate_is_behind_the_layers(r)
    ),
    "it is ahead of the gate's gradient, though on the dates only in 20 of thirty": lambda r: (
        [r.ahead(task, "path gradient", "gate gradient") for task in TASKS] == [30, 20]
    ),
    "single costs by *loss* are ahead of chance": lambda r: all(
        r.ahead(task, BY_LOSS, "random") > 20 for task in TASKS
    ),
    "by chance as well: 5.1 of twelve, and 5.8 by the layers alone": lambda r: (
        [round(r.chance("dates", order, "num_prunable"), 1) for order in ("random", BLOCK_MEANS)] == [5.1, 5.8]
    ),
    '"six heads can go by exact Shapley values" is hardly a finding': lambda r: (
        0 < r.can_go("dates", "Shapley, exact") - r.chance("dates", BLOCK_MEANS, "num_prunable") < 0.5
    ),
    "has nothing of that kind, and neither have single costs by loss; exact Shapley values": lambda r: (
        all(level(beyond_shape(r, "lookups", name)) for name in ("path gradient", BY_LOSS))
        and all(
            0 < heads.mean_and_ci95(beyond_shape(r, "lookups", name))[1]
            and beyond_shape(r, "lookups", name).mean() < 0.0305
            for name in ("Shapley, exact", "output norm", "confidence", "hard-concrete gates")
        )
    ),
    "On the dates none of these is more than a few thousandths above its shape": lambda r: all(
        abs(beyond_shape(r, "dates", name).mean()) < 0.005 and (beyond_shape(r, "lookups", "confidence").mean() > 0.01)
        for name in ("Shapley, exact", "output norm", "confidence", "path gradient", BY_LOSS)
    ),
    "chance reaches 0.8 of twelve on the look-ups and 5.1 on the dates, the layers alone 1.0 and 5.8": lambda r: (
        [[round(r.chance(task, order, "num_prunable"), 1) for task in TASKS] for order in ("random", BLOCK_MEANS)]
        == [[0.8, 5.1], [1.0, 5.8]]
    ),
    "exact Shapley values 1.2 and 6.0, greedy search 2.6 and 7.9": lambda r: (
        [round(r.can_go(task, "Shapley, exact"), 1) for task in TASKS] == [1.2, 6.0]
        and [round(r.chance(task, "greedy", "num_prunable"), 1) for task in TASKS] == [2.6, 7.9]
    ),
    "within 0.012 nats with 20 steps and within 0.004 with 40, on all sixty models": lambda r: path_settles(r),
    "with 20 steps the sum is off by at most 0.012 nats on all sixty, and with 40 by 0.004": lambda r: path_settles(r),
    "The sign of the gate's gradient raises its area on the look-ups, and hurts on the dates": lambda r: (
        heads.mean_and_ci95(r.form("lookups", "gate gradient", SIGNED) - r.form("lookups", "gate gradient", OF_EACH))[1]
        > 0
        and heads.mean_and_ci95(r.form("dates", "gate gradient", SIGNED) - r.form("dates", "gate gradient", OF_EACH))[2]
        < 0
    ),
    "are ahead of random orders on the look-ups, and lose more than every random order": lambda r: all(
        heads.mean_and_ci95(r.column("lookups", name) - r.column("lookups", "random"))[1] > 0
        for name in ("confidence", "output norm")
    ),
    "is little ahead of random orders on the look-ups, and behind them if each layer's is normalised": lambda r: (
        0 < heads.mean_and_ci95(r.column("lookups", "gate gradient") - r.column("lookups", "random"))[1]
        and (r.column("lookups", "gate gradient") - r.column("lookups", "random")).mean() < 0.04
        and heads.mean_and_ci95(r.column("lookups", "gate gradient, normalised") - r.column("lookups", "random"))[2] < 0
    ),
    "The path gradient and the Shapley values have next to no negative heads": lambda r: all(
        r.negatives(task, name) < 1 for task in TASKS for name in ("path gradient", "Shapley, exact")
    ),
    "of the gate's twelve gradients most are negative on both": lambda r: all(
        r.negatives(task, "gate gradient") > 6 for task in TASKS
    ),
    "On the look-ups its sign raises the area, but then no head at all can go; on the dates it makes": sign_of_the_gate,
    "Its sign raises the area on the look-ups, where then no head can go, and makes its order worse": sign_of_the_gate,
    "Exact Shapley values are, by 0.02, and so is the signed gate gradient": lambda r: (
        [round(beyond_shape(r, "lookups", name).mean().item(), 2) for name in ("Shapley, exact", "gate gradient")]
        == [0.02, 0.02]
    ),
    "the path gradient and single costs by loss rise on both tasks, and stand above their shape": lambda r: all(
        heads.mean_and_ci95(r.column(task, f"{name}, taken again") - r.column(task, name))[1] > 0
        and heads.mean_and_ci95(beyond_shape(r, task, f"{name}, taken again"))[1] > 0
        for task in TASKS
        for name in ("path gradient", BY_LOSS)
    ),
    "the gate's gradient rises on the dates and falls on the look-ups": lambda r: (
        heads.mean_and_ci95(r.column("dates", "gate gradient, taken again") - r.column("dates", "gate gradient"))[1] > 0
        and heads.mean_and_ci95(
            r.column("lookups", "gate gradient, taken again") - r.column("lookups", "gate gradient")
        )[2]
        < 0
    ),
    "the other five agree with the first one, accuracy and zeros, at 0.75 to 0.94": references_agree,
    "the other five agree with ours at 0.75 to 0.94 by rank, on average": references_agree,
    "A guess that knows the layers alone agrees at 0.80": lambda r: (
        r.block_baseline_correlation("lookups").mean().round(decimals=2) == 0.8
    ),
    "With signs they are level on the look-ups; in the other five comparisons its mean area is higher": lambda r: (
        level(r.form("lookups", "path gradient", SIGNED) - r.form("lookups", "gate gradient", SIGNED))
        and all(
            heads.mean_and_ci95(r.form(task, "path gradient", form) - r.form(task, "gate gradient", form))[1] > 0
            for task in TASKS
            for form in (SIGNED, OF_EACH, OF_MEAN)
            if (task, form) != ("lookups", SIGNED)
        )
    ),
    "On the look-ups neither the path gradient nor single costs by loss are worth more than chance": lambda r: all(
        level(r.form("lookups", name, SIGNED) - r.form("lookups", name, SIGNED, "shaped_area"))
        for name in ("path gradient", BY_LOSS)
    ),
    "On the dates all that is above it is a few thousandths": lambda r: all(
        0 < (r.form("dates", name, form) - r.form("dates", name, form, "shaped_area")).mean() < 0.005
        for name, form in (("path gradient", SIGNED), (BY_LOSS, SIGNED), ("Shapley, exact", SIGNED))
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


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_stands_in_the_notebook_and_holds_in_the_results(results, words):
    assert words in TEXT
    assert CLAIMS[words](results)


@pytest.mark.parametrize("words", CLAIMS)
def test_opposite_results_break_it(results, words):
    assert not CLAIMS[words](Results(opposite(results.heads)))


def opposite(value):
    """Results where much is little: costs, areas and correlations change ends, and so do ranks and numbers of ties."""
    if isinstance(value, dict):
        kept = "task", "seed", "training_area", "shaped_area", BLOCK_MEANS
        changed = {key: item if key in kept else opposite(item) for key, item in value.items()}
        if "ranks" in value:
            changed["ranks"] = {
                measure: {control: [19 - rank for rank in ranks] for control, ranks in controls.items()}
                for measure, controls in value["ranks"].items()
            }
        if "tied" in value:
            changed["tied"] = 12 - value["tied"]
        if "negatives" in value:
            changed["negatives"] = {measure: 12 - number for measure, number in value["negatives"].items()}
        return changed
    if isinstance(value, list):
        return [opposite(item) for item in value]
    return 0.5 - value


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
