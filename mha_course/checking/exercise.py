"""An exercise as data: the right answer, inputs to try it on, and typical mistakes as edits of the right answer.

    @exercise(
        trials=lambda: [(torch.randn(3),)],
        praise="Twice.",
        idea="What is twice a number?",
        begin="Begin with the number itself.",
        mistakes="2 * X -> X * X => This is the square, not twice the number.",
    )
    def double(X):
        return 2 * X

makes ``double`` a check: ``double(answer)`` is a verdict. It names the mistake if the answer gives, in every call, what
the right answer gives with that edit made in it.
"""

import contextlib
import dataclasses
import dis
import functools
import inspect
import itertools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

from mha_course import kept_work
from mha_course.checking import diagnosis, running
from mha_course.checking.comparing import Result, explains, given, is_number, needed
from mha_course.checking.edits import mistakes_of, source_of_answer
from mha_course.checking.running import NO_LIMIT, MistakeError, NotYetError, Outcome, error_in_words, run_safely
from mha_course.checking.verdict import Verdict
from mha_course.checking.wording import as_sentence, call_in_words, names_of, two_numbers
from mha_course.language import english, listed, sentences, tr
from mha_course.models.training import seeded

A_CLASS = "This is a class. Give a function, or an instance of the class."


class Exercise:
    """Check a learner's answer to one exercise: call it with the answer, and it returns a ``Verdict``.
    It never raises an error.

    It always draws the same numbers, and leaves the learner's random state as it was. An answer that is still None or
    an ellipsis is not examined.

    Attributes:
        right: a function that is a right answer, or gives right answers where no function is asked for.
        hints: name of a step → the idea, the shapes as the docstring has them, the first line.
        answer: source of the last answer, if it is a function whose source is known.
    """

    __name__: str  # of the function that was made into an exercise

    def __init__(self, task: Callable, right: Callable, idea: str, begin: str) -> None:
        functools.update_wrapper(self, task)  # its name, and the docstring that says what is asked for
        self.task, self.right, self.answer = task, right, ""
        shapes = " ".join((inspect.getdoc(self) or "").partition("\n\n")[2].partition("Source:")[0].split())
        steps = {"The idea": idea, "The shapes": shapes, "To begin with": begin}
        self.hints = {step: text for step, text in steps.items() if text}

    def __call__(self, *answers: Any) -> Verdict:
        if any(answer is None or answer is ... for answer in answers):
            return Verdict("not yet", tr("Put your answer in the place of the dots, then run both cells."))
        with seeded(0):
            verdict = self.verdict_on(answers)
        self.answer = source_of(answers[0]) if len(answers) == 1 else ""
        kept_work.record(self.__name__, verdict.state)
        return verdict

    def examine(self, *answers: Any) -> str | Verdict:
        """Praise for a right answer, or a verdict; raises ``MistakeError`` or ``NotYetError`` with what is wrong."""
        return self.task(*answers)

    def verdict_on(self, answers: tuple) -> Verdict:
        """Return what ``examine`` says, or raises, as a verdict with the next step."""
        try:
            if not all(map(callable, answers)):  # plain copies, made where no code of a learner can hold the check up
                answers = tuple(run_safely(lambda given=answers: list(given), [()])[0].value)
            said = self.examine(*answers)
            verdict = said if isinstance(said, Verdict) else Verdict("right", tr(said))
        except NotYetError as reason:
            return Verdict("not yet", str(reason))
        except MistakeError as reason:
            verdict = Verdict("wrong", str(reason))
        except KeyboardInterrupt:
            raise
        except BaseException as surprise:
            error = ": ".join(error_in_words(surprise))
            verdict = Verdict("wrong", tr("This check cannot read it ({error}).", error=error))
        step = (
            tr('Compare with a worked answer: `exercises.solution("{name}")`', name=self.__name__)
            if verdict
            else tr('Stuck? `exercises.hint("{name}")`', name=self.__name__)
        )
        if not running.can_fork():
            step = sentences([tr("{sentence}.", sentence=step), tr(NO_LIMIT)])
        return dataclasses.replace(verdict, next_step=step)

    @property
    def solution(self) -> str:
        """Source of the right answer."""
        return source_of_answer(self.right)


