"""The check of the set-up names what is missing and how to mend it."""

import importlib
import sys

import pytest

from mha_lib.attention import other_libraries
from mha_lib.exercises import setup_check


@pytest.fixture
def d2l_is_here(monkeypatch):
    monkeypatch.setattr(other_libraries, "load_d2l", lambda: None)


def test_a_complete_set_up_is_told_so(capsys, d2l_is_here):
    assert setup_check.check_setup()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(setup_check.PACKAGES) + 3
    assert all(line.startswith("✓") for line in lines[:-1])
    assert lines[-1] == "Everything is here."


@pytest.mark.parametrize("missing", setup_check.PACKAGES)
def test_a_missing_package_is_named_with_the_command_that_brings_it(capsys, monkeypatch, d2l_is_here, missing):
    def import_module(name):
        if name == missing:
            raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", import_module)
    assert not setup_check.check_setup()
    output = capsys.readouterr().out
    (line,) = [line for line in output.splitlines() if line.startswith("✗")]
    assert line.startswith(f"✗ {missing}: No module named '{missing}'")
    assert line.endswith(f"%pip install {setup_check.PACKAGES[missing][1]}")
    assert "Everything is here." not in output


def test_a_missing_d2l_is_told_with_its_own_command(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "d2l", None)  # which makes its import fail
    assert not setup_check.check_setup()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✗")]
    assert line.startswith("✗ d2l") and "--no-deps d2l==1.0.3" in line


def test_an_old_python_is_named(capsys, monkeypatch, d2l_is_here):
    monkeypatch.setattr(sys, "version_info", (3, 10, 2))
    assert not setup_check.check_setup()
    assert "✗ python: this is Python 3.10; 3.11 or newer is needed" in capsys.readouterr().out
