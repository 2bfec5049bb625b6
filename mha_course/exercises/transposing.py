"""Exercises of notebooks 00 and 04: merge the heads with the batch axis and back, and split a fused projection."""

import torch

from mha_course.checking.exercise import exercise
from mha_course.checking.wording import two_numbers
from mha_course.language import listed, tr
from mha_course.models.shape_trace import read_tag, tagged_tokens

TAGS = tagged_tokens(batch_size=2, num_tokens=4, num_heads=2, head_size=3).float()  # each number says where it is from
FOLDED_TAGS = TAGS.unflatten(2, (2, 3)).transpose(1, 2).flatten(0, 1)  # (b, n, h · p) -> (b · h, n, p)
DIGITS = ("example", "token", "head", "feature")


def tags_in_words(got: float, right: float) -> tuple[str, str]:
    """Describe two numbers that encode (example, token, head, feature) by the indices in which they differ."""
    if got == right or not {got, right} <= set(TAGS.flatten().tolist()):
        return two_numbers(got, right)
    digits = [row for row in zip(DIGITS, read_tag(int(got)), read_tag(int(right)), strict=True) if row[1] != row[2]]
    wrong, belongs = (listed(f"{tr(row[0])} {row[side]}" for row in digits) for side in (1, 2))
    told = ({"number": f"{got:.0f}", "address": wrong}, {"number": f"{right:.0f}", "address": belongs})
    return tr("{number} ({address})", **told[0]), tr("{number} ({address})", **told[1])


