"""The small Transformers: heads numbered, gated and masked as the docstrings say."""

import pytest
import torch

from mha_lib.transformer import Encoder, EncoderDecoder, PatchEmbedding, TokenEmbedding


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return Encoder(TokenEmbedding(7, 9, 12), num_hiddens=12, num_outputs=5, num_layers=3, num_heads=4).double().eval()


@pytest.fixture
def encoder_decoder():
    torch.manual_seed(1)
    embeddings = TokenEmbedding(7, 9, 12), TokenEmbedding(6, 8, 12)
    return EncoderDecoder(*embeddings, num_hiddens=12, num_outputs=5, num_heads=3).double().eval()


IDS = torch.tensor([[3, 1, 4, 1, 5, 2], [2, 6, 5, 3, 5, 1]])
TARGETS = torch.tensor([[1, 4, 2, 5], [0, 3, 3, 1]])


def without_columns(model, head_mask):
    """The output after each gate has been multiplied into the columns of W_o that belong to its head."""
    kept = [attention.W_o.weight.clone() for attention in model.attentions]
    with torch.no_grad():
        for attention, gates in zip(model.attentions, head_mask, strict=True):
            size = attention.W_o.weight.shape[1] // attention.num_heads
            attention.W_o.weight *= gates.repeat_interleave(size)
        inputs = (IDS, TARGETS) if isinstance(model, EncoderDecoder) else IDS
        output = model(inputs)
        for attention, weight in zip(model.attentions, kept, strict=True):
            attention.W_o.weight.copy_(weight)
    return output


@pytest.mark.parametrize("name", ["encoder", "encoder_decoder"])
def test_a_gate_scales_its_own_heads_columns(name, request):
    model = request.getfixturevalue(name)
    inputs = (IDS, TARGETS) if name == "encoder_decoder" else IDS
    gates = torch.rand(len(model.blocks), model.attentions[0].num_heads, dtype=torch.float64)
    torch.testing.assert_close(model(inputs, head_mask=gates), without_columns(model, gates), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["encoder", "encoder_decoder"])
def test_every_example_may_have_gates_of_its_own(name, request):
    model = request.getfixturevalue(name)
    inputs = (IDS, TARGETS) if name == "encoder_decoder" else IDS
    gates = torch.rand(2, len(model.blocks), model.attentions[0].num_heads, dtype=torch.float64)
    together = model(inputs, head_mask=gates)
    for example in range(2):
        alone = model(inputs, head_mask=gates[example])[example]
        torch.testing.assert_close(together[example], alone, rtol=0, atol=1e-12)


def test_the_forward_pass_is_its_two_halves(encoder):
    queries, context, lengths = encoder.before_last_attention(IDS)
    last = encoder.attentions[-1]
    torch.testing.assert_close(
        encoder.after_last_attention(queries, last(queries, context, context, lengths)), encoder(IDS)
    )


def test_padding_of_the_source_changes_nothing(encoder, encoder_decoder):
    other = IDS.clone()
    other[:, 4:] = 0
    lengths = torch.tensor([4, 3])
    torch.testing.assert_close(encoder(IDS, lengths)[:, :3], encoder(other, lengths)[:, :3])
    torch.testing.assert_close(encoder_decoder((IDS, TARGETS), lengths), encoder_decoder((other, TARGETS), lengths))
    assert not torch.allclose(encoder(IDS)[:, :3], encoder(other)[:, :3])


def test_a_target_token_sees_those_before_it_and_no_later_one(encoder_decoder):
    other = TARGETS.clone()
    other[:, 2] = torch.tensor([0, 5])
    before, after = encoder_decoder((IDS, TARGETS)), encoder_decoder((IDS, other))
    torch.testing.assert_close(before[:, :2], after[:, :2])
    assert (before[:, 3] - after[:, 3]).abs().max() > 1e-6


def test_weights_come_block_by_block(encoder_decoder):
    encoder_decoder((IDS, TARGETS))
    shapes = [tuple(weights.shape) for weights in encoder_decoder.attention_weights]
    assert list(encoder_decoder.blocks) == ["encoder", "decoder", "cross"]
    assert shapes == [(2, 3, 6, 6), (2, 3, 4, 4), (2, 3, 4, 6)]


def test_a_class_token_stands_before_the_patches():
    embedding = PatchEmbedding(patch_size=4, num_patches=3, num_hiddens=5)
    patches = torch.randn(2, 3, 4)
    tokens = embedding(patches)
    torch.testing.assert_close(tokens[:, 0], (embedding.class_token + embedding.positions[0]).expand(2, 5))
    torch.testing.assert_close(tokens[:, 1:], embedding.patches(patches) + embedding.positions[1:])


@pytest.mark.parametrize(
    ("gates", "error", "message"),
    [
        (torch.ones(2, 4), ValueError, r"head_mask must have shape \(3, num_heads\).*layer 1.*got \(2, 4\)"),
        (torch.ones(4), ValueError, r"head_mask must have shape .*got \(4,\)"),
        ([[1] * 4] * 3, TypeError, "head_mask must be a tensor, got list"),
        (torch.ones(3, 5), ValueError, r"head_mask must have shape \(4,\).*got \(5,\)"),
    ],
)
def test_gates_that_do_not_fit_are_refused(encoder, gates, error, message):
    with pytest.raises(error, match=message):
        encoder(IDS, head_mask=gates)


def test_too_long_a_sequence_is_refused(encoder):
    with pytest.raises(ValueError, match="ids must have at most 9 tokens, got 10"):
        encoder(torch.zeros(1, 10, dtype=torch.long))
