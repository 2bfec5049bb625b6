"""Judge a test that a learner wrote: it must pass what is right, and fail programs with one fault."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any

from mha_course.checking.edits import mistakes_of
from mha_course.checking.running import MistakeError, NotYetError, Outcome, run_safely
from mha_course.checking.verdict import Verdict
from mha_course.checking.wording import as_sentence, kind_of
from mha_course.language import listed
from mha_course.models.training import seeded

PROMISED = "Test only what the docstrings promise, with numbers that hold for any model and any rows."
NOT_WRITTEN = "Put your test in the place of the dots, then run both cells."


def require_that_it_tells(test: Callable, right: Callable, table: str) -> None:
    """Raise a ``MistakeError`` unless ``test`` returns True for ``right`` and False for every faulty program.

    A test that raises an error on a faulty program has noticed it, too.

    Args:
        test: takes a program, and returns whether it seems to be right.
        right: the right program.
        table: its faults as ``edits`` reads them, with what is said of one that the test does not notice.
    """
    faults = [*mistakes_of(right, table)]
    of_right, *of_faulty = run_safely(test, [(right,), *((program,) for _, program in faults)])
    if of_right.error:
        raise MistakeError(f"Your test raises {of_right.error_in_words} on a correct function.")
    for outcome in (of_right, *(each for each in of_faulty if not each.error)):
        if type(outcome.value) is not bool:
            raise MistakeError(f"Return True or False; your test returns {kind_of(outcome.value)}.")
    if not of_right.value:
        raise MistakeError("Your test returns False for a correct function.")
    for (text, _), outcome in zip(faults, of_faulty, strict=True):
        if not outcome.error and outcome.value:
            raise MistakeError(f"Your test accepts a function with this fault: {text}")


@dataclass(frozen=True)
class Tried:
    """Hold what a test said of programs.

    Attributes:
        passes: whether it passes on two right ones.
        notices: whether it fails on two with the fault of the seed.
        others: the other faults that it notices.
        missed: those that it does not.
        outcome: how it fails on a right one; None where it passes.
    """

    passes: bool
    notices: bool
    others: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    outcome: Outcome | None = None


@dataclass(frozen=True)
class FaultyPrograms:
    """Programs of one kind, with a fault that a seed draws, with another one, or without.

    Attributes:
        what: the kind in a word, such as "layer".
        made: gives the program with a fault, "" for none, and the numbers of a seed.
        fault_of: gives the fault of a seed.
        faults: the names of all faults.
    """

    what: str
    made: Callable[[str, int], Any]
    fault_of: Callable[[int], str]
    faults: Collection[str]

    def tried(self, my_test: Callable, seed: int) -> Tried:
        """Run a test on programs without a fault, with the fault of a seed, and with each other fault.

        Each run has a process of its own, where the system allows it, with numbers that the learner has not seen.

        Raises:
            MistakeError: the test is no function, or does not come to an end.
            NotYetError: it is not written yet.
        """
        unseen, own = (2**20 + seed, 2**21 + seed), self.fault_of(seed)
        for one in unseen:
            outcome = _outcome(my_test, self.made("", one))
            if not _passed(outcome):
                return Tried(False, False, outcome=outcome)
        notices = not any(_passed(_outcome(my_test, self.made(own, one))) for one in unseen)
        found = {
            name: not _passed(_outcome(my_test, self.made(name, unseen[0]))) for name in self.faults if name != own
        }
        others, missed = ([name for name, seen in found.items() if seen is wanted] for wanted in (True, False))
        return Tried(True, notices, others, missed)

    def points(self, my_test: Callable, seed: int, most: tuple[int, int]) -> list[int]:
        """Return points, at most these: for a test that tells the fault of the seed, and for noticing others, too."""
        with seeded(seed):
            found = self.tried(my_test, seed)
        both = found.passes and found.notices
        return [most[0] * both, most[1] * len(found.others) * both // (len(self.faults) - 1)]

    def verdict(self, my_test: Callable | EllipsisType | None, seed: int) -> Verdict:
        """Return in words what ``tried`` finds, with the seed's numbers."""
        what = self.what
        if my_test is None or isinstance(my_test, EllipsisType):
            return Verdict("not yet", NOT_WRITTEN)
        try:
            with seeded(seed):
                found = self.tried(my_test, seed)
        except NotYetError as reason:
            return Verdict("not yet", str(reason))
        except MistakeError as reason:
            return Verdict("wrong", str(reason))
        if found.outcome:
            return Verdict("wrong", *_problem(found.outcome, what), PROMISED)
        others = f"Of the {len(found.others) + len(found.missed)} other faults it notices {len(found.others)}."
        if not found.notices:
            step = "Each sentence of the docstrings is a promise. Which of them does your test not check?"
            return Verdict("not yet", f"Your test passes on the {what} with the fault. {others}", next_step=step)
        text = f"Your test fails on the {what} with the fault and passes without it, with two models each. {others}"
        missed = f"It does not notice: {listed(found.missed)}." if found.missed else ""
        return Verdict("right", text, missed)


def _outcome(my_test: Callable, program: Any) -> Outcome:
    """What a test says in a run of its own: True where it passes, else False or an error."""
    if not callable(my_test):
        run_safely(my_test, [])  # which says what is wrong

    def passes(program: Any) -> bool:
        said = my_test(program)
        return said is None or bool(said)

    (outcome,) = run_safely(passes, [(program,)])
    return outcome


def _passed(outcome: Outcome) -> bool:
    return outcome.error is None and outcome.value is True


def _problem(outcome: Outcome, what: str) -> tuple[str, str]:
    """What is wrong with a test that fails where nothing is wrong, and in which line; an error comes first."""
    line = f"The line: `{outcome.line}`" * bool(outcome.line)
    if outcome.error and outcome.error[0] != "AssertionError":
        return as_sentence(f"your test raises {outcome.error_in_words}"), line
    return f"Your test fails on a {what} without a fault, too.", line
