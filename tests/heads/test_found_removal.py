"""Heads of any model, removed for real: equal to gates, or refused."""

import json
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mha_lib import heads


class Layer(nn.Module):
    """Causal heads, four on two key-value heads, from one projection with a bias; sizes are kept as integers."""

    def __init__(self, num_heads=4, groups=2):
        super().__init__()
        self.num_heads, self.groups, self.head_size, self.width = num_heads, groups, 3, 3 * num_heads
        self.into = nn.Linear(12, self.width + 2 * groups * 3)
        self.out = nn.Linear(self.width, 12)

    def forward(self, X):
        Q, K, V = self.into(X).split((self.width, self.groups * 3, self.groups * 3), dim=-1)
        Q = Q.unflatten(-1, (self.num_heads, 3)).transpose(1, 2)
        K, V = (Z.unflatten(-1, (self.groups, 3)).transpose(1, 2) for Z in (K, V))
        pooled = F.scaled_dot_product_attention(Q, K, V, is_causal=True, enable_gqa=True)
        return self.out(pooled.transpose(1, 2).reshape(*X.shape[:2], self.width)), (K, V)


class Output(NamedTuple):
    X: torch.Tensor
    past_key_values: list


class Model(nn.Module):
    def __init__(self, Attention=Layer):
        super().__init__()
        self.embed, self.layers = nn.Embedding(20, 12), nn.ModuleList(Attention() for _ in range(2))

    def forward(self, ids):
        X, cache = self.embed(ids), []
        for layer in self.layers:
            Y, kept = layer(X)
            X = X + Y
            cache.append(kept)
        return Output(X, cache)


def made(Attention=Layer):
    torch.manual_seed(0)
    model, ids = Model(Attention).eval(), torch.randint(20, (2, 6))
    return model, ids, heads.of(model, ids)


def test_heads_are_removed_as_gates_do_it_and_a_plan_fits_a_fresh_load():
    model, ids, found = made()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plan = {"layers.0": [2, 3], "layers.1": [1, 2]}  # a whole group; one of each
    with torch.no_grad():
        smaller, report = found.remove(plan)
    other = torch.randint(20, (3, 9))
    with found.ablated(plan):
        expected = model(other).X
    torch.testing.assert_close(smaller(other).X, expected, rtol=0, atol=1e-6)
    shapes = [(tuple(layer.into.weight.shape), tuple(layer.out.weight.shape)) for layer in smaller.layers]
    assert shapes == [((6 + 6, 12), (12, 6)), ((6 + 12, 12), (12, 6))]
    rows = (24 - 12) + (24 - 18)  # each with its bias; columns of out beside them
    assert report.parameters[0] - report.parameters[1] == rows * 13 + 2 * 6 * 12
    assert report.cache_bytes == (2 * 2 * 2 * 2 * 6 * 3 * 4, (1 + 2) * 2 * 2 * 6 * 3 * 4)
    assert report.plan == plan and report.difference < 1e-6
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    # The plan, saved and applied to a fresh model, gives the shapes of the smaller one.
    fresh, _ = heads.of(Model().eval(), ids).remove(json.loads(json.dumps(plan)))
    fresh.load_state_dict(smaller.state_dict())
    torch.testing.assert_close(fresh(other).X, smaller(other).X, rtol=0, atol=0)


class Windowed(Layer):
    """Tokens from the fourth before are not seen: a number that is that of the heads, and no size."""

    def __init__(self):
        super().__init__(groups=4)
        self.window = 4

    def forward(self, X):
        Y, kept = super().forward(X)
        return Y - F.pad(Y, (0, 0, self.window, 0))[:, : X.shape[1]], kept


def test_an_integer_that_is_no_size_stays():
    model, _, _ = made(Windowed)
    ids = torch.randint(20, (2, 9))
    found = heads.of(model, ids[:, :3])  # no longer than the window of the smaller layer would be
    plan = {"layers.0": [1], "layers.1": [3]}
    smaller, report = found.remove(plan)
    with found.ablated(plan):
        torch.testing.assert_close(smaller(ids).X, model(ids).X, rtol=0, atol=1e-6)
    sizes = {"num_heads": (4, 3), "groups": (4, 3), "width": (12, 9)}
    assert report.sizes == {f"layers.{layer}.{name}": size for layer in range(2) for name, size in sizes.items()}


class Undefined(Layer):
    """Not a number for five tokens, once heads have gone."""

    def forward(self, X):
        Y, kept = super().forward(X)
        return (Y * torch.nan if X.shape[1] == 5 and self.out.in_features < 12 else Y), kept


class Normed(Layer):
    """The query of each head is divided by a norm over all heads."""

    def forward(self, X):
        Y, kept = super().forward(X)
        return Y / self.into(X).norm(), kept


class Frozen(Layer):
    """A size that is written into the code."""

    def forward(self, X):
        return super().forward(X) if self.width == 12 else (None, None)


