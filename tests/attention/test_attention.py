"""Each attention against its formula, with random numbers, in float64."""

from dataclasses import replace

import pytest
import torch
from references import (
    CHECKS,
    FORMULA,
    KERNEL,
    NUM_QUERIES,
    QUERY_SIZE,
    Case,
    assert_same,
    cases,
    check_additive,
    check_dot_product,
    check_multi_head,
    dot_product,
    kernel,
    make_layer,
    masked_softmax,
    multi_head,
    on_path,
    random_numbers,
)
from torch.nn import functional as F

from mha_lib import (
    AdditiveAttention,
    DotProductAttention,
    KernelPooling,
    MultiHeadAttention,
    attention,
)
from mha_lib.attention import AttentionPooling

CASES = cases()
both_paths = pytest.mark.parametrize("path", [KERNEL, FORMULA])


@pytest.mark.parametrize(
    "check, case",
    [
        pytest.param(check, case, id=f"{check_name}: {case_name}")
        for check_name, (check, make_cases) in CHECKS.items()
        for case_name, case in make_cases().items()
    ],
)
def test_agrees_with_the_formula(check, case):
    check(attention, case)


def test_dot_product_with_an_axis_for_heads():
    Q, K, V = random_numbers(3, 4, 5, 7), random_numbers(3, 4, 6, 7), random_numbers(3, 4, 6, 9)
    for valid_lens in (None, torch.tensor([6, 0, 2]), torch.randint(0, 7, (3, 5))):
        layer = DotProductAttention()
        output, weights = dot_product(Q, K, V, valid_lens)
        assert_same(layer(Q, K, V, valid_lens), output)
        assert_same(layer.attention_weights, weights.reshape(12, 5, 6))  # folded into the batch, as the book's


@pytest.mark.parametrize("learnable", [False, True])
@pytest.mark.parametrize("bandwidth", [0.5, 1.0, 4.0])
def test_kernel_pooling_is_nadaraya_watson_regression(bandwidth, learnable):
    queries, keys, values = random_numbers(3, 5, 2), random_numbers(3, 6, 2), random_numbers(3, 6, 4)
    layer = KernelPooling(bandwidth, learnable).double()
    assert layer.bandwidth.item() == pytest.approx(bandwidth, rel=1e-6)  # its logarithm was stored in float32
    assert layer.log_bandwidth.requires_grad == learnable
    for valid_lens in (None, torch.tensor([6, 0, 2]), torch.tensor([[1, 2, 0, 4, 6]] * 3)):
        output, weights = kernel(layer.bandwidth.item(), queries, keys, values, valid_lens)
        assert_same(layer(queries, keys, values, valid_lens), output)
        assert_same(layer.attention_weights, weights)


def test_a_scoring_function_of_ones_own():
    class Manhattan(AttentionPooling):
        def scores(self, queries, keys):
            return -(queries.unsqueeze(-2) - keys.unsqueeze(-3)).abs().sum(dim=-1)

    case = CASES["empty rows"].same_sizes
    layer = Manhattan()
    output = layer(*case.arguments)
    distances = torch.cdist(case.queries, case.keys, p=1)
    assert_same(layer.attention_weights, masked_softmax(-distances.numpy(), case.valid_lens))
    torch.testing.assert_close(output, layer.attention_weights @ case.values)
    with pytest.raises(NotImplementedError):
        AttentionPooling()(*case.arguments)


@pytest.fixture
def kernel_calls(monkeypatch):
    """A list that grows with every call of torch's fused kernel."""
    calls, fused = [], F.scaled_dot_product_attention

    def counted(*args, **kwargs):
        calls.append(args)
        return fused(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    return calls


@pytest.mark.parametrize("training, dropout, calls", [(False, 0.5, 1), (True, 0.0, 1), (True, 0.5, 0)])
def test_the_kernel_runs_unless_dropout_is_active(training, dropout, calls, kernel_calls):
    case = CASES["lengths per query"]
    make_layer(attention, case, dropout).train(training)(*case.arguments)
    assert len(kernel_calls) == calls


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_two_speeds_one_result(case, kernel_calls):
    results = {}
    for path in (KERNEL, FORMULA):
        layer = on_path(make_layer(attention, case), path)
        output = layer(*case.arguments, head_mask=case.head_mask)
        output.square().sum().backward()
        results[path] = [
            output,
            layer.attention_weights,
            *(parameter.grad for parameter in layer.parameters()),
        ]
        assert len(kernel_calls) == 1  # the first way calls it, the second does not
    torch.testing.assert_close(results[KERNEL], results[FORMULA], rtol=0, atol=1e-12)


def test_dropout_in_a_multi_head_layer():
    case, rate = CASES["lengths per query"], 0.4
    layer = make_layer(attention, case, rate)
    torch.manual_seed(0)
    output = layer(*case.arguments)
    torch.manual_seed(0)
    kept = F.dropout(torch.ones_like(layer.attention_weights), rate)
    V = layer.W_v(case.values).unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)
    heads = (layer.attention_weights * kept @ V).transpose(1, 2).flatten(2)
    torch.testing.assert_close(output, layer.W_o(heads), rtol=0, atol=1e-12)
    assert_same(layer.attention_weights, multi_head(layer, *case.arguments)[1])
    assert_same(layer.eval()(*case.arguments), multi_head(layer, *case.arguments)[0])


