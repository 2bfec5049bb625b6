"""Is your own attention layer right, and if not, which bug does it look like? For anybody's layer, whatever its names::

    from mha_lib.exercises import check_layer

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
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from mha_lib.attention import masked_softmax, merge_heads, split_heads
from mha_lib.checking.comparing import Result, first_difference
from mha_lib.checking.exercise import exercise
from mha_lib.checking.running import MistakeError, NotYetError, Outcome, run_safely
from mha_lib.checking.verdict import Verdict
from mha_lib.checking.wording import as_sentence, call_in_words, kind_of
from mha_lib.models.training import seeded
from mha_lib.museum import layer_tests
from mha_lib.museum.layer_tests import Implementation, check_shape, matrices_of

Make = Callable[[int, int, float], nn.Module]
Call = Callable[..., Tensor | tuple[Tensor, Tensor | None]]
Matrices = Callable[[nn.Module], Sequence[Tensor]]

UNKNOWN = (
    "The output is not the formula's, and none of the bugs that this check knows gives these numbers. "
    "(The formula has no biases: does `make` leave them out?)"
)
NAMES = ("W_q", "W_k", "W_v", "W_o", "w_v")
STAGES = (  # of calls: batch_size, num_queries, num_keys, num_heads, head_size, lengths, size of the numbers
    [(1, 1, 2, 1, 2, [2], 1), (2, 2, 3, 1, 3, [3, 3], 1)],  # one head
    [(1, 2, 3, 2, 2, [3], 1), (2, 3, 4, 3, 2, [4, 4], 1)],  # several
    [(2, 1, 2, 1, 1, [2, 1], 1), (2, 2, 3, 2, 2, [1, 3], 1), (3, 4, 5, 3, 2, [5, 2, 3], 1)],  # padding
    [(1, 1, 1, 1, 1, [0], 1), (3, 2, 3, 2, 2, [3, 0, 1], 1)],  # an example without a valid key
    [(1, 4, 300, 2, 3, [290], 1)],  # many keys
    [(3, 4, 2, 2, 4, [2, 2, 2], 10)],  # scores whose powers are too large for float32
)


def check_layer(
    make: Make, call: Call = nn.Module.__call__, matrices: Matrices = matrices_of, *, empty_rows: bool = True
) -> Verdict:
    """Compare a layer with the formula, and say which bug it looks like, with the smallest example that shows it.

    Args:
        make: (num_hiddens, num_heads, dropout) → a new layer, batch first, without biases; such as the class itself.
        call: (layer, queries, keys, values, valid_lens) → the output, or a pair of it and the weights before dropout,
            (batch, num_heads, num_queries, num_keys). The sequences are (batch, number, num_hiddens), the lengths
            (batch,).
        matrices: layer → its W_q, W_k, W_v, W_o as they stand, each (num_hiddens, num_hiddens), with a head's rows (of
            W_o, columns) side by side. A fifth, w_v (num_heads, head size), says that scores are additive. They may be
            slices of one parameter, or put together from the heads'.
        empty_rows: whether an example without a valid key must get zeros. torch's layer gives NaN there and d2l's an
            average of the padding: leave it out for a layer that promises nothing of the kind.

    Every parameter of two axes or more is drawn anew. Weights are looked at where ``call`` returns them, or the layer
    keeps them as ``attention_weights``. All that is yours runs in a process of its own, and is cut short if it does not
    end, where the system can. Where all outputs are right, tests of the museum's panel follow (``layer_tests``).
    """
    theirs = functools.partial(AnybodysLayer, make, call, matrices, empty_rows)
    looks = [layer_tests.dropped_otherwise, layer_tests.random_reference, layer_tests.gradient]
    with seeded(0):
        try:
            if (wrong := wrong_output(theirs)) is not None:
                return wrong
            finding = next(filter(None, layer_tests.in_one_process(theirs, looks)), None)
        except NotYetError as reason:
            return Verdict("not yet", str(reason))
        except MistakeError as mistake:
            return Verdict("wrong", as_sentence(str(mistake).removesuffix(".")))
    if finding:
        return Verdict("wrong", as_sentence(finding))
    return Verdict("right", "The layer computes what the formula says, with heads, padding and dropout.")


def assert_layer(
    make: Make, call: Call = nn.Module.__call__, matrices: Matrices = matrices_of, *, empty_rows: bool = True
) -> None:
    """For tests: raise an AssertionError with what ``check_layer`` says, unless the layer is right."""
    verdict = check_layer(make, call, matrices, empty_rows=empty_rows)
    if not verdict:
        raise AssertionError(f"{verdict.text} {verdict.evidence}".strip())


class AnybodysLayer:
    """A layer as the panel needs it, whatever its names: the parts of ``editable_layer.Layer`` that its tests use.

    Where ``empty_rows`` is False, examples without a valid key are kept from the layer, and get zeros.
    """

    def __init__(self, make: Make, call: Call, matrices: Matrices, empty_rows: bool, num_hiddens, num_heads, dropout):
        self.own, self.num_heads = make(num_hiddens, num_heads, dropout), num_heads
        if not isinstance(self.own, nn.Module):
            raise MistakeError(f"`make` must give an nn.Module, this is {kind_of(self.own)}")
        self.call, self.read, self.smallest = call, matrices, 0 if empty_rows else 1
        X = torch.randn(1, 2, num_hiddens)
        call(self.own, X, X, X, torch.tensor([2]))  # sizes may be open until then
        if len(self.matrices()) not in (4, 5):
            raise MistakeError(f"`matrices` must give 4 tensors, or 5 with w_v; this gives {len(self.matrices())}")
        square, for_w_v = (num_hiddens, num_hiddens), (num_heads, num_hiddens // num_heads)
        for name, W, shape in zip(NAMES, self.matrices(), [*[square] * 4, for_w_v], strict=False):
            check_shape(f"{name} from `matrices`", W, shape)

    def __call__(self, *inputs: Tensor) -> Tensor:
        called = inputs[-1] >= self.smallest
        if not called.any():
            return torch.zeros_like(inputs[0])
        given = [X[called] for X in inputs]
        got: Any = self.call(self.own, *given)
        if not all(torch.equal(X, after) for X, after in zip([X[called] for X in inputs], given, strict=True)):
            raise MistakeError("the layer changes what it is given in place, which spoils the caller's tensor")
        is_pair = isinstance(got, tuple) and len(got) == 2
        output, weights = got if is_pair else (got, getattr(self.own, "attention_weights", None))
        if weights is None:  # weights that the layer does not report are not judged
            weights = layer_tests.by_formula(self, *given)[1]
        check_shape("the output", output, tuple(given[0].shape))
        shape = len(output), self.num_heads, output.shape[1], given[1].shape[1]
        check_shape("the weights (batch, heads, queries, keys)", weights, shape)
        self.attention_weights = among_zeros(weights, called)
        return among_zeros(output, called)

    def train(self, mode: bool) -> "AnybodysLayer":
        self.own.train(mode)
        return self

    def matrices(self) -> Sequence[Tensor]:
        return list(self.read(self.own))

    def parameters(self) -> list[Tensor]:
        """Those that are drawn anew; biases and factors stay as they are made, which is often 0 or 1."""
        return [parameter for parameter in self.own.parameters() if parameter.dim() > 1]

    @torch.no_grad()
    def named_parameters(self) -> list[tuple[str, Any]]:
        """The gradients of the matrices: what ``matrices`` reads when each parameter holds its own gradient."""
        for parameter in self.own.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        return [(name, SimpleNamespace(grad=W)) for name, W in zip(NAMES, self.matrices(), strict=False)]


def among_zeros(X: Any, called: Tensor) -> Tensor:
    """The examples that the layer was called with at their places in the batch, zeros for the others."""
    return X.new_zeros(len(called), *X.shape[1:]).masked_scatter(called.view(-1, *[1] * (X.dim() - 1)), X)


def wrong_output(theirs: Implementation) -> Verdict | None:
    """The first stage with an output that is not the formula's: the bug that it looks like, with an example."""

    def example(batch_size, num_queries, num_keys, num_heads, head_size, lengths, size):
        """The arguments with which ``attention_output`` must give a layer's output, and this output."""
        num_hiddens = num_heads * head_size
        layer = layer_tests.with_random_parameters(theirs(num_hiddens, num_heads, 0.0).train(False), std=0.5)
        queries, keys, values = (torch.randn(batch_size, n, num_hiddens) for n in (num_queries, num_keys, num_keys))
        if size > 1:
            keys[:, 1] = -keys[:, 0]  # one score is far above the other, so that rounding does not count
        inputs = size * queries, size * keys, values, torch.tensor(lengths)
        return (*inputs, *[*layer.matrices(), None][:5], num_heads), layer_tests.output_of(layer, *inputs)

    results: list[Result] = []
    for calls in STAGES:
        for outcome, numbers in zip(run_safely(example, calls), calls, strict=True):
            if outcome.error:
                error = ": ".join(filter(None, outcome.error))
                if not results:
                    raise NotYetError(f"The layer could not be made or called: {error}")
                raise MistakeError(f"{call_in_words(example, numbers)}, the layer raises {error}")
            trial, output = outcome.value
            results.append(Result(trial, Outcome(output), attention_output(*trial)))
        results.sort(key=lambda result: result.problem() is None)  # wrong ones first rule out most mistakes at once
        if results[0].problem():
            return with_example(KNOWN.what_is_wrong(attention_output, results, ""))
    return None


