"""Whatever an answer does, the check goes on: hangs are cut short, errors told, changes in place seen."""

import contextlib
import gc
import io
import linecache
import os
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import matplotlib
import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import HTML, display
from IPython.utils.capture import capture_output
from matplotlib import pyplot

from mha_course.checking import limits, running
from mha_course.checking.exercise import exercise


@exercise(
    trials=lambda: [(torch.randn(shape),) for shape in [(2, 3), (3, 4), (4, 5)]],
    praise="Twice the input.",
    idea="Think.",
    begin="Begin.",
    mistakes="""
        2 * X -> X * X => This squares.
        2 * X -> X @ X => This is a matrix product.
    """,
)
def doubled(X):
    """Twice the input.

    X (any shape) → the same shape. Source: arithmetic.
    """
    return 2 * X


def double(X):
    return 2 * X


def double_and(do):
    """A right answer that also does something with what it is given."""

    def answer(X):
        do(X)
        return 2 * X

    return answer


def loop(X):
    while True:
        pass


def loop_and_catch_everything(X):
    while True:
        try:
            while True:
                try:
                    time.sleep(0.02)
                except:  # noqa: E722 - what a learner may write
                    pass
        except:  # noqa: E722
            pass


@pytest.mark.parametrize(
    ("hangs", "words"),
    [(loop, "ran for more than 0.2 seconds"), (loop_and_catch_everything, "did not return within 0.5 seconds")],
)
def test_a_hang_is_cut_short_outside_the_main_thread_too(hangs, words, monkeypatch):
    """Where an answer computes, its own time counts: a busy machine is no mistake. Where it waits, the clock counts."""
    computes = hangs is loop
    monkeypatch.setattr(running, "SECONDS", 0.2 if computes else 10)
    monkeypatch.setattr(running, "PATIENCE", 60 if computes else 0.5)
    verdict = doubled(hangs)
    assert (verdict.state, verdict.text) == ("wrong", f"Your code {words} with X of shape (2, 3).")
    with ThreadPoolExecutor() as pool:
        assert pool.submit(doubled, hangs).result() == verdict


def test_an_object_that_hangs_at_every_touch_holds_nothing_up(monkeypatch):
    class Hangs:
        def __getattribute__(self, name):
            loop(None)

        __repr__ = __eq__ = __hash__ = __len__ = __iter__ = __bool__ = __call__ = lambda *arguments: loop(None)

    monkeypatch.setattr(running, "SECONDS", 0.2)
    assert doubled(Hangs()).state == "wrong"
    monkeypatch.undo()
    assert "is needed, your function returns a Hangs." in doubled(lambda X: Hangs()).evidence


@pytest.mark.parametrize(("answer", "state"), [(double, "right"), (lambda X: X, "wrong")])
def test_where_nothing_can_be_forked_the_verdict_says_that_there_is_no_limit(answer, state, monkeypatch):
    monkeypatch.delattr(os, "fork")
    verdict = doubled(answer)
    assert verdict.state == state and verdict.next_step.endswith(f". {running.NO_LIMIT}")


def test_where_tests_run_answers_in_their_own_process_nothing_else_is_said(in_this_process, monkeypatch):
    verdict = doubled(double)
    monkeypatch.undo()
    assert running.NO_LIMIT not in repr(doubled(double))
    monkeypatch.delattr(os, "fork")
    assert doubled(double) == verdict


def test_what_the_kernel_owns_is_not_ended_by_an_answer(tmp_path):
    """A process that is forked gets copies of objects that hold files and connections open, and must not close them."""

    class Owned:
        def __init__(self):
            self.me = self

        def __del__(self):
            (tmp_path / str(os.getpid())).touch()

    gc.disable()  # so that it is there still, although nobody holds it, when the answer runs
    try:
        Owned()
        assert doubled(double_and(lambda X: gc.collect()))
        assert not list(tmp_path.iterdir())
    finally:
        gc.enable()
    gc.collect()
    assert [file.name for file in tmp_path.iterdir()] == [str(os.getpid())]


def test_an_answer_computes_although_the_threads_of_the_kernel_are_not_there():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        torch.ones(1_000_000).exp()  # starts them
        assert running.run_safely(lambda n: torch.ones(n).exp().sum(), [(1_000_000,)])[0].value > 1_000_000
    finally:
        torch.set_num_threads(before)


