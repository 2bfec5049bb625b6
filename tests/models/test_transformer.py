"""The small Transformers: heads numbered, gated and masked as the docstrings say."""

import pytest
import torch

from mha_course.models.transformer import Encoder, EncoderDecoder, PatchEmbedding, TokenEmbedding
from mha_lib.attention.converters import loop_over_heads


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


def by_formula(block, X, context, gates, valid_lens=None):
    """A block as in Vaswani et al. 2017, section 3.1, with the attention as a loop over heads."""
    X = normalised(X + loop_over_heads(block.attention, X, context, context, valid_lens, gates)[0], block.norm)
    if block.feed_forward is None:
        return X
    first, _, second = block.feed_forward
    hidden = (X @ first.weight.T + first.bias).clamp(min=0)
    return normalised(X + hidden @ second.weight.T + second.bias, block.feed_forward_norm)


def normalised(X, norm):
    centred = X - X.mean(dim=-1, keepdim=True)
    return norm.weight * centred / (centred.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt() + norm.bias


def gates_of(num_heads):
    """Gates for all examples and for each of two, (3, num_heads) or (2, 3, num_heads); 0 among them."""
    gates = torch.arange(6.0 * num_heads, dtype=torch.float64).reshape(2, 3, num_heads) / 12
    return {"closed": 0 * gates[0], "for all examples": gates[0], "for each example": gates}


@pytest.mark.parametrize("gates", gates_of(4).values(), ids=gates_of(4))
def test_an_encoder_is_its_formula(encoder, gates):
    embedding, lengths = encoder.embedding, torch.tensor([6, 3])
    X = torch.stack([embedding.tokens.weight[row] + embedding.positions[:6] for row in IDS])
    for number, block in enumerate(encoder.blocks.values()):
        X = by_formula(block, X, X, gates[..., number, :], lengths)
    expected = X @ encoder.output.weight.T + encoder.output.bias
    torch.testing.assert_close(encoder(IDS, lengths, gates), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("gates", gates_of(3).values(), ids=gates_of(3))
def test_an_encoder_with_a_decoder_is_its_formula(encoder_decoder, gates):
    encoder, decoder, cross = encoder_decoder.blocks.values()
    lengths = torch.tensor([6, 3])
    X = encoder_decoder.source_embedding.tokens.weight[IDS] + encoder_decoder.source_embedding.positions[:6]
    Y = encoder_decoder.target_embedding.tokens.weight[TARGETS] + encoder_decoder.target_embedding.positions[:4]
    X = by_formula(encoder, X, X, gates[..., 0, :], lengths)
    Y = by_formula(decoder, Y, Y, gates[..., 1, :], torch.tensor([[1, 2, 3, 4]] * 2))
    Y = by_formula(cross, Y, X, gates[..., 2, :], lengths)
    expected = Y @ encoder_decoder.output.weight.T + encoder_decoder.output.bias
    torch.testing.assert_close(encoder_decoder((IDS, TARGETS), lengths, gates), expected, rtol=0, atol=1e-12)


def test_tokens_of_several_ids_are_their_sum():
    embedding = TokenEmbedding(7, 9, 4)
    ids = torch.tensor([[[1, 5], [2, 2]]])
    table, places = embedding.tokens.weight, embedding.positions
    expected = torch.stack([table[1] + table[5] + places[0], 2 * table[2] + places[1]])
    torch.testing.assert_close(embedding(ids)[0], expected)


def test_the_forward_pass_is_its_two_halves(encoder):
    queries, context, lengths = encoder.before_last_attention(IDS)
    last = encoder.attentions[-1]
    torch.testing.assert_close(
        encoder.after_last_attention(queries, last(queries, context, context, lengths)), encoder(IDS)
    )


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
        (torch.ones(2, 4), ValueError, r"head_mask must have shape \(3, num_heads\).*layer 0.*got \(2, 4\)"),
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


BAD_IDS = {
    "list": ([[3, 1]], TypeError, r"ids must be a tensor of shape \(batch, n\) or .*got list"),
    "float": (IDS.float(), TypeError, "ids must hold integers, .*got torch.float32"),
    "bool": (IDS > 2, TypeError, "ids must hold integers, .*got torch.bool"),
    "1-D": (IDS[0], ValueError, r"ids must have shape \(batch, n\) or \(batch, n, fields\), got \(6,\)"),
    "negative": (IDS - 2, ValueError, "ids must lie between 0 and 6, got -1 to 4"),
    "too large": (IDS + 1, ValueError, "ids must lie between 0 and 6, got 2 to 7"),
    "too large, fields": (IDS[..., None] + 1, ValueError, "ids must lie between 0 and 6, got 2 to 7"),
    "elsewhere": (IDS.to("meta"), ValueError, "ids must be on the device of the layer's parameters, cpu, got meta"),
}


@pytest.mark.cpu
@pytest.mark.parametrize("ids, error, message", BAD_IDS.values(), ids=BAD_IDS)
def test_ids_that_are_none_are_refused(encoder, ids, error, message):
    with pytest.raises(error, match=message):
        encoder(ids)


@pytest.mark.parametrize(
    "patches, error, message",
    [
        (torch.zeros(2, 3, 4).tolist(), TypeError, r"patches must be a tensor of shape \(batch, 3, 4\), got list"),
        (torch.zeros(3, 4), ValueError, r"patches must have shape \(batch, 3, 4\), got \(3, 4\)"),
        (torch.zeros(2, 4, 3), ValueError, r"patches must have shape \(batch, 3, 4\), got \(2, 4, 3\)"),
        (torch.zeros(2, 3, 4).long(), TypeError, "patches must hold floating-point numbers"),
    ],
)
def test_patches_that_do_not_fit_are_refused(patches, error, message):
    with pytest.raises(error, match=message):
        PatchEmbedding(patch_size=4, num_patches=3, num_hiddens=5)(patches)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ids_of_both_kinds_of_integers_and_none_at_all(encoder, dtype):
    torch.testing.assert_close(encoder(IDS.to(dtype)), encoder(IDS))
    assert encoder(IDS[:0].to(dtype)).shape == (0, 6, 5)
