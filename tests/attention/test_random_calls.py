"""Thousands of calls drawn at random: each is right, or refused by an error that names the argument."""

from random_calls import run_many


def test_every_random_call_is_right_or_refused_by_name():
    counts = run_many(3000)
    assert min(counts["right"], counts["refused"]) > 1000
    assert counts["without numbers"] > 100
