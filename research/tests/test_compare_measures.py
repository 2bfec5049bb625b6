"""What is kept of long runs, and that they go on where they were cut short."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from mha_course.heads.kept_results import load_results
from research import compare_measures, places
from research.kept import kept_file, rounded, write_compact


@pytest.mark.parametrize(("name", "experiment"), [("heads", compare_measures), ("places", places)])
def test_the_report_shows_the_kept_results(name, experiment):
    assert experiment.report(load_results(name)) == experiment.REPORT.read_text(encoding="utf-8")


def test_kept_results_are_rounded_however_deep_and_small_differences_may_stay(tmp_path):
    found = {"costs": torch.tensor([[0.123456, 2.0]]).double(), "pairs": [(1, 0.00012345)], "none": None}
    assert rounded(found, 3) == {"costs": [[0.123, 2.0]], "pairs": [[1, 0.0]], "none": None}
    assert rounded(found, 3, small=1e-3)["pairs"] == [[1, 0.00012345]]
    write_compact(tmp_path / "found.json", rounded(found, 3))
    assert (tmp_path / "found.json").read_text() == '{"costs":[[0.123,2.0]],"pairs":[[1,0.0]],"none":null}\n'
    assert json.loads(kept_file("births").read_text()) == load_results("births")


def fake_run(seed, task, measures, version):
    """What a part might say: random numbers that the seed, the name and the version of the code decide."""
    orders = {name: {"area": hash((seed, name, version)) % 997} for name in measures}
    return {"task": task, "seed": seed, "orders": {"oracle": {"area": seed}} | orders}


@pytest.fixture
def few_heads(tmp_path, monkeypatch):
    """Two measures of two seeds of one task, on threads; gives what completes the results, at some version."""
    monkeypatch.setattr(compare_measures, "RESULTS", tmp_path / "heads.json")
    monkeypatch.setattr(compare_measures, "MEASURES", {"gates": None, "norm": None})
    monkeypatch.setattr(compare_measures, "SEEDS", range(2))

    def complete(results, run):
        monkeypatch.setattr(compare_measures, "RUNS", {"lookups": partial(run, task="lookups")})
        with ThreadPoolExecutor(max_workers=1) as thread:
            compare_measures.complete(results, thread)
        return json.loads(compare_measures.RESULTS.read_text())

    return complete


def test_a_measure_is_taken_again_alone_and_goes_on_where_it_was_cut_short(few_heads):
    def cut_short(seed, **options):
        if seed == 1:
            raise KeyboardInterrupt
        return new(seed, **options)

    def only_the_gates(seed, measures, **options):
        assert (seed, list(measures)) == (1, ["gates"])
        return new(seed, measures=measures, **options)

    old, new = (partial(fake_run, measures=compare_measures.MEASURES, version=version) for version in (1, 2))
    results = few_heads({}, old)
    assert results["lookups"] == [old(seed, task="lookups") for seed in range(2)]
    compare_measures.forget(results, ["gates"])
    with pytest.raises(KeyboardInterrupt):
        few_heads(results, cut_short)
    again = few_heads(json.loads(compare_measures.RESULTS.read_text()), only_the_gates)
    for seed, result in enumerate(again["lookups"]):
        orders = [run(seed, task="lookups")["orders"] for run in (old, new)]
        assert result["orders"] == {
            "oracle": orders[0]["oracle"],
            "norm": orders[0]["norm"],
            "gates": orders[1]["gates"],
        }


def test_a_whole_part_is_measured_again(few_heads):
    old, new = (partial(fake_run, measures=compare_measures.MEASURES, version=version) for version in (1, 2))
    results = few_heads({}, old)
    compare_measures.forget(results, ["lookups"])
    assert few_heads(results, new)["lookups"] == [new(seed, task="lookups") for seed in range(2)]


def test_a_measure_of_another_model_is_not_put_beside_the_others(few_heads):
    def other_model(seed, task, measures):
        return {"task": task, "seed": seed, "orders": {"oracle": {"area": -1}, "gates": {"area": 5}}}

    results = few_heads({}, partial(fake_run, measures=compare_measures.MEASURES, version=1))
    compare_measures.forget(results, ["gates"])
    with pytest.raises(ValueError, match=r"lookups, seed 0: .* trains another model\. Delete"):
        few_heads(results, other_model)
