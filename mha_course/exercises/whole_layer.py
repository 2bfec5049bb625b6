"""The layer that a learner writes in notebook 00: checked in two steps, kept, and given to any notebook."""

import ast
import contextlib
import dataclasses
import html
import inspect
import linecache
import math
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_course import kept_work
from mha_course.checking.comparing import first_difference
from mha_course.checking.edits import source_of_answer
from mha_course.checking.exercise import judged
from mha_course.checking.running import MistakeError, NotYetError, run_safely
from mha_course.checking.verdict import Page, Verdict
from mha_course.exercises import transposing
from mha_course.language import sentences, tr
from mha_course.museum.layer_check import check_layer
from mha_course.museum.layer_notes import NO_DROPOUT
from mha_lib.attention import masked_softmax

KEPT_AS = "the layer of notebook 00"
transpose_qkv, transpose_output = transposing.transpose_qkv.right, transposing.transpose_output.right
AT_HAND = {  # what the source of a kept class may use without defining it
    "torch": torch,
    "nn": nn,
    "F": F,
    "math": math,
    "masked_softmax": masked_softmax,
    "transpose_qkv": transpose_qkv,
    "transpose_output": transpose_output,
}
PROMISES = ("output", "bias", "no_lengths", "weights", "formula")  # what a layer keeps; a tuple has no weights
STEP_OF = {  # part of a layer that a verdict is about → the step of notebook 00 in which it is written
    "init": 1,
    "projections": 2,
    "lengths": 3,
    "scores": 4,
    "reported weights": 5,
    "output": 6,
    "dropout": 7,
    "head_mask": 8,
}
accepted: list[type] = []  # the class that was accepted last in this kernel


class CompleteAttention(nn.Module):
    """Compute multi-head attention with valid lengths, dropout and a head mask, named as in the book d2l, 11.5."""

    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_k = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_v = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        h = self.num_heads
        Q = transpose_qkv(self.W_q(queries), h)  # (b * h, n, p)
        K = transpose_qkv(self.W_k(keys), h)  # (b * h, m, p)
        V = transpose_qkv(self.W_v(values), h)  # (b * h, m, p)
        if valid_lens is not None:
            valid_lens = valid_lens.repeat_interleave(h, dim=0)  # (b * h, ...)
        scores = torch.bmm(Q, K.transpose(1, 2)) / math.sqrt(Q.shape[-1])
        weights = masked_softmax(scores, valid_lens)  # (b * h, n, m)
        self.attention_weights = weights.unflatten(0, (-1, h))  # (b, h, n, m)
        heads = torch.bmm(self.dropout(weights), V)  # (b * h, n, p)
        if head_mask is not None:
            heads = heads * head_mask.repeat(len(queries)).view(-1, 1, 1)
        return self.W_o(transpose_output(heads, h))


@judged(
    right=CompleteAttention,
    idea="Each line of `forward` is one of the steps 2 to 6. You can use `transpose_qkv`, `masked_softmax` and "
    "`transpose_output`.",
    begin="Begin with `__init__`: keep the number of heads, and make the four linear layers.",
)
def layer_by_formula(Layer: type[nn.Module]) -> Verdict:
    """Check a learner's multi-head attention class: its output, valid lengths, and the attention weights it stores.

    The class is made by Layer(num_hiddens, num_heads, bias=…), with or without a dropout rate, whatever the order of
    the two, and called with (queries, keys, values, valid_lens).
    """
    verdict = with_steps(Layer, head_mask=False)
    if not verdict:
        return verdict
    told = [verdict.text.replace(text, "") for text in (tr(" ") + tr(NO_DROPOUT), tr(NO_DROPOUT) + tr(" "))]
    return dataclasses.replace(verdict, text=min(told, key=len))


@judged(
    right=CompleteAttention,
    idea="Before the merge, each head is a matrix; afterwards it has p consecutive features.",
    begin="Begin with `__init__`: make an `nn.Dropout` with the given rate.",
)
def layer_with_head_mask(Layer: type[nn.Module]) -> Verdict:
    """Check a learner's complete attention class, with dropout and head mask; if it is right, ``my_layer`` returns it.

    The class is made by Layer(num_hiddens, num_heads, dropout, bias) and called with (queries, keys, values,
    valid_lens, head_mask), head_mask (num_heads,). It must also work with fewer heads than it was made with.
    """
    verdict = with_steps(Layer, head_mask=True)
    if verdict:
        require_fewer_heads(Layer)
        accepted[:] = [Layer]
        if source := source_of(Layer):
            kept_work.keep(KEPT_AS, {"text": source})
    return verdict


