"""What is good to know of a right layer, and no mistake: dropout, empty rows, reported weights, biases, the output."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.comparing import first_difference
from mha_course.checking.running import MistakeError, error_in_words
from mha_course.checking.wording import kind_of
from mha_course.language import sentences, tr
from mha_course.museum.handed_layer import HandedLayer
from mha_course.museum.layer_calls import causal, changed, formula, transposed
from mha_course.museum.wrong_attention import attention

PROMISES = ("weights", "bias", "output", "no_lengths", "dropout", "empty_rows", "formula")
RATE = 0.25  # of the dropout that is tried
EXAMPLES, FEW = 1000, 8  # whose weights are dropped, and how many of them at once: a cache may hold no more
NO_DROPOUT = "`dropout` has no effect."
RAISES = ("An input that is not contiguous raises {error}.", "A batch of {count} raises {error}.")


@dataclass(frozen=True)
class Note:
    """Hold a remark on one property of a learner's layer: which property, whether it is as asked, and a sentence."""

    topic: str
    kept: bool
    text: str


def notes_on(handed: HandedLayer, way: list[Callable], asked: tuple[str, ...]) -> list[Note]:
    """Test dropout, attention weights, fully masked rows and biases of a right layer; return a note on each.
    ``way`` holds the changes of a test call by which the layer is the formula.
    """
    heads = max(handed.heads)
    layer = handed.build(heads, 2, RATE)
    X = sequences(handed, 2, 3, hidden(layer, handed))
    trial, told = trial_of(handed, layer, X, torch.tensor([3, 2]), way), tr("Its dropout was not examined.")
    bare = trial[0] is X[0] and not trial[-1].get("after")  # no norm and no residual around it
    with torch.no_grad():
        notes = [on_output(handed, layer, "output" in asked)]
        notes += [on_dropout(handed, layer, way) if bare else Note("dropout", False, told)]
        notes += [on_empty_rows(handed, layer)] if handed.masks and bare else []
        notes += [on_weights(handed, layer, way)]
        notes += [on_lengths(handed)] if "no_lengths" in asked else []
        notes += [on_bias(handed)] if "bias" in asked else []
    named = [name for name, X in layer.named_parameters() if X.dim() == 1 and "bias" in name]
    unread = [name for name in named if name in handed.unread(layer)]
    if unread:
        names = ", ".join(unread[:4])
        told = "Biases that `matrices` does not read were set to 0 ({names}): give (weight, bias)."
        notes.append(Note("", True, tr(told, names=names)))
    return notes


def sequences(handed: HandedLayer, batch_size: int, number: int, size: int) -> list[Tensor]:
    """Return random queries, keys and values for a layer, some the same tensor if it takes fewer than three."""
    X = [torch.randn(batch_size, number, size) for _ in range(3)]
    return [X[0], X[min(1, handed.num_inputs - 1)], X[handed.num_inputs - 1]]


