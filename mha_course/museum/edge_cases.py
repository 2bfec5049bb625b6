"""Edge cases, side by side: our layer, d2l's, torch's and torch's kernel, each cell found by running it.

All get the same weights: identity matrices. Their values are one-hot, so an output is the attention weights
themselves, and one can see where the weight went.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib.attention import MultiHeadAttention, converters, masked_softmax, merge_heads, split_heads, valid_keys

__all__ = ["as_text", "behaviour_table"]

NUM_HEADS, NUM_KEYS = 2, 4
NUM_HIDDENS = NUM_HEADS * NUM_KEYS

Call = Callable[[nn.Module, Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True)
class Candidate:
    """Hold one attention implementation of a comparison: how it is built, called, and copied from this library's layer.

    Attributes:
        copy_of: makes it from ours.
        call: runs it on queries, keys, values and valid_lens; gives its output and, where it has them, its weights.
        masked_softmax: its function of that name, if it has one.
        build: makes it from num_hiddens and num_heads.
    """

    copy_of: Callable[[MultiHeadAttention], nn.Module]
    call: Call
    masked_softmax: Callable[[Tensor, Tensor], Tensor] | None = None
    build: Callable[[int, int], nn.Module] | None = None


def behaviour_table() -> dict[str, dict[str, str]]:
    """Run every attention implementation on every edge case; return, by case and implementation, what it does.

    "–" means that the candidate has nothing to which the case applies. There is no column for d2l where it is not
    installed.
    """
    table: dict[str, dict[str, str]] = {}
    for case, verdict in CASES.items():
        table[case] = {}
        for name, candidate in candidates().items():
            try:
                table[case][name] = verdict(candidate)
            except Exception as error:  # whatever a candidate raises is the finding
                table[case][name] = f"error: {type(error).__name__}"
    return table


def as_text(table: Mapping[str, Mapping[str, str]]) -> str:
    """Format a table, given as a dict of rows that are dicts of texts, in aligned columns."""
    lines = [["", *next(iter(table.values()))], *([case, *verdicts.values()] for case, verdicts in table.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def candidates() -> dict[str, Candidate]:
    """Return the attention implementations to compare, by name: this library's, torch's, and d2l's if installed."""
    columns = {"ours": Candidate(same_layer, call_ours, masked_softmax, MultiHeadAttention)}
    try:
        d2l = converters.load_d2l()
        columns["d2l"] = Candidate(converters.to_d2l, converters.call_d2l, d2l.masked_softmax, d2l_layer)
    except ImportError:
        pass
    for name, call in {"torch.nn": converters.call_torch, "torch.nn, no weights": call_torch_output}.items():
        columns[name] = Candidate(converters.to_torch, call, None, nn.MultiheadAttention)
    columns["torch's kernel"] = Candidate(same_layer, call_kernel)
    return columns


def d2l_layer(num_hiddens: int, num_heads: int) -> nn.Module:
    return converters.load_d2l().MultiHeadAttention(num_hiddens, num_heads, dropout=0.0)


def same_layer(layer: MultiHeadAttention) -> MultiHeadAttention:
    return layer


def call_ours(layer, queries, keys, values, valid_lens):
    return layer(queries, keys, values, valid_lens), layer.attention_weights


def call_torch_output(peer, queries, keys, values, valid_lens):
    masks = {} if valid_lens is None else converters.torch_masks(valid_lens, keys.shape[1], peer.num_heads)
    return peer(queries, keys, values, need_weights=False, **masks)


def call_kernel(layer, queries, keys, values, valid_lens):
    """Compute a layer's output by its own projections and ``F.scaled_dot_product_attention``; return (output, None)."""
    Q, K, V = (
        split_heads(W(X), layer.num_heads) for W, X in ((layer.W_q, queries), (layer.W_k, keys), (layer.W_v, values))
    )
    mask = None if valid_lens is None else valid_keys(valid_lens, keys.shape[1], axes=4)
    return layer.W_o(merge_heads(F.scaled_dot_product_attention(Q, K, V, attn_mask=mask))), None


def identity_layer(dtype: torch.dtype = torch.float32, dropout: float = 0.0) -> MultiHeadAttention:
    """Return a ``MultiHeadAttention`` whose weight matrices are identity matrices and whose biases are 0."""
    size = NUM_HIDDENS
    layer = MultiHeadAttention(size, NUM_HEADS, dropout, bias=True, query_size=size, key_size=size, value_size=size)
    for name, parameter in layer.named_parameters():
        value = torch.eye(size) if name.endswith("weight") else torch.zeros(size)
        parameter.data.copy_(value)
    return layer.to(dtype)


