"""The same layer elsewhere gives the same numbers: the loop over heads, torch's layer, d2l's layer."""

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from references import (
    CASES,
    GATES,
    LENGTHS,
    assert_same,
    attention,
    check,
    close,
    make_layer,
    random_numbers,
    sequences,
)
from torch import nn
from torch.nn.utils import parametrize, prune

import mha_lib
from mha_course.heads import prune_attention
from mha_lib import MultiHeadAttention
from mha_lib.attention import AdditiveAttention, FusedAttention, converters

EIGHT = dict.fromkeys(("query_size", "key_size", "value_size"), 8)
needs_d2l = pytest.mark.skipif(importlib.util.find_spec("d2l") is None, reason="d2l is not installed")
TORCH = converters.to_torch, converters.from_torch, converters.call_torch
D2L = converters.to_d2l, converters.from_d2l, converters.call_d2l
every_library = pytest.mark.parametrize(
    "there, back, call", [pytest.param(*TORCH, id="torch"), pytest.param(*D2L, id="d2l", marks=needs_d2l)]
)


def ours(bias=False, dropout=0.0, **sizes):
    return make_layer(dropout, bias, **EIGHT | sizes).eval()


@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_loop_over_heads_is_the_formula(case, groups):
    layer = make_layer(num_key_value_heads=groups)
    results = converters.loop_over_heads(layer, *sequences(), **case)
    for result, expected in zip(results, attention(layer, *sequences(), **case), strict=True):
        assert_same(result, expected)


def test_the_loop_over_heads_has_the_gradients_of_the_layer():
    layer, lengths = make_layer(), LENGTHS["an empty example"]
    *given, gates = (X.clone().requires_grad_() for X in (*sequences(), GATES))
    everything = [*given, gates, *layer.parameters()]
    expected = torch.autograd.grad(layer(*given, lengths, gates).square().sum(), everything)
    output, weights = converters.loop_over_heads(layer, *given, lengths, gates)
    assert not weights.requires_grad
    close(torch.autograd.grad(output.square().sum(), everything), expected)


