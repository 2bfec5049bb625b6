"""The core of the checks: whatever an answer does, the verdict is one line, and a mistake is named on evidence."""

import os
import random
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from mha_lib.checks import calls
from mha_lib.checks.answers import in_tensors
from mha_lib.checks.calls import call, call_all
from mha_lib.checks.compare import Slip, compare
from mha_lib.checks.inputs import in_words
from mha_lib.checks.verdict import NO_LIMIT, MistakeError, NotYetError, Verdict, check

SHAPES = [(2, 3), (3, 4), (4, 5)]


def double(X):
    return 2 * X


SLIPS = [
    Slip("{example}, place {place} holds {got}, not {right}: you square.", lambda X: X * X),
    Slip("{example}, the shape is {got}, not {right}: you sum.", lambda X: X.sum(0)),
    Slip("{place} is NaN: you divide zero by zero.", lambda X: double(X) + 0 * X / (X - X)),
]


@check
def doubled(function) -> str:
    """Needed: twice the input."""
    compare(function, double, [(torch.randn(shape),) for shape in SHAPES], SLIPS)
    return "twice the input."


def test_a_right_answer_is_true_and_printed_as_one_line():
    verdict = doubled(lambda X: X + X)
    assert verdict and repr(verdict) == str(verdict) == "✓ Right: twice the input."


@pytest.mark.parametrize("right", [double, torch.nn.Linear(1, 1), np.float64], ids=["function", "module", "type"])
def test_whatever_can_be_called_is_called(right):
    assert doubled(right).state == ("right" if right is double else "wrong")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda X: X * X, r"^✗ Not right: with X of shape \(2, 3\), place \[0, 0\] holds .*: you square\.$"),
        (lambda X: X.sum(0), r"with X of shape \(2, 3\), the shape is \(3,\), not \(2, 3\): you sum"),
        (lambda X: X * torch.nan, r"\[0, 0\] is NaN: you divide"),
    ],
)
def test_a_slip_that_fits_every_trial_is_named_with_the_smallest_example(wrong, message):
    assert one_line(doubled(wrong), message).state == "wrong"


def test_the_numbers_of_the_example_are_those_that_differ():
    text = str(doubled(lambda X: X * X))
    torch.manual_seed(0)
    first = torch.randn(2, 3)[0, 0].item()
    assert f"holds {first**2:.3g}, not {2 * first:.3g}:" in text


def test_whole_numbers_of_the_example_are_written_in_full():
    @check
    def count(function) -> str:
        compare(function, lambda n: torch.tensor(1000 * n), [(4,)], [])
        return "counted."

    assert "the result is 12345 instead of 4000." in str(count(lambda n: torch.tensor(12345)))


@pytest.mark.parametrize("fits", [{(2, 3)}, {(3, 4), (4, 5)}, {(2, 3), (3, 4)}])
@pytest.mark.parametrize("slip", SLIPS, ids=["square", "sum", "nan"])
def test_a_slip_that_fits_only_some_trials_is_not_named(fits, slip):
    def mixed(X):
        return slip.imitation(X) if tuple(X.shape) in fits else 2 * X + 1

    assert not re.search(r"\byou\b", str(doubled(mixed)))


def test_a_slip_is_not_named_where_it_is_wrong_in_some_trials_only():
    def sometimes_right(X):
        return X * X if len(X) == 4 else 2 * X

    one_line(doubled(sometimes_right), r"with X of shape \(4, 5\), place \[0, 0\] holds .* instead of ")


def test_numbers_that_look_alike_are_written_with_more_digits():
    text = str(one_line(doubled(lambda X: (2 * X).half()), "instead of"))
    got, right = text.rstrip(".").split(" holds ")[1].split(" instead of ")
    assert got != right and float(got) == pytest.approx(float(right), rel=1e-2)


def test_a_single_number_has_no_place():
    @check
    def total(function) -> str:
        compare(function, torch.sum, [(torch.ones(3),)], [])

    one_line(total(lambda X: X.sum() + 1), r"the result is 4 instead of 3\.$")
    one_line(total(lambda X: X.sum() / 0), r"your result holds inf\.$")


def test_whole_numbers_and_truth_values_are_compared_as_such():
    @check
    def counts(function) -> str:
        compare(function, lambda X: (X > 0).sum(1), [(torch.randn(shape),) for shape in SHAPES], [])
        return "counted."

    assert counts(lambda X: (X > 0).sum(1).int()) and counts(lambda X: (X > 0).float().sum(1))
    one_line(counts(lambda X: (X > 0).sum(1) + 0.5), r"place \[0\] holds \d\.5 instead of \d\.")
    one_line(counts(lambda X: (X > 0).sum(1) + 0j), "must be real numbers, yours are torch.complex64")


