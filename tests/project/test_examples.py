"""The examples in docstrings: what stands after `>>>` runs, and gives what stands below it."""

import doctest
import importlib
import pkgutil

import torch

import mha_lib


def test_every_example_gives_what_stands_below_it():
    names = [module.name for module in pkgutil.walk_packages(mha_lib.__path__, "mha_lib.")]
    results = [doctest.testmod(importlib.import_module(name), extraglobs={"torch": torch}) for name in names]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) >= 4
