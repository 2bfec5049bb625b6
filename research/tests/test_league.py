"""The comparison of measures: what it counts."""

import copy
import json
from functools import partial

import pytest
import torch
from head_models import TASK, encoder, examples
from scipy import stats

from mha_course.heads import coalitions
from mha_course.heads.ablation import evaluate_all, head_grid
from mha_course.heads.coalitions import shapley, spearman, top_k_sets
from mha_course.heads.measures import measured
from mha_course.heads.planted_heads import Planted, plant_heads
from mha_course.heads.removal import prune
from mha_course.models.tasks import Lookups, find_task
from mha_course.models.training import finetune, trained
from mha_course.models.transformer import Encoder, TokenEmbedding
from research import league
from research.league import compare, iterative_importance, planted_controls, summarise, training_data

pytestmark = pytest.mark.xdist_group("league")

FEW = {name: league.MEASURES[name] for name in ("gate gradient", "output norm")}
SHORT = {"num_examples": 4, "steps": 30}
QUICK = SHORT | {"measures": FEW}
quick = partial(compare, tuning_steps=2, longer_tuning_steps=4, **QUICK)


@pytest.fixture(scope="module")
def trained_once():
    return quick(0)


@pytest.fixture
def result(trained_once):
    return copy.deepcopy(trained_once)


@pytest.mark.cpu
def test_orders_of_every_kind(result):
    assert json.loads(json.dumps(result)) == result
    assert (result["task"], result["seed"]) == ("lookups", 0)
    names = ["Shapley, exact", "greedy", *FEW, "gate gradient, taken again", "oracle", "worst", "random"]
    assert sorted(result["orders"]) == sorted(names)


@pytest.mark.cpu
def test_every_curve_lies_between_oracle_and_worst(result):
    orders = result["orders"]
    highest, lowest = orders["oracle"]["curve"], orders["worst"]["curve"]
    for order in orders.values():
        between = zip(lowest, order["curve"], highest, strict=True)
        assert all(low - 1e-12 <= here <= high + 1e-12 for low, here, high in between)  # means are rounded
        assert order["area"] == pytest.approx(sum(order["curve"]) / 13)
        assert order["curve"][0] == pytest.approx(highest[0])


@pytest.mark.cpu
def test_a_row_counted_again(result):
    task = find_task("lookups")
    model = trained(task, 0, 30, progress=False)
    seen, judged, rest = task.held_out[:4], task.held_out[4:8], task.held_out[4:]
    importance = measured(model, seen, task, "output_norm")
    order = importance.flatten().argsort(descending=True)
    curve = []
    for number in range(13):
        gates = torch.zeros(12)
        gates[order[:number]] = 1
        curve.append(task.accuracy(model, judged, gates.view(2, 6)))
    row = result["orders"]["output norm"]
    assert row["curve"] == pytest.approx(curve)
    gates = torch.zeros(12)
    gates[order[:5]] = 1
    assert row["kept"] == pytest.approx(task.accuracy(prune(model, remove=gates.view(2, 6) == 0), rest))
    for name, steps in (("tuned", 2), ("tuned_longer", 4)):
        tuned = finetune(prune(model, remove=gates.view(2, 6) == 0), task, 0, steps, progress=False)
        assert row[name] == pytest.approx(task.accuracy(tuned, rest))
    assert len({row["kept"], row["tuned"], row["tuned_longer"]}) == 3
    values = evaluate_all(model, seen, task).accuracy
    assert row["sum"] == pytest.approx(importance.sum().item())
    assert result["orders"]["Shapley, exact"]["sum"] == pytest.approx((values[-1] - values[0]).item())
    assert row["spearman"] == pytest.approx(spearman(importance, shapley(values)))
    assert result["orders"]["Shapley, exact"]["spearman"] == pytest.approx(1)
    agreements = [stats.spearmanr(coalitions.greedy(values, draw), shapley(values)).statistic for draw in range(100)]
    assert result["orders"]["greedy"]["spearman"] == pytest.approx(sum(agreements) / 100)
    on_training_data = measured(model, training_data(task, 0, 4), task, "output_norm")
    truth = evaluate_all(model, judged, task).accuracy
    assert row["training_area"] == pytest.approx(coalitions.area_under_curve(truth[top_k_sets(on_training_data)]))
    assert row["tied"] == 0


