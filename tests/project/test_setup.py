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
import torch
import yaml

from tools import uv_settings

PIP = [sys.executable, "-m", "pip"]
ROOT = Path(__file__).parents[2]
CONSTRAINTS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"][-1]["pip"]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, GROUPS = PYPROJECT["project"], PYPROJECT["dependency-groups"]
COURSE = tomllib.loads((ROOT / "mha_course" / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"] | COURSE["optional-dependencies"]

INPUTS = ["constraints.txt", "pyproject.toml", "mha_course/pyproject.toml", "environment.yml"]
INPUTS += ["tools/install.py", "tools/jupyter_server_config.py", "tools/overrides.json", "tools/uv_settings.py"]
INPUTS += ["tools/torchvision_beside_torch.py"]
OURS = {"-e .", "-e ./mha_course"}
PIN = r"[A-Za-z0-9._-]+==[0-9]+(\.[0-9a-z]+)*"  # no local version (+cpu), no address, no path


def split(requirements):
    """{'nbval': '0.11.0', 'numpy': '', 'torch': ''} from ['nbval==0.11.0', 'numpy', 'torch>=2.6']."""
    pairs = (requirement.partition(">=")[0].partition("==") for requirement in requirements)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in pairs}


PINNED, LISTED = split(CONSTRAINTS), split(set(CONDA) - OURS)


def test_everything_is_pinned_by_its_version_alone():
    assert [line for line in CONSTRAINTS if not re.fullmatch(PIN, line)] == []
    assert len(PINNED) == len(CONSTRAINTS), "a package is pinned twice"
    named = split(sum([*EXTRAS.values(), *GROUPS.values()], PROJECT["dependencies"]))
    assert (named | LISTED).keys() <= PINNED.keys()


def test_environment_yml_agrees_with_pyproject_and_constraints():
    assert {line for line in CONDA if not re.fullmatch(rf"{PIN}|[a-z-]+", line)} == OURS
    # d2l brings what it imports.
    needed = split([*PROJECT["dependencies"], *EXTRAS["notebooks"], *GROUPS["lab"], *GROUPS["peers"]])
    assert LISTED.keys() == needed.keys()
    for name, version in LISTED.items():
        assert version in ("", PINNED[name]) and needed[name] in ("", version)


@pytest.fixture
def installer(tmp_path, monkeypatch):
    """The installer amid a copy of the files that it reads; what it would run is listed in `commands`."""
    spec = importlib.util.spec_from_file_location("installer", ROOT / "tools" / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.commands = []

    def call(command, env=None):
        module.commands.append(" ".join(command))
        if "--clear" in command:
            shutil.rmtree(".venv", ignore_errors=True)
            Path(".venv/lib/python3/site-packages").mkdir(parents=True)
            Path(".venv/bin").mkdir()
            Path(".venv/bin/python").touch()
        return 0

    monkeypatch.setattr(subprocess, "call", call)
    monkeypatch.setattr(subprocess, "check_output", lambda *_, **__: module.pip_config)
    module.pip_config = ""
    monkeypatch.delenv("TORCH_INDEX_URL", raising=False)
    for name in INPUTS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return module


def test_a_complete_environment_is_left_alone_until_it_or_a_pin_changes(installer, tmp_path, monkeypatch):
    installer.main(".venv")
    assert "-m venv --clear .venv" in installer.commands.pop(0) and installer.commands
    assert Path(".venv/share/jupyter/lab/settings/overrides.json").exists()
    assert Path(".venv/etc/jupyter/jupyter_server_config.py").exists()

    def commands_after(change):
        installer.commands.clear()
        change()
        installer.main(".venv")
        return installer.commands

    assert commands_after(lambda: None) == []
    for name in INPUTS:
        commands = commands_after(lambda name=name: Path(name).write_text(Path(name).read_text() + "\n# changed\n"))
        assert commands and all("pip install" in command and ".venv/bin/" in command for command in commands)
    shutil.copytree(tmp_path, tmp_path / "moved")
    assert commands_after(lambda: monkeypatch.chdir(tmp_path / "moved"))


def test_a_package_that_is_no_longer_pinned_goes(installer):
    installer.main(".venv")
    assert not any("uninstall" in command for command in installer.commands)
    lines = Path("constraints.txt").read_text().splitlines(keepends=True)
    Path("constraints.txt").write_text("".join(line for line in lines if not line.startswith(("einops=", "ruff="))))
    installer.main(".venv")
    assert installer.commands[-1] == ".venv/bin/python -m pip uninstall --yes einops ruff"


def test_an_environment_that_the_project_does_not_have_is_named(installer):
    with pytest.raises(SystemExit, match=r"^\.venv-foo is none of .*: \.venv, .*\.venv-site$"):
        installer.main(".venv-foo")
    assert installer.commands == []


@pytest.mark.parametrize("first_run", ["new", "update"])
def test_a_killed_run_is_made_good_from_scratch(installer, monkeypatch, first_run):
    call = subprocess.call
    if first_run == "update":
        installer.main(".venv")
        Path("constraints.txt").write_text("changed\n")

    def killed_in_pip(command, env=None):
        if "pip" in command:
            raise KeyboardInterrupt
        return call(command)

    monkeypatch.setattr(subprocess, "call", killed_in_pip)
    with pytest.raises(KeyboardInterrupt):
        installer.main(".venv")
    assert not Path(".venv/installed").exists()
    monkeypatch.setattr(subprocess, "call", call)
    installer.commands.clear()
    installer.main(".venv")
    assert "-m venv --clear .venv" in installer.commands[0] and Path(".venv/installed").exists()


def test_uv_installs_all_that_pip_would_and_the_books_environment_is_pips(installer):
    installer.pip_config = "global.no-index='true'"
    installer.main(".venv")
    _, fetched, *by_uv = installer.commands
    assert fetched.startswith(".venv/bin/python -m pip install") and fetched.endswith("--constraint constraints.txt uv")
    start = ".venv/bin/uv pip install --python .venv/bin/python --no-index "
    assert by_uv == [start + " ".join(step) for step in installer.pip_steps(".venv", torch_index=None)]
    if sys.version_info < (3, 12):
        installer.commands.clear()
        installer.main(".venv-book")
        assert len(installer.commands) == 3 and not any("bin/uv" in command for command in installer.commands)


@pytest.mark.parametrize(
    ("config", "fails", "said"),
    [
        ("", "--quiet", "uv could not be installed: pip installs instead"),
        ("", "bin/uv", "uv failed: pip installs instead"),
        ("global.only-binary=':all:'", "nothing", "settings of pip's, only-binary: pip installs instead"),
    ],
)
def test_where_uv_cannot_pip_installs_and_this_is_said(installer, monkeypatch, capsys, config, fails, said):
    succeed = subprocess.call
    monkeypatch.setattr(subprocess, "call", lambda command, env=None: succeed(command) or fails in " ".join(command))
    installer.pip_config = config
    installer.main(".venv")
    assert said in capsys.readouterr().out
    steps = [" ".join(step) for step in installer.pip_steps(".venv", torch_index=None)]
    by_pip = [f".venv/bin/python -m pip install --disable-pip-version-check {step}" for step in steps]
    assert installer.commands[-len(steps) :] == by_pip and Path(".venv/installed").exists()


@pytest.fixture
def releases(tmp_path):
    """Releases of a package in folders: a page of links each, and for an index a folder of the package's name."""
    places = {"index": ["1.0", "1.5"], "extra": ["1.0", "2.0"], "wheels": ["1.5+cpu", "3.0"], "torch": ["1.0+cpu"]}
    for place, versions in places.items():
        folder = tmp_path / place / "stand-in"
        folder.mkdir(parents=True)
        for version in versions:
            with zipfile.ZipFile(folder / f"stand_in-{version}-py3-none-any.whl", "w") as wheel:
                about = f"stand_in-{version}.dist-info"
                wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: stand-in\nVersion: {version}\n")
                wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                wheel.writestr(f"{about}/RECORD", "")
        links = (f'<a href="{path.name.replace("+", "%2B")}">{path.name}</a>' for path in sorted(folder.glob("*.whl")))
        (folder / "index.html").write_text("\n".join(links))
    (tmp_path / "at_most").write_text("stand-in<2\n")
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "environment", "arguments", "taken"),
    [
        ({"index-url": "extra", "extra-index-url": "index"}, {}, [], "2.0"),
        ({"index-url": "index", "extra-index-url": "extra", "constraint": "at_most"}, {}, [], "1.5"),
        ({"index-url": "index", "find-links": "wheels/stand-in"}, {}, ["--constraint", "at_most"], "1.5+cpu"),
        ({"index-url": "index"}, {"PIP_INDEX_URL": "extra", "UV_FIND_LINKS": "wheels/stand-in"}, [], "2.0"),
        ({"index-url": "extra"}, {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "torch/stand-in index/stand-in"}, [], "1.5"),
        ({"index-url": "index"}, {}, ["--index-url", "torch"], "1.0+cpu"),
    ],
)
def test_uv_takes_the_release_that_pip_takes(releases, monkeypatch, file, environment, arguments, taken):
    """pip and uv themselves say what they would install, with the same settings of pip's."""

    def there(words):
        paths = (releases / word for word in words.split())
        return " ".join(path.as_uri() if path.is_dir() else str(path) if path.exists() else path.name for path in paths)

    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    lines = (f"{name} = {there(value)}" for name, value in file.items())
    (releases / "pip.conf").write_text("\n".join(["[global]", *lines]))
    for name in ("XDG_CONFIG_DIRS", "XDG_CONFIG_HOME", "HOME"):  # where settings of this machine and its user may be
        monkeypatch.setenv(name, str(releases))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(releases / "pip.conf"))
    for name, value in environment.items():
        monkeypatch.setenv(name, there(value))
    arguments = [there(word) for word in arguments]
    listed = subprocess.check_output([*PIP, "config", "list"], text=True)
    variables, more, unknown = uv_settings.translate(uv_settings.read(listed))
    assert unknown == []
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--offline", "--no-cache"]
    by_uv = [*uv, "--python", sys.executable, *more, *uv_settings.step(arguments)]
    for command, env in (([*PIP, "install", *arguments], None), (by_uv, variables)):
        command = [*command, "--dry-run", "stand-in"]
        said = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        assert re.findall(r"stand-in(?:-|==)([0-9.]+\d(?:\+cpu)?)$", said, re.MULTILINE)[-1:] == [taken], said


