"""Ten tests of a layer that reads a text piece by piece: the panel for the museum's rooms with a cache.

A test takes an implementation, ``DecodingLayer`` or a class with the same parts. It returns None if it sees nothing
wrong, or one line that says what it sees. ``layer_tests.run``, ``verdict`` and ``matrix`` take them as ``tests``.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mha_course.checking.comparing import first_difference
from mha_course.models.induction import ROTATION_BASE
from mha_course.museum.decoding_layer import DecodingLayer
from mha_course.museum.layer_reference import Implementation, check_shape, with_random_parameters
from mha_course.museum.layer_tests import Test, isolated

__all__ = [
    "behind_padding", "bfloat16", "in_pieces", "later_tokens", "reference", "rejected_guesses", "second_text", "shape",
    "some_texts_end",
]  # fmt: skip

BATCH_SIZE, NUM_TOKENS, NUM_HIDDENS, NUM_HEADS, NUM_SHARED = 2, 9, 16, 4, 2
LONG = 600  # tokens; bfloat16 counts every whole number up to 256


def layer_and_text(
    implementation: Implementation, batch_size: int = BATCH_SIZE, num_tokens: int = NUM_TOKENS
) -> tuple[DecodingLayer, Tensor]:
    """Return a layer made by ``implementation`` with random parameters, and random input vectors for it."""
    layer = with_random_parameters(implementation(NUM_HIDDENS, NUM_HEADS, NUM_SHARED), std=0.4)
    return layer, torch.randn(batch_size, num_tokens, NUM_HIDDENS)


def read(layer: DecodingLayer, X: Tensor, cuts: Sequence[int], padding: Tensor | int = 0) -> Tensor:
    """Return a layer's output for ``X`` given in pieces of the sizes ``cuts``, after left padding."""
    layer.start(padding)
    with torch.no_grad():
        return torch.cat([layer(piece) for piece in X.split(list(cuts), dim=1)], dim=1)


def differs(got: Tensor, right: Tensor, what: str) -> str | None:
    check_shape("the output", got, tuple(right.shape))
    place = first_difference(got, right, equal_nan=False)
    return None if place is None else f"{what}, first at token {place[1]} of example {place[0]}"


@isolated
def shape(implementation: Implementation) -> str | None:
    """Test that the layer's output has the shape of its input; return the fault found, or None."""
    layer, X = layer_and_text(implementation)
    check_shape("the output", read(layer, X, [4, 3, 2]), tuple(X.shape))
    return None


@isolated
def later_tokens(implementation: Implementation) -> str | None:
    """Test that changing later tokens leaves earlier outputs as they are; return the fault found, or None."""
    layer, X = layer_and_text(implementation)
    changed = torch.cat([X[:, :5], torch.randn(BATCH_SIZE, NUM_TOKENS - 5, NUM_HIDDENS)], dim=1)
    before, after = (read(layer, text, [NUM_TOKENS])[:, :5] for text in (X, changed))
    return differs(after, before, "an output changes after a change of a later token")


def in_pieces(cuts: Sequence[int]) -> Test:
    """Return a test that a text given in pieces of the sizes ``cuts`` has the same outputs as when given at once."""

    @isolated
    def look(implementation: Implementation) -> str | None:
        layer, X = layer_and_text(implementation)
        return differs(read(layer, X, cuts), read(layer, X, [NUM_TOKENS]), "the outputs differ from those of one pass")

    return look


@isolated
def second_text(implementation: Implementation) -> str | None:
    """Test that a text has the same outputs after another text as in a new layer; return the fault found, or None."""
    layer, X = layer_and_text(implementation)
    alone = read(layer, X, [5, 4])
    read(layer, torch.randn(BATCH_SIZE, 3, NUM_HIDDENS), [3])
    return differs(read(layer, X, [5, 4]), alone, "after another text, the outputs differ")


@isolated
def reference(implementation: Implementation) -> str | None:
    """Test the output of a text given at once against a loop over tokens and heads; return the fault found, or None."""
    layer, X = layer_and_text(implementation)
    return differs(read(layer, X, [NUM_TOKENS]), by_formula(layer, X), "the output differs from the formula's")


@isolated
def behind_padding(implementation: Implementation) -> str | None:
    """Test that a layer with a cache is right on a left-padded text that comes in pieces; return a fault or None."""
    layer, X = layer_and_text(implementation)
    padding = torch.tensor([0, 3])
    got = read(layer, X, [4, 3, 2], padding)
    return differs(got, each_alone(layer, X, padding, got), "with padding on the left, the outputs differ")