def with_steps(Layer: Any, head_mask: bool) -> Verdict:
    """Check a learner's attention class; add to the verdict which of eight steps of writing it went wrong."""
    if not (inspect.isclass(Layer) and issubclass(Layer, nn.Module)):
        raise MistakeError(tr("Give the class itself, without calling it."))
    if not getattr(Layer.forward, "__code__", with_steps.__code__).co_names:
        raise NotYetError(tr("Put your code in the place of the dots, then run both cells."))
    promises = PROMISES + ("dropout",) * head_mask
    if head_mask and not takes_dropout(Layer):
        raise NotYetError(
            tr("Step {step}: {text}", step=7, text=tr("`__init__` takes no `dropout`. Add it after `num_heads`."))
        )
    Layer = made_by_name(Layer)
    verdict = check_layer(Layer, head_mask=head_mask, promises=promises)
    if verdict.about == "head_mask" and not (earlier := check_layer(Layer, promises=promises)):
        verdict = earlier
    if verdict:
        require_lengths_of_queries(Layer)
    if verdict or verdict.about not in STEP_OF:
        return verdict
    text = tr("Step {step}: {text}", step=STEP_OF[verdict.about], text=verdict.text)
    return dataclasses.replace(verdict, text=text)


def takes_dropout(Layer: type) -> bool:
    """Return whether a class can be made with a dropout rate: an argument after the first two that is not ``bias``."""
    names = [*arguments_of(Layer)]
    return len(names) != 2 and names[2:] != ["bias"]


def arguments_of(Layer: type) -> dict[str, inspect.Parameter]:
    """Return what a class is made with, by name, without ``**options``."""
    return {name: p for name, p in inspect.signature(Layer).parameters.items() if p.kind != p.VAR_KEYWORD}


def made_by_name(Layer: Any) -> type[nn.Module]:
    """Return a subclass of ``Layer`` that is made with a rate and a bias, in whatever order ``Layer`` takes them.

    ``dropout`` and ``bias`` are handed on by name: a rate only if ``Layer`` takes one, ``bias`` as it is given, and as
    False where ``Layer`` insists on it. A class whose third argument has another name is left as it is.
    """
    parameters = arguments_of(Layer)
    if [*parameters][2:3] not in ([], ["bias"], ["dropout"]):
        return Layer
    fixed = {"bias": False} if "bias" in parameters and parameters["bias"].default is inspect.Parameter.empty else {}

    def __init__(self, num_hiddens, num_heads, dropout=0.0, **options):
        rate = {"dropout": dropout} if "dropout" in parameters else {}
        Layer.__init__(self, num_hiddens, num_heads, **fixed | rate | options)

    return type(Layer.__name__, (Layer,), {"__init__": __init__})


def require_lengths_of_queries(Layer: type[nn.Module]) -> None:
    """Raise a ``MistakeError`` unless lengths of shape (b, n) give each query what its own length gives it alone."""

    def output_and_weights(layer: Any, queries: Tensor, keys: Tensor, valid_lens: Tensor) -> Tensor:
        output = layer(queries, keys, keys, valid_lens)
        return torch.cat([output, layer.attention_weights.transpose(1, 2).flatten(2)], dim=-1)  # (b, n, d + h · m)

    def both(queries: Tensor, keys: Tensor, valid_lens: Tensor) -> tuple[Tensor, Tensor]:
        layer = Layer(12, 3).eval()
        together = output_and_weights(layer, queries, keys, valid_lens)
        alone = [output_and_weights(layer, queries[:, [n]], keys, valid_lens[:, n]) for n in range(queries.shape[1])]
        return together, torch.cat(alone, dim=1)

    first = torch.randperm(5)[:4] + 1  # lengths of four queries; in the other example each is another number
    trial = torch.randn(2, 4, 12), torch.randn(2, 5, 12), torch.stack([first, first % 5 + 1])
    (outcome,) = run_safely(both, [trial])
    if outcome.error:
        seen = tr("With the shape (2, 4), your class raises {error}.", error=outcome.error_in_words)
    elif (place := first_difference(*outcome.value)) is None:
        return
    else:
        words = {"query": place[1], "example": place[0]}
        seen = tr("With the shape (2, 4), query {query} of example {example} is not masked by its own length.", **words)
    told = [
        tr("Right with `valid_lens` of the shape (b,), wrong with (b, n), one length for each query."),
        seen,
        tr(
            "For three heads, repeat each row three times in place along axis 0 (`dim=0`), from (2, 4) to (6, 4). A "
            "mask over four axes needs the lengths as (2, 1, 4, 1)."
        ),
    ]
    raise MistakeError(tr("Step {step}: {text}", step=STEP_OF["lengths"], text=sentences(told)))


