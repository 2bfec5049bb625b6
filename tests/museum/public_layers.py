"""Attention layers in the styles of public models of 2024 to 2026, small and right; and how they are handed over.

Written from how these models are described, without the tables of the check: another hand than theirs.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def llama3_scaling(inv_freq, factor=8.0, low=1.0, high=4.0, old_len=8192):
    """As in Hugging Face's rope_type "llama3"."""
    wavelen = 2 * math.pi / inv_freq
    scaled = torch.where(wavelen > old_len / low, inv_freq / factor, inv_freq)
    smooth = (old_len / wavelen - low) / (high - low)
    between = ~(wavelen < old_len / high) & ~(wavelen > old_len / low)
    return torch.where(between, (1 - smooth) * scaled / factor + smooth * scaled, scaled)


def cos_sin(length, dim, theta, scaling=None):
    inv_freq = 1.0 / (theta ** (torch.arange(0, dim, 2).float() / dim))
    inv_freq = scaling(inv_freq) if scaling else inv_freq
    emb = torch.cat([torch.outer(torch.arange(length).float(), inv_freq)] * 2, dim=-1)
    return emb.cos(), emb.sin()


def complex_rope(x, theta):
    """(batch, number, heads, size), as in Meta's code."""
    freqs = 1.0 / (theta ** (torch.arange(0, x.shape[-1], 2)[: x.shape[-1] // 2].float() / x.shape[-1]))
    angles = torch.outer(torch.arange(x.shape[1]).float(), freqs)
    turned = (
        torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * torch.polar(torch.ones_like(angles), angles)[:, None]
    )
    return torch.view_as_real(turned).flatten(3)


def repeat_kv(x, n):
    b, h, s, d = x.shape
    return x[:, :, None].expand(b, h, n, s, d).reshape(b, h * n, s, d)


class Llama(nn.Module):
    """Rotary halves, perhaps shared keys and values, biases, norms of q and k; causal by an additive mask."""

    def __init__(self, dim, heads, theta=5e5, shared=1, bias=False, norm=None, whole=False, causal=True, scaling=None):
        super().__init__()
        self.scaling = scaling
        self.heads, self.hd, self.theta, self.causal, self.whole = heads, dim // heads, theta, causal, whole
        self.kv = heads // shared if heads % shared == 0 else heads
        self.q_proj = nn.Linear(dim, dim, bias=bias)
        self.k_proj = nn.Linear(dim, self.kv * self.hd, bias=bias)
        self.v_proj = nn.Linear(dim, self.kv * self.hd, bias=bias)
        self.o_proj = nn.Linear(dim, dim, bias=False)
        sizes = (dim, self.kv * self.hd) if whole else (self.hd, self.hd)
        self.q_norm, self.k_norm = (norm(size) if norm else nn.Identity() for size in sizes)

    def forward(self, hidden_states):
        b, s, _ = hidden_states.shape
        q, k, v = (proj(hidden_states) for proj in (self.q_proj, self.k_proj, self.v_proj))
        if self.whole:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (x.view(b, s, -1, self.hd).transpose(1, 2) for x in (q, k, v))
        if not self.whole:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.theta:
            cos, sin = cos_sin(s, self.hd, self.theta, self.scaling)
            q, k = (x * cos + rotate_half(x) * sin for x in (q, k))
        k, v = (repeat_kv(x, self.heads // self.kv) for x in (k, v))
        w = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.hd)
        if self.causal:
            w = w + torch.full((s, s), float("-inf")).triu(1)
        w = F.softmax(w, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o_proj(torch.matmul(w, v).transpose(1, 2).contiguous().reshape(b, s, -1)), None


class Meta(nn.Module):
    """Rotary neighbours by complex numbers, fused or not, perhaps with norms of q and k; SDPA."""

    def __init__(self, dim, heads, theta=1e4, shared=1, norm=None, causal=True, whole=False):
        super().__init__()
        self.n_heads, self.n_kv = heads, heads // shared if heads % shared == 0 else heads
        self.theta, self.causal, self.whole = theta, causal, whole
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim // heads * self.n_kv, bias=False)
        self.wv = nn.Linear(dim, dim // heads * self.n_kv, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.norm_q, self.norm_k = (norm(dim if whole else dim // heads) if norm else nn.Identity() for _ in range(2))

    def forward(self, x):
        bsz, seqlen, _ = x.shape
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        if self.whole:
            xq, xk = self.norm_q(xq), self.norm_k(xk)
        xq = xq.view(bsz, seqlen, self.n_heads, -1)
        xk, xv = (t.view(bsz, seqlen, self.n_kv, -1) for t in (xk, xv))
        if not self.whole:
            xq, xk = self.norm_q(xq), self.norm_k(xk)
        xq, xk = complex_rope(xq, self.theta), complex_rope(xk, self.theta)
        xk, xv = (t.repeat_interleave(self.n_heads // self.n_kv, dim=2) for t in (xk, xv))
        out = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (xq, xk, xv)), is_causal=self.causal)
        return self.wo(out.transpose(1, 2).contiguous().view(bsz, seqlen, -1))


class GPT(nn.Module):
    """nanoGPT: one fused map with biases, causal, dropout on weights; or with norms and a factor, as nanochat."""

    def __init__(self, n_embd, n_head, dropout, bias=True, normed=False, factor=1.0):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd, bias=bias), nn.Linear(n_embd, n_embd, bias=bias)
        self.n_head, self.dropout, self.normed, self.factor = n_head, dropout, normed, factor

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        if self.normed:
            cos, sin = cos_sin(T, q.size(-1), 1e4)
            q, k = (t * cos + rotate_half(t) * sin for t in (q, k))
            q, k = (self.factor * F.rms_norm(t, (t.size(-1),), eps=1e-6) for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class NeoX(nn.Module):
    """Fused by head: (head, q / k / v, size), with biases; rotary halves or ALiBi (as BLOOM), or norms (Persimmon)."""

    def __init__(self, dim, heads, rotary=True, alibi=False, norm=None):
        super().__init__()
        self.num_attention_heads, self.head_size, self.rotary, self.alibi = heads, dim // heads, rotary, alibi
        self.query_key_value, self.dense = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.q_ln, self.k_ln = (norm(self.head_size) if norm else nn.Identity() for _ in range(2))

    def matrices(self):
        size = (self.num_attention_heads, 3, self.head_size)
        W = self.query_key_value.weight.unflatten(0, size).transpose(0, 1).flatten(1, 2)
        b = self.query_key_value.bias.view(size).transpose(0, 1).flatten(1)
        return *zip(W, b, strict=True), self.dense

    def forward(self, hidden):
        qkv = self.query_key_value(hidden)
        qkv = qkv.view(*qkv.shape[:2], self.num_attention_heads, 3 * self.head_size)
        q, k, v = (part.permute(0, 2, 1, 3) for part in qkv.chunk(3, dim=-1))
        q, k = self.q_ln(q), self.k_ln(k)
        T = q.shape[2]
        if self.rotary:
            cos, sin = cos_sin(T, self.head_size, 1e4)
            q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        scores = torch.einsum("bhid,bhjd->bhij", q, k) * self.head_size**-0.5
        if self.alibi:
            closest = 2 ** math.floor(math.log2(self.num_attention_heads))
            base = 2 ** (-(2 ** -(math.log2(closest) - 3)))
            slopes = [base**i for i in range(1, closest + 1)]
            extra = 2 ** (-(2 ** -(math.log2(2 * closest) - 3)))
            slopes += [extra**i for i in range(1, 2 * (self.num_attention_heads - closest) + 1, 2)]
            scores = scores + torch.tensor(slopes)[:, None, None] * torch.arange(T)[None, None]  # equal to the distance
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), torch.finfo(scores.dtype).min)
        return self.dense((scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(hidden.shape))


class GPTJ(nn.Module):
    """Rotary neighbours by every second feature."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def rotate(self, x):
        inv = 1.0 / (10000 ** (torch.arange(0, x.shape[-1], 2) / x.shape[-1]))
        sin, cos = (f(torch.einsum("i,j->ij", torch.arange(x.shape[1]).float(), inv)) for f in (torch.sin, torch.cos))
        sin, cos = (t.repeat_interleave(2, 1)[None, :, None] for t in (sin, cos))
        return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2) * sin

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (self.heads, -1)) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.rotate(q), self.rotate(k)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        s = torch.where(torch.ones_like(s).tril().bool(), s, -torch.inf)
        return self.out_proj(torch.einsum("bhqk,bkhd->bqhd", s.softmax(-1), v).flatten(2))


class ViT(nn.Module):
    """timm: fused, (3, heads, size); norms of q and k if asked for; no mask."""

    def __init__(self, dim, num_heads, attn_drop=0.0, qkv_bias=True, norm=None):
        super().__init__()
        self.num_heads, self.scale = num_heads, (dim // num_heads) ** -0.5
        self.qkv, self.proj = nn.Linear(dim, dim * 3, bias=qkv_bias), nn.Linear(dim, dim)
        self.q_norm, self.k_norm = (norm(dim // num_heads) if norm else nn.Identity() for _ in range(2))
        self.attn_drop = nn.Dropout(attn_drop)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4).unbind(0)
        attn = (self.q_norm(q) * self.scale) @ self.k_norm(k).transpose(-2, -1)
        x = self.attn_drop(attn.softmax(dim=-1)) @ v
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class Bert(nn.Module):
    """BertAttention: an additive mask (batch, 1, 1, keys), and a LayerNorm of the sum with the input."""

    def __init__(self, dim, heads, dropout=0.0, is_post=True, norm=nn.LayerNorm):
        super().__init__()
        self.heads, self.is_post = heads, is_post
        self.query, self.key, self.value, self.dense = (nn.Linear(dim, dim) for _ in range(4))
        self.norm = norm(dim)

    def forward(self, hidden_states, attention_mask):
        x = hidden_states if self.is_post else self.norm(hidden_states)
        q, k, v = (f(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)) + attention_mask
        context = self.dense((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
        return (self.norm(context + hidden_states),) if self.is_post else hidden_states + context


class Annotated(nn.Module):
    """The annotated transformer: four copies of one map, a mask with 0 where a key is padding."""

    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        mask, n = None if mask is None else mask.unsqueeze(1), query.size(0)
        pairs = zip(self.linears, (query, key, value), strict=False)
        query, key, value = (lin(x).view(n, -1, self.h, self.d_k).transpose(1, 2) for lin, x in pairs)
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k)
        scores = scores if mask is None else scores.masked_fill(mask == 0, -1e9)
        x = self.dropout(scores.softmax(dim=-1)) @ value
        return self.linears[-1](x.transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k))


class Cross(nn.Module):
    """Stable Diffusion's attention to a text: heads in the batch; or with norms of q and k, as in Llama 3.2's."""

    def __init__(self, dim, heads, norm=None):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.to_out = nn.Sequential(nn.Linear(dim, dim), nn.Dropout(0.0))
        self.norm_q, self.norm_k = (norm(dim // heads) if norm else nn.Identity() for _ in range(2))

    def forward(self, x, context):
        def to_batch(t):
            return t.reshape(*t.shape[:2], self.heads, -1).permute(0, 2, 1, 3).flatten(0, 1)

        q, k, v = (to_batch(t) for t in (self.to_q(x), self.to_k(context), self.to_v(context)))
        q, k = self.norm_q(q), self.norm_k(k)
        probs = torch.baddbmm(torch.zeros(()), q, k.transpose(1, 2), beta=0, alpha=q.shape[-1] ** -0.5).softmax(-1)
        out = torch.bmm(probs, v).unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)
        return self.to_out(out)


class Whisper(nn.Module):
    """q and k each times d^(−1/4); no bias on keys; a memory if there is one."""

    def __init__(self, n_state, n_head):
        super().__init__()
        self.n_head = n_head
        self.query, self.value, self.out = (nn.Linear(n_state, n_state) for _ in range(3))
        self.key = nn.Linear(n_state, n_state, bias=False)

    def forward(self, x, xa):
        q, k, v = self.query(x), self.key(xa), self.value(xa)
        scale = (q.shape[-1] // self.n_head) ** -0.25
        q, k, v = (t.view(*t.shape[:2], self.n_head, -1) for t in (q, k, v))
        qk = (q.permute(0, 2, 1, 3) * scale) @ (k.permute(0, 2, 3, 1) * scale)
        return self.out((F.softmax(qk.float(), dim=-1) @ v.transpose(1, 2)).permute(0, 2, 1, 3).flatten(2))


class Fairseq(nn.Module):
    """Sequences are (number, batch, features); queries are scaled before the product; key_padding_mask."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, rotary=False):
        super().__init__()
        self.num_heads, self.rotary = num_heads, rotary
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def forward(self, query, key, value, key_padding_mask=None):
        tgt, bsz, dim = query.shape
        q = self.q_proj(query) * (dim // self.num_heads) ** -0.5
        q, k, v = (
            t.contiguous().view(len(t), bsz * self.num_heads, -1).transpose(0, 1)
            for t in (q, self.k_proj(key), self.v_proj(value))
        )
        if self.rotary:
            cos, sin = cos_sin(tgt, q.shape[-1], 1e4)
            q, k = (t * cos + rotate_half(t) * sin for t in (q, k))
        w = torch.bmm(q, k.transpose(1, 2)).view(bsz, self.num_heads, tgt, -1)
        if key_padding_mask is not None:
            w = w.masked_fill(key_padding_mask[:, None, None], float("-inf"))
        attn = torch.bmm(w.softmax(-1).flatten(0, 1), v)
        return self.out_proj(attn.transpose(0, 1).contiguous().view(tgt, bsz, dim)), None


class Conv(nn.Module):
    """Latent diffusion's block: maps are 1×1 convolutions over (batch, channels, number)."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.proj_out = (nn.Conv1d(channels, channels, 1) for _ in range(4))

    def forward(self, x):
        q, k, v = (f(x).unflatten(1, (self.heads, -1)) for f in (self.q, self.k, self.v))
        w = torch.einsum("bhci,bhcj->bhij", q, k) * q.shape[2] ** -0.5
        return self.proj_out(torch.einsum("bhij,bhcj->bhci", w.softmax(3), v).flatten(1, 2))


class LayerNorm2d(nn.Module):
    """Cohere's: weights of their own for each head, (heads, size)."""

    def __init__(self, shape, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(shape)), eps

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return self.weight[:, None] * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class CommandRPlus(Llama):
    def __init__(self, dim, heads):
        super().__init__(dim, heads, theta=1e4)
        self.q_norm, self.k_norm = LayerNorm2d((heads, dim // heads)), LayerNorm2d((heads, dim // heads))


class Sandwich(nn.Module):
    """A layer in the residual stream with a norm of its output, and perhaps of its input (Gemma 2; OLMo 2 without)."""

    def __init__(self, dim, attn, before, behind):
        super().__init__()
        self.attn, self.before, self.behind = attn, before(dim), behind(dim)

    def forward(self, x):
        return x + self.behind(self.attn(self.before(x))[0])


class Block(nn.Module):
    """A layer in the residual stream, behind a norm."""

    def __init__(self, dim, attn, norm, is_post=False):
        super().__init__()
        self.attn, self.norm, self.is_post = attn, norm(dim), is_post

    def forward(self, x):
        out = self.attn(x if self.is_post else self.norm(x))
        out = out[0] if isinstance(out, tuple) else out
        return self.norm(x + out) if self.is_post else x + out


def llama(**options):
    return {
        "make": lambda dim, heads, dropout: Llama(dim, heads, **options),
        "matrices": lambda m: (m.q_proj, m.k_proj, m.v_proj, m.o_proj),
    }


def meta(**options):
    return {
        "make": lambda dim, heads, dropout: Meta(dim, heads, **options),
        "matrices": lambda m: (m.wq, m.wk, m.wv, m.wo),
    }


def gpt(**options):
    return {
        "make": lambda dim, heads, dropout: GPT(dim, heads, dropout, **options),
        "matrices": lambda m: (*m.c_attn.weight.chunk(3), m.c_proj),
    }


def neox(**options):
    return {"make": lambda dim, heads, dropout: NeoX(dim, heads, **options), "matrices": NeoX.matrices}


def vit(**options):
    return {
        "make": lambda dim, heads, dropout: ViT(dim, heads, dropout, **options),
        "matrices": lambda m: (*m.qkv.weight.chunk(3), m.proj),
    }


def bert(**options):
    return {
        "make": lambda dim, heads, dropout: Bert(dim, heads, dropout, **options),
        "matrices": lambda m: (m.query, m.key, m.value, m.dense),
    }


def block(layer, norm, is_post=False):
    made, read = layer["make"], layer["matrices"]
    return {
        "make": lambda dim, heads, dropout: Block(dim, made(dim, heads, dropout), norm, is_post),
        "matrices": lambda m: read(m.attn),
    }


def sandwich(before, **options):
    return {
        "make": lambda dim, heads, dropout: Sandwich(dim, Llama(dim, heads, **options), before, RMSNorm),
        "matrices": lambda m: llama()["matrices"](m.attn),
    }


ANNOTATED = {
    "make": lambda dim, heads, dropout: Annotated(heads, dim, dropout),
    "matrices": lambda m: m.linears,
}
FAIRSEQ = {"matrices": lambda m: (m.q_proj, m.k_proj, m.v_proj, m.out_proj)}
CROSS = {"matrices": lambda m: (m.to_q, m.to_k, m.to_v, m.to_out[0])}
HALVES, NEIGHBOURS = "rotary positions (pairs of halves, θ {})", "rotary positions (pairs of neighbours, θ {})"
RMS, LAYER = "RMSNorm of each head's queries and keys", "LayerNorm of each head's queries and keys"
WHOLE = "RMSNorm of all heads' queries and keys"
PUBLIC = {  # model → how it is handed over, and what the verdict says of it
    "Llama 3": (llama(shared=2), [HALVES.format("500,000"), "causal"]),
    "Llama 2": (llama(theta=1e4), [HALVES.format("10,000")]),
    "Mistral Nemo": (llama(theta=1e6, shared=2), [HALVES.format("1,000,000"), "in groups"]),
    "Yi": (llama(theta=5e6), [HALVES.format("5,000,000")]),
    "Qwen 2": (llama(theta=1e6, bias=True), [HALVES.format("1,000,000"), "with biases"]),
    "Qwen 3": (llama(theta=1e6, norm=RMSNorm, shared=2), [HALVES.format("1,000,000"), RMS]),
    "Gemma 3": (llama(theta=1e4, norm=RMSNorm), [HALVES.format("10,000"), RMS]),
    "OLMo 2": (llama(norm=RMSNorm, whole=True), [HALVES.format("500,000"), WHOLE]),
    "Chameleon": (llama(theta=1e4, norm=nn.LayerNorm), [HALVES.format("10,000"), LAYER]),
    "Jamba, no positions": (llama(theta=None, shared=2), ["causal", "in groups"]),
    "SmolLM3, a layer without positions": (llama(theta=None), ["causal"]),
    "ModernBERT": (llama(theta=1.6e5, causal=False), [HALVES.format("160,000"), "computes self-attention"]),
    "Falcon": (llama(theta=1e4, shared=4), [HALVES.format("10,000")]),
    "Llama, its own code": (meta(theta=5e5), [NEIGHBOURS.format("500,000")]),
    "llama2.c": (meta(shared=2), [NEIGHBOURS.format("10,000"), "in groups"]),
    "Command R": (meta(norm=nn.LayerNorm), [NEIGHBOURS.format("10,000"), LAYER]),
    "Flux": (meta(norm=RMSNorm, causal=False), [NEIGHBOURS.format("10,000"), RMS]),
    "Wan": (meta(norm=RMSNorm, causal=False, whole=True), [NEIGHBOURS.format("10,000"), WHOLE]),
    "nanoGPT": (gpt(), ["causal", "Dropout acts on the weights."]),
    "nanoGPT without biases": (gpt(bias=False), ["causal"]),
    "nanochat, first edition": (gpt(bias=False, normed=True), [HALVES.format("10,000"), RMS]),
    "nanochat": (gpt(bias=False, normed=True, factor=1.2), [HALVES.format("10,000"), RMS, "scores times 1.44"]),
    "GPT-NeoX, all features turned": (neox(), [HALVES.format("10,000"), "with biases"]),
    "BLOOM": (neox(rotary=False, alibi=True), ["ALiBi"]),
    "Persimmon": (neox(norm=nn.LayerNorm), [HALVES.format("10,000"), LAYER]),
    "GPT-J": (
        {
            "make": lambda dim, heads, dropout: GPTJ(dim, heads),
            "matrices": lambda m: (m.q_proj, m.k_proj, m.v_proj, m.out_proj),
        },
        [NEIGHBOURS.format("10,000")],
    ),
    "ViT": (vit(), ["computes self-attention, with biases.", "Dropout acts on the weights."]),
    "DeiT without biases": (vit(qkv_bias=False), ["computes self-attention"]),
    "ViT-22B": (vit(norm=nn.LayerNorm), [LAYER]),
    "InternViT": (vit(norm=RMSNorm), [RMS]),
    "BERT": (bert(), ["LayerNorm of the sum of input and output", "`attention_mask` is 0"]),
    "a pre-norm encoder": (bert(is_post=False), ["LayerNorm of its input, which is added"]),
    "T5's place of the norm": (bert(is_post=False, norm=RMSNorm), ["RMSNorm of its input, which is added"]),
    "the annotated transformer": (
        ANNOTATED,
        ["computes attention to keys and values", "`mask` is True where a key takes part"],
    ),
    "Stable Diffusion": (
        {"make": lambda dim, heads, dropout: Cross(dim, heads), **CROSS},
        ["computes attention to a memory"],
    ),
    "Llama 3.2's attention to pictures": (
        {"make": lambda dim, heads, dropout: Cross(dim, heads, RMSNorm), **CROSS},
        ["computes attention to a memory", RMS],
    ),
    "Whisper": (
        {
            "make": lambda dim, heads, dropout: Whisper(dim, heads),
            "matrices": lambda m: (m.query, m.key, m.value, m.out),
        },
        ["computes attention to a memory, with biases"],
    ),
    "fairseq": (
        {
            "make": lambda dim, heads, dropout: Fairseq(dim, heads),
            "call": lambda m, q, k, v, valid_lens: m(
                q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), torch.arange(k.shape[1]) >= valid_lens[:, None]
            )[0].transpose(0, 1),
            **FAIRSEQ,
        },
        ["computes attention to keys and values, with biases"],
    ),
    "ESM-2": (
        {
            "make": lambda dim, heads, dropout: Fairseq(dim, heads, rotary=True),
            "call": lambda m, x: m(*[x.transpose(0, 1)] * 3)[0].transpose(0, 1),
            **FAIRSEQ,
        },
        [HALVES.format("10,000"), "computes self-attention"],
    ),
    "latent diffusion": (
        {
            "make": lambda dim, heads, dropout: Conv(dim, heads),
            "call": lambda m, x: m(x.mT).mT,
            "matrices": lambda m: [(conv.weight[..., 0], conv.bias) for conv in (m.q, m.k, m.v, m.proj_out)],
        },
        ["computes self-attention, with biases"],
    ),
    "a block of Llama": (
        block(llama(theta=1e4), RMSNorm),
        [HALVES.format("10,000"), "RMSNorm of its input, which is added"],
    ),
    "Llama 3.1": (
        llama(theta=5e5, shared=2, scaling=llama3_scaling),
        ["rotary positions slowed as in Llama 3.1 (pairs of halves, θ 500,000)"],
    ),
    "Gemma 3, a global layer": (
        llama(theta=1e6, norm=RMSNorm, scaling=lambda inv_freq: inv_freq / 8),
        ["rotary positions slowed as in Gemma 3 (pairs of halves, θ 1,000,000)", RMS],
    ),
    "Command R+": ({**llama(), "make": lambda dim, heads, dropout: CommandRPlus(dim, heads)}, [LAYER]),
    "ESM-3": (
        llama(theta=1e4, norm=nn.LayerNorm, whole=True, causal=False),
        ["LayerNorm of all heads' queries and keys"],
    ),
    "a block of DINOv2": (
        block(vit(), lambda dim: nn.LayerNorm(dim, eps=1e-6)),
        ["LayerNorm of its input, which is added"],
    ),
    "a block of OLMo 2": (
        sandwich(nn.Identity, norm=RMSNorm, whole=True),
        [WHOLE, "RMSNorm of its output, to which its input is added"],
    ),
    "a block of Gemma 2": (
        sandwich(RMSNorm, theta=1e4),
        [HALVES.format("10,000"), "RMSNorm of its input and of its output, to which its input is added"],
    ),
    "a block of GPT-2": (block(gpt(), nn.LayerNorm), ["LayerNorm of its input, which is added", "causal"]),
}
