"""Small models with random weights, and examples that they answer rightly: heads matter, and nothing is trained."""

import copy

import torch

from mha_course.models.tasks import Batch, Task
from mha_course.models.transformer import Encoder, EncoderDecoder, TokenEmbedding, Transformer

TASK = Task()


def encoder(seed: int = 0, num_layers: int = 2, num_heads: int = 3, dtype=torch.float64) -> Encoder:
    """Heads of size 2 in tokens of 2 · num_heads features."""
    torch.manual_seed(seed)
    size = 2 * num_heads
    model = Encoder(TokenEmbedding(11, 7, size), size, 5, num_layers, num_heads, ffn_num_hiddens=8)
    return _loud(model).to(dtype).eval()


def encoder_decoder(seed: int = 0, num_heads: int = 2, dtype=torch.float64) -> EncoderDecoder:
    torch.manual_seed(seed)
    size = 2 * num_heads
    model = EncoderDecoder(
        TokenEmbedding(11, 7, size), TokenEmbedding(9, 5, size), size, 5, num_heads, ffn_num_hiddens=8
    )
    return _loud(model).to(dtype).eval()


def _loud(model: Transformer) -> Transformer:
    """Attention that outweighs the residual path, with biases of its own."""
    with torch.no_grad():
        for attention in model.attentions:
            for linear in (attention.W_q, attention.W_k, attention.W_v, attention.W_o):
                linear.weight.normal_()
                linear.bias.normal_()
    return model


def examples(model: Transformer, number: int = 6, seed: int = 1) -> Batch:
    """Sequences with padding; the right answers are the model's own, but for every fifth."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(11, (number, 7), generator=generator)
    if isinstance(model, EncoderDecoder):
        inputs = inputs, torch.randint(9, (number, 5), generator=generator)
    valid_lens = torch.randint(2, 8, (number,), generator=generator)
    with torch.no_grad():
        targets = model(inputs, valid_lens).argmax(dim=-1)
    targets.view(-1)[::5] = (targets.view(-1)[::5] + 1) % 5
    return Batch(inputs, valid_lens, targets)


def without_columns(model, layer, off):
    """A copy whose mixing matrix has zeros for these heads."""
    cut = copy.deepcopy(model)
    mixing = cut.get_submodule(layer.mixing)
    weight = mixing.weight.T if type(mixing).__name__ == "Conv1D" else mixing.weight
    with torch.no_grad():
        weight.unflatten(1, (layer.num_heads, -1))[:, off] = 0
    return cut
