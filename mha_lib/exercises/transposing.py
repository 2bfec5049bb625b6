"""The exercises of notebook 04: heads folded into the batch and back, lengths for every head, weights by head."""

import torch

from mha_lib.attention.shape_trace import read_tag, tagged_tokens
from mha_lib.checking.exercise import exercise
from mha_lib.checking.wording import two_numbers

TAGS = tagged_tokens(batch_size=2, num_tokens=4, num_heads=2, head_size=3).float()  # every number is its address
FOLDED_TAGS = TAGS.unflatten(2, (2, 3)).transpose(1, 2).flatten(0, 1)  # (b, n, h · p) -> (b · h, n, p)
DIGITS = ("example", "token", "head", "feature")


def tags_in_words(got: float, right: float) -> tuple[str, str]:
    """Two tags and the digits in which they differ, "10 (token 0, head 1)" and "100 (token 1, head 0)"; or numbers."""
    if got == right or not {got, right} <= set(TAGS.flatten().tolist()):
        return two_numbers(got, right)
    digits = [row for row in zip(DIGITS, read_tag(int(got)), read_tag(int(right)), strict=True) if row[1] != row[2]]
    wrong, belongs = (", ".join(f"{row[0]} {row[side]}" for row in digits) for side in (1, 2))
    return f"{got:.0f} ({wrong})", f"{right:.0f} ({belongs})"


@exercise(
    trials=lambda: [(3, 1, 0, 2, 3), (4, 2, 1, 3, 2), (7, 0, 3, 3, 5), (9, 5, 2, 4, 3), (2, 3, 1, 6, 2)],
    praise="A whole division finds the example, its remainder the head, and the head owns head_size columns.",
    idea="The tables stand in the order example 0 head 0, example 0 head 1, …: write the numbers of the tables down.",
    begin="Begin with which example and which head a table is; Python's divmod gives both at once.",
    mistakes="""
    table // num_heads -> table % num_heads ; table % num_heads -> table // num_heads => Quotient and remainder of the
        table's number have changed places. Do the heads of one example follow one another?
    table // num_heads -> table || table % num_heads -> table => The table's number is taken for that of the example or
        head. Do heads start anew with each example?
    head * head_size -> head * num_heads || head * head_size + column -> head + column => The heads' columns do not
        begin head_size apart. How many does each own?
    head * head_size + column -> column => The feature is counted within its head. What stands to its left?
    head * head_size + column -> column * num_heads + head => The heads' columns alternate. Do they alternate in the
        input?
    row, head * head_size + column -> column, head * head_size + row => Column and row have changed places. What does a
        row of a table stand for?
    row, head * head_size + column -> head * head_size + column, row || example, row, -> row, example, => The numbers
        come in another order. In which are they asked for?
    table // num_heads -> table // head_size ; table % num_heads -> table % head_size || table // num_heads -> table //
        head_size || table % num_heads -> table % head_size => Tables are counted by head_size. How many tables has one
        example?
    row, head * head_size + column -> row, head, column || head, row, column => Head and column come back apart. Which
        single column of the input are they?
    head * head_size + column -> example * head_size + column => The example's number is taken for the head's.
    table // num_heads -> table / num_heads => The example's number is no whole number. Which division is whole?
    + column -> _ => This is the first column of the head. Which one within it?
    table % num_heads -> num_heads - 1 - $ => The heads are counted from the last one back.
    head * head_size + column -> $ + 1 || table // num_heads -> (table - 1) // num_heads ; table % num_heads -> (table -
        1) % num_heads ; example, row, -> example, row - 1, ; + column -> + column - 1 => Something is counted from 1.
        From what is all counted here?
    head * head_size -> (head + 1) * head_size || (head - 1) * head_size => The feature lies one head too far. Which
        number has the first head?
    """,
)
def origin(table, row, column, num_heads, head_size):
    """The rule of ``transpose_qkv``, read backwards: where a number of the folded tensor comes from.

    A place in (batch · num_heads, num_tokens, head_size) → (example, token, feature), a place in (batch, num_tokens,
    num_hiddens). All are counted from 0. Source: d2l 11.5.2.
    """
    example, head = table // num_heads, table % num_heads
    return example, row, head * head_size + column