LONG_MESSAGE = "first line\nbelow"


def fail_far_away(X):
    raise ValueError(LONG_MESSAGE)  # a long comment that nobody wants to read in a verdict


class RaisesAtEverything(Exception):
    def __str__(self):
        raise RuntimeError


def raise_unreadable(X):
    raise RaisesAtEverything


class Own(BaseException):
    pass


def raise_own(X):
    raise Own("mine")


def multiply_wrongly(X):
    return X @ X


def recurse(X):
    return recurse(X)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            fail_far_away,
            r"raises ValueError: first line at “raise ValueError\(.{,60}…” \(with X of shape \(2, 3\)\)",
        ),
        (multiply_wrongly, "raises RuntimeError: mat1 and mat2 .* at “return X @ X” "),
        (raise_unreadable, "raises RaisesAtEverything at “raise RaisesAtEverything”"),
        (raise_own, "raises Own: mine at"),
        (recurse, "raises RecursionError: maximum recursion depth exceeded.* at “return recurse"),
        (lambda X: sys.exit("bye"), "raises SystemExit: bye at"),
        (lambda: 1, r"raises TypeError: .*takes 0 positional arguments but 1 was given \(with"),
        (lambda X: torch.softmax(X.long(), -1), r'"softmax.*" not implemented for .Long. at “'),
        (lambda X: eval("undefined"), "raises NameError: name 'undefined' is not defined at “"),
        (lambda X: {}["k" * 500], r"raises KeyError: 'k{150,160}… at"),
        (eval("lambda X: 1 / 0"), r"raises ZeroDivisionError: division by zero \(with"),
    ],
)
def test_an_error_is_told_with_its_kind_first_line_and_place(function, message):
    verdict = one_line(doubled(function), message)
    assert verdict.state == "wrong" and "below" not in str(verdict) and len(str(verdict)) < 320


def test_the_place_is_the_learners_line_not_the_librarys():
    one_line(doubled(lambda X: torch.nn.functional.linear(X, None)), "at “one_line")


def test_an_interrupt_by_the_user_ends_answer_and_check():
    def interrupted(X):
        os.kill(os.getppid(), signal.SIGINT)
        while True:
            pass

    with pytest.raises(KeyboardInterrupt):
        doubled(interrupted)


def wait(X):
    time.sleep(20)


def wait_and_catch_errors(X):
    try:
        time.sleep(20)
    except Exception:
        return 2 * X


def wait_and_catch_everything(X):
    try:
        time.sleep(20)
    except:  # noqa: E722 - what a learner may write
        return 2 * X


def loop(X):
    while True:
        pass


def loop_and_catch_errors(X):
    for _ in range(1000):
        try:
            time.sleep(0.02)
        except Exception:
            continue


def loop_and_catch_everything(X):
    while True:
        try:
            while True:
                try:
                    time.sleep(0.02)
                except:  # noqa: E722
                    pass
        except:  # noqa: E722
            pass


@pytest.mark.parametrize(
    "hangs",
    [wait, wait_and_catch_errors, wait_and_catch_everything, loop, loop_and_catch_errors, loop_and_catch_everything],
)
def test_a_hang_is_cut_short(hangs):
    with pytest.raises(MistakeError, match=r"ran for more than 0.2 seconds \(with X of shape \(2, 3\)\)"):
        call_all(hangs, [(torch.ones(2, 3),)], seconds=0.2)


def test_whoever_ends_the_process_is_told_so():
    one_line(doubled(lambda X: os._exit(0)), r"^✗ Not right: your code ended the process that it ran in \(with X of")


def test_what_an_answer_prints_is_shown(capsys):
    def tell(X):
        print("shape", tuple(X.shape))
        print("twice", file=sys.stderr)
        return 2 * X

    assert doubled(tell)
    captured = capsys.readouterr()
    assert captured.out == "shape (2, 3)\nshape (3, 4)\nshape (4, 5)\n" and captured.err == "twice\n" * 3


def test_gradients_can_be_computed_in_an_answer():
    X = torch.randn(3, requires_grad=True)
    X.square().sum().backward()

    def by_gradient(X):
        X = X.clone().requires_grad_()
        return torch.autograd.grad(X.square().sum(), X)[0]

    assert doubled(by_gradient)


def test_outside_the_main_thread_too_a_hang_is_cut_short(monkeypatch):
    monkeypatch.setattr(calls, "SECONDS", 0.2)
    with ThreadPoolExecutor() as pool:
        one_line(pool.submit(doubled, loop).result(), "ran for more than 0.2 seconds")


