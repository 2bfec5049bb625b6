"""Is your own attention layer right, and if not, which bug is it? For anybody's layer, whatever its names::

    from mha_course.exercises import check_layer

    check_layer(
        make=lambda num_hiddens, num_heads, dropout: MyAttention(num_hiddens, num_heads, drop=dropout),
        call=lambda layer, x, valid_lens: layer(x, lengths=valid_lens),
        matrices=lambda layer: (layer.wq, layer.wk, layer.wv, layer.wo),
    )

A class with ``W_q, W_k, W_v, W_o`` and ``forward(queries, keys, values, valid_lens)`` needs no more than
``check_layer(MyAttention)``. Six layers that are handed over otherwise::

    # it takes a mask with a name of its own (`mask`, `key_padding_mask` or `is_causal` are found by trying)
    call=lambda layer, q, k, v, valid_lens: layer(q, k, v, torch.arange(k.shape[1]) < valid_lens[:, None, None])
    # sequences are (number, batch, num_hiddens)
    call=lambda layer, x: layer(x.transpose(0, 1)).transpose(0, 1)
    # one matrix holds queries, keys and values
    matrices=lambda layer: (*layer.qkv.weight.chunk(3), layer.proj)
    # its rows are (head, query / key / value, head size)
    matrices=lambda layer: (
        *layer.qkv.weight.unflatten(0, (layer.num_heads, 3, -1)).transpose(0, 1).flatten(1, 2), layer.proj)
    # the maps are convolutions over one token
    matrices=lambda layer: [conv.weight[..., 0] for conv in (layer.q, layer.k, layer.v, layer.o)]
    # sizes come in an object
    make=lambda num_hiddens, num_heads, dropout: MyAttention(Config(dim=num_hiddens, heads=num_heads, p=dropout))

Rotary positions, norms of queries and keys, ALiBi, and a norm before or behind the layer are found, and told.
In a test of your own project, ``assert_layer`` takes the same arguments and raises what ``check_layer`` says.
"""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.comparing import Result, explains
from mha_course.checking.running import MistakeError, NotYetError, error_in_words, run_safely
from mha_course.checking.verdict import Verdict
from mha_course.checking.wording import as_sentence
from mha_course.language import listed, sentences, tr
from mha_course.models.training import seeded
from mha_course.museum.handed_layer import KINDS, HandedLayer
from mha_course.museum.handed_layer import in_words as error_told
from mha_course.museum.layer_calls import SHARED, LayerCalls, causal, formula, transposed
from mha_course.museum.layer_gates import wrong_gates
from mha_course.museum.layer_notes import PROMISES, notes_on
from mha_course.museum.layer_words import (
    NEXT,
    ROOM,
    border_of,
    example_in_words,
    stages_in_words,
    wrong_in,
    wrong_stages,
)
from mha_course.museum.variants import BACKWARDS, OF_ALL, TIMES, in_words, variants, varied, with_factor
from mha_course.museum.wrong_attention import other_attentions, part_of, programs

__all__ = ["assert_layer", "check_layer"]

UNITS = (1, 4, 16)  # what sizes of heads are multiplied by, where a layer cannot take small ones
FORMULA = {"formula"}  # the promise that nothing is added to the formula
RARE = {BACKWARDS, OF_ALL}, {"500,000", "1,000,000", "100"}  # in words of variants that are not tried with a mistake
WITHOUT = (
    "If positions, a norm or a bias belong to it, hand it over without: with cos = 1 and sin = 0, with `nn.Identity` "
    "as the norm, with a bias of 0. What remains is then compared with the formula."
)
CANNOT = {  # what is tried of a layer with the right output → what is said where it raises
    "gradient": "Training is not possible",
    "gates": "It cannot be called with head_mask",
    "notes": "In training it cannot be called",
}
PART_OF = {  # promise, or what is tried of a layer with the right output → the part of the layer that it is about
    "bias": "init",
    "no_lengths": "lengths",
    "weights": "reported weights",
    "output": "output",
    "dropout": "dropout",
    "gates": "head_mask",
}


