"""The shape trace tells what happened, and every tagged number is where its address says."""

import itertools

import pytest
import torch

from mha_course.models import shape_trace
from mha_lib import split_heads, transpose_qkv


def test_the_book_trace_has_the_book_shapes_and_names_every_axis():
    trace = shape_trace.trace_heads(torch.randn(2, 4, 100), num_heads=5)
    assert [(step.operation, tuple(step.tensor.shape), ", ".join(step.axes)) for step in trace[:4]] == [
        ("start", (2, 4, 100), "batch, tokens, num_hiddens"),
        ("reshape", (2, 4, 5, 20), "batch, tokens, heads, features"),
        ("permute", (2, 5, 4, 20), "batch, heads, tokens, features"),
        ("reshape", (10, 4, 20), "batch * heads, tokens, features"),
    ]


def test_every_step_puts_every_number_where_its_axes_say():
    tags = shape_trace.tagged_tokens(batch_size=2, num_tokens=3, num_heads=4, head_size=5)
    assert tags.shape == (2, 3, 20)
    steps = [step.tensor for step in shape_trace.trace_heads(tags, 4)]
    there, back = steps[:4], steps[3:]
    assert torch.equal(there[-1], transpose_qkv(tags, 4)) and torch.equal(back[-1], tags)
    for tag in tags.flatten().tolist():
        i, t, h, f = shape_trace.read_tag(tag)
        assert tag == 1000 * i + 100 * t + 10 * h + f
        for start, split, by_head, folded in (there, reversed(back)):
            assert tag == start[i, t, h * 5 + f] == split[i, t, h, f] == by_head[i, h, t, f] == folded[i * 4 + h, t, f]


@pytest.mark.parametrize("axes", list(itertools.permutations(range(4))))
def test_all_axes_are_taken_and_all_come_back(axes):
    X = torch.randn(2, 3, 20)
    *_, turned, folded, unfolded, back, end = shape_trace.trace_heads(X, 4, axes)
    right = X.view(2, 3, 4, 5).permute(axes)
    assert torch.equal(turned.tensor, right) and torch.equal(folded.tensor, right.reshape(8, 3, 5))
    assert turned.axes == tuple(("batch", "tokens", "heads", "features")[axis] for axis in axes)
    assert torch.equal(unfolded.tensor, right) and torch.equal(back.tensor, X.view(2, 3, 4, 5))
    assert torch.equal(end.tensor, X)


@pytest.mark.parametrize("name", ["batch_size", "num_tokens", "num_heads", "head_size"])
@pytest.mark.parametrize("size", [0, 11])
def test_a_size_that_one_digit_cannot_tell_is_refused(name, size):
    sizes = {"batch_size": 2, "num_tokens": 3, "num_heads": 2, "head_size": 2, name: size}
    with pytest.raises(ValueError, match=f"{name} must be at (least 1|most 10).*got {size}"):
        shape_trace.tagged_tokens(**sizes)


def test_heads_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="num_hiddens=100, num_heads=7"):
        shape_trace.trace_heads(torch.randn(2, 4, 100), 7)


@pytest.mark.real_device
@pytest.mark.parametrize(
    ("function", "copies"),
    [
        (lambda X: X.view(3, 8).T, 0),
        (lambda X: X.permute(2, 0, 1).flatten(), 1),
        (lambda X: X.permute(2, 0, 1).contiguous().clone(), 2),
        (lambda X: torch.empty_like(X).copy_(X), 1),
        (lambda X: split_heads(X, 2), 0),
        (lambda X: transpose_qkv(X, 2), 1),
        (lambda X: split_heads(X, 2) @ split_heads(X, 2).transpose(2, 3), 2),
        pytest.param(
            lambda X: torch.nn.functional.scaled_dot_product_attention(*[split_heads(X, 2)] * 3),
            0,
            marks=pytest.mark.cpu,  # kernels of a GPU do copy: how often depends on the sizes
        ),
    ],
)
def test_copies_are_counted(function, copies):
    assert shape_trace.count_copies(function, torch.randn(2, 3, 4)) == copies
