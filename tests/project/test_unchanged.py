"""`make test` runs a file of tests again unless all was green there and nothing that decides it has changed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import unchanged

REACHED = Path("tools/reached.py")
FILES = {
    "conftest.py": "import unchanged\n\ndef pytest_configure(config):\n"
    "    config.pluginmanager.register(unchanged.Unchanged(config))\n",
    "pyproject.toml": "[tool.pytest.ini_options]\n",
    "mha_lib/masks.py": "",
    "mha_course/__init__.py": "",
    "mha_course/language.py": "",
    "mha_course/models/tasks.py": "",
    "mha_course/models/sizes.json": "{}",
    "mha_course/checking/running.py": "from mha_course.models import tasks",
    **{f"mha_course/{room}/__init__.py": "" for room in ("checking", "exercises", "models", "pictures")},
    "mha_course/exercises/tables.py": "from mha_course.checking import running",
    "mha_course/exercises/others.py": "",
    "mha_course/pictures/maps.py": "",
    "notebooks/01.ipynb": "{}",
    "tests/rooms.py": "",
    "tests/turns.py": "",
    "tests/unchanged.py": "",
    "tests/heads/helper.py": "",
    "tests/heads/test_heads.py": "import helper\n\ndef test(): pass\n",
    "tests/exercises/test_judged.py": "import os, pytest\nfrom mha_course.exercises import tables\n"
    "@pytest.mark.parametrize('n', [1, 2])\n"
    "def test(n):\n    if n == 2 and 'DO' in os.environ: exec(os.environ['DO'])\n",
    "tests/browser/test_site.py": "SITE = 'build/site'\n\ndef test(): pass\n",
    "tests/project/test_all.py": "from mha_course.exercises import others\nMAPS = 'mha_course/pictures'\n"
    "def test(): pass\n",
    "README.md": "",
    REACHED: (unchanged.ROOT / REACHED).read_text(),
}
HEADS, JUDGED = "tests/heads/test_heads.py", "tests/exercises/test_judged.py"
ALL, ALWAYS = "tests/project/test_all.py", {"tests/browser/test_site.py"}


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
    everything = {HEADS, JUDGED, ALL, *ALWAYS}
    assert run(project, "--numprocesses=2") == everything and run(project, "--numprocesses=2") == ALWAYS
    (project / "mha_course/exercises/tables.py").write_text("# changed")
    for done in ("assert False", "pytest.skip('needs Chromium')", "os._exit(1)"):
        assert run(project, "--numprocesses=2", DO=done) == {JUDGED, *ALWAYS}
    assert run(project, "-k", "test and not 2") == everything  # which is not kept
    assert run(project, DO="pytest.skip('long: MHA_LONG=1 runs it')") == {JUDGED, *ALWAYS}
    assert run(project) == ALWAYS


@pytest.mark.parametrize(
    ("changed", "heads", "judged", "of_all"),
    [
        (HEADS, True, False, True),
        ("tests/heads/helper.py", True, False, True),
        ("mha_lib/masks.py", True, True, True),
        ("mha_course/language.py", True, True, True),
        ("mha_course/exercises/__init__.py", True, True, True),
        ("mha_course/exercises/tables.py", False, True, False),
        ("mha_course/exercises/others.py", False, False, True),
        ("mha_course/exercises/new.py", True, True, True),
        ("mha_course/checking/running.py", False, True, False),  # which the exercise uses
        ("mha_course/models/sizes.json", False, True, False),
        ("mha_course/pictures/maps.py", False, False, True),
        ("conftest.py", True, True, True),
        ("notebooks/01.ipynb", False, False, True),
        ("README.md", False, False, True),
    ],
)
def test_what_decides_a_file(project, changed, heads, judged, of_all):
    def keys():
        for name in ("_digest", "_names", "named_in_strings", "code_of", "helpers_of"):
            getattr(unchanged, name).cache_clear()
        for name in ("_reached_by", "_reached_by_file", "_data_of", "data_beside"):
            getattr(unchanged.reached, name).cache_clear()
        return [unchanged.key(project / name, project) for name in (HEADS, JUDGED, ALL)]

    before = keys()
    assert before == keys()
    text = FILES.get(changed, "")
    (project / changed).write_text(f"{text} " if changed.endswith((".json", ".ipynb")) else f"{text}\n# changed")
    assert [old != new for old, new in zip(before, keys(), strict=True)] == [heads, judged, of_all]


def test_other_packages_another_device_and_another_turn_make_it_run(project, monkeypatch):
    path = project / HEADS
    before = unchanged.key(path, project)
    monkeypatch.setattr(unchanged, "commits", lambda: 14)
    assert unchanged.key(path, project) == before
    path.write_text(FILES[HEADS] + "import pytest\npytestmark = pytest.mark.quarter\n")
    turn = unchanged.key(path, project)
    monkeypatch.setattr(unchanged, "commits", lambda: 15)
    assert unchanged.key(path, project) != turn
    monkeypatch.setenv("MHA_DEVICE", "cuda")
    other_device = unchanged.key(path, project)
    monkeypatch.delenv("MHA_DEVICE")
    (project / "installed").write_text("other packages")
    monkeypatch.setattr(unchanged.sys, "prefix", str(project))
    assert len({turn, other_device, unchanged.key(path, project)}) == 3


def test_an_exercise_a_piece_of_the_museum_and_a_picture_decide_their_own_tests():
    course = unchanged.ROOT / "mha_course"
    modules = [course / name for name in ("exercises/head_importance.py", "museum/variants.py", "pictures/charts.py")]
    for name, needs in {
        "exercises/test_mistakes.py": [True, True, False],  # of all exercises, some of which the museum checks
        "exercises/test_head_importance.py": [True, False, False],
        "exercises/test_first_pruning.py": [False, False, False],
        "museum/test_variants.py": [False, True, False],
        "browser/test_pictures_on_a_page.py": [False, False, True],
        "browser/test_notebooks.py": [False, True, True],
        "pictures/test_charts.py": [False, False, True],
        "pictures/test_paged_cache.py": [False, False, False],
        "attention/test_masks.py": [False, False, False],
        "notebooks/test_structure.py": [True, True, True],
    }.items():
        found = unchanged.places(unchanged.ROOT / "tests" / name)
        assert [{module, module.parent} & found != set() for module in modules] == needs, name
