"""What is said of learners' tests: those that pass what is wrong, fail what is right, or give no answer."""

import pytest
import torch
from torch.nn import functional as F

from mha_course.exercises import attention_test, batch_test, split_test

pytestmark = pytest.mark.usefixtures("in_this_process")


def attention_of(*sizes):
    """A test that compares attention with torch's on one random input of these sizes."""
    shapes = sizes[:2] + sizes[3:4], sizes[:1] + sizes[2:4], sizes[:1] + sizes[2:3] + sizes[4:]

    def test(attention):
        inputs = [torch.randn(*shape) for shape in shapes]
        return torch.allclose(attention(*inputs), F.scaled_dot_product_attention(*inputs), atol=1e-5)

    return test


def only_shape(split):
    return split(torch.randn(2, 3, 20), 4).shape == (8, 3, 5)


def one_example(split):
    X = torch.randn(1, 3, 20)
    return all(torch.equal(split(X, 4)[i], X[0, :, 5 * i : 5 * i + 5]) for i in range(4))


def first_example(layer):
    X = torch.randn(3, 4, 6)
    return torch.allclose(layer(X)[:1], layer(X[:1]), atol=1e-5)


def asserts(layer):
    """It raises where an example reads another."""
    X = torch.randn(3, 4, 6)
    for i in range(3):
        torch.testing.assert_close(layer(X)[i : i + 1], layer(X[i : i + 1]))
    return True


@pytest.mark.parametrize(
    ("exercise", "answer", "said"),
    [
        (attention_test, attention_of(2, 3, 4, 4, 5), "the root of the number of keys"),
        (attention_test, attention_of(2, 4, 3, 4, 5), "the root of the number of queries"),
        (attention_test, attention_of(1, 3, 5, 4, 6), "the keys of example 0"),
        (attention_test, attention_of(2, 3, 5, 4, 6), "the exponential of a large score overflows"),
        (attention_test, lambda attention: False, "returns False for a correct function"),
        (attention_test, lambda attention: torch.tensor(True), "Return True or False; your test returns a tensor"),
        (attention_test, lambda attention: 1 / 0, "raises ZeroDivisionError: division by zero on a correct function"),
        (split_test, only_shape, "it is a single reshape"),
        (split_test, one_example, "the matrices of head 0 come first"),
        (batch_test, first_example, "every example but the first reads the one before it"),
        (batch_test, lambda layer: True, "tokens attend along the batch"),
    ],
)
def test_what_a_test_does_not_see_is_named(exercise, answer, said):
    verdict = exercise(answer)
    assert verdict.state == "wrong" and said in verdict.text


def test_a_test_may_raise_where_it_sees_a_fault_and_an_empty_one_is_not_yet_written():
    assert batch_test(asserts)
    assert batch_test(lambda layer: None).state == "not yet"
