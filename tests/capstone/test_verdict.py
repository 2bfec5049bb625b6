"""Three outcomes by intervals, the choice of heads that a claim announces, and what a clock may compare."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import nn
from worked import CLAIM, draws, numbers

from mha_course import capstone


def claim(**fields):
    return replace(CLAIM, **{"measure": "leave-one-out", "promise": 0.1} | fields)


@pytest.mark.parametrize(
    ("rise", "random", "promise", "baseline", "outcome", "step"),
    [
        (numbers(0.05), draws(0.4), "held", "held", "held", "how far it goes"),
        (numbers(0.2), draws(0.4), "not held", "held", "not held", "more than you promised"),
        (numbers(0.105), draws(0.4), "undecided", "held", "undecided", "Four times as many rows"),
        (numbers(0.05), draws(0.051), "held", "undecided", "undecided", "so it may without other heads"),
        (numbers(0.05), draws(0.01), "held", "not held", "not held", "A draw does better"),
        (numbers(0.2), draws(0.01), "not held", "not held", "not held", "A draw does better"),
        (numbers(0.2), draws(0.2), "not held", "undecided", "not held", "more than you promised"),
        (numbers(0.105), draws(0.1), "undecided", "undecided", "undecided", "Four times as many rows"),
    ],
)
def test_outcome_and_next_step(rise, random, promise, baseline, outcome, step):
    result = capstone.verdict(claim(), rise, random)
    assert (result.promise, result.baseline, result.outcome) == (promise, baseline, outcome)
    assert step in result.next_step and str(result).startswith(outcome)


def test_the_interval_of_the_rise_is_students():
    rise = numbers(0.3, 0.2, number=10)
    low, high = torch.tensor(0.3) - 2.262 * rise.std() / 10**0.5, torch.tensor(0.3) + 2.262 * rise.std() / 10**0.5
    found = capstone.verdict(claim(), rise, draws(0.4, number=8)[:, :10]).rise
    assert found == pytest.approx((0.3, low.item(), high.item()), abs=2e-3)


def test_texts_that_differ_widen_no_paired_interval():
    """A draw costs 0.1 more on each row, however much the rows differ."""
    rise = numbers(1, spread=2)
    result = capstone.verdict(claim(), rise, torch.stack([rise + 0.1] * 20))
    assert result.ahead == pytest.approx((0.1, 0.1, 0.1)) and result.share == 1


def test_draws_that_differ_widen_the_interval():
    rise = numbers(0.05)
    narrow, wide = (capstone.verdict(claim(), rise, draws(0.1, between)).ahead for between in (0.01, 0.5))
    assert narrow[0] == pytest.approx(wide[0]) and wide[2] - wide[1] > 5 * (narrow[2] - narrow[1])


def test_draws_that_break_the_promise_are_counted():
    few = torch.stack([numbers(one, seed=i) for i, one in enumerate((0.05, 0.15, 0.3, 0.09))])
    result = capstone.verdict(claim(), numbers(0.05), few)
    assert result.breaking == 2 and "2 of 4 draws break your promise" in str(result)
    assert "every draw keeps your promise" in str(capstone.verdict(claim(promise=0.4), numbers(0.05), few))


def test_rows_must_be_the_same():
    with pytest.raises(ValueError, match=r"draws must have shape \(m, 64\), .*got \(20, 32\)"):
        capstone.verdict(claim(), numbers(0.1), draws(0.1)[:, :32])


@pytest.fixture
def tiny():
    """A random encoder of torch's, its heads and its loss: (found, loss, every head)."""
    torch.manual_seed(3)
    block = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True)
    model = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    X, y = torch.randn(16, 5, 12), torch.randn(16)
    work = capstone.Work("tiny", model, (X, y), (X, y), lambda model, rows: (model(rows[0])[:, 0, 0] - rows[1]) ** 2)
    found = work.find_heads()
    return found, work.loss(work.calibration), list(itertools.product(found.layers, range(3)))


def test_the_choice_is_what_the_claim_announces(tiny):
    found, loss, _ = tiny
    instead = found.means()
    for measure, importance in (
        ("leave-one-out", found.leave_one_out(loss, instead=instead)),
        ("gate gradient", found.gate_gradient(loss, instead=instead)),
    ):
        expected = found.plan(importance, remove=3)
        assert capstone.choose(claim(measure=measure), found, loss, instead) == expected
    assert found.plan(found.leave_one_out(loss), remove=3) == capstone.choose(claim(instead="zeros"), found, loss)


def test_greedy_takes_the_best_of_each_step(tiny):
    found, loss, every = tiny

    def cost(plan):
        off = {name: [head for layer, head in plan if layer == name] for name in found.layers}
        return found.rise(off, loss).mean().item()

    plan = []
    for _ in range(3):
        free = [one for one in every if one not in plan and sum(one[0] == layer for layer, _ in plan) < 2]
        plan.append(min(free, key=lambda one: cost([*plan, one])))
    chosen = capstone.choose(claim(measure="greedy", instead="zeros"), found, loss)
    assert {(name, head) for name, off in chosen.items() for head in off} == {*plan}
    assert "heads that stay" in repr(chosen)
    with pytest.raises(ValueError, match=r"number must be from 1 to 4, .*got 5"):
        capstone.choose(claim(measure="greedy", remove=5), found, loss)


def test_the_ceiling_counts_the_products_with_matrices():
    def model(inner):
        return nn.Sequential(nn.Embedding(50, 4), nn.LayerNorm(4), nn.Linear(4, inner), nn.Linear(inner, 2))

    assert capstone.ceiling(model(6), model(3)) == 2


def test_a_model_is_as_fast_as_itself():
    model = nn.Linear(3, 3)
    median, low, high = capstone.paired_speed(model, nn.Linear(3, 3), (torch.ones(2, 3),))
    assert low <= median <= high


def test_told_has_three_digits_and_no_minus_zero():
    assert capstone.told((-0.0001, -0.0004, 0.0004)) == "0.000 (0.000 to 0.000)"
    assert capstone.told((1, -2.25, 3.45678)) == "1.000 (-2.250 to 3.457)"
