"""Exercises that are judged in their own way: what is said of typical answers, and of what is no answer at all."""

import itertools
import math

import pytest
import torch
from right_answers import half_open, mask

from mha_course.exercises import COURSE, head_importance, masked_weights
from mha_course.exercises.multi_head_attention import two_head_matrices

pytestmark = pytest.mark.usefixtures("in_this_process")

E = torch.eye(6)
W_Q, W_K = two_head_matrices()
BACK, ITSELF = W_Q.chunk(2)


def alternating(W):
    """The rows of two heads in turn, where the upper half belongs to head 0."""
    return torch.stack(W.chunk(2), dim=1).flatten(0, 1)


def first(W):
    """Queries that are wrong in head 0 alone."""
    return torch.cat([W, ITSELF]), W_K


def second(W):
    """Queries that are wrong in head 1 alone."""
    return torch.cat([BACK, W]), W_K


def loop_without(accuracy, shape):
    costs = torch.empty(shape)
    for place in itertools.product(*map(range, shape)):
        gates = torch.ones(shape)
        gates[place] = 0
        costs[place] = accuracy(torch.ones(shape)) - accuracy(gates)
    return costs


def on(weights, target):
    """The mean weight of each head on the target."""
    at = target[:, None, :, None].expand(-1, weights.shape[1], -1, -1)
    return weights.gather(-1, at).mean(dim=(0, 2, 3))


def at_one_distance(target):
    """How often the target is at its most frequent distance."""
    back = (torch.arange(target.shape[1]) - target) % 8
    return (back == back.flatten().mode().values).double().mean().item()


def at_one_key(target):
    """How often the target is at its most frequent position."""
    return (target == target.flatten().mode().values).double().mean().item()


TOLD = {  # exercise → answers, and words of what is said of each
    "own_importance": [
        *((measure, text) for text, measure in head_importance.LOW_MEASURES.items()),
        (loop_without, "It is leave-one-out"),
        (lambda accuracy, shape: torch.ones(shape), "same number"),
        (lambda accuracy, shape: torch.arange(8.0).view(shape), "get the same table"),
        (lambda accuracy, shape: -half_open(accuracy, shape), "ranking is reversed"),
        (lambda accuracy, shape: half_open(accuracy, shape).flatten(), "The shape must be (2, 4), yours is (8,)"),
        (lambda accuracy, shape: accuracy(torch.ones(8)), "gates of the shape (2, 4)"),
        (lambda accuracy, shape: [accuracy(torch.ones(shape)) for _ in range(101)], "more than 100 times"),
    ],
    "own_evidence": [
        (lambda weights, target: (on(weights, target), 0), "always attends one token back"),
        (lambda weights, target: (on(weights, target), 1 / weights.shape[-1]), "always attends one token back"),
        (lambda weights, target: (on(weights, target), at_one_distance(target)), "always attends to token 0"),
        (
            lambda weights, target: (on(weights, target), max(at_one_distance(target), at_one_key(target))),
            "has the same map in every example",
        ),
        (lambda weights, target: (on(weights, target), on(weights, target).max()), "8 of 10 cases"),
        (lambda weights, target: (on(weights, target), 0.6), "4 of 10 cases"),
        (lambda weights, target: on(weights, target), "Return two things"),
        (lambda weights, target: (on(weights, target), "1/8"), "must be tensors, or lists"),
        (lambda weights, target: (on(weights, target), target), "for each of the 3 heads"),
        (lambda weights, target: (weights[9999], 0), "raises IndexError"),
    ],
    "two_heads": [
        ((W_Q.flip(0), W_K.flip(0)), "The two heads have changed places"),
        ((alternating(W_Q), alternating(W_K)), "The rows of the two heads alternate"),
        ((BACK, E), "All 6 rows together form one head that works"),
        (first(ITSELF), "Head 0: every token attends to itself. It must attend to the token before it."),
        (second(BACK), "Head 1: every token attends to the one before it. It must attend to itself."),
        ((W_K, W_Q), "Head 0: tokens attend to the next one"),
        (second(30 * E.roll(1, dims=0)), "Head 1: tokens attend to the next one"),
        (first(30 * E.roll(-2, dims=0)), "Head 0: tokens attend two positions back"),
        (first(BACK * (torch.arange(6) > 0)), "token 0 attends to two or more tokens equally"),
        (first(30 * E.roll(-1, dims=0)), "as if the positions were a ring"),
        (first(BACK.where(torch.arange(6) > 0, 30 * E[:, 3:4])), "Head 0: token 0 gives 0.00 of its weight to token 0"),
        (second(0 * E), "Head 1: every token gives 1/6 of its weight to each"),
        (
            (W_Q, 0.1 * W_K),
            "Head 0: each token gives its largest weight to the token before it, but token 0 gives only",
        ),
        (first(30 * E[:, 2:3].expand(6, 6)), "Head 0: every token attends to token 2"),
        (second(-ITSELF), "Head 1: each token gives its smallest weight to itself. Check the signs."),
        (first(30 * (torch.ones(6, 6).triu(1) + E * E[0])), "over all earlier tokens"),
        (first(30 * E.roll(-3, dims=0)), "Of the others, token 3 receives most, 0.99."),
        ((W_Q[:, :5], W_K), "W_q must be a tensor of real numbers of shape (2 · head size, 6)"),
        ((W_Q, W_K[:4]), "W_q has 12 rows and W_k 4"),
        ((W_Q[:5], W_K[:5]), "need an even number of rows"),
        ((W_Q * math.inf, W_K), "A score is infinite or NaN"),
    ],
    "masked_weights": [
        (
            lambda scores, valid: masked_weights.right(scores, valid).detach(),
            "the gradient of the scores cannot be computed",
        ),
        (
            lambda scores, valid: (scores + torch.where(mask(scores, valid), 0, -math.inf)).softmax(-1).nan_to_num(0),
            "but the gradient of the scores holds NaN at [0, 1, 0], in a row without a valid key.",
        ),
    ],
}


