"""Small Transformers whose heads can all be reached: an encoder, and an encoder with a decoder.

Both are a row of blocks, each with one attention. So a model's heads are numbered (block, head), gates on all of them
fit into one tensor ``head_mask``, and what follows the last attention is a function of its output alone.
"""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from mha_course.models.any_layer import attend, weights_of
from mha_lib.attention import MultiHeadAttention, arguments
from mha_lib.attention.execution import values_readable

__all__ = ["Block", "PatchEmbedding", "TokenEmbedding"]


class TokenEmbedding(nn.Module):
    """Embed token ids as vectors of size ``num_hiddens``, and add learned position embeddings.

    >>> TokenEmbedding(vocab_size=10, max_tokens=16, num_hiddens=8)(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 8])
    """

    def __init__(self, vocab_size: int, max_tokens: int, num_hiddens: int):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, num_hiddens)
        self.positions = nn.Parameter(torch.randn(max_tokens, num_hiddens))

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, n), or (batch, n, fields) for tokens that are the sum of several ids → (batch, n, num_hiddens).

        Raises:
            TypeError, ValueError: ``ids`` is no tensor of integers from 0 to vocab_size − 1, or too long.
        """
        _check_ids(ids, self.tokens.num_embeddings, len(self.positions))
        arguments.check_device("ids", ids, self.positions.device, "the layer's parameters")
        vectors = self.tokens(ids)
        if ids.dim() == 3:
            vectors = vectors.sum(dim=2)
        return vectors + self.positions[: ids.shape[1]]


class PatchEmbedding(nn.Module):
    """Embed the patches of an image for a vision transformer, with a class token in front.

    Source: Dosovitskiy et al. 2021, section 3.1; d2l 11.8.
    """

    def __init__(self, patch_size: int, num_patches: int, num_hiddens: int):
        super().__init__()
        self.patches = nn.Linear(patch_size, num_hiddens)
        self.class_token = nn.Parameter(0.1 * torch.randn(num_hiddens))
        self.positions = nn.Parameter(0.1 * torch.randn(1 + num_patches, num_hiddens))

    def forward(self, patches: Tensor) -> Tensor:
        """(batch, num_patches, patch_size) → (batch, 1 + num_patches, num_hiddens)."""
        _check_patches(patches, len(self.positions) - 1, self.patches.in_features)
        class_token = self.class_token.expand(len(patches), 1, -1)
        return torch.cat([class_token, self.patches(patches)], dim=1) + self.positions


def _check_ids(ids: Tensor, vocab_size: int, max_tokens: int) -> None:
    """Refuse what are not token ids of a vocabulary, in sequences of at most ``max_tokens``."""
    arguments.check_tensor("ids", ids, ("(batch, n)", "(batch, n, fields)"))
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids must hold integers, torch.int64 or torch.int32, got {ids.dtype}")
    if ids.dim() not in (2, 3):
        raise ValueError(f"ids must have shape (batch, n) or (batch, n, fields), got {tuple(ids.shape)}")
    if ids.shape[1] > max_tokens:
        raise ValueError(f"ids must have at most {max_tokens} tokens, got {ids.shape[1]}")
    if ids.numel() and values_readable(ids):
        lowest, highest = (end.item() for end in ids.aminmax())
        if lowest < 0 or highest >= vocab_size:
            raise ValueError(f"ids must lie between 0 and {vocab_size - 1}, got {lowest} to {highest}")


def _check_patches(patches: Tensor, num_patches: int, patch_size: int) -> None:
    """Refuse what are not images, each as ``num_patches`` rows of ``patch_size`` pixels."""
    arguments.check_floats("patches", patches, {3: f"(batch, {num_patches}, {patch_size})"})
    if patches.shape[1:] != (num_patches, patch_size):
        raise ValueError(f"patches must have shape (batch, {num_patches}, {patch_size}), got {tuple(patches.shape)}")


class Block(nn.Module):
    """Apply a Transformer block: attention, then a feed-forward network unless ``ffn_num_hiddens`` is None.
    Each is followed by add & norm.

    In training, attention weights are dropped with the probability ``dropout``. Source: Vaswani et al. 2017, section
    3.1 (normalised after the addition, as there).
    """

    def __init__(self, num_hiddens: int, num_heads: int, ffn_num_hiddens: int | None, dropout: float):
        super().__init__()
        self.attention = MultiHeadAttention(
            num_hiddens,
            num_heads,
            dropout,
            bias=True,
            query_size=num_hiddens,
            key_size=num_hiddens,
            value_size=num_hiddens,
        )
        self.norm = nn.LayerNorm(num_hiddens)
        self.feed_forward = None
        if ffn_num_hiddens is not None:
            self.feed_forward = nn.Sequential(
                nn.Linear(num_hiddens, ffn_num_hiddens), nn.ReLU(), nn.Linear(ffn_num_hiddens, num_hiddens)
            )
            self.feed_forward_norm = nn.LayerNorm(num_hiddens)

    def forward(self, X: Tensor, context: Tensor, valid_lens: Tensor | None, gates: Tensor | None) -> Tensor:
        """Tokens X (batch, n, num_hiddens) look at ``context`` (batch, m, num_hiddens): X itself, or an encoder's."""
        return self.after_attention(X, attend(self.attention, X, context, valid_lens, gates))

    def after_attention(self, X: Tensor, attended: Tensor) -> Tensor:
        """Return the rest of the block, from its input and its attention's output, both (batch, n, num_hiddens)."""
        X = self.norm(X + attended)
        return X if self.feed_forward is None else self.feed_forward_norm(X + self.feed_forward(X))


