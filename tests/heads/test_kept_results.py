"""Kept results are what the commands that make them wrote."""

import pytest

from benchmarks import heads, pruning_speed
from mha_lib.heads import kept_results


def test_the_speeds_are_those_of_the_cuts_that_the_benchmark_makes():
    kept = [(row["shape"], row["kept"]) for row in kept_results.load_results("pruning_speed")]
    assert kept == [(str(cell), num_kept) for cell, num_kept in pruning_speed.CUTS]


def test_the_report_shows_the_kept_results():
    assert heads.report(kept_results.load_results("heads")) == heads.REPORT.read_text(encoding="utf-8")


def test_unknown_results_are_refused():
    with pytest.raises(ValueError, match="name must be one of heads, pruning_speed, births, real_heads, got 'speed'"):
        kept_results.load_results("speed")
