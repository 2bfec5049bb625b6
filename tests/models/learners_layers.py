"""Layers as learners write them, in styles of their own; none knows the library."""

import math

import torch
from torch import Tensor, nn


class OfTheBook(nn.Module):
    """Heads merged with the batch, as in the book; keeps the weights with their gradients."""

    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_k = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_v = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def split(self, X):
        X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1).permute(0, 2, 1, 3)
        return X.reshape(-1, X.shape[2], X.shape[3])

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        Q, K, V = self.split(self.W_q(queries)), self.split(self.W_k(keys)), self.split(self.W_v(values))
        scores = torch.bmm(Q, K.transpose(1, 2)) / math.sqrt(Q.shape[-1])
        if valid_lens is not None:
            lengths = valid_lens.repeat_interleave(self.num_heads, dim=0)
            lengths = lengths[:, None] if lengths.dim() == 1 else lengths
            padding = torch.arange(K.shape[1]) >= lengths[..., None]
            scores = scores.masked_fill(padding, -math.inf)
        weights = scores.softmax(dim=-1)
        self.attention_weights = weights.unflatten(0, (-1, self.num_heads))
        heads = torch.bmm(self.dropout(weights), V).unflatten(0, (-1, self.num_heads))
        heads = heads.permute(0, 2, 1, 3).flatten(2)
        if head_mask is not None:
            heads = heads * head_mask.repeat_interleave(heads.shape[-1] // self.num_heads)
        return self.W_o(heads)


class WithoutGates(nn.Module):
    """Four axes, torch's kernel, no head_mask, no kept weights; sizes by names of its own."""

    def __init__(self, d_model: int, n_heads: int, bias: bool = True):
        super().__init__()
        self.num_heads = n_heads
        self.head_dim = d_model // n_heads
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=bias))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> Tensor:
        b, n, _ = q.shape
        q = self.W_q(q).view(b, n, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.W_k(k).view(b, -1, self.num_heads, self.head_dim).transpose(1, 2)
        v = self.W_v(v).view(b, -1, self.num_heads, self.head_dim).transpose(1, 2)
        mask = None
        if lengths is not None:
            lengths = lengths if lengths.dim() == 2 else lengths.unsqueeze(1)
            mask = (torch.arange(k.shape[2]) < lengths.unsqueeze(-1)).unsqueeze(1)
        out = nn.functional.scaled_dot_product_attention(q, k, v, mask)
        return self.W_o(out.transpose(1, 2).reshape(b, n, -1))


class OtherNames(nn.Module):
    """The names of other libraries, and gates: no W_o."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj = nn.Linear(embed_dim, embed_dim, bias), nn.Linear(embed_dim, embed_dim, bias)
        self.v_proj, self.out_proj = nn.Linear(embed_dim, embed_dim, bias), nn.Linear(embed_dim, embed_dim, bias)

    def forward(self, query, key, value, valid_lens=None, head_mask=None):
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)) for x in (q, k, v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        if valid_lens is not None:
            lengths = valid_lens.view(len(valid_lens), 1, -1, 1)
            scores = scores.masked_fill(torch.arange(k.shape[1]) >= lengths, -math.inf)
        heads = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        if head_mask is not None:
            heads = heads * head_mask.view(1, 1, -1, 1)
        return self.out_proj(heads.flatten(2))


class FixedSizes(nn.Module):
    """Einsum; gates by keyword alone; sizes written down once, so that no head can go: √ and merge know the number."""

    def __init__(self, num_hiddens, num_heads, dropout, bias):
        super().__init__()
        self.num_hiddens, self.num_heads = num_hiddens, num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(num_hiddens, num_hiddens, bias) for _ in range(4))
        self.attention_weights = None

    def forward(self, queries, keys, values, valid_lens=None, *, head_mask=None):
        Q, K, V = (
            W(X).unflatten(-1, (self.num_heads, -1))
            for W, X in ((self.W_q, queries), (self.W_k, keys), (self.W_v, values))
        )
        scores = torch.einsum("bqhd,bkhd->bhqk", Q, K) / math.sqrt(self.num_hiddens // self.num_heads)
        if valid_lens is not None:
            lengths = valid_lens.reshape(len(valid_lens), 1, -1, 1)
            scores = scores.masked_fill(torch.arange(K.shape[1]) >= lengths, -1e30)
        self.attention_weights = scores.softmax(-1)
        heads = torch.einsum("bhqk,bkhd->bhqd", self.attention_weights, V)
        if head_mask is not None:
            heads = heads * head_mask[:, None, None]
        return self.W_o(heads.transpose(1, 2).flatten(2))


class LoopOverHeads(nn.Module):
    """A loop over slices of the maps; W_o is a sum over heads, so that nothing passes through it as a whole."""

    def __init__(self, num_hiddens, num_heads):
        super().__init__()
        self.num_heads, self.size = num_heads, num_hiddens // num_heads
        self.W_q, self.W_k = nn.Linear(num_hiddens, num_hiddens), nn.Linear(num_hiddens, num_hiddens)
        self.W_v, self.W_o = nn.Linear(num_hiddens, num_hiddens), nn.Linear(num_hiddens, num_hiddens)

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        output, all_weights = self.W_o.bias, []
        for head in range(self.num_heads):
            rows = slice(head * self.size, (head + 1) * self.size)
            q, k, v = self.W_q(queries)[..., rows], self.W_k(keys)[..., rows], self.W_v(values)[..., rows]
            scores = q @ k.mT / self.size**0.5
            if valid_lens is not None:
                lengths = valid_lens.reshape(len(valid_lens), -1, 1)
                scores = scores.masked_fill(torch.arange(k.shape[1]) >= lengths, -math.inf)
            all_weights.append(scores.softmax(-1))
            gate = 1 if head_mask is None else head_mask[head]
            output = output + gate * (all_weights[-1] @ v) @ self.W_o.weight[:, rows].T
        self.attention_weights = torch.stack(all_weights, dim=1)
        return output


class TwoResults(OfTheBook):
    """Returns the weights beside the output."""

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        return super().forward(queries, keys, values, valid_lens, head_mask), self.attention_weights
