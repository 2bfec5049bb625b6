"""What a user of torch or Hugging Face hands over: warned of or refused, and what a right user hands over is not."""

import inspect
import math
import warnings

import numpy as np
import pytest
import torch
from references import close, random_numbers
from torch import nn

import mha_lib
from mha_lib import AdditiveAttention, DotProductAttention, KernelPooling, MultiHeadAttention
from mha_lib.attention import FusedAttention, converters, merge_heads, split_heads, transpose_output, valid_keys

pytestmark = pytest.mark.cpu  # numbers of masks and lengths are read there alone

B, N = 3, 5
X = random_numbers(B, N, 8)
KEYS = random_numbers(B, N + 1, 8)
LAYER = MultiHeadAttention(8, 2, query_size=8, key_size=8, value_size=8).double().eval()
FUTURE = torch.ones(N, N, dtype=torch.bool).triu(1)
PADDING = torch.arange(N) >= torch.tensor([[5], [2], [4]])  # True at padding: torch.nn's key_padding_mask


WARNED = {
    "torch's causal mask": (dict(attn_mask=FUTURE), r"True exactly above the diagonal.*pass ~mask.*causal=True"),
    "of two tokens": (dict(attn_mask=FUTURE[:2, :2]), "True exactly above the diagonal"),
    "with axes for batch and heads": (dict(attn_mask=FUTURE.expand(B, 1, N, N)), "True exactly above the diagonal"),
    "a mask of floats": (dict(attn_mask=(~FUTURE).double()), r"floats, 0 and 1.*mask\.bool\(\)"),
    "Hugging Face's, spread": (dict(attn_mask=(~PADDING)[:, None, None].double()), "floats, 0 and 1"),
    "integers as lengths": (dict(valid_lens=(~PADDING).long()), r"each query, 0 or 1.*attn_mask=mask\.bool\(\)"),
    "a mask without padding": (dict(valid_lens=torch.ones(B, N).int()), "each query, 0 or 1"),
    "torch's padding mask": (dict(attn_mask=PADDING[:, None, None]), r"True at the last keys of some.*pass ~mask"),
    "the same, for every query": (dict(attn_mask=PADDING[:, None, None].expand(B, 1, 1, N)), "key_padding_mask"),
    "gates as lengths": (dict(valid_lens=torch.ones(B)), "lengths of 1.0.*head_mask="),
}


@pytest.mark.parametrize("masks, told", WARNED.values(), ids=WARNED)
def test_what_would_compute_something_else_is_warned_of_where_it_was_written(masks, told):
    n = masks["attn_mask"].shape[-1] if "attn_mask" in masks else N
    Y = X[:, :n]
    for call in (LAYER, lambda *given, **masks: LAYER(*given, need_weights=True, **masks)):
        with pytest.warns(UserWarning, match=told) as caught:
            call(Y, Y, Y, **masks)
        assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("mask", [~PADDING, PADDING], ids=["ours", "torch's"])
def test_a_mask_of_keys_that_passes_for_one_of_queries_is_warned_of(mask):
    Y = X[:, :B]  # as many queries as examples
    with pytest.warns(UserWarning, match=r"read as \(num_queries, num_keys\).*is mask\[:, None, None\]"):
        LAYER(Y, X, X, attn_mask=mask)
    with pytest.warns(UserWarning, match=r"is mask\[:, None\]"):
        FusedAttention()(Y, X, X, attn_mask=mask)


REFUSED = {
    "key mask, other sizes": (
        dict(attn_mask=~PADDING[:, :4]),
        ValueError,
        r"axes are \(num_queries, num_keys\) or \(batch, num_h",
    ),
    "key mask": (dict(attn_mask=torch.ones(B, N + 1) == 1), ValueError, r"mask of keys.*mask\[:, None, None\]"),
    "per example": (dict(attn_mask=torch.ones(B, N, N + 1) == 1), ValueError, r"mask\[:, None\]"),
    "torch's, per head": (
        dict(attn_mask=torch.ones(2 * B, N, N + 1) == 1),
        ValueError,
        r"mask\.unflatten\(0, \(3, 2\)\)",
    ),
    "integers": (dict(attn_mask=torch.ones(B, N + 1).long()), TypeError, r"a mask of 0 and 1 is mask\.bool\(\)"),
    "padding as lengths": (dict(valid_lens=PADDING), TypeError, r"as in torch\.nn, \(~mask\)\.sum\(-1\)"),
    "0 and 1 as lengths": (
        dict(valid_lens=torch.ones(B, N + 1).long()),
        ValueError,
        r"got \(3, 6\); .*mask\.bool\(\)\[:, None, None\]",
    ),
    "key_padding_mask": (
        dict(key_padding_mask=PADDING),
        TypeError,
        r"takes no argument key_padding_mask; write attn_mask=~key_padding_mask\[:, None, None\] or.*valid_lens=",
    ),
    "attention_mask": (dict(attention_mask=~PADDING), TypeError, r"write attn_mask=attention_mask\.bool\(\)\[:, None"),
    "is_causal": (dict(is_causal=True), TypeError, "takes no argument is_causal; write causal="),
    "average": (dict(average_attn_weights=False), TypeError, "need_weights=True"),
    "a slip": (dict(valid_len=None), TypeError, "takes no argument valid_len$"),
}