CASES = [
    pytest.param(name, *told, id=f"{name}-{number}") for name, rows in TOLD.items() for number, told in enumerate(rows)
]


@pytest.mark.parametrize(("name", "answer", "words"), CASES)
def test_an_answer_is_told_what_is_wrong_with_it(name, answer, words):
    verdict = COURSE[name](*answer) if name == "two_heads" else COURSE[name](answer)
    assert verdict.state == ("not yet" if words.startswith("Put") else "wrong") and words in verdict.text, verdict


def test_a_measure_is_held_between_two_bars():
    text = COURSE["own_importance"](loop_without).text
    assert "The rank correlation with the exact Shapley values is 0.6" in text and "more than 0.8 is needed" in text
    assert "leave-one-out 0.6" in text and "each head alone 0.7" in text


def hand_made(W_q, W_k):
    """What is said of a head made by hand for the sentence of notebook 03, with numbers at these features."""
    kinds, meanings = (
        [1, 0, 2, 1, 1, 1, 0],
        {0: 0, 3: 1, 4: 2, 5: 3},
    )  # noun, adjective, verb; hungry, small, quick, grey
    X = torch.zeros(7, 14)
    X[range(7), kinds] = X[range(7), range(7, 14)] = 1
    for word, number in meanings.items():
        X[word, 3 + number] = 1
    queries, keys = (sum(number * X[:, at] for at, number in W.items()) for W in (W_q, W_k))
    return COURSE["hand_made_head"]((queries[:, None] * keys).softmax(dim=1))


NOUN, ADJECTIVE, VERB, HUNGRY, LAST = 0, 1, 2, 3, 13


@pytest.mark.parametrize(
    ("W_q", "W_k", "state", "said"),
    [
        ({NOUN: 8}, {ADJECTIVE: 1}, "not yet", "Change numbers in the picture"),
        ({VERB: 8}, {NOUN: 2}, "right", "Now the second task"),
        ({NOUN: 8, LAST: -16}, {ADJECTIVE: -1, HUNGRY: 2}, "right", "mice to the other three"),
        ({VERB: 1}, {NOUN: 1}, "wrong", "chase gives one of the nouns only 0.26"),
        ({NOUN: 8}, {HUNGRY: 2}, "wrong", "cats gives hungry 1.00, and mice gives the other three adjectives 0.00"),
    ],
)
def test_a_head_made_by_hand_is_told_which_task_it_does(W_q, W_k, state, said):
    verdict = hand_made(W_q, W_k)
    assert verdict.state == state and said in verdict.text
