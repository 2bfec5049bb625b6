"""Our layer behind torch's call, in torch's own blocks and in torchvision's model, and as Hugging Face's attention."""

import copy

import pytest
import torch
from on_device import DEVICE
from references import random_numbers
from torch import nn
from torch.nn import functional as F

from mha_lib.attention import converters
from mha_lib.attention.torch_calls import hugging_face_attention

PADDING = torch.arange(7) >= torch.tensor([[7], [4], [2]])
LATER = torch.ones(7, 7, dtype=torch.bool).triu(1)
BIAS = random_numbers(7, 7)
MASKS = {
    "none": {},
    "padding": dict(key_padding_mask=PADDING),
    "later": dict(attn_mask=LATER, is_causal=True),
    "both": dict(attn_mask=LATER, key_padding_mask=PADDING),
    "bias": dict(attn_mask=BIAS),
    "bias and padding": dict(attn_mask=BIAS, key_padding_mask=PADDING),
    "of each head": dict(attn_mask=random_numbers(12, 7, 7)),
    "of each head and padding": dict(
        attn_mask=torch.eye(7, dtype=torch.bool).expand(12, 7, 7), key_padding_mask=PADDING
    ),
    "padding as numbers": dict(key_padding_mask=random_numbers(3, 7)),
}


def torchs(batch_first=True):
    torch.manual_seed(2)
    peer = nn.MultiheadAttention(8, 4, batch_first=batch_first, dtype=torch.float64)
    for parameter in peer.parameters():
        nn.init.normal_(parameter, std=0.6)
    return peer


def ours_for(peer):
    swapped = copy.deepcopy(peer)
    swapped.batch_first = True
    return converters.as_torch(converters.from_torch(swapped), peer.batch_first)


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


MISMATCH = pytest.mark.filterwarnings("ignore:Support for mismatched")  # of torch's layer, for one bool and one float


@MISMATCH
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
def test_a_call_gives_what_torchs_layer_gives(masks, average):
    peer, X, Y = torchs(), random_numbers(3, 7, 8), random_numbers(3, 7, 8)
    found = ours_for(peer)(X, Y, X, average_attn_weights=average, **masks)
    for one, other in zip(found, peer(X, Y, X, average_attn_weights=average, **masks), strict=True):
        assert_same(one, other)
    output, weights = ours_for(peer)(X, Y, X, need_weights=False, **masks)
    assert weights is None
    assert_same(output, found[0])


@MISMATCH
def test_the_other_order_of_axes_and_a_single_example():
    peer, X, Y = torchs(batch_first=False), random_numbers(7, 3, 8), random_numbers(5, 3, 8)
    for one, other in zip(ours_for(peer)(X, Y, Y), peer(X, Y, Y), strict=True):
        assert_same(one, other)
    masks = dict(key_padding_mask=PADDING[1, :5], attn_mask=random_numbers(4, 7, 5))
    for one, other in zip(
        ours_for(peer)(X[:, 0], Y[:, 0], Y[:, 0], **masks), peer(X[:, 0], Y[:, 0], Y[:, 0], **masks), strict=True
    ):
        assert_same(one, other)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True, but:UserWarning")  # sequences before the batch
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype:UserWarning")
def test_torchs_encoder_computes_the_same_with_our_layers(training, batch_first):
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(8, 4, 16, 0.0, batch_first=batch_first, dtype=torch.float64)
    encoder = nn.TransformerEncoder(layer, 2).train(training)
    inside, X = copy.deepcopy(encoder), random_numbers(3, 7, 8)
    for block in inside.layers:
        block.self_attn = ours_for(block.self_attn)
    X = X if batch_first else X.transpose(0, 1)
    causal = nn.Transformer.generate_square_subsequent_mask(7, DEVICE, torch.float64)
    for masks in ({}, dict(src_key_padding_mask=PADDING), dict(mask=causal, is_causal=True)):
        assert_same(inside(X, **masks), encoder(X, **masks))
        assert inside.state_dict().keys().isdisjoint(name for name in encoder.state_dict() if "attn" in name)
        with torch.no_grad():  # where torch's own goes down the fast path
            seen = ~PADDING if "src_key_padding_mask" in masks else ~PADDING[:1].expand(3, 7)
            seen = seen if batch_first else seen.T
            assert_same(inside(X, **masks)[seen], encoder(X, **masks)[seen])
    with torch.no_grad():
        inside.layers[0].self_attn.layer.W_v.weight.mul_(1.5)
        assert (inside(X) - encoder(X)).abs().max() > 1e-3  # our layer is what computes


