"""The search for a variant of multi-head attention, and for a mistake in it, that explains every call of a layer."""

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.comparing import CLOSE
from mha_course.language import listed, tr
from mha_course.museum.layer_calls import LayerCalls, causal, changed, formula, transposed
from mha_course.museum.layer_weights import in_parts, of_equal_values
from mha_course.museum.variants import (
    ALONE,
    BACKWARDS,
    BASES,
    COSINES,
    FALLING,
    FIXED,
    OF_ALL,
    OF_HEADS,
    OVER_TOKENS,
    PARTIAL,
    TIMES,
    in_words,
    variants,
    varied,
    with_factor,
)
from mha_course.museum.wrong_attention import other_attentions, part_of, programs, wrong_attentions
from mha_lib.attention import valid_keys

RARE = {BACKWARDS, PARTIAL, OF_ALL, *(f"{base:,.0f}" for base in BASES[1:])}  # words of what has no known mistakes

PLAIN: list[tuple[tuple, Callable]] = [((), varied)]  # no variant


def output_of(program: Callable, trial: tuple) -> Tensor | None:
    """Return what a program of this library gives; None if it raises: a mistake does not work with every call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return program(*trial)
        except Exception:
            return None


def close(got: Tensor | None, output: Tensor | None) -> bool:
    """Return whether a program gave a layer's output, up to digits that are lost in sums."""
    if got is None or output is None or output.shape != got.shape:
        return False
    size = got.detach().nan_to_num(0, 0, 0).abs().max().clamp(min=1).item()
    return torch.allclose(output.double(), got.double(), CLOSE["rtol"], CLOSE["atol"] * size, equal_nan=True)


@functools.cache
def effects(attention: Callable) -> tuple[bool, bool]:
    """Return whether a mistake lets a later token change an earlier output of a causal call, and whether it lets one
    example change the output of another.
    """
    drawn = torch.Generator().manual_seed(0)
    X, W = torch.randn(2, 4, 4, generator=drawn), torch.randn(4, 4, 4, generator=drawn)
    X[1, :3] = X[0, :3]
    allowed = valid_keys(torch.tensor([4, 2]), 4, axes=4)
    trials = [(x, x, x, mask, *W, 2) for x, mask in ((X, allowed), (X[:1], allowed[:1]), (X[1:], allowed[1:]))]
    both, *alone = (output_of(attention, trial) for trial in trials)
    first, second = (output_of(attention, causal((x, x, x, allowed[:1], *W, 2))) for x in X[:, None])
    is_ahead = first is None or second is None or not close(first[:, :3], second[:, :3])
    return is_ahead, both is None or not all(map(close, both[:, None], alone))


class Hook:
    """Change the examples of several test cases, each by a function of its own, or not where there is none; the same
    again is remembered, since most mistakes leave queries, keys and values as they are.
    """

    def __init__(self, functions: list[Callable | None]) -> None:
        self.functions = functions
        self.seen: list[Tensor] = []
        self.found: list[Tensor] = []

    def __call__(self, *X: Tensor) -> Any:
        if not self.seen or not all(map(torch.equal, self.seen, X)):
            parts = zip(*(x.chunk(len(self.functions)) for x in X), strict=True)
            pairs = zip(self.functions, parts, strict=True)
            found = [part if function is None else function(*part) for function, part in pairs]
            found = [[part] if isinstance(part, Tensor) else part for part in found]
            self.seen, self.found = [*X], [torch.cat(x) for x in zip(*found, strict=True)]
        return self.found if len(X) > 1 else self.found[0]


def together(trials: list[tuple]) -> tuple:
    """Return test cases of one layer as one, whose examples are those of all: a program is called once for all."""
    X = [torch.cat(part) for part in list(zip(*trials, strict=True))[:3]]
    shape = len(trials[0][0]), 1, X[0].shape[1], X[1].shape[1]
    allowed, given = torch.cat([trial[3].expand(shape) for trial in trials]), dict(trials[0][9])
    for name in ("turn", "bias", "after"):
        given[name] = Hook([trial[9].get(name) for trial in trials])
    return (*X, allowed, *trials[0][4:9], given)


