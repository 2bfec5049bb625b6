"""Bad input: every error names the argument, says what came and what is needed."""

import pytest
import torch
from references import random_numbers

from mha_lib import (
    AdditiveAttention,
    DotProductAttention,
    KernelPooling,
    MultiHeadAttention,
    masked_softmax,
    merge_heads,
    split_heads,
    transpose_output,
    transpose_qkv,
)

QUERIES, KEYS, VALUES = (
    random_numbers(3, 5, 7).float(),
    random_numbers(3, 6, 9).float(),
    random_numbers(3, 6, 10).float(),
)
SCORES = random_numbers(3, 5, 6)
SIZES = dict(query_size=7, key_size=9, value_size=10)


def multi_head(queries=QUERIES, keys=KEYS, values=VALUES, **arguments):
    return MultiHeadAttention(8, 4, **SIZES)(queries, keys, values, **arguments)


def dot_product(queries=QUERIES, keys=KEYS[..., :7], values=VALUES, valid_lens=None):
    return DotProductAttention()(queries, keys, values, valid_lens)


def additive(queries=QUERIES, keys=KEYS, values=VALUES, valid_lens=None):
    return AdditiveAttention(8, query_size=7, key_size=9)(queries, keys, values, valid_lens)


def kernel(queries=QUERIES, keys=KEYS[..., :7], values=VALUES, valid_lens=None):
    return KernelPooling()(queries, keys, values, valid_lens)


SIZE_ERRORS = {
    "indivisible": (
        lambda: MultiHeadAttention(12, 5),
        ValueError,
        ["num_hiddens", "num_hiddens=12", "num_heads=5", "divisible", "num_heads that fit: [1, 2, 3, 4, 6, 12]"],
    ),
    "no heads": (lambda: MultiHeadAttention(12, 0), ValueError, ["num_heads", "got 0", "at least 1"]),
    "negative heads": (lambda: MultiHeadAttention(12, -4), ValueError, ["num_heads", "got -4", "at least 1"]),
    "too many heads": (lambda: MultiHeadAttention(4, 8), ValueError, ["num_hiddens", "num_heads=8", "[1, 2, 4]"]),
    "half a head": (lambda: MultiHeadAttention(12, 1.5), TypeError, ["num_heads", "got 1.5", "integer"]),
    "heads: True": (lambda: MultiHeadAttention(12, True), TypeError, ["num_heads", "got True", "integer"]),
    "no hiddens": (lambda: MultiHeadAttention(0, 1), ValueError, ["num_hiddens", "got 0", "at least 1"]),
    "hiddens: text": (lambda: MultiHeadAttention("12", 3), TypeError, ["num_hiddens", "got '12'", "integer"]),
    "query_size": (lambda: MultiHeadAttention(8, 4, query_size=0), ValueError, ["query_size", "got 0"]),
    "key_size": (lambda: MultiHeadAttention(8, 4, key_size=-1), ValueError, ["key_size", "got -1"]),
    "value_size": (lambda: MultiHeadAttention(8, 4, value_size=2.0), TypeError, ["value_size", "got 2.0"]),
    "additive num_hiddens": (lambda: AdditiveAttention(0), ValueError, ["num_hiddens", "got 0"]),
    "additive query_size": (lambda: AdditiveAttention(8, query_size="7"), TypeError, ["query_size", "'7'"]),
    "additive key_size": (lambda: AdditiveAttention(8, key_size=0), ValueError, ["key_size", "got 0"]),
    "no bandwidth": (lambda: KernelPooling(0.0), ValueError, ["bandwidth", "positive", "got 0.0"]),
    "negative bandwidth": (lambda: KernelPooling(-1.0), ValueError, ["bandwidth", "positive", "got -1.0"]),
    "NaN bandwidth": (lambda: KernelPooling(torch.nan), ValueError, ["bandwidth", "positive", "got nan"]),
    "bandwidth: None": (lambda: KernelPooling(None), TypeError, ["bandwidth", "number", "got None"]),
    "bandwidth: True": (lambda: KernelPooling(True), TypeError, ["bandwidth", "number", "got True"]),
    "dropout: None": (lambda: MultiHeadAttention(8, 4, None), TypeError, ["dropout", "number from 0 to 1", "got None"]),
    "dropout: a bias": (lambda: MultiHeadAttention(8, 4, True), TypeError, ["dropout", "number", "got True"]),
    "dropout: text": (lambda: AdditiveAttention(8, "0.1"), TypeError, ["dropout", "number", "got '0.1'"]),
    "negative dropout": (lambda: DotProductAttention(-0.1), ValueError, ["dropout", "from 0 to 1", "got -0.1"]),
    "NaN dropout": (lambda: DotProductAttention(torch.nan), ValueError, ["dropout", "from 0 to 1", "got nan"]),
    "older order": (
        lambda: MultiHeadAttention(9, 7, 10, 8, 4, 0.5),
        TypeError,
        [
            "MultiHeadAttention",
            "by keyword: MultiHeadAttention(key_size=…, query_size=…, value_size=…, num_hiddens=…, ",
        ],
    ),
    "older order with bias": (
        lambda: MultiHeadAttention(9, 7, 10, 8, 4, 0.5, True),
        TypeError,
        ["MultiHeadAttention", "by keyword: MultiHeadAttention(key_size=…", "num_heads=…, dropout=…)"],
    ),
    "older additive order": (
        lambda: AdditiveAttention(9, 7, 8, 0.1),
        TypeError,
        ["AdditiveAttention", "by keyword: AdditiveAttention(key_size=…, query_size=…, num_hiddens=…, dropout=…)"],
    ),
}