@pytest.mark.real_device
@every_library
@pytest.mark.parametrize("sizes", [{}, {"key_size": 9}, dict(key_size=9, value_size=10)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_there_and_back_again(there, back, call, sizes, bias):
    """Output and weights are the same there and, of a layer that began there, here."""
    layer = ours(bias, **sizes)
    inputs = [random_numbers(3, n, W.weight.shape[1]) for n, W in ((5, layer.W_q), (6, layer.W_k), (6, layer.W_v))]
    peer = there(layer)
    for lengths in (None, LENGTHS["per example"], LENGTHS["per query"]):
        for result, expected in zip(call(peer, *inputs, lengths), attention(layer, *inputs, lengths), strict=True):
            assert_same(result, expected)
        check(back(peer), *inputs, valid_lens=lengths)


@pytest.mark.real_device
@needs_d2l
def test_a_layer_that_d2l_made():
    peer, X = converters.load_d2l().MultiHeadAttention(8, 4, 0.0, bias=True).double().eval(), sequences()
    with pytest.raises(ValueError, match="peer has open sizes: call d2l's layer once"):
        converters.from_d2l(peer)
    output = peer(*X, LENGTHS["per query"])
    layer = converters.from_d2l(peer)
    close(layer(*X, LENGTHS["per query"]), output)
    assert list(layer.state_dict()) == list(make_layer().state_dict())
    assert peer.state_dict().keys() == layer.state_dict().keys()


@pytest.mark.real_device
@every_library
@pytest.mark.parametrize("trained", [["W_o.weight"], ["W_q", "W_k", "W_v"], ["W_k.weight", "W_o.bias"], []], ids=str)
def test_there_and_back_keeps_parameters_mode_dropout_dtype_and_what_is_trained(there, back, call, trained):
    training = len(trained) == 1
    layer = ours(bias=True, dropout=0.3, key_size=9).train(training)  # key_size: so that torch keeps the weights apart
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(any(name.startswith(start) for start in trained))
    peer = there(layer)
    assert sum(p.requires_grad for p in peer.parameters()) > 0 or not trained
    again = back(peer)
    assert peer.training == again.training == training
    assert again.attention.dropout.p == 0.3
    assert again.state_dict().keys() == layer.state_dict().keys()
    for name, parameter in again.state_dict().items():
        assert torch.equal(parameter, layer.state_dict()[name]) and parameter.dtype == torch.float64
        assert again.get_parameter(name).requires_grad == layer.get_parameter(name).requires_grad
    with torch.no_grad():
        for parameter in peer.parameters():
            parameter.zero_()
    assert layer.W_o.weight.any() and again.W_o.weight.any()  # the peer has weights of its own


class Doubled(FusedAttention):
    def scores(self, queries, keys):
        return 2 * super().scores(queries, keys)


def partly_trained(name, **options):
    layer = ours(**options)
    layer.get_parameter(name).requires_grad_(False)
    return layer


ALL_OR_NONE = "layer must train W_q, W_k and W_v all or none for torch's layer"
REFUSALS = [
    (lambda: ours(query_size=7), "query_size = num_hiddens for torch's layer, got 7 and 8"),
    (lambda: MultiHeadAttention(8, 4), "open query_size: call it once"),
    (lambda: MultiHeadAttention(8, 4, query_size=8), "open key_size: call it once"),
    (lambda: MultiHeadAttention(8, 4, query_size=8, key_size=8), "open value_size: call it once"),
    (lambda: partly_trained("W_k.weight"), ALL_OR_NONE),
    (lambda: partly_trained("W_v.bias", bias=True, key_size=9), ALL_OR_NONE),
    (lambda: nn.MultiheadAttention(8, 4, add_bias_kv=True), "add_bias_kv=False"),
    (lambda: nn.MultiheadAttention(8, 4, add_zero_attn=True), "add_zero_attn=False"),
]


@pytest.mark.real_device  # tensors of the pretended device are of a class of their own, which converters refuse first
@pytest.mark.parametrize("make, message", REFUSALS, ids=[message for _, message in REFUSALS])
def test_what_torch_does_not_have_is_refused(make, message):
    layer = make()
    convert = converters.to_torch if isinstance(layer, MultiHeadAttention) else converters.from_torch
    with pytest.raises(ValueError) as caught:
        convert(layer)
    assert message in str(caught.value)


class RollsQueries(MultiHeadAttention):
    """As rotary positions do it, at the one place between projection and attention."""

    def project(self, queries, keys, values):
        Q, K, V = super().project(queries, keys, values)
        return Q.roll(1, dims=-1), K, V


class Uniform(FusedAttention):
    def weights(self, queries, keys, mask=None):
        return torch.full((*queries.shape[:-1], keys.shape[-2]), 1 / keys.shape[-2])


class Halves(FusedAttention):
    def forward(self, *given, **masks):
        return super().forward(*given, **masks) / 2


class Adapter(nn.Module):
    """Like those of peft, with the weight of the map that it adapts."""

    def __init__(self, base):
        super().__init__()
        self.base, self.more = base, nn.Linear(8, 8, bias=False, dtype=torch.float64)
        self.in_features, self.bias = 8, base.bias

    @property
    def weight(self):
        return self.base.weight

    def forward(self, X):
        return self.base(X) + self.more(X)


class AdapterByInheritance(nn.Linear):
    def forward(self, X):
        return 2 * super().forward(X)


def eights():
    return random_numbers(3, 5, 8), random_numbers(3, 6, 8), random_numbers(3, 6, 8)


def changed(change):
    """A layer after ``change(layer)``."""
    layer = ours()
    change(layer)
    return layer


def hooked(layer):
    layer.W_k.register_forward_hook(lambda map_, inputs, output: 2 * output)


COMPUTES_SOMETHING_ELSE = {
    "shared heads": (
        lambda: ours(num_key_value_heads=2),
        r"layer must have as many key/value heads as heads .*num_key_value_heads=2",
    ),
    "scores": (lambda: ours(attention=Doubled()), r"layer must attend by plain dot products .* got attention=Doubled"),
    "project": (
        lambda: RollsQueries(8, 4, query_size=8, key_size=8, value_size=8),
        r"layer must compute as MultiHeadAttention does .*got RollsQueries with its own project",
    ),
    "weights": (lambda: ours(attention=Uniform()), "got attention=Uniform with its own weights"),
    "forward": (lambda: ours(attention=Halves()), "got attention=Halves with its own forward"),
    "additive": (lambda: ours(attention=AdditiveAttention(3)), "got attention=AdditiveAttention"),
    "adapter": (
        lambda: changed(lambda layer: setattr(layer, "W_q", Adapter(layer.W_q))),
        r"layer must have an nn.Linear as W_q .*Adapter: merge an adapter into the map",
    ),
    "adapter in a subclass": (
        lambda: changed(lambda layer: setattr(layer, "W_o", AdapterByInheritance(8, 8, False))),
        r"layer must have an nn.Linear as W_o .*AdapterByInheritance",
    ),
    "quantised": (
        lambda: torch.ao.quantization.quantize_dynamic(ours().float(), {nn.Linear}),
        r"nn.Linear as W_q .*torch.ao.nn.quantized.dynamic.*convert before quantising",
    ),
    "hook on a map": (lambda: changed(hooked), r"layer.W_k must have no hooks"),
    "hook on the attention": (
        lambda: changed(lambda layer: layer.attention.register_forward_pre_hook(lambda *given: None)),
        r"layer.attention must have no hooks",
    ),
}


@pytest.mark.real_device
@pytest.mark.filterwarnings("ignore")  # of quantisation, which torch is about to move
@every_library
@pytest.mark.parametrize("make, message", COMPUTES_SOMETHING_ELSE.values(), ids=COMPUTES_SOMETHING_ELSE)
def test_what_would_silently_compute_something_else_is_refused(there, back, call, make, message):
    with pytest.raises(ValueError, match=message):
        there(make())


def pruned_by_torch(layer):
    prune.l1_unstructured(layer.W_q, "weight", 0.4)
    prune.ln_structured(layer.W_v, "weight", 0.5, n=2, dim=0)


def pruned_and_stepped(layer):
    """What torch keeps as ``weight`` is stale here until the next call."""
    prune.l1_unstructured(layer.W_k, "weight", 0.4)
    with torch.no_grad():
        layer.W_k.weight_orig.mul_(3)


class Doubles(nn.Module):
    def forward(self, weight):
        return 2 * weight


CHANGED_BY_TORCH = {
    "pruned": pruned_by_torch,
    "pruned, stale": pruned_and_stepped,
    "parametrised": lambda layer: parametrize.register_parametrization(layer.W_o, "weight", Doubles()),
    "weight_norm": lambda layer: nn.utils.parametrizations.weight_norm(layer.W_q),
}


@pytest.mark.real_device
@every_library
@pytest.mark.parametrize("change", CHANGED_BY_TORCH.values(), ids=CHANGED_BY_TORCH)
def test_what_torch_prunes_or_parametrises_is_converted_by_what_it_computes(there, back, call, change):
    layer, X = changed(change), eights()
    peer = there(layer)
    close(call(peer, *X, LENGTHS["per example"])[0], layer(*X, LENGTHS["per example"]))
    assert all(parameter.requires_grad for parameter in peer.parameters())


@pytest.mark.real_device
@needs_d2l
@pytest.mark.parametrize("bias", [None, nn.Parameter(random_numbers(8))])
def test_a_layer_without_some_heads_goes_to_d2l_and_back_and_torch_says_why_not(bias):
    fewer, X = prune_attention(ours(), [0, 2, 3]), eights()
    fewer.W_o.bias = bias
    peer = converters.to_d2l(fewer)
    close(converters.call_d2l(peer, *X)[0], fewer(*X))
    again = converters.from_d2l(peer)
    close(again(*X), fewer(*X))
    assert (again.num_heads, again.head_size) == (3, 2)
    with pytest.raises(ValueError, match=r"num_heads · head_size = num_hiddens for torch's layer, got 3 · 2 and 8"):
        converters.to_torch(fewer)


@pytest.mark.real_device
def test_a_bias_that_only_some_maps_have_becomes_zeros_elsewhere():
    layer, X = ours(), eights()
    layer.W_o.register_parameter("bias", nn.Parameter(random_numbers(8)))
    peer = converters.to_torch(layer)
    close(peer(*X)[0], layer(*X))
    assert peer.out_proj.bias.requires_grad and not peer.in_proj_bias.requires_grad


def test_a_layer_of_the_wrong_class_is_named():
    for convert in (converters.to_torch, converters.to_d2l):
        for other in (nn.Linear(2, 2), nn.MultiheadAttention(8, 4), prune_attention(ours(), [])):
            name = type(other).__name__
            with pytest.raises(TypeError, match=rf"layer must be mha_lib's MultiHeadAttention for .* got {name}"):
                convert(other)
    for other in (ours(), nn.Linear(2, 2), nn.TransformerEncoderLayer(8, 4)):
        with pytest.raises(TypeError, match=rf"peer must be a torch.nn.MultiheadAttention, got {type(other).__name__}"):
            converters.from_torch(other)
    for other in (ours(), nn.Linear(2, 2), nn.MultiheadAttention(8, 4)):
        with pytest.raises(
            TypeError, match=rf"peer must be a d2l.MultiHeadAttention, got .*{type(other).__name__}; torch"
        ):
            converters.from_d2l(other)


@pytest.mark.real_device
@pytest.mark.filterwarnings("ignore")  # of quantisation, which torch is about to move
def test_torchs_layer_with_another_order_of_axes_or_another_forward_is_refused():
    with pytest.raises(ValueError, match=r"peer must have batch_first=True.*Set peer.batch_first = True, and swap"):
        converters.from_torch(nn.MultiheadAttention(8, 4))

    class Doubling(nn.MultiheadAttention):
        def forward(self, *given, **named):
            return tuple(2 * X for X in super().forward(*given, **named))

    with pytest.raises(ValueError, match=r"peer must compute as torch.nn.MultiheadAttention does.*got Doubling"):
        converters.from_torch(Doubling(8, 4, batch_first=True))
    with pytest.raises(ValueError, match=r"peer must compute as torch.nn.MultiheadAttention does"):
        inner = nn.modules.linear.NonDynamicallyQuantizableLinear
        peer = nn.MultiheadAttention(8, 4, batch_first=True).eval()
        converters.from_torch(torch.ao.quantization.quantize_dynamic(peer, {nn.Linear, inner}))


# The book's package.


def test_load_d2l_says_how_to_install_it_and_hides_no_other_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "d2l", None)  # which makes its import fail
    with pytest.raises(ImportError, match=r"d2l could not be imported(.|\n)*pip install --no-deps d2l==1.0.3"):
        converters.load_d2l()

    class NoMemory:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "d2l":
                raise RuntimeError("out of memory")

    for name in [name for name in sys.modules if name.split(".")[0] == "d2l"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoMemory, *sys.meta_path])
    with pytest.raises(RuntimeError, match="out of memory"):
        converters.load_d2l()


def test_load_d2l_beside_a_torchvision_built_for_another_torch(tmp_path):
    """In a process of its own, with stand-ins: a torchvision that needs its operators, a d2l that imports it."""
    needs_operators = "import torch\n" + "".join(
        f"torch.library.register_fake('torchvision::{name}')(lambda dets, scores, iou_threshold: dets)\n"
        for name in ("nms", "qnms")
    )
    files = {"torchvision/__init__": needs_operators, "d2l/__init__": "", "d2l/torch": "import torchvision\n"}
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(source)
    script = """
        import gc
        import torch
        from mha_lib.attention import converters
        try:
            from d2l import torch as d2l
        except RuntimeError as error:
            print(error)
        print(converters.load_d2l().__name__)
        gc.collect()
        print(torch.ops.torchvision.nms.default._schema)
    """
    path = [str(tmp_path), str(Path(mha_lib.__file__).parents[1])]
    command = f"import sys\nsys.path[:0] = {path}\n" + textwrap.dedent(script)
    result = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "operator torchvision::nms does not exist",
        "d2l.torch",
        "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    ]
