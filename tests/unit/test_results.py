"""Kept results are found from anywhere, and their absence names the remedy."""

import json
import re
from pathlib import Path

import pytest

from mha_lib import results

ROOT = Path(__file__).resolve().parents[2]


def keep(folder: Path, value: object) -> None:
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks" / "heads.json").write_text(json.dumps(value))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The library somewhere else, without results beside it; returns the folder that it is in."""
    library = tmp_path / "library"
    monkeypatch.setattr(results, "__file__", str(library / "mha_lib" / "results.py"))
    return library


def test_the_repository_is_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert results.kept_results("pruning_speed") == json.loads((ROOT / "benchmarks/pruning_speed.json").read_text())


def test_beside_the_library_comes_first_then_here_then_above(installed, tmp_path, monkeypatch):
    here = tmp_path / "class" / "notebooks"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    for folder, value in ((tmp_path, "far above"), (tmp_path / "class", "above"), (here, "here"), (installed, "lib")):
        keep(folder, value)
        assert results.kept_results("heads") == value


def test_missing_results_name_the_command_that_makes_them(installed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=re.escape("no benchmarks/heads.json")) as error:
        results.kept_results("heads")
    assert "`make bench-heads`" in str(error.value)


def test_the_commands_exist():
    makefile = (ROOT / "Makefile").read_text()
    for command in results.COMMANDS.values():
        assert f"\n{command.removeprefix('make ')}:" in makefile


def test_unknown_results_are_refused():
    with pytest.raises(ValueError, match="name must be one of heads, pruning_speed, got 'speed'"):
        results.kept_results("speed")
