"""The check of a learner's test: it runs on pipelines with the fault, without it, and with the other faults."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import EllipsisType

from mha_course.capstone.faults import FAULTS, Pipeline, fault_of, made
from mha_course.checking.running import MistakeError, NotYetError, Outcome, run_safely
from mha_course.checking.verdict import Verdict
from mha_course.checking.wording import as_sentence
from mha_course.language import listed
from mha_course.models.training import seeded

PROMISED = "Test only what the docstrings promise, with numbers that hold for any model and any rows."
NOT_WRITTEN = "Put your test in the place of the dots, then run both cells."


@dataclass(frozen=True)
class Tried:
    """Hold what a test said of pipelines.

    Attributes:
        passes: whether it passes on two right pipelines.
        notices: whether it fails on two with the fault of the seed.
        others: the other faults that it notices.
        missed: those that it does not.
        outcome: how it fails on a right pipeline; None where it passes.
    """

    passes: bool
    notices: bool
    others: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    outcome: Outcome | None = None


def tried(my_test: Callable[[Pipeline], object], seed: int) -> Tried:
    """Run a test on pipelines with and without the fault of a seed, and with each other fault.

    Each run has a process of its own, where the system allows it, with models and rows that the learner has not seen.

    Raises:
        MistakeError: the test is no function, or does not come to an end.
        NotYetError: it is not written yet.
    """
    own, unseen = fault_of(seed), (2**20 + seed, 2**21 + seed)
    for one in unseen:
        outcome = _outcome(my_test, made("", one))
        if not _passed(outcome):
            return Tried(False, False, outcome=outcome)
    notices = not any(_passed(_outcome(my_test, made(own, one))) for one in unseen)
    found = {name: not _passed(_outcome(my_test, made(name, unseen[0]))) for name in FAULTS if name != own}
    others, missed = ([name for name, seen in found.items() if seen is wanted] for wanted in (True, False))
    return Tried(True, notices, others, missed)


def check_test(my_test: Callable[[Pipeline], object] | EllipsisType | None, seed: int) -> Verdict:
    """Check a test of ``pipeline(seed)``: a function of a pipeline that raises an AssertionError or returns False where
    it finds a fault.

    It is right where it fails with the fault and passes without, both with two models that it has not seen.
    """
    if my_test is None or isinstance(my_test, EllipsisType):
        return Verdict("not yet", NOT_WRITTEN)
    try:
        with seeded(seed):
            found = tried(my_test, seed)
    except NotYetError as reason:
        return Verdict("not yet", str(reason))
    except MistakeError as reason:
        return Verdict("wrong", str(reason))
    if found.outcome:
        return Verdict("wrong", *_problem(found.outcome), PROMISED)
    others = f"Of the {len(FAULTS) - 1} other faults it notices {len(found.others)}."
    if not found.notices:
        step = "Each sentence of the docstrings is a promise. Which of them does your test not check?"
        return Verdict("not yet", f"Your test passes on the pipeline with the fault. {others}", next_step=step)
    text = f"Your test fails on the pipeline with the fault and passes without it, with two models each. {others}"
    missed = f"It does not notice: {listed(found.missed)}." if found.missed else ""
    return Verdict("right", text, missed, f"`capstone.harm({seed})` says what the fault does to a choice of heads.")


def _outcome(my_test: Callable[[Pipeline], object], p: Pipeline) -> Outcome:
    """What a test says in a run of its own: True where it passes, else False or an error."""
    if not callable(my_test):
        run_safely(my_test, [])  # which says what is wrong

    def passes(p: Pipeline) -> bool:
        said = my_test(p)
        return said is None or bool(said)

    (outcome,) = run_safely(passes, [(p,)])
    return outcome


def _passed(outcome: Outcome) -> bool:
    return outcome.error is None and outcome.value is True


def _problem(outcome: Outcome) -> tuple[str, str]:
    """What is wrong with a test that fails on a right pipeline, and in which line; an error comes first."""
    line = f"The line: `{outcome.line}`" * bool(outcome.line)
    if outcome.error and outcome.error[0] != "AssertionError":
        return as_sentence(f"your test raises {': '.join(filter(None, outcome.error))}"), line
    return "Your test fails on a pipeline without a fault, too.", line
