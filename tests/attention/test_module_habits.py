"""What users of PyTorch expect of a layer: where it lies, what replaces its parts, what records it, derivatives."""

import copy

import pytest
import torch
from references import cases, make_layer, random_numbers
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from mha_lib import AdditiveAttention, KernelPooling, MultiHeadAttention, attention
from mha_lib.attention import FusedAttention

CASE = cases()["gates, lengths and bias"]
SIZES = dict(query_size=6, key_size=6, value_size=6)
X, LENGTHS = random_numbers(3, 5, 6), torch.tensor([4, 0, 2])


def layer(**options):
    torch.manual_seed(0)
    return MultiHeadAttention(8, 4, **SIZES, **options).double().eval()


@pytest.mark.parametrize("sizes", [{}, SIZES], ids=["open sizes", "sizes"])
def test_parameters_are_made_where_and_how_they_are_asked_for(sizes):
    where = dict(device="meta", dtype=torch.float64)
    made = [
        MultiHeadAttention(8, 4, bias=True, num_key_value_heads=2, **sizes, **where),
        AdditiveAttention(8, **{name: size for name, size in sizes.items() if name != "value_size"}, **where),
        KernelPooling(0.5, **where),
    ]
    for module in made:
        assert all(p.device.type == "meta" and p.dtype == torch.float64 for p in module.parameters())
    assert KernelPooling(0.5, dtype=torch.float64).bandwidth.item() == pytest.approx(0.5, rel=1e-15)


# Other modules in the place of projections.


