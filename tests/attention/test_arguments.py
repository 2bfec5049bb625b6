"""Bad input: every error names the argument, says what came and what is needed.

That *every* spoilt argument is refused by name is tried in ``test_random_calls``; here stands what the errors say.
"""

import re
from functools import partial

import pytest
import torch
from references import GATES, LENGTHS, PER_QUERY, SIZES, random_numbers, sequences

import mha_lib
from mha_lib import AdditiveAttention, DotProductAttention, KernelPooling, MultiHeadAttention
from mha_lib.attention import FusedAttention

pytestmark = pytest.mark.cpu  # messages name the CPU, and numbers of lengths are read and refused there alone

QUERIES, KEYS, VALUES = (X.float() for X in sequences())
GIVEN = dict(queries=QUERIES, keys=KEYS, values=VALUES)
SCORES = random_numbers(3, 5, 6)
LAYERS = {
    "multi-head": MultiHeadAttention(8, 4, **SIZES),
    "dot product": DotProductAttention(),
    "additive": AdditiveAttention(8, query_size=7, key_size=9),
    "kernel": KernelPooling(),
}
open_sizes = MultiHeadAttention(8, 4)


def call(layer="multi-head", /, **changed):
    same_sizes = {"keys": KEYS[..., :7]} if layer in ("dot product", "kernel") else {}
    return LAYERS[layer](**GIVEN | same_sizes | changed)


def refuses(error, message, function, *given, **options):
    """The call fails with just this exception; its message starts so, … standing for anything."""
    pattern = ".*".join(map(re.escape, message.replace(" …", "…").split("…")))
    with pytest.raises(error) as caught:
        function(*given, **options)
    assert type(caught.value) is error
    assert re.match(pattern, str(caught.value), re.DOTALL), str(caught.value)


