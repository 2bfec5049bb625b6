"""A pruned model against the same model with gates at 0: equal, lighter, and still a model like any other."""

import copy
import io

import pytest
import torch
from head_models import encoder, encoder_decoder, examples

from mha_course.heads.ablation import head_grid
from mha_course.heads.removal import HeadlessAttention, prune, prune_attention, select_heads
from mha_lib import MultiHeadAttention
from mha_lib.attention import FusedAttention

MODELS = [encoder, encoder_decoder, lambda seed: encoder(seed, num_layers=3, num_heads=4)]
SIZES = dict.fromkeys(("query_size", "key_size", "value_size"), 6)


def outputs(model, batch, gates=None):
    with torch.no_grad():
        return model(batch.inputs, batch.valid_lens, gates)


def random_plans(number):
    """(model, its gates, what it is called with), drawn at random; now and then a whole block is 0, or 1."""
    for seed in range(number):
        model, generator = MODELS[seed % len(MODELS)](seed), torch.Generator().manual_seed(seed)
        chance = torch.rand(len(model.blocks), 1, generator=generator) * 1.6 - 0.3
        gates = (torch.rand(head_grid(model), generator=generator) < chance).double()
        yield model, gates, examples(model, number=4, seed=seed)


def test_pruned_equals_masked_for_random_plans():
    sizes = set()
    for model, gates, batch in random_plans(20):
        sizes |= set(gates.sum(dim=1).tolist())
        torch.testing.assert_close(
            outputs(prune(model, remove=gates == 0), batch), outputs(model, batch, gates), rtol=0, atol=1e-12
        )
    assert sizes == {0, 1, 2, 3, 4}


def test_a_layer_without_heads_gives_w_os_bias():
    model = encoder()
    batch, X = examples(model), torch.randn(2, 4, 6, dtype=torch.float64)
    pruned = prune(model, remove={"layer 0": [0, 1, 2]})
    assert torch.equal(pruned.attentions[0](X, X, X), model.attentions[0].W_o.bias.expand(2, 4, 6))
    with pytest.raises(RuntimeError, match="attention_weights: there are none"):
        HeadlessAttention(6).attention_weights  # noqa: B018
    outputs(pruned, batch)
    assert [tuple(weights.shape) for weights in pruned.attention_weights] == [(6, 0, 7, 7), (6, 3, 7, 7)]
    assert torch.equal(HeadlessAttention(6)(X, X, X), torch.zeros(2, 4, 6, dtype=torch.float64))


@pytest.mark.parametrize("training", [False, True])
def test_mode_dropout_and_frozen_weights_are_kept_and_the_whole_model_as_it_was(training):
    model = encoder(num_heads=4).train(training).requires_grad_(training)
    before = copy.deepcopy(model.state_dict())
    pruned = prune(model, remove={"layer 0": [0, 1, 3], "layer 1": [0, 1, 2, 3]})
    assert all(module.training == training for module in pruned.modules())
    assert all(parameter.requires_grad == training for parameter in pruned.parameters())
    first, second = pruned.attentions
    assert first.attention.dropout.p == 0.2
    assert [tuple(first.W_q.weight.shape), tuple(first.W_v.bias.shape)] == [(2, 8), (2,)]
    assert [tuple(first.W_o.weight.shape), tuple(first.W_o.bias.shape)] == [(8, 2), (8,)]
    assert (first.W_k.out_features, first.W_o.in_features, first.num_heads) == (2, 2, 1)
    assert [name for name, _ in second.named_parameters()] == ["bias"]
    with torch.no_grad():
        for parameter in pruned.parameters():
            parameter.add_(1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_it_saves_and_loads_and_pruning_twice_is_pruning_once():
    model, plan = encoder(num_heads=4), {"layer 0": [2, 0], "layer 1": [0, 1, 2, 3]}
    batch, pruned = examples(model), prune(model, remove=plan)
    same_plan = prune(encoder(seed=5, num_heads=4), remove=plan)
    same_plan.load_state_dict(pruned.state_dict())
    file = io.BytesIO()
    torch.save(pruned, file)
    file.seek(0)
    twice = prune(prune(model, remove={"layer 0": [2], "layer 1": plan["layer 1"]}), remove={"layer 0": [0]})
    for same in (
        same_plan,
        torch.load(file, weights_only=False),
        twice,
        prune(model, remove=plan | {"layer 0": [0, 2]}),
    ):
        assert torch.equal(outputs(same, batch), outputs(pruned, batch))
    assert [layer.num_heads for layer in prune(model, remove={"layer 1": [0]}).attentions] == [4, 3]
    assert torch.equal(outputs(prune(model, remove={}), batch), outputs(model, batch))


def test_selected_heads_come_in_the_order_asked_for_and_may_repeat():
    torch.manual_seed(0)
    layer = MultiHeadAttention(6, 3, query_size=5, key_size=4, value_size=7).double()
    sequences = [torch.randn(2, 5, size, dtype=torch.float64) for size in (5, 4, 7)]
    selected = select_heads(layer, [2, 0, 2])
    selected(*sequences)
    layer(*sequences)
    torch.testing.assert_close(selected.attention_weights, layer.attention_weights[:, [2, 0, 2]])
    expected = layer(*sequences, head_mask=torch.tensor([1.0, 0.0, 2.0]))
    torch.testing.assert_close(selected(*sequences), expected)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"layer 0": [0, 3, -1]}, r"remove for 'layer 0' names heads that do not exist: \[3, -1\]; there are \[0, 1,"),
        ({"layer 1": [True]}, r"remove for 'layer 1' names heads that do not exist: \[True\]; there are \[0, 1, 2\]"),
        ({"layer 0": [1, 1]}, r"remove for 'layer 0' names a head twice: \[1, 1\]; there are \[0, 1, 2\]"),
        ({"layer 2": []}, r"remove names blocks that do not exist: \['layer 2'\]; there are \['layer 0', 'layer 1'\]"),
    ],
)
def test_plans_that_do_not_fit(plan, message):
    with pytest.raises(ValueError, match=message):
        prune(encoder(), remove=plan)


