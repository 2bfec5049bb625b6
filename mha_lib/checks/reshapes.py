"""Checks of notebook 04: heads folded into the batch and back, lengths for every head, weights in another order."""

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mha_lib import attention
from mha_lib.attention.shape_trace import read_tag, tagged_tokens
from mha_lib.checks.answers import in_tensors
from mha_lib.checks.compare import Slip, compare, first_difference
from mha_lib.checks.verdict import MistakeError, check

TAGGED_HEADS = 2
TAGS = tagged_tokens(batch_size=2, num_tokens=4, num_heads=TAGGED_HEADS, head_size=3).float()
DIGITS = ("example", "token", "head", "feature")
VIEW_REFUSED = "view size is not compatible"


@check
def origin(function: Callable[..., tuple[int, int, int]]) -> str:
    """Check the rule of ``transpose_qkv``, read backwards.

    Args:
        function: (table, row, column, num_heads, head_size), a place in the folded tensor (batch · num_heads,
            num_tokens, head_size) → (example, token, feature), the place in (batch, num_tokens, num_hiddens) that
            its number comes from. All are counted from 0.

    Source: d2l 11.5.2.
    """
    trials = [(3, 1, 0, 2, 3), (4, 2, 1, 3, 2), (7, 0, 3, 3, 5), (9, 5, 2, 4, 3), (2, 3, 1, 6, 2)]
    compare(in_tensors(function), in_tensors(true_origin), trials, ORIGIN_SLIPS)
    return "a whole division finds the example, its remainder the head, and the head owns head_size columns."


def true_origin(table: int, row: int, column: int, h: int, p: int) -> tuple[int, int, int]:
    """Table i · h + head holds features head · p to head · p + p − 1 of example i."""
    return table // h, row, table % h * p + column


def wrong_rule(text: str, rule: Callable[..., tuple]) -> Slip:
    """A mistake in the rule."""
    return Slip("{example}, number {place} of your answer is {got} instead of {right}: " + text, in_tensors(rule))


