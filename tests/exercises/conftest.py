"""What tests of the exercises share."""

import pytest

from mha_lib.exercises import running


@pytest.fixture
def in_this_process(monkeypatch):
    """Exercises run answers here: those that tests give are short, and a process of their own takes longer."""
    monkeypatch.setattr(running, "can_fork", lambda: False)
