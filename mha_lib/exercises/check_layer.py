"""Is your own attention layer right, and if not, which bug does it look like? For anybody's layer, whatever its names.

    from mha_lib.exercises.check_layer import check_layer

    check_layer(
        make=lambda size, heads, dropout: MyAttention(size, heads, drop=dropout, bias=False),
        call=lambda layer, queries, keys, values, valid_lens: layer(queries, keys, values, lengths=valid_lens),
        matrices=lambda layer: (layer.wq.weight, layer.wk.weight, layer.wv.weight, layer.wo.weight),
    )

A layer of the museum's kind (``editable_layer.Layer``) needs no more than ``check_layer(MyLayer)``. In a test of your
own project, ``assert_layer`` takes the same arguments and raises what ``check_layer`` says.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mha_lib.attention import masked_softmax, merge_heads, split_heads
from mha_lib.exercises.exercise import exercise
from mha_lib.exercises.running import MistakeError, run
from mha_lib.exercises.verdict import Verdict
from mha_lib.models.training import seeded

Make = Callable[[int, int, float], nn.Module]
Call = Callable[..., Tensor | tuple[Tensor, Tensor]]
Matrices = Callable[[nn.Module], Sequence[Tensor]]

UNKNOWN = "The output is not the formula's, and none of the bugs that this check knows gives these numbers."
with_bugs = functools.partial(exercise, praise="", idea="", begin="")  # only what is said of mistakes is shown here
RATE, ENOUGH = 0.25, 0.06  # a dropout, and how far the share of dropped weights may be from it


def call_plainly(layer: nn.Module, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor) -> Tensor:
    return layer(queries, keys, values, valid_lens)


def stacked_matrices(layer: Any) -> Sequence[Tensor]:
    """W_q, W_k, W_v, W_o under these names, and w_v where a layer has additive scores."""
    matrices = [W.weight for W in (layer.W_q, layer.W_k, layer.W_v, layer.W_o)]
    return [*matrices, layer.w_v] if hasattr(layer, "w_v") else matrices


def check_layer(
    make: Make, call: Call = call_plainly, matrices: Matrices = stacked_matrices, *, empty_rows: bool = True
) -> Verdict:
    """Compare a layer with the formula, and say which bug it looks like, with the smallest example that shows it.

    Args:
        make: (num_hiddens, num_heads, dropout) → a new layer, batch first, without biases; such as the class itself.
        call: (layer, queries, keys, values, valid_lens) → the output, or a pair of it and the weights before dropout,
            (batch, num_heads, num_queries, num_keys). The sequences are (batch, number, num_hiddens), the lengths
            (batch,).
        matrices: layer → its W_q, W_k, W_v, W_o, each (num_hiddens, num_hiddens), as tensors that can be written to,
            with a head's rows (of W_o, columns) side by side. A fifth, w_v (num_heads, head size), says that scores
            are additive. They may be slices of one parameter.
        empty_rows: whether an example without a valid key must get zeros. torch's layer gives NaN there and d2l's an
            average of the padding: leave it out for a layer that promises nothing of the kind.

    Weights are looked at where ``call`` returns them, or the layer keeps them as ``attention_weights``.
    """
    with seeded(0):
        try:
            is_additive = len(matrices(called_once(make, call))) == 5
            checks = [additive_output] if is_additive else [FORMULA, WITHOUT_KEYS] if empty_rows else [FORMULA]
            for check in checks:
                verdict = check.verdict_on((lambda *trial: output_for(make, call, matrices, trial)[0],))
                if not verdict:
                    return with_example(verdict)
            (outcome,) = run(lambda: [wrong_weights(make, call, matrices) or dropped(make, call, matrices)], [()])
        except MistakeError as mistake:
            return Verdict("wrong", str(mistake))
        except Exception as error:
            return Verdict("not yet", f"The layer could not be made or called: {type(error).__name__}: {error}")
    if outcome.error:
        return Verdict("wrong", f"In training the layer raises {': '.join(outcome.error)}.")
    if outcome.value[0]:
        return Verdict("wrong", outcome.value[0])
    return Verdict("right", "The layer computes what the formula says, with heads, padding and dropout.")


def assert_layer(
    make: Make, call: Call = call_plainly, matrices: Matrices = stacked_matrices, *, empty_rows: bool = True
) -> None:
    """For tests: raise an AssertionError with what ``check_layer`` says, unless the layer is right."""
    verdict = check_layer(make, call, matrices, empty_rows=empty_rows)
    if not verdict:
        raise AssertionError(f"{verdict.text} {verdict.evidence}".strip())


def with_example(verdict: Verdict) -> Verdict:
    """What a check of the formula says, with its example in words: the sizes, and the first number that is wrong."""
    inputs, got, right = verdict.inputs, verdict.got, verdict.expected
    if inputs is None or not isinstance(got, Tensor) or not isinstance(right, Tensor) or got.shape != right.shape:
        return dataclasses.replace(verdict, next_step="")
    queries, keys, _, valid_lens, *_, num_heads = inputs
    place = torch.isclose(got, right, atol=1e-5).logical_not().nonzero()[0].tolist()
    wrong, due = got[tuple(place)].item(), right[tuple(place)].item()
    example = (
        f"Smallest example: queries {tuple(queries.shape)}, keys {tuple(keys.shape)}, valid_lens "
        f"{valid_lens.tolist()}, num_heads {num_heads}. The output at {place} is {wrong:.4g} instead of {due:.4g}; "
        "the verdict's inputs, got and expected hold all of it."
    )
    return dataclasses.replace(
        verdict, text=verdict.text if verdict.evidence else UNKNOWN, evidence=example, next_step=""
    )


def called_once(make: Make, call: Call) -> nn.Module:
    """A layer whose sizes are no longer open."""
    layer, X = make(4, 2, 0.0).eval(), torch.randn(1, 3, 4)
    call(layer, X, X, X, torch.tensor([3]))
    return layer


def layer_with(make: Make, call: Call, matrices: Matrices, given: Sequence[Tensor], num_heads: int, dropout: float):
    """A layer in training mode that has these matrices."""
    layer, X = make(given[0].shape[0], num_heads, dropout), torch.randn(1, 2, given[0].shape[0])
    call(layer, X, X, X, torch.tensor([2]))
    with torch.no_grad():
        for own, matrix in zip(matrices(layer), given, strict=True):
            own.copy_(matrix)
    return layer.train()


def output_for(make: Make, call: Call, matrices: Matrices, trial: tuple) -> tuple[Tensor, Tensor | None]:
    """What the layer gives for one call of ``attention_output``: output and, if it tells them, weights."""
    *sequences, valid_lens = trial[:4]
    layer = layer_with(make, call, matrices, trial[4:-1], trial[-1], 0.0).eval()
    return output_and_weights(layer, call(layer, *sequences, valid_lens))


def output_and_weights(layer: nn.Module, got: Any) -> tuple[Tensor, Tensor | None]:
    if isinstance(got, tuple):
        return got[0], got[1]
    return got, getattr(layer, "attention_weights", None)


def wrong_weights(make: Make, call: Call, matrices: Matrices) -> str | None:
    """What is wrong with the weights in evaluation, of a layer that tells them."""
    additive = len(matrices(called_once(make, call))) == 5
    trial = (additive_trial if additive else layer_trial)(2, 3, 4, 2, 3, [4, 2])
    _, weights = output_for(make, call, matrices, trial)
    if weights is None:
        return None
    if weights.shape != (2, 2, 3, 4):
        return f"The weights have shape {tuple(weights.shape)}; needed is (batch, heads, queries, keys) = (2, 2, 3, 4)."
    queries, keys, _, valid_lens, W_q, W_k, *_ = trial
    if not additive and not torch.allclose(
        weights, attention_weights(queries, keys, valid_lens, W_q, W_k, 2), atol=1e-5
    ):
        return "The output is right, but the weights that the layer tells are not those that it used."
    return None


def dropped(make: Make, call: Call, matrices: Matrices) -> str | None:
    """What is wrong with dropout: with one key for each query, a head's output is its value, scaled, or nothing."""
    size, num_heads = 8, 4
    own = called_once(make, call)
    given = [*torch.randn(2, size, size), torch.randn(size, size), torch.eye(size)]
    given += [torch.randn(num_heads, size // num_heads)] * (len(matrices(own)) - 4)
    layer = layer_with(make, call, matrices, given, num_heads, RATE)
    one_key = torch.randn(2, 200, 1, size)
    got = call(layer, torch.randn(200, 5, size), *one_key, torch.ones(200, dtype=torch.long))
    output, weights = output_and_weights(layer, got)
    if weights is not None and not torch.allclose(weights, torch.ones(()), atol=1e-5):
        return "In training, the weights that the layer tells are those after dropout: their rows do not sum to 1."
    share = output.unflatten(-1, (num_heads, -1)).eq(0).all(dim=-1).double().mean().item()
    if abs(share - RATE) > ENOUGH:
        return f"In training with dropout {RATE:g}, {share:.0%} of the weights are dropped. Does the rate arrive?"
    return None


def layer_trial(batch_size, num_queries, num_keys, num_heads, head_size, lengths) -> tuple:
    """Random arguments of ``attention_output``."""
    size = num_heads * head_size
    sequences = [torch.randn(batch_size, number, size) for number in (num_queries, num_keys, num_keys)]
    return (*sequences, torch.tensor(lengths), *torch.randn(4, size, size), num_heads)


def attention_weights(queries, keys, valid_lens, W_q, W_k, num_heads):
    """Weights by the formula, (batch, num_heads, num_queries, num_keys)."""
    Q, K = split_heads(queries @ W_q.T, num_heads), split_heads(keys @ W_k.T, num_heads)
    return masked_softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), valid_lens)