ORIGIN_SLIPS = [
    wrong_rule(
        "division and remainder have changed places. The heads of one example are tables that follow one another.",
        lambda table, row, column, h, p: (table % h, row, table // h * p + column),
    ),
    wrong_rule(
        "a table is one head of one example, so table 1 need not be example 1.",
        lambda table, row, column, h, p: (table, row, table % h * p + column),
    ),
    wrong_rule(
        "a head starts after the columns of the heads before it, which own head_size columns each, not num_heads.",
        lambda table, row, column, h, p: (table // h, row, table % h * h + column),
    ),
    wrong_rule(
        "the column counts within the head; in the input, the columns of the heads before it come first.",
        lambda table, row, column, h, p: (table // h, row, column),
    ),
    wrong_rule(
        "heads do not alternate; all columns of head 0 come first, then those of head 1.",
        lambda table, row, column, h, p: (table // h, row, column * h + table % h),
    ),
    wrong_rule(
        "row and column have changed places: the row is the token.",
        lambda table, row, column, h, p: (table // h, column, table % h * p + row),
    ),
    wrong_rule(
        "an example has num_heads tables, not head_size.",
        lambda table, row, column, h, p: (table // p, row, table % p * p + column),
    ),
    wrong_rule(
        "for the example you divide by head_size; the tables of one example are num_heads.",
        lambda table, row, column, h, p: (table // p, row, table % h * p + column),
    ),
    wrong_rule(
        "this is the head; the feature is asked for, a column among all num_hiddens.",
        lambda table, row, column, h, p: (table // h, row, table % h),
    ),
    wrong_rule(
        "this takes the table's number for the head's.",
        lambda table, row, column, h, p: (table // h, row, table * p + column),
    ),
    wrong_rule(
        "this takes the example's number for the head's.",
        lambda table, row, column, h, p: (table // h, row, table // h * p + column),
    ),
    wrong_rule(
        "an example's number is whole; what division leaves over is the head.",
        lambda table, row, column, h, p: (table / h, row, table % h * p + column),
    ),
]


@check
def transpose_qkv(function: Callable[[Tensor, int], Tensor]) -> str:
    """Check the split into heads, with the heads folded into the batch.

    Args:
        function: (X, num_heads), X (batch, num_tokens, num_hiddens) → (batch · num_heads, num_tokens, head_size).

    Source: d2l 11.5.2.
    """
    trials = [(TAGS, TAGGED_HEADS), (torch.randn(2, 4, 15), 3), (torch.randn(3, 5, 8), 4), (torch.randn(5, 2, 6), 2)]
    compare_reshapes(function, attention.transpose_qkv, trials, SPLIT_SLIPS)
    return "every number is where it belongs: table i · num_heads + head holds that head's share of example i."


@check
def transpose_output(function: Callable[[Tensor, int], Tensor]) -> str:
    """Check the way back: the heads side by side again.

    Args:
        function: (X, num_heads), X (batch · num_heads, num_tokens, head_size) → (batch, num_tokens, num_hiddens).

    Source: d2l 11.5.2.
    """
    tables = attention.transpose_qkv(TAGS, TAGGED_HEADS)
    trials = [(tables, TAGGED_HEADS), (torch.randn(6, 4, 5), 3), (torch.randn(12, 5, 2), 4), (torch.randn(10, 2, 3), 2)]
    compare_reshapes(function, attention.transpose_output, trials, MERGE_SLIPS)
    return "every number is back at its token, head after head. A round trip alone would not have shown that."


def compare_reshapes(
    function: Callable[..., Tensor], reference: Callable[..., Tensor], trials: Sequence[tuple], slips: Sequence[Slip]
) -> None:
    """``compare``, with a word on what ``view`` cannot do and on what tags say."""
    try:
        compare(function, reference, trials, slips)
    except MistakeError as mistake:
        if (stray := re.search(r"holds (\d+) instead of (\d+)\.$", str(mistake))) and is_tag(wrong := int(stray[1])):
            belongs = int(stray[2])
            raise MistakeError(f"{str(mistake)[: stray.start()]}holds {in_tags(wrong, belongs)}.") from None
        if VIEW_REFUSED in str(mistake):
            raise MistakeError(
                f"{mistake} A view reads the numbers in the order in which they lie in memory. Once axes have changed "
                "places another order is wanted, and the numbers must be copied into it."
            ) from None
        raise


def moved(text: str, imitation: Callable[[Tensor, int], Tensor], reference: Callable[..., Tensor], X: Tensor) -> Slip:
    """A mistake that gives the right shape; its text shows the first number of the tagged ``X`` that is misplaced."""
    got, right = imitation(X, TAGGED_HEADS), reference(X, TAGGED_HEADS)
    place = first_difference(got, right)
    wrong, belongs = int(got[tuple(place)]), int(right[tuple(place)])
    return Slip(f"with tagged numbers, place {place} holds {in_tags(wrong, belongs)}: {text}", imitation)


def is_tag(number: int) -> bool:
    """Whether a number is one of the tags."""
    return bool((TAGS == number).any())


def in_tags(wrong: int, belongs: int) -> str:
    """Two tags: "10 (token 0, head 1) instead of 100 (token 1, head 0)"."""
    return f"{describe_tag(wrong, belongs)} instead of {describe_tag(belongs, wrong)}"


def describe_tag(tag: int, other: int) -> str:
    """A tag, and in words the digits in which it differs from another: "10 (token 0, head 1)"."""
    pairs = zip(DIGITS, read_tag(tag), read_tag(other), strict=True)
    return f"{tag} ({', '.join(f'{name} {digit}' for name, digit, different in pairs if digit != different)})"


def reshaped(text: str, imitation: Callable[..., Tensor]) -> Slip:
    """A mistake that shows in the shape."""
    return Slip("the shape is {got} instead of {right}: " + text, imitation)


def cut(X: Tensor, num_heads: int) -> Tensor:
    """(batch, tokens, heads, features)."""
    return X.unflatten(-1, (num_heads, -1))


def misplaced_split(text: str, imitation: Callable[[Tensor, int], Tensor]) -> Slip:
    """A mistake in ``transpose_qkv`` that gives the right shape."""
    return moved(text, imitation, attention.transpose_qkv, TAGS)


SPLIT_SLIPS = [
    misplaced_split(
        "you split the heads before moving the head axis. A reshape alone keeps the order of the numbers, so a head "
        "gets pieces of one token for rows.",
        lambda X, h: X.reshape(len(X) * h, X.shape[1], -1),
    ),
    misplaced_split(
        "the heads are folded in the wrong order. All heads of example 0 come first, then those of example 1.",
        lambda X, h: cut(X, h).permute(2, 0, 1, 3).flatten(end_dim=1),
    ),
    misplaced_split(
        "you deal the features out in turn. Head 0 gets the first head_size features of a token.",
        lambda X, h: X.unflatten(-1, (-1, h)).permute(0, 3, 1, 2).flatten(end_dim=1),
    ),
    misplaced_split(
        "tokens and features have changed places before the last reshape, which then cuts rows across tokens.",
        lambda X, h: cut(X, h).permute(0, 2, 3, 1).reshape(len(X) * h, X.shape[1], -1),
    ),
    misplaced_split(
        "examples and heads have changed places; it is tokens and heads that must.",
        lambda X, h: cut(X, h).permute(2, 1, 0, 3).reshape(len(X) * h, X.shape[1], -1),
    ),
    reshaped(
        "one step is missing, the one that makes every head of every example a problem of its own.",
        lambda X, h: cut(X, h).transpose(1, 2),
    ),
    reshaped("so far the features are cut, and nothing has moved.", cut),
    reshaped(
        "num_heads and the size of a head have changed places where the features are cut.",
        lambda X, h: X.unflatten(-1, (-1, h)).transpose(1, 2).flatten(end_dim=1),
    ),
    reshaped(
        "you folded the tokens into the batch; it is the heads that belong there.",
        lambda X, h: cut(X, h).flatten(end_dim=1),
    ),
    reshaped(
        "rows and columns of every table have changed places.",
        lambda X, h: cut(X, h).permute(0, 2, 3, 1).flatten(end_dim=1),
    ),
]


def tables_of(X: Tensor, num_heads: int) -> Tensor:
    """(batch, heads, tokens, features)."""
    return X.unflatten(0, (-1, num_heads))


def misplaced_merge(text: str, imitation: Callable[[Tensor, int], Tensor]) -> Slip:
    """A mistake in ``transpose_output`` that gives the right shape."""
    return moved(text, imitation, attention.transpose_output, attention.transpose_qkv(TAGS, TAGGED_HEADS))


MERGE_SLIPS = [
    misplaced_merge(
        "you joined the axes before moving the heads back beside their features. A reshape alone puts rows of one head "
        "side by side.",
        lambda X, h: X.reshape(len(X) // h, X.shape[1], -1),
    ),
    misplaced_merge(
        "the first axis is read in the wrong order. Tables that follow one another are heads of one example.",
        lambda X, h: X.unflatten(0, (h, -1)).permute(1, 2, 0, 3).flatten(start_dim=2),
    ),
    misplaced_merge(
        "the heads' features alternate. All features of head 0 come first, then those of head 1.",
        lambda X, h: tables_of(X, h).permute(0, 2, 3, 1).flatten(start_dim=2),
    ),
    misplaced_merge(
        "tokens and features have changed places before the last reshape, which then cuts rows across tokens.",
        lambda X, h: tables_of(X, h).permute(0, 1, 3, 2).reshape(len(X) // h, X.shape[1], -1),
    ),
    reshaped("the heads have an axis again, but it is not back beside the features.", tables_of),
    reshaped(
        "the last step is missing: the heads lie beside their features, but still on an axis of their own.",
        lambda X, h: tables_of(X, h).transpose(1, 2),
    ),
    reshaped(
        "you laid the heads below one another, as further tokens; they belong side by side.",
        lambda X, h: tables_of(X, h).flatten(1, 2),
    ),
    reshaped("you added the heads up; they belong side by side.", lambda X, h: tables_of(X, h).sum(1)),
    reshaped("you averaged the heads; they belong side by side.", lambda X, h: tables_of(X, h).mean(1)),
    reshaped(
        "the result lies on its side: tokens and features have changed places.",
        lambda X, h: tables_of(X, h).transpose(2, 3).flatten(1, 2),
    ),
]


@check
def lengths_for_heads(function: Callable[[Tensor, int], Tensor]) -> str:
    """Check the lengths for tables in which every head of every example is a problem of its own.

    Args:
        function: (valid_lens, num_heads), valid_lens (batch,) → (batch · num_heads,), or (batch, num_queries) →
            (batch · num_heads, num_queries), in the order of ``transpose_qkv``.

    Source: d2l 11.5.2.
    """
    one_each = [(torch.tensor([3, 2]), 2), (torch.tensor([5, 1, 4]), 4), (torch.tensor([2, 6, 3, 1]), 3)]
    compare(function, repeat_lengths, one_each, LENGTH_SLIPS)
    one_a_query = [(torch.tensor([[1, 2, 3], [6, 5, 4]]), 2), (torch.tensor([[2, 7], [3, 1], [6, 4]]), 5)]
    compare(function, repeat_lengths, one_a_query, QUERY_LENGTH_SLIPS)
    return "each example's lengths stand num_heads times, one after the other, in both forms."


def repeat_lengths(valid_lens: Tensor, num_heads: int) -> Tensor:
    """Every example's lengths, num_heads times in a row."""
    return valid_lens.repeat_interleave(num_heads, dim=0)


def wrong_lengths(text: str, imitation: Callable[[Tensor, int], Tensor]) -> Slip:
    """A mistake in the lengths."""
    return Slip("{example}: " + text, imitation)


LENGTH_SLIPS = [
    wrong_lengths(
        "place {place} is {got} instead of {right}. You repeat the whole batch, so the second head of example 0 gets "
        "the length of example 1.",
        lambda lens, h: torch.cat([lens] * h),
    ),
    wrong_lengths(
        "the shape is {got} instead of {right}. Each repeat is a row of its own; the tables stand on one axis.",
        lambda lens, h: torch.stack([lens] * h),
    ),
    wrong_lengths(
        "the shape is {got} instead of {right}. Each example's lengths are a row of their own; the tables stand on one "
        "axis.",
        lambda lens, h: torch.stack([lens] * h, dim=1),
    ),
    wrong_lengths(
        "the shape is {got} instead of {right}. Nothing is repeated, but every head of every example needs a length.",
        lambda lens, h: lens,
    ),
    wrong_lengths(
        "the shape is {got} instead of {right}. You multiply the lengths; it is their number that grows.",
        lambda lens, h: lens * h,
    ),
    wrong_lengths(
        "place {place} is {got} instead of {right}. Every example is repeated, but all with the length of example 0.",
        lambda lens, h: lens[:1].expand(len(lens) * h),
    ),
]
QUERY_LENGTH_SLIPS = [
    wrong_lengths(
        "one length an example is right. With one a query, place {place} is {got} instead of {right}: the examples "
        "take turns, but the heads of one example follow one another.",
        lambda lens, h: torch.cat([lens] * h),
    ),
    wrong_lengths(
        "one length an example is right. With one a query, the shape is {got} instead of {right}: everything is "
        "flattened into one row.",
        lambda lens, h: lens.repeat_interleave(h),
    ),
    wrong_lengths(
        "one length an example is right. With one a query, the shape is {got} instead of {right}: each length is "
        "repeated beside itself, but the tables stand on the first axis.",
        lambda lens, h: lens.repeat_interleave(h, dim=-1),
    ),
    wrong_lengths(
        "one length an example is right. With one a query, place {place} is {got} instead of {right}: single lengths "
        "are repeated; it is whole rows that must be.",
        lambda lens, h: lens.repeat_interleave(h).reshape(-1, lens.shape[1]),
    ),
    wrong_lengths(
        "one length an example is right. With one a query, the shape is {got} instead of {right}: the rows are "
        "repeated to the right, but the tables stand on the first axis.",
        lambda lens, h: lens.repeat(1, h),
    ),
    wrong_lengths(
        "one length an example is right. With one a query, the shape is {got} instead of {right}: nothing is repeated.",
        lambda lens, h: lens,
    ),
    wrong_lengths(
        "one length an example is right. With one a query, the shape is {got} instead of {right}: the heads still "
        "have an axis of their own.",
        lambda lens, h: torch.stack([lens] * h, dim=1),
    ),
]


@check
def split_fused(function: Callable[[Tensor, int], tuple[Tensor, Tensor, Tensor]]) -> str:
    """Check that the matrices of a fused projection come apart, where each head's rows stand together.

    Args:
        function: (W, num_heads), W (3 · num_hiddens, size) holds for each head in turn its rows of W_q, then those of
            W_k, then those of W_v → W_q, W_k, W_v, each (num_hiddens, size), one head after the other.

    Source: the layout of BLOOM in Hugging Face's transformers (``modeling_bloom.py``, ``query_key_value``).
    """
    trials = [(torch.randn(3 * h * p, size), h) for h, p, size in ((2, 3, 4), (3, 2, 5), (4, 5, 2), (5, 3, 7))]
    compare(in_tensors(function), unfuse, trials, FUSED_SLIPS)
    return "one transposition turns a stranger's weights into ours: heads and the three matrices change places."


def unfuse(W: Tensor, num_heads: int) -> Tensor:
    """W_q, W_k, W_v on the first axis."""
    return by_head(W, num_heads).transpose(0, 1).flatten(1, 2)


def by_head(W: Tensor, num_heads: int) -> Tensor:
    """(heads, 3, rows of one head, size)."""
    return W.unflatten(0, (num_heads, 3, -1))


def wrong_part(text: str, imitation: Callable[[Tensor, int], Tensor]) -> Slip:
    """A mistake that gives matrices of the right shape."""
    return Slip("{example}, place {place} (matrix, row, column) is wrong: " + text, imitation)


FUSED_SLIPS = [
    wrong_part(
        "you took the first third for W_q. Here every head has its own three parts.",
        lambda W, h: W.unflatten(0, (3, -1)),
    ),
    wrong_part(
        "you deal the rows out in turn; a head has all its query rows first, then its key rows.",
        lambda W, h: torch.stack([W[part::3] for part in range(3)]),
    ),
    wrong_part(
        "each row is in its own matrix, but the heads alternate. All rows of head 0 come first.",
        lambda W, h: by_head(W, h).permute(1, 2, 0, 3).flatten(1, 2),
    ),
    wrong_part("W_q and W_k are exchanged.", lambda W, h: unfuse(W, h)[[1, 0, 2]]),
    wrong_part("W_k and W_v are exchanged.", lambda W, h: unfuse(W, h)[[0, 2, 1]]),
    wrong_part("the three matrices are in reverse order.", lambda W, h: unfuse(W, h).flip(0)),
    wrong_part(
        "you cut blocks of num_heads rows; a head has num_hiddens / num_heads rows in each matrix.",
        lambda W, h: W.unflatten(0, (-1, 3, h)).transpose(0, 1).flatten(1, 2),
    ),
    reshaped("these are the three parts of head 0 only.", lambda W, h: by_head(W, h)[0]),
    reshaped(
        "the heads still have an axis of their own; lay them below one another.",
        lambda W, h: by_head(W, h).transpose(0, 1),
    ),
    reshaped("these are the parts by head; W_q, W_k and W_v are asked for.", by_head),
]
