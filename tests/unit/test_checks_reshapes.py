"""The checks of notebook 04: typical mistakes get their own message, right answers pass, other mistakes no name."""

import importlib.util

import pytest
import torch
from judged import Answers

from mha_lib import checks
from mha_lib.attention import shape_trace
from mha_lib.checks import reshapes


def with_einops(pattern, otherwise, axis="h"):
    """einops' own way, where it is installed."""
    if importlib.util.find_spec("einops") is None:
        return otherwise
    import einops

    return lambda X, num_heads: einops.rearrange(X, pattern, **{axis: num_heads})


# ---------------------------------------------------------------------------------------------------------------------
# The rule, read backwards


def origin_by_search(table, row, column, num_heads, head_size):
    X = torch.arange((table + 1) * (row + 1) * num_heads * head_size).reshape(table + 1, row + 1, num_heads * head_size)
    number = (shape_trace.split_heads(X, num_heads).flatten(0, 1))[table, row, column]
    return tuple((X == number).nonzero()[0].tolist())


def origin_by_counting(table, row, column, num_heads, head_size):
    example = 0
    while table >= num_heads:
        table, example = table - num_heads, example + 1
    return [example, row, table * head_size + column]


def origin_by_divmod(table, row, column, num_heads, head_size):
    example, head = divmod(table, num_heads)
    return torch.tensor([example, row, head * head_size + column])


