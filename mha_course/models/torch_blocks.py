"""Trained blocks as PyTorch's own layers, with the same parameters: for whoever works with these, or compares."""

from torch import nn

from mha_course.models.transformer import Block
from mha_lib.attention.converters import to_torch


def torch_encoder_layer(block: Block, norm_first: bool = False) -> nn.TransformerEncoderLayer:
    """Convert a self-attention ``Block`` to ``nn.TransformerEncoderLayer`` (batch first) with the same weights.
    It is in eval mode.

    >>> type(torch_encoder_layer(models.shipped_model("lookups").blocks["layer 0"])).__name__
    'TransformerEncoderLayer'

    Norms and feed-forward network are the block's own modules, the attention is a copy.

    Args:
        block: one with a feed-forward network.
        norm_first: torch's flag. Our blocks normalise after each addition; with True the same parameters are another
            function.

    Raises:
        ValueError: ``block`` has no feed-forward network, or its attention is none that torch has (see ``to_torch``).
    """
    linear1, linear2 = _linear_maps(block, "block")
    d, h = linear1.in_features, block.attention.num_heads
    layer = nn.TransformerEncoderLayer(d, h, linear1.out_features, 0.0, batch_first=True, norm_first=norm_first)
    layer.self_attn, layer.linear1, layer.linear2 = to_torch(block.attention), linear1, linear2
    layer.norm1, layer.norm2 = block.norm, block.feed_forward_norm
    return layer.eval()


def torch_decoder_layer(own: Block, cross: Block) -> nn.TransformerDecoderLayer:
    """Convert a self- and a cross-attention ``Block`` to one ``nn.TransformerDecoderLayer`` with the same weights.
    It is batch first and in eval mode.

    Args:
        own: the first, without a feed-forward network.
        cross: the second, with one.

    Raises:
        ValueError: a feed-forward network is missing or is one too many, or an attention is none that torch has.
    """
    if own.feed_forward is not None:
        raise ValueError("own must have no feed-forward network: torch's layer has one, behind the cross-attention")
    linear1, linear2 = _linear_maps(cross, "cross")
    d, h = linear1.in_features, own.attention.num_heads
    layer = nn.TransformerDecoderLayer(d, h, linear1.out_features, 0.0, batch_first=True)
    layer.self_attn, layer.norm1 = to_torch(own.attention), own.norm
    layer.multihead_attn, layer.norm2 = to_torch(cross.attention), cross.norm
    layer.linear1, layer.linear2, layer.norm3 = linear1, linear2, cross.feed_forward_norm
    return layer.eval()


def _linear_maps(block: Block, name: str) -> list[nn.Linear]:
    """The two linear maps of a block's feed-forward network."""
    if block.feed_forward is None:
        raise ValueError(f"{name} must have a feed-forward network, got a block without one")
    return [part for part in block.feed_forward if isinstance(part, nn.Linear)]
