"""The layer under what PyTorch does to modules: compile, export, vmap, grad, autocast, other dtypes, devices, parts."""

import copy

import pytest
import torch
from on_device import DEVICE
from references import (
    GATES_PER_EXAMPLE,
    LENGTHS,
    check,
    close,
    make_additive,
    make_layer,
    on_way,
    random_numbers,
    sequences,
)
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, grad, jacrev, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from mha_lib import AdditiveAttention, DotProductAttention, KernelPooling, MultiHeadAttention, masked_softmax
from mha_lib.attention import FusedAttention

pytestmark = [
    pytest.mark.real_device,  # all of it is compiled, traced, transformed
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated"),  # torch's own use of it
]

GIVEN = *sequences(), LENGTHS["empty rows"], GATES_PER_EXAMPLE
SQUARE = dict(query_size=6, key_size=6, value_size=6)
X, X_LENGTHS = random_numbers(3, 5, 6), torch.tensor([4, 0, 2])


@pytest.fixture(params=["kernel", "kept"])
def layer(request):
    return on_way(make_layer(), request.param)


def square_layer(**options):
    return make_layer(bias=False, **SQUARE, **options).eval()


def others():
    return DotProductAttention(), KernelPooling().double(), make_additive()


def arguments_of(layer, *lead):
    """Random queries, keys and values that fit one of the attentions without heads."""
    key_size = 9 if isinstance(layer, AdditiveAttention) else 7
    given = (random_numbers(*lead, 3, n, d) for n, d in ((5, 7), (6, key_size), (6, 4)))
    return *given, torch.randint(0, 7, (*lead, 3))


def check_no_weights(layer):
    with pytest.raises(RuntimeError, match="attention_weights: there are none"):
        _ = layer.attention_weights


# Compiled and exported.


@pytest.mark.slow
def test_compile_in_one_graph(layer):
    expected = layer(*GIVEN)
    # Not the default backend: it writes C++, and fails without a compiler or in a folder with a space in its name.
    close(torch.compile(layer, fullgraph=True, backend="aot_eager")(*GIVEN), expected)
    check_no_weights(layer)  # not even those of the call before
    layer(*GIVEN)
    assert layer.attention_weights.shape == (3, 4, 5, 6)


def test_every_attention_traces_into_one_graph_and_maps():
    for layer in others():
        given = arguments_of(layer)
        close(torch.compile(layer, fullgraph=True, backend="eager")(*given), layer(*given))
        stacked = arguments_of(layer, 4)
        close(vmap(layer)(*stacked), torch.stack([layer(*given) for given in zip(*stacked, strict=True)]))
        vmap(layer)(*stacked)
        check_no_weights(layer)
    scores, lens = random_numbers(4, 3, 5, 5), torch.randint(0, 6, (4, 3))
    expected = torch.stack([masked_softmax(*given) for given in zip(scores, lens, strict=True)])
    close(vmap(masked_softmax)(scores, lens), expected)
    with torch.no_grad():
        close(vmap(masked_softmax)(scores, lens), expected)


@pytest.mark.parametrize("options", [{}, {"num_key_value_heads": 2}], ids=str)
def test_compile_before_the_first_call_where_sizes_are_open(options):
    """torch traces the call anew once a size is known: nothing may go another way then."""
    torch.compiler.reset()
    open_sizes = MultiHeadAttention(8, 4, bias=True, **options).double()
    with torch.no_grad():  # torch breaks the graph here, and with gradients warns of its own way to go on
        output = torch.compile(open_sizes, backend="eager")(*GIVEN)
    assert open_sizes.W_q.weight.shape == (8, 7)
    close(output, open_sizes(*GIVEN))


OF_SIZES = {
    "no lengths": lambda b, n: {},
    "per example": lambda b, n: dict(valid_lens=torch.randint(0, n + 1, (b,))),
    "per query": lambda b, n: dict(valid_lens=torch.randint(0, n + 1, (b, n))),
    "all masks": lambda b, n: dict(valid_lens=torch.randint(0, n, (b,)), attn_mask=random_numbers(n, n), causal=True),
}
every_mask = pytest.mark.parametrize("masks", OF_SIZES.values(), ids=OF_SIZES)


