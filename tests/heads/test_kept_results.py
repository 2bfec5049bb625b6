"""Kept results are what the commands that make them wrote."""

import pytest

from benchmarks import heads, places, pruning_speed
from mha_lib.heads import kept_results


def test_the_speeds_are_those_of_the_cuts_that_the_benchmark_makes():
    kept = [(row["shape"], row["kept"]) for row in kept_results.load_results("pruning_speed")]
    assert kept == [(str(cell), num_kept) for cell, num_kept in pruning_speed.CUTS]


@pytest.mark.parametrize(("name", "bench"), [("heads", heads), ("places", places)])
def test_the_report_shows_the_kept_results(name, bench):
    assert bench.report(kept_results.load_results(name)) == bench.REPORT.read_text(encoding="utf-8")


def test_unknown_results_are_refused():
    with pytest.raises(
        ValueError, match="name must be one of heads, pruning_speed, births, places, real_heads, got 'speed'"
    ):
        kept_results.load_results("speed")
