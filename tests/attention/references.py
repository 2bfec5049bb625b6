"""The formula again, in NumPy and float64, sharing no code with mha_lib.

It is the one reference of these tests, beside the golden vectors and ``loop_over_heads``.
"""

import numpy as np
import torch
from torch import Tensor, nn

from mha_lib import AdditiveAttention, MultiHeadAttention

# Every size differs from every other, so that no two axes can be mixed up unseen.
BATCH_SIZE, NUM_QUERIES, NUM_KEYS, NUM_HEADS, HEAD_SIZE = 3, 5, 6, 4, 2
SIZES = dict(query_size=7, key_size=9, value_size=10)
NUM_HIDDENS = NUM_HEADS * HEAD_SIZE


def numpy(X: Tensor | None) -> np.ndarray | None:
    return None if X is None else (X if X.dtype == torch.bool else X.double()).detach().cpu().numpy()


def masked_softmax(scores, valid_lens=None, attn_mask=None, causal=False) -> np.ndarray:
    """Softmax row by row over the keys that may be attended to; scores (b, q, k) or (b, h, q, k)."""
    scores, valid_lens, attn_mask = map(numpy, (scores, valid_lens, attn_mask))
    weights, (num_queries, num_keys) = np.zeros(scores.shape), scores.shape[-2:]
    for place in np.ndindex(scores.shape[:-1]):
        b, i = place[0], place[-1]
        length = num_keys if valid_lens is None else int(valid_lens[b] if valid_lens.ndim == 1 else valid_lens[b, i])
        if causal:  # the last query stands at the last key
            length = min(length, max(0, num_keys - num_queries + i + 1))
        row = scores[place][:length]
        if attn_mask is not None:
            mask = np.broadcast_to(attn_mask, scores.shape)[place][:length]
            row = np.where(mask, row, -np.inf) if mask.dtype == bool else row + mask
        if (row > -np.inf).any():
            powers = np.exp(row - row.max())
            weights[place][:length] = powers / powers.sum()
    return weights


def linear(W: nn.Module, X: np.ndarray) -> np.ndarray:
    return X @ numpy(W.weight).T + (0 if W.bias is None else numpy(W.bias))


def scores(layer: nn.Module, Q: np.ndarray, K: np.ndarray) -> np.ndarray:
    """Additive, Gaussian or scaled dot products, as the parameters of ``layer`` tell."""
    if hasattr(layer, "w_v"):
        features = np.tanh(linear(layer.W_q, Q)[..., None, :] + linear(layer.W_k, K)[..., None, :, :])
        return linear(layer.w_v, features)[..., 0]
    if hasattr(layer, "log_bandwidth"):
        return -((Q[..., None, :] - K[..., None, :, :]) ** 2).sum(-1) / (2 * np.exp(numpy(layer.log_bandwidth)) ** 2)
    return np.einsum("...qd,...kd->...qk", Q, K) / np.sqrt(Q.shape[-1])