class Transformer(nn.Module):
    """Hold named attention blocks and an output layer: the base class of this library's Transformer models.

    ``blocks[name].attention`` may be replaced by a layer with fewer heads, or of another class (``any_layer``). The
    last attention is computed apart: its output is W_o's bias + Σ gate · head · W_o⁽ʰᵉᵃᵈ⁾, linear in its gates, so all
    its head subsets are cheap.
    """

    def __init__(self, blocks: dict[str, Block], num_hiddens: int, num_outputs: int):
        super().__init__()
        self.blocks = cast(Mapping[str, Block], nn.ModuleDict(blocks))  # to torch, its values are any modules
        self.output: nn.Module = nn.Linear(num_hiddens, num_outputs)

    @property
    def device(self) -> torch.device:
        """Where the parameters are, and inputs must be."""
        return next(self.parameters()).device

    @property
    def attentions(self) -> list[MultiHeadAttention]:
        """The attention layers, in the order of ``blocks``."""
        return [block.attention for block in self.blocks.values()]

    @property
    def attention_weights(self) -> list[Tensor]:
        """Weights of the last call, for each block (batch, num_heads, num_queries, num_keys)."""
        return [weights_of(attention) for attention in self.attentions]

    def forward(self, inputs, valid_lens: Tensor | None = None, head_mask: Tensor | None = None) -> Tensor:
        """Outputs for every token: (batch, n, num_outputs).

        Args:
            inputs: what the model's ``before_last_attention`` takes.
            valid_lens: how many input tokens count, None or (batch,).
            head_mask: a gate on each head, None, (num_blocks, num_heads) or (batch, num_blocks, num_heads); 0 switches
                the head off; differentiable.

        Raises:
            TypeError, ValueError: the arguments do not fit; the message names the one that does not.
        """
        queries, context, lengths = self.before_last_attention(inputs, valid_lens, head_mask)
        gates = self.gates(head_mask)[-1]
        attended = attend(self.attentions[-1], queries, context, lengths, gates)
        return self.after_last_attention(queries, attended)

    def before_last_attention(
        self, inputs, valid_lens: Tensor | None = None, head_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return what the last attention gets: queries, context (its keys and values) and valid_lens.

        Arguments as in ``forward``; the last block's gates have no effect here.
        """
        raise NotImplementedError

    def after_last_attention(self, queries: Tensor, attended: Tensor) -> Tensor:
        """Return the model's outputs, from the last attention's queries and output, both (batch, n, num_hiddens)."""
        last = list(self.blocks.values())[-1]
        return self.output(last.after_attention(queries, attended))

    def gates(self, head_mask: Tensor | None) -> list[Tensor | None]:
        """``head_mask`` cut into each block's gates."""
        if head_mask is None:
            return [None] * len(self.blocks)
        if not isinstance(head_mask, Tensor):
            raise TypeError(f"head_mask must be a tensor, got {type(head_mask).__name__}")
        if head_mask.dim() not in (2, 3) or head_mask.shape[-2] != len(self.blocks):
            raise ValueError(
                f"head_mask must have shape ({len(self.blocks)}, num_heads) or (batch, {len(self.blocks)}, num_heads), "
                f"a row for each of the blocks {', '.join(self.blocks)}; got {tuple(head_mask.shape)}"
            )
        return list(head_mask.unbind(dim=-2))


class Encoder(Transformer):
    """Encode a sequence by blocks of self-attention, with ``num_outputs`` output numbers for each token.

    Args:
        embedding: inputs → (batch, n, num_hiddens).
        num_hiddens: size of the tokens; divisible by ``num_heads``.
        num_outputs: number of outputs for each token.
        num_layers, num_heads: number of blocks, and of heads in each.
        ffn_num_hiddens: hidden size of the feed-forward networks.
        dropout: probability of dropping an attention weight in training.
    """

    def __init__(
        self,
        embedding: nn.Module,
        num_hiddens: int,
        num_outputs: int,
        num_layers: int = 2,
        num_heads: int = 6,
        ffn_num_hiddens: int = 96,
        dropout: float = 0.2,
    ):
        names = [f"layer {number}" for number in range(num_layers)]
        blocks = {name: Block(num_hiddens, num_heads, ffn_num_hiddens, dropout) for name in names}
        super().__init__(blocks, num_hiddens, num_outputs)
        self.embedding = embedding

    def before_last_attention(self, inputs, valid_lens=None, head_mask=None):
        X = self.embedding(inputs)
        *all_but_last, _ = zip(self.blocks.values(), self.gates(head_mask), strict=True)
        for block, gates in all_but_last:
            X = block(X, X, valid_lens, gates)
        return X, X, valid_lens


class EncoderDecoder(Transformer):
    """Compute outputs for target tokens from a pair (source, target), by an encoder block and a decoder layer.

    Three kinds of attention: ``encoder`` (the source looks at itself), ``decoder`` (each target token looks at itself
    and those before it), ``cross`` (target tokens look at the source). ``valid_lens`` counts the source's tokens.

    Args:
        source_embedding, target_embedding: ids → (batch, n, num_hiddens).
        num_hiddens: size of the tokens; divisible by ``num_heads``.
        num_outputs: number of outputs for each target token.
        num_heads: number of heads of each kind.
        The rest as in ``Encoder``.

    Source: Vaswani et al. 2017, section 3.2.3; d2l 11.7.
    """

    def __init__(
        self,
        source_embedding: nn.Module,
        target_embedding: nn.Module,
        num_hiddens: int,
        num_outputs: int,
        num_heads: int = 4,
        ffn_num_hiddens: int = 96,
        dropout: float = 0.2,
    ):
        ffn_sizes = {"encoder": ffn_num_hiddens, "decoder": None, "cross": ffn_num_hiddens}
        blocks = {name: Block(num_hiddens, num_heads, size, dropout) for name, size in ffn_sizes.items()}
        super().__init__(blocks, num_hiddens, num_outputs)
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding

    def before_last_attention(self, inputs, valid_lens=None, head_mask=None):
        source, target = inputs
        gates = self.gates(head_mask)
        X, Y = self.source_embedding(source), self.target_embedding(target)
        X = self.blocks["encoder"](X, X, valid_lens, gates[0])
        so_far = torch.arange(1, Y.shape[1] + 1, device=Y.device).expand(Y.shape[:2])
        Y = self.blocks["decoder"](Y, Y, so_far, gates[1])
        return Y, X, valid_lens
