"""The layer of notebook 00 on a page of its own: the calls of ``check_layer``, and what each of its mistakes gives."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.comparing import Outcome, outcome_of
from mha_course.checking.edits import source_of_answer
from mha_course.exercises.whole_layer import CompleteAttention, layer_by_formula, transpose_output, transpose_qkv
from mha_course.models.training import seeded
from mha_course.museum.handed_layer import HandedLayer
from mha_course.museum.layer_calls import LayerCalls
from mha_course.museum.layer_trials import formula
from mha_course.museum.layer_words import stages_in_words
from mha_course.museum.wrong_attention import attention, part_of, programs

NAME = "MultiHeadAttention"
MANY, FEW = 100, 2  # keys and queries that a call with more keys keeps: a page computes slowly
TASK = """
Write multi-head attention as a PyTorch module.

1. In `__init__`, keep `num_heads` as `self.num_heads`. Make four layers `W_q`, `W_k`, `W_v`, `W_o`, each an
`nn.Linear(num_hiddens, num_hiddens, bias=bias)`.

2. In `forward`, project queries, keys and values, and rearrange each with `transpose_qkv`.

3. If `valid_lens` is not None, repeat the lengths for the heads.

4. Compute the scores, divide them by √p, where p is `Q.shape[-1]`, and turn them into weights with `masked_softmax`.

5. Keep the weights as `self.attention_weights`, with the shape (batch, heads, queries, keys).
`weights.unflatten(0, (-1, self.num_heads))` divides the first axis again.

6. Average the values, rearrange with `transpose_output`, and return the result of `W_o`, one tensor.
"""
START = f"""class {NAME}(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        super().__init__()
        ...  # your code

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        ...  # your code
"""


def layer_data(encoded: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the task, calls, right results and mistakes of ``layer_by_formula`` in a dict for an HTML page.

    ``encoded`` turns a tensor or tuple into what JSON can hold.
    """
    with seeded(0):
        calls = LayerCalls(handed(bias=False))
        trial, *_ = calls.example(3, 5, 5, 4, 2, [5, 3, 4], 1, 0, False)
        biased, *_ = LayerCalls(handed(bias=True)).example(2, 4, 4, 4, 2, None, 1, 0, False)
    drawn = {label: [shortened(result.trial) for result in results] for label, results in calls.results().items()}
    stages = {label: given[-1:] if ", " in label else given for label, given in drawn.items()}  # shared: the largest
    trials = [trial for of_stage in stages.values() for trial in of_stage]
    weights = functools.partial(formula, attention=functools.partial(attention, only_weights=True))(*trial)
    return {
        "name": NAME,
        "doc": inspect.cleandoc(TASK),
        "helpers": "\n\n".join(source_of_answer(function) for function in (transpose_qkv, transpose_output)),
        "praise": "The layer computes attention to keys and values.",
        "checked": f"The check covered {stages_in_words(stages)}.",
        "hints": layer_by_formula.hints,
        "solution": source_of_answer(CompleteAttention).replace(CompleteAttention.__name__, NAME),
        "start": START,
        "unchecked": "Gradients, dropout and lengths of the shape (b, n)",
        "tags": False,
        "stages": [[label, [call(t, formula(*t), encoded) for t in given]] for label, given in stages.items()],
        "weights": call(trial, weights, encoded),
        "biased": call(biased, formula(*biased), encoded),
        "mistakes": list(rows(trials)),
    }


def handed(bias: bool) -> HandedLayer:
    """Wrap the library's ``CompleteAttention``, with or without biases, as ``check_layer`` wraps a learner's layer."""
    return HandedLayer(lambda size, heads, rate: CompleteAttention(size, heads, rate, bias), None, None, False, False)


def shortened(trial: tuple) -> tuple:
    """Return the call ``trial``, cut to its first queries and keys if it has more keys than are quick to compare."""
    queries, keys, values, allowed, *others = trial
    if keys.shape[1] <= MANY:
        return trial
    return queries[:, :FEW], keys[:, :MANY], values[:, :MANY], allowed[..., :MANY], *others


def call(trial: tuple, right: Tensor, encoded: Callable[[Any], Any]) -> dict[str, Any]:
    """Return one call of a layer in a dict for JSON: its inputs, valid lengths, weight matrices and right output."""
    queries, keys, values, allowed, *W, num_heads, given = trial
    biases = [given[f"b_{name}"] for name in "qkvo"]
    data = {"trial": [queries, keys, values, allowed[:, 0, 0].sum(-1)], "W": W}
    data |= {"b": biases} if isinstance(biases[0], Tensor) else {}
    found = {name: [encoded(X) for X in values] for name, values in data.items()}
    return {**found, "heads": num_heads, "right": encoded(right)}


def rows(trials: list[tuple]) -> list[dict[str, Any]]:
    """Run a layer with each known mistake on the arguments in ``trials``; return each mistake's text and its outputs.

    An output is told by one number or an error. Of mistakes that give the same in all calls the first is kept.
    """
    found: dict[str, dict[str, Any]] = {}
    for text, program in programs(formula):
        of = [told(outcome_of(program, trial)) for trial in trials]
        found.setdefault(str(of), {"text": text, "part": part_of(text), "of": of})
    right = str([told(outcome_of(formula, trial)) for trial in trials])
    return [row for said, row in found.items() if said != right]


def told(outcome: Outcome) -> float | list[str]:
    """Return a call's result in short, as pages/layer.py does: its error, or a weighted sum of its numbers."""
    if outcome.error:
        return list(outcome.error)
    numbers = outcome.value.detach().double().flatten().nan_to_num(3.0).clamp(-1e4, 1e4)
    weights = 50 + torch.arange(len(numbers)) * 37 % 101
    return float(f"{(weights * numbers).sum().item():.7g}")
