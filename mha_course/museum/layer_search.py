"""The search for a variant of multi-head attention, and for a mistake in it, that explains every call of a layer."""

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.comparing import CLOSE, explains
from mha_course.language import listed, tr
from mha_course.museum.layer_calls import LayerCalls, causal, changed, formula, transposed
from mha_course.museum.variants import (
    BACKWARDS,
    BASES,
    OF_ALL,
    OF_HEADS,
    OVER_TOKENS,
    TIMES,
    in_words,
    variants,
    varied,
    with_factor,
)
from mha_course.museum.wrong_attention import other_attentions, programs, wrong_attentions

RARE = {BACKWARDS, OF_ALL, *(f"{base:,.0f}" for base in BASES[1:])}  # in words of what is not tried with a mistake


def gives(program: Callable, trial: tuple, output: Tensor | None) -> bool:
    """Return whether a program of this library gives this output for the arguments ``trial``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            got = program(*trial)
        except Exception:  # a mistake does not work with every call
            return False
    if output is None or output.shape != got.shape:
        return False
    size = got.detach().nan_to_num(0, 0, 0).abs().max().clamp(min=1).item()  # of the sums in which digits are lost
    return torch.allclose(output.double(), got.double(), CLOSE["rtol"], CLOSE["atol"] * size, equal_nan=True)


def named(rows: list, readings: list) -> str:
    """Return the message of the first program of ``rows`` that gives what every call gave, in one of its readings."""
    for read in readings:
        every = sorted((r for results in read.values() for r in results), key=lambda r: r.problem() is None)
        first = every[0]
        for text, program in rows:
            if (first.got.error or gives(program, first.trial, first.numbers)) and explains(program, every):
                return text
    return ""


@functools.cache
def looks_ahead(attention: Callable) -> bool:
    """Return whether a mistake lets a later token change an earlier output of a causal call."""
    *X, allowed = *torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(0)), torch.ones(1, 1, 1, 4).bool()
    X[1] = torch.cat([X[0][:, :3], X[1][:, 3:]], dim=1)
    W = torch.randn(4, 4, 4, generator=torch.Generator().manual_seed(1))
    try:
        one, two = (attention(*causal((x, x, x, allowed, *W, 2)))[:, :3] for x in X)
    except Exception:
        return True
    return not torch.allclose(one, two, equal_nan=True)


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
        self.given = sorted(given, key=lambda call: call[0][0].shape[1] != 6)  # the call that tells most

    def fits(self, *changes: Callable[[tuple], tuple], program: Callable = formula) -> bool:
        """Return whether every call gave what ``program`` gives, with the call changed in these ways."""
        return all(gives(program, changed(trial, changes), output) for trial, output in self.given)

    def fits_even(self, *changes: Callable[[tuple], tuple], program: Callable = formula) -> bool:
        """Return whether values that are all equal come out as from ``program``: this does not depend on weights."""
        even = self.calls.even
        return even is not None and gives(program, changed(even[0], changes), even[1])

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
                for words, change in members:
                    if self.fits(*way, change):
                        return listed(map(in_words, words)), [*way, change]
        return "", []

    def scaled(self) -> tuple[str, list[Callable], str]:
        """Return words and changes of a call for scores times a fitted number, and what is said of one that is wrong,
        since it changes with the size of heads; "" for what there is not.
        """
        plain: list[tuple[tuple, Callable]] = [((), varied)]
        for words, change in [*plain, *usual(self.groups[0][1])] if self.groups else []:
            for way in self.likely:
                factors = list(self.factors(*way, change))
                told = [*map(in_words, words)]
                if len(factors) < 2:
                    continue
                if abs(factors[1] - factors[0]) > 0.01 * factors[0]:
                    if any(word[0] == OF_HEADS for word in words):
                        return "", [], ""  # cosines times a constant, perhaps
                    size, (one, two) = 2 * self.calls.handed.unit, (f"{factor:.3g}" for factor in factors)
                    said = tr(
                        "The scores are QKᵀ / √d times {one} with heads of {size} features, and times {two} with "
                        "{more}: the factor should not change with the size.",
                        one=one,
                        size=size,
                        two=two,
                        more=2 * size,
                    )
                    return "", [], self.in_variant(words, said)
                times = functools.partial(with_factor, change, factors[0])
                if self.fits(*way, times):
                    return listed([*told, in_words((TIMES, f"{factors[0]:g}"))]), [*way, times], ""
        return "", [], ""

    def factors(self, *changes: Callable[[tuple], tuple]) -> Iterator[float]:
        """Yield, for heads of two sizes, the factor of the scores with which the formula gives the output, if any."""
        calls = [outcome.value[:2] for outcome in self.calls.got.get("several heads", [])]
        for trial, output in calls[:2] if len(calls) > 2 else ():
            trial = changed(trial, changes)
            low, high = -6.0, 6.0  # powers of 2
            for _ in range(6):  # all factors at once, as examples of one batch
                powers = torch.linspace(low, high, 41)
                got = formula(*with_factor(tuple, 2 ** powers[:, None, None, None], trial))
                errors = (got - output).square().sum((1, 2))
                best = powers[errors.argmin()].item()
                if errors.min() > 0.05 * output.square().sum():
                    return
                low, high = best - (high - low) / 20, best + (high - low) / 20
            rounded = [float(f"{2**best:.2g}"), float(f"{2**best:.3g}"), 2**best]
            fitting = [f for f in rounded if gives(formula, with_factor(tuple, f, trial), output)]
            if not fitting or abs(best) < 0.01:
                return
            yield fitting[0]

    def wrong_variant(self) -> str:
        """Return a name for a wrong variant of the formula, or for one with a known mistake; "" if there is none."""
        groups = self.right_in_values
        for (_, _, wrong), way in itertools.product(groups or self.groups[:1], self.ways):
            for words, text, change in wrong:
                if (way in self.likely or OVER_TOKENS in text) and self.fits(*way, change):
                    return self.in_variant(words, in_words(text))
        return self.in_a_variant(self.mistakes)

    def in_a_variant(self, rows: list) -> str:
        """Return the words for a variant and for one of ``rows`` in it that explain all calls; "" if none do."""
        right = self.right_in_values
        near = right or self.groups[: 1 if self.are_multiples else None]
        for around, members, _ in near:
            own = [pair for pair in usual(members) if right or self.are_multiples or len(pair[0]) < 2]
            for way in self.ways:
                left = [row for row in rows if self.may_be(way, row[1])]
                left = [row for row in left if not right or self.fits_even(*way, around, program=row[1])]
                for (text, program), (words, change) in itertools.product(left, own):
                    if self.fits(*way, change, program=program):
                        return self.in_variant(words, tr(text))
        return ""

    @staticmethod
    def in_variant(words: tuple, mistake: str) -> str:
        """Return what is said of a mistake in a variant, whose words come first."""
        return tr("With {words}: {mistake}", words=listed(map(in_words, words)), mistake=mistake) if words else mistake

    def may_be(self, way: list[Callable], program: Any) -> bool:
        """Return whether a mistake can be in a layer, read in this way: not if one of both alone looks ahead."""
        return way in self.likely or (causal in way and looks_ahead(program.keywords["attention"]))

    def alike(self) -> str:
        """Return a sentence on what is like the formula, and what is not; "" if values do not pass as they should."""
        if self.right_in_values:
            return tr(
                "Its weights are not those of softmax(QKᵀ / √d). They sum to 1, and W_v, W_o and the heads are right: "
                "values that are all equal come out as they should."
            )
        if self.groups and self.are_multiples:
            return tr(
                "Its weights are not those of softmax(QKᵀ / √d), and they do not sum to 1. W_v, W_o and the heads are "
                "right: values that are all equal come out as multiples of what they should be."
            )
        return ""

    @functools.cached_property
    def are_multiples(self) -> bool:
        """Whether equal values come out as multiples of what they should be, as weights that do not sum to 1 do."""
        return any(self.scales_even(*way) for way in self.ways)

    def scales_even(self, *changes: Callable[[tuple], tuple]) -> bool:
        """Return whether values that are all equal come out, head by head, as multiples of what they should be."""
        if self.calls.even is None or self.calls.even[1] is None:
            return False
        trial, output = changed(self.calls.even[0], changes), self.calls.even[1]
        W_o, num_heads, given = trial[7:10]
        own, right = (
            ((X - given["b_o"]) @ torch.linalg.pinv(W_o).T).unflatten(2, (num_heads, -1))
            for X in (output, formula(*trial))
        )
        ratios = (own * right).sum(-1, keepdim=True) / right.square().sum(-1, keepdim=True)
        return bool(torch.allclose(own, ratios * right, atol=1e-3, rtol=1e-3) and ratios.abs().min() > 1e-3)


def usual(members: list) -> list:
    """Select the variants that are tried together with mistakes: those without a rare word."""
    return [pair for pair in members if not any(RARE & {*word} for word in pair[0])]