def attention_output(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    """Multi-head attention: (batch, num_queries, num_hiddens). Source: Vaswani et al. 2017, section 3.2.2."""
    Q, K, V = (split_heads(X @ W.T, num_heads) for X, W in ((queries, W_q), (keys, W_k), (values, W_v)))
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])  # (b, h, q, d) @ (b, h, d, k) -> (b, h, q, k)
    weights = masked_softmax(scores, valid_lens)
    return merge_heads(weights @ V) @ W_o.T


FORMULA = with_bugs(
    trials=lambda: {
        "with one head": [layer_trial(1, 1, 2, 1, 2, [2]), layer_trial(2, 2, 3, 1, 3, [3, 3])],
        "with several heads": [layer_trial(1, 2, 3, 2, 2, [3]), layer_trial(2, 3, 4, 3, 2, [4, 4])],
        "with padding": [
            layer_trial(2, 1, 2, 1, 1, [2, 1]),
            layer_trial(2, 2, 3, 2, 2, [1, 3]),
            layer_trial(3, 4, 5, 3, 2, [5, 2, 3]),
        ],
    },
    mistakes="""
        split_heads(X @ W.T, num_heads) → (X @ W.T).reshape(len(X), num_heads, X.shape[1], -1) ;
            merge_heads(weights @ V) → (weights @ V).reshape(queries.shape) ∨ split_heads(X @ W.T, num_heads) →
            (X @ W.T).reshape(len(X), num_heads, X.shape[1], -1) ⇒ This is a reshape without a transpose: a head gets
            pieces of the sequence instead of its own features of every token.
        merge_heads(weights @ V) → (weights @ V).reshape(queries.shape) ⇒ The heads are merged by a reshape without a
            transpose: positions and heads are mixed in the output.
        merge_heads(weights @ V) → (weights @ V).permute(0, 2, 3, 1).flatten(2) ⇒ The heads are merged with head and
            feature in the wrong order: features of all heads are interleaved.
        split_heads(X @ W.T, num_heads) → (X @ W.T).unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2) ⇒ A head takes
            every num_heads-th feature; its features follow one another.
        math.sqrt(Q.shape[-1]) → math.sqrt(len(W_q)) ⇒ The scores are divided by √num_hiddens instead of √(head size).
        / math.sqrt(Q.shape[-1]) → ∅ ⇒ The scores are not divided by √(head size).
        math.sqrt(Q.shape[-1]) → Q.shape[-1] ⇒ The scores are divided by the head size instead of its root.
        masked_softmax(scores, valid_lens) → torch.softmax(scores * (torch.arange(scores.shape[-1]) < valid_lens[:,
            None, None, None]), dim=-1) ⇒ Masked scores become 0 before the softmax, so padding keeps some weight. −∞
            is needed.
        masked_softmax(scores, valid_lens) → torch.softmax(scores, dim=-1) * (torch.arange(scores.shape[-1]) <
            valid_lens[:, None, None, None]) ⇒ The mask comes after the softmax: rows do not sum to 1 over the valid
            keys.
        masked_softmax(scores, valid_lens) → torch.softmax(scores, dim=-1) ⇒ Padding is not masked: the lengths have no
            effect.
        masked_softmax(scores, valid_lens) → masked_softmax(scores, attn_mask=torch.arange(scores.shape[-1]) >=
            valid_lens[:, None, None, None]) ⇒ The mask is upside down: padding is attended to, and nothing else.
        masked_softmax(scores, valid_lens) → masked_softmax(scores, valid_lens - 1) ⇒ The mask is one key too short.
        masked_softmax(scores, valid_lens) → masked_softmax(scores, (valid_lens +
            1).clamp(max=keys.shape[1])) ⇒ The mask is one key too long.
        masked_softmax(scores, valid_lens) → masked_softmax(scores.flatten(0, 1), valid_lens.repeat(num_heads))
            .unflatten(0, (-1, num_heads)) ⇒ The lengths are repeated in the wrong order for the heads (`repeat` for
            `repeat_interleave`): examples get each other's masks.
        masked_softmax(scores, valid_lens) → masked_softmax(scores, valid_lens.flip(0)) ⇒ The examples' lengths are in
            reverse order.
        masked_softmax(scores, valid_lens) → torch.softmax(scores.masked_fill(torch.arange(scores.shape[-1]) >=
            valid_lens[:, None, None, None], -1e9), dim=2) ∨ masked_softmax(scores, valid_lens) → torch.softmax(
            scores.masked_fill(torch.arange(scores.shape[-1]) >= valid_lens[:, None, None, None], -math.inf), dim=2)
            ⇒ The softmax runs over the queries: columns of the weights sum to 1 instead of rows.
        masked_softmax(scores, valid_lens) → masked_softmax(scores, valid_lens, causal=True) ⇒ The layer is causal:
            queries do not see later keys.
        @ W_o.T → ∅ ⇒ W_o has no part in the output.
        @ W_o.T → @ W_o ⇒ W_o is transposed.
        weights @ V → weights @ K ⇒ The keys are averaged instead of the values.
        (values, W_v) → (values, W_k) ⇒ The values go through W_k.
        (keys, W_k) → (keys, W_q) ⇒ The keys go through W_q.
        (queries, W_q), (keys, W_k) → (queries, W_k), (keys, W_q) ⇒ W_q and W_k have changed places.
    """,
)(attention_output)

