"""Exercises of notebooks 02, 04 and 05 that ask for a test: it must pass what is right, and see every fault."""

import math

import torch

from mha_course.checking.exercise import judged
from mha_course.checking.faulty_programs import require_that_it_tells
from mha_course.exercises.transposing import transpose_qkv


def attention(queries, keys, values):
    """Return scaled dot-product attention, (batch, n, v), of queries (batch, n, p), keys and values."""
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])  # (b, n, m)
    return torch.softmax(scores, dim=-1) @ values


FAULTS_OF_ATTENTION = """
    math.sqrt(queries.shape[-1]) -> math.sqrt(keys.shape[1]) => scores are divided by the root of the number of keys.
        Use inputs in which all sizes differ.
    math.sqrt(queries.shape[-1]) -> math.sqrt(queries.shape[1]) => scores are divided by the root of the number of
        queries. Use inputs in which all sizes differ.
    / math.sqrt(queries.shape[-1]) -> _ => scores are not divided by √p. Compare the output with the formula.
    dim=-1) -> dim=-2) => the softmax runs along the queries. Compare the output with the formula.
    dim=-1) -> dim=0) => the softmax runs along the batch. Use more than one example.
    keys.mT -> keys[:1].mT => all examples use the keys of example 0. Use more than one example, and let them differ.
    queries @ keys.mT -> torch.cosine_similarity(queries[:, :, None], keys[:, None], dim=3) => queries and keys are
        divided by their norms. Compare the output with the formula.
    torch.softmax(scores, dim=-1) -> (scores.exp() / scores.exp().sum(dim=-1, keepdim=True)) => the exponential of a
        large score overflows. Also use scores above 100.
    """


def is_attention(attention):
    torch.manual_seed(0)
    for size in (1, 300):  # with small scores, and with scores above 100
        queries, keys = size * torch.randn(2, 3, 4), torch.randn(2, 5, 4)
        values = torch.randn(2, 5, 6)
        given = queries, keys, values
        expected = torch.nn.functional.scaled_dot_product_attention(*given)
        output = attention(*given)
        if output.shape != expected.shape:
            return False
        if not torch.allclose(output, expected, atol=1e-4):
            return False
    return True


@judged(
    right=is_attention,
    idea="A fault shows only on an input where it makes a difference: sizes that differ, more than one example, "
    "large scores.",
    begin="Begin with random queries, keys and values whose sizes all differ, and a reference output: that of "
    "torch.nn.functional.scaled_dot_product_attention.",
)
def attention_test(function):
    """Check a learner's test of attention: it takes a function, and returns whether that is right.

    The function takes queries (batch, n, p), keys (batch, m, p) and values (batch, m, v), and should return
    softmax(QKᵀ/√p)V, (batch, n, v). Source: Vaswani et al. 2017, equation 1; d2l 11.3.3.
    """
    require_that_it_tells(function, attention, FAULTS_OF_ATTENTION)
    return "Your test accepts correct attention, and detects all eight faults."


def is_split(split):
    torch.manual_seed(0)
    X = torch.randn(2, 3, 20)
    R = split(X, 4)  # (b, n, d) -> (b * h, n, p)
    heads = [X[e, :, 5 * i : 5 * i + 5] for e in range(2) for i in range(4)]
    return R.shape == (8, 3, 5) and torch.equal(R, torch.stack(heads))


FAULTS_OF_THE_SPLIT = """
    .transpose(1, 2) -> _ => it is a single reshape, so a matrix holds parts of one token. Shapes, round trips and ones
        do not show this; random numbers do.
    .transpose(1, 2) -> .permute(2, 0, 1, 3) => the matrices of head 0 come first, for all examples. Use more than one
        example.
    num_heads, d // num_heads -> d // num_heads, num_heads ; transpose(1, 2) -> permute(0, 3, 1, 2) => the features of
        the heads alternate. Compare every number with the formula.
    .transpose(1, 2) -> .permute(0, 2, 3, 1) => the rows of a head mix features of several tokens. Compare every number
        with the formula.
    .transpose(1, 2) -> $.flip(1) => the heads of each example are in reverse order. Compare every number with the
        formula.
    .transpose(1, 2) -> $[:1].expand(b, -1, -1, -1) => all examples are example 0. Use more than one example, and let
        them differ.
    """


@judged(
    right=is_split,
    idea="The formula of section 2 says where each number of the result comes from. A test that does not compare "
    "single numbers cannot detect where they go.",
    begin="Begin with random input of more than one example, in which all sizes differ. Then take matrix 0 of the "
    "result.",
)
def split_test(function):
    """Check a learner's test of ``transpose_qkv``: it takes a function, and returns whether that is right.

    The function takes X (batch, num_tokens, num_hiddens) and num_heads, and should return the heads as matrices,
    (batch · num_heads, num_tokens, head_size). Source: d2l 11.5.2.
    """
    require_that_it_tells(function, transpose_qkv.right, FAULTS_OF_THE_SPLIT)
    return "Your test accepts the correct function, and detects all six wrong ones."


def own_example(X):
    """Return self-attention without parameters of X (batch, n, d): no example reads another one."""
    Y = torch.softmax(X @ X.mT / math.sqrt(X.shape[-1]), dim=-1) @ X
    return Y


FAULTS_ACROSS_EXAMPLES = """
    Y = torch.softmax( -> X = X.transpose(0, 1); Y = torch.softmax( ; return Y -> return Y.transpose(0, 1) => tokens
        attend along the batch, as without `batch_first=True`. Compare an output with and without other examples.
    return Y -> return Y - Y.mean(dim=0) => the mean over the batch is subtracted. Compare an output with and without
        other examples.
    return Y -> return torch.cat([Y[:1], Y[1:] + Y[:-1]]) => every example but the first reads the one before it.
        Compare the outputs of all examples.
    return Y -> return torch.cat([Y[:-1], Y[-1:] + Y[:1]]) => the last example reads the first. Compare the outputs of
        all examples.
    return Y -> return Y.flip(0) => the outputs come in reverse order. Compare the outputs of all examples.
    """


def keeps_examples_apart(layer):
    torch.manual_seed(0)
    X = torch.randn(3, 4, 6)
    together = layer(X)
    alone = torch.cat([layer(X[i : i + 1]) for i in range(3)])
    return torch.allclose(together, alone, atol=1e-5)


@judged(
    right=keeps_examples_apart,
    idea="An example must get the same output in a batch as alone. You do not know which example reads another one.",
    begin="Begin with a batch of at least three random examples, and the output of the whole batch.",
)
def batch_test(function):
    """Check a learner's test of a layer: it takes the layer, and returns whether examples of a batch stay apart.

    The layer takes X (batch, num_tokens, d) and returns as many numbers. Source: notebook 05, section 4.
    """
    require_that_it_tells(function, own_example, FAULTS_ACROSS_EXAMPLES)
    return "Your test accepts a layer that keeps examples apart, and detects all five that do not."