SEQUENCE_ERRORS = {
    "queries: list": (
        lambda: multi_head(QUERIES.tolist()),
        TypeError,
        ["queries", "tensor of shape (batch, number, size)", "got list"],
    ),
    "keys: array": (lambda: multi_head(keys=KEYS.numpy()), TypeError, ["keys", "tensor", "got ndarray"]),
    "values: None": (lambda: dot_product(values=None), TypeError, ["values", "tensor", "got NoneType"]),
    "queries: rank 2": (
        lambda: multi_head(QUERIES[0]),
        ValueError,
        ["queries", "(batch, number, size)", "got (5, 7)"],
    ),
    "keys: rank 5": (
        lambda: additive(keys=KEYS[None, None]),
        ValueError,
        ["keys", "(batch, number, size) or (batch, num_heads, number, size)", "(1, 1, 3, 6, 9)"],
    ),
    "keys: rank 4, queries: rank 3": (lambda: additive(keys=KEYS[None]), ValueError, ["keys", "(1, 3, 6, 9)"]),
    "multi-head queries: rank 4": (
        lambda: multi_head(QUERIES[None]),
        ValueError,
        ["queries must have shape (batch, number, size), got (1, 3, 5, 7)"],
    ),
    "values: rank 2, heads allowed": (
        lambda: dot_product(values=VALUES[0]),
        ValueError,
        ["values", "(batch, number, size) or (batch, num_heads, number, size)", "(6, 10)"],
    ),
    "queries: integers": (lambda: kernel(QUERIES.long()), TypeError, ["queries", "floating-point", "got torch.int64"]),
    "values: bool": (lambda: kernel(values=VALUES > 0), TypeError, ["values", "floating-point", "got torch.bool"]),
    "queries: complex": (
        lambda: dot_product(QUERIES.to(torch.complex64)),
        TypeError,
        ["queries", "floating-point", "got torch.complex64"],
    ),
    "queries: 8 bits": (
        lambda: dot_product(QUERIES.to(torch.float8_e4m3fn)),
        TypeError,
        ["queries", "floating-point numbers of 16, 32 or 64 bits", "got torch.float8_e4m3fn"],
    ),
    "keys: sparse": (
        lambda: kernel(keys=KEYS[..., :7].to_sparse()),
        TypeError,
        ["keys", "dense", "got torch.sparse_coo"],
    ),
    "keys: other batch": (
        lambda: multi_head(keys=KEYS[:2]),
        ValueError,
        ["keys", "batch size of queries", "queries is (3, 5, 7)", "keys is (2, 6, 9)"],
    ),
    "values: other batch": (lambda: additive(values=VALUES[:1]), ValueError, ["values", "batch size", "(1, 6, 10)"]),
    "keys: other heads": (
        lambda: dot_product(QUERIES[:, None], KEYS[:, None, :, :7].expand(-1, 2, -1, -1), VALUES[:, None]),
        ValueError,
        ["keys", "(3, 1, 5, 7)", "(3, 2, 6, 7)"],
    ),
    "keys: other dtype": (
        lambda: multi_head(keys=KEYS.double()),
        TypeError,
        ["keys", "dtype of queries, torch.float32", "got torch.float64"],
    ),
    "values: other dtype": (lambda: dot_product(values=VALUES.half()), TypeError, ["values", "got torch.float16"]),
    "values: other number": (lambda: multi_head(values=VALUES[:, :4]), ValueError, ["values", "6 keys", "4 values"]),
    "dot product: other size": (
        lambda: dot_product(keys=KEYS),
        ValueError,
        ["keys", "size of queries", "7, got 9", "AdditiveAttention and MultiHeadAttention"],
    ),
    "kernel: other size": (lambda: kernel(keys=KEYS), ValueError, ["keys", "size of queries", "7, got 9"]),
}