class FunctionExercise(Exercise):
    """Check a function written by a learner against a right function and a table of typical mistakes.

    Args:
        right: a right answer.
        trials: gives the arguments of calls, the smallest first; or a dictionary of such lists, one for each stage of
            the check, under words that say what is special about its calls.
        praise: what is said of a right answer.
        idea, begin: hints, of which none holds a line of the answer.
        mistakes: a table of mistakes, or several; ``edits`` says how it reads.
        programs: more mistakes, each as what is said of it and a program that makes it.
        then: is called with an answer whose results are all right, and raises a ``MistakeError`` if all is not well.
        numbers_in_words: how two numbers that differ are written.
        known: takes the arguments of a call that shows a mistake; gives what else to know of it, in a sentence.
        parts: names of the things that are returned, where they are several of different shapes.
    """

    def __init__(
        self,
        right: Callable,
        *,
        trials: Callable[[], list[tuple] | dict[str, list[tuple]]],
        praise: str,
        idea: str,
        begin: str,
        mistakes: str | tuple[str, ...],
        programs: Sequence[tuple[str, Callable]] = (),
        then: Callable[[Callable], object] | None = None,
        numbers_in_words: Callable[[float, float], tuple[str, str]] = two_numbers,
        known: Callable[..., str] = lambda *_: "",
        parts: tuple[str, ...] = (),
    ) -> None:
        super().__init__(right, right, idea, begin)
        self.trials, self.praise, self.then, self.known = trials, praise, then, known
        self.numbers_in_words, self.parts = numbers_in_words, parts
        tables = [mistakes] if isinstance(mistakes, str) else mistakes
        self.mistakes = [*(row for table in tables for row in mistakes_of(right, table)), *programs]
        self.programs = programs

    def examine(self, function: Callable) -> str | Verdict:
        """Compare with the right answer, stage by stage; the first stage with a wrong result decides."""
        results: list[Result] = []
        stages: list[str] = []
        trials = self.trials()
        for stage, calls in (trials if isinstance(trials, dict) else {"": trials}).items():
            stages.append(stage)
            results += self.results_of(function, calls)
            if any(result.problem() for result in results):
                return self.what_is_wrong(function, results, stages)
        if self.then:
            self.then(function)
        return self.praise

    def results_of(self, function: Callable, trials: Sequence[tuple]) -> list[Result]:
        """Return what an answer gives in these calls, beside what is right."""
        results: list[Result] = []
        for trial, got in zip(trials, run_safely(function, trials), strict=True):
            right = self.right(*trial)
            if got.error or not self.parts:
                results.append(Result(trial, got, right[0] if self.parts else right))
            elif not isinstance(got.value, list | tuple) or len(got.value) != len(right):
                words = {"count": len(right), "parts": listed(map(tr, self.parts), " and the ")}
                asked = tr("Return {count} things: the {parts}, in this order.", **words)
                raise MistakeError(sentences([asked, tr("Your function returns {given}.", given=given(got.value))]))
            else:
                parts = enumerate(zip(got.value, right, strict=True))
                results += [Result(trial, Outcome(own), wanted, number) for number, (own, wanted) in parts]
        return results

    def what_is_wrong(self, function: Callable, results: Sequence[Result], stages: Sequence[str]) -> Verdict:
        """Give the verdict on wrong results: what is known of them, and a call that shows it.

        An error is told before all else, by the call that raised it, unless a mistake of the table explains it.
        """
        failed = next((result for result in results if result.got.error), None)
        text = A_CLASS if isinstance(function, type) else next(self.named(results), "")
        shown = next(result for result in of_a_wrong_part(results) if result.problem())
        if failed and (not text or "error" in english(text)):
            shown, text = failed, text or next(self.errors(function, failed), "")
        text = text or next(self.described(function, results, stages), "")
        call = listed(filter(None, [call_in_words(function, shown.trial), tr(stages[-1])]))
        problem = shown.problem(self.numbers_in_words) or ""
        if shown.part is not None:
            problem = tr("in the {part}, {problem}", part=tr(self.parts[shown.part]), problem=problem)
        seen = [as_sentence(problem), tr("Seen {call}.", call=call) if call else "", self.known(*shown.trial)]
        evidence = {"inputs": shown.trial, "got": shown.got.value, "expected": shown.right}
        return Verdict("wrong", tr(text) if text else sentences(seen), sentences(seen) if text else "", **evidence)

    def named(self, results: Sequence[Result]) -> Iterator[str]:
        """Yield what explains every call: another form of the right numbers, or a mistake of the table."""
        yield from form(results)
        yield from (text for text, program in self.mistakes if explains(program, results))

    def errors(self, function: Callable, failed: Result) -> Iterator[str]:
        """Yield what the error of this call usually means."""
        kind, message = failed.got.error or ("", "")
        if kind == "TypeError" and "argument" in message and not failed.got.line:  # raised by the call itself
            names = ", ".join(names_of(self.right, len(failed.trial)))
            yield tr("The function must take these arguments: {names}.", names=names)
        yield from diagnosis.meanings(message)

    def described(self, function: Callable, results: Sequence[Result], stages: Sequence[str]) -> Iterator[str]:
        """Yield what is true of results that no mistake of the table explains, the surest first."""
        if any(result.got.error for result in results):
            return
        own, names = of_a_wrong_part(results), names_of(self.right, len(results[0].trial))
        right = {one.part for one in results} - {one.part for one in results if one.problem()}
        told = [*diagnosis.random_results(own), *diagnosis.one_change(own), *diagnosis.traces(own)]
        if right:
            good = listed((tr(name) for number, name in enumerate(self.parts) if number in right), " and ")
            words = {"right": good, "wrong": tr(self.parts[own[0].part or 0])}
            yield sentences([tr("Right: {right}. Wrong: {wrong}.", **words), *told[:1]])
        yield from told
        for name, asked in zip(names_of(function, len(names)), names, strict=True):
            if name and asked in used_by(self.right) and name not in used_by(function):
                yield tr("Your code does not use `{name}`.", name=name)
        yield from diagnosis.boundary(results, names, stages)