def test_an_interrupt_by_the_user_ends_answer_and_check(tmp_path):
    class TouchesAFile(io.StringIO):
        def write(self, text):
            (tmp_path / "the check is waiting").touch()
            return super().write(text)

    def interrupted(X):
        print("running")
        while not list(tmp_path.iterdir()):  # an interrupt while the check still forks would be lost in Python's hooks
            time.sleep(0.01)
        os.kill(os.getppid(), signal.SIGINT)
        loop(X)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores interrupts
    try:
        with contextlib.redirect_stdout(TouchesAFile()), pytest.raises(KeyboardInterrupt):
            doubled(interrupted)
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_an_answer_prints_is_shown(capsys):
    def tell(X):
        print("shape", tuple(X.shape))
        print("twice", file=sys.stderr, flush=True)

    assert doubled(double_and(tell))
    captured = capsys.readouterr()
    assert captured.out == "shape (2, 3)\nshape (3, 4)\nshape (4, 5)\n" and captured.err == "twice\n" * 3


def test_prints_are_cut_and_it_is_said(capsys):
    assert doubled(double_and(lambda X: print(*range(20_000), sep="\n")))
    printed = capsys.readouterr().out
    assert printed.startswith("0\n1\n2\n") and len(printed) < limits.PRINTED + 100
    assert printed.endswith(f"Your code prints more. {limits.PRINTED:,} characters of it are shown.\n")


@pytest.mark.parametrize(
    ("hungry", "words"),
    [
        (lambda X: [0.0] * 10**9, "more than 2 GB of memory"),
        (lambda X: torch.ones(10**10), "more than 2 GB of memory"),
        (lambda X: input("How much?"), "RuntimeError: input() cannot be answered while the check runs"),
    ],
)
def test_memory_and_questions_to_the_user_are_refused(hungry, words):
    verdict = doubled(hungry)
    assert verdict.state == "wrong" and words in verdict.text, verdict


@pytest.fixture
def shell():
    """An IPython shell that collects what is shown."""
    instance = InteractiveShell.instance()
    with contextlib.suppress(ImportError):  # once, the book's matplotlib asks for a name that IPython no longer has
        pyplot.install_repl_displayhook()
    yield instance
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    ("draws", "shown"),
    [
        (lambda X: display(HTML(f"{tuple(X.shape)}")), ["(2, 3)", "(3, 4)", "(4, 5)"]),
        (
            lambda X: display({limits.WIDGET: {}}, raw=True),
            3 * ["A widget that an answer makes cannot be shown while it is checked."],
        ),
        (
            lambda X: display(*(HTML(f"{number}") for number in range(30))),
            [*map(str, range(10)), "Your code draws more. 10 pictures of it are shown."],
        ),
    ],
)
def test_what_an_answer_draws_is_shown_or_it_is_said_that_it_is_not(draws, shown, shell):
    with capture_output() as captured:
        assert doubled(double_and(draws))
    assert [output.data.get("text/html", output.data["text/plain"]) for output in captured.outputs] == shown


def test_a_figure_that_is_left_open_is_shown_and_those_of_the_kernel_are_not_shown_again(shell):
    before = matplotlib.get_backend()
    pyplot.switch_backend("module://matplotlib_inline.backend_inline")
    try:
        matplotlib.interactive(True)  # as in a notebook
        pyplot.figure()
        with capture_output() as captured:
            assert doubled(double_and(lambda X: pyplot.plot([1, 2])))
        assert [output.data["text/plain"] for output in captured.outputs] == 3 * ["<Figure size 640x480 with 1 Axes>"]
    finally:
        pyplot.close("all")
        matplotlib.interactive(False)
        pyplot.switch_backend(before)


