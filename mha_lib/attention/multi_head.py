"""Many heads, each with its own projection and attention, computed all at once. Letters as in ``pooling``."""

from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import Tensor, nn

from mha_lib.attention import arguments
from mha_lib.attention.execution import values_readable
from mha_lib.attention.fused import FusedAttention
from mha_lib.attention.masks import Rule
from mha_lib.attention.pooling import AttentionPooling, linear, projected


def split_heads(X: Tensor, num_heads: int) -> Tensor:
    """Split the features of ``X`` into heads and return a view: (b, n, h · d) -> (b, h, n, d).

    >>> split_heads(torch.zeros(2, 5, 12), num_heads=3).shape
    torch.Size([2, 3, 5, 4])
    """
    arguments.check_tensor("X", X, arguments.SEQUENCES.values())
    if X.dim() != 3:
        raise ValueError(f"X must have shape (batch, number, size), got {tuple(X.shape)}")
    arguments.check_divisible(X.shape[-1], num_heads)
    X = X.reshape(*X.shape[:2], num_heads, X.shape[-1] // num_heads)  # (b, n, h · d) -> (b, n, h, d)
    return X.transpose(1, 2)  # (b, n, h, d) -> (b, h, n, d)


def merge_heads(X: Tensor) -> Tensor:
    """Concatenate the heads' features, the inverse of ``split_heads``: (b, h, n, d) -> (b, n, h · d).

    >>> merge_heads(torch.zeros(2, 3, 5, 4)).shape
    torch.Size([2, 5, 12])
    """
    if not isinstance(X, Tensor) or X.layout != torch.strided or X.dim() != 4:  # asked here: every call comes by
        arguments.check_tensor("X", X, ["(batch, num_heads, number, head_size)"])
        raise ValueError(f"X must have shape (batch, num_heads, number, head_size), got {tuple(X.shape)}")
    return X.transpose(1, 2).flatten(start_dim=2)  # (b, n, h, d) -> (b, n, h · d)


def transpose_qkv(X: Tensor, num_heads: int) -> Tensor:
    """Split the features into heads and merge the head axis with the batch axis: (b, n, h · d) -> (b · h, n, d).

    >>> transpose_qkv(torch.zeros(2, 5, 12), num_heads=3).shape
    torch.Size([6, 5, 4])

    Row ``e * num_heads + i`` of the result is head i of example e. Source: d2l 11.5.2.
    """
    return split_heads(X, num_heads).flatten(end_dim=1)


def transpose_output(X: Tensor, num_heads: int) -> Tensor:
    """Concatenate the heads again, the inverse of ``transpose_qkv``: (b · h, n, d) -> (b, n, h · d).
    Source: d2l 11.5.2.

    >>> transpose_output(torch.zeros(6, 5, 4), num_heads=3).shape
    torch.Size([2, 5, 12])
    """
    arguments.check_size("num_heads", num_heads)
    arguments.check_tensor("X", X, ["(batch · num_heads, number, head_size)"])
    if X.dim() != 3 or X.shape[0] % num_heads:
        raise ValueError(
            f"X must have shape (batch · num_heads, number, head_size) with num_heads={num_heads}, got {tuple(X.shape)}"
        )
    return merge_heads(X.unflatten(0, (X.shape[0] // num_heads, num_heads)))


class MultiHeadAttention(nn.Module):
    """Compute multi-head attention: several heads in parallel, each on its own projection of queries, keys and values.

    >>> X, layer = torch.randn(2, 5, 8), MultiHeadAttention(num_hiddens=8, num_heads=2)
    >>> layer(X, X, X, valid_lens=torch.tensor([5, 3])).shape, layer.attention_weights.shape
    (torch.Size([2, 5, 8]), torch.Size([2, 2, 5, 5]))

    head_i = attention(W_q⁽ⁱ⁾ q, W_k⁽ⁱ⁾ k, W_v⁽ⁱ⁾ v); output = W_o [head_1; …; head_h]. The heads' matrices are stacked
    in ``W_q, W_k, W_v`` (rows) and ``W_o`` (columns), as in d2l's layer, so a ``state_dict`` fits both.

    Args:
        num_hiddens: size of the output; without ``head_size``, divisible by ``num_heads`` and divided among them.
        num_heads: number of heads.
        dropout: probability of dropping an attention weight in training.
        bias: whether the four projections have a bias.
        query_size, key_size, value_size: sizes of the inputs; left out, they are taken from the first call.
        num_key_value_heads: number of heads for keys and values; divides ``num_heads``. Neighbouring query heads share
            one (grouped-query attention, Ainslie et al. 2023; with 1, multi-query, Shazeer 2019).
        head_size: size of one head's queries, keys and values; left out, num_hiddens / num_heads.
        attention: what each head does instead of ``FusedAttention``; it has its own dropout.

    Source: Vaswani et al. 2017, section 3.2.2; d2l 11.5.
    """

    @arguments.torchs_names_explained
    def __init__(
        self, num_hiddens: int, num_heads: int, dropout: float = 0.0, bias: bool = False, *older: object,
        query_size: int | None = None, key_size: int | None = None, value_size: int | None = None,
        num_key_value_heads: int | None = None, head_size: int | None = None,
        attention: AttentionPooling | None = None, device=None, dtype=None,
    ):  # fmt: skip
        by_keyword = "key_size, query_size, value_size, num_hiddens, num_heads, dropout"
        arguments.refuse_older_order(self, older, "num_hiddens, num_heads, dropout, bias", by_keyword)
        super().__init__()
        arguments.check_new_layer(num_hiddens, num_heads, head_size, num_key_value_heads, bias, device, dtype)
        arguments.check_attention(attention, AttentionPooling, dropout)
        self.num_hiddens, self.num_heads = num_hiddens, num_heads
        self.head_size = head_size = num_hiddens // num_heads if head_size is None else head_size
        self.num_key_value_heads = num_heads if num_key_value_heads is None else num_key_value_heads
        self.key_value_head_of = [head * self.num_key_value_heads // num_heads for head in range(num_heads)]
        self.attention = FusedAttention(dropout) if attention is None else attention
        if self.num_key_value_heads < num_heads and isinstance(self.attention, FusedAttention):
            self.attention.takes_groups = True
        self.W_q = linear("query_size", query_size, num_heads * head_size, bias, device, dtype)
        self.W_k = linear("key_size", key_size, self.num_key_value_heads * head_size, bias, device, dtype)
        self.W_v = linear("value_size", value_size, self.num_key_value_heads * head_size, bias, device, dtype)
        self.W_o = nn.Linear(num_heads * head_size, num_hiddens, bias, device, dtype)

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the heads get: queries (b, h, q, d), and keys and values (b, g, k, d) with g heads.

        This is the one place between projection and attention. Override it to rotate queries and keys, or to put keys
        and values from a cache before the new ones: the three are projected together, so that what changes the number
        of keys changes that of values, too.
        """
        readable = values_readable(keys)
        Q, K, V = self.W_q(queries), projected(self.W_k, keys, readable), projected(self.W_v, values, readable)
        return self._split(Q), self._split(K), self._split(V)

    def _split(self, X: Tensor) -> Tensor:
        """Give every head its features. They are counted, for ``W_q`` on this device may hold some heads alone."""
        batch_size, number, size = X.shape
        X = X.view(batch_size, number, size // self.head_size, self.head_size)  # (b, n, h · d) -> (b, n, h, d)
        return X.transpose(1, 2)  # (b, n, h, d) -> (b, h, n, d)

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None,
        head_mask: Tensor | None = None, *, attn_mask: Tensor | Rule | None = None, causal: bool = False,
        need_weights: bool = False, **others: object,
    ) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
        """Attend with every head, then mix the heads: (b, q, num_hiddens).

        An argument that does not fit is named by a TypeError or ValueError.

        Args:
            queries, keys, values: (b, q, query_size), (b, k, key_size), (b, k, value_size).
            head_mask: gates on the heads' outputs before ``W_o``, None, (h,) or (b, h); 0 switches a head off;
                differentiable (Michel et al. 2019, section 2.3).
            valid_lens, attn_mask, causal: see the top of ``masks``.
            need_weights: whether to return the weights too, (b, h, q, k): for a layer that is compiled or exported.
        """
        attention = self.attention
        attention.store_weights(None)
        arguments.check_call(self, queries, keys, values, head_mask, need_weights, others)
        Q, K, V = self.project(queries, keys, values)
        if self.num_key_value_heads < self.num_heads:
            K, V = self._shared_out(K, Q.shape[1]), self._shared_out(V, Q.shape[1])
        if need_weights:
            heads, weights = attention.attend(Q, K, V, valid_lens, attn_mask=attn_mask, causal=causal)
        else:
            heads = attention(Q, K, V, valid_lens, attn_mask=attn_mask, causal=causal)  # (b, h, q, d)
        if head_mask is not None:
            heads = heads * head_mask[..., None, None].to(heads.dtype)  # (h, 1, 1) or (b, h, 1, 1)
        output = self.W_o(merge_heads(heads))  # (b, h, q, d) -> (b, q, h · d) -> (b, q, num_hiddens)
        return (output, weights) if need_weights else output

    if TYPE_CHECKING:  # a call gives what ``forward`` gives, which nn.Module does not say

        @overload
        def __call__(
            self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None,
            head_mask: Tensor | None = None, *, attn_mask: Tensor | Rule | None = None, causal: bool = False,
            need_weights: Literal[False] = False,
        ) -> Tensor: ...  # fmt: skip
        @overload
        def __call__(
            self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None,
            head_mask: Tensor | None = None, *, attn_mask: Tensor | Rule | None = None, causal: bool = False,
            need_weights: Literal[True],
        ) -> tuple[Tensor, Tensor]: ...  # fmt: skip
        @overload
        def __call__(
            self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None,
            head_mask: Tensor | None = None, *, attn_mask: Tensor | Rule | None = None, causal: bool = False,
            need_weights: bool,
        ) -> Any: ...  # fmt: skip
        def __call__(self, *inputs, **named): ...

    def _shared_out(self, X: Tensor, num_heads: int) -> Tensor:
        """Keys or values as the attention takes them: (b, g, k, d), or for each query head its own, (b, h, k, d)."""
        g, shared = X.shape[1], self.key_value_head_of[:num_heads]
        in_turn = num_heads % g == 0 and shared == [head * g // num_heads for head in range(num_heads)]
        if in_turn and self.attention.takes_groups:
            return X
        # Not by an index from a list: it would be copied to a GPU, and the copy waited for.
        heads = X.unbind(dim=1)
        return torch.stack([heads[head] for head in shared], dim=1)

    @property
    def attention_weights(self) -> Tensor:
        """Weights of the last call, before dropout, detached: (b, h, q, k); none after a call that was refused."""
        return self.attention.weights_of_heads

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, num_key_value_heads={self.num_key_value_heads}"
