"""The check of a learner's test: it runs on pipelines with the fault, without it, and with the other faults."""

import dataclasses
from collections.abc import Callable
from types import EllipsisType

from mha_course.capstone.faults import FAULTS, Pipeline, fault_of, made
from mha_course.checking.faulty_programs import FaultyPrograms
from mha_course.checking.verdict import Verdict

PIPELINES = FaultyPrograms("pipeline", made, fault_of, FAULTS)


def check_test(my_test: Callable[[Pipeline], object] | EllipsisType | None, seed: int) -> Verdict:
    """Check a test of ``pipeline(seed)``: a function of a pipeline that raises an AssertionError or returns False where
    it finds a fault.

    It is right where it fails with the fault and passes without, both with two models that it has not seen.
    """
    verdict = PIPELINES.verdict(my_test, seed)
    step = f"`capstone.harm({seed})` says what the fault does to a choice of heads."
    return dataclasses.replace(verdict, next_step=step) if verdict else verdict