class Search:
    """Search for a variant, or a mistake in one, that explains all calls of a layer.

    Attributes:
        ways: changes of the calls: none, causal, matrices as (input, output), and both.
        groups: the variants, as ``variants`` gives them; [] where only the formula itself is asked for.
        mistakes: pairs (message, program) of the known mistakes, and ``others`` of what is another attention.
    """

    def __init__(self, calls: LayerCalls, formula_only: bool) -> None:
        self.calls = calls
        ways: list[list[Callable]] = [[], [causal]] if calls.handed.num_inputs == 1 else [[]]
        self.ways = [*ways, *([*way, transposed] for way in ways * calls.may_be_in_out)]
        self.groups = [] if formula_only else variants(calls.handed.residual)
        mistakes, others = wrong_attentions(), other_attentions()
        self.mistakes = programs(formula, [*mistakes, *others * formula_only])
        self.others = programs(formula, others * (not formula_only))
        given = [outcome.value[:2] for of_stage in calls.got.values() for outcome in of_stage]
        # The calls that tell most come first: a wrong one, of many tokens.
        self.given = sorted(given, key=lambda call: (close(formula(*call[0]), call[1]), call[0][0].shape[1] != 6))

    def without_variants(self) -> None:
        """Leave the formula itself of what is tried: a layer that is right in some calls is no variant."""
        self.groups = [(around, [], []) for around, *_ in self.groups[:1]]

    def fits(self, *changes: Callable[[tuple], tuple], program: Callable = formula) -> bool:
        """Return whether every call gave what ``program`` gives, with the call changed in these ways."""
        return all(close(output_of(program, changed(trial, changes)), output) for trial, output in self.given)

    def explained(self, way: list[Callable], rows: list, known: list) -> Iterator[tuple[tuple, str, list[Callable]]]:
        """Yield a row of ``rows``, whose last part changes a call, a message of ``known``, whose program explains all
        calls changed so and read in this way, and these changes.

        The first call tries all rows at once; the other calls try those that fit it.
        """
        if not rows:
            return
        trial, output = self.given[0]
        trials = [changed(trial, [*way, row[-1]]) for row in rows]
        whole = together(trials)
        for text, program in known:
            if program is not formula and effects(program.keywords["attention"])[1]:
                outputs = [output_of(program, one) for one in trials]
            else:
                found = output_of(program, whole)
                outputs = [] if found is None else [*found.chunk(len(rows))]
            for row, got in zip(rows, outputs, strict=False):
                if close(got, output) and self.fits(*way, row[-1], program=program):
                    yield row, text, [*way, row[-1]]

    def fits_even(self, *changes: Callable[[tuple], tuple]) -> bool:
        """Return whether values that are all equal come out as they should, which does not depend on weights."""
        even = self.calls.even
        return even is not None and close(output_of(formula, changed(even[0], changes)), even[1])

    @functools.cached_property
    def right_in_values(self) -> list:
        """The groups of variants in which values that are all equal come out as they should."""
        return [group for group in self.groups if any(self.fits_even(*way, group[0]) for way in self.ways)]

    @functools.cached_property
    def likely(self) -> list:
        """The ways in which the layer can be right: causal where no later token changes an earlier output, or not."""
        return [way for way in self.ways if (causal in way) is not self.calls.looks_ahead]

    def variant(self) -> tuple[str, list[Callable]]:
        """Return the words for the variant of the formula that explains all calls, and its changes of a call."""
        for (around, members, _), way in itertools.product(self.right_in_values, self.likely):
            if self.fits_even(*way, around):
                for (words, _), _, changes in self.explained(way, members, [("", formula)]):
                    return listed(map(in_words, words)), changes
        return "", []

    def scaled(self) -> tuple[str, list[Callable], str]:
        """Return words and changes of a call for scores times a fitted number, and what is said of one that is wrong,
        since it changes with the size of heads; "" for what there is not.
        """
        for (words, change), way in self.nearly_scaled():
            if len(fitted := list(self.factors(*way, change))) < 2:
                continue
            normed = any(word[0] == OF_HEADS for word in words)
            powers = ((TIMES, 0), (FIXED, 0.5), (COSINES, -0.5)) if normed else ((TIMES, 0),)
            for told, power in powers:  # normed heads have no size to divide by
                one, two = (factor / size**power for factor, size in fitted)
                for number in (float(f"{one:.2g}"), float(f"{one:.3g}"), one):
                    times = functools.partial(with_factor, change, number, power)
                    if abs(two - one) < 0.01 * one and abs(one - 1) > 0.01 and self.fits(*way, times):
                        return listed(map(in_words, (*words, (told, f"{number:g}")))), [*way, times], ""
            if normed or abs(fitted[1][0] - fitted[0][0]) < 0.01 * fitted[0][0]:
                continue  # cosines times a constant, perhaps
            (one, size), (two, more) = fitted
            told = (
                "The scores are QKᵀ / √d times {one} with heads of {size} features, and times {two} with "
                "{more}: the factor should not change with the size."
            )
            said = tr(told, one=f"{one:.3g}", size=size, two=f"{two:.3g}", more=more)
            return "", [], in_variant(words, said)
        return "", [], ""

    def nearly_scaled(self) -> Iterator[tuple[tuple, list[Callable]]]:
        """Yield the variants, and ways to read a call, that come nearest to the output with scores times a number."""
        rows = [row for group in self.right_in_values for row in (*PLAIN * (group is self.groups[0]), *group[1])]
        calls = self.calls.got.get("several heads", [])
        for way in self.likely if rows and len(calls) > 2 else ():
            trial, output, *_ = calls[0].value
            whole = together([changed(trial, [*way, row[-1]]) for row in rows])
            tried = (formula(*with_factor(tuple, 2**power, 0, whole)) for power in torch.linspace(-6, 6, 25))
            errors = torch.stack([(got - output).square().sum((1, 2)) for got in tried]).amin(0)
            yield from (
                (rows[i], way) for i in errors.argsort(stable=True)[:16] if errors[i] < 0.2 * output.square().sum()
            )

    def factors(self, *changes: Callable[[tuple], tuple]) -> Iterator[tuple[float, int]]:
        """Yield, for heads of two sizes, the factor of the scores with which the formula gives the output, if any."""
        for trial, output in (outcome.value[:2] for outcome in self.calls.got["several heads"][:2]):
            trial = changed(trial, changes)
            low, high = -6.0, 6.0  # powers of 2
            for _ in range(6):  # all factors at once, as examples of one batch
                powers = torch.linspace(low, high, 41)
                got = formula(*with_factor(tuple, 2 ** powers[:, None, None, None], 0, trial))
                best = powers[(got - output).square().sum((1, 2)).argmin()].item()
                low, high = best - (high - low) / 20, best + (high - low) / 20
            if not close(formula(*with_factor(tuple, 2**best, 0, trial)), output):
                return
            yield 2**best, len(trial[7]) // trial[8]

    def mistake(self) -> tuple[str, str] | None:
        """Return the words for a mistake that explains all calls, alone or in a variant, and the part of a layer that
        it is in; None if there is none.
        """
        if found := self.known(self.mistakes):
            return found
        for (_, _, wrong), way in itertools.product(self.right_in_values or self.groups[:1], self.ways):
            for (words, text, _), _, _ in self.explained(way, wrong, [("", formula)]):
                if (way in self.likely or OVER_TOKENS in text) and (text != ALONE or self.calls.handed.num_inputs == 1):
                    return in_variant(words, in_words(text)), "scores"
        return None

    def known(self, known: list, alone: bool = False) -> tuple[str, str] | None:
        """Return the words for a row of ``known``, perhaps in a variant, and its part; None if there is none."""
        groups = [] if alone else self.right_in_values or self.groups
        rows = [row for group in groups for row in group[1] if group[0] is groups[0][0] or len(row[0]) < 2]
        rows = without_rare(rows)
        for way in self.ways:
            programs = [row for row in known if self.may_be(way, row[1])]
            for (words, _), text, _ in self.explained(way, [*PLAIN, *rows], programs):
                return in_variant(words, tr(text)), part_of(text)
        return None

    def may_be(self, way: list[Callable], program: Any) -> bool:
        """Return whether a mistake can be in a layer, read in this way: not if one of both alone looks ahead."""
        return way in self.likely or (causal in way and effects(program.keywords["attention"])[0])

    def alike(self) -> str:
        """Return a sentence on what is like the formula, and what is not; "" if values do not pass as they should."""
        if self.groups and self.calls.wide:
            call, output = self.calls.wide
            for (around, members, _), way in itertools.product(self.right_in_values or self.groups[:1], self.likely):
                plain = PLAIN if around is self.groups[0][0] else []
                rows = [*plain, *(row for row in without_rare(members) if FALLING not in row[0])]
                if told := in_parts([(words, changed(call, [*way, change])) for words, change in rows], output):
                    return told
        if self.right_in_values:
            return tr(
                "Its weights are not those of softmax(QKᵀ / √d). They sum to 1, and W_v, W_o and the heads are right: "
                "values that are all equal come out as they should."
            )
        call, output = self.calls.even or (None, None)
        sentences = (of_equal_values(changed(call, way), output) for way in self.ways if call and self.groups)
        return next(filter(None, sentences), "")


def without_rare(rows: list[tuple]) -> list[tuple]:
    """Select the variants in which mistakes are known, by their words, which come first in a row."""
    return [row for row in rows if not any(RARE & {*word} for word in row[0])]


def in_variant(words: tuple, mistake: str) -> str:
    """Return what is said of a mistake in a variant, whose words come first."""
    return tr("With {words}: {mistake}", words=listed(map(in_words, words)), mistake=mistake) if words else mistake
