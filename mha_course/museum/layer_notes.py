"""What is good to know of a right layer, and no mistake: dropout, empty rows, reported weights, biases, the output."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.comparing import equal
from mha_course.checking.running import MistakeError, error_in_words, in_one, line_of
from mha_course.checking.wording import as_sentence, kind_of
from mha_course.language import listed, sentences, tr
from mha_course.museum.dropped_weights import dropped_otherwise
from mha_course.museum.handed_layer import OF_NORMS, HandedLayer
from mha_course.museum.layer_matrices import NAMES
from mha_course.museum.layer_search import WINDOW
from mha_course.museum.layer_trials import before_output, causal, changed, formula, weights_of, within

PROMISES = ("weights", "bias", "output", "no_lengths", "dropout", "empty_rows", "formula")
RATE = 0.25  # of the dropout that is tried
EXAMPLES, FEW = 1000, 8  # whose weights are dropped, and how many of them at once: a cache may hold no more
RANDOM = "Check what is random, and whether `eval()` turns it off: `F.dropout` needs `training=self.training`."
NO_DROPOUT = "`dropout` has no effect."
OTHER_CALLS = (  # batch, queries and keys of a call that no stage has → what is said where it raises
    ((2, 3, 4), "An input that is not contiguous raises {error}."),
    ((2 * FEW, 3, 3), "A batch of {count} raises {error}."),
    ((2, 5, 3), "A call with more queries than keys raises {error}."),
    ((1, 2, 1030), ""),  # there may be no room for so many
)
BIASES = {  # whether biases are asked for → what is said of one matrix that is otherwise, and of several
    True: ("With `bias=True`, {names} has no bias.", "With `bias=True`, {names} have no bias."),
    False: ("Without `bias`, {names} has a bias.", "Without `bias`, {names} have a bias."),
}


def notes_on(handed: HandedLayer, way: Sequence[Callable], asked: Sequence[str]) -> list[tuple[str, bool, str]]:
    """Return notes on a right layer: the promise that a note is about, whether it is kept, and a sentence.
    ``way`` holds the changes of a test call by which the layer is the formula, and ``asked`` the promises.
    """
    layer, X = handed.build(handed.num_heads, 2, RATE), handed.sequences(2, 3, 2)
    trial = changed(handed.trial(layer, X, torch.tensor([3, 2])), way)
    bare = trial[0] is X[0] and not trial[-1].get("after")  # no norm and no residual around it
    is_clear = 2 * handed.num_heads <= trial[7].shape[1] <= len(trial[7])  # the output tells what the heads give
    with torch.no_grad():
        notes = [("output", *on_output(handed, layer, "output" in asked))]
        refuse_other_modes(handed, layer, X, trial)
        dropped = on_dropout(handed, layer, way) if bare and is_clear else (False, tr("Its dropout was not examined."))
        notes += [("dropout", *dropped)]
        notes += [("empty_rows", *on_empty_rows(handed, layer))] * (handed.masks and bare)
        faults = {"weights": fault_of_weights(handed, layer, way)}
        faults |= {"no_lengths": fault_without_lengths(handed)} if "no_lengths" in asked else {}
        faults |= {"bias": fault_of_biases(handed, way)} if "bias" in asked else {}
    notes += [(topic, not fault, fault) for topic, fault in faults.items()]
    notes += [("", True, told) for told in on_other_calls(handed, layer, way)]
    unread = handed.unread(layer).items()
    if names := [name for name, b in unread if b.dim() == 1 and "bias" in name and not re.search(OF_NORMS, name)]:
        told = "Biases that `matrices` does not read were set to 0 ({names}): give (weight, bias)."
        notes.append(("", True, tr(told, names=", ".join(names[:4]))))
    return notes


def on_output(handed: HandedLayer, layer: Any, asked: bool) -> tuple[bool, str]:
    """Tell whether a layer's call returns a single tensor, the same each time in evaluation, and what is to say."""
    X, lengths = handed.sequences(2, 3, 2), torch.tensor([3, 2])
    got, again, first = handed.call(layer.eval(), X, lengths), *(handed.output(layer, X, lengths)[0] for _ in range(2))
    if not torch.allclose(first, again, equal_nan=True):
        told = tr("In evaluation, the same call gives another output each time.")
        raise MistakeError(sentences([told, tr(RANDOM)]), "dropout")
    if first.dtype != X[0].dtype:
        return False, tr("The output is {own} where the input is {other}.", own=first.dtype, other=X[0].dtype)
    if asked and not isinstance(got, Tensor):
        return False, tr("A call returns {given}, not one tensor.", given=kind_of(got))
    return True, ""