@pytest.mark.parametrize(("answer", "state"), [(double, "right"), (lambda X: X, "wrong")])
def test_where_nothing_can_be_forked_the_verdict_says_that_there_is_no_limit(answer, state, monkeypatch):
    monkeypatch.delattr(os, "fork")
    verdict = doubled(answer)
    assert verdict.state == state and verdict.text.endswith(f"({NO_LIMIT})")


def double_in_place(X):
    return X.mul_(2)


def spoil(X):
    X[0] = torch.nan
    return 2 * X


def turn(X):
    Y = 2 * X
    X.t_()
    return Y


@pytest.mark.parametrize("changes", [double_in_place, spoil, turn])
def test_a_change_in_place_is_told_and_reaches_no_one(changes):
    given = torch.randn(3, 3)
    before = given.clone()
    with pytest.raises(MistakeError, match="changes `X` in place"):
        call(lambda number, X: changes(X), 7, given)
    assert torch.equal(given, before)
    one_line(doubled(changes), "changes `X` in place, .* even where the result is right")


def test_an_argument_without_a_name_is_counted():
    with pytest.raises(MistakeError, match="changes its second argument in place"):
        call(lambda number, *others: others[0].add_(1), 7, torch.zeros(2))


@pytest.mark.parametrize("argument", [[torch.zeros(2)], (torch.zeros(2),), {"a": torch.zeros(2)}])
def test_a_change_within_a_list_is_seen(argument):
    key = "a" if isinstance(argument, dict) else 0
    with pytest.raises(MistakeError, match="changes `parts` in place"):
        call(lambda parts: parts[key].add_(1), argument)
    assert call(lambda parts: parts[key] + 1, argument).eq(1).all()


def test_nan_among_the_arguments_is_no_change():
    assert call(lambda X: 1, torch.tensor([torch.nan, 1])) == 1


