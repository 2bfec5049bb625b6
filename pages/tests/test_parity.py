"""The verdict of a page is the kernel's: on right answers, on every listed mistake, on other wrong ones."""

import ast
import base64
import functools
import gzip
import inspect
import json
import linecache
import re
import subprocess
import sysconfig
from pathlib import Path

import cases
import layer
import pytest
import verdict

from mha_course import exercises
from mha_course.checking import running
from mha_course.checking.edits import rows_of, source_of_answer
from mha_course.exercises import on_a_page, whole_layer
from pages import export, runtime


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Answers run in this process, and no record is kept."""
    monkeypatch.setattr(running, "can_fork", lambda: False)
    monkeypatch.setattr("mha_course.kept_work.record", lambda *_: None)


@functools.cache
def data_of(name):
    verdict.use(export.words())
    return json.loads(on_a_page.as_json(on_a_page.data_of(exercises.COURSE[name])))


@pytest.fixture(params=on_a_page.PAGES)
def pair(request):
    """An exercise, and the check of its page."""
    return exercises.COURSE[request.param], layer.checker(data_of(request.param))


def by_kernel(exercise, name, source):
    """What the kernel says of an answer; of dropout and gradients a page says nothing."""
    file = f"<answer {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names = dict(whole_layer.AT_HAND)
    exec(compile(source, file, "exec"), names)
    said = exercise(names[name])
    return said.state, said.text.replace("Dropout acts on the weights. ", ""), said.evidence.replace("gradients, ", "")


def listed_mistakes(exercise):
    """The sources of the mistakes that stand in an exercise's table, as edits of the right answer."""
    if exercise.__name__ == "layer_by_formula":
        return edited(cases.WRONG_LAYERS, data_of(exercise.__name__)["solution"])
    decorator = ast.parse(inspect.getsource(exercise.right)).body[0].decorator_list[0]
    [table] = [keyword.value for keyword in decorator.keywords if keyword.arg == "mistakes"]
    tables = eval(compile(ast.Expression(table), "table", "eval"), exercise.right.__globals__)
    tables = [tables] if isinstance(tables, str) else tables
    return [source for each in tables for source in edited(each, source_of_answer(exercise.right))]


def edited(table, right):
    """The right answer with each edit of a table."""
    right = re.sub("  # .*", "", right)
    return [
        re.sub("|".join(map(re.escape, own)), lambda found, own=own: own[found[0]], right) for _, own in rows_of(table)
    ]


def differing(exercise, checker, sources):
    """Of which answers the page says another class of verdict than the kernel, and of which another name."""
    states, texts = [], []
    for source in sources:
        kernel, own = by_kernel(exercise, checker.data["name"], source), tuple(checker.check(source).values())
        both = source, kernel, own
        states += [both] * (kernel[0] != own[0])
        texts += [both] * (kernel != own)
    return states, texts


def test_right_answers_in_six_styles(pair):
    exercise, checker = pair
    sources = cases.right_answers(exercise, checker.data["solution"])
    assert [checker.check(source)["state"] for source in sources] == ["right"] * 6
    assert differing(exercise, checker, sources) == ([], [])


@pytest.mark.long
def test_every_listed_mistake_has_its_name(pair):
    exercise, checker = pair
    assert differing(exercise, checker, listed_mistakes(exercise)) == ([], [])


@pytest.mark.long
def test_mistakes_that_are_programs_have_their_names(pair, monkeypatch):
    exercise, checker = pair
    given = iter(())
    monkeypatch.setattr(checker, "namespace", lambda: {exercise.__name__: lambda *_: next(given)})
    for row in checker.data["mistakes"]:
        if any(row.get("wrong", ())) and all("r" in told for told in row["of"]):
            given = iter([verdict.decoded(told["r"]) for told in row["of"]])
            assert checker.check("")["text"] == row["text"]


@pytest.mark.long
def test_other_wrong_answers(pair):
    exercise, checker = pair
    others = cases.other_answers(checker.data["solution"])[::2]
    states, texts = differing(exercise, checker, others)
    assert states == []
    assert len(texts) <= 0.1 * len(others), texts


@pytest.mark.long
def test_micropython_says_the_same(tmp_path):
    """As the page holds it; of errors that are Python's own, it has words of its own."""
    page = runtime.PAGE.read_text(encoding="utf-8")
    for name, part in re.findall('"(runtime|wasm|[a-z]+.py|words.json)": "([^"]*)"', page):
        (tmp_path / name).write_bytes(gzip.decompress(base64.b64decode(part)))
    asked, said = [], []
    for name in on_a_page.PAGES:
        exercise, checker = exercises.COURSE[name], layer.checker(data_of(name))
        wrong = [*listed_mistakes(exercise), *cases.other_answers(checker.data["solution"])]
        sources = cases.right_answers(exercise, checker.data["solution"]) + wrong[::7]
        asked.append((checker.data, sources))
        said += map(checker.check, sources)
    (tmp_path / "cases.json").write_text(json.dumps(asked), encoding="utf-8")
    deno = Path(sysconfig.get_path("scripts")) / "deno"
    command = [deno, "run", "--allow-read", Path(__file__).with_name("answers.mjs"), tmp_path]
    heard = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert [one["state"] for one in heard] == [one["state"] for one in said]
    other = [(a, b) for a, b in zip(heard, said, strict=True) if a != b and "Error" not in a["text"] + a["evidence"]]
    assert other == []


def test_an_exercise_without_a_page_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'two_heads' has no page; those that have one: transpose_qkv"):
        exercises.page("two_heads", tmp_path)


def test_a_page_is_written_with_its_exercise(tmp_path):
    text = exercises.page("transpose_qkv", tmp_path).read_text(encoding="utf-8")
    assert text.count("<h1>Write <code>transpose_qkv</code></h1>") == 1 and len(text) < 700_000
    assert re.findall("@@[A-Z]+@@", text) == []