BUILT = [
    (ValueError, "num_hiddens must be divisible by num_heads, got num_hiddens=12, num_heads=5; num_heads that "
     "fit: [1, 2, 3, 4, 6, 12]", MultiHeadAttention, (12, 5)),
    (ValueError, "num_hiddens…num_heads=8…[1, 2, 4]", MultiHeadAttention, (4, 8)),
    (ValueError, "num_heads must be at least 1, got 0", MultiHeadAttention, (12, 0)),
    (TypeError, "num_heads must be an integer, got True", MultiHeadAttention, (12, True)),
    (TypeError, "num_hiddens must be an integer, got '12'", MultiHeadAttention, ("12", 3)),
    (ValueError, "num_hiddens must be at least 1, got 0", AdditiveAttention, (0,)),
    (TypeError, "dropout must be a number from 0 to 1, got None", MultiHeadAttention, (8, 4, None)),
    (TypeError, "dropout must be a number from 0 to 1, got True", MultiHeadAttention, (8, 4, True)),
    (ValueError, "dropout must be from 0 to 1, got -0.1", DotProductAttention, (-0.1,)),
    (ValueError, "dropout must be from 0 to 1, got nan", DotProductAttention, (torch.nan,)),
    (ValueError, "bandwidth must be positive, got nan", KernelPooling, (torch.nan,)),
    (TypeError, "learnable must be True or False, got 'yes'", KernelPooling, (1.0, "yes")),
    (TypeError, "bias must be True or False, got 'no'", MultiHeadAttention, (8, 4, 0.0, "no")),
    (TypeError, "bandwidth must be a number, got None", KernelPooling, (None,)),
    (TypeError, "MultiHeadAttention takes num_hiddens, num_heads, dropout, bias by position;…by keyword: MultiHeadAtt"
     "ention(key_size=…, query_size=…, value_size=…, num_hiddens=…, num_heads=…, dropout=…)",
     MultiHeadAttention, [8] * 6),
    (TypeError, "AdditiveAttention…by keyword: AdditiveAttention(key_size=…, query_size=…, num_hiddens=…, dropout=…)",
     AdditiveAttention, (9, 7, 8, 0.1)),
    (ValueError, "X must have shape (batch, number, size), got (5, 7)", mha_lib.split_heads, (QUERIES[0], 7)),
    (ValueError, "num_hiddens…num_hiddens=7, num_heads=2…[1, 7]", mha_lib.transpose_qkv, (QUERIES, 2)),
    (ValueError, "X must have shape (batch, num_heads, number, head_size), got (3, 6", mha_lib.merge_heads, [KEYS]),
    (ValueError, "X must have shape (batch · num_heads, number, head_size) with num_heads=2, got (3, 5, 7)",
     mha_lib.transpose_output, (QUERIES, 2)),
    (TypeError, "num_heads must be an integer, got '3'", mha_lib.transpose_output, (QUERIES, "3")),
    (TypeError, "scores must be a tensor of shape (batch, num_queries, num_keys) or (batch, num_heads, "
     "num_queries, num_keys), got list", mha_lib.masked_softmax, (SCORES.tolist(),)),
    (TypeError, "scores…floating-point…got torch.int64", mha_lib.masked_softmax, (SCORES.long(),)),
    (ValueError, "scores…(batch, num_queries, num_keys) or…got (5, 6)", mha_lib.masked_softmax, (SCORES[0],)),
    (ValueError, "valid_lens must be on the device of the scores, meta, got cpu",
     mha_lib.masked_softmax, (SCORES.to("meta"), LENGTHS["per example"])),
    (TypeError, "causal must be True or False, got 1", lambda: mha_lib.masked_softmax(SCORES, causal=1), ()),
    (TypeError, "queries must have the dtype of the layer's parameters, torch.float32, got torch.float64",
     open_sizes, [X.double() for X in GIVEN.values()]),
    (ValueError, "dropout must be left to the attention…got 0.1",
     partial(MultiHeadAttention, attention=FusedAttention(), dropout=0.1), (8, 4)),
    (TypeError, "attention must be an instance of AttentionPooling, got <class",
     partial(MultiHeadAttention, attention=FusedAttention), (8, 4)),
    (TypeError, "attention must be an instance of AttentionPooling, got Linear",
     partial(MultiHeadAttention, attention=torch.nn.Linear(8, 4)), (8, 4)),
    (ValueError, "num_key_value_heads must divide num_heads, got …=3, num_heads=4",
     partial(MultiHeadAttention, num_key_value_heads=3), (8, 4)),
    (ValueError, "num_key_value_heads must be at least 1, got 0",
     partial(MultiHeadAttention, num_key_value_heads=0), (8, 4)),
    (TypeError, "num_key_value_heads must be an integer, got 2.0",
     partial(MultiHeadAttention, num_key_value_heads=2.0), (8, 4)),
]  # fmt: skip


@pytest.mark.parametrize("error, message, function, given", BUILT, ids=[message[:50] for _, message, *_ in BUILT])
def test_sizes_and_functions(error, message, function, given):
    refuses(error, message, function, *given)


