"""The layer under what PyTorch does to functions: compile, export, vmap, grad; other precisions and devices."""

import pytest
import torch
from references import cases, make_additive, make_layer, random_numbers
from torch._dynamo.testing import CompileCounter
from torch.func import functional_call, grad, jacrev, vmap

from mha_lib import DotProductAttention, KernelPooling, MultiHeadAttention, attention, masked_softmax

CASES = cases()
CASE = CASES["gates, lengths and bias"]
NO_WEIGHTS = "attention_weights: there are none"


@pytest.fixture(params=[False, True], ids=["weights on demand", "weights kept"])
def layer(request):
    made = make_layer(attention, CASE).eval()
    made.attention.keep_weights = request.param
    return made


def call(layer, case=CASE):
    return layer(*case.arguments, head_mask=case.head_mask)


def check_no_weights(layer):
    with pytest.raises(RuntimeError, match=NO_WEIGHTS):
        _ = layer.attention_weights


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # torch's own use of it
def test_compile_in_one_graph(layer):
    expected = call(layer)
    assert layer.attention_weights.shape == (3, 4, 5, 6)
    # Not the default backend: it writes C++, and fails without a compiler or in a folder with a space in its name.
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(call(compiled), expected, rtol=0, atol=1e-12)
    check_no_weights(layer)  # not even those of the call before
    call(layer)
    assert layer.attention_weights.shape == (3, 4, 5, 6)


def test_every_attention_traces_into_one_graph():
    X, valid_lens = random_numbers(3, 5, 7), torch.tensor([1, 0, 5])
    square = cases()["all keys"].same_sizes
    for layer in (DotProductAttention(), KernelPooling().double(), make_additive(attention, square)):
        compiled = torch.compile(layer, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(X, X, X, valid_lens), layer(X, X, X, valid_lens))


SIZES = (3, 5), (4, 6), (5, 9), (6, 7), (7, 300)
LENGTHS = {
    "none": lambda batch_size, num_tokens: None,
    "per example": lambda batch_size, num_tokens: torch.randint(0, num_tokens + 1, (batch_size,)),
    "per query": lambda batch_size, num_tokens: torch.randint(0, num_tokens + 1, (batch_size, num_tokens)),
}
every_length = pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)


@every_length
@pytest.mark.parametrize("how, graphs", [({}, 2), ({"dynamic": True}, 1)], ids=["by default", "dynamic"])
def test_other_sizes_need_no_other_graphs(lengths, how, graphs):
    """By default one graph for the first sizes and one for all others, as torch's own layer; one if told so."""
    torch.compiler.reset()
    counter = CompileCounter()
    layer = MultiHeadAttention(8, 4, query_size=7, key_size=7, value_size=7).double().eval()
    compiled = torch.compile(layer, backend=counter, fullgraph=True, **how)
    for batch_size, num_tokens in SIZES:
        X, valid_lens = random_numbers(batch_size, num_tokens, 7), lengths(batch_size, num_tokens)
        torch.testing.assert_close(compiled(X, X, X, valid_lens), layer(X, X, X, valid_lens))
    assert counter.frame_count == graphs


@every_length
def test_export_with_batch_and_length_left_open(lengths):
    layer = MultiHeadAttention(8, 4, query_size=7, key_size=7, value_size=7).double().eval()
    open_sizes = {0: torch.export.Dim("batch_size"), 1: torch.export.Dim("num_tokens")}
    X, valid_lens = random_numbers(3, 5, 7), lengths(3, 5)
    of_lengths = None if valid_lens is None else {axis: open_sizes[axis] for axis in range(valid_lens.dim())}
    shapes = (open_sizes, open_sizes, open_sizes, of_lengths)
    exported = torch.export.export(layer, (X, X, X, valid_lens), dynamic_shapes=shapes).module()
    for batch_size, num_tokens in ((1, 5), (2, 400)):
        X, valid_lens = random_numbers(batch_size, num_tokens, 7), lengths(batch_size, num_tokens)
        torch.testing.assert_close(exported(X, X, X, valid_lens), layer(X, X, X, valid_lens))


def test_export(layer):
    exported = torch.export.export(layer, CASE.arguments, {"head_mask": CASE.head_mask}).module()
    torch.testing.assert_close(exported(*CASE.arguments, head_mask=CASE.head_mask), call(layer), rtol=0, atol=1e-12)
    other = (*CASE.arguments[:3], CASE.valid_lens.flip(0))
    torch.testing.assert_close(
        exported(*other, head_mask=CASE.head_mask), layer(*other, CASE.head_mask), rtol=0, atol=1e-12
    )


