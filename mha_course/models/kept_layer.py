"""One attention layer of MiniLM with its input for two sentences: a real layer for a class of one's own, offline.

Layer 1 has a head that connects *she* with a person. ``make kept-maps`` writes it from MiniLM, in half precision; its
licence is that of MiniLM, Apache 2.0, and ``sentences.json`` beside the file names the source.
"""

import torch
from safetensors.torch import load
from torch import Tensor, nn

from mha_course.models.pretrained import SentenceMaps
from mha_course.models.shipped import filled, package_data
from mha_course.models.training import seeded
from mha_lib.attention import MultiHeadAttention

KEPT_LAYER, NUM_HIDDENS, NUM_HEADS = 1, 384, 12
COMMAND = "make kept-maps"
FILE = "models/sentences/layer_1.safetensors"
SENTENCES = (
    "the queen thanked the old quiet waiter because she was late",
    "the waiter thanked the old quiet queen because she was late",
)


class KeptLayer(nn.Module):
    """Hold an attention layer of MiniLM; ``maps(sentence)`` computes its heads on one of ``inputs``.

    Args:
        inputs: for each sentence what enters the layer, (n, 384).
    """

    def __init__(self, inputs: dict[str, Tensor]):
        super().__init__()
        size = NUM_HIDDENS
        self.inputs = inputs
        self.attention = MultiHeadAttention(size, NUM_HEADS, query_size=size, key_size=size, value_size=size, bias=True)

    def maps(self, sentence: str) -> SentenceMaps:
        """Return where the twelve heads attend in ``sentence``; the weights are (1, 12, n, n).

        Raises:
            ValueError: ``sentence`` is not one of those that are kept.
        """
        if sentence not in self.inputs:
            raise ValueError(f"sentence must be one of {list(self.inputs)}, got {sentence!r}")
        X = self.inputs[sentence][None]
        with torch.no_grad():
            self.attention(X, X, X)
        return SentenceMaps(sentence, ["[CLS]", *sentence.split(), "[SEP]"], self.attention.attention_weights.detach())


def kept_layer() -> KeptLayer:
    """Load layer 1 of MiniLM with its input for two sentences, in eval mode; MiniLM itself is not needed.

    Raises:
        FileNotFoundError: this copy of the library lacks the file; the message says how to get it.
    """
    kept = {name: part.float() for name, part in load(package_data(FILE, COMMAND)).items()}
    inputs = {sentence: kept.pop(str(number)) for number, sentence in enumerate(SENTENCES)}
    with seeded(0):  # the caller's random numbers stay as they were
        model = KeptLayer(inputs)
    return filled(model, kept, f"layer {KEPT_LAYER} of MiniLM")
