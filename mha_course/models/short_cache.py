"""A key-value cache in which some heads keep the first and the latest tokens alone, and SmolLM2 writing with it.

A key is kept as it was rotated at its own position, so that outputs are those of a mask, ``Stream.allowed``, over all
keys. (Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks", rotate keys anew by their place in
the cache.)
"""

from collections.abc import Collection, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_course.models.smollm2 import RotaryBlock, SmolLM2
from mha_lib.attention import merge_heads
from mha_lib.heads import Stream

__all__ = ["ShortCache", "Writer"]

PIECE = 128  # queries that streaming heads read at once


class ShortCache:
    """Keep the keys and values of one layer: all of some key-value heads, and of others few.

    Args:
        num_key_value_heads: of the layer.
        streaming: the key-value heads that stream.
        sinks, window: as in ``Stream``.

    Attributes:
        length: how many tokens were read.
        parts: the heads that keep every token, and those that keep few.
    """

    def __init__(self, num_key_value_heads: int, streaming: Collection[int] = (), sinks: int = 4, window: int = 24):
        if wrong := [group for group in streaming if group not in range(num_key_value_heads)]:
            raise ValueError(f"streaming must hold numbers from 0 to {num_key_value_heads - 1}, got {wrong}")
        self.num_key_value_heads, self.length = num_key_value_heads, 0
        whole = [group for group in range(num_key_value_heads) if group not in streaming]
        parts = [_All(whole), _Few(sorted(streaming), Stream(sinks, window))]
        self.parts: list[Part] = [part for part in parts if part.groups]

    @property
    def num_bytes(self) -> int:
        """Return how large the kept keys and values are."""
        return sum(X.numel() * X.element_size() for part in self.parts for X in part.kept(self.length))

    @torch.no_grad()
    def attend(self, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
        """Return what the heads give for the next tokens, (b, h, n, d), and keep these tokens' keys and values.

        There is no gradient.

        Args:
            Q: queries, (b, h, n, d), neighbours of which share a key-value head.
            K, V: keys and values, (b, g, n, d); queries and keys with their positions.
        """
        by_group = Q.unflatten(1, (self.num_key_value_heads, -1))  # (b, g, h / g, n, d)
        output = torch.empty_like(by_group)
        for part in self.parts:
            queries = by_group[:, part.groups].flatten(1, 2)
            found = part.attend(queries, K[:, part.groups], V[:, part.groups], self.length)
            output[:, part.groups] = found.unflatten(1, (len(part.groups), -1))
        self.length += Q.shape[2]
        return output.flatten(1, 2)


class Part:
    """Hold some key-value heads of a cache, with slots for their keys and values."""

    def __init__(self, groups: Sequence[int]):
        self.groups = list(groups)
        self.slots: tuple[Tensor, Tensor] | None = None

    def room(self, K: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """Return so many slots at least for keys like these, and for values; those that are full stay full."""
        if self.slots is None or self.slots[0].shape[2] < number:
            new = K.new_empty(2, *K.shape[:2], number, K.shape[3])
            for kept, empty in zip(self.slots or (), new, strict=False):
                empty[:, :, : kept.shape[2]] = kept
            self.slots = new[0], new[1]
        return self.slots

    def number_kept(self, length: int) -> int:
        """Return how many tokens of a text of this length are kept."""
        return length

    def kept(self, length: int) -> tuple[Tensor, ...]:
        """Return the keys and values of a text of this length."""
        return tuple(X[:, :, : self.number_kept(length)] for X in self.slots or ())

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, length: int) -> Tensor:
        """Return what the heads give for tokens after so many, and keep these tokens."""
        raise NotImplementedError


class _All(Part):
    """Every token has a slot."""

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, length: int) -> Tensor:
        new, end = K.shape[2], length + K.shape[2]
        has_room = self.slots is None or end <= self.slots[0].shape[2]
        for slot, X in zip(self.room(K, end if has_room else 2 * end), (K, V), strict=True):
            slot[:, :, length:end] = X
        mask = None if new == 1 or not length else torch.ones(new, end, dtype=torch.bool, device=K.device).tril(length)
        K, V = self.kept(end)
        return F.scaled_dot_product_attention(Q, K, V, mask, is_causal=mask is None and new > 1, enable_gqa=True)


