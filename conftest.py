"""What holds for all tests.

With MHA_REQUIRE_ALL=1 in the environment a skipped test is a failed one: there, everything has to run: all but the
tests of real models, where MHA_WITHOUT_REAL_MODELS=1 says that their packages could not be installed. No test depends
on how fast the machine is. What is long, which repeats what others see, runs with MHA_LONG=1, and with
MHA_REQUIRE_ALL=1; what goes by turns, a part of it for each number of commits, as a whole with MHA_NIGHTLY=1. Of what
is marked ``quarter``, ``make test`` takes one in four by turns, and what has not changed it does not run again.
"""

import os
from types import SimpleNamespace

import pytest
from turns import EVERYDAY, LONG, by_turns
from unchanged import Unchanged

os.environ["MHA_PROGRESS"] = "off"  # neither a test nor a kernel that it starts writes into a developer's home
os.environ.pop("MHA_LANGUAGE", None)  # and none speaks the developer's language
REQUIRE_ALL = os.environ.get("MHA_REQUIRE_ALL") == "1"
DEVICE = os.environ.get("MHA_DEVICE", "cpu")
WITHOUT_REAL_MODELS = os.environ.get("MHA_WITHOUT_REAL_MODELS") == "1"


def fail_if_skipped(report):
    """Turn the report of a skip into one of a failure; an expected failure (xfail) stays what it is."""
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        _, _, reason = report.longrepr
        if WITHOUT_REAL_MODELS and "make real-models" in reason:
            return report
        report.outcome = "failed"
        report.longrepr = f"MHA_REQUIRE_ALL=1 allows no skip. {reason}"
    return report


def pytest_configure(config):
    if EVERYDAY:
        config.pluginmanager.register(Unchanged(config), "unchanged")


def pytest_collection_modifyitems(config, items):
    if EVERYDAY:
        many = {}  # by file, so that the turn of one does not depend on which others are collected
        for item in items:
            if item.get_closest_marker("quarter") and not item.get_closest_marker("long"):
                many.setdefault(item.path, []).append(item)
        others = {item for tests in many.values() for item in {*tests} - {*by_turns(tests, 4)}}
        config.hook.pytest_deselected(items=[item for item in items if item in others])
        items[:] = [item for item in items if item not in others]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return fail_if_skipped((yield))


def pytest_runtest_setup(item):
    if item.get_closest_marker("long") and not LONG:
        pytest.skip("long: MHA_LONG=1 runs it")
    if DEVICE != "cpu" and item.get_closest_marker("cpu"):
        pytest.skip("cpu: what it tests is of the CPU alone")
    if DEVICE.startswith("lazy") and item.get_closest_marker("real_device"):
        pytest.skip("real_device: asks more of torch than the pretended device has")


@pytest.fixture
def in_this_process(monkeypatch):
    """Exercises run answers here: those that tests give are short, and a process of their own takes longer."""
    monkeypatch.setattr("mha_course.checking.running.can_fork", lambda: False)


@pytest.fixture
def kernel_calls(monkeypatch):
    """What each call of torch's fused kernel gets: heads of queries, keys and values, a number of keys, a dropout."""
    from torch.nn import functional as F  # here, since the process that only hands out the tests needs no torch

    calls, fused = [], F.scaled_dot_product_attention

    def noted(queries, keys, values, mask=None, dropout=0.0, *others, **options):
        heads = tuple(X.shape[1] for X in (queries, keys, values))
        calls.append(SimpleNamespace(heads=heads, num_keys=keys.shape[-2], dropout=dropout))
        return fused(queries, keys, values, mask, dropout, *others, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", noted)
    return calls


if DEVICE != "cpu":
    from on_device import move_tests

    move_tests()
