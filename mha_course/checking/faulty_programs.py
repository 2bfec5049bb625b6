"""Judge a test that a learner wrote: it must pass what is right, and fail each of several programs with one fault."""

from collections.abc import Callable, Sequence

from mha_course.checking.running import MistakeError, run_safely
from mha_course.checking.wording import kind_of


def require_that_it_tells(test: Callable, right: Callable, faults: Sequence[tuple[str, Callable]]) -> None:
    """Raise a ``MistakeError`` unless ``test`` returns True for ``right`` and False for every faulty program.

    A test that raises an error on a faulty program has noticed it, too.

    Args:
        test: takes a program, and returns whether it seems to be right.
        faults: what is said of a fault that the test does not notice, and the program that has it.
    """
    of_right, *of_faulty = run_safely(test, [(right,), *((program,) for _, program in faults)])
    if of_right.error:
        raise MistakeError(f"Your test raises {': '.join(filter(None, of_right.error))} on a correct function.")
    for outcome in (of_right, *(each for each in of_faulty if not each.error)):
        if type(outcome.value) is not bool:
            raise MistakeError(f"Return True or False; your test returns {kind_of(outcome.value)}.")
    if not of_right.value:
        raise MistakeError("Your test returns False for a correct function.")
    for (text, _), outcome in zip(faults, of_faulty, strict=True):
        if not outcome.error and outcome.value:
            raise MistakeError(f"Your test accepts a function with this fault: {text}")