@pytest.mark.parametrize("masks, error, told", REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_with_what_to_write(masks, error, told):
    with pytest.raises(error, match=told):
        LAYER(X, KEYS, KEYS, **masks)


def test_the_axes_are_named_and_one_of_one_is_one():
    with pytest.raises(ValueError, match=r"\(5, 5\) or \(1, 2 or 1, 5 or 1, 5\), got \(4, 5, 5\); the axes are"):
        LAYER(X[:1], X[:1], X[:1], attn_mask=torch.ones(4, N, N) == 1)
    with pytest.raises(ValueError, match=r"a mask of keys, \(batch, num_keys\), is mask\[:, None\]"):
        FusedAttention()(X, KEYS, KEYS, attn_mask=torch.ones(B, N + 1) == 1)


def test_as_many_queries_as_examples_and_right_masks_are_not_warned_of():
    queries, padded = X[:, :B], torch.tensor([False, True, True])
    window, keys = torch.ones(B, N) == 1, torch.arange(N) > 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mask in (window.tril(2), window.triu(1), window, padded[:, None] & keys, padded.flip(0)[:, None] & keys):
            LAYER(queries, X, X, attn_mask=mask)


NAMES_OF_TORCH = {
    "embed_dim": (dict(embed_dim=8, num_heads=2), "num_hiddens="),
    "batch_first": (
        dict(num_hiddens=8, num_heads=2, batch_first=True),
        r"nothing: sequences are \(batch, ",
    ),
    "kdim": (dict(num_hiddens=8, num_heads=2, kdim=5), "key_size="),
    "vdim": (dict(num_hiddens=8, num_heads=2, vdim=5), "value_size="),
    "add_zero_attn": (dict(num_hiddens=8, num_heads=2, add_zero_attn=True), "nothing: the layer adds no keys"),
}


@pytest.mark.parametrize("name", NAMES_OF_TORCH)
def test_torchs_names_of_what_a_layer_is_made_from(name):
    given, told = NAMES_OF_TORCH[name]
    with pytest.raises(TypeError, match=f"MultiHeadAttention takes no argument {name}; write {told}"):
        MultiHeadAttention(**given)


def test_other_slips_in_making_a_layer_are_pythons_errors_and_its_signature_is_its_own():
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_head'"):
        MultiHeadAttention(8, num_head=2)
    assert list(inspect.signature(MultiHeadAttention).parameters)[:3] == ["num_hiddens", "num_heads", "dropout"]


MASK = torch.arange(N) < torch.tensor([[5], [2], [4]])
HELPERS = {
    "a mask as lengths, of torch": (lambda: converters.torch_masks(MASK, N, 2), TypeError, "got a bool mask"),
    "a mask as lengths": (lambda: valid_keys(MASK, N), TypeError, "got a bool mask"),
    "too many keys, of torch": (
        lambda: converters.torch_masks(torch.tensor([9]), 3, 2), ValueError, "valid_lens must lie between",
    ),
    "too many keys": (lambda: valid_keys(torch.tensor([[1, 9]]), 3), ValueError, "valid_lens must lie between 0 and"),
    "a list": (lambda: valid_keys([1, 2], 3), TypeError, "valid_lens must be a tensor of shape .*got list"),
    "one number": (lambda: valid_keys(torch.tensor(1), 3), ValueError, r"num_queries\), got \(\)"),
    "no heads": (lambda: converters.torch_masks(torch.tensor([[1]]), 3, 0), ValueError, "num_heads must be at"),
    "the loop": (
        lambda: converters.loop_over_heads(LAYER, X, X, X, torch.tensor([6, 1, 1])), ValueError, "valid_lens must lie",
    ),
    "sequences first": (
        lambda: converters.call_torch(nn.MultiheadAttention(8, 2).double(), X, X, X), ValueError, "batch_first=True",
    ),
    "an array": (lambda: split_heads(X.cpu().numpy(), 2), TypeError, "X must be a tensor of shape .*got ndarray"),
    "an array of heads": (lambda: merge_heads(X.cpu().numpy()), TypeError, "X must be a tensor of shape .*got ndarray"),
    "folded": (lambda: transpose_output(X.cpu().numpy(), 1), TypeError, "X must be a tensor of shape .*got ndarray"),
    "a rule of two": (
        lambda: LAYER(X, X, X, attn_mask=lambda i, j: j <= i), TypeError, "rule must take four tensors, the indices of",
    ),
    "a rule in NumPy": (
        lambda: LAYER(X, X, X, attn_mask=lambda b, h, i, j: np.arange(N) <= i), TypeError, "rule must ",
    ),
    "a script": (lambda: torch.jit.script(LAYER), RuntimeError, "trace and script.*use torch.export"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is:DeprecationWarning")
@pytest.mark.parametrize("helper, error, told", HELPERS.values(), ids=HELPERS)
def test_helpers_refuse_what_the_layer_refuses(helper, error, told):
    with pytest.raises(error, match=told):
        helper()


def test_torchs_names_of_the_inputs():
    with pytest.raises(TypeError, match="'queries', 'keys', and 'values'"):
        LAYER(query=X, key=X, value=X)


def test_what_is_told_is_right():
    """Written as the messages say, the call gives what torch's own layer gives."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, 2, bias=False, batch_first=True).double().eval()
    ours = converters.from_torch(theirs)
    per_head = torch.rand(2 * B, N, N) > 0.7
    per_head[..., 0] = False
    pairs = [
        (dict(attn_mask=FUTURE), dict(attn_mask=~FUTURE)),
        (dict(attn_mask=FUTURE), dict(causal=True)),
        (dict(key_padding_mask=PADDING), dict(attn_mask=~PADDING[:, None, None])),
        (dict(key_padding_mask=PADDING), dict(valid_lens=(~PADDING).sum(-1))),
        (dict(attn_mask=per_head), dict(attn_mask=~per_head.unflatten(0, (B, 2)))),
    ]
    for of_torch, of_ours in pairs:
        close(ours(X, X, X, **of_ours), theirs(X, X, X, need_weights=False, **of_torch)[0])


def right_calls():
    """What notebooks, tests and correct users write."""
    lengths = torch.tensor([5, 0, 2])
    causal, window = ~FUTURE, (~FUTURE).triu(-1)
    masks = {
        "nothing": {}, "causal": dict(causal=True), "a causal mask": dict(attn_mask=causal),
        "for each example": dict(attn_mask=causal.expand(B, 1, N, N)), "and head": dict(attn_mask=causal[None, None]),
        "window": dict(attn_mask=window), "diagonal": dict(attn_mask=torch.eye(N) == 1),
        "all": dict(attn_mask=torch.ones(N, N) == 1), "none": dict(attn_mask=torch.zeros(N, N) == 1),
        "later or same": dict(attn_mask=torch.ones(N, N).triu() == 1), "others": dict(attn_mask=torch.eye(N) == 0),
        "keys": dict(attn_mask=~PADDING[:, None, None]),
        "padding first": dict(attn_mask=~PADDING.flip(1)[:, None, None]), "in each": dict(
            attn_mask=(torch.arange(N) >= torch.tensor([[1], [4], [2]]))[:, None, None]
        ), "no keys for one": dict(attn_mask=~PADDING[:, None, None] & (torch.arange(B) > 0)[:, None, None, None]),
        "one row": dict(attn_mask=~PADDING[:1]),
        "bias": dict(attn_mask=random_numbers(N, N)), "no bias": dict(attn_mask=torch.zeros(N, N)),
        "constant": dict(attn_mask=torch.ones(N, N)), "distance": dict(attn_mask=-torch.arange(5.0).expand(N, N)),
        "added": dict(attn_mask=torch.zeros(N, N).masked_fill(FUTURE, -math.inf)),
        "added, finite": dict(attn_mask=torch.zeros(N, N).masked_fill(FUTURE, -1e9)),
        "torch's added": dict(attn_mask=nn.Transformer.generate_square_subsequent_mask(N)),
        "learned": dict(attn_mask=torch.eye(N).requires_grad_()),
        "lengths": dict(valid_lens=lengths), "of floats": dict(valid_lens=lengths.double()),
        "int32": dict(valid_lens=lengths.int()), "of one": dict(valid_lens=torch.ones(B).long()),
        "of none": dict(valid_lens=torch.zeros(B)), "for each query": dict(valid_lens=lengths[:, None].expand(B, N)),
        "so far": dict(valid_lens=torch.arange(1, N + 1).expand(B, N)),
        "before": dict(valid_lens=torch.arange(N).expand(B, N)), "no key": dict(valid_lens=torch.zeros(B, N).long()),
        "both": dict(valid_lens=lengths, causal=True), "all three": dict(
            valid_lens=lengths, attn_mask=random_numbers(1, 2, N, N), causal=True
        ),
        "gates": dict(head_mask=torch.ones(2)), "gates for each": dict(head_mask=torch.eye(3, 2)),
        "weights": dict(need_weights=True, valid_lens=lengths),
    }  # fmt: skip
    return masks


@pytest.mark.parametrize("masks", right_calls().values(), ids=right_calls())
def test_no_warning_for_what_is_right(masks):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LAYER(X, X, X, **{name: X.double() if torch.is_tensor(X) and X.is_floating_point() and name != "valid_lens"
                          else X for name, X in masks.items()})  # fmt: skip


def test_no_warning_for_one_key_or_for_other_attentions_with_right_masks():
    one = X[:, :1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LAYER(one, one, one, torch.ones(B))
        LAYER(one, one, one, torch.ones(B, 1))
        LAYER(one, one, one, causal=True)
        for attention in (
            DotProductAttention(),
            FusedAttention(),
            KernelPooling().double(),
            AdditiveAttention(4).double(),
        ):
            attention(X, X, X, attn_mask=~FUTURE)
        mha_lib.masked_softmax(random_numbers(B, N, N), attn_mask=~FUTURE)
