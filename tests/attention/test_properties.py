"""What must hold for all shapes, lengths, precisions and gates, tried on many drawn at random."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from references import FORMULA, KERNEL, assert_same, multi_head, on_path

from mha_lib import DotProductAttention, MultiHeadAttention, masked_softmax

many = settings(derandomize=True, max_examples=60)
TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 4e-2, torch.float32: 1e-5, torch.float64: 1e-12}
dtypes = st.sampled_from(list(TOLERANCE))
paths = st.sampled_from([KERNEL, FORMULA])


@st.composite
def calls(draw, same_size=False, min_keys=0):
    """Queries, keys and values in float64, and lengths of any kind: (queries, keys, values, valid_lens)."""
    torch.manual_seed(draw(st.integers(0, 2**16)))
    batch_size, num_queries = draw(st.integers(0, 3)), draw(st.integers(0, 4))
    num_keys = draw(st.integers(min_keys, 5))
    query_size, value_size = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    key_size = query_size if same_size else draw(st.integers(1, 4))
    shape = draw(st.sampled_from([None, (batch_size,), (batch_size, num_queries)]))
    valid_lens = None
    if shape is not None:
        valid_lens = torch.randint(0, num_keys + 1, shape)
        valid_lens = valid_lens.to(draw(st.sampled_from([torch.int64, torch.int32, torch.float32])))
    sizes = (num_queries, query_size), (num_keys, key_size), (num_keys, value_size)
    return *(2 * torch.randn(batch_size, *size, dtype=torch.float64) for size in sizes), valid_lens


def check_rows(weights, valid_lens, tolerance):
    """Weights are not negative, 0 at invalid keys, and each row sums to 1, or to 0 where no key is valid."""
    num_keys = weights.shape[-1]
    lengths = torch.tensor(num_keys) if valid_lens is None else valid_lens
    lengths = lengths.reshape(-1, 1, 1) if lengths.dim() < 2 else lengths.unsqueeze(-1)
    lengths = lengths.unsqueeze(1) if weights.dim() == 4 else lengths
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    assert (weights.masked_select(torch.arange(num_keys) >= lengths) == 0).all()
    sums = weights.double().sum(dim=-1, keepdim=True)
    torch.testing.assert_close(sums, (lengths > 0).double().expand_as(sums), rtol=0, atol=tolerance)


@many
@given(calls(same_size=True), dtypes)
def test_masked_softmax_gives_weights(call, dtype):
    queries, keys, _, valid_lens = call
    scores = (queries @ keys.mT).to(dtype)
    weights = masked_softmax(scores, valid_lens)
    assert weights.dtype == dtype
    check_rows(weights, valid_lens, TOLERANCE[dtype])


@many
@given(calls(), st.integers(1, 4), st.integers(1, 3), st.sampled_from([None, 1, 2]), st.booleans(), dtypes, paths)
def test_multi_head_attention_agrees_with_the_formula(call, num_heads, head_size, gates_rank, bias, dtype, path):
    queries, keys, values, valid_lens = call
    sizes = dict(query_size=queries.shape[-1], key_size=keys.shape[-1], value_size=values.shape[-1])
    layer = MultiHeadAttention(num_heads * head_size, num_heads, bias=bias, **sizes).double()
    head_mask = None
    if gates_rank is not None:
        head_mask = torch.randn((len(queries), num_heads)[-gates_rank:], dtype=torch.float64)
    output, weights = multi_head(layer, queries, keys, values, valid_lens, head_mask)
    layer = on_path(layer, path).to(dtype)
    gates = None if head_mask is None else head_mask.to(dtype)
    actual = layer(queries.to(dtype), keys.to(dtype), values.to(dtype), valid_lens, gates)
    assert actual.dtype == dtype
    assert_same(actual.double(), output, atol=10 * TOLERANCE[dtype])
    assert_same(layer.attention_weights.double(), weights, atol=TOLERANCE[dtype])
    check_rows(layer.attention_weights, valid_lens, TOLERANCE[dtype])


@many
@given(calls(min_keys=1), st.integers(1, 4), st.randoms(use_true_random=False), paths)
def test_the_order_of_the_keys_does_not_matter(call, num_heads, random, path):
    queries, keys, values, _ = call
    layer = on_path(MultiHeadAttention(2 * num_heads, num_heads).double(), path)
    order = list(range(keys.shape[1]))
    random.shuffle(order)
    output = layer(queries, keys, values)
    weights = layer.attention_weights
    torch.testing.assert_close(layer(queries, keys[:, order], values[:, order]), output, rtol=0, atol=1e-12)
    torch.testing.assert_close(layer.attention_weights, weights[..., order], rtol=0, atol=1e-12)


@many
@given(calls(same_size=True, min_keys=1), paths)
def test_an_output_lies_in_the_convex_hull_of_the_valid_values(call, path):
    queries, keys, values, valid_lens = call
    output = on_path(DotProductAttention(), path)(queries, keys, values, valid_lens)
    lengths = torch.tensor(keys.shape[1]) if valid_lens is None else valid_lens.long()
    lengths = lengths.reshape(-1, 1).expand(output.shape[:2]) if lengths.dim() < 2 else lengths
    directions = torch.randn(values.shape[-1], 8, dtype=torch.float64)  # in each, the hull is an interval
    for b, t in (lengths > 0).nonzero().tolist():
        reach = values[b, : lengths[b, t]] @ directions
        seen = output[b, t] @ directions
        assert (seen >= reach.amin(0) - 1e-12).all()
        assert (seen <= reach.amax(0) + 1e-12).all()
    assert (output[lengths == 0] == 0).all()


@many
@given(calls(), st.integers(1, 4), st.data(), paths)
def test_a_gate_of_0_is_a_head_that_is_not_there(call, num_heads, data, path):
    queries, keys, values, valid_lens = call
    layer = on_path(MultiHeadAttention(2 * num_heads, num_heads).double(), path)
    gates = torch.tensor(data.draw(st.lists(st.booleans(), min_size=num_heads, max_size=num_heads)))
    gated = layer(queries, keys, values, valid_lens, head_mask=gates.double())
    with torch.no_grad():
        layer.W_v.weight.unflatten(0, (num_heads, 2))[~gates] = 0
    torch.testing.assert_close(gated, layer(queries, keys, values, valid_lens), rtol=0, atol=1e-12)
