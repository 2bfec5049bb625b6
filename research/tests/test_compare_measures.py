"""What is kept of long runs, and that they go on where they were cut short."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch

from mha_course.heads.kept_results import load_results
from research import compare_measures, places
from research.kept import kept_file, rounded, write_compact


@pytest.mark.parametrize(("name", "experiment"), [("heads", compare_measures), ("places", places)])
def test_the_report_shows_the_kept_results(name, experiment):
    assert experiment.report(load_results(name)) == Path(experiment.__file__).with_suffix(".md").read_text(
        encoding="utf-8"
    )


def test_kept_results_are_rounded_however_deep_and_small_differences_may_stay(tmp_path):
    found = {"costs": torch.tensor([[0.123456, 2.0]]).double(), "pairs": [(1, 0.00012345)], "none": None}
    assert rounded(found, 3) == {"costs": [[0.123, 2.0]], "pairs": [[1, 0.0]], "none": None}
    assert rounded(found, 3, small=1e-3)["pairs"] == [[1, 0.00012345]]
    write_compact(tmp_path / "found.json", rounded(found, 3))
    assert (tmp_path / "found.json").read_text() == '{"costs":[[0.123,2.0]],"pairs":[[1,0.0]],"none":null}\n'
    assert json.loads(kept_file("births").read_text()) == load_results("births")


def test_it_goes_on_where_it_was_cut_short(tmp_path, monkeypatch):
    def run(seed, version):
        if seed == 2 and version == "cut short":
            raise KeyboardInterrupt
        return {"seed": seed, "area": 0.123456 + seed, "version": version}

    def complete(results, version):
        monkeypatch.setattr(compare_measures, "RUNS", {"lookups": partial(run, version=version)})
        with ThreadPoolExecutor(max_workers=1) as thread:
            compare_measures.complete(results, thread)

    monkeypatch.setattr(compare_measures, "RESULTS", tmp_path / "heads.json")
    monkeypatch.setattr(compare_measures, "SEEDS", range(3))
    with pytest.raises(KeyboardInterrupt):
        complete({}, "cut short")
    kept = json.loads(compare_measures.RESULTS.read_text())
    assert [result["seed"] for result in kept["lookups"]] == [0, 1]
    complete(kept, "whole")
    assert [result["version"] for result in kept["lookups"]] == ["cut short", "cut short", "whole"]
    assert json.loads(compare_measures.RESULTS.read_text()) == kept and kept["lookups"][2]["area"] == 2.1235