RULES = Answers(
    checks.origin,
    right=[
        origin_by_search,
        origin_by_counting,
        origin_by_divmod,
        lambda table, row, column, h, p: (int(table / h), row, (table - table // h * h) * p + column),
    ],
    wrong={
        "division and remainder": lambda table, row, column, h, p: (table % h, row, (table // h) * p + column),
        "table 1 need not be example 1": lambda table, row, column, h, p: (table, row, (table % h) * p + column),
        "not num_heads": lambda table, row, column, h, p: (table // h, row, (table % h) * h + column),
        "counts within the head": lambda table, row, column, h, p: (table // h, row, column),
        "do not alternate": lambda table, row, column, h, p: (table // h, row, column * h + table % h),
        "the row is the token": lambda table, row, column, h, p: (table // h, column, (table % h) * p + row),
        "num_heads tables, not head_size": lambda table, row, column, h, p: (
            table // p,
            row,
            (table % p) * p + column,
        ),
        "for the example you divide by head_size": lambda table, row, column, h, p: (
            table // p,
            row,
            (table % h) * p + column,
        ),
        "this is the head": lambda table, row, column, h, p: (table // h, row, table % h),
        "the table's number for the head's": lambda table, row, column, h, p: (table // h, row, table * p + column),
        "the example's number for": lambda table, row, column, h, p: (table // h, row, (table // h) * p + column),
        "number is whole": lambda table, row, column, h, p: (table / h, row, (table % h) * p + column),
    },
    unlisted=[
        lambda table, row, column, h, p: (table // h + 1, row + 1, (table % h) * p + column + 1),
        lambda table, row, column, h, p: (table // h, row, (table % h) * p),
        lambda table, row, column, h, p: (table // h, row, (table % p) * p + column),
        lambda table, row, column, h, p: (table // h, row, table % h if table < 9 else table % h + 1),
        lambda table, row, column, h, p: (table // h, row, (table % h) * p + column if p < 4 else column),
        lambda table, row, column, h, p: (table % h, column, (table // h) * p + row),
        lambda table, row, column, h, p: (table // h, row, table % h, column),
        lambda table, row, column, h, p: table // h,
    ],
)

# ---------------------------------------------------------------------------------------------------------------------
# transpose_qkv


def split_by_loops(X, num_heads):
    p = X.shape[2] // num_heads
    return torch.stack([example[:, i * p : (i + 1) * p] for example in X for i in range(num_heads)])


def split_by_chunks(X, num_heads):
    return torch.stack(X.chunk(num_heads, dim=-1), dim=1).flatten(0, 1)


def split_as_the_book_does(X, num_heads):
    X = X.reshape(X.shape[0], X.shape[1], num_heads, -1)
    X = X.permute(0, 2, 1, 3)
    return X.reshape(-1, X.shape[2], X.shape[3])


def then_like_the_book(*axes):
    """The book's function, with other axes in the permute."""

    def split(X, num_heads):
        X = X.reshape(X.shape[0], X.shape[1], num_heads, -1).permute(*axes)
        return X.reshape(-1, X.shape[2], X.shape[3])

    return split


def split_by_view(X, num_heads):
    b, n, d = X.shape
    return X.view(b, n, num_heads, d // num_heads).transpose(1, 2).view(b * num_heads, n, d // num_heads)


def four_axes(X, num_heads):
    return X.reshape(X.shape[0], X.shape[1], num_heads, -1)


SPLITS = Answers(
    checks.transpose_qkv,
    right=[
        split_by_loops,
        split_by_chunks,
        split_as_the_book_does,
        with_einops("b n (h p) -> (b h) n p", split_by_loops),
        lambda X, h: torch.einsum("bnhp->bhnp", four_axes(X, h)).flatten(0, 1),
        lambda X, h: (
            split_by_view(X, h)
            if h == 1
            else four_axes(X, h).transpose(1, 2).contiguous().view(len(X) * h, X.shape[1], -1)
        ),
    ],
    wrong={
        "before moving the head axis": lambda X, h: X.reshape(X.shape[0], h, X.shape[1], -1).flatten(0, 1),
        "folded in the wrong order": lambda X, h: torch.cat(X.chunk(h, dim=2), dim=0),
        "deal the features out": lambda X, h: torch.stack([X[..., i::h] for i in range(h)], dim=1).flatten(0, 1),
        "before the last reshape": lambda X, h: (
            four_axes(X, h).transpose(1, 2).transpose(2, 3).reshape(len(X) * h, X.shape[1], -1)
        ),
        "examples and heads have changed places": lambda X, h: (
            four_axes(X, h).transpose(0, 2).reshape(len(X) * h, X.shape[1], -1)
        ),
        "one step is missing": lambda X, h: four_axes(X, h).permute(0, 2, 1, 3),
        "nothing has moved": four_axes,
        "num_heads and the size of a head": lambda X, h: (
            X.reshape(*X.shape[:2], -1, h).permute(0, 2, 1, 3).reshape(-1, X.shape[1], h)
        ),
        "folded the tokens": then_like_the_book(0, 1, 2, 3),
        "rows and columns of every table": then_like_the_book(0, 2, 3, 1),
        "copied into it": split_by_view,
    },
    unlisted=[
        lambda X, h: X.reshape(len(X), h, X.shape[1], -1).permute(0, 2, 1, 3).reshape(len(X) * h, X.shape[1], -1),
        lambda X, h: X.reshape(len(X), h, X.shape[1], -1),
        lambda X, h: torch.cat(X.chunk(h, dim=2), dim=0).flip(0),
        lambda X, h: split_by_loops(X, h) if len(X) == 2 else split_by_loops(X.roll(1, 0), h),
        lambda X, h: split_by_loops(X, 2),
        then_like_the_book(2, 1, 0, 3),
    ],
)

# ---------------------------------------------------------------------------------------------------------------------
# transpose_output


def merge_by_loops(X, num_heads):
    return torch.stack([torch.cat([*X[i : i + num_heads]], dim=1) for i in range(0, len(X), num_heads)])


def merge_by_writing(X, num_heads):
    output = torch.empty(len(X) // num_heads, X.shape[1], num_heads * X.shape[2], dtype=X.dtype)
    for table, content in enumerate(X):
        i, head = divmod(table, num_heads)
        output[i, :, head * X.shape[2] : (head + 1) * X.shape[2]] = content
    return output


def merge_as_the_book_does(X, num_heads):
    X = X.reshape(-1, num_heads, X.shape[1], X.shape[2])
    X = X.permute(0, 2, 1, 3)
    return X.reshape(X.shape[0], X.shape[1], -1)


def by_example(X, num_heads):
    return X.reshape(-1, num_heads, *X.shape[1:])


def merge_by_view(X, num_heads):
    X = X.view(-1, num_heads, X.shape[1], X.shape[2]).permute(0, 2, 1, 3)
    return X.view(X.shape[0], X.shape[1], -1)


MERGES = Answers(
    checks.transpose_output,
    right=[
        merge_by_loops,
        merge_by_writing,
        merge_as_the_book_does,
        with_einops("(b h) n p -> b n (h p)", merge_by_loops),
        lambda X, h: torch.cat(by_example(X, h).unbind(1), dim=-1),
    ],
    wrong={
        "joined the axes before": lambda X, h: by_example(X, h).reshape(len(X) // h, X.shape[1], -1),
        "read in the wrong order": lambda X, h: torch.cat(X.chunk(h, dim=0), dim=-1),
        "features alternate": lambda X, h: torch.stack([*by_example(X, h).unbind(1)], dim=-1).flatten(2),
        "before the last reshape": lambda X, h: by_example(X, h).mT.reshape(len(X) // h, X.shape[1], -1),
        "an axis again": by_example,
        "the last step is missing": lambda X, h: by_example(X, h).permute(0, 2, 1, 3),
        "below one another": lambda X, h: torch.cat(by_example(X, h).unbind(1), dim=1),
        "added the heads up": lambda X, h: sum(by_example(X, h).unbind(1)),
        "averaged the heads": lambda X, h: X.unflatten(0, (-1, h)).mean(1),
        "lies on its side": lambda X, h: merge_by_loops(X, h).mT,
        "copied into it": merge_by_view,
    },
    unlisted=[
        lambda X, h: merge_by_loops(X, h).flip(2),
        lambda X, h: torch.cat(X.chunk(h, dim=0), dim=-1).flip(0),
        lambda X, h: by_example(X, h).double().mean(1),
        lambda X, h: merge_by_loops(X, h) if h < 4 else merge_by_loops(X, h) + 1,
        lambda X, h: X,
    ],
)

# ---------------------------------------------------------------------------------------------------------------------
# Lengths


def lengths_by_loops(valid_lens, num_heads):
    return torch.stack([length for length in valid_lens for _ in range(num_heads)])


def lengths_by_broadcasting(valid_lens, num_heads):
    return valid_lens[:, None].expand(-1, num_heads, *valid_lens.shape[1:]).flatten(0, 1)


LENGTHS = Answers(
    checks.lengths_for_heads,
    right=[
        lengths_by_loops,
        lengths_by_broadcasting,
        lambda lens, h: lens.repeat_interleave(h, dim=0),
        lambda lens, h: lens[torch.arange(len(lens) * h) // h],
        lambda lens, h: torch.stack([lens] * h, dim=1).reshape(len(lens) * h, *lens.shape[1:]).float(),
    ],
    wrong={
        "repeat the whole batch": lambda lens, h: lens.repeat(h),
        "Each repeat is a row": lambda lens, h: lens.repeat(h, 1),
        "example's lengths are a row": lambda lens, h: lens.unsqueeze(1).expand(-1, h, *lens.shape[1:]),
        "every head of every example needs": lambda lens, h: lens,
        "multiply the lengths": lambda lens, h: h * lens,
        "all with the length of example 0": lambda lens, h: lens[0].repeat(len(lens) * h),
        "take turns": lambda lens, h: lengths_by_loops(lens, h) if lens.dim() == 1 else lens.repeat(h, 1),
        "flattened into one row": lambda lens, h: lens.repeat_interleave(h),
        "beside itself": lambda lens, h: lens.repeat_interleave(h, dim=-1),
        "single lengths are repeated": lambda lens, h: (
            lengths_by_loops(lens, h)
            if lens.dim() == 1
            else lens.repeat_interleave(h, dim=1).reshape(-1, lens.shape[1])
        ),
        "repeated to the right": lambda lens, h: lengths_by_loops(lens, h) if lens.dim() == 1 else lens.repeat(1, h),
        ": nothing is repeated": lambda lens, h: lengths_by_loops(lens, h) if lens.dim() == 1 else lens,
        "still have an axis": lambda lens, h: (
            lengths_by_loops(lens, h) if lens.dim() == 1 else lengths_by_loops(lens, h).reshape(len(lens), h, -1)
        ),
    },
    unlisted=[
        lambda lens, h: lens.repeat(1, h),
        lambda lens, h: lengths_by_loops(lens, h).sort(0).values,
        lambda lens, h: lengths_by_loops(lens, h) + 1,
        lambda lens, h: lengths_by_loops(lens, h) if lens.dim() == 1 else lengths_by_loops(lens, h).flip(1),
        lambda lens, h: lengths_by_loops(lens, 2),
        lambda lens, h: lens.repeat(h) if h < 4 else lens.repeat(h).flip(0),
    ],
)

# ---------------------------------------------------------------------------------------------------------------------
# A fused projection


def unfused_by_slices(W, num_heads):
    p = len(W) // num_heads // 3
    parts = [[W[(3 * i + j) * p : (3 * i + j + 1) * p] for i in range(num_heads)] for j in range(3)]
    return tuple(torch.cat(rows) for rows in parts)


def unfused_by_chunks(W, num_heads):
    heads = [head.chunk(3) for head in W.chunk(num_heads)]
    return [torch.cat(parts) for parts in zip(*heads, strict=True)]


def reordered(*order):
    return lambda W, h: tuple(unfused_by_slices(W, h)[part] for part in order)


def parts_of(W, num_heads):
    return W.reshape(num_heads, 3, len(W) // num_heads // 3, -1)


FUSED = Answers(
    checks.split_fused,
    right=[
        unfused_by_slices,
        unfused_by_chunks,
        lambda W, h: torch.stack([*unfused_by_slices(W, h)]),
        lambda W, h: tuple(parts_of(W, h)[:, part].flatten(0, 1) for part in range(3)),
        with_einops("(h three p) size -> three (h p) size", unfused_by_slices)
        if importlib.util.find_spec("einops") is None
        else lambda W, h: __import__("einops").rearrange(W, "(h three p) size -> three (h p) size", h=h, three=3),
    ],
    wrong={
        "the first third": lambda W, h: W.chunk(3),
        "deal the rows out": lambda W, h: (W[0::3], W[1::3], W[2::3]),
        "but the heads alternate": lambda W, h: [
            torch.stack([*parts_of(W, h)[:, j]], dim=1).flatten(0, 1) for j in range(3)
        ],
        "W_q and W_k are exchanged": reordered(1, 0, 2),
        "W_k and W_v are exchanged": reordered(0, 2, 1),
        "reverse order": reordered(2, 1, 0),
        "blocks of num_heads rows": lambda W, h: unfused_by_slices(W, len(W) // h // 3),
        "head 0 only": lambda W, h: W[: len(W) // h].chunk(3),
        "an axis of their own": lambda W, h: tuple(parts_of(W, h)[:, part] for part in range(3)),
        "parts by head": parts_of,
    },
    unlisted=[
        reordered(1, 2, 0),
        reordered(0, 0, 2),
        lambda W, h: [X.flip(0) for X in unfused_by_slices(W, h)],
        lambda W, h: W,
        lambda W, h: W.chunk(3) if h < 4 else W[::3],
        lambda W, h: unfused_by_slices(W, h)[:2],
    ],
)

EXERCISES = [RULES, SPLITS, MERGES, LENGTHS, FUSED]
SLIPS = {
    checks.origin: reshapes.ORIGIN_SLIPS,
    checks.transpose_qkv: reshapes.SPLIT_SLIPS,
    checks.transpose_output: reshapes.MERGE_SLIPS,
    checks.lengths_for_heads: reshapes.LENGTH_SLIPS + reshapes.QUERY_LENGTH_SLIPS,
    checks.split_fused: reshapes.FUSED_SLIPS,
}


@pytest.mark.parametrize("answers", EXERCISES, ids=lambda answers: answers.check.__name__)
def test_every_mistake_that_has_a_name_is_tried(answers):
    texts = {answers.check(answer).text for words, answer in answers.wrong.items() if words != "copied into it"}
    assert len(texts) == len(SLIPS[answers.check])


def test_the_example_is_the_first_tagged_number_out_of_place():
    text = checks.transpose_qkv(lambda X, h: X.reshape(len(X) * h, X.shape[1], -1)).text
    assert "place [0, 1, 0] holds 10 (token 0, head 1) instead of 100 (token 1, head 0)" in text
    tags = shape_trace.tagged_tokens(2, 4, 2, 3)
    assert tags.reshape(4, 4, 3)[0, 1, 0] == 10 and split_by_loops(tags, 2)[0, 1, 0] == 100


@pytest.mark.parametrize(
    ("check", "answer", "words"),
    [
        (
            checks.transpose_qkv,
            lambda X, num_heads: split_by_loops(X, num_heads).flip(2),
            "X of shape (2, 4, 6) and num_heads = 2, place [0, 0, 0] holds 2 (feature 2) instead of 0 (feature 0).",
        ),
        (
            checks.transpose_output,
            lambda X, num_heads: merge_by_loops(X, num_heads).roll(1, 0),
            "place [0, 0, 0] holds 1000 (example 1) instead of 0 (example 0).",
        ),
        (
            checks.transpose_qkv,
            lambda X, num_heads: split_by_loops(X, num_heads) + 5000,
            "place [0, 0, 0] holds 5000 instead of 0.",
        ),
    ],
)
def test_tags_are_read_where_a_mistake_has_no_name(check, answer, words):
    assert check(answer).text.endswith(words), check(answer)


def test_lengths_are_shown():
    text = checks.lengths_for_heads(lambda valid_lens, num_heads: valid_lens.repeat(num_heads)).text
    assert text.startswith("with valid_lens [3, 2] and num_heads = 2: place [1] is 2 instead of 3.")


def test_what_view_refuses_is_shown_with_the_line():
    text = checks.transpose_output(merge_by_view).text
    assert text.startswith("your code raises RuntimeError: view size is not compatible") and "return X.view(" in text