def test_the_way_to_an_index_is_the_same_for_uv(monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/of/requests.pem")
    read = uv_settings.read("global.proxy='proxy:1'\nlist.format='json'\ninstall.trusted-host='\\na:80\\nb'\nlog")
    assert read == {"proxy": "proxy:1", "trusted-host": "\na:80\nb"}
    told, arguments, unknown = uv_settings.translate(read | {"timeout": "7", "client-cert": "own.pem", "retries": "9"})
    assert {"HTTPS_PROXY": "proxy:1", "HTTP_PROXY": "proxy:1", "UV_INSECURE_HOST": "a:80 b"}.items() <= told.items()
    assert {
        "UV_HTTP_TIMEOUT": "7",
        "SSL_CLIENT_CERT": "own.pem",
        "SSL_CERT_FILE": "/of/requests.pem",
    }.items() <= told.items()
    assert arguments == unknown == []
    assert uv_settings.translate({"cert": "own.pem"})[0]["SSL_CERT_FILE"] == "own.pem"


def test_what_each_environment_holds(installer):
    pinned = ["--constraint", "constraints.txt"]
    book = list(installer.pip_steps(".venv-book", torch_index=None))
    assert book == [" ".join(CONDA).split(), [*pinned, *GROUPS["test"]]]
    for apart in ("nbgrader", "site"):
        assert list(installer.pip_steps(f".venv-{apart}", torch_index=None)) == [[*pinned, *GROUPS[apart]]]
    alone = GROUPS["peers"] + GROUPS["strangers"]
    everything, without_dependencies = installer.pip_steps(".venv", torch_index=None)
    assert {*PROJECT["dependencies"], *GROUPS["lab"], *GROUPS["test"]} < set(everything)
    assert "nbgrader" not in everything and without_dependencies == [*pinned, "--no-deps", *alone]
    torch_first, *others = installer.pip_steps(".venv", "https://torch.example/cpu")
    assert torch_first == [*pinned, "--no-deps", "--index-url", "https://torch.example/cpu", "torch", "torchvision"]
    assert others == [everything, without_dependencies]
    newest = installer.pip_steps(".venv-newest", "https://torch.example/cpu")
    assert [[*pinned, *step] for step in newest] == [torch_first, everything, without_dependencies]


FAILURES = [  # environment, what is wrong (a place and what stands there), what is said
    (".venv", ("sys.version_info", (3, 10, 13)), "Python 3.11 or newer.*make lab PYTHON=python3.12"),
    (".venv-nbgrader", ("sys.version_info", (3, 10, 13)), "Python 3.11 or newer.*make nbgrader PYTHON=python3.12"),
    (".venv-book", ("sys.version_info", (3, 12, 1)), "3.11, the last one.*make test-book-pins BOOK_PYTHON=python3.11"),
    (
        ".venv",
        ("subprocess.call", lambda command, env=None: 1),
        "Setting up .venv failed.*Then run this again:  make lab\n$",
    ),
]


@pytest.mark.parametrize(("venv", "wrong", "said"), FAILURES, ids=[said for *_, said in FAILURES])
def test_a_failure_says_what_to_do_and_does_not_count_as_installed(installer, monkeypatch, venv, wrong, said):
    monkeypatch.setattr(*wrong)
    with pytest.raises(SystemExit, match=f"(?s){said}"):
        installer.main(venv)
    assert not Path(venv, "installed").exists()


@pytest.mark.parametrize("command", ["from transformers import BertForMaskedLM", "import timm"])
def test_packages_that_import_torchvision_are_there_in_a_fresh_process(command):
    """By their own names, without this library: an index may hold a torchvision of another build than torch's."""
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_reading_a_notebook_builds_no_grammar_of_addresses():
    script = "import sys, nbformat, jupyterlab.labapp; print('lark' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "False\n"


@pytest.mark.long
def test_a_torchvision_that_loads_its_own_operators_is_left_alone(tmp_path):
    """In a process of its own; the stand-in's extension is a library that any process may load."""
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("")
    shutil.copy(next((Path(torch.__file__).parent / "lib").glob("libtorch_global_deps.so")), package / "_C.so")
    shutil.copy(ROOT / "tools" / "torchvision_beside_torch.py", tmp_path)
    env = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path(torch.__file__).parents[1]}"}  # with -S: without any .pth file
    script = "import torchvision_beside_torch, torchvision; print(torchvision_beside_torch.OPERATORS)"
    for extension, declared in ((True, "[]\n"), (False, "[Library(")):
        if not extension:
            (package / "_C.so").unlink()
        done = subprocess.run([sys.executable, "-S", "-c", script], env=env, capture_output=True, text=True)
        assert done.stdout.startswith(declared), done.stderr


@pytest.mark.parametrize("name", ["install.py", "uv_settings.py"])
def test_the_installer_parses_on_python_3_6(name):
    ast.parse((ROOT / "tools" / name).read_text(), feature_version=(3, 6))


def test_a_python_without_venv_is_told_what_to_do(installer, monkeypatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)  # to import it is an ImportError
    with pytest.raises(SystemExit, match=r"(?s)its module ensurepip is missing.*sudo apt install python3-venv"):
        installer.main(".venv")
    assert not Path(".venv").exists()


def test_make_names_a_python_that_is_not_there():
    command = ["make", "install", "PYTHON=no-such-python"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode != 0
    assert "no no-such-python here" in result.stdout and "make lab PYTHON=python3.12" in result.stdout