def sequences(batch_size: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Return random queries and keys, and one-hot values, for which a head's output equals its attention weights."""
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, batch_size, NUM_KEYS, NUM_HIDDENS, generator=generator).to(dtype)
    values = torch.eye(NUM_KEYS, dtype=dtype).repeat(batch_size, 1, NUM_HEADS)
    return queries, keys, values


def weights_in(output: Tensor) -> Tensor:
    """Reshape an output for one-hot values to attention weights (batch, num_queries, num_heads, num_keys)."""
    return output.unflatten(-1, (NUM_HEADS, NUM_KEYS))


def judge_empty(weights: Tensor) -> str:
    """Say what a query without valid keys gets as weights: "NaN", "0", "uniform over padding" or other ("leaks")."""
    if weights.isnan().any():
        return "NaN"
    if (weights == 0).all():
        return "0"
    return "uniform over padding" if weights.isclose(torch.tensor(1 / NUM_KEYS, dtype=weights.dtype)).all() else "leaks"


def output_of(candidate: Candidate, *inputs: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    """Run ``candidate``, an attention implementation whose weight matrices are identities; return its output."""
    layer = candidate.copy_of(identity_layer(dtype).eval())
    with torch.no_grad():
        return candidate.call(layer, *inputs)[0]


# From here on, each function puts a candidate into one situation and says what it does; CASES names them.


def empty_example(candidate: Candidate, dtype: torch.dtype = torch.float32) -> str:
    output = output_of(candidate, *sequences(2, dtype), torch.tensor([0, 3]), dtype=dtype)
    return judge_empty(weights_in(output)[0])


def empty_example_in_training(candidate: Candidate) -> str:
    output, _ = candidate.call(candidate.copy_of(identity_layer()), *sequences(2), torch.tensor([0, 3]))
    return judge_empty(weights_in(output)[0])


def empty_example_in_self_attention(candidate: Candidate) -> str:
    _, _, X = sequences(2)
    return judge_empty(weights_in(output_of(candidate, X, X, X, torch.tensor([0, 3])))[0])


def empty_row(candidate: Candidate) -> str:
    output = output_of(candidate, *sequences(2), torch.tensor([[4, 0, 2, 1], [1, 2, 3, 4]]))
    return judge_empty(weights_in(output)[0, 1])


def gradient_at_empty_example(candidate: Candidate) -> str:
    layer = candidate.copy_of(identity_layer())
    inputs = sequences(2)
    leaves = [*map(Tensor.requires_grad_, inputs), *layer.parameters()]
    output, _ = candidate.call(layer, *inputs, torch.tensor([0, 3]))
    gradients = torch.autograd.grad(output.square().sum(), leaves)
    if any(gradient.isnan().any() for gradient in gradients):
        return "NaN"
    return "leaks into padding" if any((gradient[0] != 0).any() for gradient in gradients[: len(inputs)]) else "0"


def scores_below_minus_a_million(candidate: Candidate) -> str:
    queries, keys, values = sequences(1)
    queries, keys = torch.full_like(queries, 2000), torch.full_like(keys, -2000)
    output = output_of(candidate, queries, keys, values, torch.tensor([2]))
    on_padding = weights_in(output)[..., 2:].sum(-1).mean()
    return "right" if on_padding == 0 else f"{on_padding:.0%} on padding"


def nan_in_padding(candidate: Candidate, which: int) -> str:
    inputs, layer = sequences(1), candidate.copy_of(identity_layer().eval())
    inputs[which][:, 2:] = torch.nan
    output = candidate.call(layer, *inputs, torch.tensor([2]))[0]
    if output.isnan().any():
        return "NaN"
    gradients = torch.autograd.grad(output.square().sum(), list(layer.parameters()))
    return "NaN in gradients" if any(gradient.isnan().any() for gradient in gradients) else "no effect"


def scores_of_the_caller(candidate: Candidate) -> str:
    if candidate.masked_softmax is None:
        return "–"
    scores = torch.randn(2, 3, NUM_KEYS)
    before = scores.clone()
    with torch.no_grad():
        candidate.masked_softmax(scores, torch.tensor([1, 2]))
    return "untouched" if torch.equal(scores, before) else "overwritten"


def scores_that_need_a_gradient(candidate: Candidate) -> str:
    if candidate.masked_softmax is None:
        return "–"
    candidate.masked_softmax(torch.randn(2, 3, NUM_KEYS, requires_grad=True), torch.tensor([1, 2]))
    return "fine"


def tensors_of_the_caller(candidate: Candidate) -> str:
    layer = candidate.copy_of(identity_layer())
    inputs = (*sequences(2), torch.tensor([1, 3]))
    before = [X.clone() for X in inputs]
    candidate.call(layer, *inputs)
    return "untouched" if all(map(torch.equal, inputs, before)) else "overwritten"


def not_contiguous(candidate: Candidate) -> str:
    inputs, valid_lens = sequences(2), torch.tensor([[1, 9], [3, 9]])[:, 0]
    expected = output_of(candidate, *inputs, valid_lens.contiguous())
    output = output_of(candidate, *(X.transpose(0, 1).contiguous().transpose(0, 1) for X in inputs), valid_lens)
    return "the same" if torch.allclose(output, expected, rtol=0, atol=1e-6) else "differs"


def no_example(candidate: Candidate) -> str:
    output = output_of(candidate, *sequences(0), torch.tensor([], dtype=torch.long))
    return "empty output" if output.shape == (0, NUM_KEYS, NUM_HIDDENS) else f"shape {tuple(output.shape)}"


def no_key(candidate: Candidate) -> str:
    queries, keys, values = sequences(1)
    return judge_empty(output_of(candidate, queries, keys[:, :0], values[:, :0], None))


def bool_lengths(candidate: Candidate) -> str:
    if candidate.masked_softmax is None:
        return "–"
    weights = candidate.masked_softmax(torch.zeros(2, 1, NUM_KEYS), torch.tensor([True, False]))
    return f"taken for length {(weights[0] > 0).sum()}"


def lengths_of_another_batch(candidate: Candidate) -> str:
    output_of(candidate, *sequences(2), torch.tensor([3]))
    return "spread over the batch"


def weights_under_dropout(candidate: Candidate) -> str:
    torch.manual_seed(0)
    layer = candidate.copy_of(identity_layer(dropout=0.5).train())
    _, weights = candidate.call(layer, *sequences(2), None)
    if weights is None:
        return "–"
    return "before dropout" if weights.sum(-1).isclose(torch.tensor(1.0)).all() else "after dropout"


def deepcopy_after_a_call(candidate: Candidate) -> str:
    layer = candidate.copy_of(identity_layer())
    candidate.call(layer, *sequences(2), torch.tensor([1, 3]))
    copy.deepcopy(layer)
    return "fine"


def sizes_that_do_not_divide(candidate: Candidate) -> str:
    if candidate.build is None:
        return "–"
    try:
        layer = candidate.build(10, 3)
    except (ValueError, AssertionError):
        return "error when built"
    try:
        layer(*[torch.randn(2, 4, 10)] * 3, None)
    except RuntimeError:
        return "error when called"
    return "no error"


CASES: dict[str, Callable[[Candidate], str]] = {
    "valid_len 0": empty_example,
    "valid_len 0, self-attention": empty_example_in_self_attention,
    "valid_len 0, training": empty_example_in_training,
    "valid_len 0, float16": partial(empty_example, dtype=torch.float16),
    "valid_len 0, gradients": gradient_at_empty_example,
    "empty row in 2-D valid_lens": empty_row,
    "scores near −6e6, 2 of 4 valid": scores_below_minus_a_million,
    "NaN in padded keys": partial(nan_in_padding, which=1),
    "NaN in padded values": partial(nan_in_padding, which=2),
    "tensors of the caller": tensors_of_the_caller,
    "scores given to masked_softmax": scores_of_the_caller,
    "scores that need a gradient": scores_that_need_a_gradient,
    "input not contiguous": not_contiguous,
    "batch of 0": no_example,
    "no key at all": no_key,
    "bool for lengths": bool_lengths,
    "1 length for a batch of 2": lengths_of_another_batch,
    "weights under dropout": weights_under_dropout,
    "deepcopy after a call": deepcopy_after_a_call,
    "10 hiddens, 3 heads": sizes_that_do_not_divide,
}
