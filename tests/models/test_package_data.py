"""Two wheels hold the two packages alone; data are found where they are installed, and their absence has a remedy."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mha_course.heads.kept_results import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("mha_lib", "mha_course", "tools", "pyproject.toml", "README.md", "LICENSE")
OF_THE_PROJECT = {"pyproject.toml", "README.md", "LICENSE"}  # beside the code, not in a wheel
READERS = {  # a file of the library, and what reads it
    **{f"heads/results/{name}.json": f"load_results('{name}')" for name in COMMANDS},
    "models/sentences/maps.safetensors": "pretrained.kept_maps()",
    "models/sentences/layer_1.safetensors": "kept_layer()",
    "models/weights/figures.json": "shipped.shipped_figures('dates')",
    "models/weights/neighbours.safetensors": "heads_needed.accuracy_by_seed()",
    "models/weights/dates.safetensors": "shipped.shipped_model('dates')",
}
SCRIPT = """
import sys; sys.path.insert(0, {folder!r})
import mha_course, mha_lib
from mha_course.heads import load_results
from mha_course.models import heads_needed, kept_layer, pretrained, shipped
assert {{mha_course.__file__.startswith({folder!r}), mha_lib.__file__.startswith({folder!r})}} == {{True}}
for path, call in {readers!r}.items():
    try:
        eval(call)
        print("found", path)
    except FileNotFoundError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of a copy of both packages, installed from wheels, far from the repository."""
    sources, folder = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("site")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, sources / name)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    both = [str(sources), str(sources / "mha_course")]
    subprocess.run([*pip, "--target", str(folder), *both], check=True, capture_output=True, text=True)
    return folder


def read_all(installed):
    """What comes of every reader in the installed copy, a line for each."""
    script = SCRIPT.format(folder=str(installed), readers=READERS)
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=installed, check=True, capture_output=True, text=True).stdout.splitlines()


def files_of(library):
    files = (path.relative_to(library).as_posix() for path in library.rglob("*") if path.is_file())
    return {file for file in files if "__pycache__" not in file}


@pytest.mark.slow
def test_an_installed_copy_holds_all_of_both_packages_and_nothing_else(installed):
    packages = {"mha_lib", "mha_course"}
    assert {folder.name for folder in installed.iterdir() if folder.suffix != ".dist-info"} == packages
    for package in packages:
        assert files_of(installed / package) == files_of(ROOT / package) - OF_THE_PROJECT


@pytest.mark.long
def test_an_installed_copy_finds_its_data_and_one_without_them_says_how_to_get_them(installed):
    assert read_all(installed) == [f"found {path}" for path in READERS]
    for path in READERS:
        (installed / "mha_course" / path).unlink()
    targets = re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text())
    for line, path in zip(read_all(installed), READERS, strict=True):
        assert line.startswith(f"mha_course/{path} is missing from this copy of mha_course.")
        assert re.search(r"`make ([a-z-]+)", line)[1] in targets
