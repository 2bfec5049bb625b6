"""A package that carries weights is read only if it is the right one, and a missing one is named with the remedy."""

import sys
from pathlib import Path

import pytest

from mha_course.models import pretrained, smollm2
from mha_course.models.weights_package import WeightsPackage, renamed

PINS = Path(__file__).resolve().parents[2].joinpath("constraints.txt").read_text().splitlines()
REAL = [pretrained.PACKAGE, smollm2.PACKAGE]
SHA256_OF_OTHER = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"
SAMPLE = WeightsPackage(
    "A model", "some-weights==1.0", {"folder/file": "5" * 64}, ("reader==2.0",), "Without it, there are kept results"
)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The sample, with a file in it, and code that must not run."""
    folder = tmp_path / "some_weights" / "folder"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise AssertionError('its code was run')")
    (folder / "file").write_bytes(b"other")
    monkeypatch.syspath_prepend(tmp_path)


def test_other_weights_are_refused(installed):
    with pytest.raises(ValueError, match=r"file in some_weights has SHA-256 d9298a10.*needed 5555"):
        SAMPLE.read("folder/file")


def test_the_right_ones_are_read(installed):
    right = WeightsPackage("A model", "some-weights==1.0", {"folder/file": SHA256_OF_OTHER}, (), "")
    assert right.read("folder/file") == b"other"


@pytest.mark.parametrize("folder", [True, False])
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, tmp_path, folder):
    if folder:  # of a bare folder of the name, Python would make a package
        (tmp_path / "some_weights").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ImportError, match=r"A model needs the package some-weights==1\.0, which is not installed\. Run "
                       r"`make real-models`.*--no-deps some-weights==1\.0 reader==2\.0\. Without it"):  # fmt: skip
        SAMPLE.read("folder/file")


def test_a_missing_reader_is_named_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "reader", None)
    with pytest.raises(ImportError, match=r"A model needs the package reader==2\.0, which is not installed"):
        SAMPLE.reader("reader")


@pytest.mark.parametrize("package", REAL, ids=lambda package: package.model)
def test_the_versions_are_those_that_are_pinned(package):
    assert {package.requirement, *package.readers} <= set(PINS)


def test_a_part_gets_our_name_and_keeps_its_kind_and_any_other_keeps_its_name():
    our_names = {r"norm": "first", r"blk\.(\d+)\.attn_([qk])": r"blocks.layer \1.W_\2"}
    assert renamed("blk.12.attn_q.weight", our_names) == "blocks.layer 12.W_q.weight"
    assert renamed("norm.bias", our_names) == "first.bias"
    assert renamed("blk.1.norm.bias", our_names) == "blk.1.norm.bias"
