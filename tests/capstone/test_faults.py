"""Pipelines with a planted fault: each is wrong in one promise, and only a test that checks the promise counts."""

import dis
import inspect

import pytest
import torch
from worked import twice, worked_test

from mha_course.capstone.fault_check import PIPELINES, check_test
from mha_course.capstone.faults import FAULTS, fault_of, made, pipeline, shape_test
from mha_lib import heads

SEED_OF = {fault_of(seed): seed for seed in range(40, 0, -1)}
ALL = pytest.mark.parametrize("fault", FAULTS)


def test_the_right_pipeline_measures_what_the_library_measures():
    p = made("", 4)
    some, others = p.split(p.rows, 10)
    valid = torch.arange(9) < some.valid_lens[:, None]
    found = heads.of(p.model, some.inputs, some.valid_lens)
    expected, means = found.means(valid=valid), p.means(p.model, some)
    assert all(means[name].allclose(mean, atol=1e-5) for name, mean in expected.items())
    plan = dict(zip(means, ([3], [0, 2]), strict=True))
    smaller, off = p.cut(p.model, others, plan, means), p.losses(p.model, others, plan, means)
    assert p.losses(smaller, others, {}, None).allclose(off, atol=1e-4)
    assert p.losses(smaller, others, {}, means).allclose(off, atol=1e-4)  # no head is off: their sizes do not matter

    def loss(model):
        logits = model(others.inputs, others.valid_lens).unflatten(-1, (2, 7)).log_softmax(-1)
        each = -logits.gather(-1, others.targets[..., None])[..., 0]
        return torch.stack([one[:n].mean() for one, n in zip(each, others.valid_lens.tolist(), strict=True)])

    rise = p.losses(p.model, others, plan, means) - p.losses(p.model, others, {}, means)
    assert rise.allclose(found.rise(plan, loss, instead=expected).to(rise), atol=1e-4) and rise.abs().max() > 0.1
    smaller, _ = found.remove(plan, instead=expected)
    mine = p.cut(p.model, others, plan, means)(others.inputs, others.valid_lens)
    assert mine.allclose(smaller(others.inputs, others.valid_lens), atol=1e-3)


@ALL
def test_a_fault_breaks_a_promise_and_no_shape(fault):
    p = made(fault, 5)
    shape_test(p)
    with pytest.raises(AssertionError):
        worked_test(p)
    worked_test(made("", 5))


def test_every_fault_is_drawn_and_described():
    assert SEED_OF.keys() == FAULTS.keys() and len(FAULTS) >= 8
    assert len({fault_of(seed) for seed in range(1, 11)}) >= 5
    assert repr(pipeline(3)).splitlines()[1].startswith("means: Return each head's mean output")


def test_a_test_of_every_promise_notices_every_fault():
    for seed in (1, 2):
        found = PIPELINES.tried(worked_test, seed)
        assert found.passes and found.notices and found.missed == []
    verdict = check_test(worked_test, 2)
    assert verdict and "Of the 7 other faults it notices 7." in verdict.text and not verdict.evidence


def test_a_test_that_raises_no_error_but_returns_false_counts_too():
    verdict = check_test(twice, SEED_OF["dropout on"])
    assert verdict and verdict.evidence.startswith("It does not notice: rows in both sets, padding in the mean, mask")
    assert check_test(twice, SEED_OF["mask forgotten"]).state == "not yet"


def test_what_is_no_answer_yet():
    assert check_test(..., 1).state == "not yet"
    told = check_test(lambda p: ..., 1)
    assert told.state == "not yet" and told.text.startswith("Your test passes on the pipeline with the fault.")
    assert "Give the function itself" in check_test(worked_test(made("", 1)) or 5, 1).text


def test_a_test_that_fails_without_a_fault_is_told_where():
    def strict(p):
        assert p.losses(p.model, p.rows, {}, p.means(p.model, p.rows)).mean() < 0

    told = check_test(strict, 1)
    assert told.state == "wrong" and told.text == "Your test fails on a pipeline without a fault, too."
    assert "assert p.losses" in told.evidence

    def misspelt(p):
        return p.loses(p.model)

    told = check_test(misspelt, 1)
    assert told.text.startswith("Your test raises AttributeError") and "did you mean 'losses'?" in told.text


@pytest.mark.parametrize("fault", ["rows in both sets", "a head stays off"])
def test_cheats_get_nothing(fault):
    """They look for the fault's name, read the source, compare the code or numbers of the pipeline shown, or count."""
    seed, calls = SEED_OF[fault], []
    shown = pipeline(seed)
    numbers = shown.losses(shown.model, shown.rows, {}, shown.means(shown.model, shown.rows))

    def by_name(p):
        seen = [
            repr(vars(p)),
            *(repr(vars(one)) + str(one.__code__.co_consts) for one in vars(p).values() if inspect.isfunction(one)),
        ]
        return not any(name in text for name in FAULTS for text in seen)

    def by_source(p):
        return "".join(inspect.getsource(one) for one in vars(p).values()) != ""

    def functions(p):
        return [one.__code__ for one in (p.split, p.means, p.losses, p.cut)]

    def by_code(p):
        return any(one.co_code == other.co_code for one, other in zip(functions(p), functions(shown), strict=True))

    def by_length(p):
        pairs = zip(functions(p), functions(shown), strict=True)
        return any(len(one.co_code) == len(other.co_code) for one, other in pairs)

    def by_statement(p):
        steps = (step for one in functions(p) for step in dis.get_instructions(one))
        return any(step.opname == "STORE_FAST" and step.argval == "rows" for step in steps)

    def by_numbers(p):
        return not torch.equal(p.losses(p.model, p.rows, {}, p.means(p.model, p.rows)), numbers)

    def by_count(p):
        calls.append(p)
        return len(calls) <= 2

    for cheat in (by_name, by_source, by_numbers, by_count, by_code, by_length, by_statement):
        assert not check_test(cheat, seed), cheat.__name__
    for cheat in (by_code, by_length, by_statement):
        assert not check_test(lambda p, cheat=cheat: not cheat(p), seed), f"not {cheat.__name__}"
