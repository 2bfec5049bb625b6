"""MiniLM on this library's layer, and what is kept of it; that it is transformers' model: test_hugging_face."""

from pathlib import Path

import pytest
import torch

from mha_course.models import pretrained


@pytest.fixture(scope="module")
def model():
    try:
        return pretrained.minilm()
    except ImportError as error:
        pytest.skip(str(error))


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
