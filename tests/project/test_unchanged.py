"""`make test` runs a file of tests again unless all was green there and nothing that decides it has changed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import unchanged

FILES = {
    "conftest.py": "import unchanged\n\ndef pytest_configure(config):\n"
    "    config.pluginmanager.register(unchanged.Unchanged(config.rootpath))\n",
    "pyproject.toml": "[tool.pytest.ini_options]\n",
    "mha_lib/masks.py": "",
    "mha_course/language.py": "",
    "mha_course/models/sizes.json": "{}",
    "mha_course/checking/running.py": "",
    "mha_course/exercises/tables.py": "",
    "notebooks/01.ipynb": "{}",
    "tests/rooms.py": "",
    "tests/turns.py": "",
    "tests/unchanged.py": "",
    "tests/heads/helper.py": "",
    "tests/heads/test_heads.py": "import helper\n\ndef test(): pass\n",
    "tests/exercises/test_judged.py": "import os, pytest\n# exercises\n@pytest.mark.parametrize('n', [1, 2])\n"
    "def test(n):\n    if n == 2 and 'DO' in os.environ: exec(os.environ['DO'])\n",
    "tests/browser/test_site.py": "SITE = 'build/site'\n\ndef test(): pass\n",
    "tests/project/test_all.py": "def test(): pass\n",
}
HEADS, JUDGED = "tests/heads/test_heads.py", "tests/exercises/test_judged.py"
ALWAYS = {"tests/browser/test_site.py", "tests/project/test_all.py"}


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder, *options, **env):
    """The files of tests that ran."""
    path = f"{Path(unchanged.__file__).parent}{os.pathsep}{folder / 'tests' / 'heads'}"
    env |= {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-vp", "no:cacheprovider", "-p", "xdist.plugin", *options, "tests"]
    done = subprocess.run(command, cwd=folder, env=os.environ | env, capture_output=True, text=True)
    return set(re.findall(r"tests/\w+/\w+\.py", done.stdout.partition("short test summary")[0]))


def test_what_was_green_is_not_run_again_and_what_was_not_is(project):
    everything = {HEADS, JUDGED, *ALWAYS}
    assert run(project, "--numprocesses=2") == everything and run(project, "--numprocesses=2") == ALWAYS
    (project / "mha_course/exercises/tables.py").write_text("changed")
    for done in ("assert False", "pytest.skip('needs Chromium')", "os._exit(1)"):
        assert run(project, "--numprocesses=2", DO=done) == {JUDGED, *ALWAYS}
    assert run(project, "-k", "test and not 2") == {JUDGED, *ALWAYS}
    assert run(project, DO="pytest.skip('long: MHA_LONG=1 runs it')") == {JUDGED, *ALWAYS}
    assert run(project) == ALWAYS


@pytest.mark.parametrize(
    ("changed", "heads", "judged"),
    [
        (HEADS, True, False),
        ("tests/heads/helper.py", True, False),
        ("mha_lib/masks.py", True, True),
        ("mha_course/language.py", True, True),
        ("mha_course/exercises/tables.py", False, True),
        ("mha_course/checking/running.py", False, True),  # which exercises may import
        ("mha_course/models/sizes.json", False, True),
        ("conftest.py", True, True),
        ("notebooks/01.ipynb", False, False),
    ],
)
def test_what_decides_a_file(project, changed, heads, judged):
    def keys():
        unchanged._digest.cache_clear()
        return [unchanged.key(project / name, ["test"], project) for name in (HEADS, JUDGED)]

    before = keys()
    assert before == keys()
    (project / changed).write_text("changed")
    assert [old != new for old, new in zip(before, keys(), strict=True)] == [heads, judged]


def test_other_tests_of_a_file_or_other_packages_make_it_run(project, monkeypatch):
    path = project / HEADS
    before = unchanged.key(path, ["one"], project)
    assert unchanged.key(path, ["one", "two"], project) != before == unchanged.key(path, ["one"], project)
    monkeypatch.setenv("MHA_DEVICE", "cuda")
    assert unchanged.key(path, ["one"], project) != before
    monkeypatch.undo()
    (project / "installed").write_text("other packages")
    monkeypatch.setattr(unchanged.sys, "prefix", str(project))
    assert unchanged.key(path, ["one"], project) != before


def test_an_exercise_and_a_picture_decide_their_own_tests_and_not_those_of_the_library():
    rooms = [unchanged.ROOT / "mha_course" / name for name in ("exercises", "pictures")]
    for name, needs in {
        "exercises/test_mistakes.py": [True, False],
        "museum/test_half_written.py": [True, False],
        "browser/test_pictures_on_a_page.py": [False, True],
        "pictures/test_charts.py": [False, True],
        "attention/test_masks.py": [False, False],
        "heads/test_plans.py": [False, False],
    }.items():
        found = unchanged.places(unchanged.ROOT / "tests" / name)
        assert [room in found for room in rooms] == needs, name
