"""The formulas again, in NumPy, sharing no code with mha_lib, and the checks that hold a library against them.

A check takes the library as an argument, so the same check runs on mha_lib and on a copy with a planted bug.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np
import torch
from torch import Tensor, nn

# Every size differs from every other, so that no two axes can be mixed up unseen.
BATCH_SIZE, NUM_QUERIES, NUM_KEYS, NUM_HEADS, HEAD_SIZE = 3, 5, 6, 4, 2
QUERY_SIZE, KEY_SIZE, VALUE_SIZE, NUM_HIDDENS = 7, 9, 10, NUM_HEADS * HEAD_SIZE

Same = Callable[..., None]  # assert_same, or something that looks less closely


def masked_softmax(scores: np.ndarray, valid_lens: Tensor | None = None) -> np.ndarray:
    """Softmax row by row over the first valid_len entries; scores (batch, ..., num_queries, num_keys)."""
    weights = np.zeros_like(scores)
    for index in np.ndindex(scores.shape[:-1]):
        valid = scores.shape[-1]
        if valid_lens is not None:
            valid = int(valid_lens[index[0]] if valid_lens.dim() == 1 else valid_lens[index[0], index[-1]])
        if valid:
            powers = np.exp(scores[index][:valid] - scores[index][:valid].max())
            weights[index][:valid] = powers / powers.sum()
    return weights


def dot_product(queries, keys, values, valid_lens=None) -> tuple[np.ndarray, np.ndarray]:
    """Output and weights of scaled dot-product attention; any axes for heads stand after the batch."""
    Q, K, V = (tensor.detach().numpy() for tensor in (queries, keys, values))
    weights = masked_softmax(np.einsum("...qf,...kf->...qk", Q, K) / np.sqrt(Q.shape[-1]), valid_lens)
    return np.einsum("...qk,...kf->...qf", weights, V), weights


def additive(layer: nn.Module, queries, keys, values, valid_lens=None) -> tuple[np.ndarray, np.ndarray]:
    """Output and weights of additive attention with the parameters of ``layer``."""
    W_q, W_k, w_v = (W.weight.detach().numpy() for W in (layer.W_q, layer.W_k, layer.w_v))
    Q, K = np.einsum("hf,bqf->bqh", W_q, queries.numpy()), np.einsum("hf,bkf->bkh", W_k, keys.numpy())
    scores = np.einsum("oh,bqkh->bqk", w_v, np.tanh(Q[:, :, None] + K[:, None]))
    weights = masked_softmax(scores, valid_lens)
    return np.einsum("bqk,bkf->bqf", weights, values.numpy()), weights


def kernel(bandwidth: float, queries, keys, values, valid_lens=None) -> tuple[np.ndarray, np.ndarray]:
    """Nadaraya–Watson regression: values averaged by normalised Gaussian kernels, with no softmax at all."""
    differences = queries.numpy()[:, :, None] - keys.numpy()[:, None]
    bumps = np.exp(-((differences / bandwidth) ** 2).sum(-1) / 2)
    if valid_lens is not None:
        bumps = bumps * (np.arange(bumps.shape[-1]) < valid_lens.numpy().reshape(len(bumps), -1, 1))
    total = bumps.sum(-1, keepdims=True)
    weights = bumps / np.where(total > 0, total, 1)
    return np.einsum("bqk,bkf->bqf", weights, values.numpy()), weights


def multi_head(
    layer: nn.Module, queries, keys, values, valid_lens=None, head_mask=None
) -> tuple[np.ndarray, np.ndarray]:
    """Output and weights of multi-head attention with the parameters of ``layer``."""
    W = {name: parameter.detach().numpy() for name, parameter in layer.state_dict().items()}
    h = layer.num_heads

    def project(name: str, X: Tensor) -> np.ndarray:
        weight = W[name + ".weight"].reshape(h, -1, X.shape[-1])
        bias = W.get(name + ".bias", np.zeros(weight.shape[0] * weight.shape[1])).reshape(h, 1, -1)
        return np.einsum("hfi,bti->bhtf", weight, X.numpy()) + bias

    Q, K, V = project("W_q", queries), project("W_k", keys), project("W_v", values)
    weights = masked_softmax(np.einsum("bhqf,bhkf->bhqk", Q, K) / np.sqrt(Q.shape[-1]), valid_lens)
    gates = np.ones((len(Q), h)) if head_mask is None else np.broadcast_to(head_mask.numpy(), (len(Q), h))
    W_o = W["W_o.weight"].reshape(-1, h, V.shape[-1])
    output = np.einsum("bh,bhqk,bhkf,ohf->bqo", gates, weights, V, W_o)
    return output + W.get("W_o.bias", 0), weights


@dataclass(frozen=True)
class Case:
    """One call: float64 inputs, lengths, gates; and whether the layer has a bias."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    valid_lens: Tensor | None = None
    head_mask: Tensor | None = None
    bias: bool = False

    @property
    def arguments(self) -> tuple:
        return self.queries, self.keys, self.values, self.valid_lens

    @property
    def same_sizes(self) -> "Case":
        """The case with keys cut to the size of queries, as a dot product needs them."""
        return replace(self, keys=self.keys[..., : self.queries.shape[-1]])


