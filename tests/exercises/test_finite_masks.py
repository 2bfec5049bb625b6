"""A mask that adds or fills in a finite number is refused where some score defeats it, and the verdict says so."""

import pytest
import torch
from right_answers import mask

from mha_course.exercises import COURSE

pytestmark = pytest.mark.usefixtures("in_this_process")


def added(number):
    return lambda scores, valid: torch.softmax(scores + number * (1 - mask(scores, valid).float()), dim=-1)


def filled(number):
    return lambda scores, valid: torch.where(mask(scores, valid), scores, number).softmax(dim=2)


def cleared(weights):
    """The same, and 0 at masked keys afterwards, as rows without a valid key need it."""
    return lambda scores, valid: weights(scores, valid) * mask(scores, valid)


@pytest.mark.parametrize("number", [-1e4, -1e5, -3e38])
def test_a_finite_number_added_to_masked_scores_is_refused(number):
    verdict = COURSE["masked_weights"](cleared(added(number)))
    assert verdict.state == "wrong" and "A finite number added" in verdict.text, verdict


@pytest.mark.parametrize("number", [-1e4, -1e5])
def test_a_finite_number_filled_in_is_refused_unless_it_is_low_enough_for_float32(number):
    verdict = COURSE["masked_weights"](cleared(filled(number)))
    assert verdict.state == "wrong" and "lower than every score" in verdict.text, verdict
    assert COURSE["masked_weights"](cleared(filled(-1e9)))


def softmax_with(fill):
    """Attention in one go, which blocks must equal."""

    def attention(queries, keys, values, allowed, block_size):
        scores = queries @ keys.T / queries.shape[1] ** 0.5
        return torch.softmax(fill(scores, allowed), dim=1) @ values

    return attention


@pytest.mark.parametrize(
    "fill",
    [
        lambda scores, allowed: scores.masked_fill(~allowed, -1e4),
        lambda scores, allowed: scores.masked_fill(~allowed, -1e5),
        lambda scores, allowed: scores - 1e4 * ~allowed,
        lambda scores, allowed: scores - 1e5 * ~allowed,
    ],
)
def test_a_finite_mask_is_refused_in_blocks_too(fill):
    verdict = COURSE["blockwise_attention"](softmax_with(fill))
    assert verdict.state == "wrong" and "A finite number masks the keys" in verdict.text, verdict
    assert COURSE["blockwise_attention"](softmax_with(lambda scores, allowed: scores.where(allowed, -torch.inf)))


@pytest.mark.parametrize("number", [-20, -100, -1e4, -1e5])
def test_a_finite_mask_is_refused_where_the_maps_of_torch_are_asked_for(number):
    def with_fill(X, in_proj_weight, in_proj_bias, num_heads, padding, fill=number):
        packed = X @ in_proj_weight.T + in_proj_bias
        q, k, _ = packed.unflatten(-1, (3, num_heads, -1)).unbind(dim=2)
        scores = torch.einsum("bqhp,bkhp->bhqk", q, k) / q.shape[-1] ** 0.5
        return scores.masked_fill(padding[:, None, None], fill).softmax(dim=-1)

    verdict = COURSE["every_map"](with_fill)
    assert verdict.state == "wrong" and "With this finite number" in verdict.text, verdict
    assert COURSE["every_map"](lambda *given: with_fill(*given, fill=-1e9))
