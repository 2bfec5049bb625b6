"""Edge cases, side by side: our layer, d2l's, torch's and torch's kernel, each cell found by running it.

All get the same weights: identity matrices. Their values are one-hot, so an output is the attention weights
themselves, and one can see where the weight went.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib.attention import MultiHeadAttention, converters, merge_heads, split_heads, valid_keys

__all__ = ["as_text", "behaviour_table"]

NUM_HEADS, NUM_KEYS = 2, 4
NUM_HIDDENS = NUM_HEADS * NUM_KEYS

# How an implementation is made from our layer, and called with queries, keys, values and valid_lens: output, weights.
Candidate = tuple[Callable[..., nn.Module], Callable[..., tuple[Tensor, Tensor | None]]]


def behaviour_table() -> dict[str, dict[str, str]]:
    """Run every attention implementation on every edge case; return, by case and implementation, what it does.

    There is no column for d2l where it is not installed.
    """
    return {case: {name: judge(*one) for name, one in candidates().items()} for case, judge in CASES.items()}


def as_text(table: Mapping[str, Mapping[str, str]]) -> str:
    """Format a table, given as a dict of rows that are dicts of texts, in aligned columns."""
    lines = [["", *next(iter(table.values()))], *([case, *verdicts.values()] for case, verdicts in table.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def candidates() -> dict[str, Candidate]:
    """Return the attention implementations to compare, by name: this library's, torch's, and d2l's if installed."""
    columns: dict[str, Candidate] = {"ours": (same_layer, call_ours)}
    try:
        converters.load_d2l()
        columns["d2l"] = converters.to_d2l, converters.call_d2l
    except ImportError:
        pass
    columns["torch.nn"] = converters.to_torch, converters.call_torch
    columns["torch.nn, no weights"] = converters.to_torch, call_torch_output
    columns["torch's kernel"] = same_layer, call_kernel
    return columns


def same_layer(layer: MultiHeadAttention) -> MultiHeadAttention:
    return layer


def call_ours(layer, queries, keys, values, valid_lens):
    return layer(queries, keys, values, valid_lens), layer.attention_weights


def call_torch_output(peer, queries, keys, values, valid_lens):
    masks = converters.torch_masks(valid_lens, keys.shape[1], peer.num_heads)
    return peer(queries, keys, values, need_weights=False, **masks)


def call_kernel(layer, queries, keys, values, valid_lens):
    """Compute a layer's output by its own projections and ``F.scaled_dot_product_attention``; return (output, None)."""
    Q, K, V = (
        split_heads(W(X), layer.num_heads) for W, X in ((layer.W_q, queries), (layer.W_k, keys), (layer.W_v, values))
    )
    mask = valid_keys(valid_lens, keys.shape[1], axes=4)
    return layer.W_o(merge_heads(F.scaled_dot_product_attention(Q, K, V, attn_mask=mask))), None


def identity_layer() -> MultiHeadAttention:
    """Return a ``MultiHeadAttention`` whose weight matrices are identity matrices and whose biases are 0."""
    size = NUM_HIDDENS
    layer = MultiHeadAttention(size, NUM_HEADS, bias=True, query_size=size, key_size=size, value_size=size)
    for name, parameter in layer.named_parameters():
        parameter.data.copy_(torch.eye(size) if name.endswith("weight") else torch.zeros(size))
    return layer


def sequences(batch_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return random queries and keys, and one-hot values, for which a head's output equals its attention weights."""
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, batch_size, NUM_KEYS, NUM_HIDDENS, generator=generator)
    return queries, keys, torch.eye(NUM_KEYS).repeat(batch_size, 1, NUM_HEADS)


def weights_in(output: Tensor) -> Tensor:
    """Reshape an output for one-hot values to attention weights (batch, num_queries, num_heads, num_keys)."""
    return output.unflatten(-1, (NUM_HEADS, NUM_KEYS))


# From here on, each function puts a candidate into one situation and says what it does; CASES names them.


def empty_example(copy_of, call) -> str:
    with torch.no_grad():
        output, _ = call(copy_of(identity_layer().eval()), *sequences(2), torch.tensor([0, 3]))
    weights = weights_in(output)[0]
    if weights.isnan().any():
        return "NaN"
    if (weights == 0).all():
        return "0"
    return "uniform over padding" if weights.isclose(torch.tensor(1 / NUM_KEYS)).all() else "leaks"


def gradient_at_empty_example(copy_of, call) -> str:
    layer, inputs = copy_of(identity_layer()), sequences(2)
    leaves = [*map(Tensor.requires_grad_, inputs), *layer.parameters()]
    output, _ = call(layer, *inputs, torch.tensor([0, 3]))
    gradients = torch.autograd.grad(output.square().sum(), leaves)
    if any(gradient.isnan().any() for gradient in gradients):
        return "NaN"
    return "leaks into padding" if any((gradient[0] != 0).any() for gradient in gradients[: len(inputs)]) else "0"


def scores_below_minus_a_million(copy_of, call) -> str:
    queries, keys, values = sequences(1)
    queries, keys = torch.full_like(queries, 2000), torch.full_like(keys, -2000)
    with torch.no_grad():
        output, _ = call(copy_of(identity_layer().eval()), queries, keys, values, torch.tensor([2]))
    on_padding = weights_in(output)[..., 2:].sum(-1).mean()
    return "right" if on_padding == 0 else f"{on_padding:.0%} on padding"


def nan_in_padded_values(copy_of, call) -> str:
    queries, keys, values = sequences(1)
    values[:, 2:] = torch.nan
    output, _ = call(copy_of(identity_layer().eval()), queries, keys, values, torch.tensor([2]))
    return "NaN" if output.isnan().any() else "no effect"


CASES: dict[str, Callable[..., str]] = {
    "valid_len 0": empty_example,
    "valid_len 0, gradients": gradient_at_empty_example,
    "scores near −6e6, 2 of 4 valid": scores_below_minus_a_million,
    "NaN in padded values": nan_in_padded_values,
}
