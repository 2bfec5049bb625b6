"""``check_layer``: is your own attention layer right, and if not, which bug is it? For anybody's layer."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from mha_course.checking.running import MistakeError, NotYetError, error_in_words, in_one, run_safely
from mha_course.checking.verdict import Verdict
from mha_course.language import listed, sentences, tr
from mha_course.models.training import seeded
from mha_course.museum.handed_layer import KINDS, HandedLayer
from mha_course.museum.handed_layer import in_words as error_told
from mha_course.museum.layer_calls import SHARED, LayerCalls
from mha_course.museum.layer_gates import wrong_gates
from mha_course.museum.layer_notes import PROMISES, RANDOM, notes_on
from mha_course.museum.layer_search import RESIDUAL, Search
from mha_course.museum.layer_trials import causal, close, output_of, transposed
from mha_course.museum.layer_words import (
    NEXT,
    ROOM,
    border_of,
    example_in_words,
    stages_in_words,
    wrong_in,
    wrong_stages,
)

__all__ = ["assert_layer", "check_layer"]

UNITS = (1, 4, 16)  # what sizes of heads are multiplied by, where a layer cannot take small ones
AGAIN = "a second call with other lengths"
FORMULA = "formula"  # the promise that nothing is added to the formula
WITHOUT = (
    "If positions, a norm or a bias belong to it, pass it without them: with cos = 1 and sin = 0, with `nn.Identity` "
    "as the norm, with a bias of 0. What remains is then compared with the formula."
)
UNLIKE = "Nothing on the check's list explains it: values that are all equal do not come out as W_v and W_o make them."
LIKE_THIS = "A mistake that is not on the check's list can look like this, too."
GRADIENTS = (  # what is said of parameters and inputs that none reaches, and of those that another reaches
    "The output is right, but no gradient reaches {names}: it cannot learn.",
    "The output is right, but the gradient of {names} is not that of the formula: on its way to them it is "
    "changed or cut off, as by `detach`.",
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
    except (NotYetError, MistakeError) as reason:
        state = "not yet" if isinstance(reason, NotYetError) else "wrong"
        return Verdict(state, reason.args[0], about=reason.about)
    except Exception as surprise:
        error = in_one(error_in_words(surprise))
        return Verdict(
            "not yet", tr("The check itself failed, which says nothing about the layer: {error}.", error=error)
        )


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
        else:
            if not checks[-1].raising:
                return checks[-1]
    if not checks:
        raise reasons[0]
    return checks[0]


class LayerCheck:
    """Check a learner's attention layer on all kinds of test cases, and make the verdict.

    Attributes:
        stages: name of a group of calls → its results, read in the way that has the fewest ``wrong`` ones.
    """

    def __init__(self, handed: HandedLayer, asked: tuple[str, ...]) -> None:
        self.handed, self.asked, self.calls = handed, asked, LayerCalls(handed)
        self.search = Search(self.calls, FORMULA in asked)
        readings = [(way, self.calls.results(*way)) for way in self.search.ways]
        if all(wrong_stages(stages) for _, stages in readings):  # shown as the layer seems to be meant
            readings.sort(key=lambda pair: pair[0] not in self.search.likely)
        self.way, self.stages = min(readings, key=lambda pair: len(wrong_stages(pair[1])))
        self.wrong = wrong_stages(self.stages)
        if not self.differs:
            self.search.without_variants()

    @property
    def raising(self) -> list[str]:
        """The names of the groups of calls in which some call raised an error."""
        return [label for label, results in self.stages.items() if any(result.got.error for result in results)]

    @property
    def differs(self) -> bool:
        """Whether every call differs in which a variant would: where no weight is almost 1, and heads have features
        enough to turn some and leave others.
        """
        few = 2 * self.handed.unit

        def tells(label: str) -> bool:
            sizes = [result.trial[7].shape[1] // result.trial[8] for result in self.stages[label]]
            return "large" not in label and not label.startswith("one query") and max(sizes) > few

        return all(label in self.wrong or not tells(label) for label in self.stages)

    def verdict(self) -> Verdict:
        """Say what is right and what is wrong."""
        every = [result for results in self.stages.values() for result in results]
        if all(result.got.error for result in every):
            got = every[0].got
            raise error_told(tr("The layer could not be called"), got.error or (), got.line, self.handed.signature)
        if self.calls.keeps:
            return self.if_kept()
        if not self.wrong:
            return self.if_right(self.way, "")
        if not (found := self.search.found(bool(self.raising))):
            return self.what_is_wrong()
        if found.state == "right":
            return self.if_right(found.changes, found.text)
        step = self.hand_over(found.text) if found.state == "wrong" else ""
        return self.not_right(found.text, step, found.part, found.state)

    def if_kept(self) -> Verdict:
        """Return the verdict on a layer that keeps something between calls, with an example if there is one."""
        told = tr("The layer keeps something from an earlier call, such as its mask.")
        if self.wrong and all(label.startswith(AGAIN) for label in self.wrong):
            return self.not_right(told, "")
        return Verdict("wrong", told, next_step=tr(NEXT[AGAIN]))

    def if_right(self, way: Sequence[Callable], said: str) -> Verdict:
        """Return the verdict on a layer with the right output, perhaps as a variant: what else it can, and notes."""
        tries: dict[str, Callable] = {"gradient": lambda: self.calls.wrong_gradients(way)}
        tries |= {"gates": lambda: self.calls.gated(way)} if self.handed.gated else {}
        tries |= {"notes": lambda: notes_on(self.handed, way, self.asked)}
        outcomes = run_safely(lambda of: of(), [(of,) for of in tries.values()])
        for name, outcome in zip(tries, outcomes, strict=True):
            if outcome.error:
                mistake = error_told(tr(CANNOT[name]), outcome.error, outcome.line, self.handed.signature)
                if name == "notes" and not outcome.line and not self.asked:  # perhaps the check's own
                    told = tr("Dropout and weights could not be examined: {error}", error=mistake.args[0])
                    return self.praise([("", True, told)], way, said)
                told = sentences([tr("The output is right."), mistake.args[0]])
                raise MistakeError(told, PART_OF.get(name, ""))
            for told, names in zip(GRADIENTS, outcome.value if name == "gradient" else ((), ()), strict=True):
                if names:
                    return Verdict("wrong", tr(told, names=listed(map(tr, names))))
            if name == "gates" and (verdict := wrong_gates(*outcome.value)) is not None:
                return verdict
        return self.praise(outcomes[-1].value, way, said)

    def praise(self, notes: list[tuple], way: Sequence[Callable], words: str) -> Verdict:
        """Return the verdict on a right layer, with notes, unless a promise is not kept."""
        broken = {topic: text for topic, kept, text in notes if not kept}
        if first := next((topic for topic in self.asked if topic in broken), ""):
            told = sentences([tr("The output is right."), broken[first]])
            return Verdict("wrong", told, about=PART_OF.get(first, ""))
        given, size = next(iter(self.stages.values()))[0].trial[-1], 2 * self.handed.unit
        kind = tr(KINDS[self.handed.num_inputs])
        kind = tr("causal {kind}", kind=kind) if causal in way else kind
        biased = any(isinstance(b, Tensor) for name, b in given.items() if name != "w_v")
        kind = tr("{kind}, with biases", kind=kind) if biased else kind
        kind = tr("{kind}, with {words}", kind=kind, words=words) if words else kind
        remarks = {
            tr("Heads share keys and values, in groups."): self.calls.shares,
            tr("The matrices are stored as (input, output)."): transposed in way,
            self.handed.mask_note: True,
            tr(ROOM, error=self.calls.no_room): bool(self.calls.no_room),
            tr("The heads have {size} features or more: smaller ones cannot be called.", size=size): size > 2,
        }
        missing = {
            tr("padding (no valid_lens)"): not self.handed.masks,
            tr("keys other than queries"): self.handed.num_inputs == 1,
            tr("one head"): 1 not in self.handed.heads,
        }
        unchecked, noted = ([text for text, holds in of.items() if holds] for of in (missing, remarks))
        said = [tr("The layer computes {kind}.", kind=kind), *(text for _, _, text in notes), *noted]
        said += [tr("The check did not cover {names}.", names=listed(unchecked, " or "))] * bool(unchecked)
        tried = [tr("gradients"), *["`head_mask`"] * self.handed.gated, stages_in_words(self.stages)]
        return Verdict("right", sentences(said), tr("The check covered {names}.", names=listed(tried)))

    def not_right(self, text: str, step: str, part: str = "", state: str = "wrong") -> Verdict:
        """Return the verdict on a layer that is not the formula: what it is in words, or "" to say where the border of
        right and wrong is.
        """
        border = border_of(self.stages, self.wrong)
        found = [result for label in self.wrong for result in wrong_in(self.stages[label])]
        first = next((result for result in found if not result.got.error), found[0])
        evidence = border * bool(text and state == "wrong"), example_in_words(first, self.handed.masks)
        given = first.trial, first.got.value, first.right
        return Verdict(state, text or border, sentences(evidence), step, *given, part)

    def what_is_wrong(self) -> Verdict:
        """Return the verdict on a layer that no row of a table explains."""
        wrong, results, step = self.wrong, self.stages[self.wrong[0]], self.hand_over()
        if self.calls.is_random:
            told = tr("In evaluation, the same call gives another output each time.")
            return self.not_right(told, tr(RANDOM), "dropout")
        if not self.raising and (nearly := self.search.nearly()):
            return self.not_right(sentences([nearly, tr(LIKE_THIS)]), step, state="other")
        if self.differs and not self.raising and FORMULA not in self.asked:
            if alike := self.search.alike() or tr(UNLIKE) * bool(self.calls.even and not step):
                return self.not_right(sentences([alike, tr(LIKE_THIS)]), tr(WITHOUT), state="other")
        every = [result for results in self.stages.values() for result in results]
        shapes = [(result.trial[0].shape[:2], result.problem()) for result in every]
        alone = all(1 in shape if problem else shape[0] > 1 for shape, problem in shapes)  # single examples, or tokens
        step = step or tr(NEXT["one query" if alone else wrong[0].partition(", ")[0]])
        got = wrong_in(results)[0].got
        if got.error:
            told = "It raises {error} at “{line}”." if got.line else "It raises {error}."
            told = tr(told, error=got.error_in_words, line=got.line)
            return Verdict("wrong", sentences([border_of(self.stages, wrong), told]), next_step=step)
        rows = self.search.mistakes if wrong[0] != "one query" else []
        calls = [(result.trial, result.got.value) for result in results]
        known = (text for text, program in rows if all(close(output_of(program, call), got) for call, got in calls))
        alike = tr(next(known, ""))
        name = tr("In some calls, but not in all, it looks like this: {alike}", alike=alike) if alike else ""
        return self.not_right(name, step)

    def hand_over(self, said: str = "") -> str:
        """Return how to hand over a layer that is ``said`` to add its input, or is right for shared sequences."""
        if tr(RESIDUAL) in said and not self.handed.residual:
            return tr("If that is meant, hand it over with `residual=True`.")
        if self.handed.num_inputs < 3 or len(self.wrong) < len(self.stages) / 4:
            return ""
        lengths, alone = ", valid_lens" * self.handed.masks, f"several heads, {SHARED[2]}"
        told = ""
        if self.search.fits(causal):
            told = "If it is to be causal, hand it over as self-attention: `call=lambda layer, x{lengths}: …`."
        elif not any(", " in label for label in self.wrong):
            told = "If keys and values are one sequence, hand it over with `call=lambda layer, x, memory{lengths}: …`."
        elif any(
            "several heads" in bad and alone not in bad
            for bad in (self.wrong, wrong_stages(self.calls.results(causal)))
        ):
            told = "If it is self-attention, hand it over with `call=lambda layer, x{lengths}: …`."
        return tr(told, lengths=lengths) if told else ""
