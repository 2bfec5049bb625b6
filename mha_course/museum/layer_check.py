"""Is your own attention layer right, and if not, which bug is it? For anybody's layer, whatever its names::

    from mha_course.exercises import check_layer

    check_layer(
        make=lambda num_hiddens, num_heads, dropout: MyAttention(num_hiddens, num_heads, drop=dropout),
        call=lambda layer, x, valid_lens: layer(x, lengths=valid_lens),
        matrices=lambda layer: (layer.wq, layer.wk, layer.wv, layer.wo),
    )

A class with ``W_q, W_k, W_v, W_o`` and ``forward(queries, keys, values, valid_lens)`` needs no more than
``check_layer(MyAttention)``. In a test of your own project, ``assert_layer`` takes the same arguments and raises what
``check_layer`` says.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.comparing import Result, explains, first_difference
from mha_course.checking.running import MistakeError, NotYetError, error_in_words, run_safely
from mha_course.checking.verdict import Verdict
from mha_course.checking.wording import as_sentence
from mha_course.language import listed, sentences, tr
from mha_course.models.training import seeded
from mha_course.museum.handed_layer import KINDS, HandedLayer, in_words
from mha_course.museum.layer_calls import SHARED, LayerCalls, causal, formula, transposed
from mha_course.museum.layer_notes import PROMISES, notes_on
from mha_course.museum.variants import variants, varied
from mha_course.museum.wrong_attention import part_of, programs

__all__ = ["assert_layer", "check_layer"]

UNITS = (1, 4, 16)  # what sizes of heads are multiplied by, where a layer cannot take small ones
FORMULA = {"formula"}  # the promise that nothing is added to the formula
RARE = re.compile("base|backwards|all heads")  # variants that are not tried together with a mistake
NEXT = {  # first stage that is wrong → what to look at
    "one head": "Begin with one head: softmax(QKᵀ / √d) V, then W_o.",
    "several heads": "Check how the features are split into heads, and how the heads are merged.",
    "several examples": "Check where an axis of the batch is dropped, or taken for another.",
    "one query": "Check what happens to an axis of length 1: a `squeeze` without an axis drops it.",
    "more keys than queries": "Check where the number of queries is used in place of the number of keys.",
    "padding": "Check the mask: which scores it reaches, and what it puts there.",
    "a second call with other lengths": "Check what the layer keeps from an earlier call.",
    "padding and large scores": "Check the number that stands for a masked score: −∞ is needed.",
    "large scores": "Check the softmax: the largest score of a row is subtracted first.",
    "many keys": "Check what depends on the number of keys.",
}
ROOM = (
    "If the layer is built for fewer tokens, let `make` build it for 300; if not, check what depends on their number."
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


def gated_columns(trial: tuple, factors: Tensor) -> Tensor:
    """Return the output of ``formula`` where each column of W_o is multiplied by one of ``factors``."""
    return formula(*(*trial[:7], trial[7] * factors, *trial[8:]))


def gated_scores(trial: tuple, factors: Tensor) -> Tensor:
    """Return the output of ``formula`` where each feature of the projected queries is multiplied by a factor."""
    given = trial[9] | {"b_q": trial[9]["b_q"] * factors}
    return formula(*(*trial[:4], trial[4] * factors[:, None], *trial[5:9], given))


def gated_by_example(trial: tuple, gates: Tensor) -> Tensor:
    """Return the output of ``formula`` where (batch, heads) take their factors in the order (heads, batch)."""
    batch_size, size = len(trial[0]), trial[7].shape[1] // len(gates)
    own = gates.repeat_interleave(batch_size).view(batch_size, -1).repeat_interleave(size, 1)
    return torch.stack([gated_columns(trial, factors)[example] for example, factors in enumerate(own)])


GATES: dict[str, Callable[[tuple, Tensor, int], Tensor]] = {  # what is said of a wrong head_mask → what it computes
    "`head_mask` has no effect.": lambda trial, gates, size: formula(*trial),
    "`head_mask` is repeated in the wrong order for the features (`repeat` for `repeat_interleave`): a head is "
    "multiplied by several numbers.": lambda trial, gates, size: gated_columns(trial, gates.repeat(size)),
    "`head_mask` is repeated in the wrong order for batch and heads (`repeat_interleave` for `repeat`): a head is "
    "multiplied by another head's number.": lambda trial, gates, size: gated_by_example(trial, gates),
    "`head_mask` is applied behind `W_o`, where features no longer belong to heads.": (
        lambda trial, gates, size: formula(*trial) * gates.repeat_interleave(size)
    ),
    "`head_mask` is applied behind `W_o`, where features no longer belong to heads, and repeated in the wrong order.": (
        lambda trial, gates, size: formula(*trial) * gates.repeat(size)
    ),
    "`head_mask` is multiplied into the scores: with 0, a head averages all values. It belongs to the heads' "
    "outputs.": (lambda trial, gates, size: gated_scores(trial, gates.repeat_interleave(size))),
    "`head_mask` is in reverse order.": lambda trial, gates, size: gated_columns(
        trial, gates.flip(0).repeat_interleave(size)
    ),
    "`head_mask` is applied twice.": lambda trial, gates, size: gated_columns(
        trial, gates.square().repeat_interleave(size)
    ),
    "A number other than 0 in `head_mask` counts as 1.": lambda trial, gates, size: gated_columns(
        trial, (gates != 0).float().repeat_interleave(size)
    ),
    "`head_mask` is inverted: 0 keeps a head.": lambda trial, gates, size: gated_columns(
        trial, (1 - gates).repeat_interleave(size)
    ),
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
        except NotYetError as reason:
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
        self.handed, self.asked, self.calls = handed, asked, LayerCalls(handed)

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
        said: tuple[str, ...] = ()
        wrong = wrong_stages(stages)
        every = [result for results in stages.values() for result in results]
        if all(result.got.error for result in every):
            got = every[0].got
            raise in_words(tr("The layer could not be called"), got.error or (), got.line, self.handed.signature)
        known = variants(self.handed.residual) * (not FORMULA & {*self.asked})
        if wrong:
            said, way = self.variant(known)
            if not said:
                return self.what_is_wrong(readings, stages, wrong, known)
        names = ["gradient", *["gates"] * self.handed.gated, "notes"]
        outcomes = run_safely(functools.partial(self.tried, way), [(name,) for name in names])
        for name, outcome in zip(names, outcomes, strict=True):
            if outcome.error:
                mistake = in_words(tr(CANNOT[name]), outcome.error, outcome.line, self.handed.signature)
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

    def praise(self, stages: dict[str, list[Result]], notes: list[tuple], way: list, words: tuple) -> Verdict:
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
        kind = tr("{kind}, with {words}", kind=kind, words=listed(map(tr, words))) if words else kind
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
        self, readings: list, stages: dict[str, list[Result]], wrong: list[str], variants: list
    ) -> Verdict:
        """A name that explains every call, or else one that explains the first stage that is wrong, and the border."""
        known, first = programs(formula), wrong_in(stages[wrong[0]])[0]
        border, name, part = border_of(stages, wrong), "", ""
        for read in readings:
            every = sorted((r for results in read.values() for r in results), key=lambda r: r.problem() is None)
            if not name and (text := next((text for text, program in known if explains(program, every)), "")):
                name, part = tr(text), part_of(text)
        differs = all(name in wrong or "large" in name or name.startswith("one query") for name in stages)
        differs = differs and not self.raises  # as a variant does, where no weight is almost 1
        name = name or (self.wrong_variant(variants, known) if differs else "")
        step = self.hand_over(stages, wrong) or ("" if name else tr(NEXT[wrong[0].partition(", ")[0]]))
        if not name and all(label.startswith("a second call") for label in wrong):
            name = tr("The layer keeps something from an earlier call, such as its mask.")
        if not name and run_safely(self.calls.is_random, [()])[0].value:
            name, part = tr("In evaluation, the same call gives another output each time."), "dropout"
            step = tr(
                "Check what is random, and whether `eval()` turns it off: `F.dropout` needs `training=self.training`."
            )
        if not name and differs and any(self.calls.fits_even(around) for around, *_ in variants):
            told = tr(
                "Its weights are others than those of softmax(QKᵀ / √d); the rest is right: values that are all "
                "equal come out as W_v and W_o make them."
            )
            step = tr(
                "If positions or a norm belong to it, hand it over without: with cos = 1 and sin = 0, with "
                "`nn.Identity` as the norm, with a bias of 0."
            )
            return Verdict("other", told, example_in_words(first), step)
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
        evidence = sentences([border, example_in_words(first)])
        trial = first.trial
        return Verdict("wrong", name, evidence, step, trial, first.got.value, first.right, part)

    def variant(self, groups: list) -> tuple[tuple[str, ...], list[Callable]]:
        """Return the words for the variant of the formula that explains all calls, and its changes of a call."""
        for (around, members, _), way in itertools.product(groups, self.ways()):
            if self.calls.fits_even(*way, around):
                for words, change in members:
                    if self.calls.fits(*way, change):
                        return words, [*way, change]
        return (), []

    def wrong_variant(self, groups: list, known: list) -> str:
        """Return a name for a wrong variant of the formula, or for one with a known mistake; "" if there is none."""
        right = [group for group in groups if self.calls.fits_even(group[0])]  # in its values
        for (_, _, wrong), way in itertools.product(right or groups[:1], self.ways()):
            for text, change in wrong:
                if self.calls.fits(*way, change):
                    return tr(text)
        for around, members, _ in right or groups:
            usual = [pair for pair in members if not RARE.search(str(pair[0])) and (right or len(pair[0]) < 2)]
            left = [row for row in known if not right or self.calls.fits_even(around, program=row[1])]
            for (text, program), (words, change), way in itertools.product(left, usual, self.ways()):
                if self.calls.fits(*way, change, program=program):
                    return tr("With {words}: {mistake}", words=listed(map(tr, words)), mistake=tr(text))
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


def wrong_gates(trial: tuple, gates: Tensor, output: Tensor) -> Verdict | None:
    """Return a verdict on a wrong effect of ``head_mask`` in a layer that is right without it; None if it is right."""
    size = trial[7].shape[1] // len(gates)
    right = gated_columns(trial, gates.repeat_interleave(size))
    if (place := first_difference(output, right)) is None:
        return None
    same = [text for text, gated in GATES.items() if first_difference(output, gated(trial, gates, size)) is None]
    name = tr(same[0]) if same else tr("Right without `head_mask`, wrong with it.")
    evidence = tr(
        "With head_mask {gates}, the output at {place} is {own} instead of {right}.",
        gates=[round(gate, 2) for gate in gates.tolist()],
        place=place,
        own=f"{output[tuple(place)].item():.4g}",
        right=f"{right[tuple(place)].item():.4g}",
    )
    step = tr("Multiply the output of head i, after the average and before W_o, by head_mask[i].")
    return Verdict("wrong", name, evidence, step, trial, output, right, PART_OF["gates"])


def wrong_in(results: Iterable[Result]) -> list[Result]:
    """Select the results of test calls in which a learner's layer gave a wrong output."""
    return [result for result in results if result.problem()]


