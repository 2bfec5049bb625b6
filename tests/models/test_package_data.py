"""What ships inside the library is found where it is installed, and its absence names the remedy."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("mha_lib", "pyproject.toml", "README.md", "LICENSE")
READERS = {
    "heads/results/heads.json": "from mha_lib.results import kept_results; kept_results('heads')",
    "heads/results/pruning_speed.json": "from mha_lib.results import kept_results; kept_results('pruning_speed')",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of a copy of the library, installed from a wheel, far from the repository."""
    sources, folder = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("site")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, sources / name)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(folder), str(sources)], check=True, capture_output=True, text=True)
    return folder


def read(installed, code):
    """Run ``code`` on the installed copy alone."""
    script = f"import sys; sys.path.insert(0, {str(installed)!r}); import mha_lib; print(mha_lib.__file__); {code}"
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=installed.parent, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("path", READERS)
def test_an_installed_copy_finds_its_data(installed, path):
    result = read(installed, READERS[path])
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_relative_to(installed)


@pytest.mark.slow
@pytest.mark.parametrize("path", READERS)
def test_a_copy_without_the_data_says_what_is_missing_and_how_to_get_it(installed, path):
    file = installed / "mha_lib" / path
    content = file.read_bytes()
    file.unlink()
    try:
        message = read(installed, READERS[path]).stderr
    finally:
        file.write_bytes(content)
    assert f"mha_lib/{path} is missing from this copy of mha_lib" in message and "`make " in message
