"""The same layer elsewhere gives the same numbers: the loop over heads, torch's layer, d2l's layer."""

import importlib.abc
import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from references import assert_same, cases, make_layer, multi_head, random_numbers
from torch import nn

import mha_lib
from mha_lib import MultiHeadAttention, attention
from mha_lib.attention import other_libraries

CASES = cases()
NUM_HIDDENS, NUM_HEADS = 8, 4
SIZES = {
    "equal sizes": {},
    "other key size": {"key_size": 9},
    "other key and value size": dict(key_size=9, value_size=10),
}
LENGTHS = {
    "all keys": None,
    "per example": torch.tensor([4, 1, 6]),
    "per query": torch.tensor([[1, 2, 3, 4, 5], [6, 1, 6, 1, 2], [3, 3, 5, 2, 4]]),
}
needs_d2l = pytest.mark.skipif(importlib.util.find_spec("d2l") is None, reason="d2l is not installed")
every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
every_bias = pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
every_length = pytest.mark.parametrize("valid_lens", LENGTHS.values(), ids=LENGTHS)


def assert_equal(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def ours(bias=False, dropout=0.0, **sizes):
    torch.manual_seed(0)
    sizes = {"query_size": NUM_HIDDENS, "key_size": NUM_HIDDENS, "value_size": NUM_HIDDENS} | sizes
    return MultiHeadAttention(NUM_HIDDENS, NUM_HEADS, dropout, bias, **sizes).double().eval()


def torchs(bias=False, dropout=0.0, key_size=None, value_size=None):
    torch.manual_seed(0)
    peer = nn.MultiheadAttention(
        NUM_HIDDENS, NUM_HEADS, dropout, bias, kdim=key_size, vdim=value_size, batch_first=True, dtype=torch.float64
    )
    for name, parameter in peer.named_parameters():
        if "bias" in name:  # which torch sets to 0, where a wrong one would not be seen
            nn.init.normal_(parameter)
    return peer.eval()


def inputs_of(layer):
    return tuple(
        random_numbers(3, number, W.weight.shape[1]) for number, W in ((5, layer.W_q), (6, layer.W_k), (6, layer.W_v))
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_loop_over_heads_is_the_formula(case):
    layer = make_layer(attention, case)
    output, weights = other_libraries.loop_over_heads(layer, *case.arguments, case.head_mask)
    expected_output, expected_weights = multi_head(layer, *case.arguments, case.head_mask)
    assert_same(output, expected_output)
    assert_same(weights, expected_weights)


def test_the_loop_over_heads_has_the_gradients_of_the_layer():
    case = CASES["gates, lengths and an empty example"]
    layer = make_layer(attention, case)
    tensors = [X.clone().requires_grad_() for X in (case.queries, case.keys, case.values, case.head_mask)]
    everything = [*tensors, *layer.parameters()]
    loss = layer(*tensors[:3], case.valid_lens, tensors[3]).square().sum()
    expected = torch.autograd.grad(loss, everything)
    output, weights = other_libraries.loop_over_heads(layer, *tensors[:3], case.valid_lens, tensors[3])
    assert not weights.requires_grad
    assert_equal(torch.autograd.grad(output.square().sum(), everything), expected)


@every_size
@every_bias
@every_length
def test_to_torch(sizes, bias, valid_lens):
    layer = ours(bias, **sizes)
    arguments = (*inputs_of(layer), valid_lens)
    output, weights = other_libraries.call_torch(other_libraries.to_torch(layer), *arguments)
    assert_equal(output, layer(*arguments))
    assert_equal(weights, layer.attention_weights)


@every_size
@every_bias
@every_length
def test_from_torch(sizes, bias, valid_lens):
    peer = torchs(bias, **sizes)
    layer = other_libraries.from_torch(peer)
    arguments = (*inputs_of(layer), valid_lens)
    output, weights = other_libraries.call_torch(peer, *arguments)
    assert_equal(layer(*arguments), output)
    assert_equal(layer.attention_weights, weights)


@needs_d2l
@every_size
@every_bias
@every_length
def test_to_d2l(sizes, bias, valid_lens):
    layer = ours(bias, query_size=7, **sizes)
    arguments = (*inputs_of(layer), valid_lens)
    output, weights = other_libraries.call_d2l(other_libraries.to_d2l(layer), *arguments)
    assert_equal(output, layer(*arguments))
    assert_equal(weights, layer.attention_weights)


@needs_d2l
@every_size
@every_bias
@every_length
def test_from_d2l(sizes, bias, valid_lens):
    arguments = (*inputs_of(ours(query_size=7, **sizes)), valid_lens)
    peer = other_libraries.load_d2l().MultiHeadAttention(NUM_HIDDENS, NUM_HEADS, 0.0, bias).double().eval()
    output, weights = other_libraries.call_d2l(peer, *arguments)
    layer = other_libraries.from_d2l(peer)
    assert_equal(layer(*arguments), output)
    assert_equal(layer.attention_weights, weights)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "there, back",
    [
        pytest.param(other_libraries.to_torch, other_libraries.from_torch, id="torch"),
        pytest.param(other_libraries.to_d2l, other_libraries.from_d2l, id="d2l", marks=needs_d2l),
    ],
)
def test_there_and_back_keeps_parameters_mode_dropout_and_dtype(there, back, training):
    layer = ours(bias=True, dropout=0.3, key_size=9).train(training)
    peer = there(layer)
    again = back(peer)
    assert peer.training == again.training == training
    assert again.attention.dropout.p == 0.3
    assert again.state_dict().keys() == layer.state_dict().keys()
    for name, parameter in again.state_dict().items():
        assert torch.equal(parameter, layer.state_dict()[name])
    with torch.no_grad():
        peer.get_parameter("out_proj.weight" if there is other_libraries.to_torch else "W_o.weight").zero_()
    assert layer.W_o.weight.any()  # the peer has weights of its own
    assert again.W_o.weight.any()


@needs_d2l
def test_state_dict_has_the_keys_of_d2l():
    for bias in (False, True):
        peer = other_libraries.load_d2l().MultiHeadAttention(NUM_HIDDENS, NUM_HEADS, 0.0, bias)
        assert ours(bias).state_dict().keys() == peer.state_dict().keys()
    assert (
        mha_lib.AdditiveAttention(8).state_dict().keys()
        == other_libraries.load_d2l().AdditiveAttention(8, 0.0).state_dict().keys()
    )


def test_the_masks_of_torch_say_what_is_not_allowed():
    lengths = LENGTHS["per example"]
    (mask,) = other_libraries.torch_masks(lengths, num_keys=6, num_heads=4).values()
    assert mask.tolist() == [[key >= length for key in range(6)] for length in lengths.tolist()]
    lengths = LENGTHS["per query"]
    (mask,) = other_libraries.torch_masks(lengths, num_keys=6, num_heads=4).values()
    assert mask.shape == (12, 5, 6)
    for i in range(12):  # torch folds heads into the batch: i = 4 · example + head
        assert mask[i].tolist() == [[key >= length for key in range(6)] for length in lengths[i // 4].tolist()]


REFUSALS = {
    "query_size": (
        lambda: other_libraries.to_torch(ours(query_size=7)),
        "query_size = num_hiddens for torch's layer, got 7 and 8",
    ),
    "open query_size": (lambda: other_libraries.to_torch(MultiHeadAttention(8, 4)), "open query_size: call it once"),
    "open key_size": (
        lambda: other_libraries.to_torch(MultiHeadAttention(8, 4, query_size=8)),
        "open key_size: call it once",
    ),
    "open value_size": (
        lambda: other_libraries.to_torch(MultiHeadAttention(8, 4, query_size=8, key_size=8)),
        "open value_size: call it once",
    ),
    "add_bias_kv": (
        lambda: other_libraries.from_torch(nn.MultiheadAttention(8, 4, add_bias_kv=True)),
        "add_bias_kv=False",
    ),
    "add_zero_attn": (
        lambda: other_libraries.from_torch(nn.MultiheadAttention(8, 4, add_zero_attn=True)),
        "add_zero_attn=False",
    ),
}


@pytest.mark.parametrize("call, message", REFUSALS.values(), ids=REFUSALS)
def test_refusals(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert message in str(caught.value)


@needs_d2l
def test_a_layer_of_d2l_that_was_never_called_is_refused():
    with pytest.raises(ValueError, match="peer has open sizes: call d2l's layer once"):
        other_libraries.from_d2l(other_libraries.load_d2l().MultiHeadAttention(8, 4, 0.0))


@needs_d2l
def test_load_d2l_is_the_book_package():
    assert other_libraries.load_d2l().__name__ == "d2l.torch"
    assert hasattr(other_libraries.load_d2l(), "MultiHeadAttention")


def test_load_d2l_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "d2l", None)  # which makes its import fail
    with pytest.raises(ImportError) as caught:
        other_libraries.load_d2l()
    for fragment in ("d2l could not be imported", "d2l", "pip install --no-deps d2l==1.0.3"):
        assert fragment in str(caught.value)


def test_load_d2l_hides_no_other_error(monkeypatch):
    class NoMemory(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name == "d2l":
                raise RuntimeError("out of memory")

    for name in [name for name in sys.modules if name.split(".")[0] == "d2l"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoMemory(), *sys.meta_path])
    with pytest.raises(RuntimeError, match="out of memory"):
        other_libraries.load_d2l()


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
        from mha_lib.attention import other_libraries
        try:
            from d2l import torch as d2l
        except RuntimeError as error:
            print(error)
        print(other_libraries.load_d2l().__name__)
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