def check_layer(
    make: Callable,
    call: Callable | None = None,
    matrices: Callable | None = None,
    *,
    residual: bool = False,
    head_mask: bool = False,
    promises: Iterable[str] = (),
) -> Verdict:
    """Check an attention layer against the formula of multi-head attention; return a verdict that names the mistake.

    Args:
        make: (num_hiddens, num_heads, dropout) → a new layer, such as the class itself.
        call: (layer, x), (layer, x, memory) or (layer, queries, keys, values), each with or without valid_lens → the
            output, or a tuple that begins with it. The names of its parameters say which. Sequences are (batch,
            number, num_hiddens), lengths (batch,). Left out, ``forward`` is called by position.
        matrices: layer → its W_q, W_k, W_v and W_o: each an ``nn.Linear``, a tensor with a head's rows (of W_o,
            columns) side by side, or a pair of weight and bias. A fifth, w_v (num_heads, head size), says that scores
            are additive. Left out, they are the attributes of these names.
        residual: whether the layer adds its input to its output.
        head_mask: whether it takes gates, ``head_mask`` (num_heads,), which multiply the heads' outputs.
        promises: what a right layer must also have. "weights": ``attention_weights`` (batch, num_heads, num_queries,
            num_keys) before dropout. "bias": ``bias=True`` gives four biases, the default none. "output": a call
            returns one tensor. "no_lengths": it can be called without valid_lens. "dropout": it acts on each weight,
            at the rate that is asked for. "empty_rows": an example without a valid key gets zeros.
            "formula": nothing is added to the formula, such as rotary positions, a norm or a residual.
            Of several that are not kept, the first one here is told.

    All that is yours runs in a process of its own, and is cut short if it does not end, where the system can.

    Raises:
        ValueError: a promise has another name.
    """
    asked = (promises,) if isinstance(promises, str) else tuple(promises)
    if unknown := [name for name in asked if name not in PROMISES]:
        raise ValueError(f"promises must be of {', '.join(PROMISES)}; got {', '.join(map(str, unknown))}")
    try:
        with seeded(0):
            handing = functools.partial(HandedLayer, make, call, matrices, residual, head_mask)
            return check_of(handing, asked).verdict()
    except NotYetError as reason:
        return Verdict("not yet", reason.args[0], about=reason.about)
    except MistakeError as mistake:
        return Verdict("wrong", mistake.args[0], about=mistake.about)
    except Exception as surprise:
        error = ": ".join(filter(None, error_in_words(surprise)))
        return Verdict("not yet", tr("The check itself failed, which says nothing of the layer: {error}.", error=error))


def assert_layer(*arguments: Any, **named: Any) -> None:
    """Raise an AssertionError if ``check_layer``, called with these arguments, finds a mistake in a layer.
    It is meant for tests.
    """
    verdict = check_layer(*arguments, **named)
    if not verdict:
        raise AssertionError(f"{verdict.text} {verdict.evidence}".strip())


def check_of(handing: Callable[..., HandedLayer], asked: tuple[str, ...]) -> "LayerCheck":
    """Return the check of a layer, with larger heads if it can be made and called with these alone."""
    checks: list[LayerCheck] = []
    reasons: list[Exception] = []
    for unit in UNITS:
        try:
            checks.append(LayerCheck(handing(unit=unit), asked))
        except (NotYetError, MistakeError) as reason:
            reasons.append(reason)
            continue
        if not checks[-1].raises:
            return checks[-1]
    if not checks:
        raise reasons[0]
    return checks[0]


