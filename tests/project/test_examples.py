"""The examples in docstrings run, and give what is written below them. They may use `torch` and `models`."""

import doctest
import importlib
import pkgutil

import torch

import mha_course
import mha_lib
from mha_course import models


def test_every_example_gives_what_stands_below_it():
    given = {"torch": torch, "models": models}
    packages = (mha_lib, mha_course)
    names = [each.name for one in packages for each in pkgutil.walk_packages(one.__path__, f"{one.__name__}.")]
    results = [doctest.testmod(importlib.import_module(name), extraglobs=given) for name in names]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) >= 70
