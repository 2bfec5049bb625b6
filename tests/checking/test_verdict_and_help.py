"""What a learner is shown: verdicts as text and in colour, what is said of mistakes nobody listed, help in steps."""

import collections
import inspect
import json
import os
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from IPython.core.formatters import DisplayFormatter

from mha_course import exercises, kept_work
from mha_course.checking.exercise import exercise
from mha_course.checking.verdict import Verdict
from mha_course.exercises import COURSE


def asked(trials, mistakes):
    return exercise(trials=trials, praise="So.", idea="Think.", begin="Begin.", mistakes=mistakes)


@asked(
    lambda: [(torch.tensor([-3.0, -1.0, 0.0, 0.5, 2.5]),), (3 * torch.randn(3, 7),)],
    ".relu() -> _ => Beyond two hours the line goes on below 0.",
)
def triangle(distance):
    """Return 1 at distance 0, less in a straight line, and 0 from two hours on."""
    return (1 - distance.abs() / 2).relu()


@asked(
    lambda: [(torch.randn(2, 3, 5), torch.randn(2, 4, 5), 0.5), (torch.randn(3, 2, 7), torch.randn(3, 6, 7), 3.0)],
    "queries @ keys.mT -> 2 * queries @ keys.mT => The scores are twice as large as they should be.",
)
def scaled_scores(queries, keys, std):
    return queries @ keys.mT / (std**2 * queries.shape[-1] ** 0.5)


@asked(lambda: {"": [(torch.ones(3),)], "below 0": [(-torch.ones(3),)]}, ".relu() -> _ => Numbers below 0 stay.")
def cut_off(X):
    return X.relu()


@asked(lambda: [(torch.randn(3),), (torch.randn(5),)], "X + X -> X => The numbers are not doubled.")
def twice(X):
    return X + X


@asked(
    lambda: [(7, 2), (23, 5)],
    "number // divisor, number % divisor -> number % divisor, number // divisor => Two are exchanged.",
)
def division(number, divisor):
    return number // divisor, number % divisor, number


@asked(lambda: [(6, False), (4, True), (2, False)], "size**2 -> size => The size is not squared.")
def parameters_of(size, bias):
    return 4 * size**2 + 4 * size * bias


@asked(lambda: [(torch.randn(9, 4),), (torch.randn(6, 3),)], "dim=0) -> dim=0)[::-1] => The order is wrong.")
def thirds(W):
    return W.tensor_split(3, dim=0)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of a learner's own, empty, as if no test were running; and one more exercise of the course."""
    monkeypatch.delenv("MHA_PROGRESS")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kept_work, "this_sitting", {})
    monkeypatch.setitem(COURSE, "triangle", triangle)
    return tmp_path / "home" / ".cache" / "mha_lib" / "progress.json"


def test_every_exercise_of_the_course_has_a_name_and_help():
    assert len(COURSE) >= 27 and set(COURSE) <= set(exercises.__all__)
    for name, asked in COURSE.items():
        assert getattr(exercises, name) is asked and inspect.getdoc(asked)
        assert all(hint.endswith((".", "?")) for hint in asked.hints.values()) and len(asked.hints) == 3