class NormOfAll(Layer):
    """Queries of all heads are normed together, as in OLMo."""

    def __init__(self):
        super().__init__(groups=4)
        self.norm = nn.LayerNorm(36)
        with torch.no_grad():
            self.norm.weight.copy_(torch.rand(36))

    def forward(self, X):
        Q, K, V = self.norm(self.into(X)).chunk(3, dim=-1)
        Q, K, V = (Z.unflatten(-1, (-1, 3)).transpose(1, 2) for Z in (Q, K, V))
        pooled = F.scaled_dot_product_attention(Q, K, V, is_causal=True)
        return self.out(pooled.transpose(1, 2).flatten(2)), (K, V)


CONFIG = {"num_heads": 4}


class OfConfig(Layer):
    """A size that is read from elsewhere, as in Phi-3."""

    def forward(self, X):
        self.into(X).split((3 * CONFIG["num_heads"], 6, 6), dim=-1)
        return super().forward(X)


class Rounded(Layer):
    """Rounded far more than a millionth, and elsewhere where heads have gone."""

    def forward(self, X):
        Y, kept = super().forward(X)
        large = 100 * self.out.in_features
        return (Y + large) - large, kept


class Leaking(Layer):
    """Off by as little where heads have gone, and not by rounding."""

    def forward(self, X):
        Y, kept = super().forward(X)
        return Y + 1e-5 * self.out.in_features, kept


@pytest.mark.cpu  # how far it is off is the CPU's
def test_rounding_is_not_refused_and_as_small_a_difference_is():
    plan = {"layers.0": [2, 3], "layers.1": [0, 3]}
    model, _, found = made(Rounded)
    smaller, report = found.remove(plan)
    assert 1e-5 < report.difference < 1e-2
    ids = torch.randint(20, (3, 7))
    with found.ablated(plan):
        expected = model.double()(ids).X
    torch.testing.assert_close(smaller.double()(ids).X, expected, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match=r"layers.0 cannot be cut: .*it is off by \d\.\de-05"):
        made(Leaking)[-1].remove(plan)


def tied(*names):
    model, ids, _ = made()
    for name in names:
        module, _, kind = name.rpartition(".")
        setattr(model.layers[1].get_submodule(module), kind, model.layers[0].get_parameter(name))
    return model, ids, heads.of(model, ids)


@pytest.mark.parametrize("name", ["into.weight", "into.bias", "out.weight"])
@pytest.mark.parametrize("layer", [0, 1])
def test_a_layer_that_shares_a_parameter_with_another_is_refused_by_name(name, layer):
    _, _, found = tied(name)
    own, other = (rf"layers\.{number}\.{name}" for number in (layer, 1 - layer))
    with pytest.raises(ValueError, match=rf"layers\.{layer} cannot be cut: {own} is shared with {other}; leave"):
        found.remove({f"layers.{layer}": [2, 3]})
    with pytest.raises(ValueError, match=f"is shared with layers.1.{name}"):  # also where the plan is equal in all
        found.remove({"layers.0": [2, 3], "layers.1": [2, 3]})


class Padded(Model):
    """Lengths of the texts, which the model checks as this library's layer does."""

    def forward(self, ids, lengths=None, mask=None):
        if mask is not None and mask.shape[-1] != ids.shape[1]:
            raise ValueError("mask does not fit")
        if lengths is not None and lengths.max() > ids.shape[1]:
            raise ValueError("valid_lens must lie between 0 and the number of keys")
        X, cache = super().forward(ids)
        X = X if lengths is None else X * (torch.arange(ids.shape[1]) < lengths[:, None])[..., None]
        self.seen = [*getattr(self, "seen", []), (tuple(ids.shape), lengths)]
        return Output(X, cache)


def test_lengths_are_shortened_with_the_example_and_what_does_not_fit_is_not():
    torch.manual_seed(0)
    model, ids = Padded().eval(), torch.randint(20, (2, 6))
    smaller, _ = heads.of(model, ids, torch.tensor([6, 4])).remove({"layers.0": [2, 3]})
    shape, lengths = smaller.seen[-3]  # before two passes for the time: the second input
    assert shape == (2, 5) and lengths.tolist() == [5, 4]
    smaller, _ = heads.of(model, ids, mask=torch.ones(2, 1, 1, 6)).remove({"layers.0": [2, 3]})
    assert smaller.seen[-3][0] == (2, 6)


@pytest.mark.parametrize(
    ("Attention", "plan", "reason"),
    [
        (
            Layer,
            {"layers.0": [0]},
            "layers.0: 3 heads cannot share 2 key-value heads evenly; take as many from each group",
        ),
        (Layer, {"layers.1": [0, 1, 2, 3]}, "layers.1: all of its heads would go; leave that to a gate"),
        (Layer, {"layers.1": [4]}, r"layers.1 has heads 0 to 3, got \[4\]"),
        (Normed, {"layers.0": [2, 3]}, "layers.0 cannot be cut: without the rows of these heads, "),
        (Undefined, {"layers.0": [2, 3]}, "heads cannot be removed: on another input the smaller model is off by nan"),
        (Frozen, {"layers.0": [2, 3]}, "layers.0 cannot be cut: without the rows of these heads, "),
        (
            NormOfAll,
            {"layers.0": [2]},
            r"layers\.0\.norm \(LayerNorm\) still takes all heads at once, as a norm",
        ),
        (OfConfig, {"layers.0": [2, 3]}, r"layers\.0 \(OfConfig\) still has a size of all heads, read from elsewhere"),
    ],
)
def test_what_a_cut_would_change_is_refused(Attention, plan, reason):
    model, ids, found = made(Attention)
    whole = model(ids).X
    with pytest.raises(ValueError, match=reason):
        found.remove(plan)
    torch.testing.assert_close(model(ids).X, whole, rtol=0, atol=0)


