"""Every check, whatever it is given: one line, never a crash, never the solution."""

import inspect
import sys
import time

import pytest
import torch

from mha_lib import checks
from mha_lib.checks import calls
from mha_lib.checks.verdict import Verdict

CHECKS = [getattr(checks, name) for name in checks.__all__]
OF_FUNCTIONS = [check for check in CHECKS if list(inspect.signature(check).parameters) == ["function"]]


class Weird:
    """Raises at whatever is done with it."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError

    __eq__ = __bool__ = __len__ = __iter__ = __getitem__ = __float__ = __hash__ = __str__ = __format__ = __repr__


def raises(*arguments):
    raise ValueError("one\ntwo")


def leaves(*arguments):
    sys.exit()


def hangs(*arguments):
    time.sleep(60)


def writes_into_arguments(*arguments):
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            argument.zero_()
    return torch.zeros(1)


ANSWERS = {
    "number": 0.5,
    "negative": -3,
    "text": "a right answer",
    "empty": [],
    "list": [[1, 2], [3]],
    "dictionary": {"W_q": 1},
    "tensor": torch.ones(2, 3),
    "NaN": torch.full((4, 4), torch.nan),
    "scalar": torch.tensor(7),
    "class": Weird,
    "weird": Weird(),
    "gives a number": lambda *arguments: 0.25,
    "gives text": lambda *arguments: "text",
    "gives an empty tensor": lambda *arguments: torch.empty(0),
    "gives whole numbers": lambda *arguments: torch.arange(24).reshape(2, 3, 4),
    "gives NaN": lambda *arguments: torch.full((2, 3), torch.nan),
    "gives its argument": lambda *arguments: arguments[0],
    "gives its arguments": lambda *arguments: arguments,
    "gives something weird": lambda *arguments: Weird(),
    "gives itself": lambda *arguments: raises,
    "without arguments": lambda: 1,
    "raises": raises,
    "leaves": leaves,
    "writes into its arguments": writes_into_arguments,
}
STUBS = {
    "None": None,
    "dots": ...,
    "gives nothing": lambda *arguments: None,
    "gives dots": lambda *arguments: ...,
}


def ask(check, answer):
    """The verdict on one answer, given in the place of all that the check wants to see."""
    verdict = check(*[answer] * len(inspect.signature(check).parameters))
    assert isinstance(verdict, Verdict)
    assert "\n" not in str(verdict) and len(str(verdict)) < 500
    return verdict


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_nonsense_is_wrong_and_no_crash(check, answer):
    before = torch.get_rng_state()
    assert ask(check, ANSWERS[answer]).state == "wrong"
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("stub", STUBS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_stub_is_not_yet_an_answer(check, stub):
    if check in OF_FUNCTIONS or not callable(STUBS[stub]):
        assert ask(check, STUBS[stub]).state == "not yet"


@pytest.mark.parametrize("check", OF_FUNCTIONS, ids=lambda check: check.__name__)
def test_a_hang_is_cut_short(check, monkeypatch):
    monkeypatch.setattr(calls, "SECONDS", 0.2)
    assert "ran for more than 0.2 seconds" in str(ask(check, hangs))


@pytest.mark.parametrize("check", OF_FUNCTIONS, ids=lambda check: check.__name__)
def test_a_change_in_place_is_told(check):
    def spoils(*arguments):
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        for tensor in tensors:
            tensor.fill_(3)
        return torch.zeros(1) if tensors else None

    verdict = ask(check, spoils)
    assert verdict.state == "not yet" or "in place" in str(verdict)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_check_says_what_is_asked_and_where_it_comes_from(check):
    assert check.__doc__ and "Source: " in check.__doc__ and "Args:" in check.__doc__