class Weird:
    """Raises at whatever is done with it."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError

    __eq__ = __bool__ = __len__ = __iter__ = __hash__ = __str__ = __format__ = __repr__


class WeirdTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise SystemExit("no")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0]], r"a tensor of shape \(2, 3\) is needed, your function returns a list"),
        (np.ones((2, 3)), "your function returns a ndarray|an ndarray"),
        (1.5, "returns a float"),
        (1, "returns an int"),
        ("", "returns a str"),
        (type("", (), {})(), "returns a "),
        (torch.ones(3, 2), r"the shape must be \(2, 3\), yours is \(3, 2\)"),
        (torch.ones(2, 3, dtype=torch.long), "must be floating-point numbers, yours are torch.int64"),
        (torch.ones(2, 3, dtype=torch.bool), "yours are torch.bool"),
        (torch.ones(2, 3, dtype=torch.complex64), "yours are torch.complex64"),
        (torch.tensor([[0, 1, torch.inf], [0, 1, 2]]), r"your result holds inf, first at \[0, 2\]"),
        (torch.tensor([[0, 1, 2], [-torch.inf, 1, 2]]), r"your result holds -inf, first at \[1, 0\]"),
        (torch.tensor([[0, 1, 2], [3, torch.nan, torch.inf]]), r"your result holds NaN, first at \[1, 1\]"),
        (torch.ones(2, 3).to_sparse(), "✗ Not right: "),
        (torch.ones(2, 3, device="meta"), "✗ Not right: "),
    ],
)
def test_a_wrong_value_gets_its_own_message(value, message):
    assert one_line(doubled(lambda X: value), message).state == "wrong"


@pytest.mark.parametrize("make", [Weird, lambda: torch.ones(2, 3).as_subclass(WeirdTensor)], ids=["object", "tensor"])
def test_a_value_that_raises_at_every_touch_is_no_crash(make):
    one_line(doubled(lambda X: make()), "^✗ Not right: a tensor of shape .* is needed, your function returns a Weird")
    one_line(doubled(make()), "^✗ Not right: ")


@pytest.mark.parametrize("answer", [3, [double], "double", torch.ones(2, 3)], ids=["int", "list", "str", "tensor"])
def test_what_is_no_function_is_refused(answer):
    one_line(doubled(answer), "^✗ Not right: give the function itself, without calling it; this is an? ")


@pytest.mark.parametrize("arguments", [(), (double, double)])
def test_a_wrong_number_of_answers_is_no_crash(arguments):
    one_line(doubled(*arguments), "this check cannot make sense of it .TypeError: doubled.. ")


def stub(X): ...


def stub_that_raises(X):
    raise NotImplementedError


def stub_that_says_so(X):
    raise NotImplementedError("your code here")


@pytest.mark.parametrize("answer", [None, ..., stub, lambda X: ..., stub_that_raises, stub_that_says_so])
def test_a_stub_is_not_yet_an_answer(answer):
    verdict = one_line(doubled(answer), "^… Not yet: ")
    assert not verdict and verdict.state == "not yet"


def print_it(X):
    print(2 * X)


def test_who_prints_is_told_that_this_is_not_returning():
    assert doubled(print_it).text == "the function returns nothing so far (printing is not returning)."
    assert doubled(stub).text == "the function returns nothing so far."


@check
def total_of(function) -> str:
    """Needed: the whole part of a sum."""
    trials = [(3, False, torch.ones(2)), (4, True, torch.ones(3))]
    compare(in_tensors(function), lambda n, double, X: torch.tensor(n * (1 + double) + len(X)), trials, [])
    return "summed."


@check
def product_of(function) -> str:
    """Needed: three products."""
    compare(in_tensors(function), lambda a, b: torch.tensor([a, b, a * b]), [(2, 5)], [])
    return "multiplied."


@check
def thirds(function) -> str:
    """Needed: the three parts of a matrix."""
    compare(in_tensors(function), lambda W: W.unflatten(0, (3, -1)), [(torch.randn(6, 4),)], [])
    return "split."


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        (total_of(lambda n, double, X: 7), r"^with n = 3, double = False and X of shape \(2,\), the result is 7 inst"),
        (total_of(lambda *sizes: 7), r"^with 3, False and a tensor of shape \(2,\), the result is 7 instead of 5\.$"),
        (total_of(lambda n, double, X: n / 0), r"\(with n = 3, double = False and X of shape \(2,\)\)"),
        (product_of(lambda a, b: (2, 5, 7)), r"^for \(2, 5\), place \[2\] holds 7 instead of 10\.$"),
        (total_of(lambda n, double, X: "5"), "^one whole number is needed, yours is a str.$"),
        (total_of(lambda n, double, X: (5, 5)), "^one whole number is needed, yours are 2.$"),
        (product_of(lambda a, b: [2, 5]), "^three whole numbers are needed, yours are 2.$"),
        (product_of(lambda a, b: 10), "^three whole numbers are needed, yours is one number.$"),
        (
            thirds(lambda W: W.split(3)),
            r"^three matrices of shape \(2, 4\) are needed, yours are 2 of shape \(3, 4\)",
        ),
        (thirds(lambda W: W.split(4)), r"are needed, yours have the shapes \(4, 4\), \(2, 4\)\.$"),
        (thirds(lambda W: W), r"^three matrices .* are needed, yours is a tensor of shape \(6, 4\)\.$"),
    ],
)
def test_the_call_and_what_is_needed_are_told_in_plain_words(verdict, message):
    assert re.search(message, verdict.text), verdict


def test_a_few_whole_numbers_are_written_out_and_what_is_long_is_left_out():
    def f(valid_lens, num_heads, table): ...

    assert in_words(f, (torch.tensor([3, 2]), 2, "long" * 20)) == "with valid_lens [3, 2] and num_heads = 2"
    assert in_words(f, (torch.arange(99), 2)) == "with valid_lens of shape (99,) and num_heads = 2"
    assert in_words(f, ("long" * 20,)) == "" and in_words(f, (4,)) == "for 4"


def test_a_surprise_in_the_check_itself_is_no_crash():
    @check
    def surprised(answer) -> str:
        raise SystemExit("line\nbreak")

    one_line(surprised(1), r"this check cannot make sense of it \(SystemExit: line\)")


@pytest.mark.parametrize(("error", "state"), [(NotYetError, "not yet"), (MistakeError, "wrong")])
def test_what_a_check_raises_becomes_one_line(error, state):
    @check
    def checked(answer) -> str:
        raise error("first line\n  second line")

    assert one_line(checked(1), "first line second line$").state == state


def test_the_learners_random_state_is_left_alone_and_the_checks_is_always_the_same():
    seen = []

    @check
    def draws(function) -> str:
        seen.append(torch.randn(3))
        call(function, torch.randn(2))
        return ""

    def disturb(X):
        torch.manual_seed(99)
        return torch.rand(5)

    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
        assert draws(disturb) and doubled(double) and not doubled(fail_far_away)
        assert torch.equal(torch.get_rng_state(), states[0])
        assert np.array_equal(np.random.get_state()[1], states[1]) and random.getstate() == states[2]
    assert torch.equal(*seen)


def test_a_check_keeps_its_name_and_docstring_and_says_what_it_returns():
    assert doubled.__name__ == "doubled" and doubled.__doc__ == "Needed: twice the input."
    assert doubled.__annotations__["return"] is Verdict


def one_line(verdict, pattern):
    """The verdict, whose one line must show a pattern."""
    assert "\n" not in str(verdict) and re.search(pattern, str(verdict)), str(verdict)
    return verdict