class Weird:
    """Raises at whatever is done with it."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError

    __eq__ = __bool__ = __len__ = __iter__ = __getitem__ = __float__ = __hash__ = __str__ = __format__ = __repr__


NONSENSE = {
    "number": 0.5,
    "list": [[1, 2], [3]],
    "NaN": torch.full((4, 4), torch.nan),
    "weird": Weird(),
    "gives an empty tensor": lambda *arguments: torch.empty(0),
    "gives its argument": lambda *arguments: arguments[0],
    "gives something weird": lambda *arguments: Weird(),
}


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("answer", NONSENSE)
@pytest.mark.parametrize("name", COURSE)
def test_nonsense_is_wrong_and_no_crash(name, answer):
    verdict = COURSE[name](*[NONSENSE[answer]] * (2 if name == "two_heads" else 1))
    assert verdict.state == "wrong" and len(repr(verdict)) < 900 and verdict._repr_html_()


def test_a_verdict_is_shown_in_colour_with_evidence_folded_and_as_plain_text():
    verdict = triangle(lambda distance: 1 - distance.abs() / 2)
    assert repr(verdict).splitlines() == [
        "✗ Not right. Beyond two hours the line goes on below 0.",
        "Position [0] holds -0.5 instead of 0. Seen with distance of shape (5,).",
        'Stuck? `exercises.hint("triangle")`',
    ]
    shown = DisplayFormatter().format(verdict)[0]
    assert shown["text/plain"] == repr(verdict)
    page = shown["text/html"]
    assert "--jp-warn-color1" in page and "<code>exercises.hint" in page and "role='status'" in page
    diagnosis, folded = page.split("<details>")
    assert "goes on below 0" in diagnosis and "Position [0]" in folded
    assert "<caption>yours</caption>" in folded and "<caption>expected</caption>" in folded
    assert "--jp-success-color1" in triangle(triangle.right)._repr_html_()
    (distance,) = verdict.inputs
    assert torch.equal(verdict.got, 1 - distance.abs() / 2) and torch.equal(verdict.expected, verdict.got.relu())


class Open(HTMLParser):
    """The tags that are open while a page is read; one that closes is the last that was opened."""

    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.tags.pop() == tag


@pytest.mark.parametrize("got", [torch.ones(9, 9), torch.full((2, 2), torch.nan), torch.tensor([True]), [1, 2]])
def test_any_numbers_can_be_shown_as_tables(got):
    page = Verdict("wrong", "<b>", "seen", got=got, expected=torch.zeros(3))._repr_html_()
    assert "&lt;b&gt;" in page and page.count("<td") in (0, 4 + 3, 1 + 3, 64 + 3)
    opened = Open()
    opened.feed(page)
    assert not opened.tags


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda right: -right, "Every number has the wrong sign."),
        (lambda right: -3 * right, "Every number is -3 times what it should be."),
        (lambda right: right + 2, "To every number 2 is added."),
        (lambda right: right * right.shape[1], "off by one factor, which changes from call to call: 3, 2."),
        (lambda right: right.square(), "This is the square of what is asked for."),
        (lambda right: 1 - right, "This is 1 minus what is asked for."),
        (lambda right: right.flip(2), "in reverse order along axis 2"),
        (lambda right: right.roll(1, 1), "one position too far on along axis 1"),
        (lambda right: right.flatten()[torch.randperm(right.numel())].view(right.shape), "at other positions"),
        (lambda right: right.transpose(0, 2), "Axes 0 and 2 are exchanged."),
        (lambda right: right.sum(1), "Axis 1 of the right result is summed away."),
        (lambda right: right.mean(2), "Axis 2 of the right result is averaged away."),
        (lambda right: right.softmax(2), "A softmax along axis 2 was taken of the right numbers."),
        (lambda right: right[0], "Only the first entry along axis 0 is left."),
        (lambda right: right.flatten(), "the axes are split or merged in another way"),
        (lambda right: torch.ones_like(right), "All numbers of the result are the same"),
        (lambda right: right.amax().expand_as(right), "Within a call all numbers of the result are the same."),
        (lambda right: right[:1].expand_as(right), "the same for every entry along axis 0"),
        (lambda right: torch.cat([right[:1], right[1:] + right[:1]]), "The first entry along axis 0 is right"),
        (lambda right: right / 0, "NaN or infinity"),
        (lambda right: (right, right.cos()), "Part 0, counted from 0, is right"),
    ],
)
def test_a_mistake_that_nobody_listed_is_described_by_what_it_does(change, words):
    verdict = scaled_scores(lambda queries, keys, std: change(scaled_scores.right(queries, keys, std)))
    assert verdict.state == "wrong" and words in verdict.text, verdict


Division = collections.namedtuple("Division", ["quotient", "remainder", "number"])
FORMS = {
    "a list": (twice, lambda X: X.tolist(), "come as a list of 3 numbers; a tensor of shape (3,) is needed."),
    "nested": (COURSE["contribution_map"], lambda X: X.tolist(), "each a list of 2; a tensor of shape (2, 2, 3, 4) is"),
    "tensors": (triangle, tuple, "come as a tuple of 5, each a tensor of shape (); a tensor of shape (5,) is needed."),
    "an array": (triangle, lambda X: X.numpy(), "a NumPy array of shape (5,); a tensor of shape (5,) is needed."),
    "named": (thirds, lambda X: dict(zip("qkv", X, strict=True)), "a dict of 3; 3 matrices of shape (3, 4)"),
    "matrices": (thirds, lambda X: [W.tolist() for W in X], "come as a list of 3, each a list of 3; 3 matrices"),
    "in order": (division, lambda X: dict(enumerate(X)), "come as a dict of 3; 3 numbers are needed."),
    "one": (parameters_of, lambda X: torch.tensor([X]), "it comes as a tensor of shape (1,); one number is needed."),
    "one of a list": (parameters_of, lambda X: [X], "but it comes as a list of 1 number; one number is needed."),
}


@pytest.mark.parametrize(("asks", "pack", "words"), FORMS.values(), ids=FORMS)
def test_right_numbers_in_another_form_are_told_so_and_wrong_ones_are_not(asks, pack, words):
    right = asks.right
    text = asks(lambda *arguments: pack(right(*arguments))).text
    assert text.startswith(("The numbers are right, but they", "The number is right, but it")) and words in text
    wrong = asks.mistakes[0][1]
    assert "right, but" not in asks(lambda *arguments: pack(wrong(*arguments))).text


@pytest.mark.parametrize("form", [lambda X: Division(*X), np.array, lambda X: [torch.tensor(X[0]), *X[1:]]])
def test_several_numbers_may_come_in_anything_that_has_an_order(form):
    assert division(lambda *arguments: form(division.right(*arguments)))


def test_equal_calls_with_different_results_are_told():
    alike = asked(lambda: [(torch.ones(3),)] * 2, "X / 2 -> X => No.")(half)
    assert alike(lambda X: X / 2 + torch.rand(3)).text.startswith("Two calls with equal arguments give different")
    for steady in (lambda X: X / 3, lambda X: (X, X[:1]), lambda X: torch.nn.ReLU()):
        assert "equal arguments" not in alike(steady).text


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        ("X / 2 → X ⇒ No.", 'a row must read "old -> new => what is said"'),
        ("X / 2 -> X", 'a row must read "old -> new => what is said"'),
        ("X / 2 => No.", 'a row must read "old -> new => what is said"'),
        ("X * 2 -> X => No.", r"what is replaced must stand there once; 'X \* 2' stands there 0 times"),
        ("X -> Y => No.", "the row .* => No.*'X' stands there 2 times"),
        ("X / 2 -> (X => No.", "makes no Python"),
    ],
)
def test_a_slip_in_a_table_is_an_error_at_once(slip, words):
    with pytest.raises(ValueError, match=words):
        asked(list, slip)(half)


def test_a_mistake_that_shows_in_other_calls_alone_is_not_named():
    assert cut_off(lambda X: X).text == "Numbers below 0 stay."
    assert "must be floating-point numbers, yours are torch.int64" in cut_off(lambda X: X.relu().long()).text


def test_an_argument_that_is_given_back_or_never_looked_at_is_told():
    assert "argument 0" in triangle(lambda distance: distance).text
    unlisted = scaled_scores(lambda queries, keys, std: (queries @ keys.mT).sinh())
    assert unlisted.text == "Your code does not use `std`."
    no_bias = parameters_of(lambda size, bias: size * 4 + 3)
    assert no_bias.text == "Your code does not use `bias`."


def half(X):
    return X / 2


def test_hints_come_one_by_one_and_none_is_empty():
    pages = [repr(exercises.hint("contribution_map")) for _ in range(4)]
    assert [len(page.splitlines()) for page in pages] == [1, 2, 3, 3] and pages[2].startswith(pages[0])
    with pytest.raises(ValueError, match="there is no exercise 'hear'; there are: layer_by_formula, "):
        exercises.hint("hear")
    hasty = exercise(trials=list, praise="So.", idea="Think.", begin="Begin.", mistakes="X / 2 -> X => X.")(half)
    assert hasty.hints == {"The idea": "Think.", "To begin with": "Begin."}


def test_the_worked_answer_comes_after_three_tries(cache):
    for left in ("3 more tries", "2 more tries", "1 more try"):
        assert left in repr(exercises.solution("triangle"))
        triangle(lambda distance: ...)  # a stub is no try
        triangle(lambda distance: 1 - distance)
    assert repr(exercises.solution("triangle")).endswith(triangle.solution)
    assert "1 - distance" in repr(exercises.solution("triangle")).split("# worked")[0]


def test_the_worked_answer_comes_after_success_and_is_kept_between_sittings(cache, monkeypatch):
    assert triangle(triangle.right)
    monkeypatch.setattr(kept_work, "this_sitting", {})
    page = exercises.solution("triangle")
    assert "def triangle(distance):" in repr(page) and page._repr_html_().startswith("<details><summary>")
    assert json.loads(cache.read_text()) == {"triangle": {"tries": 1, "solved": True}}
    told = repr(exercises.progress())
    assert f"1 of {len(COURSE)} exercises solved" in told and "✓ triangle" in told


def test_an_instructor_can_switch_worked_answers_off(cache, monkeypatch):
    monkeypatch.setenv("MHA_SOLUTIONS", "off")
    assert triangle(triangle.right)
    assert "switched off" in repr(exercises.solution("triangle")) and not cache.exists()


def test_a_class_that_shares_its_trained_models_shares_nobodys_progress(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("MHA_CACHE", str(tmp_path / "shared"))
    assert triangle(triangle.right)
    assert "triangle" in json.loads(cache.read_text()) and not (tmp_path / "shared").exists()


def test_tests_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert os.environ["MHA_PROGRESS"] == "off" and triangle(triangle.right) and not list(tmp_path.iterdir())


TRIED = {"tries": 2, "solved": False}
SOLVED = {"tries": 1, "solved": True}


@pytest.mark.parametrize(
    ("entry", "mended"),
    [
        ({}, SOLVED),
        (1, SOLVED),
        (None, SOLVED),
        ({"tries": 2}, {"tries": 3, "solved": True}),
        ({"tries": "2", "solved": 1}, SOLVED),
        ({"tries": None, "solved": True, "text": ["x"]}, SOLVED),
    ],
)
def test_a_spoilt_entry_of_the_record_costs_itself_alone(entry, mended, cache, monkeypatch):
    cache.parent.mkdir(parents=True)
    others = {"rope": TRIED, "prediction x": {"text": "mine"}}
    cache.write_text(json.dumps({"triangle": entry, "prediction y": entry} | others))
    assert "✗ rope" in repr(exercises.progress()) and exercises.predict("y").predicted == ""
    assert "more tr" in repr(exercises.solution("step"))
    assert triangle(triangle.right)
    monkeypatch.setattr(kept_work, "this_sitting", {})
    assert exercises.predict("x").predicted == "mine" and "✓ triangle" in repr(exercises.progress())
    written = json.loads(cache.read_text())
    assert written["triangle"] == mended and written.items() >= others.items()


def test_a_record_that_cannot_be_read_is_set_aside(cache):
    cache.parent.mkdir(parents=True)
    damaged = b"", b"[]", b'"x"', b"null", b'{"rope": {"tri', b"\xff\x00", b"[" * 100_000
    for content in damaged:
        cache.write_bytes(content)
        assert "exercises solved" in repr(exercises.progress())
        with pytest.warns(UserWarning, match=r"progress\.json could not be read; it is now progress\.damaged"):
            assert triangle(triangle.right)
        assert "triangle" in json.loads(cache.read_text())
        assert sorted(cache.parent.iterdir()) == [cache.with_suffix(".damaged"), cache]
        assert cache.with_suffix(".damaged").read_bytes() == content
    for path in cache.parent.iterdir():
        path.unlink()
    cache.mkdir()
    with pytest.warns(UserWarning, match="could not be read"):
        assert triangle(triangle.right)
    assert "triangle" in json.loads(cache.read_text())


def test_without_a_folder_or_a_home_the_record_lasts_as_long_as_the_kernel(cache, monkeypatch):
    cache.parent.parent.mkdir(parents=True)
    cache.parent.write_text("a file where the folder should be")
    assert triangle(triangle.right) and "✓ triangle" in repr(exercises.progress())
    monkeypatch.setattr(kept_work, "this_sitting", {})
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31)  # a user of a container whom the system does not know
    assert triangle(triangle.right) and "✓ triangle" in repr(exercises.progress())


def test_a_prediction_is_kept_and_shown_beside_the_answer_as_text(cache, monkeypatch):
    asked = exercises.predict("two heads")
    assert repr(asked) == "Your prediction: …"
    asked.keep("  ")
    asked.keep(" the <same> ")
    assert repr(asked) == "You predicted: the <same>" and "the &lt;same&gt;" in asked.page()._repr_html_()
    answered = exercises.answer("two heads", "They differ.")
    assert repr(answered) == "You predicted: the <same>\nThey differ."
    assert answered._repr_html_().startswith("<details open>") and "the &lt;same&gt;" in answered._repr_html_()
    monkeypatch.setattr(kept_work, "this_sitting", {})
    assert repr(exercises.predict("two heads")) == "You predicted: the <same>"
    assert "two heads" not in repr(exercises.progress())


def test_what_is_typed_takes_the_place_of_the_input(cache, monkeypatch):
    shown = []

    class Shown:
        def update(self, data, raw):
            shown.append(data)

    monkeypatch.setattr("IPython.display.display", lambda data, **options: shown.append(data) or Shown())
    asked = exercises.predict("softmax")
    asked._ipython_display_()
    assert shown[0]["text/plain"] == "Your prediction: …" and "application/vnd.jupyter.widget-view+json" in shown[0]
    asked.field.value = "wide"
    assert shown[1] == {"text/plain": repr(asked), "text/html": asked.page()._repr_html_()} and "wide" in repr(asked)


def test_an_answer_is_folded_until_something_is_predicted(cache):
    table = exercises.hint("triangle")  # it shows as HTML
    answered = exercises.answer("three heads", "1 < 2", table)
    assert repr(answered) == f"1 < 2\n{table!r}"
    page = answered._repr_html_()
    assert page.startswith("<details><summary>")
    assert page.endswith(f"<pre>1 &lt; 2</pre>{table._repr_html_()}</details>")


def test_an_error_is_the_headline_and_text_and_evidence_come_from_one_call():
    def over_keys(weights, values, W_o):
        columns = W_o.unflatten(1, (weights.shape[1], -1)).transpose(0, 1)
        return weights * (values @ columns.mT).norm(dim=2)[:, :, None]

    verdict = COURSE["contribution_map"](over_keys)
    assert "An error is raised" in verdict.text and "Your code raises RuntimeError" in verdict.evidence, verdict
    missing = COURSE["own_importance"](lambda accuracy, shape: shape.counts).text
    assert "no attribute 'counts' (did you mean 'count'?)" in missing and "row for each layer" not in missing


def test_a_comma_too_many_a_class_and_half_precision_are_told_as_such():
    assert triangle(lambda distance: (triangle.right(distance),)).text == (
        "The numbers are right, but they come as a tuple of 1 part, as a comma behind the returned value makes it. "
        "Return the part itself."
    )
    assert triangle(lambda distance: (distance,)).text.startswith("The function returns a tuple of 1 part, as a comma")
    assert triangle(torch.nn.ReLU).text == "This is a class. Give a function, or an instance of the class."
    halves = triangle(lambda distance: triangle.right(distance).bfloat16())
    assert "only to the precision of torch.bfloat16" in halves.text


def test_the_kind_of_call_that_fails_is_named_by_its_stage_or_by_a_whole_number():
    blockwise = COURSE["blockwise_attention"]

    def in_one(queries, keys, values, allowed, block_size):
        right = blockwise.right(queries, keys, values, allowed, block_size)
        return right if block_size >= len(keys) else right.cos()

    assert blockwise(in_one).text == "Right in a single block, but not in several blocks."
    biased = parameters_of(lambda size, bias: parameters_of.right(size, bias) + (17 if bias else 0))
    assert biased.text == "Right with bias = False; wrong with bias = True."


def test_at_most_two_arguments_are_named_and_those_that_can_be_written_out_first():
    sum_over_heads = COURSE["sum_over_heads"]

    def with_noise(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
        right = sum_over_heads.right(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads)
        return right + torch.linspace(0, 1, right.numel()).view(right.shape).cos()

    assert sum_over_heads(with_noise).text.endswith("Seen with num_heads = 2 and valid_lens [1, 2].")
    assert "cost = " not in repr(COURSE["covering_head"](lambda cost, head, others: others[0]))
