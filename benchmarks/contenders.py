"""What is compared: our layer and its peers, all with the same weights, on the same input."""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib import MultiHeadAttention
from mha_lib.attention import FusedAttention, converters, merge_heads, split_heads, valid_keys

Call = Callable[[Tensor, Tensor | None], Tensor]


class Cell(NamedTuple):
    """Self-attention of ``batch`` sequences of n tokens, ``num_hiddens`` numbers each."""

    batch: int
    n: int
    num_hiddens: int
    num_heads: int

    def __str__(self) -> str:
        return f"({', '.join(map(str, self))})"

    @property
    def flops(self) -> int:
        """Floating-point operations of one forward pass: four projections, queries × keys, weights × values."""
        return 8 * self.batch * self.n * self.num_hiddens**2 + 4 * self.batch * self.n**2 * self.num_hiddens

    @property
    def bytes_of_weights(self) -> int:
        """Memory that the attention weights of all heads take in single precision."""
        return 4 * self.batch * self.num_heads * self.n**2

    def layer(self, dropout: float = 0.0) -> MultiHeadAttention:
        """Our layer for this cell."""
        size = self.num_hiddens
        return MultiHeadAttention(size, self.num_heads, dropout, query_size=size, key_size=size, value_size=size)

    def tokens(self) -> Tensor:
        """Random input, (batch, n, num_hiddens)."""
        return torch.randn(self.batch, self.n, self.num_hiddens)

    def valid_lens(self, shortest: int) -> Tensor:
        """Random lengths, uniform from ``shortest`` to n."""
        return torch.randint(shortest, self.n + 1, (self.batch,))


class PackedAttention(nn.Module):
    """The fast layer as it is commonly written: one projection for queries, keys and values, then torch's kernel."""

    def __init__(self, layer: MultiHeadAttention):
        super().__init__()
        self.training = layer.training
        size = layer.num_hiddens
        self.num_heads, self.dropout = layer.num_heads, layer.attention.dropout.p
        self.W_qkv, self.W_o = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size, bias=False)
        with torch.no_grad():
            self.W_qkv.weight.copy_(torch.cat([layer.W_q.weight, layer.W_k.weight, layer.W_v.weight]))
            self.W_o.weight.copy_(layer.W_o.weight)

    def forward(self, X: Tensor, valid_lens: Tensor | None = None) -> Tensor:
        Q, K, V = (split_heads(part, self.num_heads) for part in self.W_qkv(X).chunk(3, dim=-1))
        mask = None if valid_lens is None else valid_keys(valid_lens, X.shape[1]).unsqueeze(1)
        dropout = self.dropout if self.training else 0.0
        return self.W_o(merge_heads(F.scaled_dot_product_attention(Q, K, V, attn_mask=mask, dropout_p=dropout)))


def ours(layer: MultiHeadAttention) -> Call:
    return lambda X, valid_lens: layer(X, X, X, valid_lens)


def ours_masked(layer: MultiHeadAttention) -> Call:
    """Our layer with ``skip_padding`` off."""
    masked = copy.deepcopy(layer)
    assert isinstance(masked.attention, FusedAttention)  # the only one that can skip padding
    masked.attention.skip_padding = False
    return ours(masked)


def ours_causal(layer: MultiHeadAttention) -> Call:
    """Causal attention: no contender, for it computes something else than the others."""
    return lambda X, valid_lens: layer(X, X, X, valid_lens, causal=True)


def ours_weights(layer: MultiHeadAttention) -> Call:
    def call(X, valid_lens):
        output = layer(X, X, X, valid_lens)
        _ = layer.attention_weights
        return output

    return call


def ours_weights_kept(layer: MultiHeadAttention) -> Call:
    """Our layer with ``keep_weights`` on."""
    keeping = copy.deepcopy(layer)
    assert isinstance(keeping.attention, FusedAttention)  # the only one that can do without weights
    keeping.attention.keep_weights = True
    return ours_weights(keeping)


def d2l_weights(layer: MultiHeadAttention) -> Call:
    peer = converters.to_d2l(layer)
    return lambda X, valid_lens: peer(X, X, X, valid_lens)


def torch_weights(layer: MultiHeadAttention) -> Call:
    peer = converters.to_torch(layer)
    return lambda X, valid_lens: converters.call_torch(peer, X, X, X, valid_lens)[0]


def torch_output(layer: MultiHeadAttention) -> Call:
    peer = converters.to_torch(layer)

    def call(X, valid_lens):
        masks = {} if valid_lens is None else converters.torch_masks(valid_lens, X.shape[1], peer.num_heads)
        return peer(X, X, X, need_weights=False, **masks)[0]

    return call


# The names with "weights" give the weights of each head too.
CONTENDERS: dict[str, Callable[[MultiHeadAttention], Call]] = {
    "ours": ours,
    "ours, masked": ours_masked,
    "ours, weights": ours_weights,
    "ours, weights kept": ours_weights_kept,
    "d2l, weights": d2l_weights,
    "torch": torch_output,
    "torch, weights": torch_weights,
    "packed": PackedAttention,
}


def contenders(layer: MultiHeadAttention, *names: str) -> dict[str, Call]:
    """Self-attention by the named layers, with the weights of ours. Masks are part of the work: all take lengths."""
    return {name: CONTENDERS[name](layer) for name in names}


def timed(call: Call, X: Tensor, valid_lens: Tensor | None, training: bool) -> Callable[[], None]:
    """A call without arguments: forward alone without gradients, or forward and backward."""
    if not training:

        def forward() -> None:
            with torch.no_grad():
                call(X, valid_lens)

        return forward

    gradient = torch.randn_like(X)
    return lambda: call(X, valid_lens).backward(gradient)