MADE = {
    "open sizes": partial(MultiHeadAttention, 8, 4),
    "sizes": partial(MultiHeadAttention, 8, 4, bias=True, num_key_value_heads=2, **SIZES),
    "additive, open sizes": partial(AdditiveAttention, 8),
    "additive": partial(AdditiveAttention, 8, query_size=7, key_size=9),
    "kernel": partial(KernelPooling, 0.5),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_where_and_how_parameters_are_made(make):
    """What torch takes is taken; what it does not take, or does not compute attention in, is refused by name."""
    for device in ("no such", -1, "cpu:no", ""):
        refuses(ValueError, f"device must be one that torch has here, got {device!r}: ", make, device=device)
    for device in (3.5, True, ["cpu"]):
        refuses(TypeError, f"device must be one that torch has here, got {device!r}: ", make, device=device)
    for dtype in ("float32", 32, [torch.float32]):
        refuses(TypeError, f"dtype must be one that torch has here, got {dtype!r}: ", make, dtype=dtype)
    for dtype in (torch.int64, torch.bool, torch.complex64, torch.float8_e5m2, int):
        refuses(TypeError, f"dtype must be …numbers of 16, 32 or 64 bits, got {dtype}", make, dtype=dtype)
    for device in ("cpu", "cpu:0", "meta", torch.device("cpu"), torch.device("meta"), None):
        for dtype in (None, float, torch.bfloat16):
            expected = torch.empty(0, device=device, dtype=dtype)
            made = make(device=device, dtype=dtype).parameters()
            assert {(p.device, p.dtype) for p in made} == {(expected.device, expected.dtype)}


def test_a_bandwidth_is_learned_only_where_it_is_asked_for_and_as_exact_as_its_dtype():
    assert KernelPooling(0.5, dtype=torch.float64).bandwidth.item() == pytest.approx(0.5, rel=1e-15)
    assert [KernelPooling(0.5, learnable).log_bandwidth.requires_grad for learnable in (False, True)] == [False, True]


@pytest.mark.parametrize("name", GIVEN)
def test_no_size_is_taken_for_a_size_that_was_left_open(name):
    """Its parameters would be numbers that nobody wrote."""
    message = f"{name} must have size 1 or more on the last axis ("
    of_size_0 = GIVEN | {name: GIVEN[name][..., :0]}
    for layer in [MultiHeadAttention(8, 4, bias=True)] + [AdditiveAttention(8)] * (name != "values"):
        refuses(ValueError, message, layer, **of_size_0)
        assert layer(**GIVEN).isfinite().all()


ANY = "(batch, number, size) or (batch, num_heads, number, size)"
CALLED = [
    ("multi-head", dict(queries=QUERIES.tolist()), TypeError, "must be a tensor of shape (batch, number, size), got"),
    ("dot product", dict(values=None), TypeError, "must be a tensor…got NoneType"),
    ("multi-head", dict(queries=QUERIES[0]), ValueError, "must have shape (batch, number, size), got (5, 7)"),
    ("additive", dict(keys=KEYS[None, None]), ValueError, f"must have shape {ANY}, got (1, 1, 3, 6, 9)"),
    ("dot product", dict(values=VALUES[0]), ValueError, f"must have shape {ANY}, got (6, 10)"),
    ("kernel", dict(queries=QUERIES.long()), TypeError, "must hold floating-point numbers…got torch.int64"),
    ("dot product", dict(queries=QUERIES.to(torch.float8_e4m3fn)), TypeError, "…of 16, 32 or 64 bits, got torch.fl"),
    ("kernel", dict(keys=KEYS[..., :7].to_sparse()), TypeError, "must be a dense tensor, got torch.sparse_coo"),
    ("multi-head", dict(keys=KEYS[:2]), ValueError, "…batch size of queries: queries is (3, 5, 7), keys is (2, 6, 9)"),
    ("multi-head", dict(keys=KEYS.double()), TypeError, "must have the dtype of queries, torch.float32, got torch"),
    ("multi-head", dict(values=VALUES[:, :4]), ValueError, "must be as many as keys: 6 keys, 4 values"),
    ("dot product", dict(keys=KEYS), ValueError, "must have the size of queries on the last axis: 7, got 9; Additive"),
    ("multi-head", dict(queries=QUERIES[..., :6]), ValueError, "must have size 7 on the last axis (query_size), got "),
    ("multi-head", dict(keys=KEYS[..., 1:]), ValueError, "must have size 9 on the last axis (key_size), got (3, 6, 8)"),
    ("multi-head", dict(values=VALUES[..., 1:]), ValueError, "must have size 10 on the last axis (value_size)"),
    ("additive", dict(queries=QUERIES[..., :6]), ValueError, "must have size 7 on the last axis (query_size)"),
    ("additive", dict(keys=KEYS[..., :8]), ValueError, "must have size 9 on the last axis (key_size)"),
    ("multi-head", {name: X.double() for name, X in GIVEN.items()}, TypeError,
     "must have the dtype of the layer's parameters, torch.float32, got torch.float64; …layer.to(torch.float64)"),
    ("additive", {name: X.half() for name, X in GIVEN.items()}, TypeError, "…parameters, torch.float32, got torch"),
    ("multi-head", dict(head_mask=[1, 1, 0, 1]), TypeError, "must be a tensor of shape (4,) or (3, 4), got list"),
    ("multi-head", dict(head_mask=torch.ones(3)), ValueError, "must have shape (4,) or (3, 4), one gate a head, got "),
    ("multi-head", dict(head_mask=torch.ones(4).cfloat()), TypeError, "must hold real numbers, got torch.complex64"),
    ("multi-head", dict(causal=QUERIES), TypeError, "must be True or False"),
    *(("multi-head", {name: X.to("meta")}, ValueError, "must be on the device of …, cpu, got meta") for name, X in
      dict(keys=KEYS, values=VALUES, head_mask=GATES, valid_lens=PER_QUERY, attn_mask=torch.ones(5, 6)).items()),
    *((layer, dict(valid_lens=PER_QUERY.to("meta")), ValueError, "must be on the device of the scores, cpu, got meta")
      for layer in LAYERS),
    ("multi-head", {name: X.to("meta") for name, X in GIVEN.items()}, ValueError,
     "must be on the device of the layer's parameters, cpu, got meta"),
]  # fmt: skip


@pytest.mark.parametrize("layer, changed, error, message", CALLED)
def test_calls(layer, changed, error, message):
    refuses(error, f"{next(iter(changed))} {message}", call, layer, **changed)


SHAPES = "must have shape (3,) or (3, 5), got"
COUNTS = "must hold counts of valid keys, got a bool mask; …mask.sum(-1)"
LENGTH_ERRORS = [
    ([4, 1, 6], TypeError, "must be a tensor of shape (3,) or (3, 5), got list"),
    (torch.ones(3, 6, dtype=torch.bool), TypeError, COUNTS),
    (torch.tensor([4, 1, 6]).to_sparse(), TypeError, "must be a dense tensor, got torch.sparse_coo"),
    (torch.ones(3, dtype=torch.complex64), TypeError, "must hold counts of valid keys, got torch.complex64"),
    (torch.tensor([4, -1, 6]), ValueError, "must lie between 0 and the number of keys, 6; got -1 to 6"),
    (
        torch.tensor([4, 7, 1], dtype=torch.uint16),
        ValueError,
        "must lie between 0 and the number of keys, 6; got 1 to 7",
    ),
    (torch.tensor([4, torch.nan, 1]), ValueError, "must lie between 0 and the number of keys, 6; got nan"),
    (torch.tensor([4, 2.5, 1]), ValueError, "must hold whole numbers, got 2.5"),
    (torch.tensor([4]), ValueError, f"{SHAPES} (1,)"),
    (torch.ones(3, 1), ValueError, f"{SHAPES} (3, 1)"),
    (torch.ones(3, 4, 5), ValueError, f"{SHAPES} (3, 4, 5)"),
]


@pytest.mark.parametrize("valid_lens, error, message", LENGTH_ERRORS, ids=str)
def test_lengths(valid_lens, error, message):
    for layer in LAYERS:
        refuses(error, f"valid_lens {message}", call, layer, valid_lens=valid_lens)
    refuses(error, f"valid_lens {message}", mha_lib.masked_softmax, SCORES, valid_lens)


MASK_ERRORS = [
    (torch.ones(5, 6).long(), TypeError, "must be bool, …or floats …got torch.int64"),
    ([[True]], TypeError, "must be a tensor of shape (5, 6) or (3 or 1, 2 or 1, 5 or 1, 6), got list"),
    (torch.ones(6), ValueError, "must have shape (5, 6) or …got (6,)"),
    (torch.ones(5, 1), ValueError, "must have shape …got (5, 1)"),
    (torch.ones(2, 1, 5, 6), ValueError, "must have shape …got (2, 1, 5, 6)"),
]


@pytest.mark.parametrize("attn_mask, error, message", MASK_ERRORS, ids=str)
def test_masks(attn_mask, error, message):
    Q, K = random_numbers(3, 2, 5, 4), random_numbers(3, 2, 6, 4)
    for layer in (DotProductAttention(), FusedAttention()):
        refuses(error, f"attn_mask {message}", layer, Q, K, K, attn_mask=attn_mask)