@isolated
def some_texts_end(implementation: Implementation) -> str | None:
    """Test that a layer with a cache stays right when some texts of a batch end; return a fault or None."""
    layer, X = layer_and_text(implementation, batch_size=4)
    padding, rows = torch.tensor([1, 2, 3, 0]), [1, 3]
    got = read(layer, X[:, :5], [5], padding)
    layer.keep(rows)
    with torch.no_grad():
        after = layer(X[rows, 5:])
    right = each_alone(layer, X, padding, torch.cat([got, X[:, 5:]], dim=1))[rows, 5:]
    return differs(after, right, "after some texts have ended, the outputs of the others differ")


@isolated
def rejected_guesses(implementation: Implementation) -> str | None:
    """Test that a layer goes on rightly after rejected guesses, and after none was; return a fault or None."""
    layer, X = layer_and_text(implementation)
    guesses = torch.randn(BATCH_SIZE, 3, NUM_HIDDENS)
    whole = read(layer, X, [NUM_TOKENS])
    outputs = [read(layer, X[:, :4], [4])]
    with torch.no_grad():
        for piece, rejected in ((torch.cat([X[:, 4:5], guesses], dim=1), 3), (X[:, 5:7], 0), (X[:, 7:], 0)):
            outputs.append(layer(piece)[:, : piece.shape[1] - rejected])
            layer.forget(rejected)
    return differs(
        torch.cat(outputs, dim=1), whole, "after rejected guesses, the outputs differ from those of one pass"
    )


@isolated
def bfloat16(implementation: Implementation) -> str | None:
    """Test that 600 tokens have nearly the same outputs in bfloat16 as in float32; return the fault found, or None."""
    layer, X = layer_and_text(implementation, num_tokens=LONG)
    low = read(layer.bfloat16(), X.bfloat16(), [LONG]).float()
    high = read(layer.float(), X.bfloat16().float(), [LONG])
    check_shape("the output", low, tuple(high.shape))
    off = ((low - high).abs().mean() / high.abs().mean()).item()
    return None if off < 0.1 else f"the outputs for {LONG} tokens are {off:.0%} off"


TESTS: dict[str, Test] = {
    "shape": shape,
    "later tokens": later_tokens,
    "one by one": in_pieces([1] * NUM_TOKENS),
    "pieces of 4, 3, 2": in_pieces([4, 3, 2]),
    "a second text": second_text,
    "reference": reference,
    "behind padding": behind_padding,
    "some texts end": some_texts_end,
    "rejected guesses": rejected_guesses,
    "bfloat16": bfloat16,
}


def each_alone(layer: DecodingLayer, X: Tensor, padding: Tensor, behind: Tensor) -> Tensor:
    """Run a layer on each text of a padded batch alone, without its padding; return the outputs, padding filled in."""
    right = behind.clone()
    for b, columns in enumerate(padding.tolist()):
        right[b, columns:] = read(layer, X[b : b + 1, columns:], [X.shape[1] - columns])[0]
    return right


@torch.no_grad()
def by_formula(layer: DecodingLayer, X: Tensor) -> Tensor:
    """Compute the right output of a layer from its parameters, by a loop over tokens and heads.

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023; Su et al. 2021, section 3.2.
    """
    output, size = torch.empty_like(X), NUM_HIDDENS // NUM_HEADS
    speeds = ROTATION_BASE ** (-torch.arange(size // 2) * 2 / size)
    for b in range(len(X)):
        for t in range(X.shape[1]):
            heads = []
            for head in range(NUM_HEADS):
                shared = head * NUM_SHARED // NUM_HEADS
                W_q = layer.W_q.weight[head * size : (head + 1) * size]
                W_k, W_v = (W.weight[shared * size : (shared + 1) * size] for W in (layer.W_k, layer.W_v))
                q = turned(W_q @ X[b, t], t * speeds)
                keys = [turned(W_k @ X[b, j], j * speeds) for j in range(t + 1)]
                scores = torch.stack([q @ k for k in keys]) / math.sqrt(size)
                heads.append(torch.softmax(scores, dim=0) @ torch.stack([W_v @ X[b, j] for j in range(t + 1)]))
            output[b, t] = layer.W_o.weight @ torch.cat(heads)
    return output


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate each pair of features of a vector, one from each half, by its angle in ``angles``."""
    points = torch.complex(*x.chunk(2)) * torch.exp(1j * angles)
    return torch.cat([points.real, points.imag])
