"""What a fault does to a choice of heads, on a small model without training."""

import pytest
import torch
from worked import untrained

from mha_course import capstone
from mha_course.capstone import fault_harm
from mha_course.capstone.faults import fault_of
from mha_lib import heads

KINDS = "head off by one", "a head stays off", "rows in both sets", "transposed weight in the cut"


@pytest.fixture(scope="module")
def work():
    return untrained()


@pytest.fixture(scope="module")
def choices(work):
    return {fault: fault_harm.choice(fault, work) for fault in ("", *KINDS)}


def test_without_a_fault_what_is_said_is_true(choices):
    right = choices[""]
    assert right.reported == right.true and abs(right.cut) < 1e-4
    assert sum(map(len, right.plan.values())) == 6


def test_a_head_off_by_one_says_what_is_true_of_others(work, choices):
    """The heads that it switches off are those before the ones that it names."""
    right, wrong = choices[""], choices["head off by one"]
    assert {name: sorted((head - 1) % 6 for head in off) for name, off in wrong.plan.items()} == {**right.plan}
    assert wrong.reported == pytest.approx(right.true, abs=1e-5) and abs(wrong.true - right.true) > 1e-3


def test_the_true_rise_is_that_of_the_library(work, choices):
    order = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    some, others = work.calibration[order[:16]], work.calibration[order[16:]]
    found = heads.of(work.model, some.inputs, some.valid_lens)
    means = found.means(valid=torch.arange(12) < some.valid_lens[:, None])
    for fault in ("", "a head stays off"):
        found_rise = found.rise(choices[fault].plan, work.loss(others), instead=means).mean().item()
        assert choices[fault].true == pytest.approx(found_rise, abs=1e-5)


def test_silent_faults_are_told_as_silent(choices):
    right = choices[""]
    for fault in ("rows in both sets", "transposed weight in the cut"):
        assert "Only a test can find it" in " ".join(fault_harm.told(right, choices[fault]))
    assert "The loss of the model that it cuts" in fault_harm.told(right, choices["transposed weight in the cut"])[-1]
    loud = " ".join(fault_harm.told(right, choices["a head stays off"]))
    assert "With the fault: " in loud and "nothing but" not in loud


def test_harm_names_the_fault_of_the_seed_and_refuses_another_model(work):
    assert capstone.harm(3, work).text.startswith(f"Your fault: {fault_of(3)}. ")
    work.task, task = None, work.task
    with pytest.raises(ValueError, match=r"work must be drawn_model\(3\), got untrained 7"):
        capstone.harm(3, work)
    work.task = task
