"""Code written for the book's classes, in both its editions, runs on ours and gives the book's numbers."""

import pytest
import torch
from references import random_numbers

import mha_lib
from mha_lib.attention import converters

pytestmark = pytest.mark.real_device  # the book leaves sizes open

pytest.importorskip("d2l")
close = torch.testing.assert_close  # as close as single precision is

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
    return converters.load_d2l()


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
def test_both_editions(book, valid_lens):
    """Whose layer was made first does not matter: the one reads the other's state."""
    *expected, state = second_edition(book, valid_lens)
    *actual, our_state = second_edition(mha_lib, valid_lens, state)
    close(actual, expected)
    assert our_state.keys() == state.keys()
    whole, by_hand, weights = first_edition(mha_lib, valid_lens, state)
    close([whole, by_hand, weights], [expected[0], *expected])
    *expected, state = second_edition(mha_lib, valid_lens)
    close(second_edition(book, valid_lens, state)[:2], tuple(expected))


@every_length
@pytest.mark.parametrize("sizes", [dict(key_size=16, query_size=12), {}], ids=["first edition", "second edition"])
def test_attention_alone(book, valid_lens, sizes):
    X = KEYS[..., :12]
    additive = book.AdditiveAttention(num_hiddens=8, dropout=0.1)
    for theirs, ours, keys in (
        (additive, mha_lib.AdditiveAttention(**sizes, num_hiddens=8, dropout=0.1), KEYS),
        (book.DotProductAttention(dropout=0.5), mha_lib.DotProductAttention(dropout=0.5), X),
    ):
        output = theirs.eval()(QUERIES, keys, KEYS, valid_lens)
        ours.eval().load_state_dict(theirs.state_dict())
        close(ours(QUERIES, keys, KEYS, valid_lens), output)
        close(ours.attention_weights, theirs.attention_weights)
    scores = QUERIES @ X.mT
    expected = book.masked_softmax(scores.clone(), valid_lens)  # a copy, for it writes into its argument
    close(mha_lib.masked_softmax(scores, valid_lens), expected)


# The chapter on the Transformer: its encoder, from the book's package, on whosever attention.

IDS, SOURCE_LENGTHS, NUM_BLOCKS = torch.tensor([[3, 1, 4, 1, 5, 2]]), torch.tensor([4]), 2


def encoded(book, make_attention, monkeypatch):
    """The output, the weights as the chapter arranges them, and the gradients of all parameters."""
    torch.manual_seed(0)
    monkeypatch.setattr(book, "MultiHeadAttention", lambda *sizes: make_attention())
    encoder = book.TransformerEncoder(10, NUM_HIDDENS, 24, NUM_HEADS, NUM_BLOCKS, 0.1)
    encoder(IDS, SOURCE_LENGTHS)  # open sizes are taken from here
    torch.manual_seed(1)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    loss = encoder(IDS, SOURCE_LENGTHS).square().sum()
    gradients = torch.autograd.grad(loss, list(encoder.parameters()))
    output = encoder.eval()(IDS, SOURCE_LENGTHS)
    return output, torch.cat(encoder.attention_weights, 0).reshape((NUM_BLOCKS, NUM_HEADS, -1, IDS.shape[1])), gradients


@pytest.mark.parametrize("edition", ["first", "second"])
def test_the_encoder_of_the_chapter_on_the_transformer(book, edition, monkeypatch):
    """The first edition gives all sizes, in an order that is refused by position, by keyword."""
    theirs = book.MultiHeadAttention
    sizes = dict.fromkeys(("key_size", "query_size", "value_size"), NUM_HIDDENS) if edition == "first" else {}

    def ours():
        return mha_lib.MultiHeadAttention(**sizes, num_hiddens=NUM_HIDDENS, num_heads=NUM_HEADS, dropout=0.0)

    expected = encoded(book, lambda: theirs(NUM_HIDDENS, NUM_HEADS, 0.0), monkeypatch)
    torch.testing.assert_close(encoded(book, ours, monkeypatch), expected, rtol=1e-4, atol=1e-5)