WITHOUT_KEYS = with_bugs(
    trials=lambda: [layer_trial(1, 1, 1, 1, 1, [0]), layer_trial(3, 2, 3, 2, 2, [3, 0, 1])],
    mistakes="""
        masked_softmax(scores, valid_lens) → torch.softmax(scores.masked_fill(torch.arange(scores.shape[-1]) >=
            valid_lens[:, None, None, None], -math.inf), dim=-1) ⇒ An example without a valid key gets NaN, the softmax
            of nothing but −∞. It spreads to every gradient.
        masked_softmax(scores, valid_lens) → torch.softmax(scores.masked_fill(torch.arange(scores.shape[-1]) >=
            valid_lens[:, None, None, None], -1e9), dim=-1) ⇒ An example without a valid key gets the average of its
            padding: all scores are equally low, so all keys weigh the same.
    """,
)(attention_output)


def additive_trial(batch_size, num_queries, num_keys, num_heads, head_size, lengths) -> tuple:
    """The same with w_v, for additive scores."""
    *arguments, heads = layer_trial(batch_size, num_queries, num_keys, num_heads, head_size, lengths)
    return (*arguments, torch.randn(num_heads, head_size), heads)


@with_bugs(
    trials=lambda: [additive_trial(1, 2, 3, 1, 2, [3]), additive_trial(3, 2, 4, 2, 3, [2, 4, 3])],
    mistakes="""
        torch.tanh(Q.unsqueeze(-2) + K.unsqueeze(-3)) → Q.unsqueeze(-2) + K.unsqueeze(-3) ⇒ There is no tanh in the
            scores: the query's part is the same for all keys and cancels, so that every query gets the same weights.
        torch.tanh(Q.unsqueeze(-2) + K.unsqueeze(-3)) → torch.relu(Q.unsqueeze(-2) + K.unsqueeze(-3)) ⇒ A relu stands
            where tanh is due.
    """,
)
def additive_output(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, w_v, num_heads):
    """Multi-head attention with additive scores. Source: Bahdanau, Cho, Bengio 2015, appendix A.1.2."""
    Q, K, V = (split_heads(X @ W.T, num_heads) for X, W in ((queries, W_q), (keys, W_k), (values, W_v)))
    features = torch.tanh(Q.unsqueeze(-2) + K.unsqueeze(-3))  # (b, h, q, k, d)
    weights = masked_softmax(torch.einsum("bhqkd,hd->bhqk", features, w_v), valid_lens)
    return merge_heads(weights @ V) @ W_o.T