def on_other_calls(handed: HandedLayer, layer: Any, way: Sequence[Callable]) -> list[str]:
    """Return what calls of other kinds raise, if they do. Raise MistakeError where the output is another."""
    notes = []
    for number, ((batch, queries, keys), told) in enumerate(OTHER_CALLS):
        of_keys = handed.sequences(batch, keys, 2)
        X = [handed.sequences(batch, queries, 2)[0], *of_keys[1:]] if handed.num_inputs > 1 else of_keys
        X = X if number else [part.mT.contiguous().mT for part in X]
        lengths, shapes = keys - torch.arange(batch) % keys, (tuple(X[0].shape), tuple(X[1].shape))
        shown = listed([tr("queries {shape}", shape=shapes[0]), tr("keys {shape}", shape=shapes[1])], " and ")
        other = tr("The output is right, but not with {shown}.", shown=shown)
        try:
            got = handed.output(layer.eval(), X, lengths)[0]
        except Exception as error:
            if isinstance(error, ValueError) and not line_of(error):  # the output has another shape
                raise MistakeError(sentences([other, as_sentence(error.args[0])])) from None
            notes.append(tr(told, error=in_one(error_in_words(error)), count=batch))
        else:
            trial = changed(handed.trial(layer, X, lengths), way)
            if not alike(got, formula(*trial)):
                notes.append(wide_window(handed, layer, X, trial, got))
                if not notes[-1]:
                    raise MistakeError(other)
    return notes


def wide_window(handed: HandedLayer, layer: Any, X: Sequence[Tensor], trial: tuple, got: Tensor) -> str:
    """Return a sentence on the window that explains the output ``got`` of self-attention, where one does; or ""."""
    changed_first = torch.cat([X[0][:, :1].flip(-1), X[0][:, 1:]], dim=1)
    if handed.num_inputs > 1 or len(got) > 1:
        return ""
    second = handed.output(layer, [changed_first] * 3, torch.tensor([got.shape[1]]))[0]
    before = int((got - second).abs().amax((0, 2)).gt(1e-7).nonzero().max())
    behind = 0 if trial[3].shape[2] > 1 else before  # causal, or not
    return tr(WINDOW, before=before, behind=behind) if alike(got, formula(*within(before, behind, trial))) else ""


def alike(got: Tensor, right: Tensor) -> bool:
    """Return whether outputs are equal up to what a small number in a norm, or a late position, makes of them."""
    return torch.allclose(got.double(), right.double(), rtol=0.01, atol=0.01 * right.abs().max().item())


def refuse_other_modes(handed: HandedLayer, layer: Any, X: Sequence[Tensor], trial: tuple) -> None:
    """Raise MistakeError where a layer with dropout is another in evaluation, or one without dropout in training."""
    lengths = torch.tensor([3, 2])
    if not equal(handed.output(layer.eval(), X, lengths)[0], formula(*trial)):
        told = "The output is right, but not in evaluation of a layer that is made with dropout."
        raise MistakeError(tr(told), "dropout")
    plain = handed.build(handed.num_heads, 2)
    right = handed.output(plain, X, lengths)[0]
    first, second = (handed.output(plain.train(), X, lengths)[0] for _ in range(2))
    if torch.equal(first, second) and not equal(first, right):  # dropout of its own would give another each time
        told = "The output is right, but not in training, where it differs without dropout, too."
        raise MistakeError(tr(told), "dropout")


def on_empty_rows(handed: HandedLayer, layer: Any) -> tuple[bool, str]:
    """Tell whether a layer gives zeros for an example without a valid key, and what it gives."""
    X, b_o = handed.sequences(2, 3, 2), handed.pairs(layer)[3][1]
    try:
        output = handed.output(layer.eval(), X, torch.tensor([3, 0]))[0][1]
    except Exception as error:
        return False, tr("An example without a valid key raises {error}.", error=type(error).__name__)
    nothing = torch.zeros(()) if b_o is None else b_o
    if torch.allclose(output.float(), nothing.float().expand_as(output), atol=1e-6):
        return True, tr("An example without a valid key gets zeros.")
    if output.isnan().any():
        return False, tr("An example without a valid key gets NaN.")
    return False, tr("An example without a valid key gets an average of its padding.")


def fault_of_weights(handed: HandedLayer, layer: Any, way: Sequence[Callable]) -> str:
    """Return what is wrong with the attention weights that a layer stores, if anything, such as an average."""
    X, lengths = handed.sequences(3, 5, 2), torch.tensor([5, 3, 4])
    _, told = handed.output(layer.eval(), X, lengths)
    _, dropped = handed.output(layer.train(), handed.sequences(3, 50, 2), torch.full((3,), 50))
    right = weights_of(changed(handed.trial(layer, X, lengths), way))
    if not isinstance(told, Tensor):
        return tr("It reports no weights: `attention_weights` is not there.")
    if equal(told, right.mean(1)):
        return tr("The weights that it reports are averaged over the heads.")
    if told.shape != right.shape:
        shapes = "The weights that it reports have the shape {own} instead of {right}, (batch, heads, queries, keys)."
        return tr(shapes, own=tuple(told.shape), right=tuple(right.shape))
    if not equal(told, right):
        return tr("The weights that it reports are not those of the formula.")
    after = isinstance(dropped, Tensor) and (dropped == 0).double().mean() > 0.1 + 0.5 * (causal in way)
    return tr("The weights that it reports are those after dropout.") if after else ""