@pytest.mark.parametrize(
    ("mistyped", "words"),
    [
        (lambda numbers: 2 * nubmers, "name 'nubmers' is not defined (did you mean 'numbers'?)"),  # noqa: F821
        (lambda X: torch.mull(X, 2), "has no attribute 'mull' (did you mean 'mul'?)"),
        (lambda X: einops.rearrange(X, "a b -> b a"), "'einops' is not defined (first write: import einops)"),  # noqa: F821
        (lambda X: X * entirely_unknown, "name 'entirely_unknown' is not defined at"),  # noqa: F821
    ],
)
def test_a_name_that_is_not_defined_says_which_one_was_meant(mistyped, words):
    assert words in doubled(mistyped).text, doubled(mistyped)


def test_gradients_can_be_computed_in_an_answer():
    torch.randn(3, requires_grad=True).square().sum().backward()

    def by_gradient(X):
        X = X.clone().requires_grad_()
        return torch.autograd.grad(X.square().sum(), X)[0]

    assert doubled(by_gradient)


class RaisesAtEverything(Exception):
    def __str__(self):
        raise RuntimeError


def raise_unreadable(X):
    raise RaisesAtEverything


def fail_at_length(X):
    message = "first line\nbelow"
    raise ValueError(message)  # a long comment that nobody wants to read in a verdict


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (fail_at_length, ["Your code raises ValueError: first line at “raise", "…”. Seen with X of shape (2, 3)."]),
        (raise_unreadable, ["raises RaisesAtEverything at “raise RaisesAtEverything”"]),
        (lambda X: sys.exit("bye"), ["raises SystemExit: bye at"]),
        (lambda X: os._exit(0), ["Your code ended the process that it ran in with X of shape"]),
        (
            eval("lambda X: 1 / 0"),
            ["Your code raises ZeroDivisionError: division by zero. Seen with X of shape (2, 3)."],
        ),
        (lambda: 1, ["The function must take these arguments: X."]),
        (lambda X: X + torch.ones(7), ["one has 3 entries and the other 7"]),
        (lambda X: X @ X, ["This is a matrix product.", "raises RuntimeError: mat1 and mat2 shapes cannot be"]),
        (lambda X: X.t().view(-1), ["`view` cannot change the order of the numbers in memory"]),
        (lambda X: X.reshape(2, X.numel() / 2), ["Divide by `//`"]),
    ],
)
def test_an_error_is_told_with_its_kind_first_line_and_place(function, words, monkeypatch):
    monkeypatch.setitem(linecache.cache, "<string>", (1, None, ["import xdist\n"], "<string>"))  # by `python -c`
    verdict = doubled(function)
    assert verdict.state == "wrong" and "below" not in repr(verdict)
    assert all(word in repr(verdict) for word in words), verdict


@pytest.mark.parametrize(
    "changes", [lambda X: X.mul_(2), double_and(lambda X: X[0].fill_(torch.nan)), lambda X: (2 * X, X.t_())[0]]
)
def test_a_change_in_place_is_told(changes):
    assert doubled(changes).text.startswith("Your code changes `X` in place, which spoils the caller's tensor even")


@pytest.mark.parametrize("parts", [[torch.zeros(2)], (torch.zeros(2),), {0: torch.zeros(2)}])
def test_a_change_within_a_list_is_seen_and_reaches_no_one(parts):
    with pytest.raises(running.MistakeError, match="changes an argument in place"):
        running.run_safely(lambda *others: others[0][0].add_(1), [(parts,)])
    assert running.run_safely(lambda parts: parts[0] + 1, [(parts,)])[0].value.eq(1).all()
    assert running.run_safely(lambda X: 1, [(torch.tensor([torch.nan, 1]),)])[0].value == 1


class WeirdTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise SystemExit("no")


class Unequal:
    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = __len__ = __eq__


@pytest.mark.parametrize("odd", [None, Unequal(), torch.ones(2, device="meta"), torch.ones(3), 2, "x", [1]])
def test_whatever_an_answer_puts_into_a_list_that_it_was_given_is_told(odd):
    def puts(parts):
        parts[1] = odd
        return 1

    for held in (torch.ones(2), 1, [torch.ones(2)]):
        with pytest.raises(running.MistakeError, match="changes `parts` in place"):
            running.run_safely(puts, [([torch.zeros(2), held],)])
    assert running.run_safely(lambda parts: 1, [([torch.zeros(2), 1, "x", torch.nan, Unequal()],)])[0].value == 1


class Unreadable(NotImplementedError):
    def __str__(self):
        raise SystemExit("no")


