"""Layers and calls of every attention drawn at random, most of them right, some spoilt; and what each has to give.

A layer is built, or refused, and then called several times, each time in another way. A right call is held against the
formula in float64, output and weights, and has finite gradients; what is spoilt must be refused by an error that begins
with the name of a spoilt argument. As many as you like: ``python tests/attention/test_random_calls.py 20000 [SEED]``.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import references
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mha_lib
from mha_lib.attention import FusedAttention

TOLERANCE = {torch.float64: 1e-10, torch.float32: 3e-5, torch.float16: 3e-2, torch.bfloat16: 2e-1}
INTEGERS = (torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64)
LENGTHS = (*INTEGERS, *TOLERANCE)  # all of them can hold 127
KINDS = ("multi-head", "dot product", "dot product with heads", "additive", "kernel", "softmax")
SIZES = ("query_size", "key_size", "value_size")
WITH_GRADIENTS_OR_NOT = (torch.enable_grad, torch.enable_grad, torch.no_grad, torch.inference_mode)
NO_SIZES = (0, -1, 2.0, "7", True, [3])
FLAGS = ("keep_weights", "skip_padding")
NO_FLAGS = (1, 0.1, "no", None, torch.tensor(True))
# What the constructors must refuse.
SPOILT = dict.fromkeys((*SIZES, "num_key_value_heads"), NO_SIZES) | {
    "num_hiddens": (*NO_SIZES, None), "num_heads": (*NO_SIZES, None), "bias": NO_FLAGS, "learnable": NO_FLAGS,
    "dropout": (None, True, "0.1", -0.1, 1.5, torch.nan), "bandwidth": (None, True, "1", 0, -1.0, torch.nan),
    "attention": (nn.Linear(2, 2), FusedAttention, "fused"), "device": ("no such", -1, 3.5, True, [], "cpu:x", ""),
    "dtype": (torch.int64, torch.bool, torch.complex64, torch.float8_e5m2, "float32", 32, int, []),
}  # fmt: skip


@dataclass
class Layer:
    """A layer, and what it was made for."""

    kind: str
    module: nn.Module
    dtype: torch.dtype
    num_heads: int
    sizes: tuple[int, int, int]
    dropout: float = 0.0


@dataclass
class Call:
    """A layer, its arguments by name, and which of them were spoilt."""

    kind: str
    layer: Callable
    arguments: dict
    dropout: float
    spoilt: set[str] = field(default_factory=set)
    gradients: Callable = torch.enable_grad


class Softmax(nn.Module):
    """``masked_softmax`` as a module."""

    def forward(self, scores: Tensor, valid_lens: Tensor | None, attn_mask: Tensor | None, causal: bool) -> Tensor:
        return mha_lib.masked_softmax(scores, valid_lens, attn_mask=attn_mask, causal=causal)


def build(rng: random.Random) -> Layer | None:
    """A layer with random parameters, its sizes given or left open; None if it was spoilt, and refused by name."""
    kind, dtype = rng.choice(KINDS), rng.choice(list(TOLERANCE))
    num_heads, sizes = rng.randint(1, 4), [rng.randint(1, 4) for _ in SIZES]
    if kind not in ("multi-head", "additive"):
        sizes[1] = sizes[0]
    dropout = rng.choice([0, 0.0, 1e-300, 0.4, 1])  # one of them is active and drops nothing
    # What is left open is drawn by the first call; nothing but dropout is drawn where some weights are dropped.
    given = {name: size for name, size in zip(SIZES, sizes, strict=True) if dropout == 0.4 or rng.random() < 0.7}
    given |= {"device": rng.choice([None, "cpu", torch.device("cpu"), "meta"]) if rng.random() < 0.4 else "cpu"}
    given |= {"dtype": dtype}
    rate = 0.0 if kind == "kernel" else dropout
    if kind == "multi-head":
        make, inner = mha_lib.MultiHeadAttention, rng.choice([None, None, None, "dot product", "additive", "kernel"])
        given |= {"num_hiddens": num_heads * rng.randint(1, 3), "num_heads": num_heads, "bias": rng.random() < 0.5}
        given["num_key_value_heads"] = rng.choice([groups for groups in range(1, 5) if num_heads % groups == 0])
        where = {"device": given["device"], "dtype": dtype}
        rate = 0.0 if inner in ("additive", "kernel") else dropout
        given |= {"dropout": dropout} if inner is None else {"attention": {
            "dot product": lambda: mha_lib.DotProductAttention(dropout),
            "additive": lambda: mha_lib.AdditiveAttention(3, **where),
            "kernel": lambda: mha_lib.KernelPooling(2.0, **where),
        }[inner]()}  # fmt: skip
    elif kind == "additive":
        make = mha_lib.AdditiveAttention
        given.pop("value_size", None)
        given |= {"num_hiddens": rng.randint(1, 4), "dropout": dropout}
    elif kind == "kernel":
        make = mha_lib.KernelPooling
        given = {name: given[name] for name in ("device", "dtype")}
        given |= {"bandwidth": rng.choice([0.3, 1, 5.0]), "learnable": rng.random() < 0.5}
    elif kind == "softmax":
        return Layer(kind, Softmax(), dtype, num_heads, sizes)
    else:
        make, given = rng.choice([mha_lib.DotProductAttention, FusedAttention]), {"dropout": dropout}
    if rng.random() < 0.2:
        name = rng.choice(list(given))
        given[name] = rng.choice(SPOILT[name])
        try:
            make(**given)
        except (TypeError, ValueError) as error:
            assert str(error).startswith(f"{name} must "), f"spoilt is {name}, {given}, said was {error}"
            return None
        raise AssertionError(f"{name} went through: {given}")
    return Layer(kind, make(**given), dtype, num_heads, sizes, rate)


def draw(layer: Layer, rng: random.Random) -> Call:
    """A right call: sizes from 0 or 1 to some, with gradients or not, in training or not, weights kept or not."""
    kind, module, num_heads = layer.kind, layer.module, layer.num_heads
    batch_size, num_queries, num_keys = rng.randint(0, 3), rng.randint(0, 4), rng.randint(0, 5)
    if rng.random() < 1 / 300:  # large enough for the layer to skip padding
        num_queries, num_keys = 64, 1024
    lead = (batch_size, num_heads) if kind == "dot product with heads" else (batch_size,)
    if kind == "softmax":
        arguments = {"scores": torch.randn(*rng.choice([lead, (batch_size, num_heads)]), num_queries, num_keys)}
    else:
        numbers = zip(("queries", "keys", "values"), (num_queries, num_keys, num_keys), layer.sizes, strict=True)
        arguments = {name: torch.randn(*lead, number, size) for name, number, size in numbers}
    arguments = {name: X.to(layer.dtype) for name, X in arguments.items()}
    if layer.dtype.itemsize == 2 and "dot product" in kind and rng.random() < 0.2:
        arguments |= {name: 100 * arguments[name] for name in ("queries", "keys")}  # scores that float16 cannot hold
    arguments["valid_lens"] = lengths(rng, batch_size, num_queries, num_keys)
    scores = tuple(arguments["scores"].shape) if kind == "softmax" else (*lead, num_queries, num_keys)
    arguments["attn_mask"] = mask(rng, (batch_size, num_heads, *scores[-2:]) if kind == "multi-head" else scores)
    if kind == "multi-head":
        arguments["head_mask"] = gates(rng, batch_size, num_heads)
    arguments = {name: X if X is None or X.dim() < 2 else in_other_memory(X, rng) for name, X in arguments.items()}
    if rng.random() < 0.5:
        next(iter(arguments.values())).requires_grad_()
    parameters = list(module.parameters())
    if parameters[0].is_meta if parameters else rng.random() < 0.1:
        arguments = {name: X if X is None else X.to("meta") for name, X in arguments.items()}
    arguments["causal"] = rng.random() < 0.3
    if kind == "multi-head":
        arguments["need_weights"] = rng.random() < 0.3
    for flag in FLAGS:
        setattr(getattr(module, "attention", module), flag, rng.random() < 0.5)
    module.train(num_keys < 1024 and rng.random() < 0.5)  # dropout and skipping draw one example after the other
    return Call(kind, module, arguments, layer.dropout, gradients=rng.choice(WITH_GRADIENTS_OR_NOT))


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
    inner = getattr(call.layer, "attention", call.layer)
    if isinstance(inner, FusedAttention) and not call.arguments.get("need_weights") and rng.random() < 0.1:
        name = rng.choice(FLAGS)  # nobody asks for them where weights are asked for
        setattr(inner, name, rng.choice(NO_FLAGS))
        call.spoilt.add(name)
        return
    name = rng.choice(given)
    X = call.arguments[name]
    if name in ("causal", "need_weights"):
        call.arguments[name] = rng.choice(NO_FLAGS)
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
            is_open = any(map(nn.parameter.is_lazy, call.layer.parameters()))
            ways["another size"] = lambda: None if is_open else torch.cat([X, X], -1)
            ways["no size"] = lambda: X[..., :0]
    way = rng.choice(list(ways))
    changed = ways[way]()
    if changed is not None:
        call.arguments[name] = changed
        call.spoilt.add(name)


def run(call: Call, seed: int) -> str:
    """Make the call, hold it against what it has to give, and say which it was."""
    torch.manual_seed(seed)
    try:
        with call.gradients():
            output = call.layer(**call.arguments)
    except (TypeError, ValueError) as error:
        assert call.spoilt, f"a right call was refused: {error}"
        named = [name for name in (*call.arguments, *FLAGS) if str(error).startswith(f"{name} must ")]
        # The others are held against the first: where it is spoilt, the error may name the one that does not fit it.
        fits = set(named) <= call.spoilt or call.spoilt & {"queries", "scores"}
        assert named and fits, f"spoilt is {call.spoilt}, said was {error}"
        if call.kind != "softmax":  # not those of the call before either
            with pytest.raises(RuntimeError, match="attention_weights: there are none"):
                _ = call.layer.attention_weights
        return "refused"
    assert not call.spoilt, f"{call.spoilt} went through"
    first, need_weights = next(iter(call.arguments.values())), call.arguments.pop("need_weights", False)
    results = [*output] if need_weights else [output]
    if call.kind != "softmax":
        results.append(call.layer.attention_weights)
        assert not results[-1].requires_grad
    if first.is_meta:
        assert all(X.is_meta for X in results) and results[0].shape[:-1] == first.shape[:-1]
        return "without numbers"
    if call.kind == "softmax":
        expected = [references.masked_softmax(**call.arguments)]
    else:
        torch.manual_seed(seed)
        kept = F.dropout(torch.ones_like(results[-1]), call.dropout, call.layer.training)
        output, weights = references.attention(call.layer, **call.arguments, kept=kept)
        expected = [output, weights, weights][: len(results)]
    for result, reference in zip(results, expected, strict=True):
        assert result.dtype == first.dtype
        references.assert_same(result.double(), reference, atol=TOLERANCE[first.dtype])
    if results[0].requires_grad:
        results[0].sum().backward()
        gradients = [X.grad for X in (first, *call.layer.parameters()) if X.grad is not None]
        assert gradients and all(X.isfinite().all() for X in gradients)
    return "right"


def run_many(number_of_calls: int, seed: int = 0) -> Counter:
    """How many calls were right, refused, and without numbers; AssertionError at the first that is wrong."""
    rng, counts, layer = random.Random(seed), Counter(), None
    for attempt in range(number_of_calls):
        torch.manual_seed(attempt)
        while layer is None or rng.random() < 0.4:
            layer = build(rng)
            counts["built" if layer else "not built"] += 1
        call = draw(layer, rng)
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
            spoil(call, rng)
        try:
            counts[run(call, seed=attempt)] += 1
        except Exception as error:
            shown = {k: (tuple(X.shape), X.dtype, X.device) if isinstance(X, Tensor) else X
                     for k, X in call.arguments.items()}  # fmt: skip
            raise AssertionError(f"call {attempt} of seed {seed}, {call.layer} {call.spoilt} {shown}") from error
    return counts


@pytest.mark.cpu  # calls on several devices, from the CPU
@pytest.mark.filterwarnings("ignore:valid_lens of shape")  # some look by chance like those of causal attention
def test_every_random_call_is_right_or_refused_by_name():
    counts = run_many(1200)
    assert min(counts["right"], counts["refused"], counts["built"]) > 350
    assert min(counts["without numbers"], counts["not built"]) > 50


if __name__ == "__main__":
    print(dict(run_many(*map(int, sys.argv[1:]))))
