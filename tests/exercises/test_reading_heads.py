"""Exercises of 05 that are judged in their own way: what is read off maps, and a number that has many right forms."""

import pytest
import torch

from mha_lib.exercises import evenness, head_roles, heard, reach, reading_heads
from mha_lib.exercises.edits import rows_of, with_edits
from mha_lib.heads import statistics

TRUE = ["same word", "next", "even", "previous", "first", "itself"]


def changed(**roles):
    """The right list, with other words for some heads: head0="first"."""
    return [roles.get(f"head{head}", role) for head, role in enumerate(TRUE)]


def by_hand(weights):
    """The role whose places hold most of the weight; written without the exercise's own places."""
    n, words = len(weights), reading_heads.WORDS
    places = {
        "itself": [[i] for i in range(n)],
        "same word": [[j for j in range(n) if words[j] == words[i]] for i in range(n)],
        "previous": [[max(i - 1, 0)] for i in range(n)],
        "next": [[min(i + 1, n - 1)] for i in range(n)],
        "first": [[0]] * n,
        "last": [[n - 1]] * n,
    }
    shares = {role: sum(weights[i, js].sum().item() for i, js in enumerate(rows)) / n for role, rows in places.items()}
    shares["same word"] -= 0.2  # it holds the diagonal, too
    role = max(shares, key=shares.get)
    return role if shares[role] > 0.6 else "even"


def test_the_roles_are_what_the_weights_show():
    weights = reading_heads.unknown_heads()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(6, 9))
    assert [by_hand(head) for head in weights] == TRUE


MISREAD = [
    (changed(head1="previous", head3="next"), "have changed places throughout"),
    (TRUE[::-1], "in reverse order"),
    (changed(head0="itself"), "Head 0: words that occur more than once give"),
    (changed(head5="same word"), "Head 5: words that occur more than once give"),
    (changed(head4="even"), "5 of 6 are right. Head 4: an even look gives 1/9 = 0.11 to each; here the largest weight"),
    (changed(head3="last", head4="last"), "4 of 6 are right. Head 3: for “last” most of the weight would have to be"),
    (["even"] * 6, "1 of 6 are right. Head 0: an even look"),
    (changed(head1="same word"), "Head 1: for “same word” most"),
    (TRUE[:5], "A list of 6 words is needed"),
    (changed(head2="diagonal"), "“diagonal” is not one of the words"),
    (changed(head2=3), "an int is not one of the words"),
    ("even", "A list of 6 words is needed"),
]


@pytest.mark.parametrize(("answer", "words"), MISREAD)
def test_what_a_head_really_does_is_told(answer, words):
    verdict = head_roles(answer)
    assert verdict.state == "wrong" and words in verdict.text, verdict


def test_the_numbers_of_an_objection_are_those_of_the_map():
    weights = reading_heads.unknown_heads()
    at_first = weights[2, :, 0].mean()
    assert f"it is {at_first:.2f} on average (an even look has 0.11)" in head_roles(changed(head2="first")).text
    repeated = [0, 3, 4, 6, 7]  # the three "the", the two "cat"
    own = torch.stack([weights[0, i, i] for i in repeated]).mean()
    assert f"give {own:.2f} of their weight to their own place" in head_roles(changed(head0="itself")).text


def test_no_verdict_names_the_role_of_a_head():
    for head, role in enumerate(TRUE):
        for claim in set(reading_heads.ROLES) - {role}:
            assert f"“{role}”" not in head_roles(changed(**{f"head{head}": claim})).text


@pytest.mark.parametrize("answer", [..., changed(head3=...), dict(enumerate(changed(head3=None))), {1: "even"}])
def test_dots_are_not_yet_roles(answer):
    assert head_roles(answer).state == "not yet"


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
        (lambda weights: (weights * distances(weights)).sum(dim=-1).mean(dim=2), "for each example and head"),
        (lambda weights: (weights * distances(weights)).sum(dim=-1).mean(), "one number for all heads"),
        (lambda weights: (weights * weights.log()).sum(dim=-1).mean(dim=(0, 2)) * torch.nan, "NaN or infinity"),
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