@pytest.mark.quarter
@every_mask
@pytest.mark.parametrize("how, graphs", [({}, 2), ({"dynamic": True}, 1)], ids=["by default", "dynamic"])
def test_other_sizes_need_no_other_graphs(masks, how, graphs):
    """By default one graph for the first sizes and one for all others, as torch's own layer; one if told so."""
    torch.compiler.reset()
    counter, layer = CompileCounter(), square_layer(num_key_value_heads=2 if how else 4)
    compiled = torch.compile(layer, backend=counter, fullgraph=True, **how)
    for b, n in ((3, 5), (4, 6), (5, 9), (7, 300)):
        Y, options = random_numbers(b, n, 6), masks(b, n)
        close(compiled(Y, Y, Y, **options), layer(Y, Y, Y, **options))
    assert counter.frame_count == graphs


@pytest.mark.quarter
@every_mask
def test_export_with_batch_and_lengths_left_open(masks, layer):
    """Gates go with it, and lengths other than those of the example."""
    b, n = (torch.export.Dim(name, min=2) for name in ("batch_size", "num_tokens"))
    shapes = dict(valid_lens=(b, n), attn_mask=(n, n), causal=())
    layer, options = square_layer(), masks(3, 5)
    shapes = {
        name: dict(enumerate(shapes[name][: X.dim()])) if torch.is_tensor(X) else None for name, X in options.items()
    }
    shapes |= {name: {0: b, 1: n} for name in ("queries", "keys", "values")} | {"head_mask": {0: b}}
    given = dict(queries=X, keys=X, values=X, head_mask=GATES_PER_EXAMPLE, **options)
    exported = torch.export.export(layer, (), given, dynamic_shapes=shapes).module()
    for b, n in ((2, 3), (4, 400)):
        Y = random_numbers(b, n, 6)
        given = dict(queries=Y, keys=Y, values=Y, head_mask=random_numbers(b, 4), **masks(b, n))
        close(exported(**given), layer(**given))


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"attn_mask": 2 * torch.ones(5, 5).tril()}], ids=str)
def test_weights_are_returned_where_they_are_asked_for(options):
    torch.compiler.reset()
    whole, options = square_layer(), options | {"need_weights": True}
    output, weights = whole(X, X, X, X_LENGTHS, **options)
    options.pop("need_weights")
    close((output, weights), (whole(X, X, X, X_LENGTHS, **options), whole.attention_weights))
    assert torch.autograd.grad(weights.square().sum(), whole.W_q.weight)[0].any()
    options["need_weights"] = True
    compiled = torch.compile(whole, backend="eager", fullgraph=True)
    exported = torch.export.export(whole, (X, X, X, X_LENGTHS), options).module()
    for recorded in (compiled, exported):
        whole(X, X, X)
        close(recorded(X, X, X, X_LENGTHS, **options), (output, weights))
        if recorded is compiled:
            check_no_weights(whole)
    pooling = FusedAttention()
    close(pooling.attend(X, X, X, X_LENGTHS), (pooling(X, X, X, X_LENGTHS), pooling.attention_weights))


@pytest.mark.quarter
@pytest.mark.parametrize("lengths", [None, X_LENGTHS, X_LENGTHS[:, None].expand(3, 5)], ids=["none", "1-D", "2-D"])
@pytest.mark.parametrize("way", ["kernel", "kept"])
def test_fake_tensors_and_recording(lengths, way):
    whole = on_way(square_layer(), way)
    expected = whole(X, X, X, lengths, causal=True)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [None if Y is None else mode.from_tensor(Y) for Y in (X, lengths)]
        assert whole(fake[0], fake[0], fake[0], fake[1], causal=True).shape == (3, 5, 8)
    check_no_weights(whole)
    other = None if lengths is None else lengths.flip(0)
    for tracing in ("real", "fake", "symbolic"):
        record = make_fx(
            lambda Y, lens: whole(Y, Y, Y, lens, causal=True), tracing_mode=tracing, _allow_non_fake_inputs=True
        )
        recorded = record(X, lengths)
        close(recorded(X, lengths), expected)
        close(recorded(X, other), whole(X, X, X, other, causal=True))


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("called_before", [False, True])
def test_jit_trace_is_refused(called_before):
    layer = square_layer()
    if called_before:
        layer(X, X, X)
    with pytest.raises(RuntimeError, match=r"torch\.jit\.trace.* cannot record .*: use torch\.export"):
        torch.jit.trace(layer, (X, X, X))


# Function transforms.


def test_vmap(layer):
    stacked = [torch.stack([Y, Y.flip(0), Y.roll(1, 0)]) for Y in GIVEN]
    close(vmap(layer)(*stacked), torch.stack([layer(*given) for given in zip(*stacked, strict=True)]))
    vmap(layer)(*stacked)
    check_no_weights(layer)
    gates = torch.eye(4, dtype=torch.float64)
    each = vmap(lambda head_mask: layer(*GIVEN[:4], head_mask))(gates)
    none, every = layer(*GIVEN[:4], 0 * gates[0]), layer(*GIVEN[:4])
    close((each - none).sum(0), every - none)
    jacobian = jacrev(lambda head_mask: layer(*GIVEN[:4], head_mask))(torch.ones(4, dtype=torch.float64))
    close(jacobian.movedim(-1, 0), each - none)  # linear in the gates


