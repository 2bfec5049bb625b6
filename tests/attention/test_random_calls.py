"""Thousands of layers and calls drawn at random: each is right, or refused by an error that names the argument."""

import pytest
from random_calls import run_many

pytestmark = pytest.mark.cpu  # calls on several devices, from the CPU


@pytest.mark.filterwarnings("ignore:valid_lens of shape")  # some look by chance like those of causal attention
def test_every_random_call_is_right_or_refused_by_name():
    counts = run_many(1200)
    assert min(counts["right"], counts["refused"], counts["built"]) > 350
    assert min(counts["without numbers"], counts["not built"]) > 50
