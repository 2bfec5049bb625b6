"""The library's loaders of real models, with Hugging Face's transformers as a witness."""

import sys
from importlib.util import find_spec

import pytest
import torch

from mha_course.models import load_transformers, pretrained, smollm2, smollm2_of_transformers

pytestmark = [
    pytest.mark.cpu,  # transformers fills parameters of its own, which were moved when their modules got them
    pytest.mark.transformers,
    pytest.mark.xdist_group("transformers"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.slow,
]
needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
needs_smollm2 = pytest.mark.skipif(not smollm2.PACKAGE.is_there(), reason="make real-models installs SmolLM2")
needs_minilm = pytest.mark.skipif(not pretrained.PACKAGE.is_there(), reason="make real-models installs MiniLM")


def assert_close(ours, theirs):
    """To 1e-5 of the largest number."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * theirs.abs().max().item())


@pytest.mark.long
@needs_transformers
@needs_smollm2
def test_smollm2_is_that_of_transformers():
    theirs, ours = smollm2_of_transformers(), smollm2.smollm2()
    ids = torch.tensor([[smollm2.FIRST_TOKEN, *ours.tokenize("The keys to the cabinet are on the table.")]])
    with torch.no_grad():
        assert_close(ours(ids, None), theirs(ids).logits)


@needs_transformers
@needs_minilm
def test_minilm_is_that_of_transformers():
    folder = pretrained.PACKAGE.find(next(iter(pretrained.PACKAGE.sha256))).parent
    transformers, ours = load_transformers(), pretrained.minilm()
    theirs = transformers.AutoModel.from_pretrained(str(folder), attn_implementation="eager").eval()
    texts = ["the queen thanked the old quiet waiter because she was late", "Half a loaf?", "no bread"]
    ids, valid_lens = ours.tokenize(texts)
    assert valid_lens.tolist() == [13, 6, 4] and ids.shape == (3, 13)
    mask = torch.arange(13) < valid_lens[:, None]
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask.long(), output_attentions=True)
        assert_close(ours(ids, valid_lens)[mask], expected.last_hidden_state[mask])
    for own, other in zip(ours.attention_weights, expected.attentions, strict=True):
        assert_close(own.transpose(1, 2)[mask], other.transpose(1, 2)[mask])


def test_where_transformers_is_missing_the_message_has_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        ImportError, match=r"transformers could not be imported.*pip install \"mha-course\[transformers\]"
    ):
        load_transformers()