def attention(
    layer: nn.Module, queries, keys, values, valid_lens=None, head_mask=None, attn_mask=None, causal=False, kept=None
) -> tuple[np.ndarray, np.ndarray]:
    """Output and ``attention_weights`` of any layer, with its parameters; ``kept`` is what dropout makes of ones."""
    X = dict(q=numpy(queries), k=numpy(keys), v=numpy(values))
    if hasattr(layer, "W_o"):
        for name in X:  # head by head: (b, n, h · d) -> h times (b, n, d) -> (b, h, n, d)
            Y = linear(getattr(layer, f"W_{name}"), X[name])
            X[name] = np.stack(np.split(Y, Y.shape[-1] // layer.head_size, axis=-1), axis=1)
            X[name] = X[name].repeat(layer.num_heads // X[name].shape[1], axis=1)
    inner = torch.from_numpy(scores(getattr(layer, "attention", layer), X["q"], X["k"]))
    weights = masked_softmax(inner, valid_lens, attn_mask, causal)
    used = weights if kept is None else weights * numpy(kept).reshape(weights.shape)
    heads = np.einsum("...qk,...kd->...qd", used, X["v"])
    if not hasattr(layer, "W_o"):  # heads are folded into the batch
        return heads, weights.reshape(np.prod(weights.shape[:-2], dtype=int), *weights.shape[-2:])
    if head_mask is not None:
        heads = heads * np.broadcast_to(numpy(head_mask), heads.shape[:2])[..., None, None]
    return linear(layer.W_o, np.concatenate(list(heads.swapaxes(0, 1)), axis=-1)), weights


def random_numbers(*shape: int) -> Tensor:
    """Random numbers that depend on the shape alone, not on who drew before; float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def sequences(same_sizes: bool = False) -> tuple[Tensor, ...]:
    """Queries, keys and values; a dot product needs keys of the size of queries."""
    number = dict(query_size=NUM_QUERIES, key_size=NUM_KEYS, value_size=NUM_KEYS)
    queries, keys, values = (random_numbers(BATCH_SIZE, number[name], size) for name, size in SIZES.items())
    return queries, keys[..., : queries.shape[-1]] if same_sizes else keys, values


PER_QUERY = torch.tensor([[1, 2, 3, 4, 5], [6, 1, 6, 1, 2], [3, 3, 5, 2, 4]])
LENGTHS = {
    "all keys": None,
    "per example": torch.tensor([4, 1, 6]),
    "per query": PER_QUERY,
    "floats": torch.tensor([4.0, 1.0, 6.0]),
    "an empty example": torch.tensor([4, 0, 6]),
    "empty rows": PER_QUERY * torch.tensor([1, 0, 1, 1, 0]),
}
GATES = torch.tensor([0.5, 0.0, 1.0, -2.0], dtype=torch.float64)
GATES_PER_EXAMPLE = torch.stack([GATES, GATES.flip(0), 3 * GATES])
# Every kind of argument that a layer takes beside its sequences.
CASES = {name: dict(valid_lens=valid_lens) for name, valid_lens in LENGTHS.items()} | {
    "gates": dict(head_mask=GATES, valid_lens=LENGTHS["an empty example"]),
    "gates per example": dict(head_mask=GATES_PER_EXAMPLE, valid_lens=LENGTHS["empty rows"]),
}
# All ways of a layer to the same numbers; the formula of ``FusedAttention`` steps in where dropout is active.
WAYS = ("kernel", "formula", "kept", "not skipping")


def on_way(layer: nn.Module, way: str) -> nn.Module:
    inner = getattr(layer, "attention", layer)
    if way == "formula":
        inner.dropout.p = 1e-300  # active in training, and drops nothing
    inner.keep_weights, inner.skip_padding = way == "kept", way != "not skipping"
    return layer.train(way == "formula")


def make_layer(dropout: float = 0.0, bias: bool = True, **options) -> MultiHeadAttention:
    """A multi-head layer for ``sequences()``, in float64, always with the same random parameters."""
    torch.manual_seed(0)
    return MultiHeadAttention(NUM_HIDDENS, NUM_HEADS, dropout, bias, **SIZES | options).double()


def make_additive(dropout: float = 0.0) -> AdditiveAttention:
    torch.manual_seed(0)
    return AdditiveAttention(NUM_HIDDENS, dropout, query_size=7, key_size=9).double()


def assert_same(actual: Tensor, expected: np.ndarray, atol: float = 1e-12) -> None:
    """Equal in shape, dtype and, up to rounding, in every number; NaN is equal to nothing."""
    torch.testing.assert_close(
        actual.detach().cpu(), torch.from_numpy(np.ascontiguousarray(expected)), rtol=0, atol=atol
    )


def close(actual, expected, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def check(layer: nn.Module, *given: Tensor, **arguments) -> None:
    """Output and weights of a layer are those of the formula."""
    output, weights = attention(layer, *given, **arguments)
    assert_same(layer(*given, **arguments), output)
    assert_same(layer.attention_weights, weights)