def require_fewer_heads(Layer: type[nn.Module]) -> None:
    """Raise a ``MistakeError`` unless cutting a head out of the layer's weights gives the same output as masking it."""

    def outputs(X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        layer: Any = Layer(12, 3, bias=True).eval()
        masked = layer(X, X, X, head_mask=torch.tensor([1.0, 0, 1]))
        kept = torch.tensor([0, 1, 2, 3, 8, 9, 10, 11])
        for linear in (layer.W_q, layer.W_k, layer.W_v):
            linear.weight, linear.bias = nn.Parameter(linear.weight[kept]), nn.Parameter(linear.bias[kept])
        layer.W_o.weight, layer.num_heads = nn.Parameter(layer.W_o.weight[:, kept]), 2
        smaller = layer(X, X, X).detach()
        for parameter in layer.W_q.parameters():  # as if the scores were divided by √4 where they are by √(12 // 2)
            parameter.data *= math.sqrt(6 / 4)
        return masked.detach(), smaller, layer(X, X, X).detach()

    (outcome,) = run_safely(outputs, [(torch.randn(2, 5, 12),)])
    if outcome.error:
        told = tr(
            "Right with all heads. Section 7 keeps two of three heads: `num_heads` becomes 2, and `W_q`, `W_k` "
            "and `W_v` keep 8 of 12 rows. Then your class raises {error}. In each call, read `self.num_heads`, and "
            "take sizes from the projected tensors (-1 in `reshape`).",
            error=outcome.error_in_words,
        )
        raise MistakeError(tr("Step {step}: {text}", step=2, text=told))
    masked, smaller, rescaled = outcome.value
    if torch.allclose(masked, smaller, atol=1e-5):
        return
    if torch.allclose(masked, rescaled, atol=1e-5):
        told = tr(
            "Right with all heads, wrong when two of three heads are kept, as in section 7. Take p from "
            "`Q.shape[-1]`, not from `num_hiddens // num_heads`."
        )
        raise MistakeError(tr("Step {step}: {text}", step=4, text=told))
    told = tr(
        "Right with all heads, wrong when two of three heads are kept, as in section 7. In each call, read "
        "`self.num_heads`, and take sizes from the projected tensors."
    )
    raise MistakeError(tr("Step {step}: {text}", step=2, text=told))


def my_layer() -> type[nn.Module]:
    """Return the learner's class that ``layer_with_head_mask`` accepted last, or a complete one if there is none.

    Either class is made by Layer(num_hiddens, num_heads, dropout=0.0,
    bias=False) and called with (queries, keys, values, valid_lens=None, head_mask=None).
    """
    if accepted:
        return accepted[0]
    if source := kept_work.kept().get(KEPT_AS, {}).get("text"):
        with contextlib.suppress(Exception):
            Layer = class_from(source)
            if layer_with_head_mask.examine(Layer):
                return Layer
    return CompleteAttention


def complete_layer() -> Page:
    """Return the source code of a complete attention class for display, or a notice if solutions are switched off."""
    if kept_work.solutions_are_off():
        return Page(tr("A complete class is not shown here: worked answers are switched off (MHA_SOLUTIONS=off)."))
    source, title = source_of_answer(CompleteAttention), tr("A complete class")
    return Page(source, f"<details><summary>{title}</summary><pre>{html.escape(source)}</pre></details>")


def source_of(Layer: type) -> str:
    """Return the source code of a learner's class and of the notebook functions it calls; "" if it is not available."""
    with contextlib.suppress(OSError, TypeError, AttributeError, KeyError, ValueError, SyntaxError):
        forward = vars(Layer)["forward"]
        lines = linecache.getlines(forward.__code__.co_filename)
        first = forward.__code__.co_firstlineno
        (tree,) = [
            node
            for node in ast.parse("".join(lines)).body
            if isinstance(node, ast.ClassDef) and node.lineno <= first <= (node.end_lineno or 0)
        ]
        own = "".join(lines[tree.lineno - 1 : tree.end_lineno])
        methods = [part for part in vars(Layer).values() if isinstance(part, FunctionType)]
        return "\n\n".join([*map(inspect.getsource, helpers_of(methods)), own])
    return ""


def helpers_of(functions: list[FunctionType]) -> list[FunctionType]:
    """Return the functions of the same module that ``functions`` call, directly or not, each after those it needs."""
    found: dict[str, FunctionType] = {}
    for function in functions:
        for name in function.__code__.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, FunctionType) and called.__module__ == function.__module__ and name not in found:
                found |= {each.__name__: each for each in helpers_of([called])} | {name: called}
    return [*found.values()]


def class_from(source: str) -> type[nn.Module]:
    """Run Python source code, and return the class that its last statement defines."""
    namespace = {**AT_HAND, "__name__": "my_layer"}
    exec(compile(source, "<your layer>", "exec"), namespace)
    last = ast.parse(source).body[-1]
    assert isinstance(last, ast.ClassDef)
    return namespace[last.name]  # type: ignore[return-value]
