"""A mask that adds or fills in a finite number is refused where some score defeats it, and the verdict says so."""

import pytest
import torch
from right_answers import mask

from mha_course.exercises import COURSE

pytestmark = pytest.mark.usefixtures("in_this_process")


def cleared(fill):
    """A softmax of filled scores, and 0 at masked keys afterwards, as rows without a valid key need it."""

    def weights(scores, valid):
        valid = mask(scores, valid)
        return torch.softmax(fill(scores, valid), dim=2) * valid

    return weights


def in_one_go(fill):
    """Attention in one go, which blocks must equal."""

    def attention(queries, keys, values, allowed, block_size):
        scores = queries @ keys.T / queries.shape[1] ** 0.5
        return torch.softmax(fill(scores, allowed), dim=1) @ values

    return attention


def maps_of_torch(fill):
    def maps(X, in_proj_weight, in_proj_bias, num_heads, padding):
        packed = X @ in_proj_weight.T + in_proj_bias
        q, k, _ = packed.unflatten(-1, (3, num_heads, -1)).unbind(dim=2)
        scores = torch.einsum("bqhp,bkhp->bhqk", q, k) / q.shape[-1] ** 0.5
        return fill(scores, ~padding[:, None, None]).softmax(dim=-1)

    return maps


def added(number):
    return lambda scores, valid: scores + number * ~valid


def filled(number):
    return lambda scores, valid: scores.masked_fill(~valid, number)


REFUSED = [  # exercise, its answer with such a mask, masks, what is said of them
    ("masked_weights", cleared, [*map(added, (-1e4, -1e5, -3e38))], "A finite number added"),
    ("masked_weights", cleared, [*map(filled, (-1e4, -1e5))], "lower than every score"),
    ("blockwise_attention", in_one_go, [f(n) for f in (added, filled) for n in (-1e4, -1e5)], "A finite number masks"),
    ("every_map", maps_of_torch, [*map(filled, (-20, -100, -1e4, -1e5))], "With this finite number"),
]


@pytest.mark.parametrize(
    ("name", "answer", "words"), [(name, of(fill), words) for name, of, fills, words in REFUSED for fill in fills]
)
def test_a_finite_number_is_refused(name, answer, words):
    verdict = COURSE[name](answer)
    assert verdict.state == "wrong" and words in verdict.text, verdict


def test_a_number_that_is_low_enough_for_float32_passes_and_so_does_infinity():
    assert COURSE["masked_weights"](cleared(filled(-1e9))) and COURSE["every_map"](maps_of_torch(filled(-1e9)))
    assert COURSE["blockwise_attention"](in_one_go(filled(-torch.inf)))