def test_layers_that_cannot_be_cut():
    with pytest.raises(ValueError, match=r"heads names heads that do not exist: \[0\]; there are \[\]"):
        prune_attention(HeadlessAttention(4), [0])
    with pytest.raises(ValueError, match="attention has open sizes: call it once"):
        prune_attention(MultiHeadAttention(6, 3), [0])


@pytest.mark.parametrize("size", [2, 5])  # of four heads for an output of 8: as usual, or one of their own
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("kept", [[0, 2, 3], [0, 1, 2], [1], [2, 3], [0, 3]], ids=str)
def test_query_heads_taken_out_where_keys_and_values_are_shared(groups, kept, size):
    """A key/value head goes with the last of its query heads; what is left gives what gates of 0 give."""
    layer = MultiHeadAttention(8, 4, bias=True, num_key_value_heads=groups, head_size=size, **SIZES).double()
    X, valid_lens = torch.randn(2, 6, 6, dtype=torch.float64), torch.tensor([6, 3])
    gates = torch.tensor([float(head in kept) for head in range(4)], dtype=torch.float64)
    fewer = prune_attention(layer, kept)
    torch.testing.assert_close(fewer(X, X, X, valid_lens), layer(X, X, X, valid_lens, gates), rtol=0, atol=1e-12)
    torch.testing.assert_close(fewer.attention_weights.double(), layer.attention_weights[:, kept], rtol=0, atol=1e-12)
    needed = {head * groups // 4 for head in kept}
    assert fewer.W_k.weight.shape == fewer.W_v.weight.shape == (size * len(needed), 6)
    assert fewer.W_q.weight.shape == (size * len(kept), 6)
    again = prune_attention(fewer, [len(kept) - 1])
    gates = torch.tensor([float(head == kept[-1]) for head in range(4)], dtype=torch.float64)
    torch.testing.assert_close(again(X, X, X), layer(X, X, X, head_mask=gates), rtol=0, atol=1e-12)


class Alibi(FusedAttention):
    """Scores fall with the distance of the key, in each head with a slope of its own."""

    def __init__(self, slopes):
        super().__init__()
        self.slopes = slopes

    def scores(self, queries, keys):
        distances = torch.arange(queries.shape[-2])[:, None] - torch.arange(keys.shape[-2])
        return super().scores(queries, keys) - self.slopes[:, None, None] * distances


class AlibiOfHeads(Alibi):
    def select_heads(self, heads):
        return AlibiOfHeads(self.slopes[list(heads)])


def test_heads_that_differ_are_taken_out_where_their_attention_says_how():
    slopes, X = torch.tensor([0.5, 0.25, 0.125]), torch.randn(2, 5, 6)
    with pytest.raises(TypeError, match=r"attention cannot be cut: .*give Alibi a method select_heads\(heads\)"):
        prune_attention(MultiHeadAttention(6, 3, attention=Alibi(slopes), **SIZES), [0, 2])
    layer = MultiHeadAttention(6, 3, attention=AlibiOfHeads(slopes), **SIZES)
    expected = layer(X, X, X, head_mask=torch.tensor([1.0, 0.0, 1.0]))
    torch.testing.assert_close(prune_attention(layer, [0, 2])(X, X, X), expected)