def wrong_stages(stages: dict[str, list[Result]]) -> list[str]:
    """Return the names of the groups of test cases (``stages``) with at least one wrong result."""
    return [name for name, results in stages.items() if wrong_in(results)]


def example_in_words(result: Result) -> str:
    """Describe a failed test call in a sentence: the shapes of its arguments, and the first wrong number."""
    queries, keys, _, allowed, *_, num_heads, _ = result.trial
    place = tuple(first_difference(result.got.value, result.right) or ())
    return tr(
        "Smallest example: queries {queries}, keys {keys}, valid_lens {lengths}, num_heads {num_heads}. "
        "The output at {place} is {own} instead of {right}.",
        queries=tuple(queries.shape),
        keys=tuple(keys.shape),
        lengths=allowed[:, 0, -1].sum(-1).tolist(),
        num_heads=num_heads,
        place=list(place),
        own=f"{result.got.value[place].item():.4g}",
        right=f"{result.right[place].item():.4g}",
    )


def border_of(stages: dict[str, list[Result]], wrong: list[str]) -> str:
    """Return a sentence that says which groups of calls in ``stages`` a layer passes, and that it fails ``wrong``."""
    good = [name for name in stages if name not in wrong]
    if not good:
        return tr("Wrong in every call.")
    ways_right, ways_wrong = (
        dict.fromkeys(name.partition(", ")[2] or SHARED[0] for name in names) for names in (good, wrong)
    )
    if not ways_right.keys() & ways_wrong.keys():
        words = [listed(map(tr, ways), " and ") for ways in (ways_right, ways_wrong)]
        return tr("Right with {right}; wrong with {wrong}.", right=words[0], wrong=words[1])
    mixed = {name.partition(", ")[0] for name in good} & {name.partition(", ")[0] for name in wrong}
    words = []
    for names in (good, wrong):
        parts = [name.partition(", ") for name in names]
        told = [
            tr("{stage} ({way})", stage=tr(stage), way=tr(way or SHARED[0])) if stage in mixed else tr(stage)
            for stage, _, way in parts
        ]
        words.append(listed(dict.fromkeys(told)))
    return tr("Right with {right}; wrong with {wrong}.", right=words[0], wrong=words[1])


def stages_in_words(names: Iterable[str]) -> str:
    """Return a phrase that lists groups of calls by whether queries, keys and values were one tensor, two or three."""
    parts = [name.partition(", ") for name in names]
    ways = [way for way in dict.fromkeys(way for *_, way in parts) if way]
    stages = listed(map(tr, dict.fromkeys(stage for stage, *_ in parts)))
    if not ways:
        return stages
    ways = [SHARED[0] if len(ways) > 1 else SHARED[1], *ways]
    return tr("{stages}; with {ways}", stages=stages, ways=listed(map(tr, ways)))