def on_dropout(handed: HandedLayer, layer: Any, way: Sequence[Callable]) -> tuple[bool, str]:
    """Tell whether dropout acts on each attention weight at the rate that is asked for, and what it acts on."""
    lengths, X = torch.full((FEW,), 2), handed.sequences(1, 2, 2)
    trial = changed(handed.trial(layer, X, lengths[:1]), way)
    W_v, b_v = trial[6].double(), trial[9]["b_v"]
    chosen = torch.tensor([[0.1, 0.1], [0.1, -0.1]], dtype=torch.double)  # (key, feature): each tells of both keys
    wanted = chosen.repeat(1, len(W_v) // 2) - b_v
    memory = (wanted @ torch.linalg.pinv(W_v).T).float()[None]
    X = [memory if X[0] is X[2] else 0.1 * X[0], memory if X[1] is X[2] else X[1], memory]
    X = [part.repeat(FEW, 1, 1) for part in X]
    right = handed.output(layer.eval(), X, lengths)[0].double().repeat(EXAMPLES // FEW, 1, 1)
    layer.train()
    once = torch.cat([handed.output(layer, X, lengths)[0] for _ in range(EXAMPLES // FEW)]).double()
    if torch.equal(once, right):
        return False, tr(NO_DROPOUT)
    kept = once.abs() > 1e-9
    if kept[:, -1].double().mean() < 0.85:
        alone = torch.allclose(once[kept] * (1 - RATE), right[kept], atol=1e-3, rtol=1e-3)
        return False, tr("Dropout acts on the output." if alone else "Dropout acts on the output and on the weights.")
    used = before_output(once, trial)[..., :2] @ torch.linalg.inv(chosen)
    weights = weights_of(changed(handed.trial(layer, X, lengths), way)).double().repeat(EXAMPLES // FEW, 1, 1, 1)
    still_sum_to_1 = (used - weights).sum(-1).abs().median() < 0.01
    none_dropped = (used[weights > 0.02] < 0.02).double().mean() < 0.01
    if still_sum_to_1 and none_dropped and (used - weights).abs().max() > 0.01:
        told = "The output is right, but not in training: dropout acts before the softmax, and belongs on the weights."
        raise MistakeError(tr(told), "dropout")
    wrong = dropped_otherwise(used / weights.clamp(min=1e-9), weights > 0.02, RATE)
    return not wrong, wrong or tr("Dropout acts on the weights.")


def fault_without_lengths(handed: HandedLayer) -> str:
    """Return what is wrong with a call without valid lengths, which masks nothing, if anything."""
    layer, X = handed.build(handed.num_heads, 2), handed.sequences(2, 3, 2)
    try:
        without = handed.output(layer, X, None)[0]
    except Exception as error:
        told = in_one(error_in_words(error))
        needed = "Give valid_lens the default None." if "missing" in told else "Without lengths, valid_lens is None."
        return sentences([tr("A call without valid_lens raises {error}.", error=told), tr(needed)])
    same = torch.allclose(without, handed.output(layer, X, torch.tensor([3, 3]))[0], atol=1e-5)
    return "" if same else tr("Without valid_lens, some keys are masked.")


def fault_of_biases(handed: HandedLayer, way: Sequence[Callable]) -> str:
    """Return what is wrong with the biases of a layer, if anything: ``bias=True`` gives four, the default none."""
    try:
        layer = handed.build(handed.num_heads, 2, bias=True)
    except TypeError as error:
        return tr("With `bias=True` the layer cannot be made: {error}.", error=error)
    for made, wanted in ((layer, True), (handed.build(handed.num_heads, 2), False)):
        pairs = zip(NAMES[:4], handed.pairs(made)[:4], strict=True)
        if wrong := [name for name, (_, b) in pairs if (b is not None) != wanted]:
            return tr(BIASES[wanted][len(wrong) > 1], names=", ".join(wrong))
    X, lengths = handed.sequences(2, 4, 2), torch.tensor([4, 4])
    same = equal(handed.output(layer, X, lengths)[0], formula(*changed(handed.trial(layer, X, lengths), way)))
    return "" if same else tr("With `bias=True`, the output is not the formula's.")