class LowRank(nn.Module):
    """A map with a correction of low rank, as in LoRA; it has neither ``weight`` nor ``in_features``."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False, dtype=torch.float64)
        self.up = nn.Linear(rank, base.out_features, bias=False, dtype=torch.float64)

    def forward(self, X):
        return self.base(X) + self.up(self.down(X))


@pytest.mark.parametrize("name", ["W_q", "W_k", "W_v", "W_o"])
def test_a_wrapped_projection(name):
    wrapped, merged = layer(), layer()
    low_rank = LowRank(getattr(wrapped, name))
    setattr(wrapped, name, low_rank)
    with torch.no_grad():
        getattr(merged, name).weight += low_rank.up.weight @ low_rank.down.weight
    expected = merged(X, X, X, LENGTHS)
    torch.testing.assert_close(wrapped(X, X, X, LENGTHS), expected, rtol=0, atol=1e-12)
    setattr(merged, name, nn.Sequential(getattr(merged, name), nn.Identity()))
    torch.testing.assert_close(merged(X, X, X, LENGTHS), expected, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore:.*TypedStorage is deprecated")
@pytest.mark.filterwarnings("ignore:.*quantize_per_tensor", "ignore:.*quantized")
def test_quantised_projections():
    whole = layer().float()
    quantised = torch.ao.quantization.quantize_dynamic(copy.deepcopy(whole), {nn.Linear}, dtype=torch.qint8)
    assert type(quantised.W_q) is not nn.Linear
    Y = X.float()
    torch.testing.assert_close(quantised(Y, Y, Y, LENGTHS), whole(Y, Y, Y, LENGTHS), rtol=0, atol=0.05)
    with pytest.raises(ValueError, match="queries must have size 6 on the last axis"):
        quantised(Y[..., :5], Y, Y)


# Weights of layers that keep none.


def test_weights_are_returned_where_they_are_asked_for():
    whole = layer()
    expected = whole(X, X, X, LENGTHS, causal=True), whole.attention_weights
    actual = whole(X, X, X, LENGTHS, causal=True, need_weights=True)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    assert torch.autograd.grad(actual[1].square().sum(), whole.W_q.weight)[0].any()
    Q = random_numbers(3, 5, 6)
    pooling = FusedAttention()
    torch.testing.assert_close(pooling.attend(Q, X, X, LENGTHS)[0], pooling(Q, X, X, LENGTHS), rtol=0, atol=1e-12)
    torch.testing.assert_close(pooling.attend(Q, X, X, LENGTHS)[1], pooling.attention_weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"attn_mask": torch.ones(5, 5).tril()}], ids=str)
def test_weights_of_a_compiled_and_of_an_exported_layer(options):
    torch.compiler.reset()
    whole = layer()
    options = options | {"need_weights": True}
    expected = whole(X, X, X, LENGTHS, **options)
    counter = CompileCounter()
    compiled = torch.compile(whole, backend=counter, fullgraph=True)
    torch.testing.assert_close(compiled(X, X, X, LENGTHS, **options), expected, rtol=0, atol=1e-12)
    exported = torch.export.export(whole, (X, X, X, LENGTHS), options).module()
    torch.testing.assert_close(exported(X, X, X, LENGTHS, **options), expected, rtol=0, atol=1e-12)


def test_a_causal_layer_with_masks_and_shared_heads_needs_no_more_graphs():
    torch.compiler.reset()
    counter, whole = CompileCounter(), layer(num_key_value_heads=2)
    compiled = torch.compile(whole, backend=counter, fullgraph=True, dynamic=True)
    for batch_size, n in ((3, 5), (4, 7), (5, 300)):
        Y, bias, lengths = random_numbers(batch_size, n, 6), random_numbers(n, n), torch.randint(0, n, (batch_size,))
        expected = whole(Y, Y, Y, lengths, attn_mask=bias, causal=True)
        torch.testing.assert_close(compiled(Y, Y, Y, lengths, attn_mask=bias, causal=True), expected)
    assert counter.frame_count == 1


# Tensors without numbers, and functions that are recorded.


@pytest.mark.parametrize("lengths", [None, LENGTHS, LENGTHS[:, None].expand(3, 5)], ids=["none", "1-D", "2-D"])
@pytest.mark.parametrize("keep_weights", [False, True])
def test_fake_tensors_and_recording(lengths, keep_weights):
    whole = layer()
    whole.attention.keep_weights = keep_weights
    expected = whole(X, X, X, lengths, causal=True)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [None if Y is None else mode.from_tensor(Y) for Y in (X, lengths)]
        output = whole(fake[0], fake[0], fake[0], fake[1], causal=True)
    assert output.shape == (3, 5, 8)
    with pytest.raises(RuntimeError, match="attention_weights: there are none"):
        _ = whole.attention_weights
    other = None if lengths is None else lengths.flip(0)
    for tracing in ("real", "fake", "symbolic"):
        record = make_fx(
            lambda Y, lens: whole(Y, Y, Y, lens, causal=True), tracing_mode=tracing, _allow_non_fake_inputs=True
        )
        recorded = record(X, lengths)
        torch.testing.assert_close(recorded(X, lengths), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(recorded(X, other), whole(X, X, X, other, causal=True), rtol=0, atol=1e-12)


class Reads(TorchDispatchMode):
    """Counts how often a number is read out of a tensor, for which a GPU would have to be waited for."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[:, None].expand(3, 5)], ids=["1-D", "2-D"])
def test_numbers_are_read_on_the_cpu_alone(lengths):
    whole = layer()
    with Reads() as on_cpu:
        whole(X, X, X, lengths)
    assert on_cpu.count > 0  # they are: lengths are checked
    away = [Y.to("meta") for Y in (X, lengths)]
    whole.to("meta")
    with Reads() as elsewhere:
        whole(away[0], away[0], away[0], away[1])
        _ = whole.attention_weights
    assert elsewhere.count == 0


# Derivatives.


def test_second_derivatives_by_the_formula_and_none_by_the_kernel():
    module = make_layer(attention, CASE)
    given = [Y.clone().requires_grad_() for Y in CASE.arguments[:3]]

    def gradient_of_gradient():
        output = module(*given, CASE.valid_lens).square().sum()
        (first,) = torch.autograd.grad(output, given[0], create_graph=True)
        return torch.autograd.grad(first.square().sum(), given[1])[0]

    with pytest.raises(RuntimeError, match=r"derivative for .* is not implemented"):
        gradient_of_gradient()
    module.attention.keep_weights = True
    assert gradient_of_gradient().any()
    pooling = attention.DotProductAttention()
    small = [random_numbers(2, 3, 2).requires_grad_() for _ in range(3)]
    assert torch.autograd.gradgradcheck(lambda *tensors: pooling(*tensors, torch.tensor([2, 0])), small)
