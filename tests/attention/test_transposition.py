"""transpose_qkv and split_heads, entry by entry: that a round trip comes back proves nothing about the way."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from references import random_numbers

from mha_lib import merge_heads, split_heads, transpose_output, transpose_qkv

few = settings(derandomize=True, max_examples=40)


@few
@given(b=st.integers(0, 3), n=st.integers(0, 4), heads=st.integers(1, 4), head_size=st.integers(1, 3))
def test_every_entry_lands_where_the_index_formula_says(b, n, heads, head_size):
    X = torch.arange(b * n * heads * head_size).reshape(b, n, heads * head_size)
    split, folded = split_heads(X, heads), transpose_qkv(X, heads)
    assert split.shape == (b, heads, n, head_size)
    assert folded.shape == (b * heads, n, head_size)
    for i in range(b):
        for h in range(heads):
            for t in range(n):
                for f in range(head_size):
                    assert split[i, h, t, f] == folded[i * heads + h, t, f] == X[i, t, h * head_size + f]
    assert torch.equal(merge_heads(split), X)
    assert torch.equal(transpose_output(folded, heads), X)


def test_the_shapes_of_the_book():
    X = random_numbers(2, 4, 100)
    assert split_heads(X, 5).shape == (2, 5, 4, 20)
    assert transpose_qkv(X, 5).shape == (10, 4, 20)
    assert transpose_output(transpose_qkv(X, 5), 5).shape == (2, 4, 100)


def test_two_tokens_two_heads():
    X = torch.arange(8).reshape(1, 2, 4)
    assert transpose_qkv(X, 2).tolist() == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


def test_split_heads_is_a_view():
    X = random_numbers(2, 4, 6)
    assert split_heads(X, 3).data_ptr() == X.data_ptr()


@pytest.mark.parametrize(
    "undone", [lambda X: merge_heads(split_heads(X, 3)), lambda X: transpose_output(transpose_qkv(X, 3), 3)]
)
def test_round_trip_of_a_strided_tensor(undone):
    X = random_numbers(4, 6, 2).permute(2, 0, 1)
    assert torch.equal(undone(X), X)