def test_grad(layer):
    def loss(parameters, head_mask):
        return functional_call(layer, parameters, (*GIVEN[:4], head_mask)).square().sum()

    def loss_of_one(head_mask, *example):
        return layer(*(Y[None] for Y in example), head_mask).square().sum()

    gates, parameters = GIVEN[4].clone().requires_grad_(), dict(layer.named_parameters())
    loss(parameters, gates).backward()
    gradients = grad(loss)({name: parameter.detach() for name, parameter in parameters.items()}, GIVEN[4])
    check_no_weights(layer)
    for name, parameter in parameters.items():
        close(gradients[name], parameter.grad, atol=1e-11)
    close(vmap(grad(loss_of_one))(GIVEN[4], *GIVEN[:4]), gates.grad, atol=1e-11)


# Precisions and devices.


@pytest.mark.parametrize("training", [True, False])
def test_autocast(layer, training):
    layer.float().train(training)
    queries, keys, values = (Y.float() for Y in GIVEN[:3])
    expected = layer(queries, keys, values, GIVEN[3]), layer.attention_weights
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        assert layer(queries, keys.bfloat16(), values).isfinite().all()
        output = layer(queries, keys, values, GIVEN[3])
    output.float().sum().backward()
    assert output.dtype == torch.bfloat16
    close((output.float(), layer.attention_weights.float()), expected, atol=0.05)
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in layer.parameters())


class Reads(TorchDispatchMode):
    """Counts how often a number is read out of a tensor, for which a GPU would have to be waited for."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default)
        return function(*args, **(kwargs or {}))


@pytest.mark.cpu
@pytest.mark.parametrize("lengths", [LENGTHS["per example"], LENGTHS["per query"]], ids=["1-D", "2-D"])
def test_numbers_are_read_on_the_cpu_alone(lengths, layer):
    with Reads() as on_cpu:
        layer(*GIVEN[:3], lengths)
    assert on_cpu.count > 0  # they are: lengths are checked
    layer.to("meta")
    with Reads() as elsewhere:
        output = layer(*(Y.to("meta") for Y in (*GIVEN[:3], lengths, GIVEN[4])))
        assert layer.attention_weights.shape == (3, 4, 5, 6)
    assert output.is_meta and output.shape == (3, 5, 8)
    assert elsewhere.count == 0


# Other modules in the place of projections.


class LowRank(nn.Module):
    """A map with a correction of low rank, as in LoRA; it has neither ``weight`` nor ``in_features``."""

    def __init__(self, base):
        super().__init__()
        self.base, self.correction = base, random_numbers(base.out_features, 2) @ random_numbers(2, base.in_features)

    def forward(self, X):
        return self.base(X) + X @ self.correction.T


@pytest.mark.parametrize("name", ["W_q", "W_k", "W_v", "W_o"])
def test_a_wrapped_projection(name):
    wrapped, merged = square_layer(), square_layer()
    low_rank = LowRank(getattr(wrapped, name))
    setattr(wrapped, name, low_rank)
    with torch.no_grad():
        getattr(merged, name).weight += low_rank.correction
    check(merged, X, X, X, valid_lens=X_LENGTHS)
    expected = merged(X, X, X, X_LENGTHS)
    close(wrapped(X, X, X, X_LENGTHS), expected)
    setattr(merged, name, nn.Sequential(getattr(merged, name), nn.Identity()))
    close(merged(X, X, X, X_LENGTHS), expected, atol=0)


@pytest.mark.cpu  # torch's quantised maps are of the CPU alone
@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore:.*TypedStorage is deprecated")
@pytest.mark.filterwarnings("ignore:.*quantize_per_tensor", "ignore:.*quantized")
def test_quantised_projections():
    whole, Y = square_layer().float(), X.float()
    quantised = torch.ao.quantization.quantize_dynamic(copy.deepcopy(whole), {nn.Linear}, dtype=torch.qint8)
    assert type(quantised.W_q) is not nn.Linear
    close(quantised(Y, Y, Y, X_LENGTHS), whole(Y, Y, Y, X_LENGTHS), atol=0.05)
    with pytest.raises(ValueError, match="queries must have size 6 on the last axis"):
        quantised(Y[..., :5], Y, Y)