def of_a_wrong_part(results: Sequence[Result]) -> Sequence[Result]:
    """Return the results of the last group of calls that has a wrong one; all results where there is one group."""
    wrong = [one.part for one in results if one.part is not None and one.problem()]
    return [one for one in results if one.part == max(wrong)] if wrong else results


def form(results: Sequence[Result]) -> Iterator[str]:
    """Yield a sentence if a learner's numbers are right but have the wrong type, such as a list or a 1-tuple."""
    wrong = [result for result in results if result.problem()]
    came, right = wrong[0].got.value, wrong[0].right
    one_is_asked = not isinstance(right, list | tuple)
    if one_is_asked and all(type(one.got.value) is tuple and len(one.got.value) == 1 for one in wrong):
        parts = [dataclasses.replace(one, got=Outcome(one.got.value[0])) for one in wrong]
        comma = tr("as a comma behind the returned value makes it. Return the part itself.")
        if any(part.problem() for part in parts):
            yield tr("The function returns a tuple of 1 part, {comma}", comma=comma)
        elif is_number(right):
            yield tr("The number is right, but it comes as a tuple of 1 part, {comma}", comma=comma)
        else:
            yield tr("The numbers are right, but they come as a tuple of 1 part, {comma}", comma=comma)
    if all(one.is_packed_otherwise for one in wrong):
        words = {"given": given(came), "needed": needed(right)}
        if is_number(right):
            yield tr("The number is right, but it comes as {given}; {needed}.", **words)
        else:
            yield tr("The numbers are right, but they come as {given}; {needed}.", **words)
    if all(one.is_right_but_coarse for one in wrong):
        yield tr(
            "The numbers are right, but only to the precision of {kind}. Compute in torch.float32.", kind=came.dtype
        )


def exercise(**arguments: Any) -> Callable[[Callable], FunctionExercise]:
    """Return a decorator that makes a ``FunctionExercise`` of a function that is a right answer.
    The arguments are those of ``FunctionExercise``.
    """
    return lambda right: FunctionExercise(right, **arguments)


def judged(*, right: Callable, idea: str, begin: str) -> Callable[[Callable[..., str | Verdict]], Exercise]:
    """Return a decorator that makes an ``Exercise`` of a function that checks a learner's answer.
    The function returns praise for a right answer, or raises a ``MistakeError``.
    """
    return lambda task: Exercise(task, right, idea, begin)


def used_by(function: Callable) -> set[str]:
    """Return the names of the variables and attributes that a function's code reads."""
    found = [step.argval for step in dis.get_instructions(function)]
    names = itertools.chain(*(argval if isinstance(argval, tuple) else [argval] for argval in found))
    return {name for name in names if isinstance(name, str)}.union(function.__code__.co_cellvars)


def source_of(answer: Any) -> str:
    """Return the source code of a function that a learner wrote; "" if it cannot be found."""
    with contextlib.suppress(OSError, AttributeError):
        return textwrap.dedent(inspect.getsource(answer.__code__)) if type(answer) is FunctionType else ""
    return ""