def wrapped_in_itself(X):
    return None


wrapped_in_itself.__wrapped__ = wrapped_in_itself


def test_nothing_that_comes_of_a_call_ends_the_check():
    def later(X):
        raise Unreadable

    assert doubled(later).state == doubled(wrapped_in_itself).state == "not yet"


def doubling_back(value):
    """A list that holds twice what the list within it holds, and so on: it is short, but a copy of it is not."""
    for _ in range(60):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: torch.zeros(3_000_000), "a tensor of shape (3000000,)"),
        (lambda: torch.zeros(1).expand(10**12), "a tensor of shape (1000000000000,)"),
        (lambda: np.zeros(3_000_000), "a NumPy array of shape (3000000,)"),
        (lambda: [0.5] * 100_000, "a list of 100,000"),
        (lambda: [[0.5] * 1000] * 1000, "a list of 1,000, each a list of 1,000"),
        (
            lambda: [torch.zeros(n) for n in range(9)],
            "a list of 9 that holds a tensor of shape (0,), a tensor of shape (1,)",
        ),
        (lambda: doubling_back(1), "a list of 2, each a list of 2"),
        (lambda: dict.fromkeys(range(100_000)), "a dict of 100,000"),
        (lambda: 10**400, "an int"),
        (lambda: "x" * 3_000_000, "a str"),
        (lambda: type("K" * 3000, (), {})(), "a KKKK"),
    ],
)
def test_what_is_too_large_is_told_by_its_kind_and_not_looked_at(make, kind):
    verdict = doubled(lambda X: make())
    assert f"A tensor of shape (2, 3) is needed, your function returns {kind}" in repr(verdict)
    assert len(repr(verdict)) < 300 and not isinstance(verdict.got, torch.Tensor)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([[1.0]], "a tensor of shape (2, 3) is needed, your function returns a list of 1 that holds a list of 1."),
        ([], "your function returns a list of 0."),
        ([0.5] * 12, "your function returns a list of 12 numbers."),
        (["x", (1, 2)], "your function returns a list of 2 that holds a str, a tuple of 2."),
        (np.ones((2, 3)), "your function returns a NumPy array of shape (2, 3)"),
        (1.5, "returns a float"),
        (torch.ones(2, 3).as_subclass(WeirdTensor), "returns a WeirdTensor"),
        (torch.ones(3, 2), "the shape must be (2, 3), yours is (3, 2)"),
        (torch.ones(2, 3, dtype=torch.bool), "instead of"),
        (torch.ones(2, 3, dtype=torch.complex64), "your function returns a tensor of complex numbers of shape (2, 3)"),
        (torch.ones(2, 3, device="meta"), "is needed, your function returns a Tensor."),
        (torch.ones(2, 3).to_sparse(), "instead of"),
        (torch.full((2, 3), torch.nan), "position [0, 0] holds nan instead of"),
    ],
)
def test_a_wrong_value_is_described(value, words):
    verdict = doubled(lambda X: value)
    assert verdict.state == "wrong" and words.lower() in repr(verdict).lower(), verdict


@pytest.mark.parametrize("right", [double, torch.nn.Linear(1, 1), np.float64], ids=["function", "module", "type"])
def test_whatever_can_be_called_is_called(right):
    assert doubled(right).state == ("right" if right is double else "wrong")


def stub(X):
    raise NotImplementedError("later")


@pytest.mark.parametrize("answer", [None, ..., lambda X: None, lambda X: ..., stub])
def test_a_stub_is_not_yet_an_answer(answer):
    assert doubled(answer).state == "not yet" and "printing" not in doubled(answer).text
    assert "(printing is not returning)" in doubled(lambda X: print(2 * X)).text


def test_the_learners_random_state_is_left_alone_and_the_checks_is_always_the_same():
    def disturb(X):
        torch.manual_seed(99)
        return torch.rand(5)

    verdicts = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
        verdicts.append(doubled(disturb))
        assert torch.equal(torch.get_rng_state(), states[0])
        assert np.array_equal(np.random.get_state()[1], states[1]) and random.getstate() == states[2]
    assert torch.equal(*(verdict.inputs[0] for verdict in verdicts))