LAYER_ERRORS = {
    "query_size": (
        lambda: multi_head(QUERIES[..., :6]),
        ValueError,
        ["queries", "size 7 on the last axis", "query_size", "(3, 5, 6)"],
    ),
    "key_size": (lambda: multi_head(keys=KEYS[..., 1:]), ValueError, ["keys", "size 9", "key_size", "(3, 6, 8)"]),
    "value_size": (
        lambda: multi_head(values=VALUES[..., 1:]),
        ValueError,
        ["values", "size 10", "value_size", "(3, 6, 9)"],
    ),
    "additive query_size": (lambda: additive(QUERIES[..., :6]), ValueError, ["queries", "size 7", "query_size"]),
    "additive key_size": (lambda: additive(keys=KEYS[..., :8]), ValueError, ["keys", "size 9", "key_size"]),
    "dtype": (
        lambda: multi_head(QUERIES.double(), KEYS.double(), VALUES.double()),
        TypeError,
        ["queries", "dtype of the layer's parameters, torch.float32", "got torch.float64", "layer.to(torch.float64)"],
    ),
    "additive dtype": (
        lambda: additive(QUERIES.half(), KEYS.half(), VALUES.half()),
        TypeError,
        ["queries", "parameters, torch.float32", "got torch.float16"],
    ),
    "gates: list": (
        lambda: multi_head(head_mask=[1, 1, 0, 1]),
        TypeError,
        ["head_mask", "tensor of shape (4,) or (3, 4)", "got list"],
    ),
    "gates: one too few": (
        lambda: multi_head(head_mask=torch.ones(3)),
        ValueError,
        ["head_mask", "(4,) or (3, 4)", "one gate a head", "got (3,)"],
    ),
    "gates: other batch": (lambda: multi_head(head_mask=torch.ones(1, 4)), ValueError, ["head_mask", "got (1, 4)"]),
    "gates: a number": (lambda: multi_head(head_mask=torch.tensor(1.0)), ValueError, ["head_mask", "got ()"]),
    "split: rank": (lambda: split_heads(QUERIES[0], 7), ValueError, ["X", "(batch, number, size)", "(5, 7)"]),
    "split: indivisible": (
        lambda: transpose_qkv(QUERIES, 2),
        ValueError,
        ["num_hiddens", "num_hiddens=7", "num_heads=2", "[1, 7]"],
    ),
    "split: no heads": (lambda: split_heads(QUERIES, 0), ValueError, ["num_heads", "got 0"]),
    "merge: rank": (
        lambda: merge_heads(QUERIES),
        ValueError,
        ["X", "(batch, num_heads, number, head_size)", "(3, 5, 7)"],
    ),
    "merge: batch": (
        lambda: transpose_output(QUERIES, 2),
        ValueError,
        ["X", "(batch · num_heads, number, head_size)", "num_heads=2", "(3, 5, 7)"],
    ),
    "merge folded: rank": (lambda: transpose_output(QUERIES[0], 5), ValueError, ["X", "num_heads=5", "(5, 7)"]),
    "merge folded: heads": (lambda: transpose_output(QUERIES, "3"), TypeError, ["num_heads", "got '3'"]),
    "gates: complex": (
        lambda: multi_head(head_mask=torch.ones(4, dtype=torch.complex64)),
        TypeError,
        ["head_mask", "real numbers", "got torch.complex64"],
    ),
    "scores: list": (lambda: masked_softmax(SCORES.tolist()), TypeError, ["scores", "tensor", "got list"]),
    "scores: integers": (
        lambda: masked_softmax(SCORES.long(), torch.tensor([4, 1, 6])),
        TypeError,
        ["scores", "floating-point", "got torch.int64"],
    ),
    "scores: rank": (
        lambda: masked_softmax(SCORES[0], torch.tensor([1])),
        ValueError,
        ["scores", "(batch, num_queries, num_keys) or (batch, num_heads, num_queries, num_keys)", "(5, 6)"],
    ),
}

