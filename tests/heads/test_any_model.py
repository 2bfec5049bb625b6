"""Heads of models that the library has never seen, held against columns of their mixing matrices set to 0."""

import copy
import re
from operator import attrgetter

import pytest
import torch
from head_models import encoder, encoder_decoder, examples, without_columns
from torch import nn
from torch.nn import functional as F

from mha_course import heads
from mha_lib.heads.watching import weights_of_fused


class Grouped(nn.Module):
    """Causal heads on two key-value heads, from one projection; the second layer is used twice."""

    def __init__(self):
        super().__init__()
        self.into = nn.ModuleList(nn.Linear(24, 40) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(24, 24) for _ in range(2))

    def forward(self, X):
        for layer in (0, 1, 1):
            Q, K, V = (Z.unflatten(-1, (-1, 4)).transpose(1, 2) for Z in self.into[layer](X).split((24, 8, 8), dim=-1))
            pooled = F.scaled_dot_product_attention(Q, K, V, is_causal=True, enable_gqa=True)
            X = X + self.out[layer](pooled.transpose(1, 2).flatten(2))
        return X


class Folded(nn.Module):
    """As in the book: heads merged with the batch axis, a softmax of three axes, dropout on the weights."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.mix = (nn.Linear(24, 24) for _ in range(4))
        self.dropout = nn.Dropout(0.5)

    def split(self, X):
        """Queries, keys and values, (b, h, n, d)."""
        return (W(X).unflatten(-1, (3, 8)).transpose(1, 2) for W in (self.query, self.key, self.value))

    def pooled(self, X):
        """Heads side by side, from one call, for layers below."""
        return F.scaled_dot_product_attention(*self.split(X)).transpose(1, 2).flatten(2)

    def forward(self, X):
        Q, K, V = (Z.flatten(0, 1) for Z in self.split(X))
        pooled = torch.bmm(self.dropout(torch.softmax(Q @ K.mT / 8**0.5, dim=-1)), V)
        return self.mix(pooled.unflatten(0, (-1, 3)).transpose(1, 2).flatten(2))


class ByEinsum(Folded):
    """Heads behind the positions, (b, n, h, d)."""

    def forward(self, X):
        Q, K, V = (W(X).unflatten(-1, (3, 8)) for W in (self.query, self.key, self.value))
        weights = torch.einsum("bqhd,bkhd->bhqk", Q, K).div(8**0.5).softmax(-1)
        return self.mix(torch.einsum("bhqk,bkhd->bqhd", weights, V).flatten(2))


class Gated(Folded):
    """Each feature of the heads is multiplied by a gate before they are mixed."""

    def forward(self, X):
        return self.mix(self.pooled(X) * torch.sigmoid(X))


def torchs_encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(24, 4, 16, batch_first=True), 2), (torch.randn(2, 5, 24),)


def torchs_decoder():
    layer = nn.TransformerDecoderLayer(24, 3, 16)
    return nn.TransformerDecoder(layer, 1), (torch.randn(5, 2, 24), torch.randn(7, 2, 24))


def ours(make):
    def model_and_inputs():
        model = make()
        batch = examples(model)
        return model, (batch.inputs, batch.valid_lens)

    return model_and_inputs


def of_class(Model):
    return lambda: (Model(), (torch.randn(2, 5, 24),))


SELF = ("self", 3, 3, 8)
MODELS = {  # how to make one; its layers: kind, heads, key-value heads, head size
    "torch's encoder": (
        torchs_encoder, {f"layers.{number}.self_attn": ("self", 4, 4, 6) for number in range(2)},
    ),
    "torch's decoder": (
        torchs_decoder, {"layers.0.self_attn": SELF, "layers.0.multihead_attn": ("cross", 3, 3, 8)},
    ),
    "ours": (ours(encoder), {f"blocks.layer {number}.attention": ("self", 3, 3, 2) for number in range(2)}),
    "ours of two sequences": (ours(encoder_decoder), {
        "blocks.encoder.attention": ("self", 2, 2, 2), "blocks.decoder.attention": ("self", 2, 2, 2),
        "blocks.cross.attention": ("cross", 2, 2, 2),
    }),
    "grouped": (of_class(Grouped), {"out.0": ("self", 6, 2, 4), "out.1": ("self", 6, 2, 4)}),
    "folded": (of_class(Folded), {"": SELF}),
    "by einsum": (of_class(ByEinsum), {"": SELF}),
    "gated": (of_class(Gated), {"": SELF}),
}  # fmt: skip


def made(name):
    """A model with weights of its own in every layer, an example, and its table."""
    torch.manual_seed(0)
    make, layers = MODELS[name]
    model, inputs = make()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 8)
    return model.eval(), inputs, layers


def assert_same_up_to_rounding(found, wanted):
    """Close to what some dozen operations on numbers of size 1 may differ by in single precision, on any processor."""
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-6)


def state_of(model):
    hooks = [(len(part._forward_hooks), len(part._forward_pre_hooks)) for part in model.modules()]
    return hooks, list(map(type, model.modules())), torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("name", MODELS)
def test_heads_are_found_and_switched_off_as_columns_of_zeros_do_it(name):
    model, inputs, layers = made(name)
    before = state_of(model)
    with torch.no_grad():
        found = heads.of(model, *inputs)
    sizes = attrgetter("kind", "num_heads", "num_key_value_heads", "head_size")
    table = {name: sizes(layer) for name, layer in found.layers.items()}
    assert (table, found.unknown) == (layers, {})
    whole = model(*inputs)
    for name, layer in found.layers.items():
        off = [0, layer.num_heads - 1]
        with found.ablated({name: off}):
            changed = model(*inputs)
        assert_same_up_to_rounding(changed, without_columns(model, layer, off)(*inputs))
        assert (changed - whole).abs().max() > 1e-3
    assert torch.equal(model(*inputs), whole) and state_of(model) == before
    with torch.no_grad():
        maps, outputs, after = found.maps(), found.outputs(), model(*inputs)
    assert state_of(model) == before and maps.keys() == outputs.keys() == layers.keys()
    torch.testing.assert_close(after, whole.detach(), rtol=1e-6, atol=1e-6)
    for weights, heads_of_layer in zip(maps.values(), outputs.values(), strict=True):
        assert weights.shape[:-1] == heads_of_layer.shape[:-1]
        assert_same_up_to_rounding(weights.sum(dim=-1), torch.ones(weights.shape[:-1]).to(weights))


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_maps_of_torchs_layer_are_zero_in_rows_without_a_key(batch_first, need_weights):
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (nn.MultiheadAttention(24, 4, batch_first=batch_first) for _ in range(2))

        def forward(self, X, **masks):
            Y = self.first(X, X, X, need_weights=need_weights, **masks)[0]
            return self.second(Y, Y, Y, need_weights=need_weights, **masks)[0]

    X, pad = torch.randn(2, 6, 24), torch.tensor([[False] * 4 + [True] * 2, [True] * 6])
    band = (torch.arange(6)[:, None] - torch.arange(6)).abs() > 1  # the last query sees two keys, both of them padding
    found = heads.of(Model().eval(), X if batch_first else X.mT.movedim(-1, 0), key_padding_mask=pad, attn_mask=band)
    for maps in found.maps().values():
        allowed = ~(pad[:, None, None] | band).expand(maps.shape)
        empty = ~allowed.any(-1)
        assert empty.sum() == 4 * 7 and (maps[empty] == 0).all()
    torch.testing.assert_close(found.maps()["first"].sum(-1), (~empty).float())
    X[0, 1] = torch.nan  # a number that came in is not hidden
    assert found.maps(X if batch_first else X.transpose(0, 1), attn_mask=band)["first"][0, :, 1].isnan().all()


def test_means_of_torchs_encoder_leave_padding_out():
    model, (X,), _ = made("torch's encoder")
    pad = torch.tensor([[False] * 5, [True, False, False, True, True]])
    found = heads.of(model, X, src_key_padding_mask=pad)
    for means, outputs in zip(found.substitutes("mean").values(), found.outputs().values(), strict=True):
        rows = [outputs[b, :, i] for b in range(2) for i in range(5) if not pad[b, i]]
        torch.testing.assert_close(means.flatten(end_dim=2)[0], torch.stack(rows).mean(dim=0))


def test_a_layer_that_is_used_twice_is_one_layer():
    model, (X,), _ = made("grouped")
    found = heads.of(model, X)
    assert [layer.uses for layer in found.layers.values()] == [1, 2]
    assert [found.layers["out.1"].group(number) for number in range(2)] == [[0, 1, 2], [3, 4, 5]]
    assert found.maps()["out.1"].shape == (2, 2, 6, 5, 5) and found.outputs()["out.0"].shape == (2, 6, 5, 4)
    assert not found.maps()["out.0"].triu(1).any()
    # Its substitutes are those of each use.
    with found.ablated({"out.1": range(6)}, by="mean"):
        changed = model(X)
    means = [outputs.mean(dim=(0, 2)).flatten() for outputs in found.outputs()["out.1"]]
    expected = X + model.out[0](found.outputs()["out.0"].transpose(1, 2).flatten(2))
    for mean in means:
        expected = expected + model.out[1](mean)
    torch.testing.assert_close(changed, expected)


def test_gates_of_each_example_have_gradients_and_may_be_nested():
    model, (X, lengths), layers = made("ours")
    found, (first, second) = heads.of(model, X, lengths), layers
    gates = torch.rand(len(X), 2, 3, dtype=X.dtype if X.is_floating_point() else torch.float64, requires_grad=True)
    with found.gates({first: gates[:, 0]}), found.gates({second: gates[:, 1]}):
        changed = model(X, lengths)
    expected = model(X, lengths, gates)
    torch.testing.assert_close(changed, expected)
    ours, theirs = (torch.autograd.grad(output.square().sum(), gates)[0] for output in (changed, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.real_device  # attention as one kernel: without it, bfloat16 is rounded more often
def test_torchs_layer_in_half_precision_and_nested():
    model, (X, memory), (own, cross) = made("torch's decoder")
    model, X, memory = model.bfloat16(), X.bfloat16(), memory.bfloat16()
    found = heads.of(model, X, memory)
    gates = torch.rand(2, 3)
    with found.ablated({own: [1], cross: [2]}), found.ablated({cross: [0]}):
        both = model(X, memory)
    cut = without_columns(model, found.layers[own], [1])
    torch.testing.assert_close(both, without_columns(cut, found.layers[cross], [0, 2])(X, memory), rtol=0, atol=0)
    with found.gates({own: gates}):  # examples are the second axis here
        changed = model(X, memory)
    with found.gates({own: gates[1]}):
        torch.testing.assert_close(changed[:, 1:], model(X[:, 1:], memory[:, 1:]), rtol=1e-2, atol=1e-2)


class Unlike(Folded):
    """A norm over all heads before they are mixed."""

    def forward(self, X):
        return self.mix(F.layer_norm(self.pooled(X), (24,)))


class NormOfEach(Gated):
    """A norm of each head before they are mixed."""

    def forward(self, X):
        pooled = F.scaled_dot_product_attention(*self.split(X)).transpose(1, 2)
        return self.mix(F.rms_norm(pooled, (8,)).flatten(2))


class AsFunction(Folded):
    """A mixing matrix that is no module."""

    def forward(self, X):
        return F.linear(self.pooled(X), self.mix.weight)


class PositionsFirst(Folded):
    """Positions before examples, (n, b, w)."""

    def forward(self, X):
        Q, K, V = (Z.permute(2, 1, 0, 3) for Z in self.split(X))
        return self.mix(F.scaled_dot_product_attention(Q, K, V).permute(2, 0, 1, 3).flatten(2))


@pytest.mark.parametrize("shape", [(5, 2, 24), (5, 1, 24), (4, 4, 24)])
def test_positions_before_examples_are_not_taken_for_examples(shape):
    found = heads.of(PositionsFirst().eval(), torch.randn(shape))
    assert not found.layers and found.unknown[""].endswith("side by side: the first axis is not the batch")


class Flat(ByEinsum):
    """All tokens of all examples as one axis before the heads are mixed, or the positions as two."""

    def forward(self, X):
        pooled = self.pooled(X)
        if X.shape[1] == 5:
            return self.mix(pooled.flatten(0, 1)).unflatten(0, X.shape[:2])
        return self.mix(pooled.unflatten(1, (-1, 2))).flatten(1, 2)


@pytest.mark.parametrize(("number", "received"), [(5, "(10, 24)"), (6, "(2, 3, 2, 24)")])
def test_what_needs_examples_is_refused_where_the_mixing_module_gets_other_axes(number, received):
    model, X = Flat().eval(), torch.randn(2, number, 24)
    found = heads.of(model, X)
    with found.ablated({"": [1]}):
        changed = model(X)
    torch.testing.assert_close(changed, without_columns(model, found.layers[""], [1])(X), rtol=0, atol=0)
    why = re.escape(f"of a mixing module that receives (batch, queries, features), and mix receives {received}; gates")
    for ask in (found.outputs, lambda: found.substitutes("mean"), lambda: found.ablated({"": [1]}, "resample")):
        with pytest.raises(ValueError, match=f"outputs are {why}"):
            ask()
    with pytest.raises(ValueError, match=f"gates of each example are {why}"), found.gates({"": torch.rand(2, 3)}):
        model(X)


def test_examples_are_not_broadcast():
    model, X = Folded().eval(), torch.randn(3, 5, 24)
    with pytest.raises(ValueError, match="by='resample' takes the next example, and there is one alone: give two"):
        heads.of(model, X[:1]).substitutes("resample")
    found = heads.of(model, X)
    with pytest.raises(ValueError, match=r"substitutes of  have shape \(3, 5, 3, 8\), its heads \(1, 5, 3, 8\): call"):
        with found.ablated({"": [1]}, "resample"):
            model(X[:1])
    with pytest.raises(ValueError, match="gates of  are of 3 examples, the batch has 1"):
        with found.gates({"": torch.rand(3, 3)}):
            model(X[:1])


def test_a_hook_on_torchs_layer_gets_its_output_inside_gates():
    model, (X,), (own, _) = made("torch's encoder")
    found, seen = heads.of(model, X), []
    model.get_submodule(own).register_forward_hook(lambda _, __, output: seen.append(output[0]))
    with found.ablated({own: [1]}), found.ablated({own: [2]}):
        model(X)
    without_columns(model, found.layers[own], [1, 2])(X)
    assert_same_up_to_rounding(*seen)


class Skipping(Folded):
    """A layer that is not always computed."""

    def forward(self, X, second=True):
        return super().forward(X) if second else X


def test_maps_of_a_layer_that_is_skipped_name_it():
    found = heads.of(Skipping().eval(), X := torch.randn(2, 5, 24))
    with pytest.raises(ValueError, match="is not computed with these inputs: give inputs that use every layer found"):
        found.maps(X, second=False)


def test_heads_of_zeros_are_not_one_key_value_head():
    model = Folded().eval()
    with torch.no_grad():
        for parameter in model.value.parameters():
            parameter[:16] = 0  # heads 0 and 1 of 3
    assert heads.of(model, torch.randn(2, 5, 24)).layers[""].num_key_value_heads == 3


@pytest.mark.parametrize(
    ("Model", "number", "reason"),
    [
        (Unlike, 5, "mix receives (2, 5, 24), which is not the heads (2, 3, 5, 8) side by side: what lies between"),
        (NormOfEach, 5, "mix receives (2, 5, 24), which is not the heads (2, 3, 5, 8) side by side: a norm of each"),
        (AsFunction, 5, "its heads reach no module with a matrix: the output projection must be called as a module"),
        (Folded, 1, "the example has one query alone: give one of two tokens or more"),
    ],
)
def test_what_is_not_understood_is_named_and_never_guessed(Model, number, reason):
    found = heads.of(Model().eval(), torch.randn(2, number, 24))
    assert not found.layers and found.unknown[""].startswith(reason)
    assert f"not understood: the model itself: {reason}" in repr(found)


@pytest.mark.cpu  # torch's quantised maps are of the CPU alone
@pytest.mark.filterwarnings("ignore")  # torch moves its quantisation to another package
def test_a_quantised_map_mixes_heads():
    model, X = Folded().eval(), torch.randn(2, 5, 24)
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    found = heads.of(quantised, X)
    assert found.layers[""].mixing == "mix" and found.layers[""].num_heads == 3
    pooled = found.outputs()[""]
    pooled[:, 1] = 0
    with found.ablated({"": [1]}):
        torch.testing.assert_close(quantised(X), quantised.mix(pooled.transpose(1, 2).flatten(2)), rtol=0, atol=0)


class Twice(Folded):
    """One layer, for all tokens and for some."""

    def forward(self, X):
        return super().forward(X)[:, :3] + super().forward(X[:, :3])


def test_maps_of_different_sizes_of_one_layer_are_no_tensor():
    found = heads.of(Twice().eval(), torch.randn(2, 5, 24))
    assert found.layers[""].uses == 2
    with pytest.raises(ValueError, match=r"is computed 2 times in one pass, .*\(2, 3, 5, 5\) and \(2, 3, 3, 3\)"):
        found.maps()


def test_a_model_without_attention_says_so():
    assert repr(heads.of(nn.Linear(4, 4), torch.randn(2, 4))).startswith("No attention was seen. Kernels")


def test_errors_name_what_is_there_and_leave_nothing_behind():
    model, inputs, (own, _) = made("torch's decoder")
    found, before = heads.of(model, *inputs), state_of(model)
    with pytest.raises(ValueError, match=r"there is no layer 'layers.9'; there are layers.0.self_attn, layers.0.multi"):
        found.ablated({"layers.9": [0]})
    with pytest.raises(ValueError, match=r"layers.0.self_attn has heads 0 to 2, got \[3\]"):
        found.ablated({own: [0, 3]})
    with pytest.raises(ValueError, match="by must be one of zero, mean, resample, stream, got 'median'"):
        found.ablated({own: [0]}, "median")
    with pytest.raises(
        ValueError, match=r"gates of layers.0.self_attn must have shape \(3,\) or \(batch, 3\), got \(4,\)"
    ):
        found.gates({own: torch.ones(4)})
    with pytest.raises(ValueError, match=r"or \(batch, 3\), got \[1, 0, 1\], which is no tensor"):
        found.gates({own: [1, 0, 1]})
    with pytest.raises(RuntimeError, match=r"layers.0.self_attn was never computed here, so that nothing was changed"):
        with found.ablated({own: [0]}):
            copy.deepcopy(made("torch's encoder")[0])(torch.randn(2, 5, 24))
    with pytest.raises(ZeroDivisionError), found.ablated({own: [0]}):
        model(*inputs)
        1 / 0  # noqa: B018
    assert state_of(model) == before


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.7}, {"enable_gqa": True}, "bool", "bias"])
def test_weights_of_a_fused_call(options):
    torch.manual_seed(0)
    Q, K = torch.randn(2, 6, 4, 8), torch.randn(2, 2 if options == {"enable_gqa": True} else 6, 5, 8)
    if isinstance(options, str):
        mask = torch.rand(2, 1, 4, 5) < 0.5
        mask[0, :, 1] = False  # a row without a key
        options = {"attn_mask": mask if options == "bool" else torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)}
    rows = F.scaled_dot_product_attention(Q, K, torch.eye(5).expand(*K.shape[:2], 5, 5), **options)
    torch.testing.assert_close(weights_of_fused(Q, K, K, **options), rows)