def test_export_with_sizes_left_open(layer):
    batch_size, num_queries, num_keys = (torch.export.Dim(name, min=2) for name in ("batch_size", "queries", "keys"))
    shapes = (
        {0: batch_size, 1: num_queries},
        {0: batch_size, 1: num_keys},
        {0: batch_size, 1: num_keys},
        {0: batch_size, 1: num_queries},
    )
    exported = torch.export.export(layer, CASE.arguments, dynamic_shapes=shapes).module()
    other = random_numbers(2, 3, 7), random_numbers(2, 8, 9), random_numbers(2, 8, 10), torch.tensor([[1, 8, 0]] * 2)
    torch.testing.assert_close(exported(*other), layer(*other), rtol=0, atol=1e-12)


def test_vmap_over_calls(layer):
    stacked = [torch.stack([X, X.flip(0), X.roll(1, 0)]) for X in (*CASE.arguments, CASE.head_mask)]
    expected = torch.stack([layer(*arguments) for arguments in zip(*stacked, strict=True)])
    assert layer.attention_weights is not None
    torch.testing.assert_close(vmap(layer)(*stacked), expected, rtol=0, atol=1e-12)
    check_no_weights(layer)


def test_vmap_over_gates(layer):
    gates = torch.eye(4, dtype=torch.float64)
    each = vmap(lambda head_mask: layer(*CASE.arguments, head_mask))(gates)
    none, every = layer(*CASE.arguments, 0 * gates[0]), layer(*CASE.arguments)
    torch.testing.assert_close((each - none).sum(0), every - none, rtol=0, atol=1e-12)


def test_vmap_over_the_other_attentions():
    X, valid_lens = random_numbers(4, 3, 5, 7), torch.randint(0, 6, (4, 3))
    square = cases()["all keys"].same_sizes
    for layer in (DotProductAttention(), KernelPooling().double(), make_additive(attention, square)):
        expected = torch.stack([layer(x, x, x, lens) for x, lens in zip(X, valid_lens, strict=True)])
        torch.testing.assert_close(vmap(layer)(X, X, X, valid_lens), expected, rtol=0, atol=1e-12)
        check_no_weights(layer)
    scores = random_numbers(4, 3, 5, 5)
    expected = torch.stack([masked_softmax(s, lens) for s, lens in zip(scores, valid_lens, strict=True)])
    torch.testing.assert_close(vmap(masked_softmax)(scores, valid_lens), expected, rtol=0, atol=1e-12)


def test_grad_of_the_parameters(layer):
    parameters = dict(layer.named_parameters())

    def loss(parameters):
        return functional_call(layer, parameters, CASE.arguments, {"head_mask": CASE.head_mask}).square().sum()

    loss(parameters).backward()
    gradients = grad(loss)({name: parameter.detach() for name, parameter in parameters.items()})
    for name, parameter in parameters.items():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=0, atol=1e-11)
    check_no_weights(layer)


def test_gradient_of_each_example(layer):
    def loss(head_mask, *example):
        return layer(*(X[None] for X in example), head_mask).square().sum()

    each = vmap(grad(loss))(CASE.head_mask, *CASE.arguments)
    head_mask = CASE.head_mask.clone().requires_grad_()
    layer(*CASE.arguments, head_mask).square().sum().backward()
    torch.testing.assert_close(each, head_mask.grad, rtol=0, atol=1e-11)


def test_jacobian_of_the_gates(layer):
    gates = torch.ones(4, dtype=torch.float64)
    jacobian = jacrev(lambda head_mask: layer(*CASE.arguments, head_mask))(gates)
    without = [layer(*CASE.arguments, gates - gate) for gate in torch.eye(4, dtype=torch.float64)]
    expected = torch.stack([layer(*CASE.arguments) - output for output in without], dim=-1)  # linear in the gates
    torch.testing.assert_close(jacobian, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_autocast(layer, training):
    layer.float().train(training)
    case = CASES["empty rows"]
    arguments = [X.float() for X in case.arguments[:3]]
    expected = layer(*arguments, case.valid_lens)
    expected_weights = layer.attention_weights
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(*arguments, case.valid_lens)
    output.float().sum().backward()
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), expected, rtol=0, atol=0.05)
    torch.testing.assert_close(layer.attention_weights.float(), expected_weights, rtol=0, atol=0.02)
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in layer.parameters())


def test_autocast_takes_mixed_precision(layer):
    layer.float()
    queries, keys, values = (X.float() for X in CASE.arguments[:3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(queries, keys.bfloat16(), values)
    assert output.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_with_empty_rows(layer, dtype):
    expected = call(layer)
    layer.to(dtype)
    queries, keys, values = (X.to(dtype) for X in CASE.arguments[:3])
    output = layer(queries, keys, values, CASE.valid_lens, CASE.head_mask)
    assert output.dtype == layer.attention_weights.dtype == dtype
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=0.05)
    output.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_meta_device(layer):
    layer.to("meta")
    output = layer(*(X.to("meta") for X in CASE.arguments), CASE.head_mask.to("meta"))
    assert output.is_meta
    assert output.shape == (3, 5, 8)
    assert layer.attention_weights.shape == (3, 4, 5, 6)