LENGTH_ERRORS = {
    "list": ([4, 1, 6], TypeError, ["tensor of shape (3,) or (3, 5)", "got list"]),
    "number": (4, TypeError, ["tensor of shape (3,) or (3, 5)", "got int"]),
    "bool mask of the keys": (torch.ones(3, 6, dtype=torch.bool), TypeError, ["counts", "bool mask", "mask.sum(-1)"]),
    "bool of a fitting shape": (torch.ones(3, dtype=torch.bool), TypeError, ["counts", "bool mask", "mask.sum(-1)"]),
    "sparse": (torch.tensor([4, 1, 6]).to_sparse(), TypeError, ["dense", "got torch.sparse_coo"]),
    "too long in 16 bits": (
        torch.tensor([4, 7, 1], dtype=torch.uint16),
        ValueError,
        ["between 0 and the number of keys, 6", "got 1 to 7"],
    ),
    "complex": (torch.ones(3, dtype=torch.complex64), TypeError, ["counts", "got torch.complex64"]),
    "negative": (torch.tensor([4, -1, 6]), ValueError, ["between 0 and the number of keys, 6", "got -1 to 6"]),
    "too long": (torch.tensor([4, 7, 1]), ValueError, ["between 0 and the number of keys, 6", "got 1 to 7"]),
    "NaN": (torch.tensor([4, torch.nan, 1]), ValueError, ["between 0 and the number of keys, 6", "got nan"]),
    "infinite": (torch.tensor([4, torch.inf, 1]), ValueError, ["between 0 and the number of keys, 6", "inf"]),
    "a fraction": (torch.tensor([4, 2.5, 1]), ValueError, ["whole numbers", "got 2.5"]),
    "one number": (torch.tensor(4), ValueError, ["shape (3,) or (3, 5)", "got ()"]),
    "other batch": (torch.tensor([4, 1]), ValueError, ["shape (3,) or (3, 5)", "got (2,)"]),
    "a length that would broadcast": (torch.tensor([4]), ValueError, ["shape (3,) or (3, 5)", "got (1,)"]),
    "a column that would broadcast": (torch.ones(3, 1), ValueError, ["shape (3,) or (3, 5)", "got (3, 1)"]),
    "one a key": (torch.ones(3, 6), ValueError, ["shape (3,) or (3, 5)", "got (3, 6)"]),
    "one a head": (torch.ones(3, 4, 5), ValueError, ["shape (3,) or (3, 5)", "got (3, 4, 5)"]),
}

LENGTH_TAKERS = {
    "multi-head": lambda valid_lens: multi_head(valid_lens=valid_lens),
    "dot product": lambda valid_lens: dot_product(valid_lens=valid_lens),
    "additive": lambda valid_lens: additive(valid_lens=valid_lens),
    "kernel": lambda valid_lens: kernel(valid_lens=valid_lens),
    "softmax": lambda valid_lens: masked_softmax(SCORES, valid_lens),
}