class LayerCheck:
    """Check a learner's attention layer on all kinds of test cases, and make the verdict."""

    def __init__(self, handed: HandedLayer, asked: tuple[str, ...]) -> None:
        self.handed, self.asked, self.calls, self.mistake = handed, asked, LayerCalls(handed), ""

    def ways(self) -> list[list[Callable]]:
        """Ways to read the calls: as they are, as causal, with matrices (input, output), and both."""
        ways: list[list[Callable]] = [[], [causal]] if self.handed.num_inputs == 1 else [[]]
        return [*ways, *([*way, transposed] for way in ways * self.calls.may_be_in_out)]

    @property
    def raises(self) -> bool:
        """Whether some call raised an error."""
        return any(outcome.value[2] for outcomes in self.calls.got.values() for outcome in outcomes)

    def verdict(self) -> Verdict:
        """Say what is right and what is wrong."""
        ways = self.ways()
        readings = [self.calls.results(*way) for way in ways]
        number = min(range(len(ways)), key=lambda number: len(wrong_stages(readings[number])))
        way, stages = ways[number], readings[number]
        said = ""
        wrong = wrong_stages(stages)
        every = [result for results in stages.values() for result in results]
        if all(result.got.error for result in every):
            got = every[0].got
            raise error_told(tr("The layer could not be called"), got.error or (), got.line, self.handed.signature)
        known = variants(self.handed.residual) * (not FORMULA & {*self.asked})
        if wrong:
            said, way = self.variant(known)
            name = "" if said else named(programs(formula, others=not known), readings)
            if not (said or name) and known and not self.raises:
                said, way = self.scaled(known)
            if not said:
                return self.what_is_wrong(name, readings, stages, wrong, known)
        names = ["gradient", *["gates"] * self.handed.gated, "notes"]
        outcomes = run_safely(functools.partial(self.tried, way), [(name,) for name in names])
        for name, outcome in zip(names, outcomes, strict=True):
            if outcome.error:
                mistake = error_told(tr(CANNOT[name]), outcome.error, outcome.line, self.handed.signature)
                if name == "notes" and not outcome.line and not self.asked:  # perhaps the check's own
                    told = tr("Dropout and weights could not be examined: {error}", error=mistake.args[0])
                    return self.praise(stages, [("", True, told)], way, said)
                told = sentences([tr("The output is right."), mistake.args[0]])
                raise MistakeError(told, PART_OF.get(name, ""))
            if name == "gradient" and outcome.value:
                told = "The output is right, but no gradient reaches {names}: it cannot learn."
                return Verdict("wrong", tr(told, names=listed(map(tr, outcome.value))))
            if name == "gates" and (verdict := wrong_gates(*outcome.value)) is not None:
                return verdict
        return self.praise(stages, outcomes[-1].value, way, said)

    def tried(self, way: list[Callable], name: str) -> Any:
        """Return what is tried of a layer whose output is right."""
        if name == "gradient":
            return self.calls.without_gradient()
        if name == "gates":
            return self.calls.gated(way)
        return [(note.topic, note.kept, note.text) for note in notes_on(self.handed, way, self.asked)]

    def praise(self, stages: dict[str, list[Result]], notes: list[tuple], way: list, words: str) -> Verdict:
        """Return the verdict on a right layer, with notes, unless a promise is not kept."""
        broken = {topic: text for topic, kept, text in notes if not kept}
        if first := next((topic for topic in self.asked if topic in broken), ""):
            told = sentences([tr("The output is right."), broken[first]])
            return Verdict("wrong", told, about=PART_OF.get(first, ""))
        given = next(iter(stages.values()))[0].trial[-1]
        biases = any(isinstance(b, Tensor) for name, b in given.items() if name != "w_v")
        kind = tr(KINDS[self.handed.num_inputs])
        kind = tr("causal {kind}", kind=kind) if causal in way else kind
        kind = tr("{kind}, with biases", kind=kind) if biases else kind
        kind = tr("{kind}, with {words}", kind=kind, words=words) if words else kind
        said = [as_sentence(kind), *(text for _, _, text in notes if text)]
        if self.calls.shares:
            said.append(tr("Heads share keys and values, in groups."))
        if transposed in way:
            said.append(tr("The matrices are stored as (input, output)."))
        said += [self.handed.mask_note] * bool(self.handed.mask_note)
        if self.handed.unit > 1:
            size = self.handed.unit
            said.append(tr("The heads have {size} features or more: smaller ones cannot be called.", size=2 * size))
        missing = {
            tr("padding (no valid_lens)"): self.handed.masks,
            tr("keys other than queries"): self.handed.num_inputs > 1,
            tr("one head"): 1 in self.handed.heads,
        }
        unchecked = [name for name, checked in missing.items() if not checked]
        tried = listed([tr("gradients"), *["`head_mask`"] * self.handed.gated, stages_in_words(stages)])
        said += [tr("Not checked: {names}.", names=listed(unchecked))] * bool(unchecked)
        return Verdict("right", sentences(said), tr("Checked: {names}.", names=tried))

    def what_is_wrong(
        self, name: str, readings: list, stages: dict[str, list[Result]], wrong: list[str], groups: list
    ) -> Verdict:
        """A verdict by the ``name`` that explains every call, or one for the first wrong stage, and the border."""
        known, first = programs(formula, others=not groups), wrong_in(stages[wrong[0]])[0]
        border, part = border_of(stages, wrong), ""
        differs = not self.raises and all(
            label in wrong or "large" in label or label.startswith("one query") for label in stages
        )  # as a variant does, where no weight is almost 1
        if name:
            part, name = part_of(name), tr(name)
        elif groups and (name := named(programs_of(other_attentions()), readings)):
            return self.other_attention(tr(name), first)
        elif differs and (name := self.wrong_variant(groups, known) or self.mistake):
            part = "scores"
        elif differs and (name := self.wrong_variant(groups, programs_of(other_attentions()), others=True)):
            return self.other_attention(name, first)
        step = self.hand_over(stages, wrong) or ("" if name else tr(NEXT[wrong[0].partition(", ")[0]]))
        if not name and all(label.startswith("a second call") for label in wrong):
            name = tr("The layer keeps something from an earlier call, such as its mask.")
        if not name and run_safely(self.calls.is_random, [()])[0].value:
            name, part = tr("In evaluation, the same call gives another output each time."), "dropout"
            step = tr(
                "Check what is random, and whether `eval()` turns it off: `F.dropout` needs `training=self.training`."
            )
        if not name and differs and groups and (alike := self.in_what_alike(groups)):
            return self.other_attention("", first, alike)
        if not name and first.got.error:
            step = tr(ROOM) if wrong == ["many keys"] else step
            words = {"error": ": ".join(filter(None, first.got.error)), "line": first.got.line}
            told = "It raises {error} at “{line}”." if first.got.line else "It raises {error}."
            return Verdict("wrong", sentences([border, tr(told, **words)]), next_step=step)
        if not name:
            known = known if wrong[0] != "one query" else []
            alike = next((text for text, program in known if explains(program, stages[wrong[0]])), "")
            told = "In some calls, but not in all, it looks like this: {alike}"
            name = tr(told, alike=tr(alike)) if alike else border
            border = border if alike else ""
        first = next((result for name in wrong for result in wrong_in(stages[name]) if not result.got.error), first)
        evidence = sentences([border, example_in_words(first, self.handed.masks)])
        trial = first.trial
        return Verdict("wrong", name, evidence, step, trial, first.got.value, first.right, part)

    def other_attention(self, name: str, first: Result, alike: str = "") -> Verdict:
        """Return the verdict on a layer that is no mistake, as far as one can see, and not the formula."""
        evidence = example_in_words(first, self.handed.masks)
        if name:
            return Verdict("other", sentences([name, tr("All else is as in the formula, in every call.")]), evidence)
        told = sentences([alike, tr("A mistake that is not on the check's list can look like this, too.")])
        return Verdict("other", told, evidence, tr(WITHOUT))

    def in_what_alike(self, groups: list) -> str:
        """Return a sentence on what is like the formula, and what is not; "" if values do not pass as they should."""
        if any(self.calls.fits_even(*way, around) for around, *_ in groups for way in self.ways()):
            return tr(
                "Its weights are not those of softmax(QKᵀ / √d). They sum to 1, and W_v, W_o and the heads are right: "
                "values that are all equal come out as they should."
            )
        if any(self.calls.scales_even(*way) for way in self.ways()):
            return tr(
                "Its weights are not those of softmax(QKᵀ / √d), and they do not sum to 1. W_v, W_o and the heads are "
                "right: values that are all equal come out as multiples of what they should be."
            )
        return ""

    def variant(self, groups: list) -> tuple[str, list[Callable]]:
        """Return the words for the variant of the formula that explains all calls, and its changes of a call."""
        for (around, members, _), way in itertools.product(groups, self.ways()):
            if self.calls.fits_even(*way, around):
                for words, change in members:
                    if self.calls.fits(*way, change):
                        return listed(map(in_words, words)), [*way, change]
        return "", []

    def scaled(self, groups: list) -> tuple[str, list[Callable]]:
        """Return words and changes of a call for scores times a constant; "" and no change if that changes with the
        size of heads, which ``self.mistake`` then says, or if there is none.
        """
        usual = [((), varied), *(variant for variant in groups[0][1] if is_usual(variant[0]))]
        for (words, change), way in itertools.product(usual, self.ways()):
            if not (factors := self.calls.factors(*way, change)):
                continue
            factor, larger = (float(f"{number:.3g}") for number in factors)
            told = [*map(in_words, words)]
            if abs(larger - factor) > 0.01 * factor:
                size = 2 * self.handed.unit
                wrong = tr(
                    "The scores are QKᵀ / √d times {one} with heads of {size} features, and times {two} with {more}: "
                    "the factor should not change with the size.",
                    one=f"{factor:g}",
                    size=size,
                    two=f"{larger:g}",
                    more=2 * size,
                )
                self.mistake = tr("With {words}: {mistake}", words=listed(told), mistake=wrong) if told else wrong
                return "", []
            times = functools.partial(with_factor, change, factors[0])
            if self.calls.fits(*way, times):
                return listed([*told, in_words((TIMES, f"{factor:g}"))]), [*way, times]
        return "", []

    def wrong_variant(self, groups: list, known: list, others: bool = False) -> str:
        """Return a name for a wrong variant of the formula, or for one with a known mistake; "" if there is none."""
        right = [group for group in groups if self.calls.fits_even(group[0])]  # in its values
        for (_, _, wrong), way in itertools.product([] if others else right or groups[:1], self.ways()):
            for text, change in wrong:
                if self.calls.fits(*way, change):
                    return in_words(text)
        for around, members, _ in right or groups:
            usual = [pair for pair in members if is_usual(pair[0]) and (right or len(pair[0]) < 2)]
            left = [row for row in known if not right or self.calls.fits_even(around, program=row[1])]
            for (text, program), (words, change), way in itertools.product(left, usual, self.ways()):
                if self.calls.fits(*way, change, program=program):
                    return tr("With {words}: {mistake}", words=listed(map(in_words, words)), mistake=tr(text))
        return ""

    def hand_over(self, stages: dict[str, list[Result]], wrong: list[str]) -> str:
        """Return how to hand over a layer that is right where sequences are shared, and wrong where they differ."""
        added = functools.partial(varied, before=None, after=torch.add)
        if not self.handed.residual and any(self.calls.fits(*way, added) for way in self.ways()):
            return tr("If that is meant, hand it over with `residual=True`.")
        if self.handed.num_inputs < 3 or len(wrong) < len(stages) / 4:
            return ""
        lengths = ", valid_lens" * self.handed.masks
        if self.calls.fits(causal):
            told = "If it is to be causal, hand it over as self-attention: `call=lambda layer, x{lengths}: …`."
            return tr(told, lengths=lengths)
        if not any(", " in label for label in wrong):
            told = "If keys and values are one sequence, hand it over with `call=lambda layer, x, memory{lengths}: …`."
            return tr(told, lengths=lengths)
        for read in (stages, self.calls.results(causal)):
            first, bad = "several heads", wrong_stages(read)
            if f"{first}, {SHARED[2]}" not in bad and first in bad:
                return tr(
                    "If it is self-attention, hand it over with `call=lambda layer, x{lengths}: …`.", lengths=lengths
                )
        return ""


def is_usual(words: tuple) -> bool:
    """Return whether the words for a variant name one that is tried together with mistakes."""
    return not any(word[0] in RARE[0] or RARE[1] & {*word} for word in words)


def programs_of(rows: list) -> list[tuple[str, Callable]]:
    """Return pairs (message, ``formula`` by an attention) for pairs (message, attention)."""
    return [(text, functools.partial(formula, attention=program)) for text, program in rows]


def named(rows: list, readings: list) -> str:
    """Return the message of the first program of ``rows`` that gives what every call gave, in one of its readings."""
    for read in readings:
        every = sorted((r for results in read.values() for r in results), key=lambda r: r.problem() is None)
        if text := next((text for text, program in rows if explains(program, every)), ""):
            return text
    return ""
