"""The exercises of notebook 05: the maps in torch's packed matrices, its masks, places beside padding, its block."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib.checking.exercise import exercise
from mha_lib.checking.running import must_be_integers
from mha_lib.museum.wrong_attention import attention, programs

ENDS = torch.tensor([[False, False, False, True], [False, True, True, True]])  # True: padding
BEGINS = torch.tensor([[True, True, False, False], [False, False, False, False], [True, False, False, False]])
WITHIN = torch.tensor([[False, True, False, True, False], [False, False, False, True, False]])


def packed_trial(head_size, num_heads, padding) -> tuple:
    """Random tokens, torch's matrices for them, and their padding."""
    d = num_heads * head_size
    return torch.randn(*padding.shape, d), 0.7 * torch.randn(3 * d, d), 0.5 * torch.randn(3 * d), num_heads, padding


def low_trial(padding: Tensor) -> tuple:
    """Give a trial for two heads with scores near minus a million, those of padding the lowest.

    They are whole numbers or halves, at least 500 apart in a row: no order of computing rounds them.
    """
    X = torch.randint(-1, 2, (*padding.shape, 8)).float()
    X[..., 0] = torch.rand(padding.shape).argsort(dim=-1).argsort(dim=-1) - 8.0 * padding
    in_proj_weight, in_proj_bias = torch.randint(-1, 2, (24, 8)).float(), torch.zeros(24)
    in_proj_weight[[0, 4, 8, 12]] = 0.0
    in_proj_weight[[8, 12], 0] = 1.0
    in_proj_bias[:8:4], in_proj_bias[8:16:4] = 2000.0, -1000.0  # in each head's first feature
    return X, in_proj_weight, in_proj_bias, 2, padding


def from_packed(X, in_proj_weight, in_proj_bias, num_heads, padding, attention=attention):
    """Compute the weights with an ``attention`` that makes a mistake."""
    W_q, W_k, W_v = in_proj_weight.chunk(3)
    b_q, b_k, b_v = in_proj_bias.chunk(3)
    W_o, allowed = torch.eye(X.shape[-1]), ~padding[:, None, None]
    return attention(X, X, X, allowed, W_q, W_k, W_v, W_o, num_heads, b_q, b_k, b_v, only_weights=True)


@exercise(
    trials=lambda: {
        "with scores near 0": [packed_trial(2, 3, ENDS), packed_trial(6, 2, BEGINS), packed_trial(3, 2, WITHIN)],
        "with scores near −1 million": [low_trial(WITHIN)],
    },
    praise="These are the maps of all heads, from a layer that was never asked for them.",
    idea="One product gives queries, keys and values, a third of the rows each; in each third head follows on head.",
    begin="Begin with that one product, its bias included.",
    mistakes="""
    3, num_heads, -1)).permute(2, 0, 3, 1, 4) -> num_heads, 3, -1)).permute(3, 0, 2, 1, 4) => The rows are read head by
        head, with q, k and v inside each. In which order does torch stack them?
    -math.inf) -> -1e5) || -math.inf) -> -1e4) || -math.inf) -> -1e3) || -math.inf) -> -100.0) || -math.inf) -> -20.0)
        => With this finite number padding takes weight in the softmax. Is it lower than every score can be?
    softmax(dim=-1) -> softmax(dim=-1).mean(dim=1) => The heads are averaged: that is what torch's layer gives if
        nothing else is asked for.
    """,
    programs=programs(from_packed),
)
def every_map(X, in_proj_weight, in_proj_bias, num_heads, padding):
    """The weights of every head of ``nn.MultiheadAttention``, from its packed matrices and a key_padding_mask.

    X (batch, num_tokens, d), in_proj_weight (3 · d, d), in_proj_bias (3 · d), padding (batch, num_tokens), True where a
    token is padding → (batch, num_heads, num_tokens, num_tokens). Source: PyTorch, ``nn.MultiheadAttention``.
    """
    packed = F.linear(X, in_proj_weight, in_proj_bias)  # (b, n, d) -> (b, n, 3d)
    Q, K, _ = packed.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])  # (b, h, n, n)
    return scores.masked_fill(padding[:, None, None], -math.inf).softmax(dim=-1)


