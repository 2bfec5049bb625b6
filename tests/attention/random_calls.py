"""Calls of every attention drawn at random, most of them right, some spoilt; and what each has to give.

A right call is held against the formula, written here as one loop over examples, heads and queries, in float64 and in
NumPy. A spoilt one must be refused by an error that begins with the name of a spoilt argument.

``python tests/attention/random_calls.py 20000 [SEED]`` runs as many as you like.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

import mha_lib
from mha_lib.attention import FusedAttention

TOLERANCE = {torch.float64: 1e-10, torch.float32: 3e-5, torch.float16: 3e-2, torch.bfloat16: 2e-1}
INTEGERS = (torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64)
LENGTHS = (*INTEGERS, *TOLERANCE)  # all of them can hold 127
KINDS = ("multi-head", "dot product", "dot product with heads", "additive", "kernel", "softmax")


@dataclass
class Call:
    """A layer, its arguments by name, and which of them were spoilt."""

    kind: str
    layer: Callable
    arguments: dict
    num_heads: int
    spoilt: set[str] = field(default_factory=set)


def draw(rng: random.Random) -> Call:
    """A right call: sizes from 0 or 1 to some, any dtype, on the CPU or, rarely, on the meta device."""
    kind = rng.choice(KINDS)
    dtype = rng.choice(list(TOLERANCE))
    batch_size, num_queries, num_keys = rng.randint(0, 3), rng.randint(0, 4), rng.randint(0, 5)
    if rng.random() < 1 / 300:  # large enough for the layer to skip padding
        num_queries, num_keys = 64, 1024
    query_size, value_size, num_heads = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 3)
    key_size = rng.randint(1, 4) if kind in ("multi-head", "additive") else query_size
    lead = (batch_size, num_heads) if kind == "dot product with heads" else (batch_size,)
    layer = make_layer(kind, rng, num_heads, (query_size, key_size, value_size)).to(dtype)
    if kind == "softmax":
        arguments = {"scores": torch.randn(*rng.choice([lead, (batch_size, num_heads)]), num_queries, num_keys)}
    else:
        sizes = {"queries": (num_queries, query_size), "keys": (num_keys, key_size), "values": (num_keys, value_size)}
        arguments = {name: torch.randn(*lead, *size) for name, size in sizes.items()}
    arguments = {name: X.to(dtype) for name, X in arguments.items()}
    arguments["valid_lens"] = lengths(rng, batch_size, num_queries, num_keys)
    scores = tuple(arguments["scores"].shape) if kind == "softmax" else (*lead, num_queries, num_keys)
    arguments["attn_mask"] = mask(rng, (batch_size, num_heads, *scores[-2:]) if kind == "multi-head" else scores)
    if kind == "multi-head":
        arguments["head_mask"] = gates(rng, batch_size, num_heads)
    if rng.random() < 0.1:
        layer = layer.to("meta")
        arguments = {name: X if X is None else X.to("meta") for name, X in arguments.items()}
    return Call(kind, layer, arguments | {"causal": rng.random() < 0.3}, num_heads)


class Softmax(nn.Module):
    """``masked_softmax`` as a module."""

    def forward(self, scores: Tensor, valid_lens: Tensor | None, attn_mask: Tensor | None, causal: bool) -> Tensor:
        return mha_lib.masked_softmax(scores, valid_lens, attn_mask=attn_mask, causal=causal)


def make_layer(kind: str, rng: random.Random, num_heads: int, sizes: tuple[int, int, int]) -> nn.Module:
    """A layer with random parameters; without dropout, or with dropout that is off, in training or not."""
    dropout = rng.choice([0, 0.0, 0.5])
    given = dict(zip(("query_size", "key_size", "value_size"), sizes, strict=True))
    if kind == "multi-head":
        num_hiddens, groups = num_heads * rng.randint(1, 3), rng.choice([1, num_heads])
        given["num_key_value_heads"] = groups
        layer = mha_lib.MultiHeadAttention(num_hiddens, num_heads, dropout, rng.random() < 0.5, **given)
        layer.attention.keep_weights = rng.random() < 0.3
    elif kind == "additive":
        layer = mha_lib.AdditiveAttention(rng.randint(1, 4), dropout, query_size=sizes[0], key_size=sizes[1])
    elif kind == "kernel":
        layer = mha_lib.KernelPooling(rng.choice([0.3, 1, 5.0]), learnable=rng.random() < 0.5)
    elif kind == "softmax":
        layer = Softmax()
    else:
        layer = rng.choice([mha_lib.DotProductAttention, FusedAttention])(dropout)
        layer.keep_weights = rng.random() < 0.3
    return layer.train(dropout == 0 and rng.random() < 0.5)


def lengths(rng: random.Random, batch_size: int, num_queries: int, num_keys: int) -> Tensor | None:
    shape = rng.choice([None, (batch_size,), (batch_size, num_queries)])
    return None if shape is None else torch.randint(0, min(num_keys, 127) + 1, shape).to(rng.choice(LENGTHS))


def mask(rng: random.Random, scores: tuple[int, ...]) -> Tensor | None:
    shape = rng.choice([None, None, scores[-2:], tuple(rng.choice([1, size]) for size in scores[:-1]) + scores[-1:]])
    if shape is None or rng.random() < 0.5:
        return None if shape is None else torch.rand(shape) > 0.3
    bias = torch.randn(shape).round(decimals=1)
    return torch.where(torch.rand(shape) > 0.2, bias, -torch.inf).to(rng.choice(list(TOLERANCE)))


def gates(rng: random.Random, batch_size: int, num_heads: int) -> Tensor | None:
    shape = rng.choice([None, (num_heads,), (batch_size, num_heads)])
    return None if shape is None else torch.randn(shape).to(rng.choice([*TOLERANCE, torch.int64, torch.bool]))


def spoil(call: Call, rng: random.Random) -> None:
    """Change one argument in a way that the layer must refuse."""
    given = [name for name, argument in call.arguments.items() if argument is not None and name not in call.spoilt]
    if not given:
        return
    name = rng.choice(given)
    X = call.arguments[name]
    if name == "causal":
        call.arguments[name] = rng.choice([None, 1, "yes", torch.tensor(True)])
        call.spoilt.add(name)
        return
    ways = {
        "not a tensor": lambda: rng.choice([3, "text", [1.0], np.ones(3)]),
        "three axes more": lambda: X[None, None, None],
        "sparse": lambda: None if X.is_meta else X.double().to_sparse(),
        "complex": lambda: X.to(torch.complex64),
    }
    if name != "scores":
        ways["on another device"] = lambda: torch.zeros_like(X, device="cpu" if X.is_meta else "meta")
    if name in ("valid_lens", "head_mask"):
        ways["one too many"] = lambda: torch.cat([X, X[:1]]) if len(X) else None
        ways["a number"] = lambda: X.sum()
    if name == "attn_mask":
        ways["integers"] = lambda: X.to(rng.choice(INTEGERS))
        ways["other keys"] = lambda: torch.cat([X, X], -1) if X.shape[-1] else None
        ways["one axis"] = lambda: X[..., 0, :].flatten()[: X.shape[-1]] if X.shape[-2] else None
    elif name == "valid_lens":
        ways["a mask"] = lambda: X.double() > 1
        ways["too long"] = lambda: None if X.is_meta or not X.numel() else X.double() + 2000
        ways["negative"] = lambda: None if X.is_meta or not X.numel() else X.double() - 7
        ways["a fraction"] = lambda: None if X.is_meta or not (X.double() >= 1).any() else X.double() / 2**0.5
    elif name != "head_mask":
        ways["integers"] = lambda: X.to(rng.choice([*INTEGERS, torch.bool]))
        ways["8 bits"] = lambda: None if X.is_meta else X.to(torch.float8_e5m2)
        if name != "scores":
            other = torch.float32 if X.dtype == torch.float64 else torch.float64
            ways["another dtype"] = lambda: X.to(other)
            ways["another batch size"] = lambda: torch.cat([X, X[:1]]) if len(X) else None
        if name == "values":
            ways["another number"] = lambda: torch.cat([X, X[..., :1, :]], -2) if X.shape[-2] else None
        if name == "keys" or (call.kind == "multi-head" and name != "scores"):
            ways["another size"] = lambda: torch.cat([X, X], -1)
    way = rng.choice(list(ways))
    changed = ways[way]()
    if changed is not None:
        call.arguments[name] = changed
        call.spoilt.add(name)


def expected(call: Call) -> np.ndarray:
    """The output, number by number."""
    tensors = {name: X for name, X in call.arguments.items() if name != "causal"}
    given = {name: None if X is None else X.detach().double().numpy() for name, X in tensors.items()}
    if call.kind == "softmax":
        scores = given["scores"] if given["scores"].ndim == 4 else given["scores"][:, None]
        bias, weights = joined_bias(call, given, scores.shape), np.zeros_like(scores)
        for place in np.ndindex(scores.shape[:-1]):
            weights[place] = softmax(scores[place] + bias[place])
        return weights.reshape(given["scores"].shape)
    score, parts = scoring(call)
    Q, K, V = (parts(name, given[name]) for name in ("queries", "keys", "values"))  # (b, h, n, d)
    heads = np.zeros((*Q.shape[:3], V.shape[-1]))
    bias = joined_bias(call, given, (*Q.shape[:3], K.shape[2]))
    for b, h, t in np.ndindex(Q.shape[:3]):
        scores = [score(Q[b, h, t], K[b, h, j]) if bias[b, h, t, j] > -np.inf else 0.0 for j in range(K.shape[2])]
        weights = softmax(np.array(scores) + bias[b, h, t])
        heads[b, h, t] = sum((w * v for w, v in zip(weights, V[b, h], strict=True)), np.zeros(1))
    if call.kind == "dot product with heads":
        return heads
    if call.kind != "multi-head":
        return heads[:, 0]
    if given["head_mask"] is not None:
        heads = heads * np.broadcast_to(given["head_mask"], heads.shape[:2])[..., None, None]
    joined = np.concatenate([heads[:, h] for h in range(heads.shape[1])], axis=-1)
    return joined @ number("W_o.weight", call).T + (number("W_o.bias", call) if call.layer.W_o.bias is not None else 0)


def joined_bias(call: Call, given: dict, shape: tuple[int, ...]) -> np.ndarray:
    """What is added to scores (b, h, q, k): −∞ where a query may not attend to a key."""
    bias, mask = np.zeros(shape), given["attn_mask"]
    if mask is not None:
        mask = np.where(mask, 0.0, -np.inf) if call.arguments["attn_mask"].dtype == torch.bool else mask
        bias += mask[:, None] if mask.ndim == 3 else mask
    for b, t in np.ndindex(shape[0], shape[2]):
        bias[b, :, t, length(given["valid_lens"], (b, t), shape[3]) :] = -np.inf
        if call.arguments["causal"]:
            bias[b, :, t, max(0, t + 1 + shape[3] - shape[2]) :] = -np.inf
    return bias


def scoring(call: Call) -> tuple[Callable, Callable]:
    """How to compare a query with a key, and how to cut an argument into heads."""

    def one_head(name, X):
        return X if X.ndim == 4 else X[:, None]

    def dot(q, k):
        return q @ k / np.sqrt(len(q))

    def project(name, X):
        W = getattr(call.layer, f"W_{name[0]}")
        Y = X @ W.weight.detach().double().numpy().T + (0 if W.bias is None else W.bias.detach().double().numpy())
        heads = np.stack(np.split(Y, Y.shape[-1] // call.layer.head_size, axis=-1), axis=1)
        return heads.repeat(call.num_heads // heads.shape[1], axis=1)

    def additive(q, k):
        W_q, W_k, w_v = (number(f"{W}.weight", call) for W in ("W_q", "W_k", "w_v"))
        return (w_v @ np.tanh(W_q @ q + W_k @ k))[0]

    def kernel(q, k):
        return -(((q - k) / np.exp(number("log_bandwidth", call))) ** 2).sum() / 2

    if call.kind == "multi-head":
        return dot, project
    return {"additive": additive, "kernel": kernel}.get(call.kind, dot), one_head


def number(name: str, call: Call) -> np.ndarray:
    return call.layer.get_parameter(name).detach().double().numpy()


def length(valid_lens: np.ndarray | None, place: tuple[int, ...], num_keys: int) -> int:
    if valid_lens is None:
        return num_keys
    return int(valid_lens[place[0]] if valid_lens.ndim == 1 else valid_lens[place[0], place[-1]])


def softmax(scores: np.ndarray) -> np.ndarray:
    """Weights that sum to 1, or zeros where every score is −∞."""
    if not (scores > -np.inf).any():
        return np.zeros(len(scores))
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def run(call: Call) -> str:
    """Make the call, hold it against what it has to give, and say which it was."""
    try:
        output = call.layer(**call.arguments)
    except (TypeError, ValueError) as error:
        assert call.spoilt, f"a right call was refused: {error}"
        named = [name for name in call.arguments if str(error).startswith(f"{name} must ")]
        # The others are held against the first: where it is spoilt, the error may name the one that does not fit it.
        fits = set(named) <= call.spoilt or call.spoilt & {"queries", "scores"}
        assert named and fits, f"spoilt is {call.spoilt}, said was {error}"
        return "refused"
    assert not call.spoilt, f"{call.spoilt} went through"
    first = next(iter(call.arguments.values()))
    if first.is_meta:
        assert output.is_meta and output.shape[:-1] == first.shape[:-1]
        return "without numbers"
    assert output.dtype == first.dtype
    reference = expected(call)
    assert output.shape == reference.shape
    np.testing.assert_allclose(output.detach().double().numpy(), reference, rtol=0, atol=TOLERANCE[output.dtype])
    return "right"


def run_many(number_of_calls: int, seed: int = 0) -> Counter:
    """How many calls were right, refused, and without numbers; AssertionError at the first that is wrong."""
    rng, counts = random.Random(seed), Counter()
    torch.manual_seed(seed)
    for attempt in range(number_of_calls):
        call = draw(rng)
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            spoil(call, rng)
        try:
            counts[run(call)] += 1
        except Exception as error:
            shown = {k: (tuple(X.shape), X.dtype, X.device) if isinstance(X, Tensor) else X
                     for k, X in call.arguments.items()}  # fmt: skip
            raise AssertionError(f"call {attempt} of seed {seed}, {call.kind} {call.spoilt} {shown}") from error
    return counts


if __name__ == "__main__":
    print(dict(run_many(*map(int, sys.argv[1:]))))