def on_output(handed: HandedLayer, layer: Any, asked: bool) -> Note:
    """Return a note on whether a layer's call returns a single tensor, the same each time in eval mode."""
    X, lengths = sequences(handed, 2, 3, hidden(layer, handed)), torch.tensor([3, 2])
    layer.eval()
    got, again = handed.call(layer, X, lengths), handed.output(layer, X, lengths)[0]
    first = handed.output(layer, X, lengths)[0]
    if not torch.allclose(first, again, equal_nan=True):
        return Note("output", False, tr("In evaluation, the same call gives another output each time."))
    if first.dtype != X[0].dtype:
        told = tr("The output is {own} where the input is {other}.", own=first.dtype, other=X[0].dtype)
        return Note("output", False, told)
    if asked and not isinstance(got, Tensor):
        return Note("output", False, tr("A call returns {given}, not one tensor.", given=kind_of(got)))
    turned, many = [part.mT.contiguous().mT for part in X], [part.repeat(FEW, 1, 1) for part in X]
    for told, inputs in zip(RAISES, (turned, many), strict=True):
        count = len(inputs[0])
        try:
            handed.output(layer, inputs, lengths.repeat(count // 2))
        except ValueError as error:
            words = {"count": count, "error": error}
            raise MistakeError(tr("The output is right for few examples; with {count}, {error}.", **words)) from None
        except RuntimeError as error:
            said = ": ".join(filter(None, error_in_words(error))).rstrip(".")
            return Note("output", True, tr(told, error=said, count=count))
    return Note("output", True, "")


def hidden(layer: Any, handed: HandedLayer) -> int:
    """Return the size of the last axis of a layer's output, ``num_hiddens``."""
    return len(handed.pairs(layer)[3][0])


def on_empty_rows(handed: HandedLayer, layer: Any) -> Note:
    """Return a note on what a layer outputs for an example without a valid key: zeros, NaN or an average."""
    layer.eval()
    X, W = sequences(handed, 2, 3, hidden(layer, handed)), handed.pairs(layer)[3]
    try:
        output = handed.output(layer, X, torch.tensor([3, 0]))[0][1]
    except Exception as error:
        told = tr("An example without a valid key raises {error}.", error=type(error).__name__)
        return Note("empty_rows", False, told)
    nothing = torch.zeros(()) if W[1] is None else W[1]
    if torch.allclose(output.float(), nothing.float().expand_as(output), atol=1e-6):
        return Note("empty_rows", True, tr("An example without a valid key gets zeros."))
    if output.isnan().any():
        return Note("empty_rows", False, tr("An example without a valid key gets NaN."))
    return Note("empty_rows", False, tr("An example without a valid key gets an average of its padding."))


def on_weights(handed: HandedLayer, layer: Any, way: list[Callable]) -> Note:
    """Return a note on the attention weights that a layer stores: missing, averaged over heads, or after dropout."""
    X, lengths = sequences(handed, 3, 5, hidden(layer, handed)), torch.tensor([5, 3, 4])
    num_heads = max(handed.heads)
    _, told = handed.output(layer.eval(), X, lengths)
    if not isinstance(told, Tensor):
        return Note("weights", False, tr("It reports no weights: `attention_weights` is not there."))
    right = right_weights(handed, layer, X, lengths, way)
    averaged = told.dim() == 3 and told.shape == right.mean(1).shape
    if averaged and first_difference(told, right.mean(1)) is None:
        return Note("weights", False, tr("The weights that it reports are averaged over the heads."))
    if told.shape != right.shape:
        words = {"own": tuple(told.shape), "right": tuple(right.shape)}
        said = "The weights that it reports have the shape {own} instead of {right}, (batch, heads, queries, keys)."
        return Note("weights", False, tr(said, **words))
    if first_difference(told, right):
        return Note("weights", False, tr("The weights that it reports are not those of the formula."))
    X = sequences(handed, 3, 50, hidden(layer, handed))
    _, dropped = handed.output(layer.train(), X, torch.full((3,), 50))
    zeros = (dropped == 0).double().mean() if isinstance(dropped, Tensor) else torch.zeros(())
    if zeros - (0.5 * (causal in way)) > 0.1:
        return Note("weights", False, tr("The weights that it reports are those after dropout."))
    return Note("weights", num_heads > 0, "")


def trial_of(handed: HandedLayer, layer: Any, X: list[Tensor], lengths: Tensor, way: list[Callable]) -> tuple:
    """Return the arguments of ``formula`` for a call of a layer with the inputs ``X``, changed as ``way`` says."""
    matrices, given, _ = handed.matrices(layer, max(handed.heads))
    lengths = lengths if handed.masks else torch.full_like(lengths, X[1].shape[1])
    allowed = (torch.arange(X[1].shape[1]) < lengths[:, None])[:, None, None]
    return changed((*X, allowed, *matrices, max(handed.heads), given), way)


def right_weights(handed: HandedLayer, layer: Any, X: list[Tensor], lengths: Tensor, way: list[Callable]) -> Tensor:
    """Compute the right attention weights for the inputs ``X``, from the layer's own weight matrices."""
    *trial, given = trial_of(handed, layer, X, lengths, way)
    weights: Callable = functools.partial(formula, attention=functools.partial(attention, only_weights=True))
    return weights(*trial, {**given, "after": None})


def on_dropout(handed: HandedLayer, layer: Any, way: list[Callable]) -> Note:
    """Return a note on where a layer applies dropout (weights, output, both or nowhere), and at which rate."""
    size, lengths = hidden(layer, handed), torch.full((FEW,), 2)
    num_heads = max(handed.heads)
    matrices, given, _ = handed.matrices(layer, num_heads)
    W_v, W_o = (W.T.double() if transposed in way else W.double() for W in matrices[2:])
    b_v, b_o = (torch.as_tensor(given[name]).double() for name in ("b_v", "b_o"))
    chosen = torch.tensor([[0.1, 0.1], [0.1, -0.1]], dtype=torch.double)  # (key, feature): each tells of both keys
    memory = ((chosen.repeat(1, size // 2) - b_v) @ torch.linalg.pinv(W_v).T).float()[None]
    X = sequences(handed, 1, 2, size)
    X = [memory if handed.num_inputs == 1 else 0.1 * X[0], memory if handed.num_inputs < 3 else X[1], memory]
    X = [part.repeat(FEW, 1, 1) for part in X]
    right = handed.output(layer.eval(), X, lengths)[0].double().repeat(EXAMPLES // FEW, 1, 1)
    layer.train()
    once = torch.cat([handed.output(layer, X, lengths)[0] for _ in range(EXAMPLES // FEW)]).double()
    if torch.equal(once, right):
        return Note("dropout", False, tr(NO_DROPOUT))
    kept = once.abs() > 1e-9
    if kept[:, -1].double().mean() < 0.85:
        alone = torch.allclose(once[kept] * (1 - RATE), right[kept], atol=1e-3, rtol=1e-3)
        both = tr("Dropout acts on the output and on the weights.")
        return Note("dropout", False, tr("Dropout acts on the output.") if alone else both)
    heads = ((once - b_o) @ torch.linalg.pinv(W_o).T).unflatten(2, (num_heads, -1)).transpose(1, 2)
    weights = right_weights(handed, layer, X, lengths, way).double().repeat(EXAMPLES // FEW, 1, 1, 1)
    factors = heads[..., :2] @ torch.linalg.inv(chosen) / weights.clamp(min=1e-9)
    if wrong := in_what_way(factors, weights > 0.02):
        return Note("dropout", False, tr("Dropout acts on the weights: {how}.", how=wrong))
    return Note("dropout", True, tr("Dropout acts on the weights."))


def in_what_way(factors: Tensor, sure: Tensor) -> str:
    """Describe what is wrong with dropout, given its ``factors`` on attention weights; "" if nothing is wrong."""
    kept = factors.abs() > 0.02
    if not sure.any():
        return ""
    factor = factors[kept & sure].median().item() if (kept & sure).any() else math.nan
    if not torch.allclose(factors[kept & sure], torch.tensor(factor, dtype=torch.double), rtol=0.02):
        return tr("but some are neither dropped nor multiplied by what all others are")
    share, due = 1 - kept[sure].double().mean().item(), 1 / (1 - RATE)
    for axis, name in enumerate(("examples", "heads", "queries", "keys")):
        both = sure & sure.roll(1, axis)
        by_chance = share**2 + (1 - share) ** 2
        same = (kept == kept.roll(1, axis))[both].double()
        if factors.shape[axis] > 1 and len(same) > 100 and same.mean() > (1 + by_chance) / 2:
            return tr("those of different {axis} are dropped together", axis=tr(name))
    error = 5 * math.sqrt(RATE * (1 - RATE) / sure.sum().item())
    if abs(share - RATE) > error:
        words = {"share": f"{share:.0%}", "rate": f"{RATE:.0%}"}
        return tr("{share} of them are dropped where {rate} is asked for", **words)
    if abs(factor - due) > 0.01:
        words = {"own": f"{factor:.3f}", "right": f"{due:.3f}"}
        return tr("those that are kept are multiplied by {own} instead of {right}", **words)
    return ""


def on_lengths(handed: HandedLayer) -> Note:
    """Return a note on whether a layer can be called without valid lengths, and then masks nothing."""
    layer = handed.build(max(handed.heads), 2)
    X = sequences(handed, 2, 3, hidden(layer, handed))
    try:
        without = handed.output(layer, X, None)[0]
    except Exception as error:
        told = ": ".join(filter(None, error_in_words(error))).rstrip(".")
        needed = tr("Without lengths, valid_lens is None.")
        needed = tr("Give valid_lens the default None.") if "missing" in told else needed
        raises = tr("A call without valid_lens raises {error}.", error=told)
        return Note("no_lengths", False, sentences([raises, needed]))
    same = torch.allclose(without, handed.output(layer, X, torch.tensor([3, 3]))[0], atol=1e-5)
    return Note("no_lengths", same, "" if same else tr("Without valid_lens, some keys are masked."))


def on_bias(handed: HandedLayer) -> Note:
    """Return a note on whether ``bias=True`` gives a learner's layer biases that it uses, and the default none."""
    num_heads = max(handed.heads)
    try:
        layer = handed.build(num_heads, 2, bias=True)
    except TypeError as error:
        return Note("bias", False, tr("With `bias=True` the layer cannot be made: {error}.", error=error))
    for made, wanted in ((layer, True), (handed.build(num_heads, 2), False)):
        has = [b is not None for _, b in handed.pairs(made)[:4]]
        wrong = [name for name, b in zip(("W_q", "W_k", "W_v", "W_o"), has, strict=True) if b != wanted]
        if wrong:
            if wanted:
                told = "With `bias=True`, {names} has no bias."
                told = told if len(wrong) == 1 else "With `bias=True`, {names} have no bias."
            else:
                told = "Without `bias`, {names} has a bias."
                told = told if len(wrong) == 1 else "Without `bias`, {names} have a bias."
            return Note("bias", False, tr(told, names=", ".join(wrong)))
    X = sequences(handed, 2, 4, hidden(layer, handed))
    matrices, given_biases, _ = handed.matrices(layer, num_heads)
    allowed = torch.ones(1, 1, 1, 4, dtype=torch.bool)
    W_q, W_k, W_v, W_o = matrices
    right = attention(X[0], X[1], X[2], allowed, W_q, W_k, W_v, W_o, num_heads, **given_biases)
    same = first_difference(handed.output(layer, X, torch.tensor([4, 4]))[0], right) is None
    return Note("bias", same, "" if same else tr("With `bias=True`, the output is not the formula's."))