def test_torchvisions_transformer_computes_the_same_with_our_layers():
    pytest.importorskip("d2l")  # load_d2l declares what torchvision misses beside another torch
    converters.load_d2l()
    from torchvision.models import VisionTransformer

    torch.manual_seed(5)
    model = (
        VisionTransformer(24, 8, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=40, num_classes=5).double().eval()
    )
    nn.init.normal_(model.heads.head.weight)
    inside, images = copy.deepcopy(model), random_numbers(2, 3, 24, 24)
    for block in inside.encoder.layers:
        block.self_attention = ours_for(block.self_attention)
    assert_same(inside(images), model(images))


def test_a_layer_is_wrapped_as_it_is_and_what_is_not_of_this_library_or_a_hint_without_its_mask_is_refused():
    with pytest.raises(TypeError, match=r"layer must be mha_lib's MultiHeadAttention, got MultiheadAttention"):
        converters.as_torch(nn.MultiheadAttention(8, 4))
    X, layer = random_numbers(3, 7, 8), converters.from_torch(torchs())
    assert converters.as_torch(layer).layer is layer
    with pytest.raises(ValueError, match="is_causal must come with attn_mask, as in torch"):
        converters.as_torch(layer)(X, X, X, is_causal=True)


# Hugging Face's call.


class Layer(nn.Module):
    is_causal = True


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("scaling", [None, 0.3])
@pytest.mark.parametrize("mask", [None, torch.rand(3, 1, 5, 9) < 0.7, random_numbers(3, 4, 5, 6)])
def test_the_attention_of_hugging_face_is_torchs_kernel(groups, scaling, mask):
    query, key, value = random_numbers(3, 4, 5, 8), random_numbers(3, groups, 6, 8), random_numbers(3, groups, 6, 8)
    if mask is not None and mask.dtype == torch.bool:
        mask[..., 0] = True  # no empty row
    output, weights = hugging_face_attention(Layer().eval(), query, key, value, mask, scaling, is_causal=False, head=1)
    seen = None if mask is None else mask[..., :6]
    expected = F.scaled_dot_product_attention(query, key, value, seen, scale=scaling, enable_gqa=True)
    assert weights is None
    assert_same(output, expected.transpose(1, 2))


def test_the_attention_of_hugging_face_is_causal_where_its_layer_is():
    query, key, value = (random_numbers(3, 4, 5, 8) for _ in range(3))
    layer = Layer().eval()
    output, _ = hugging_face_attention(layer, query, key, value, None)
    assert_same(output, F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2))
    layer.is_causal = False
    output, _ = hugging_face_attention(layer, query, key, value, None)
    assert_same(output, F.scaled_dot_product_attention(query, key, value).transpose(1, 2))


def test_the_attention_of_hugging_face_drops_weights_in_training_alone():
    query, key, layer = random_numbers(2, 4, 30, 8), random_numbers(2, 4, 30, 8), Layer()
    ones = torch.ones(2, 4, 30, 8, dtype=torch.float64)
    torch.manual_seed(0)
    output, _ = hugging_face_attention(layer.train(), query, key, ones, None, dropout=0.5, is_causal=False)
    assert output.std() > 0.05 and output.mean().item() == pytest.approx(1, abs=0.1)
    output, _ = hugging_face_attention(layer.eval(), query, key, ones, None, dropout=0.5, is_causal=False)
    assert_same(output, torch.ones_like(output))