def with_example(verdict: Verdict) -> Verdict:
    """What is said of a wrong output, with its example in words: the sizes, and the first number that is wrong."""
    assert verdict.inputs is not None
    (queries, keys, _, valid_lens, *_, num_heads), got, right = verdict.inputs, verdict.got, verdict.expected
    place = tuple(first_difference(got, right) or ())
    example = (
        f"Smallest example: queries {tuple(queries.shape)}, keys {tuple(keys.shape)}, valid_lens "
        f"{valid_lens.tolist()}, num_heads {num_heads}. The output at {list(place)} is {got[place].item():.4g} instead "
        f"of {right[place].item():.4g}; the verdict's inputs, got and expected hold all of it."
    )
    return dataclasses.replace(verdict, text=verdict.text if verdict.evidence else UNKNOWN, evidence=example)


def attention_output(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, w_v, num_heads):
    """Multi-head attention: (batch, num_queries, num_hiddens); with w_v, scores are additive.

    Source: Vaswani et al. 2017, section 3.2.2; Bahdanau, Cho, Bengio 2015, appendix A.1.2.
    """
    Q, K, V = (split_heads(X @ W.T, num_heads) for X, W in ((queries, W_q), (keys, W_k), (values, W_v)))
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])  # (b, h, q, d) @ (b, h, d, k) -> (b, h, q, k)
    if w_v is not None:
        scores = torch.einsum("bhqkd,hd->bhqk", torch.tanh(Q.unsqueeze(-2) + K.unsqueeze(-3)), w_v)
    valid = torch.arange(keys.shape[1]) < valid_lens[:, None, None, None]
    weights = masked_softmax(scores, attn_mask=valid)
    return merge_heads(weights @ V) @ W_o.T