@exercise(
    trials=lambda: [(TAGS, 2), (torch.randn(2, 4, 15), 3), (torch.randn(3, 5, 8), 4), (torch.randn(5, 2, 6), 2)],
    numbers_in_words=tags_in_words,
    praise="Every number is where it belongs: matrix e · num_heads + i belongs to head i of example e.",
    idea="Divide the features into heads, exchange the axes of tokens and heads, and merge heads and batch.",
    begin="Begin with a reshape that divides the last axis into two and leaves the others as they are.",
    mistakes="""
    .transpose(1, 2) -> _ => Head 0 holds all parts of token 0, not one part of each token. Exchange the axes of tokens
        and heads before you merge axes.
    .transpose(1, 2) -> .permute(2, 0, 1, 3) => The matrices of head 0 come first, for all examples. The heads of one
        example must follow one another.
    num_heads, d // num_heads -> d // num_heads, num_heads ; transpose(1, 2) -> permute(0, 3, 1, 2) => The features of
        the heads alternate. Head 0 must hold the first d // num_heads features.
    .transpose(1, 2) -> .permute(0, 2, 3, 1) => The rows of a head mix features of several tokens. Exchange the axes of
        tokens and heads only.
    .transpose(1, 2) -> .permute(2, 1, 0, 3) || .transpose(2, 3) || .transpose(1, 3) || .transpose(0, 1) ||
        .transpose(1, 2) -> .transpose(2, 3) ; b * num_heads, n, -1 -> b * n, -1, num_heads || .transpose(1, 2) ->
        .transpose(1, 3) ; b * num_heads, n -> b * d // num_heads, num_heads || .transpose(1, 2) -> .transpose(0, 1) ;
        n, -1 -> num_heads, -1 ; b * num_heads -> b * n => Two axes are exchanged, but not those of tokens and
        heads.
    num_heads, d // num_heads -> d // num_heads, num_heads || num_heads, d // num_heads -> d // num_heads, num_heads ; b
        * num_heads, n, -1 -> -1, n, num_heads => The last axis is divided into d // num_heads heads instead of
        num_heads.
    .transpose(1, 2) -> _ ; b * num_heads, n -> b * n, num_heads => The tokens are merged with the batch, and the
        heads are rows. Merge the heads with the batch instead.
    n, num_heads, d -> num_heads, n, d || n, num_heads, d -> num_heads, n, d ; b * num_heads, n -> b * n, num_heads =>
        The reshape divides the tokens among the heads. Divide the last axis, the features.
    .transpose(1, 2) -> $.flip(1) => The heads of each example are in reverse order.
    .reshape(b * num_heads, n, -1) -> [:, 0] => Only head 0 is left.
    .reshape(b * num_heads, n, -1) -> _ => The result has four axes, three are needed: merge batch and heads.
    b * num_heads, n, -1 -> b, num_heads * n, -1 => The heads are merged with the tokens. Merge them with the batch.
    """,
)
def transpose_qkv(X, num_heads):
    """Split the features into heads and merge the heads with the batch axis: all heads of example 0 come first.

    X (batch, num_tokens, num_hiddens) → (batch · num_heads, num_tokens, head_size). Source: d2l 11.5.2.
    """
    b, n, d = X.shape
    X = X.reshape(b, n, num_heads, d // num_heads)  # (b, n, h · p) -> (b, n, h, p)
    X = X.transpose(1, 2)  # -> (b, h, n, p)
    return X.reshape(b * num_heads, n, -1)  # -> (b · h, n, p)


@exercise(
    trials=lambda: [
        (FOLDED_TAGS, 2),
        (torch.randn(6, 4, 5), 3),
        (torch.randn(12, 5, 2), 4),
        (torch.randn(10, 2, 3), 2),
    ],
    numbers_in_words=tags_in_words,
    praise="Every number is back at its token, with the heads in order. A round trip alone would not have shown this.",
    idea="Undo the steps of transpose_qkv in reverse order.",
    begin="Begin with a reshape that divides the first axis. There, the heads of one example follow one another.",
    mistakes="""
    .transpose(1, 2) -> _ => The features of different tokens of one head are next to each other. Exchange the axes of
        heads and tokens before you merge heads and features.
    count // num_heads, num_heads, -> num_heads, count // num_heads, ; .transpose(1, 2) -> .permute(1, 2, 0, 3) => Heads
        of different examples are concatenated. The heads of one example follow one another on the first axis, so divide
        it into (batch, heads).
    count // num_heads, num_heads, -> num_heads, count // num_heads, || count // num_heads, num_heads, -> num_heads,
        count // num_heads, ; .reshape(-1, n, num_heads * p) -> .flatten(2) => The first axis is divided into (heads,
        batch). Divide it into (batch, heads).
    .transpose(1, 2) -> .permute(0, 2, 3, 1) => The features of the heads are interleaved. All features of head 0 come
        first, then those of head 1.
    .transpose(1, 2) -> .transpose(2, 3) => The axes of tokens and features are exchanged. Exchange those of heads and
        tokens.
    .transpose(1, 2) -> .transpose(2, 3) ; -1, n, num_heads * p -> -1, num_heads * p, n => The features are rows and the
        tokens are columns. Each token is a row of the result.
    .transpose(1, 2) -> .transpose(1, 3) || .transpose(1, 2) -> .transpose(1, 3) ; .reshape(-1, n, num_heads * p) ->
        .flatten(2) => The axes of heads and features are exchanged. Exchange those of heads and tokens.
    .transpose(1, 2) -> .transpose(0, 1) || .transpose(1, 2) -> .transpose(0, 2) => The batch axis is exchanged with
        another. It stays in front.
    .transpose(1, 2) -> _ ; -1, n, num_heads * p -> -1, num_heads * n, p => The heads are appended as further tokens.
        Merge heads and features instead.
    .transpose(1, 2) -> _ ; .reshape(-1, n, num_heads * p) -> .flatten(2) => The tokens of each head are merged with its
        features. Merge heads and features instead.
    .transpose(1, 2) -> .transpose(0, 1) ; -1, n, num_heads * p -> n, -1 || .transpose(1, 2) -> .transpose(0, 1) ; -1, n
        -> 1, n ; num_heads * p -> -1 || .transpose(1, 2) -> .permute(2, 0, 1, 3) ; -1, n, num_heads * p -> n, -1 ||
        .transpose(1, 2) -> .permute(2, 0, 1, 3) ; -1, n -> 1, n ; num_heads * p -> -1 => The heads of all examples are
        concatenated. Concatenate only the heads of one example.
    .reshape(-1, n, num_heads * p) -> .sum(dim=2) || .mean(dim=2) => The heads are added up or averaged. Concatenate
        them.
    .transpose(1, 2) -> $.flip(2) => The heads are concatenated in reverse order.
    .reshape(-1, n, num_heads * p) -> [:, :, 0] => Only head 0 is left.
    .reshape(-1, n, num_heads * p) -> _ => The result has four axes, three are needed: merge heads and features.
    """,
)
def transpose_output(X, num_heads):
    """Undo ``transpose_qkv``: move the heads of X from the batch axis back into the features of each token.

    X (batch · num_heads, num_tokens, head_size) → (batch, num_tokens, num_hiddens). Source: d2l 11.5.2.
    """
    count, n, p = X.shape
    X = X.reshape(count // num_heads, num_heads, n, p)  # (b · h, n, p) -> (b, h, n, p)
    X = X.transpose(1, 2)  # -> (b, n, h, p)
    return X.reshape(-1, n, num_heads * p)  # -> (b, n, h · p)


@exercise(
    trials=lambda: [(torch.randn(3 * h * p, size), h) for h, p, size in ((2, 3, 6), (3, 2, 9), (4, 5, 3), (5, 3, 12))],
    praise="Each matrix has the rows of all heads, in order.",
    idea="Give the heads, the three matrices and the rows of a head an axis each. Then exchange two axes.",
    begin="Begin with a reshape that divides the first axis into three, in the order in which the rows follow.",
    mistakes="""
    parts.transpose(0, 1) -> W => W is divided into three thirds, as if all rows of W_q came first. Here the rows of
        head 0 come first: its queries, its keys, its values.
    num_heads, 3, -1, size) -> -1, 3, size) => W_q, W_k and W_v get every third row. The rows of one head and one matrix
        follow one another.
    .transpose(0, 1) -> .permute(1, 2, 0, 3) => Each row is in the right matrix, but the heads alternate there. All rows
        of head 0 come first.
    return W_q, W_k, W_v -> return W_k, W_q, W_v || return W_q, W_v, W_k || return W_v, W_k, W_q || return W_k, W_v, W_q
        || return W_v, W_q, W_k => The matrices are right, but returned in another order. Return W_q, W_k, W_v.
    num_heads, 3, -1, size) -> -1, 3, num_heads, size) => The number of heads and the head size are exchanged: the
        blocks have num_heads rows. A head has num_hiddens // num_heads rows in each matrix.
    num_heads, 3, -1, size) -> 3, num_heads, -1, size) => W is divided into (matrices, heads). Its rows follow in the
        order (heads, matrices).
    parts.transpose -> parts.flip(0).transpose => The heads are in reverse order in every matrix.
    parts.transpose(0, 1).reshape(3, -1, size) -> parts.transpose(0, 1) => The heads have an axis of their own in each
        matrix. Merge it with that of their rows.
    W.reshape(num_heads, 3, -1, size) -> W.unfold(0, len(W) // num_heads, len(W) // num_heads //
        3)[:num_heads].mT.unflatten(1, (3, -1)) => The next head begins only head_size rows further down. A head has 3 *
        head_size rows of W.
    W.reshape(num_heads, 3, -1, size) -> $[:1] => Only the rows of head 0 are left.
    """,
)
def split_fused(W, num_heads):
    """Split a fused projection matrix W, whose rows are ordered by head and then q, k, v, into W_q, W_k and W_v.

    W (3 · num_hiddens, size), for each head in turn its rows of W_q, then of W_k, then of W_v → W_q, W_k, W_v, each
    (num_hiddens, size), with the heads in order.
    Source: the layout of BLOOM in Hugging Face's transformers (``modeling_bloom.py``, ``query_key_value``).
    """
    size = W.shape[1]
    parts = W.reshape(num_heads, 3, -1, size)  # (h · 3 · p, s) -> (h, 3, p, s)
    W_q, W_k, W_v = parts.transpose(0, 1).reshape(3, -1, size)  # -> (3, h · p, s)
    return W_q, W_k, W_v