@exercise(
    trials=lambda: [(ENDS, 2, False), (ENDS, 3, True), (WITHIN, 2, True), (BEGINS, 2, False)],
    praise="torch's layer takes it as it is: bool, one table for each head of each example, True where nobody looks.",
    idea="A key is left out if it is padding, and where it is causal also if it comes later. Every head needs a table.",
    begin="Begin with the table of one example: a row for each query, all rows alike as long as nothing is causal.",
    mistakes="""
    (out | later if causal else out) -> ~$ => The mask is the wrong way round. What does True say in attn_mask of
        torch's layer?
    .repeat_interleave(num_heads, dim=0) -> .repeat(num_heads, 1, 1) => The tables come in another order: those of all
        examples for head 0 first. Do the heads of one example follow one another?
    padding[:, None].expand(-1, n, -1) -> padding[:, :, None].expand(-1, -1, n) => Rows of padded queries are left out,
        and padded keys are not. Along which axis do the keys stand?
    padding[:, None].expand(-1, n, -1) -> padding[:, None] | padding[:, :, None] => Rows of padded queries are left out,
        too. What becomes of a row without a key?
    triu(1) -> triu(0) => No token sees itself. Where does "later" begin?
    triu(1) -> triu(2) => A token sees the one after it. Where does "later" begin?
    triu(1) -> tril(-1) => What came before is left out, and what comes later is not.
    out | later -> out & later => A key is left out only if it is padding and comes later. Is either not enough?
    out | later -> later.expand_as(out) => Where it is causal, padding is forgotten.
    out | later if causal else out -> out | later => It is causal even where that is not asked for.
    out | later if causal else out -> out => causal has no say. Who sees what comes later?
    .repeat_interleave(num_heads, dim=0) -> _ => There is one table for each example. For how many heads?
    dim=0) -> dim=0).float() => These are numbers, and not bool. torch adds a number 1 to a score, which leaves nothing
        out, or refuses it.
    (out | later if causal else out).repeat_interleave(num_heads, dim=0) -> torch.where($, -torch.inf, 0.0) ||
        torch.where($, -1e9, 0.0) || torch.where($, torch.finfo(torch.float32).min, 0.0) => The places are right, but
        these are numbers to be added to scores; a bool mask is asked for.
    (out | later if causal else out).repeat_interleave(num_heads, dim=0) -> torch.where($, 0.0, -torch.inf) ||
        torch.where($, 0.0, -1e9) || torch.where($, 0.0, torch.finfo(torch.float32).min) => These numbers would leave
        out what is to be kept; and a bool mask is asked for.
    """,
)
def mask_for_torch(padding, num_heads, causal):
    """One attn_mask for ``nn.MultiheadAttention`` that says, for each example, which keys are left out.

    padding (batch, num_tokens), True where a token is padding; causal, a bool: whether later keys are left out as well
    → bool (batch · num_heads, num_tokens, num_tokens), True: left out. Source: PyTorch, ``nn.MultiheadAttention``.
    """
    n = padding.shape[1]
    out = padding[:, None].expand(-1, n, -1)  # (b, n) -> (b, q, k)
    later = torch.ones(n, n, dtype=torch.bool).triu(1)  # (q, k)
    return (out | later if causal else out).repeat_interleave(num_heads, dim=0)


@exercise(
    then=must_be_integers(BEGINS),
    trials=lambda: [(BEGINS,), (ENDS,), (torch.tensor([[True, True, True, False, False, True]]),)],
    praise="Every text begins at place 0, wherever it stands in its row.",
    idea="The place of a token is the number of real tokens before it.",
    begin="Begin with a running count of the real tokens.",
    mistakes="""
    (~padding).cumsum(dim=1) - 1 -> torch.arange(padding.shape[1]).expand(padding.shape) => These are the numbers of the
        columns. Where does the text begin?
    - 1 -> _ => The first token stands at place 1. From which number are places counted?
    .masked_fill(padding, 0) -> _ => Padding does not stand at place 0: before the text it is at -1, which as an index
        is the last place, and no error says so. Where should padding stand?
    masked_fill(padding, 0) -> masked_fill(padding, 1) => Padding stands at place 1.
    masked_fill(padding, 0) -> clamp(min=0) => Padding behind a text keeps the place of its last token. Where should all
        padding stand?
    masked_fill(padding, 0) -> masked_fill(~padding, 0) => The tokens stand at place 0, and padding is counted on. What
        does True say here?
    ~padding -> padding => Padding is counted, and tokens are not.
    cumsum(dim=1) -> cumsum(dim=0) => The count runs down the batch. Along which axis does a text run?
    (~padding).cumsum(dim=1) - 1 -> torch.arange(padding.shape[1]) - padding.sum(dim=1, keepdim=True) ||
        (~padding).cumsum(dim=1) - 1 -> torch.arange(padding.shape[1]) - padding.sum(dim=1, keepdim=True) ;
        .masked_fill(padding, 0) -> _ || (~padding).cumsum(dim=1) - 1 -> torch.arange(padding.shape[1]) -
        padding.sum(dim=1, keepdim=True) ; masked_fill(padding, 0) -> clamp(min=0) => All padding of a
        row is taken off, which is right only where it stands before the text.
    (~padding).cumsum(dim=1) - 1 -> (~padding).flip(1).cumsum(dim=1).flip(1) - 1 => The count begins at the end of the
        text.
    """,
)
def places_of(padding):
    """The place of every token in its text, for texts that are padded before their first token or behind their last.

    padding (batch, num_tokens), True where a token is padding → (batch, num_tokens), whole numbers from 0; padding
    itself gets place 0. Source: what ``position_ids`` are in Hugging Face's transformers.
    """
    places = (~padding).cumsum(dim=1) - 1  # (b, n)
    return places.masked_fill(padding, 0)


