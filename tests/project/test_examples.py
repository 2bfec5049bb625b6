"""The examples in docstrings run, and give what is written below them. They may use `torch` and `models`."""

import doctest
import importlib
import pkgutil

import torch

import mha_lib
from mha_lib import models


def test_every_example_gives_what_stands_below_it():
    given = {"torch": torch, "models": models}
    names = [module.name for module in pkgutil.walk_packages(mha_lib.__path__, "mha_lib.")]
    results = [doctest.testmod(importlib.import_module(name), extraglobs=given) for name in names]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) >= 70
