"""The search for a variant of multi-head attention, and for a mistake in it, that explains every call of a layer."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from mha_course.language import listed, sentences, tr
from mha_course.museum import variants
from mha_course.museum.layer_calls import LayerCalls
from mha_course.museum.layer_trials import causal, changed, close, formula, output_of, together, transposed, within
from mha_course.museum.layer_weights import Reading, of_equal_values, reading
from mha_course.museum.rotary_positions import SLOWED, Words
from mha_course.museum.variants import Variant, in_words
from mha_course.museum.wrong_attention import other_attentions, part_of, programs, wrong_attentions
from mha_lib.attention import valid_keys

WEIGHTS = "Its weights are those of softmax(QKᵀ / √d), with {words}."
NEARLY = (
    "The output is nearly the formula's: it is off by {share} of the largest number, or less, unless scores are large. "
    "Numbers that are rounded to half precision or bfloat16 look like this, and so does a small number that is added."
)
ALL_ELSE = "Everything else is as in the formula, in every call."
RESIDUAL = "The input is added to the output (a residual)."  # a known mistake, unless it is meant
PADDED = "Rows of padded queries are masked or set to 0 as well. The mask is on keys only."
FORMULA: list[tuple[str, Callable]] = [("", formula)]  # the program without a mistake
WINDOW = "This is a window: a query attends to {before} keys before it and {behind} behind it, and to its own."


class Found(NamedTuple):
    """What explains all calls of a layer: "right", "wrong" or "other", a sentence, or for what is right the words for a
    variant and its changes of a call; and the part of a layer that a mistake is in.
    """

    state: str
    text: str
    changes: Sequence[Callable] = ()
    part: str = ""


class Read(NamedTuple):
    """What weights are made of: a variant, a way to read a call, what else they are made of in heads of one size and
    of another, and the variants that are made of fitted angles, if there are any.
    """

    row: Variant
    way: list[Callable]
    first: Reading
    second: Reading | None
    fitted: Sequence[Variant] = ()


@functools.cache
def leaks(attention: Callable) -> bool:
    """Return whether a mistake lets a later token change an earlier output of a causal call."""
    drawn = torch.Generator().manual_seed(0)
    X, W = torch.randn(2, 1, 4, 4, generator=drawn), torch.randn(4, 4, 4, generator=drawn)
    X[1, :, :3] = X[0, :, :3]
    first, second = (
        output_of(attention, causal((x, x, x, valid_keys(torch.tensor([4]), 4, axes=4), *W, 2))) for x in X
    )
    return first is None or second is None or not close(first[:, :3], second[:, :3])


class Search:
    """Search for a variant, or a mistake in one, that explains all calls of a layer.

    Attributes:
        ways: changes of the calls: none, causal, matrices as (input, output), and both.
        variants: the right variants and the mistakes in them; that without any words comes first.
        mistakes: pairs (message, program) of the known mistakes, and ``others`` of what is another attention.
    """

    def __init__(self, calls: LayerCalls, formula_only: bool) -> None:
        self.calls = calls
        ways: list[list[Callable]] = [[], [causal]] if calls.handed.num_inputs == 1 else [[]]
        self.ways = [*ways, *([*way, transposed] for way in ways * calls.may_be_in_out)]
        self.variants = variants.variants(calls.handed.residual)
        rows = [row for row in wrong_attentions() if row[0] != RESIDUAL or not calls.handed.residual]
        self.mistakes = programs(formula, [*rows, *other_attentions() * formula_only])
        self.others = programs(formula, other_attentions() * (not formula_only))
        given = [outcome.value[:2] for of_stage in calls.got.values() for outcome in of_stage]
        # The calls that tell most come first: a wrong one, of six tokens; one of many takes long.
        self.given = sorted(
            given,
            key=lambda call: (call[0][1].shape[1] > 99, close(formula(*call[0]), call[1]), call[0][0].shape[1] != 6),
        )
        self.formula_only = formula_only
        if formula_only:
            self.without_variants()

    def without_variants(self) -> None:
        """Leave the formula itself of what is tried: a layer that is right in some calls is no variant."""
        self.variants = self.variants[:1]

    def fits(self, *changes: Callable[[tuple], tuple], program: Callable = formula, calls: list | None = None) -> bool:
        """Return whether every call, or every one of ``calls``, gave what ``program`` gives, with the call changed in
        these ways.
        """
        given = ((changed(trial, changes), output) for trial, output in calls or self.given)
        return all(close(output_of(program, trial), output, trial[3]) for trial, output in given)

    def largest_error(self, changes: Sequence[Callable]) -> float:
        """Return by how much the formula misses the layer's output at most, with the calls changed in these ways."""
        return max((formula(*changed(trial, changes)) - output).abs().max().item() for trial, output in self.given)

    def explained(
        self, ways: list, rows: list[Variant], known: list = FORMULA
    ) -> Iterator[tuple[Variant, str, list[Callable]]]:
        """Yield a row, a message of ``known``, whose program explains all calls, read in one of ``ways`` and changed as
        the row says, and these changes.

        The first call tries all rows at once; the other calls try those that fit it.
        """
        trial, output = self.given[0]
        for way in ways if rows and output is not None else ():
            trials = [changed(trial, [*way, row.change]) for row in rows]
            whole, all_seen = together(trials), trials[0][3].any(-1).all()
            for text, program in known:
                if program is not formula and not self.may_be(way, program):
                    continue
                if (one := output_of(program, trials[0])) is None:
                    continue
                found = output_of(program, whole)
                if found is not None and close(found[: len(one)], one):
                    outputs = found.unflatten(0, (len(rows), -1))
                else:  # it mixes the examples of a batch
                    outputs = torch.stack([program(*trial) for trial in trials])
                off = (outputs - output).abs().flatten(1).amax(1)
                far = all_seen & (off > 0.01 * output.abs().max().clamp(min=1))  # not where it is NaN
                for row, got, of_row, is_far in zip(rows, outputs, trials, far.tolist(), strict=True):
                    if not is_far and close(got, output, of_row[3]) and self.fits(*way, row.change, program=program):
                        yield row, text, [*way, row.change]

    def may_be(self, way: list[Callable], program: Any) -> bool:
        """Return whether a mistake can be in a layer, read in this way: not if one of both alone looks ahead."""
        return way in self.likely or (causal in way and leaks(program.keywords["attention"]))

    @functools.cached_property
    def sound(self) -> list[Variant]:
        """The variants in which values that are all equal come out as they should, which does not depend on weights."""
        trial, output = self.calls.even or (self.given[0][0], None)
        fits = {
            around: any(close(output_of(formula, changed(trial, [*way, around])), output) for way in self.ways)
            for around in {row.around for row in self.variants}
        }
        return [row for row in self.variants if fits[row.around]]

    @functools.cached_property
    def window(self) -> list[functools.partial]:
        """The change of a call to the keys before and behind its own that a query attends to, if these are not all."""
        before, behind = self.calls.reach or (150, 150)
        return [functools.partial(within, before, behind)] * (not self.formula_only and before < 149 and behind >= 0)

    @functools.cached_property
    def likely(self) -> list:
        """The ways in which the layer can be right: causal where no later token changes an earlier output, or not; and
        these in a window, if it seems to have one, as some mistakes do, too.
        """
        reach = self.calls.reach
        looks_ahead = reach[1] > 0 if reach and any(reach) else None  # a token that sees itself alone tells nothing
        ways = [way for way in self.ways if (causal in way) is not looks_ahead] or self.ways
        return [*([*way, *self.window] for way in ways * bool(self.window)), *ways]

    def found(self, raises: bool) -> Found | None:
        """Return what explains all calls; None if nothing does. ``raises`` is whether some calls raised an error."""
        right = [row for row in self.sound if not row.mistake]
        explained = (of for rows in (lambda: right, lambda: self.fitted) for of in self.explained(self.likely, rows()))
        if first := next(explained, None):
            wide = [self.calls.wide] * bool(self.calls.wide)  # tells pairs of halves from neighbours where few turn
            row, _, changes = next(
                (of for of in itertools.chain([first], explained) if self.fits(*of[2], calls=wide)), first
            )
            alike = [other for other in (*self.sound, *self.fitted) if other[:2] == row[:2]]  # norms have other ε
            nearest = min(([*changes[:-1], other.change] for other in alike), key=self.largest_error)
            return self.told("right", row.words, "", nearest)
        scaled = None if raises else self.scaled()
        if scaled and scaled.state == "right":
            return scaled
        # What is no mistake comes first where it stands alone; in a variant, a mistake is likelier.
        known = self.known(self.others, "other", alone=True) or self.known(self.mistakes)
        return known or self.mistake() or self.known(self.others, "other") or scaled

    def told(self, state: str, words: tuple[Words, ...], text: str, changes: list, part: str = "") -> Found:
        """Return what is said of a variant with these ``words`` and of what is otherwise in it, a ``text`` or "". A
        window among the ``changes`` of a call makes it another attention.
        """
        windows = [tr(WINDOW, before=of.args[0], behind=of.args[1]) for of in self.window if of in changes]
        if not text and not windows:
            return Found(state, listed(map(in_words, words)), changes)
        first, *more = [*filter(None, [text]), *windows]
        state = "other" if state == "right" else state
        more += [tr(ALL_ELSE)] * (state == "other")
        return Found(state, sentences([in_variant(words, first), *more]), part=part)

    @functools.cached_property
    def read(self) -> Read | None:
        """What the weights are made of; None if they are made of nothing known."""
        rows = [row for row in self.sound if not row.mistake] or [row for row in self.bare if not row.mistake]
        rows = [row for row in rows if not {SLOWED, variants.FALLING[0]} & {word[0] for word in row.words}]
        for around, way in [(of, way) for of in dict.fromkeys(row.around for row in rows) for way in self.likely]:
            of_around = [row for row in rows if row.around is around]
            if not (first := self.made_of("wide", way, of_around)):
                continue
            row = of_around[first.number]
            return self.with_known_angles(Read(row, way, first, self.made_of("wider", way, [row])))
        return None

    def with_known_angles(self, read: Read) -> Read:
        """Return what is read with θ in place of angles, if one makes them, or several that these do not tell apart."""
        row, way, _, turned, _ = read
        if not (turned and turned.angles):
            return read
        alike = [of for of in self.variants if of[:2] == row[:2]]  # norms have other numbers ε
        rows = [other for of in alike for other in variants.with_angles(of, turned.pairs, turned.angles)]
        rows.sort(key=lambda of: "10,000" not in of.words[0])  # the usual θ, where several fit these angles
        made = ((of, self.made_of("wide", way, [of]), self.made_of("wider", way, [of])) for of in rows)
        fits = [(of, first, second) for of, first, second in made if first and second]
        return Read(fits[0][0], way, *fits[0][1:], [of for of, *_ in fits]) if fits else read

    @property
    def fitted(self) -> list[Variant]:
        """The variants with angles of rotary positions that are read from weights."""
        return [*self.read.fitted] if self.read else []

    def made_of(self, call: str, way: list[Callable], rows: list[Variant]) -> Reading | None:
        """Return what the weights in the call ``wide`` or ``wider`` are made of, by one of these variants."""
        if not (given := getattr(self.calls, call)):
            return None
        trials = [changed(given[0], [*way, row.change]) for row in rows]
        return reading(trials, [bool(row.turns) for row in rows], given[1])

    def scaled(self) -> Found | None:
        """Return what scores times a fitted number are: wrong, if it changes with the size of heads."""
        if not self.read or self.read.first.words or not (wider := self.read.second):
            return None
        row, way, wide, _, _ = self.read
        one, size, two, more = wide.factor, wide.size, wider.factor, wider.size
        normed = any(word[0] == variants.OF_HEADS for word in row.words)  # these have no size to divide by
        is_constant = abs(two - one) < 0.01 * one
        alike = [*self.fitted, *(other for other in self.variants if other[:2] == row[:2])]  # norms have other ε
        for told, power in ((variants.TIMES, 0), (variants.FIXED, 0.5), *[(variants.COSINES, -0.5)] * normed):
            first, second = one / size**power, two / more**power
            if abs(second - first) > 0.01 * first or abs(first - 1) < 0.01:
                continue
            is_constant = True
            for number, other in itertools.product((float(f"{first:.2g}"), float(f"{first:.3g}"), first), alike):
                changes = [*way, other.change, functools.partial(variants.with_factor, number, power)]
                if self.fits(*changes):
                    words = (*other.words, (told, f"{number:g}"))
                    fixed = "" if normed or not power else tr(WEIGHTS, words=listed(map(in_words, words)))
                    return self.told("right", () if fixed else words, fixed, changes)
        changes = [*way, row.change, functools.partial(variants.with_factor, one, 0)]
        of_most = [call for call in self.given if call[0][8] == self.calls.handed.num_heads]
        if is_constant and not normed and abs(one - 1) > 0.01 and self.fits(*changes, calls=of_most):
            told = "The scores are QKᵀ / √d times {one} with {heads} heads, but not with fewer: the factor should be 1."
            return self.told("wrong", row.words, tr(told, one=f"{one:.3g}", heads=of_most[0][0][8]), way, "scores")
        if normed or is_constant:
            return None  # cosines times a constant, perhaps, or a constant and something else
        told = (
            "The scores are QKᵀ / √d times {one} with heads of {size} features, and times {two} with "
            "{more}: the factor should not change with the size."
        )
        said = tr(told, one=f"{one:.3g}", size=size, two=f"{two:.3g}", more=more)
        return self.told("wrong", row.words, said, way, "scores")

    def mistake(self) -> Found | None:
        """Return the mistake in a variant that explains all calls; None if there is none."""
        rows = [row for row in self.sound or self.bare if row.mistake]
        for row, _, (*way, _) in self.explained(self.all_ways, rows):
            if way in self.likely or "runs over the tokens" in row.mistake[0]:
                is_other = row.mistake in (variants.ALONE, variants.UNEVEN) and self.calls.handed.num_inputs > 1
                part = "output" if row.mistake in variants.ADDED else "scores"
                return self.told("other" if is_other else "wrong", row.words, in_words(row.mistake), way, part)
        return None

    @property
    def all_ways(self) -> list:
        """The ways in which the layer can be right or wrong."""
        return [*self.ways, *(way for way in self.likely if way not in self.ways)]

    @property
    def bare(self) -> list[Variant]:
        """The variants with nothing around the layer."""
        return [row for row in self.variants if row.around is self.variants[0].around]

    def known(self, known: list, state: str = "wrong", alone: bool = False) -> Found | None:
        """Return the row of ``known`` that explains all calls, perhaps in a variant; None if there is none."""
        rows = [row for row in self.sound if not row.mistake] or self.variants
        rows = [row for row in rows if not (alone or row.mistake or row.is_rare)]
        rows = [row for row in rows if row.words and (row.around is self.variants[0].around or len(row.words) < 2)]
        if self.calls.by_position is False:  # None: not known, since it raises
            rows = [row for row in rows if not (row.turns or variants.FALLING in row.words)]
        rows += self.fitted * (not alone)
        for row, text, changes in self.explained(self.all_ways, [self.variants[0], *rows], known):
            is_other = text == PADDED and self.calls.handed.num_inputs == 1  # nobody reads what padding becomes
            return self.told("other" if is_other else state, row.words, tr(text), changes, part_of(text))
        return None

    def nearly(self) -> str:
        """Return a sentence if every call gave almost, but not quite, what a variant gives; "" if not."""
        calls = [call for call in self.given if call[0][0].std() < 5]

        def off(call: tuple, changes: list[Callable]) -> float:
            right = formula(*changed(call[0], changes))
            return ((right - call[1]).abs().max() / right.abs().max()).item()

        rows = [row for row in self.variants if not (row.mistake or row.is_rare) and len(row.words) < 2]
        for row, way in itertools.product(rows, self.likely):
            changes = [*way, row.change]
            if (
                calls
                and off(calls[0], changes) < 0.03
                and 0.0005 < (most := max(off(of, changes) for of in calls)) < 0.03
            ):
                return in_variant(row.words, tr(NEARLY, share=f"{most:.1%}"))
        return ""

    def alike(self) -> str:
        """Return a sentence on what is like the formula, and what is not; "" if values do not pass as they should."""
        if self.read:
            row, _, first, second, _ = self.read
            more, factor, size = first.words, first.factor, first.size
            other = second.factor if second else factor
            if abs(factor - math.sqrt(size)) < 0.01:
                more = ((variants.UNSCALED,), *more)
            elif abs(other - factor) > 0.01 * factor:  # one number whatever the size: others are a mistake
                more = ((variants.FIXED, f"{factor / math.sqrt(size):.3g}"), *more)
            elif abs(factor - 1) > 0.01:
                more = ((variants.TIMES, f"{factor:.3g}"), *more)
            if made := listed(map(in_words, (*row.words, *more))):
                return tr(WEIGHTS, words=made)
        if not all(row.mistake for row in self.sound):
            return tr(
                "Its weights are not those of softmax(QKᵀ / √d). They sum to 1, and W_v, W_o and the heads are right: "
                "values that are all equal come out as they should."
            )
        if not self.calls.even:
            return ""
        call, output = self.calls.even
        return next(filter(None, (of_equal_values(changed(call, way), output) for way in self.ways)), "")


def in_variant(words: tuple, mistake: str) -> str:
    """Return what is said of a mistake in a variant, whose words come first."""
    return tr("With {words}: {mistake}", words=listed(map(in_words, words)), mistake=mistake) if words else mistake
