"""Calls of every attention drawn at random, most of them right, some spoilt; and what each has to give.

A right call is held against the formula in float64 and has finite gradients, a spoilt one must be refused by an error
that begins with the name of a spoilt argument. ``python tests/attention/random_calls.py 20000 [SEED]`` runs as many
as you like.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import references
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
    spoilt: set[str] = field(default_factory=set)


def draw(rng: random.Random) -> Call:
    """A right call: sizes from 0 or 1 to some, any dtype, on the CPU or, rarely, on the meta device."""
    kind = rng.choice(KINDS)
    dtype = rng.choice(list(TOLERANCE))
    batch_size, num_queries, num_keys = rng.randint(0, 3), rng.randint(0, 4), rng.randint(0, 5)
    if rng.random() < 1 / 300:  # large enough for the layer to skip padding
        num_queries, num_keys = 64, 1024
    query_size, value_size, num_heads = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 4)
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
    arguments = {name: X if X is None or X.dim() < 2 else in_other_memory(X, rng) for name, X in arguments.items()}
    if rng.random() < 0.5:
        next(iter(arguments.values())).requires_grad_()
    if rng.random() < 0.1:
        layer = layer.to("meta")
        arguments = {name: X if X is None else X.to("meta") for name, X in arguments.items()}
    return Call(kind, layer, arguments | {"causal": rng.random() < 0.3})


class Softmax(nn.Module):
    """``masked_softmax`` as a module."""

    def forward(self, scores: Tensor, valid_lens: Tensor | None, attn_mask: Tensor | None, causal: bool) -> Tensor:
        return mha_lib.masked_softmax(scores, valid_lens, attn_mask=attn_mask, causal=causal)


def make_layer(kind: str, rng: random.Random, num_heads: int, sizes: tuple[int, int, int]) -> nn.Module:
    """A layer with random parameters, in training or not; its dropout is off or drops nothing."""
    dropout = rng.choice([0, 0.0, 0.5])
    given = dict(zip(("query_size", "key_size", "value_size"), sizes, strict=True))
    if kind == "multi-head":
        num_hiddens = num_heads * rng.randint(1, 3)
        given["num_key_value_heads"] = rng.choice([groups for groups in range(1, 5) if num_heads % groups == 0])
        layer = mha_lib.MultiHeadAttention(num_hiddens, num_heads, dropout, rng.random() < 0.5, **given)
    elif kind == "additive":
        layer = mha_lib.AdditiveAttention(rng.randint(1, 4), dropout, query_size=sizes[0], key_size=sizes[1])
    elif kind == "kernel":
        layer = mha_lib.KernelPooling(rng.choice([0.3, 1, 5.0]), learnable=rng.random() < 0.5)
    elif kind == "softmax":
        return Softmax()
    else:
        layer = rng.choice([mha_lib.DotProductAttention, FusedAttention])(dropout)
    layer = references.on_way(layer, rng.choice(references.WAYS))
    return layer.train(layer.training or (dropout == 0 and rng.random() < 0.5))


def in_other_memory(X: Tensor, rng: random.Random) -> Tensor:
    """The same shape, sometimes with its last axes exchanged in memory, with gaps, or one example for all."""
    way = rng.choice(["as it is", "exchanged", "with gaps", "one for all"])
    if way == "exchanged":
        return X.mT.contiguous().mT
    if way == "with gaps":
        return X.repeat_interleave(2, dim=-1)[..., ::2]
    return X[:1].expand_as(X) if way == "one for all" else X


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
    if call.kind == "softmax":
        results = [(output, references.masked_softmax(**call.arguments))]
    else:
        expected = references.attention(call.layer, **call.arguments)
        results = zip((output, call.layer.attention_weights), expected, strict=True)
    for result, reference in results:
        references.assert_same(result.double(), reference, atol=TOLERANCE[output.dtype])
    if output.requires_grad:
        output.sum().backward()
        gradients = [X.grad for X in (first, *call.layer.parameters()) if X.grad is not None]
        assert gradients and all(X.isfinite().all() for X in gradients)
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