@both_paths
@pytest.mark.parametrize("bias", [False, True])
def test_an_empty_row_gives_the_output_bias_and_no_gradient(path, bias):
    case = replace(CASES["empty rows"], bias=bias)
    queries, keys, values = (X.clone().requires_grad_() for X in case.arguments[:3])
    layer = on_path(make_layer(attention, case), path)
    output = layer(queries, keys, values, case.valid_lens)
    empty = case.valid_lens == 0
    expected = layer.W_o.bias.detach() if bias else torch.zeros(layer.num_hiddens, dtype=torch.float64)
    assert (output[empty] == expected).all()
    assert (layer.attention_weights.transpose(1, 2)[empty] == 0).all()
    with torch.autograd.set_detect_anomaly(True):  # NaN on the way back is an error, even one that is masked later
        output.square().sum().backward()
    assert (queries.grad[empty] == 0).all()
    assert (queries.grad[~empty] != 0).any()
    assert all(X.grad.isfinite().all() for X in (queries, keys, values, *layer.parameters()))


@both_paths
def test_padding_has_no_effect_and_gets_no_gradient(path):
    case = CASES["an empty example"]
    padding = torch.arange(case.keys.shape[1]) >= case.valid_lens[:, None]
    layer = on_path(make_layer(attention, case), path)
    before = layer(*case.arguments)
    keys, values = case.keys.clone(), case.values.clone()
    keys[padding], values[padding] = 1e3, -1e3
    keys.requires_grad_()
    values.requires_grad_()
    after = layer(case.queries, keys, values, case.valid_lens)
    assert torch.equal(before, after)
    after.square().sum().backward()
    for X in (keys, values):
        assert (X.grad[padding] == 0).all()
        assert (X.grad[~padding] != 0).all(dim=-1).all()


@both_paths
@pytest.mark.parametrize("sizes", [(0, 5, 6), (3, 0, 6), (3, 5, 0), (0, 0, 0)])
def test_nothing_to_attend_with_or_to(sizes, path):
    batch_size, num_queries, num_keys = sizes
    case = Case(
        random_numbers(batch_size, num_queries, 7),
        random_numbers(batch_size, num_keys, 9),
        random_numbers(batch_size, num_keys, 10),
        bias=True,
    )
    layer = on_path(make_layer(attention, case), path)
    for shape in (None, (batch_size,), (batch_size, num_queries)):
        valid_lens = None if shape is None else torch.full(shape, num_keys)
        output = layer(case.queries, case.keys, case.values, valid_lens)
        output.sum().backward()
        assert output.shape == (batch_size, num_queries, layer.num_hiddens)
        assert layer.attention_weights.shape == (batch_size, layer.num_heads, num_queries, num_keys)
        if num_keys == 0:
            assert (output == layer.W_o.bias).all()


def test_memory_order_of_the_inputs_does_not_matter():
    case = CASES["lengths per query"]
    strided = [
        case.queries.mT.contiguous().mT,
        case.keys.transpose(0, 1).contiguous().transpose(0, 1),
        case.values.repeat_interleave(2, dim=-1)[..., ::2],
        case.valid_lens.mT.contiguous().mT,
    ]
    assert not any(X.is_contiguous() for X in strided)
    check_multi_head(attention, Case(*strided))
    check_additive(attention, Case(*strided))
    check_dot_product(attention, Case(*strided))
    expanded = random_numbers(1, NUM_QUERIES, QUERY_SIZE).expand(3, -1, -1)
    check_multi_head(attention, Case(expanded, expanded, expanded, torch.tensor([3, 1, 5])))


def test_sizes_left_out_are_taken_from_the_first_call():
    case = CASES["bias"]
    explicit, lazy = make_layer(attention, case), MultiHeadAttention(8, 4, bias=True).double()
    lazy(*case.arguments)
    assert {name: p.shape for name, p in lazy.named_parameters()} == {
        name: p.shape for name, p in explicit.named_parameters()
    }
    assert_same(lazy(*case.arguments), multi_head(lazy, *case.arguments)[0])
    lazy.load_state_dict(explicit.state_dict())
    torch.testing.assert_close(lazy(*case.arguments), explicit(*case.arguments), rtol=0, atol=0)

    additive = AdditiveAttention(8).double()
    additive(*case.arguments)
    assert additive.W_q.weight.shape == (8, 7)
    assert additive.W_k.weight.shape == (8, 9)


def test_a_state_dict_fills_a_layer_that_was_never_called():
    case = CASES["bias"]
    explicit, lazy = make_layer(attention, case), MultiHeadAttention(8, 4, bias=True).double()
    lazy.load_state_dict(explicit.state_dict())
    torch.testing.assert_close(lazy(*case.arguments), explicit(*case.arguments), rtol=0, atol=0)
