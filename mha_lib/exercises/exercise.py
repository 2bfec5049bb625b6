"""An exercise as data: the right answer, inputs to try it on, and typical mistakes as edits of the right answer.

    @exercise(
        trials=lambda: [(torch.randn(3),)],
        praise="Twice.",
        hints=("What is twice a number?", "The shape stays.", "Multiply."),
        mistakes="2 * X → X * X ⇒ This squares. What is asked for?",
    )
    def double(X):
        return 2 * X

makes ``double`` a check: ``double(answer)`` is a verdict. It names the mistake if the answer gives, in every call, what
the right answer gives with that edit made in it, or with two mistakes' edits made in it.

A table of mistakes reads: "what stands in the right answer → what stands there instead ⇒ what is said of it", a row a
line; what is indented further continues a row. "∅" is nothing, ";" stands between edits that are made together, "∨"
between several ways to make the same mistake.
"""

import ast
import dis
import functools
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

import torch

from mha_lib.exercises import progress
from mha_lib.exercises.diagnosis import diagnose
from mha_lib.exercises.naming import Result, imitates
from mha_lib.exercises.running import NO_LIMIT, MistakeError, NotYetError, can_fork, error_in_words, run
from mha_lib.exercises.verdict import Verdict
from mha_lib.exercises.wording import call_in_words, two_numbers

Edits = dict[str, str]  # a fragment of the right answer → what stands there instead
Hints = tuple[str, str, str]  # the idea, the shapes, the first line


class Exercise:
    """A check of answers to one exercise: called with an answer it gives a ``Verdict`` and never raises.

    It always draws the same numbers, and leaves the learner's random state as it was. An answer that is still None or
    an ellipsis is not examined.

    Attributes:
        right: a function that is a right answer, or gives right answers where no function is asked for.
        hints: the idea, the shapes, the first line.
        answer: source of the last answer, if it is a function whose source is known.
    """

    def __init__(self, right: Callable, hints: Hints, examine: Callable[..., str | Verdict]) -> None:
        functools.update_wrapper(self, examine)
        self.right, self.hints, self.examine = right, hints, examine
        self.answer = ""

    def __call__(self, *answers: Any) -> Verdict:
        if any(answer is None or answer is ... for answer in answers):
            return Verdict("not yet", "put your answer in the place of the dots, then run both cells.")
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # torch.manual_seed would seed the accelerators too
            verdict = self.verdict_on(answers)
        self.answer = source_of(answers[0]) if len(answers) == 1 else ""
        progress.record(self.__name__, verdict.state)
        return verdict

    def verdict_on(self, answers: tuple) -> Verdict:
        """What ``examine`` says, or raises, as a verdict."""
        name, note = self.__name__, "" if can_fork() else f" ({NO_LIMIT})"
        try:
            verdict = self.examine(*self.prepared(answers))
        except NotYetError as reason:
            return Verdict("not yet", str(reason))
        except MistakeError as reason:
            verdict = Verdict("wrong", str(reason))
        except KeyboardInterrupt:
            raise
        except BaseException as surprise:
            verdict = Verdict("wrong", f"this check cannot make sense of it ({': '.join(error_in_words(surprise))}).")
        if isinstance(verdict, str):
            verdict = Verdict("right", verdict)
        offer = f'Compare with a worked answer: `exercises.solution("{name}")`'
        step = offer if verdict else f'Stuck? `exercises.hint("{name}")`'
        told = {"state": verdict.state, "text": verdict.text + note, "next_step": step}
        return Verdict(**told, **{key: getattr(verdict, key) for key in ("evidence", "inputs", "got", "expected")})

    def prepared(self, answers: tuple) -> tuple:
        """Functions as they are; of all else a plain copy, made where no code of a learner can hold the check up."""
        if all(map(callable, answers)):
            return answers
        return tuple(run(lambda: list(answers), [()])[0].value)

    @property
    def solution(self) -> str:
        """Source of the right answer."""
        return source_without_docstring(self.right)


