"""The check of the set-up names what is missing and how to mend it."""

import importlib
import sys

import pytest

from mha_course.exercises import setup_check
from mha_lib.attention import converters


@pytest.fixture(autouse=True)
def d2l_is_here(monkeypatch):
    monkeypatch.setattr(converters, "load_d2l", lambda: None)


def test_a_complete_set_up_is_told_so(capsys):
    assert setup_check.check_setup()
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == len(setup_check.PACKAGES) + 2 and all(line.startswith("✓") for line in lines)
    assert last == "Everything is here."


@pytest.mark.parametrize("missing", setup_check.PACKAGES)
def test_a_missing_package_is_named_with_the_command_that_brings_it(capsys, monkeypatch, missing):
    def import_module(name):
        if name == missing:
            raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", import_module)
    assert not setup_check.check_setup()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✗")]
    assert line.startswith(f"✗ {missing}: No module named '{missing}'")
    assert line.endswith(f"%pip install {setup_check.PACKAGES[missing][1]}")


def test_an_old_python_is_named(capsys, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 2))
    assert not setup_check.check_setup()
    assert capsys.readouterr().out.startswith("✗ python: this is Python 3.10; 3.11 or newer is needed\n")


def test_d2l_which_one_comparison_needs_may_be_missing_and_is_named(capsys, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "d2l", None)  # which makes its import fail
    assert setup_check.check_setup()
    *_, d2l, last = capsys.readouterr().out.splitlines()
    assert d2l.startswith("– d2l") and "--no-deps d2l==1.0.3" in d2l and last == "Everything is here."