@exercise(
    trials=lambda: [(TAGS, 2), (torch.randn(2, 4, 15), 3), (torch.randn(3, 5, 8), 4), (torch.randn(5, 2, 6), 2)],
    numbers_in_words=tags_in_words,
    praise="Every number is where it belongs: matrix e · num_heads + i belongs to head i of example e.",
    idea="First the features are cut, then the heads move in front of the tokens, then two axes become one.",
    begin="Begin with a reshape that touches nothing but the last axis.",
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
    """The split into heads, with the heads folded into the batch, in the order of examples first, then heads.

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
    praise="Every number is back at its token, head after head. A round trip alone would not have shown that.",
    idea="The moves of transpose_qkv, from the last to the first, each undone.",
    begin="Begin with a reshape that touches nothing but the first axis: which of its two parts changes faster?",
    mistakes="""
    .transpose(1, 2) -> _ => Rows of one head are next to each other. Exchange the axes of heads and tokens before
        you merge heads and features.
    tables // num_heads, num_heads, -> num_heads, tables // num_heads, ; .transpose(1, 2) -> .permute(1, 2, 0, 3) =>
        Heads of different examples stand side by side. Are tables that follow one another heads of one example?
    tables // num_heads, num_heads, -> num_heads, tables // num_heads, || tables // num_heads, num_heads, -> num_heads,
        tables // num_heads, ; .reshape(-1, n, num_heads * p) -> .flatten(2) => The first axis is cut into heads of
        examples, not examples of heads. Which changes faster?
    .transpose(1, 2) -> .permute(0, 2, 3, 1) => The heads' features alternate. Do all features of head 0 come first?
    .transpose(1, 2) -> .transpose(2, 3) => Rows are cut across tokens. Which two axes change places?
    .transpose(1, 2) -> .transpose(1, 3) || .transpose(1, 2) -> .transpose(1, 3) ; .reshape(-1, n, num_heads * p) ->
        .flatten(2) => Heads have changed places with features. Which two axes should?
    .transpose(1, 2) -> _ ; -1, n, num_heads * p -> -1, num_heads * n, p => The heads lie below one another, as further
        tokens. Where do they belong?
    .transpose(1, 2) -> _ ; .reshape(-1, n, num_heads * p) -> .flatten(2) => Each head is one long row of all its
        tokens. Which two axes should be joined?
    .reshape(-1, n, num_heads * p) -> .sum(dim=2) || .mean(dim=2) => The heads are added up or averaged. Where does each
        belong in the output?
    .transpose(1, 2) -> $.flip(2) => The heads stand side by side in reverse order.
    .reshape(-1, n, num_heads * p) -> [:, :, 0] => Only head 0 is left.
    .reshape(-1, n, num_heads * p) -> _ => Heads and features are two axes. Which axes become one in the end?
    """,
)
def transpose_output(X, num_heads):
    """The way back: the heads side by side again.

    X (batch · num_heads, num_tokens, head_size) → (batch, num_tokens, num_hiddens). Source: d2l 11.5.2.
    """
    tables, n, p = X.shape
    X = X.reshape(tables // num_heads, num_heads, n, p)  # (b · h, n, p) -> (b, h, n, p)
    X = X.transpose(1, 2)  # -> (b, n, h, p)
    return X.reshape(-1, n, num_heads * p)  # -> (b, n, h · p)


RIGHT = "valid_lens.repeat_interleave(num_heads, dim=0)"
FOR_QUERIES = f"{RIGHT} if valid_lens.dim() == 1 else"


@exercise(
    trials=lambda: {
        "where each example has one length": [
            (torch.tensor([3, 2]), 2),
            (torch.tensor([5, 1, 4]), 4),
            (torch.tensor([2, 6, 3, 1]), 3),
        ],
        "where each query has its own length": [
            (torch.tensor([[1, 2, 3], [6, 5, 4]]), 2),
            (torch.tensor([[2, 7], [3, 1], [6, 4]]), 5),
        ],
    },
    praise="Each example's lengths stand num_heads times, one after the other, in both forms.",
    idea="Tables that follow one another are heads of one example, and share its lengths.",
    begin="Begin with the order for two examples and two heads: which length does each of the four tables get?",
    mistakes=f"""
    {RIGHT} -> torch.cat([valid_lens] * num_heads) || {FOR_QUERIES} torch.cat([valid_lens] * num_heads) => The examples
        take turns. Of which example is the second table a head?
    {RIGHT} -> torch.stack([valid_lens] * num_heads) || torch.stack([valid_lens] * num_heads, dim=1) || {FOR_QUERIES}
        torch.stack([valid_lens] * num_heads, dim=1) => The repeats have an axis of their own. On how many axes do the
        tables stand?
    {RIGHT} -> valid_lens || {FOR_QUERIES} valid_lens => Nothing is repeated. How many tables need a length?
    {RIGHT} -> valid_lens * num_heads => The lengths are multiplied. Should they grow, or their number?
    dim=0) -> dim=0) // num_heads => The order is right, but the lengths are divided among the heads. Does a head see
        fewer tokens, or fewer features?
    {RIGHT} -> valid_lens[:1].repeat_interleave(len(valid_lens) * num_heads, dim=0) || $ .clamp(min=valid_lens.max()) =>
        All tables have one length. Which one should a table have?
    num_heads, dim=0) -> len(valid_lens), dim=0) => Each length is repeated once for every example. How many tables has
        an example?
    , dim=0 -> _ || , dim=-1 || , dim=0) -> ).reshape(-1, *valid_lens.shape[1:]) || {RIGHT} -> {FOR_QUERIES}
        valid_lens[:, 0].repeat_interleave(num_heads) || {FOR_QUERIES}
        valid_lens.amax(dim=1).repeat_interleave(num_heads) => Lengths for examples come out right, lengths for queries
        do not. Does each table get the whole row of its example?
    {RIGHT} -> valid_lens.repeat(1, num_heads) || {FOR_QUERIES} valid_lens.repeat(1, num_heads) => The lengths are
        repeated to the right, along the last axis. Which axis holds the tables?
    {RIGHT} -> valid_lens[:, None].expand(-1, num_heads).reshape(-1) || valid_lens[:, None].repeat(1,
        num_heads).flatten() || {FOR_QUERIES} valid_lens.repeat(num_heads) => Lengths for examples come out right, and
        those for queries raise an error: there is an axis more than the code counts on.
    """,
)
def lengths_for_heads(valid_lens, num_heads):
    """Lengths for tables in which every head of every example is a problem of its own.

    valid_lens (batch,) → (batch · num_heads,), or (batch, num_queries) → (batch · num_heads, num_queries), in the order
    of ``transpose_qkv``. Source: d2l 11.5.2.
    """
    return valid_lens.repeat_interleave(num_heads, dim=0)


@exercise(
    trials=lambda: [(torch.randn(3 * h * p, size), h) for h, p, size in ((2, 3, 6), (3, 2, 9), (4, 5, 3), (5, 3, 12))],
    praise="One transposition turns a stranger's weights into ours: heads and the three matrices change places.",
    idea="Give the heads, the three parts and the rows of a part an axis each; then it is a matter of two axes.",
    begin="Begin with a reshape of the first axis only, its parts named in the order in which they lie there.",
    mistakes="""
    parts.transpose(0, 1) -> W => The first third of the rows is given out as W_q. Does W_q stand in one piece?
    num_heads, 3, -1, size) -> -1, 3, size) => The rows are dealt out in turn. What follows a head's first query row?
    .transpose(0, 1) -> .permute(1, 2, 0, 3) => Each row is in its own matrix, but there the heads alternate. Do all
        rows of head 0 come first?
    return W_q, W_k, W_v -> return W_k, W_q, W_v || return W_q, W_v, W_k => Two of the three matrices are exchanged.
    num_heads, 3, -1, size) -> -1, 3, num_heads, size) => Blocks of num_heads rows are cut. How many rows has a head in
        each matrix?
    num_heads, 3, -1, size) -> 3, num_heads, -1, size) => The rows are read as three parts first, each in turn cut into
        heads. Which of the two comes first in W?
    parts.transpose -> parts.flip(0).transpose => The heads stand in reverse order in every matrix.
    parts.transpose(0, 1).reshape(3, -1, size) -> parts.transpose(0, 1) => The heads have an axis of their own in each
        matrix. How do its rows become one axis?
    W.reshape(num_heads, 3, -1, size) -> W.unfold(0, len(W) // num_heads, len(W) // num_heads //
        3)[:num_heads].mT.unflatten(1, (3, -1)) => One goes on by head_size rows from head to head. How many rows of W
        belong to a head?
    """,
)
def split_fused(W, num_heads):
    """The matrices of a fused projection in which each head's rows stand together.

    W (3 · num_hiddens, size), for each head in turn its rows of W_q, then of W_k, then of W_v → W_q, W_k, W_v, each
    (num_hiddens, size), one head after the other.
    Source: the layout of BLOOM in Hugging Face's transformers (``modeling_bloom.py``, ``query_key_value``).
    """
    size = W.shape[1]
    parts = W.reshape(num_heads, 3, -1, size)  # (h · 3 · p, s) -> (h, 3, p, s)
    W_q, W_k, W_v = parts.transpose(0, 1).reshape(3, -1, size)  # -> (3, h · p, s)
    return W_q, W_k, W_v
