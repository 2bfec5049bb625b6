"""A rule drawn by a seed: the right weights pass, those of another seed do not, and are named."""

import pytest
import torch

from mha_course.exercises import check_weights, drawn_rule
from mha_course.exercises.drawn_rule import RULES, rule_of

SEED_OF = {rule_of(seed): seed for seed in range(200)}


def weights(Q, K, valid_lens, name="", number=0):
    """One row at a time, in plain numbers."""
    W = torch.zeros(*Q.shape[:3], K.shape[2])
    for b, h, i in torch.cartesian_prod(*map(torch.arange, Q.shape[:3])).tolist():
        scores = {}
        for j in range(int(valid_lens[b])):
            s = sum(x * y for x, y in zip(Q[b, h, i].tolist(), K[b, h, j].tolist(), strict=True)) / Q.shape[3] ** 0.5
            s = number * torch.tanh(torch.tensor(s / number)).item() if name == "soft cap" else s
            s -= number * abs(i - j) if name == "distance" else 0
            if name != "window" or abs(i - j) < number:
                scores[j] = torch.tensor(s).exp().item()
        below = sum(scores.values()) + (torch.tensor(float(number)).exp().item() if name == "sink" else 0)
        for j, power in scores.items():
            W[b, h, i, j] = power / below
    return W


def by(*rule):
    return lambda Q, K, valid_lens: weights(Q, K, valid_lens, *rule)


def test_every_rule_is_drawn_with_every_number():
    assert SEED_OF.keys() == {(name, number) for name, rule in RULES.items() for number in rule.numbers}


@pytest.mark.parametrize("name", RULES)
def test_the_rule_of_a_seed_is_right_for_that_seed_alone(name):
    one, other = ((name, number) for number in RULES[name].numbers[:2])
    assert str(one[1]) in str(drawn_rule(SEED_OF[one]))
    assert check_weights(by(*one), SEED_OF[one])
    told = check_weights(by(*one), SEED_OF[other])
    assert told.state == "wrong" and f"another rule: {name}, with the number {one[1]}." in told.text
    assert "without the rule" in check_weights(by(), SEED_OF[one]).text


def test_plain_weights_need_lengths_and_the_scale():
    assert check_weights(by())
    assert check_weights(...).state == "not yet"
    assert not check_weights(lambda Q, K, valid_lens: by()(Q, K, torch.full_like(valid_lens, K.shape[2])))
    assert not check_weights(lambda Q, K, valid_lens: by()(Q * Q.shape[-1] ** 0.5, K, valid_lens))
    sizes_of_one_call = lambda Q, K, valid_lens: by()(Q[:, :3], K[:, :3], valid_lens)  # noqa: E731
    assert not check_weights(sizes_of_one_call)
