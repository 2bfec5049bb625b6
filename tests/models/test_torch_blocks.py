"""Trained blocks as torch's layers: the same numbers, and what torch cannot have is named."""

import pytest
import torch

from mha_course import models
from mha_course.models import torch_decoder_layer, torch_encoder_layer

pytestmark = pytest.mark.cpu  # models that ship, and rows that they answer


def test_a_trained_encoder_in_torchs_layers_says_the_same():
    model, task = models.shipped_model("lookups"), models.find_task("lookups")
    X = model.embedding(task.held_out.inputs[:9])
    expected, Z = model(task.held_out.inputs[:9]), X
    for block in model.blocks.values():
        Z = torch_encoder_layer(block)(Z)
    torch.testing.assert_close(model.output(Z), expected, rtol=0, atol=1e-4)
    other = torch_encoder_layer(model.blocks["layer 0"], norm_first=True)(X)
    assert (other - torch_encoder_layer(model.blocks["layer 0"])(X)).abs().max() > 0.1


def test_a_trained_decoder_in_torchs_layer_says_the_same():
    model, task = models.shipped_model("dates"), models.find_task("dates")
    batch = task.held_out[:7]
    source, target = (
        embed(ids) for embed, ids in zip((model.source_embedding, model.target_embedding), batch.inputs, strict=True)
    )
    padding = torch.arange(source.shape[1]) >= batch.valid_lens[:, None]
    memory = torch_encoder_layer(model.blocks["encoder"])(source, src_key_padding_mask=padding)
    later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
    decode = torch_decoder_layer(model.blocks["decoder"], model.blocks["cross"])
    written = decode(target, memory, tgt_mask=later, memory_key_padding_mask=padding)
    torch.testing.assert_close(model.output(written), model(batch.inputs, batch.valid_lens), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda with_mlp, without: torch_encoder_layer(without), "block must have a feed-forward network"),
        (lambda with_mlp, without: torch_decoder_layer(with_mlp, with_mlp), "own must have no feed-forward network"),
        (lambda with_mlp, without: torch_decoder_layer(without, without), "cross must have a feed-forward network"),
    ],
)
def test_what_torch_cannot_have_is_named(make, named):
    blocks = models.shipped_model("dates").blocks
    with pytest.raises(ValueError, match=named):
        make(blocks["cross"], blocks["decoder"])
