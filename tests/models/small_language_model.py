"""A language model of SmolLM2's thirty layers of nine heads that is small: what is computed does not depend on size."""

import functools
from types import SimpleNamespace
from unittest import mock

import torch

from mha_course.models import smollm2

WORDS = [f" w{number}" for number in range(60)]


class Tokenizer:
    """Words w0 to w59, one token each."""

    def encode(self, text):
        return SimpleNamespace(ids=[int(word[1:]) for word in text.split()])

    def decode(self, ids, skip_special_tokens=True):
        return "".join(WORDS[number] for number in ids)


@functools.cache
def small_language_model():
    """Its parameters are drawn, large enough for heads to matter."""
    sizes = {"NUM_HIDDENS": 36, "FFN_NUM_HIDDENS": 8, "VOCAB_SIZE": len(WORDS)}
    with torch.random.fork_rng(devices=()), mock.patch.multiple(smollm2, **sizes):
        torch.manual_seed(5)
        model = smollm2.SmolLM2(Tokenizer())
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter.data, std=0.3)
    return model.eval()
