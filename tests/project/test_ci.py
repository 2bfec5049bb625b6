"""Continuous integration takes what it must; a stage that fails or hangs ends it, is named, and leaves no process."""

import itertools
import os
import runpy
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import turns

RUN = Path(__file__).parents[2] / ".ci" / "run"
MAKE = """#!/usr/bin/env bash
echo "made $*"
[ "$*" != "$FAILS" ] || exit 1
[ "$*" != "$HANGS" ] || { sleep 6543 & echo $! > hanging; wait; }
"""


@pytest.fixture
def run(tmp_path):
    """Runs a copy of the script with a ``make`` that only says what it is asked for; a minute has one second."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(RUN, tmp_path / ".ci")
    for name in ("chromium", "firefox-esr", "WebKitWebDriver", "java", "xvfb-run", "make"):
        (tmp_path / "bin" / name).write_text(MAKE)
        (tmp_path / "bin" / name).chmod(0o755)

    def run(limits=("15", "80"), *arguments, **asked):
        script = tmp_path / ".ci" / "run"
        script.write_text(RUN.read_text().replace("stage 15", f"stage {limits[0]}").replace("=85 ", f"={limits[1]} "))
        env = os.environ | {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "MHA_CI_MINUTE": "1",
            "FAILS": "",
            "HANGS": "",
        }
        return subprocess.run([script, *arguments], env=env | asked, capture_output=True, text=True, timeout=60)

    return run


def made(done):
    """The stages that a run has made, in order."""
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("made ")]


REST = {  # what is not run every time, in its turn, and a file that only it sees well
    "test-browsers": "mha_lib/pictures/js/cells.js",
    "test-book-pins": "environment.yml",
    "test-elsewhere": "notebooks/elsewhere/jax.ipynb",
    "wheel": "mha_course/pyproject.toml",
    "test-classroom": "classroom/course.py",
    "test-research": "research/results/births.json",
}


def test_all_stages_pass_where_nobody_knows_what_has_changed(run):
    done = run()
    assert done.returncode == 0 and "FAILED" not in done.stdout and "RAN OVER" not in done.stdout
    assert {"nbgrader", "site", "test", "test-rounding", *REST} <= {*made(done)}


@pytest.fixture
def git(tmp_path, monkeypatch):
    """Git in the folder that is tested, with a file for each stage; its first commit was green at night."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a test")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "test@example.org")

    def git(*words):
        return subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    for name in REST.values():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    git("init", "--quiet")
    git("add", *REST.values())
    git("commit", "--quiet", "--message", "green at night")
    (tmp_path / ".ci").mkdir(exist_ok=True)
    (tmp_path / ".ci" / "nightly").write_text(git("rev-parse", "HEAD"))
    return git


def taken(done):
    """Those of the rest that a run has made."""
    assert done.returncode == 0, done.stdout
    return REST.keys() & made(done)


def test_of_the_rest_one_goes_by_turns_and_all_where_all_is_asked_for(run, git, tmp_path):
    (tmp_path / "build" / "executions").mkdir(parents=True)
    for number in range(2, 2 + len(REST)):
        git("commit", "--quiet", "--allow-empty", "--message", "nothing changes")
        done = run()
        assert taken(done) == {[*REST][number % len(REST)]}
        assert f"made test-rounding SEEDS=1 THIRD={number % 3}\n" in done.stdout and "made site\n" in done.stdout
    done = run(("15", "80"), "all")
    assert taken(done) == REST.keys() and "made test-rounding\n" in done.stdout
    assert not (tmp_path / "build" / "executions").exists()  # CI compares what has run in this run


@pytest.mark.parametrize("stage", REST)
def test_a_stage_runs_until_a_night_is_green_once_a_file_of_its_own_has_changed(run, git, tmp_path, stage):
    (tmp_path / REST[stage]).write_text("changed\n")
    if stage != "test-browsers":  # what moves and stays the same has not changed
        git("mv", "mha_lib", "mha_course")
    git("commit", "--quiet", "--all", "--message", "a change")
    for number in (3, 4):
        git("commit", "--quiet", "--allow-empty", "--message", "another")
        assert taken(run()) == {stage, [*REST][number % len(REST)]}
    (tmp_path / ".ci" / "nightly").write_text(git("rev-parse", "HEAD"))
    assert taken(run()) == {[*REST][number % len(REST)]}
    (tmp_path / ".ci" / "nightly").write_text("0" * 40)
    assert taken(run()) == REST.keys()


def test_four_turns_of_make_test_take_all_that_is_marked_quarter_and_each_takes_all_else(monkeypatch):
    monkeypatch.setattr(turns, "EVERYDAY", True)
    monkeypatch.delenv("MHA_NIGHTLY", raising=False)
    rules = runpy.run_path(str(RUN.parents[1] / "conftest.py"))
    config = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
    seen = []
    for number in (14, 15, 16, 17):
        monkeypatch.setattr(turns, "commits", lambda number=number: number)
        items = [marked(f"test {i}", *["quarter"] * (i % 3 > 0), *["long"] * (i % 5 == 0)) for i in range(40)]
        for _ in range(number):  # what another file has changes nobody's turn
            items.insert(0, marked("another", "quarter"))
            items[0].path = "another"
        rules["pytest_collection_modifyitems"](config, items)
        seen += [item.name for item in items if item.path == "one"]
    times = {name: seen.count(name) for name in seen}
    assert times == {f"test {i}": 1 if i % 3 > 0 and i % 5 > 0 else 4 for i in range(40)}