def running_softmax(scores, valid, block, above, below):
    """Weights of a softmax that reads blocks of keys, and subtracts the largest score so far from the scores of each.

    ``above`` and ``below`` say whether the sums above and below the fraction bar are corrected when a larger score
    comes later.
    """
    scores = scores.masked_fill(~valid, -math.inf)
    ends = (torch.arange(scores.shape[-1]) // block * block + block - 1).clamp(max=scores.shape[-1] - 1)
    so_far = (scores - scores.cummax(dim=-1).values[..., ends]).exp()
    corrected = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    bar = (corrected if below else so_far).sum(dim=-1, keepdim=True)
    return ((corrected if above else so_far) / bar).nan_to_num(0)


# What mistakes replace in the formula, or put there.
SPLIT, MERGED = "split_heads(X @ W.T, num_heads)", "merge_heads(weights @ V)"
WEIGHTS, TANH = "masked_softmax(scores, attn_mask=valid)", "torch.tanh(Q.unsqueeze(-2) + K.unsqueeze(-3))"
LOW, LOWEST = "scores.masked_fill(~valid, -1e9)", "scores.masked_fill(~valid, -math.inf)"
OF_QUERIES = "torch.arange(keys.shape[1]) -> torch.arange(queries.shape[1])[:, None]"
BLOCKWISE = " || ".join(
    f"running_softmax(scores, valid, {block}, {corrected})"
    for block in (1, 16, 64)
    for corrected in ("False, False", "False, True", "True, False")
)
MISTAKES = f"""
    {SPLIT} -> (X @ W.T).reshape(len(X), num_heads, X.shape[1], -1) ; {MERGED} -> (weights @ V).reshape(queries.shape)
        || {SPLIT} -> (X @ W.T).reshape(len(X), num_heads, X.shape[1], -1) => This is a reshape without a transpose: a
        head gets pieces of the sequence instead of its own features of every token.
    {MERGED} -> (weights @ V).reshape(queries.shape) => The heads are merged by a reshape without a transpose: positions
        and heads are mixed in the output.
    {MERGED} -> (weights @ V).permute(0, 2, 3, 1).flatten(2) => The heads are merged with head and feature in the wrong
        order: features of all heads are interleaved.
    {MERGED} -> merge_heads((weights @ V).flatten(0, 1).unflatten(0, (num_heads, -1)).transpose(0, 1)) => Examples and
        heads are exchanged: what lies in memory as (batch, heads) is read as (heads, batch).
    {SPLIT} -> (X @ W.T).unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2) => A head takes every num_heads-th feature;
        its features follow one another.
    math.sqrt(Q.shape[-1]) -> math.sqrt(len(W_q)) => The scores are divided by √num_hiddens instead of √(head size).
    / math.sqrt(Q.shape[-1]) -> _ => The scores are not divided by √(head size).
    math.sqrt(Q.shape[-1]) -> Q.shape[-1] => The scores are divided by the head size instead of its root.
    {TANH} -> Q.unsqueeze(-2) + K.unsqueeze(-3) => There is no tanh in the scores: the query's part is the same for all
        keys and cancels, so that every query gets the same weights.
    {TANH} -> torch.relu(Q.unsqueeze(-2) + K.unsqueeze(-3)) => A relu stands where tanh is due.
    {WEIGHTS} -> torch.softmax(scores * valid, dim=-1) => Masked scores become 0 before the softmax, so padding keeps
        some weight. −∞ is needed.
    {WEIGHTS} -> torch.softmax(scores, dim=-1) * valid => The mask comes after the softmax: rows do not sum to 1 over
        the valid keys.
    {WEIGHTS} -> torch.softmax(scores, dim=-1) => Padding is not masked: the lengths have no effect.
    attn_mask=valid -> attn_mask=~valid => The mask is upside down: padding is attended to, and nothing else.
    < valid_lens -> < -1 + valid_lens => The mask is one key too short.
    < valid_lens -> <= valid_lens => The mask is one key too long.
    valid_lens[:, None, None, None] -> valid_lens.repeat(num_heads).view(-1, num_heads)[..., None, None] => The lengths
        are repeated in the wrong order for the heads (`repeat` for `repeat_interleave`): examples get each other's
        masks.
    valid_lens[:, None, None, None] -> valid_lens.flip(0)[:, None, None, None] => The examples' lengths are in reverse
        order.
    {WEIGHTS} -> torch.softmax({LOW}, dim=2) || torch.softmax({LOWEST}, dim=2) => The softmax runs over the queries:
        columns of the weights sum to 1 instead of rows.
    {WEIGHTS} -> torch.softmax({LOW}, dim=1) || torch.softmax({LOW}, dim=1) * valid || torch.softmax({LOWEST}, dim=1) =>
        The softmax runs over the heads: of a query and a key, the weights of all heads sum to 1.
    {OF_QUERIES} ; {WEIGHTS} -> torch.softmax({LOW}, dim=-1) || {OF_QUERIES} ; {WEIGHTS} -> torch.softmax({LOWEST},
        dim=-1) || {OF_QUERIES} ; {WEIGHTS} -> torch.softmax(scores, dim=-1) * valid => The mask lies on the queries
        instead of the keys: padding is attended to.
    attn_mask=valid -> attn_mask=valid, causal=True => The layer is causal: queries do not see later keys.
    @ W_o.T -> _ => W_o has no part in the output.
    @ W_o.T -> @ W_o => W_o is transposed.
    weights @ V -> weights @ K => The keys are averaged instead of the values.
    (values, W_v) -> (values, W_k) => The values go through W_k.
    (keys, W_k) -> (keys, W_q) => The keys go through W_q.
    (queries, W_q), (keys, W_k) -> (queries, W_k), (keys, W_q) => W_q and W_k have changed places.
    {WEIGHTS} -> torch.softmax({LOWEST}, dim=-1) => An example without a valid key gets NaN, the softmax of nothing but
        −∞. It spreads to every gradient.
    {WEIGHTS} -> torch.softmax({LOW}, dim=-1) => An example without a valid key gets the average of its padding: all
        scores are equally low, so all keys weigh the same.
    {WEIGHTS} -> scores.exp() * valid / (scores.exp() * valid).sum(dim=-1, keepdim=True).clamp(min=1e-30) => Powers of
        large scores overflow: the largest of a row must be taken from all of them first.
    {WEIGHTS} -> {BLOCKWISE} => The softmax reads keys in blocks, and does not correct what it has added up when a
        larger score comes.
    """
KNOWN = exercise(trials=tuple, praise="", idea="", begin="", mistakes=MISTAKES)(attention_output)