@pytest.mark.cpu
def test_a_measure_that_tells_no_heads_apart_is_as_good_as_random():
    """And one of the name of another is taken once, if it does not take ``kept``; a task is as good as its name."""

    def alike(model, batch, task):
        return torch.full(head_grid(model), 0.1, dtype=torch.float64)

    orders = quick(0, task=find_task("lookups"), measures={"gate gradient": alike})["orders"]
    assert orders["gate gradient"]["curve"] == pytest.approx(orders["random"]["curve"])
    assert orders["gate gradient"]["training_area"] == pytest.approx(orders["random"]["area"])
    assert orders["gate gradient"]["tied"] == 12
    assert "gate gradient, taken again" not in orders


def drawn(model, batch, task, seed=7):
    """A measure that does nothing but draw."""
    return torch.rand(head_grid(model), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class FourHeads(Lookups):
    """A task of one's own, by the name of another: look-ups for a model that has sixteen sets of heads."""

    def model(self):
        return Encoder(TokenEmbedding(34, 12, num_hiddens=8), num_hiddens=8, num_outputs=65, num_heads=2)


@pytest.mark.cpu
def test_what_a_measure_draws_comes_from_the_seed_and_the_model_from_the_task():
    task = FourHeads()
    measures = {"drawn": drawn, "drawn with 7": partial(drawn, seed=7)}
    orders = compare(3, task, 2, None, None, num_examples=40, measures=measures, steps=5)["orders"]
    model = trained(task, 3, 5, progress=False)
    own = drawn(model, None, None, seed=3)
    table = evaluate_all(model, task.held_out[40:80], task).accuracy
    for row in (orders[name] for name in measures):
        assert row["sum"] == pytest.approx(own.sum().item())
        assert row["training_area"] == pytest.approx(coalitions.area_under_curve(coalitions.pruning_curve(table, own)))


@pytest.mark.cpu
def test_planted_heads_and_what_measures_say_of_them_come_from_the_seed():
    lookups, found = find_task("lookups"), planted_controls(3, measures={"drawn": drawn}, **SHORT)
    batch, model = lookups.held_out[:4], trained("lookups", 3, 30, progress=False)
    planted = plant_heads(model, batch, lookups, 3)
    assert found["ranks"]["drawn"] == league.places_of(planted, drawn(planted.model, batch, lookups, 3))
    assert found["costs"] == league.costs(planted, batch, lookups)
    assert found["costs"] != league.costs(plant_heads(model, batch, lookups), batch, lookups)


def test_tied_heads_are_counted():
    assert league.num_ties(torch.tensor([[0.0, 1.0, 2.0], [2.0, 0.0, 0.0]])) == 5
    assert league.num_ties(torch.rand(2, 6)) == 0


def test_taken_again_draws_between_heads_that_matter_least():
    def alike(model, batch, task, kept):
        return kept

    model = encoder()
    first = {iterative_importance(alike, model, examples(model), TASK, seed).argmin().item() for seed in range(60)}
    assert first == set(range(6))


@pytest.mark.cpu
def test_the_guess_that_knows_blocks_alone(result):
    model = trained(find_task("lookups"), 0, 30, progress=False)
    values = evaluate_all(model, find_task("lookups").held_out[:4], find_task("lookups")).accuracy
    fair = shapley(values)
    guess = [fair[:6].mean().item()] * 6 + [fair[6:].mean().item()] * 6
    assert result["block_alone"] == pytest.approx(stats.spearmanr(guess, fair).statistic)


def test_a_summary_counts_over_seeds():
    def seed(area, tuned, longer, **more):
        return {"orders": {"one": {"area": area, "kept": 0.1, "tuned": tuned, "tuned_longer": longer} | more}}

    tuned = [seed(0.2, 0.99, 1.0, spearman=0.5), seed(0.6, 0.7, 0.98, spearman=-0.1)]
    row = summarise(tuned)["one"]
    assert row["area"] == pytest.approx(0.4) and row["area_sd"] == pytest.approx(0.08**0.5)
    assert (row["tuned_worst"], row["tuned_enough"]) == (0.7, 1)
    assert (row["tuned_longer_worst"], row["tuned_longer_enough"]) == (0.98, 2)
    assert (row["spearman"], row["spearman_worst"]) == (pytest.approx(0.2), -0.1)
    assert row["training_area"] != row["training_area"] and row["num_tuned"] == 2
    untuned = summarise([*tuned, {"orders": {"one": {"area": 0.7, "kept": 0.1}}}])["one"]
    assert untuned["area"] == pytest.approx(0.5)
    assert all(untuned[key] == row[key] for key in ("spearman", "tuned", "tuned_worst", "tuned_enough", "num_tuned"))


@pytest.mark.filterwarnings("error")
def test_a_summary_of_one_seed_has_no_deviation_and_one_of_none_is_refused():
    row = summarise([{"orders": {"one": {"area": 0.2, "kept": 0.1}}}])["one"]
    assert (row["area"], row["num_tuned"]) == (0.2, 0) and row["area_sd"] != row["area_sd"]
    with pytest.raises(ValueError, match="results must hold what compare found for one seed or more, got none"):
        summarise([])


def test_leave_one_out_taken_again_is_the_greedy_order():
    model = encoder()
    batch = examples(model)
    again = iterative_importance(partial(measured, measure="leave_one_out"), model, batch, TASK)
    greedy = coalitions.greedy(-evaluate_all(model, batch, TASK).loss)
    assert again.flatten().tolist() == greedy.tolist()


def test_a_measure_that_does_not_take_kept_is_refused_by_name():
    def plain(model, batch, task):
        return torch.arange(6.0).view(2, 3)

    model = encoder()
    with pytest.raises(TypeError, match=r"measure must take kept, .* plain does not"):
        iterative_importance(plain, model, examples(model), TASK)


def test_training_data_is_not_held_out():
    task = find_task("dates")
    batch = training_data(task, 0, 20)
    assert len(batch) == 20 and task.batch_size == 64
    held_out = {tuple(row) for row in task.held_out.targets.tolist()}
    assert held_out.isdisjoint(tuple(row) for row in batch.targets.tolist())


@pytest.mark.cpu
def test_planted_controls_in_numbers():
    found = planted_controls(0, **QUICK)
    assert json.loads(json.dumps(found)) == found
    assert found["change"] < 1e-4
    assert found["costs"]["cancelling, both"] == found["costs"]["dead"] == found["costs"]["unheard"] == 0
    assert found["ranks"]["output norm"]["dead"] == [18]
    one, other = found["ranks"]["gate gradient"]["twins"]
    assert one == other  # they are equal in all that they do
    lookups = find_task("lookups")
    model, batch = trained(lookups, 0, 30, progress=False), lookups.held_out[:4]
    planted = plant_heads(model, batch, lookups, 0)
    places = stats.rankdata(-measured(planted.model, batch, lookups, "output_norm")).reshape(2, 9)
    expected = {name: [places[place] for place in heads] for name, heads in planted.controls.items()}
    assert found["ranks"]["output norm"] == expected


def test_planted_heads_of_equal_importance_share_their_mean_place():
    planted = Planted(encoder(), ((0, 0), (0, 1)), ((0, 2), (1, 0)), dead=(1, 1), constant=(1, 2), unheard=(0, 3))
    importance = torch.tensor([[5.0, 0.0, 7.0, 0.0], [0.0, 5.0, 0.0, 1.0]])
    found = league.places_of(planted, importance)
    shared = {"twins": [2.5, 6.5], "cancelling": [1.0, 6.5], "dead": [2.5], "constant": [6.5], "unheard": [6.5]}
    assert found == shared


@pytest.mark.cpu
def test_without_training_after_cuts_the_rest_is_the_same(result):
    untuned = quick(0, tuning_steps=None, longer_tuning_steps=None)
    for order in result["orders"].values():
        del order["tuned"], order["tuned_longer"]
    assert untuned == result