class PartsOnly(nn.TransformerEncoderLayer):
    """torch's block with random parameters, which can be taken apart, and not called."""

    def __init__(self, num_hiddens: int, num_heads: int, ffn_num_hiddens: int):
        super().__init__(num_hiddens, num_heads, ffn_num_hiddens, dropout=0.0, batch_first=True)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5)
        self.eval().requires_grad_(False)

    def forward(self, *_, **__):
        raise RuntimeError("The block itself cannot be called here: put it together from its parts")


@exercise(
    trials=lambda: [(torch.randn(2, 3, 4), PartsOnly(4, 2, 6)), (torch.randn(3, 5, 6), PartsOnly(6, 3, 8))],
    praise="That is torch's block: two sums, each followed by its norm.",
    idea="First a token and what it heard, added and normalised; then that and what the MLP makes of it.",
    begin="Begin with what the tokens hear; torch's attention gives a pair.",
    mistakes="""
    X + layer.self_attn -> layer.self_attn => A token is left with what it heard. What becomes of what it was?
    Y + layer.linear2 -> layer.linear2 => The MLP's output takes the place of the token. Should it be added?
    Y + layer.linear2 -> X + layer.linear2 => The MLP's output is added to the input of the block. Where is what was
        heard?
    layer.linear1(Y) -> layer.linear1(X) => The MLP reads the input of the block, before anything was heard.
    torch.relu(layer.linear1(Y)) -> layer.linear1(Y) => Nothing bends the numbers between the two linear maps. What
        would one map do as well?
    Y = layer.norm1(X + layer.self_attn(X, X, X)[0]) -> N = layer.norm1(X); Y = X + layer.self_attn(N, N, N)[0] ;
        layer.norm2(Y + layer.linear2(torch.relu(layer.linear1(Y)))) -> Y +
        layer.linear2(torch.relu(layer.linear1(layer.norm2(Y)))) => The norms stand before attention and MLP, as in a
        block with norm_first.
    layer.norm2( -> layer.norm1( => One norm serves twice.
    layer.norm1( -> layer.norm2( ; layer.norm2( -> layer.norm1( => The two norms have changed places.
    torch.relu -> nn.functional.gelu || torch.tanh || torch.sigmoid => What stands between the two linear maps is no
        ReLU.
    Y + layer.linear2(torch.relu(layer.linear1(Y))) -> Y => The MLP has no part in it.
    X + layer.self_attn(X, X, X)[0] -> X => Attention has no part in it: no token hears of another.
    layer.norm1(X + layer.self_attn(X, X, X)[0]) -> X + layer.norm1(layer.self_attn(X, X, X)[0]) ; layer.norm2(Y +
        layer.linear2(torch.relu(layer.linear1(Y)))) -> Y + layer.norm2(layer.linear2(torch.relu(layer.linear1(Y)))) =>
        Both parts are normalised before they are added. Does a sum go into a norm, or one part of it?
    layer.norm1(X + layer.self_attn(X, X, X)[0]) -> X + layer.norm1(layer.self_attn(X, X, X)[0]) => What was heard is
        normalised before it is added. Does a sum go into the norm, or one part of it?
    layer.norm1(X + layer.self_attn(X, X, X)[0]) -> X + layer.self_attn(X, X, X)[0] => Nothing is normalised behind the
        attention.
    layer.norm2(Y + layer.linear2(torch.relu(layer.linear1(Y)))) -> Y + layer.linear2(torch.relu(layer.linear1(Y))) =>
        Nothing is normalised at the end.
    self_attn(X, X, X)[0] -> self_attn(X, X, X) => An error is raised: torch's attention gives a pair, output and
        weights.
    self_attn(X, X, X)[0] -> self_attn(*[X.transpose(0, 1)] * 3)[0].transpose(0, 1) => Attention runs along the batch.
        Which axis does it take for the tokens?
    """,
)
def block_by_hand(X, layer):
    """What ``nn.TransformerEncoderLayer`` makes of X, put together from its parts (norm_first=False, no dropout).

    X (batch, num_tokens, d); layer has self_attn (batch first), linear1, linear2, norm1 and norm2, with ReLU between
    the linear maps → (batch, num_tokens, d). Source: Vaswani et al. 2017, sections 3.1 and 3.3.
    """
    Y = layer.norm1(X + layer.self_attn(X, X, X)[0])
    return layer.norm2(Y + layer.linear2(torch.relu(layer.linear1(Y))))
