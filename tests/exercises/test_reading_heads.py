"""Exercises of 05 that are judged in their own way: what is read off maps, and a number that has many right forms."""

import pytest
import torch
from right_answers import ROLES

from mha_lib.exercises import evenness, head_roles, heard, reach, reading_heads
from mha_lib.exercises.edits import rows_of, with_edits
from mha_lib.heads import statistics


def changed(**roles):
    """The right list, with other words for some heads: head0="first"."""
    return [roles.get(f"head{head}", role) for head, role in enumerate(ROLES)]


def test_the_roles_are_what_the_weights_show():
    weights, words = reading_heads.unknown_heads(), reading_heads.WORDS
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(6, 9))
    places = {
        "next": [[min(i + 1, 8)] for i in range(9)],
        "previous": [[max(i - 1, 0)] for i in range(9)],
        "first": [[0]] * 9,
        "itself": [[i] for i in range(9)],
        "same word": [[j for j in range(9) if words[j] == words[i]] for i in range(9)],
    }
    for role, head in zip(ROLES, weights, strict=True):
        rows = places.get(role, [])
        assert all(head[i, js].sum() > 0.6 for i, js in enumerate(rows)) if rows else head.max() < 0.3


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (changed(head1="previous", head3="next"), "have changed places throughout"),
        (ROLES[::-1], "in reverse order"),
        (changed(head0="itself"), "Head 0: words that occur more than once give"),
        (changed(head5="same word"), "Head 5: words that occur more than once give"),
        (changed(head4="even"), "5 of 6 are right. Head 4: an even look gives 1/9 = 0.11 to each; here the largest"),
        (changed(head3="last", head4="last"), "4 of 6 are right. Head 3: for “last” most of the weight would have to"),
        (changed(head2="first"), f"it is {reading_heads.unknown_heads()[2, :, 0].mean():.2f} on average (an even look"),
        (ROLES[:5], "A list of 6 words is needed"),
        (changed(head2="diagonal"), "What is said of head 2 is not one of the words"),
        (changed(head2=3), "What is said of head 2 is not one of the words"),
        ("even", "A list of 6 words is needed"),
        ({1: "even"}, "Put a word"),
    ],
)
def test_what_a_head_really_does_is_told(answer, words):
    verdict = head_roles(answer)
    assert verdict.state == ("not yet" if "Put" in words else "wrong") and words in verdict.text, verdict


def test_no_verdict_names_the_role_of_a_head():
    for head, role in enumerate(ROLES):
        for claim in set(reading_heads.ROLES) - {role}:
            assert f"“{role}”" not in head_roles(changed(**{f"head{head}": claim})).text


@pytest.mark.parametrize(("text", "edits"), [*rows_of(reading_heads.MISREADINGS)])
@pytest.mark.parametrize("sign", [1, -1])
def test_another_measure_is_recognised_by_the_order_it_gives(text, edits, sign):
    measure = with_edits(reading_heads.share_beyond_two, edits)
    verdict = reach(lambda weights: sign * measure(weights).double().exp())
    assert (verdict.state, verdict.text) == ("wrong", text)


def distances(weights):
    places = torch.arange(weights.shape[-1])
    return (places - places[:, None]).abs()


def share_beyond(steps):
    return lambda weights: (weights * (distances(weights) > steps)).sum(dim=-1).mean(dim=(0, 2))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (share_beyond(1), "the first must get the larger number"),
        (share_beyond(3), "the first must get the larger number"),
        (lambda weights: torch.arange(weights.shape[1]), "A head that looks at "),
        (lambda weights: -statistics.mean_distance(weights), "upside down"),
        (lambda weights: torch.ones(weights.shape[1]), "the same number"),
        (lambda weights: (weights * distances(weights)).sum(dim=-1).mean(dim=2), "How do the examples become one?"),
        (lambda weights: (weights * distances(weights)).sum(dim=-1).mean(), "Which axes must stay?"),
        (lambda weights: weights.sum(dim=(0, 2, 3)) * torch.nan, "NaN or infinity"),
        (lambda weights: torch.ones(3), "The shape must be (12,), yours is (3,)"),
        (lambda weights: weights @ distances(weights), "Your code raises RuntimeError"),
    ],
)
def test_what_is_no_reach(answer, words):
    verdict = reach(answer)
    assert verdict.state == "wrong" and words in verdict.text, verdict


def test_an_even_look_is_1_at_any_length():
    valid_lens = torch.tensor([2, 5])
    weights = (torch.arange(6) < valid_lens[:, None, None, None]) / valid_lens[:, None, None, None]
    assert evenness.right(weights.expand(2, 3, 6, 6), valid_lens).tolist() == pytest.approx([1.0] * 3)


def test_a_dead_head_is_not_heard():
    weights, values, W_o = reading_heads.heard_trial(2, 3, 4, 5, 2)
    W_o[:, 2:4] = 0
    lengths = heard.right(weights, values, W_o)
    assert (lengths[:, 1] == 0).all() and (lengths[:, ::2] > 0).all()