def random_numbers(*shape: int) -> Tensor:
    """Random numbers that depend on the shape alone, not on who drew before; float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def all_ones(*shape: int) -> Tensor:
    return torch.ones(*shape, dtype=torch.float64)


def cases(numbers: Callable = random_numbers) -> dict[str, Case]:
    """Every kind of argument that the layer takes."""
    plain = Case(
        numbers(BATCH_SIZE, NUM_QUERIES, QUERY_SIZE),
        numbers(BATCH_SIZE, NUM_KEYS, KEY_SIZE),
        numbers(BATCH_SIZE, NUM_KEYS, VALUE_SIZE),
    )
    per_example = torch.tensor([4, 1, 6])
    per_query = torch.tensor([[1, 2, 3, 4, 5], [6, 1, 6, 1, 2], [3, 3, 5, 2, 4]])
    gates = torch.tensor([0.5, 0.0, 1.0, -2.0], dtype=torch.float64)
    gates_per_example = torch.stack([gates, gates.flip(0), 3 * gates])
    return {
        "all keys": plain,
        "lengths per example": replace(plain, valid_lens=per_example),
        "lengths per query": replace(plain, valid_lens=per_query),
        "float lengths per example": replace(plain, valid_lens=per_example.float()),
        "float lengths per query": replace(plain, valid_lens=per_query.double()),
        "an empty example": replace(plain, valid_lens=torch.tensor([4, 0, 6])),
        "empty rows": replace(plain, valid_lens=per_query * torch.tensor([1, 0, 1, 1, 0])),
        "bias": replace(plain, bias=True, valid_lens=per_example),
        "gates": replace(plain, head_mask=gates),
        "gates per example": replace(plain, head_mask=gates_per_example, bias=True),
        "gates, lengths and bias": replace(plain, head_mask=gates_per_example, valid_lens=per_query, bias=True),
        "gates, lengths and an empty example": replace(
            plain, head_mask=gates, valid_lens=torch.tensor([0, 2, 5]), bias=True
        ),
    }


def attention_cases(numbers: Callable = random_numbers) -> dict[str, Case]:
    """The cases that concern a single attention."""
    return {name: case for name, case in cases(numbers).items() if case.head_mask is None and not case.bias}


def make_layer(library: ModuleType, case: Case, dropout: float = 0.0) -> nn.Module:
    """A multi-head layer of ``library`` for ``case``, in float64, always with the same random parameters."""
    torch.manual_seed(0)
    sizes = dict(query_size=case.queries.shape[-1], key_size=case.keys.shape[-1], value_size=case.values.shape[-1])
    return library.MultiHeadAttention(NUM_HIDDENS, NUM_HEADS, dropout, case.bias, **sizes).double()


def make_additive(library: ModuleType, case: Case, dropout: float = 0.0) -> nn.Module:
    """An additive attention of ``library`` for ``case``, in float64, always with the same random parameters."""
    torch.manual_seed(0)
    sizes = dict(query_size=case.queries.shape[-1], key_size=case.keys.shape[-1])
    return library.AdditiveAttention(NUM_HIDDENS, dropout, **sizes).double()


FORMULA, KERNEL = "formula", "kernel"  # the two ways of FusedAttention to the same numbers


class KeepAll(nn.Dropout):
    """Dropout that is active, so the layer takes the formula, but drops nothing."""

    def forward(self, X):
        return X


def on_path(layer: nn.Module, path: str) -> nn.Module:
    """The layer on one of its two ways to the same numbers."""
    getattr(layer, "attention", layer).dropout = KeepAll(0.5)
    return layer.train(path == FORMULA)


def assert_same(actual: Tensor, expected: np.ndarray, atol: float = 1e-12) -> None:
    """Equal in shape, dtype and, up to rounding, in every number; NaN is equal to nothing."""
    torch.testing.assert_close(actual.detach(), torch.from_numpy(np.ascontiguousarray(expected)), rtol=0, atol=atol)


def assert_same_shape(actual: Tensor, expected: np.ndarray, atol: float = 0) -> None:
    """What a test does that looks at shapes only."""
    assert tuple(actual.shape) == expected.shape


def check_multi_head(library: ModuleType, case: Case, same: Same = assert_same) -> None:
    output, weights = multi_head(make_layer(library, case), *case.arguments, case.head_mask)
    for training in (True, False):
        layer = make_layer(library, case).train(training)
        same(layer(*case.arguments, head_mask=case.head_mask), output)
        same(layer.attention_weights, weights)


def check_dot_product(library: ModuleType, case: Case, same: Same = assert_same) -> None:
    output, weights = dot_product(*case.same_sizes.arguments)
    for layer in (library.DotProductAttention(), library.FusedAttention()):
        same(layer(*case.same_sizes.arguments), output)
        same(layer.attention_weights, weights)


def check_additive(library: ModuleType, case: Case, same: Same = assert_same) -> None:
    layer = make_additive(library, case)
    output, weights = additive(layer, *case.arguments)
    same(layer(*case.arguments), output)
    same(layer.attention_weights, weights)


def check_dropout(library: ModuleType, case: Case, same: Same = assert_same) -> None:
    """In training, weights are dropped at the rate that was asked for, and kept as they were before."""
    one_hot = torch.eye(NUM_KEYS, dtype=torch.float64).expand(BATCH_SIZE, -1, -1)  # makes the output the weights
    case, rate = replace(case.same_sizes, values=one_hot), 0.25
    dot, add = library.DotProductAttention(rate), make_additive(library, case, rate)
    for layer, (_, weights) in ((dot, dot_product(*case.arguments)), (add, additive(add, *case.arguments))):
        torch.manual_seed(0)
        output = layer(*case.arguments)
        torch.manual_seed(0)
        same(output, weights * nn.functional.dropout(torch.ones_like(output), rate).numpy())
        same(layer.attention_weights, weights)


def check_extreme_scores(library: ModuleType, case: Case, same: Same = assert_same) -> None:
    """Scores far below any fixed fill value, and scores in half precision."""
    scores = case.same_sizes.queries @ case.same_sizes.keys.mT
    for extreme in (scores - 3e6, scores + 3e6):
        weights = library.masked_softmax(extreme, case.valid_lens)
        same(weights, masked_softmax(extreme.numpy(), case.valid_lens))
    half = scores.half()
    weights = library.masked_softmax(half, case.valid_lens).double()
    same(weights, masked_softmax(half.double().numpy(), case.valid_lens), atol=1e-3)


CHECKS = {
    "multi-head": (check_multi_head, cases),
    "dot product": (check_dot_product, attention_cases),
    "additive": (check_additive, attention_cases),
    "dropout": (check_dropout, attention_cases),
    "extreme scores": (check_extreme_scores, attention_cases),
}


def hold_against_references(library: ModuleType, numbers: Callable = random_numbers, same: Same = assert_same) -> None:
    """Every check on every case; AssertionError at the first difference."""
    for check, make_cases in CHECKS.values():
        for case in make_cases(numbers).values():
            check(library, case, same)