class FunctionExercise(Exercise):
    """An exercise whose answer is a function, with a table of mistakes.

    Attributes:
        trials: draws the arguments of calls.
        mistakes: what is said of a mistake → a function that makes it, for each way to make it.
    """

    def __init__(self, right, hints, trials, praise, mistakes, then=None, numbers_in_words=two_numbers) -> None:
        super().__init__(right, hints, self.examine_function)
        functools.update_wrapper(self, right)
        self.trials, self.praise, self.then, self.numbers_in_words = trials, praise, then, numbers_in_words
        self.edits = [
            row for table in ([mistakes] if isinstance(mistakes, str) else mistakes) for row in rows_of(table)
        ]

    @functools.cached_property
    def mistakes(self) -> list[tuple[str, Callable]]:
        return [(text, with_edits(self.right, edits)) for text, edits in self.edits]

    def examine_function(self, function: Callable) -> str | Verdict:
        """Compare with the right answer, stage by stage; the first stage with a wrong result decides."""
        stages = self.trials()
        results = []
        for where, trials in (stages if isinstance(stages, dict) else {"": stages}).items():
            outcomes = run(function, trials)
            results += [Result(trial, got, self.right(*trial)) for trial, got in zip(trials, outcomes, strict=True)]
            if any(result.problem() for result in results):
                return self.verdict_of(function, results, where)
        if self.then:
            self.then(function)
        return self.praise

    def verdict_of(self, function: Callable, results: Sequence[Result], where: str) -> Verdict:
        """A wrong verdict, with the smallest call that shows what is wrong."""
        shown = next(result for result in results if result.problem())
        call = f"{call_in_words(function, shown.trial)} {where}".strip()
        seen = ", ".join(filter(None, [call, shown.problem(self.numbers_in_words)]))
        seen = f"{seen[0].upper()}{seen[1:]}."
        text = self.named(results) or diagnose(results) or unused(function, len(shown.trial))
        evidence = seen if text else ""
        return Verdict("wrong", text or seen, evidence, "", shown.trial, shown.got.value, shown.right)

    def named(self, results: Sequence[Result]) -> str | None:
        """The mistake that gives these results; else two mistakes that do so together."""
        for text, program in self.mistakes:
            if imitates(program, results):
                return text
        for texts, program in self.pairs():
            if imitates(program, results):
                return "Two things at once. {} And: {}".format(*texts)
        return None

    def pairs(self) -> Iterator[tuple[tuple[str, str], Callable]]:
        """Two different mistakes at a time, where their edits do not touch."""
        for (first, one), (second, other) in itertools.combinations(self.edits, 2):
            if first != second and (program := with_edits(self.right, one, other)):
                yield (first, second), program


def exercise(*, trials: Callable, praise: str, hints: Hints, mistakes: str | tuple[str, ...], **options):
    """Make a function, which is a right answer, into an exercise.

    Args:
        trials: gives the arguments of calls, the smallest first; or a dictionary of such lists, one for each stage of
            the check, under words that say what is special about its calls.
        praise: what is said of a right answer.
        hints: the idea, the shapes, the first line; none holds a line of the answer.
        mistakes: a table of mistakes, see above, or several.
        then: is called with an answer whose results are all right, and raises a ``MistakeError`` if all is not well.
        numbers_in_words: how two numbers that differ are written.
    """
    return lambda right: FunctionExercise(right, hints, trials, praise, mistakes, **options)


def judged(*, right: Callable, hints: Hints) -> Callable[[Callable[..., str]], Exercise]:
    """Make a function that returns praise for a right answer, or raises a ``MistakeError``, into an exercise."""
    return lambda examine: Exercise(right, hints, examine)


def unused(function: Callable, count: int) -> str | None:
    """An argument that the answer never looks at."""
    code = getattr(function, "__code__", None)
    if type(code) is not CodeType or code.co_argcount < count:
        return None
    looked_at = {instruction.argval for instruction in dis.get_instructions(code)} | set(code.co_cellvars)
    never = [name for name in code.co_varnames[:count] if name not in looked_at]
    return f"Your code never looks at `{never[0]}`. What is it for?" if never else None


def rows_of(table: str) -> Iterator[tuple[str, Edits]]:
    """What is said of a mistake, and the edits that make it, for each way to make it."""
    for row in re.split(r"\n(?! )", inspect.cleandoc(table)):
        ways, _, text = " ".join(row.split()).partition(" ⇒ ")
        for way in ways.split(" ∨ "):
            pairs = (edit.split(" → ") for edit in way.split(" ; "))
            yield text, {old.strip(): new.strip().replace("∅", "") for old, new in pairs}


def with_edits(right: Callable, *edits: Edits) -> Callable | None:
    """The right answer with parts of its source replaced; None if two edits are about the same part.

    Raises:
        ValueError: a fragment does not stand there exactly once.
    """
    source = re.sub(r"  # .*", "", source_without_docstring(right))
    places = []
    for old, new in itertools.chain.from_iterable(edit.items() for edit in edits):
        if source.count(old) != 1:
            raise ValueError(f"{right.__name__}: must stand there once, found {source.count(old)} times: {old}")
        places.append((source.index(old), source.index(old) + len(old), new))
    places.sort()
    if any(end > start for (_, end, _), (start, _, _) in itertools.pairwise(places)):
        return None
    for start, end, new in reversed(places):
        source = source[:start] + new + source[end:]
    namespace = {}
    exec(compile(source, f"<{right.__name__} with a mistake>", "exec"), right.__globals__, namespace)
    return namespace[right.__name__]


@functools.cache
def source_without_docstring(function: Callable) -> str:
    """A function's source as it was written, without decorators and docstring."""
    source = textwrap.dedent(inspect.getsource(function))
    (tree,) = ast.parse(source).body
    lines = source.splitlines()
    first = tree.body[1 if ast.get_docstring(tree) else 0].lineno
    return "\n".join([*lines[tree.lineno - 1 : tree.body[0].lineno - 1], *lines[first - 1 :]]) + "\n"


def source_of(answer: Any) -> str:
    """A learner's own source, if it can be found."""
    try:
        return textwrap.dedent(inspect.getsource(answer))
    except (OSError, TypeError):
        return ""