class _Few(Part):
    """The first tokens have slots of their own, and the latest ones those of a ring."""

    def __init__(self, groups: Sequence[int], stream: Stream):
        super().__init__(groups)
        self.stream, self.number = stream, stream.sinks + stream.window

    def number_kept(self, length: int) -> int:
        return min(length, self.number)

    def slots_of(self, positions: Tensor) -> Tensor:
        """Which slots the tokens at these positions take."""
        sinks, window = self.stream.sinks, self.stream.window
        return torch.where(positions < sinks, positions, sinks + (positions - sinks) % window)

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, length: int) -> Tensor:
        self.room(K, self.number)
        found = []
        for q, k, v in zip(*(X.split(PIECE, dim=2) for X in (Q, K, V)), strict=True):
            found.append(self._piece(q, k, v, length))
            length += q.shape[2]
        return torch.cat(found, dim=2) if len(found) > 1 else found[0]

    def _piece(self, Q: Tensor, K: Tensor, V: Tensor, length: int) -> Tensor:
        end = length + K.shape[2]
        if end - length == 1:  # its slot is that of the token which it sees no more
            slot = int(self.slots_of(torch.tensor(length)))
            for slots, X in zip(self.slots or (), (K, V), strict=True):
                slots[:, :, slot] = X[:, :, 0]
            keys, values = self.kept(end)
            return F.scaled_dot_product_attention(Q, keys, values, enable_gqa=True)
        old = torch.arange(length, device=K.device)
        old = old[(old < self.stream.sinks) | (old >= length - self.stream.window)]
        slots = self.slots_of(old)
        keys, values = (
            torch.cat([X[:, :, slots], new], dim=2) for X, new in zip(self.slots or (), (K, V), strict=True)
        )
        positions = torch.cat([old, torch.arange(length, end, device=K.device)])
        mask = self.stream.sees(positions[-K.shape[2] :, None], positions)
        kept = positions[len(old) :]
        kept = kept[(kept < self.stream.sinks) | (kept >= end - self.stream.window)]
        for slots_of_both, X in zip(self.slots or (), (K, V), strict=True):
            slots_of_both[:, :, self.slots_of(kept)] = X[:, :, kept - length]
        return F.scaled_dot_product_attention(Q, keys, values, mask, enable_gqa=True)


class Writer:
    """Let SmolLM2 read and write texts token by token, each layer with a ``ShortCache``.

    Args:
        model: from ``smollm2()``, whole or without some of its key-value groups.
        streaming: for each layer by name, "layer 0" to "layer 29", the key-value groups that stream.
        sinks, window: as in ``Stream``.

    Raises:
        TypeError: ``model`` is another one: where its positions come in would have to be known.
        ValueError: a layer or a group is not there.
    """

    def __init__(
        self, model: SmolLM2, streaming: Mapping[str, Collection[int]] | None = None, sinks: int = 4, window: int = 24
    ):
        if not isinstance(model, SmolLM2):
            raise TypeError(
                f"model must be a SmolLM2, got {type(model).__name__}: other models have no short cache here"
            )
        streaming = streaming or {}
        if wrong := streaming.keys() - model.blocks.keys():
            raise ValueError(f"streaming has unknown layers: {', '.join(sorted(wrong))}; there are layer 0 to layer 29")
        self.model = model
        self.caches = {
            name: ShortCache(block.attention.num_key_value_heads, streaming.get(name, ()), sinks, window)
            for name, block in model.blocks.items()
        }

    @property
    def num_bytes(self) -> int:
        """Return how large the caches of all layers are."""
        return sum(cache.num_bytes for cache in self.caches.values())

    @torch.no_grad()
    def read(self, ids: Tensor) -> Tensor:
        """Read the next tokens of each text, (batch, n), and return logits of what follows them, (batch, vocab)."""
        X = self.model.embedding(ids)
        for name, block in cast(dict[str, RotaryBlock], self.model.blocks).items():
            attention, cache = block.attention, self.caches[name]
            Q, K, V = attention.project_at(X, cache.length)
            X = block.after_attention(X, attention.W_o(merge_heads(cache.attend(Q, K, V))))
        return self.model.output(X[:, -1])