def check_message(call, exception, fragments):
    """The call fails with just this exception; its message starts with the first fragment and holds the others."""
    with pytest.raises(exception) as caught:
        call()
    assert type(caught.value) is exception
    assert str(caught.value).startswith(fragments[0])
    for fragment in fragments:
        assert fragment in str(caught.value)


ELSEWHERE = {
    "keys": lambda: multi_head(keys=KEYS.to("meta")),
    "values": lambda: dot_product(values=VALUES.to("meta")),
    "queries": lambda: multi_head(QUERIES.to("meta"), KEYS.to("meta"), VALUES.to("meta")),
    "queries of an additive attention": lambda: additive(QUERIES.to("meta"), KEYS.to("meta"), VALUES.to("meta")),
    "keys of a kernel": lambda: kernel(keys=KEYS[..., :7].to("meta")),
    "head_mask": lambda: multi_head(head_mask=torch.ones(4, device="meta")),
} | {
    f"valid_lens of {name}": lambda call=call: call(valid_lens=torch.tensor([4, 1, 6], device="meta"))
    for name, call in {"multi_head": multi_head, "dot_product": dot_product, "additive": additive, "kernel": kernel}
    .items()
}  # fmt: skip


@pytest.mark.parametrize("argument", ELSEWHERE)
def test_a_tensor_on_another_device(argument):
    check_message(ELSEWHERE[argument], ValueError, [argument.split()[0], "on the device of", "cpu", "got meta"])


def test_lengths_on_another_device_than_scores():
    lengths = torch.tensor([4, 1, 6])
    fragments = ["valid_lens", "on the device of the scores", "meta", "got cpu"]
    check_message(lambda: masked_softmax(SCORES.to("meta"), lengths), ValueError, fragments)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("called_before", [False, True])
def test_jit_trace(called_before):
    layer = MultiHeadAttention(8, 4, **SIZES)
    if called_before:
        layer(QUERIES, KEYS, VALUES)
    with pytest.raises(RuntimeError, match=r"torch\.jit\.trace.* cannot record .*: use torch\.export"):
        torch.jit.trace(layer, (QUERIES, KEYS, VALUES))


ERRORS = SIZE_ERRORS | SEQUENCE_ERRORS | LAYER_ERRORS


@pytest.mark.parametrize("call, exception, fragments", ERRORS.values(), ids=ERRORS)
def test_arguments(call, exception, fragments):
    check_message(call, exception, fragments)


@pytest.mark.parametrize("valid_lens, exception, fragments", LENGTH_ERRORS.values(), ids=LENGTH_ERRORS)
@pytest.mark.parametrize("taker", LENGTH_TAKERS.values(), ids=LENGTH_TAKERS)
def test_lengths(taker, valid_lens, exception, fragments):
    check_message(lambda: taker(valid_lens), exception, ["valid_lens", *fragments])


def test_a_refused_call_leaves_no_weights_behind():
    layer = MultiHeadAttention(8, 4, **SIZES)
    with pytest.raises(ValueError, match="valid_lens"):
        layer(QUERIES, KEYS, VALUES, torch.tensor([7, 7, 7]))
    with pytest.raises(RuntimeError, match="there are none"):
        _ = layer.attention_weights


@pytest.mark.parametrize("lazy", [MultiHeadAttention(8, 4), AdditiveAttention(8)])
def test_dtype_of_a_layer_with_open_sizes(lazy):
    check_message(
        lambda: lazy(QUERIES.double(), KEYS.double(), VALUES.double()),
        TypeError,
        ["queries", "dtype of the layer's parameters, torch.float32", "got torch.float64"],
    )


def test_mixed_dtypes_on_the_meta_device():
    queries, values = QUERIES.to("meta"), VALUES.to("meta")
    check_message(lambda: dot_product(queries, queries.double(), values), TypeError, ["keys", "got torch.float64"])
