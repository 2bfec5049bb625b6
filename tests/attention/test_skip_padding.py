"""Long examples attended to one at a time give what the mask gives."""

import pytest
import torch
from torch.nn import functional as F

from mha_lib.attention import FusedAttention

LENGTHS = torch.tensor([0, 256, 100, 1])


def one_result(skip_padding, dropout=0.0, dtype=torch.float64, valid_lens=LENGTHS, shape=(4, 2, 256, 3), causal=False):
    """Output, weights and gradients of an attention whose dropout lets everything through."""
    torch.manual_seed(0)
    layer = FusedAttention(dropout)
    layer.dropout.forward = lambda weights: weights
    layer.skip_padding = skip_padding
    sequences = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]
    output = layer(*sequences, valid_lens, causal=causal)
    output.backward(torch.randn(shape, dtype=dtype))
    return output, layer.attention_weights, *(X.grad for X in sequences)


@pytest.fixture
def calls(monkeypatch):
    """Lengths of the keys in every call of the fused kernel."""
    lengths = []

    fused = F.scaled_dot_product_attention

    def counted(queries, keys, *others, **options):
        lengths.append(keys.shape[-2])
        return fused(queries, keys, *others, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    return lengths


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("shape", [(4, 2, 256, 3), (4, 256, 3)])
@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS.float()])
@pytest.mark.parametrize("causal", [False, True])
def test_skipping_changes_nothing(dropout, shape, lengths, causal):
    skipped = one_result(True, dropout, shape=shape, valid_lens=lengths, causal=causal)
    torch.testing.assert_close(skipped, one_result(False, dropout, shape=shape, causal=causal))


@pytest.mark.parametrize("causal", [False, True])
def test_each_example_sees_its_valid_keys_alone(calls, causal):
    one_result(True, shape=(4, 2, 256, 3), causal=causal)
    assert calls == LENGTHS.tolist()


@pytest.mark.parametrize(
    "how",
    [
        {"skip_padding": False},
        {"skip_padding": True, "valid_lens": LENGTHS[:, None].expand(4, 256)},
        {"skip_padding": True, "valid_lens": None},
        {"skip_padding": True, "shape": (4, 2, 255, 3), "valid_lens": LENGTHS.clamp(max=255)},
        {"skip_padding": True, "shape": (0, 2, 256, 3), "valid_lens": LENGTHS[:0]},
    ],
    ids=["switched off", "a length for each query", "no lengths", "short examples", "no example"],
)
def test_otherwise_there_is_one_call(calls, how):
    one_result(**how)
    assert len(calls) == 1
