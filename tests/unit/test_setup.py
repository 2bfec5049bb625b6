"""The set-up: what is pinned, when an environment counts as complete, what is said when it cannot be made."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CONSTRAINTS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"][-1]["pip"]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
GROUPS = PYPROJECT["dependency-groups"]
EXTRAS = PROJECT["optional-dependencies"]

INPUTS = ["constraints.txt", "pyproject.toml", "environment.yml", "tools/install.py", "tools/overrides.json"]

PIN = r"[A-Za-z0-9._-]+==[0-9]+(\.[0-9a-z]+)*"  # no local version (+cpu), no address, no path
NAME_OR_PIN = rf"{PIN}|[a-z-]+"


def split(requirements):
    """{'nbval': '0.11.0', 'numpy': ''} from ['nbval==0.11.0', 'numpy']."""
    pairs = (requirement.partition("==") for requirement in requirements)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in pairs}


def merge(*lists):
    return [requirement for one in lists for requirement in one]


PINNED = split(CONSTRAINTS)


def test_constraints_are_plain_versions():
    assert [line for line in CONSTRAINTS if not re.fullmatch(PIN, line)] == []
    assert len(PINNED) == len(CONSTRAINTS), "a package is pinned twice"
    assert PINNED.keys().isdisjoint({"pip", "setuptools"})


def test_environment_yml_holds_names_versions_and_the_project_itself():
    assert [line for line in CONDA if not re.fullmatch(NAME_OR_PIN, line)] == ["-e ."]


@pytest.mark.parametrize("line", ["torch==2.13.0+cpu", "torch @ file:///c.whl", "https://a.b/c.whl", "./c"])
def test_no_other_line_passes_for_a_pin(line):
    assert not re.fullmatch(NAME_OR_PIN, line)


def test_every_named_package_is_pinned():
    named = merge(PROJECT["dependencies"], *EXTRAS.values(), *GROUPS.values(), set(CONDA) - {"-e ."})
    assert split(named).keys() - PINNED.keys() == set()


def test_environment_yml_agrees_with_pyproject_and_constraints():
    conda = split(set(CONDA) - {"-e ."})
    needed = split(merge(PROJECT["dependencies"], *EXTRAS.values(), GROUPS["notebooks"]))
    assert conda.keys() == needed.keys()
    for name, version in conda.items():
        assert version in ("", PINNED[name])
        assert needed[name] in ("", version)


@pytest.fixture
def installer(tmp_path, monkeypatch):
    """The installer amid a copy of the files that it reads; what it would run is listed in `commands`."""
    spec = importlib.util.spec_from_file_location("installer", ROOT / "tools" / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def record(command, words):
        module.commands.append(" ".join(command))
        if "--clear" in command:
            shutil.rmtree(".venv", ignore_errors=True)
            Path(".venv/bin").mkdir(parents=True)
            Path(".venv/bin/python").touch()
            Path(".venv/lib/python3/site-packages").mkdir(parents=True)

    module.commands = []
    monkeypatch.setattr(module, "run", record)
    monkeypatch.delenv("TORCH_INDEX_URL", raising=False)
    copy_inputs(INPUTS, tmp_path)
    monkeypatch.chdir(tmp_path)
    return module


def copy_inputs(names, folder):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)


def test_a_complete_environment_is_left_alone(installer):
    installer.main(".venv")
    done = len(installer.commands)
    installer.main(".venv")
    assert len(installer.commands) == done


@pytest.mark.parametrize("name", INPUTS)
def test_a_change_of_pins_brings_the_environment_up_to_date(installer, name):
    installer.main(".venv")
    installer.commands.clear()
    with open(name, "a") as file:
        file.write("\n# changed\n")
    installer.main(".venv")
    assert [command for command in installer.commands if "-m venv" in command] == []
    assert any(command.startswith(".venv/bin/python -m pip install") for command in installer.commands)


def test_a_moved_clone_is_brought_up_to_date(installer, tmp_path, monkeypatch):
    installer.main(".venv")
    installer.commands.clear()
    shutil.copytree(tmp_path, tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    installer.main(".venv")
    assert installer.commands


@pytest.mark.parametrize("first_run", ["new", "update"])
def test_a_killed_run_is_made_good_from_scratch(installer, monkeypatch, first_run):
    if first_run == "update":
        installer.main(".venv")
        Path("constraints.txt").write_text("changed\n")
    record = installer.run

    def killed_in_pip(command, words):
        if "pip" in command:
            raise KeyboardInterrupt
        record(command, words)

    monkeypatch.setattr(installer, "run", killed_in_pip)
    with pytest.raises(KeyboardInterrupt):
        installer.main(".venv")
    assert not Path(".venv/installed").exists()

    monkeypatch.setattr(installer, "run", record)
    installer.commands.clear()
    installer.main(".venv")
    assert "-m venv --clear .venv" in installer.commands[0]
    assert Path(".venv/installed").exists()


def test_torch_alone_comes_from_its_own_index(installer, monkeypatch):
    monkeypatch.setenv("TORCH_INDEX_URL", "https://torch.example/cpu")
    installer.main(".venv")
    torch_first, *others = [command for command in installer.commands if "pip" in command]
    assert torch_first.endswith("--no-deps --index-url https://torch.example/cpu torch torchvision")
    assert "index-url" not in " ".join(others)


def test_the_book_environment_holds_just_what_environment_yml_says(installer):
    section, tests = installer.pip_steps(".venv-book", torch_index=None)
    assert section == " ".join(CONDA).split()
    assert tests == ["--constraint", "constraints.txt", *GROUPS["test"]]


def test_nbgrader_has_an_environment_to_itself(installer):
    assert list(installer.pip_steps(".venv-nbgrader", torch_index=None)) == [
        ["--constraint", "constraints.txt", "nbgrader"]
    ]
    assert "nbgrader" not in merge(*installer.pip_steps(".venv", torch_index=None))


@pytest.mark.parametrize(
    ("venv", "version", "needed", "advice"),
    [
        (".venv", (3, 10, 13), "Python 3.11 or newer", "make lab PYTHON=python3.12"),
        (".venv-book", (3, 10, 13), "Python 3.11 or newer", "make test-book-pins BOOK_PYTHON=python3.11"),
        (".venv-nbgrader", (3, 10, 13), "Python 3.11 or newer", "make nbgrader PYTHON=python3.12"),
        (".venv-book", (3, 12, 1), "Python 3.11, the last one", "make test-book-pins BOOK_PYTHON=python3.11"),
    ],
)
def test_a_wrong_python_is_told_what_to_do(installer, monkeypatch, venv, version, needed, advice):
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(SystemExit, match=f"(?s){needed}.*{advice}"):
        installer.main(venv)


def test_the_installer_parses_on_python_3_6():
    ast.parse((ROOT / "tools" / "install.py").read_text(), feature_version=(3, 6))


def run_installer(folder, **variables):
    copy_inputs(INPUTS, folder)
    command = [sys.executable, "tools/install.py", ".venv"]
    return subprocess.run(command, cwd=folder, env=os.environ | variables, capture_output=True, text=True)


def test_a_python_without_venv_is_told_what_to_do(tmp_path):
    (tmp_path / "ensurepip.py").write_text("raise ImportError")
    result = run_installer(tmp_path / "a clone", PYTHONPATH=str(tmp_path))
    assert result.returncode == 1
    assert "its module ensurepip is missing" in result.stderr
    assert "sudo apt install python3-venv" in result.stderr
    assert not (tmp_path / "a clone" / ".venv").exists()


@pytest.mark.slow
def test_a_failing_pip_is_followed_by_what_to_do(tmp_path):
    no_packages = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    result = run_installer(tmp_path / "a clone", **no_packages)
    assert result.returncode == 1
    assert "Setting up .venv failed" in result.stderr
    assert result.stderr.endswith("Then run this again:  make lab\n\n")
    assert not (tmp_path / "a clone" / ".venv" / "installed").exists()


def test_make_names_a_python_that_is_not_there():
    command = ["make", "install", "PYTHON=no-such-python"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode != 0
    assert "no no-such-python here" in result.stdout
    assert "make lab PYTHON=python3.12" in result.stdout


def test_mha_lib_is_found_from_anywhere(tmp_path):
    find = "import importlib.util; print(importlib.util.find_spec('mha_lib').origin)"
    command = [sys.executable, "-c", find]
    environment = os.environ | {"PYTHONPATH": ""}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert Path(result.stdout.strip()) == ROOT / "mha_lib" / "__init__.py"


@pytest.mark.slow
def test_the_built_package_holds_mha_lib_alone(tmp_path):
    shutil.copytree(ROOT / "mha_lib", tmp_path / "mha_lib", ignore=shutil.ignore_patterns("__pycache__"))
    copy_inputs(["pyproject.toml", "README.md", "LICENSE", "tests/conftest.py"], tmp_path)
    build = "pip wheel --quiet --no-deps --no-build-isolation ."
    subprocess.run([sys.executable, "-m", *build.split()], cwd=tmp_path, check=True)
    [wheel] = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = {path for path in (tmp_path / "mha_lib").rglob("*") if path.is_file()}
    assert packed == {path.relative_to(tmp_path).as_posix() for path in source}