def marked(name, *marks):
    """What stands in for a test, as the rule sees one."""

    class Item:
        def get_closest_marker(self, mark):
            return mark if mark in marks else None

    item = Item()
    item.name, item.path = name, "one"
    return item


def test_cases_by_turns_are_all_seen_by_as_many_commits_and_in_one_night(monkeypatch):
    cases, seen = [*"abcdefghij"], []
    monkeypatch.delenv("MHA_NIGHTLY", raising=False)
    for number in (14, 15, 16, 17):
        monkeypatch.setattr(turns, "commits", lambda number=number: number)
        seen.append(turns.by_turns(cases, 4))
    assert sorted(itertools.chain(*seen)) == cases and max(map(len, seen)) == 3
    monkeypatch.setenv("MHA_NIGHTLY", "1")
    assert turns.by_turns(cases, 4) == cases
    monkeypatch.delenv("MHA_NIGHTLY")
    monkeypatch.setattr(turns, "commits", lambda: None)
    assert turns.by_turns(cases, 4) == cases


def test_a_green_night_names_its_commit_and_no_other_does(git, tmp_path):
    shutil.copy(RUN.parents[1] / "Makefile", tmp_path)
    script, kept = tmp_path / ".ci" / "run", tmp_path / ".ci" / "nightly"
    script.write_text("#!/bin/sh\ntest ! -e .git/red && test $1 = all\n")
    script.chmod(0o755)
    git("add", ".")
    git("commit", "--quiet", "--message", "all is committed")

    def nightly():
        return subprocess.run(["make", "nightly"], cwd=tmp_path, capture_output=True, text=True)

    before = kept.read_text()
    (tmp_path / "Makefile").write_text((tmp_path / "Makefile").read_text() + "\n")
    assert "proves a commit" in nightly().stdout and kept.read_text() == before
    git("checkout", "Makefile")
    (tmp_path / ".git" / "red").touch()
    assert nightly().returncode != 0 and kept.read_text() == before
    (tmp_path / ".git" / "red").unlink()
    assert nightly().returncode == 0 and kept.read_text().strip() == git("rev-parse", "HEAD") != before


def test_a_night_that_stopped_goes_on_at_the_same_commit_and_at_no_other(run, git, tmp_path):
    (tmp_path / ".gitignore").write_text("build\n")

    def night(*words, **asked):
        done = made(run(("15", "80"), *words, **asked))
        return [stage for stage in ("site", "test", "test-rounding", *REST) if stage in done]

    def commit():
        git("add", ".")
        git("commit", "--quiet", "--allow-empty", "--message", "all is committed")

    everything = night("all")
    commit()
    assert night("all", FAILS="test-elsewhere") == everything[: everything.index("test-elsewhere") + 1]
    proven = (tmp_path / "build" / "proven").read_text()
    assert {*everything[:3]} < {*night()}  # only a night goes on
    (tmp_path / "new.py").write_text("")
    assert night("all", FAILS="test-elsewhere") == everything[: everything.index("test-elsewhere") + 1]
    assert (tmp_path / "build" / "proven").read_text() == proven
    (tmp_path / "new.py").unlink()
    assert night("all") == ["site", *everything[everything.index("test-elsewhere") :]]
    assert night("all", FAILS="test-research") == everything  # that night was green, and this is another
    commit()
    assert night("all", FAILS="wheel WHEEL_NOTEBOOKS=00 03", MHA_WITHOUT_REAL_MODELS="1")[-1] == "wheel"
    assert night("all") == everything


def test_the_first_failure_ends_the_run(run):
    done = run(FAILS="site")
    assert done.returncode == 1 and "make site            FAILED" in done.stdout and "made test" not in done.stdout


def test_real_models_that_cannot_be_installed_are_reported(run):
    done = run(FAILS="real-models")
    assert done.returncode == 0 and "REPORT: the real models could not be installed" in done.stdout


@pytest.mark.parametrize(("limits", "said"), [(("2", "80"), "RAN OVER its 2 minutes"), (("9", "3"), "all stages")])
def test_a_stage_that_hangs_is_named_and_ended(run, tmp_path, limits, said):
    done = run(limits, HANGS="site")
    assert done.returncode == 1 and "made test" not in done.stdout
    assert said in next(line for line in done.stdout.splitlines() if line.startswith("make site "))
    hanging = Path(f"/proc/{(tmp_path / 'hanging').read_text().strip()}/cmdline")
    for _ in range(50):  # a signal takes its time
        if not hanging.exists() or b"sleep" not in hanging.read_bytes():
            return
        time.sleep(0.1)
    raise AssertionError("what the stage started still runs")
