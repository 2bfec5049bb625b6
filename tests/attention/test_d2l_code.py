"""Code written for the book's classes, in both its editions, runs on ours and gives the book's numbers."""

import pytest
import torch
from references import random_numbers

import mha_lib
from mha_lib.attention import other_libraries

pytest.importorskip("d2l")

BATCH_SIZE, NUM_QUERIES, NUM_KEYS, NUM_HIDDENS, NUM_HEADS = 2, 4, 6, 20, 5
QUERIES, KEYS = random_numbers(BATCH_SIZE, NUM_QUERIES, 12).float(), random_numbers(BATCH_SIZE, NUM_KEYS, 16).float()
LENGTHS = {
    "one an example": torch.tensor([3, 2]),
    "one a query": torch.tensor([[1, 6, 3, 4], [2, 2, 5, 1]]),
    "none": None,
}
every_length = pytest.mark.parametrize("valid_lens", LENGTHS.values(), ids=LENGTHS)


@pytest.fixture(scope="module")
def book():
    return other_libraries.load_d2l()


def second_edition(library, valid_lens, state=None):
    """A reader's code for the second edition: sizes come from the first call, weights from ``layer.attention``."""
    torch.manual_seed(0)
    layer = library.MultiHeadAttention(NUM_HIDDENS, NUM_HEADS, 0.5)
    layer(QUERIES, KEYS, KEYS, valid_lens)
    if state is not None:
        layer.load_state_dict(state)
    layer.eval()
    output = layer(QUERIES, KEYS, KEYS, valid_lens)
    weights = layer.attention.attention_weights.reshape((BATCH_SIZE, NUM_HEADS, NUM_QUERIES, NUM_KEYS))
    return output, weights, layer.state_dict()


def first_edition(library, valid_lens, state):
    """A reader's code for the first edition: explicit sizes, heads folded into the batch by hand."""
    layer = library.MultiHeadAttention(
        key_size=16, query_size=12, value_size=16, num_hiddens=NUM_HIDDENS, num_heads=NUM_HEADS, dropout=0.5
    )
    layer.load_state_dict(state)
    layer.eval()
    whole = layer(QUERIES, KEYS, KEYS, valid_lens)

    Q = library.transpose_qkv(layer.W_q(QUERIES), NUM_HEADS)
    K = library.transpose_qkv(layer.W_k(KEYS), NUM_HEADS)
    V = library.transpose_qkv(layer.W_v(KEYS), NUM_HEADS)
    if valid_lens is not None:
        valid_lens = torch.repeat_interleave(valid_lens, repeats=NUM_HEADS, dim=0)
    attention = library.DotProductAttention(dropout=0.5)
    attention.eval()
    by_hand = layer.W_o(library.transpose_output(attention(Q, K, V, valid_lens), NUM_HEADS))
    weights = attention.attention_weights.reshape((BATCH_SIZE, NUM_HEADS, NUM_QUERIES, NUM_KEYS))
    return whole, by_hand, weights


@every_length
def test_second_edition(book, valid_lens):
    output, weights, state = second_edition(book, valid_lens)
    our_output, our_weights, our_state = second_edition(mha_lib, valid_lens, state)
    torch.testing.assert_close(our_output, output)
    torch.testing.assert_close(our_weights, weights)
    assert our_state.keys() == state.keys()


@every_length
def test_second_edition_reads_our_state(book, valid_lens):
    output, weights, state = second_edition(mha_lib, valid_lens)
    torch.testing.assert_close(second_edition(book, valid_lens, state)[:2], (output, weights))


@every_length
def test_first_edition(book, valid_lens):
    output, weights, state = second_edition(book, valid_lens)
    whole, by_hand, our_weights = first_edition(mha_lib, valid_lens, state)
    torch.testing.assert_close(whole, output)
    torch.testing.assert_close(by_hand, output)
    torch.testing.assert_close(our_weights, weights)


@every_length
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(dict(key_size=16, query_size=12, num_hiddens=8, dropout=0.1), id="first edition"),
        pytest.param(dict(num_hiddens=8, dropout=0.1), id="second edition"),
    ],
)
def test_additive_attention(book, valid_lens, arguments):
    theirs, ours = book.AdditiveAttention(num_hiddens=8, dropout=0.1), mha_lib.AdditiveAttention(**arguments)
    theirs.eval()
    ours.eval()
    output = theirs(QUERIES, KEYS, KEYS, valid_lens)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(QUERIES, KEYS, KEYS, valid_lens), output)
    torch.testing.assert_close(ours.attention_weights, theirs.attention_weights)


@every_length
def test_dot_product_attention_and_masked_softmax(book, valid_lens):
    X = KEYS[..., :12]
    theirs, ours = book.DotProductAttention(dropout=0.5).eval(), mha_lib.DotProductAttention(dropout=0.5).eval()
    torch.testing.assert_close(ours(QUERIES, X, KEYS, valid_lens), theirs(QUERIES, X, KEYS, valid_lens))
    torch.testing.assert_close(ours.attention_weights, theirs.attention_weights)
    scores = QUERIES @ X.mT
    expected = book.masked_softmax(scores.clone(), valid_lens)  # a copy, for it writes into its argument
    torch.testing.assert_close(mha_lib.masked_softmax(scores, valid_lens), expected)


def test_the_transpositions_are_those_of_the_book(book):
    layer, X = book.MultiHeadAttention(NUM_HIDDENS, NUM_HEADS, 0.0), random_numbers(BATCH_SIZE, NUM_KEYS, NUM_HIDDENS)
    folded = layer.transpose_qkv(X)
    assert torch.equal(mha_lib.transpose_qkv(X, NUM_HEADS), folded)
    assert torch.equal(mha_lib.transpose_output(folded, NUM_HEADS), layer.transpose_output(folded))