@pytest.mark.parametrize("batch_first", [True, False])
def test_torchs_encoder_is_cut_saved_and_loaded(tmp_path, batch_first):
    def fresh():
        layer = nn.TransformerEncoderLayer(24, 4, 16, batch_first=batch_first)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=batch_first).eval()

    torch.manual_seed(0)
    model, X, pad = fresh(), torch.randn(4, 5, 24), torch.tensor([[False] * 3 + [True] * 2, *[[False] * 5] * 3])
    X = X if batch_first else X.transpose(0, 1)
    found, plan = heads.of(model, X), {"layers.0.self_attn": [1], "layers.1.self_attn": [0, 3]}
    means = found.means()
    for instead in (None, means):
        smaller, removal = found.remove(plan, instead=instead)
        with torch.no_grad(), found.ablated(plan, instead=instead):
            expected = model(X, src_key_padding_mask=pad)
        output = smaller(X, src_key_padding_mask=pad)
        close = output - expected if batch_first else (output - expected).transpose(0, 1)
        assert close[~pad].abs().max() < 1e-6 and removal.as_torch == {"layers.0.self_attn": 3, "layers.1.self_attn": 2}
    heads.save_pruned(smaller, removal, tmp_path)
    again = heads.load_pruned(tmp_path, model=fresh())
    assert torch.equal(again(X, src_key_padding_mask=pad), output)
    with pytest.raises(ValueError, match="TransformerEncoder is no model of transformers with a configuration: give a"):
        heads.load_pruned(tmp_path)


def test_means_stay_in_the_bias_and_are_those_of_the_ablation():
    for change in (lambda out: out, lambda out: out.register_parameter("bias", None)):
        model, ids, _ = made()
        for layer in model.layers:
            change(layer.out)
        found, plan = heads.of(model, ids), {"layers.0": [2, 3], "layers.1": [1, 2]}
        smaller, _ = found.remove(plan, instead=found.means())
        with torch.no_grad(), found.ablated(plan, by="mean"):
            expected = model(ids).X
        torch.testing.assert_close(smaller(ids).X, expected, rtol=0, atol=1e-6)
        assert (found.remove(plan)[0](ids).X - expected).abs().max() > 1e-3
    with pytest.raises(
        ValueError, match=r"instead must have means of layers\.1, \(4, 3\), as found.means\(\) gives them"
    ):
        found.remove(plan, instead={"layers.0": torch.zeros(4, 3), "layers.1": torch.zeros(3, 4)})


class Counting(Model):
    """How many tokens were computed, over all copies."""

    tokens = 0

    def forward(self, ids):
        Counting.tokens += ids.numel()
        return super().forward(ids)


def test_a_removal_takes_few_passes_over_a_large_example():
    torch.manual_seed(0)
    model, ids = Counting().eval(), torch.randint(20, (64, 6))
    found, Counting.tokens = heads.of(model, ids), 0
    found.remove({"layers.0": [2, 3], "layers.1": [0, 1]})
    assert Counting.tokens <= 6 * ids.numel()


class Cached(Layer):
    """In the second layer of each model, a number that is no size may not change, though its name is the same."""

    def __init__(self):
        super().__init__()
        self.window = 4

    def forward(self, X):
        Y, kept = super().forward(X)
        return (Y * self.window / self.num_heads, kept) if self.into.weight[0, 0] > 0 else (Y * self.window / 4, kept)


def test_sizes_that_fit_one_layer_and_not_the_next_are_tried_anew():
    model, ids, _ = made(Cached)
    with torch.no_grad():
        model.layers[0].into.weight[0, 0], model.layers[1].into.weight[0, 0] = 0.5, -0.5
    found, plan = heads.of(model, ids), {"layers.0": [2, 3], "layers.1": [0, 1]}
    smaller, removal = found.remove(plan)
    with torch.no_grad(), found.ablated(plan):
        torch.testing.assert_close(smaller(ids).X, model(ids).X, rtol=0, atol=1e-6)
    assert "layers.0.window" in removal.sizes and "layers.1.window" not in removal.sizes


@pytest.mark.real_device  # from there, torch moves no module to meta
def test_a_model_that_is_not_in_memory_is_refused():
    model, _, found = made()
    model.layers[1].to("meta")
    with pytest.raises(ValueError, match=r"layers\.1\.into\.weight is not in memory, as after offloading: load"):
        found.remove({"layers.0": [2, 3]})
