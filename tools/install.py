"""Bring one of the project's virtual environments up to date: `install.py .venv`, or another of ENVIRONMENTS.

A stamp, written last, says which pins the environment holds. If it agrees, nothing is done. If it names other
pins, the environment is brought up to date, and what is no longer pinned is removed. If it is missing, a set-up was cut
short: all is made anew.

The environment's own pip fetches uv, which does the rest in a fraction of the time. uv takes what pip would have taken:
the constraints are the same, and uv_settings.py tells it of pip's settings. Where uv cannot do it, this is said, and
pip does. The book's environment is pip's alone: it proves that pip, which conda calls, can install environment.yml.
The newest one knows no lock: it takes of every package what is newest and pyproject.toml allows.

The syntax is Python 3.6's, so that on an old Python the reader gets a message and not a traceback.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from tools import uv_settings

INPUTS = [
    "constraints.txt", "pyproject.toml", "mha_course/pyproject.toml", "environment.yml",
    "tools/install.py", "tools/uv_settings.py", "tools/overrides.json", "tools/jupyter_server_config.py",
    "tools/torchvision_beside_torch.py",
]  # fmt: skip
ENVIRONMENTS = {  # the command that makes each, how to name another Python for it, and the disk space that it takes
    ".venv": ("make lab", "PYTHON=python3.12", "2 GB"),
    ".venv-book": ("make test-book-pins", "BOOK_PYTHON=python3.11", "2 GB"),
    ".venv-nbgrader": ("make nbgrader", "PYTHON=python3.12", "400 MB"),
    ".venv-newest": ("make test-newest", "PYTHON=python3.12", "2 GB"),
    ".venv-site": ("make site", "PYTHON=python3.12", "250 MB"),
}
INSTALL, PINNED = ["install", "--disable-pip-version-check"], ["--constraint", "constraints.txt"]

UNKNOWN = "{venv} is none of the project's environments; give one of these: {known}"

START = """
Installing the packages of {venv}. The first time this takes a minute or more and {size}.
If nvidia packages are now fetched that this machine has no use for, stop it: README.md names a smaller torch.
"""

WITHOUT_UV = """
{reason}: pip installs instead, which takes some minutes.
"""

WRONG_PYTHON = """
This needs Python {needed}; {python} is Python {version}.
If the right one is on this machine, name it:  {command} {other}
If not, install it from https://www.python.org/downloads and name it in the same way.
"""

NO_VENV = """
{python} cannot make a virtual environment: its module {module} is missing.
On Debian or Ubuntu:  sudo apt install python3-venv
Elsewhere, name another Python:  {command} {other}
Then run this again:  {command}
"""

FAILED = """
Setting up {venv} failed; the last lines above say why. The usual reasons:
- no network, or a proxy that nobody named (HTTPS_PROXY=http://...);
- a full disk: {size} are needed, 8 GB where torch comes with CUDA (README.md says how to get it without);
- no build of a package for this Python, {version} (all is tested on 3.11):  {command} {other}
- no build of torch for this machine (there is none for Macs with Intel processors).
Then run this again:  {command}
"""


def main(venv):
    if venv not in ENVIRONMENTS:
        sys.exit(UNKNOWN.format(venv=venv, known=", ".join(ENVIRONMENTS)))
    command, other, size = ENVIRONMENTS[venv]
    words = {"venv": venv, "command": command, "other": other, "size": size}
    words.update(python=sys.executable, version=platform.python_version())
    python, stamp = Path(venv, "bin", "python"), Path(venv, "installed")
    complete = python.exists() and stamp.exists()
    before, *pinned_before = stamp.read_text().split() if complete else [""]
    if before == key():
        return
    check_python(words, sys.version_info)
    print(START.format(**words), flush=True)
    dropped = sorted(set(pinned_before) - pinned())
    if complete:
        stamp.unlink()
    else:
        run([sys.executable, "-m", "venv", "--clear", venv], words)
    pip = [str(python), "-m", "pip"]
    steps = list(pip_steps(venv, os.environ.get("TORCH_INDEX_URL")))
    if venv == ".venv-book" or not installed_by_uv(pip, steps):
        for step in steps:
            run([*pip, *INSTALL, *step], words)
    if dropped:
        run([*pip, "uninstall", "--yes", *dropped], words)
    if venv in (".venv", ".venv-newest"):
        packages = next(Path(venv).glob("lib/python*/site-packages"))
        # jsonschema, which all that reads notebooks imports, builds a grammar of web addresses where it finds this
        # package. Nothing here asks for it, and it takes 1.7 s of every such process, of JupyterLab's start, too.
        (packages / "no_grammar_of_addresses.pth").write_text(
            "import sys; sys.modules.setdefault('rfc3987_syntax', None)\n"
        )
        # `pip install --editable` would need a build tool that no pin holds; and this path, being relative, still
        # holds when the clone is moved.
        (packages / "mha_lib.pth").write_text("../../../..\n")
        shutil.copy("tools/torchvision_beside_torch.py", str(packages))
        (packages / "torchvision_beside_torch.pth").write_text("import torchvision_beside_torch\n")
    # Settings for every JupyterLab that is started from here, by hand too. `saveState` keeps widgets in a saved
    # notebook: without it, one that is opened again shows an error in their place. What is typed is saved within ten
    # seconds, and the server's settings see to it that opening a notebook, which starts this clock, changes no line.
    settings = Path(venv, "share", "jupyter", "lab", "settings")
    settings.mkdir(parents=True, exist_ok=True)
    shutil.copy("tools/overrides.json", str(settings))
    server = Path(venv, "etc", "jupyter")
    server.mkdir(parents=True, exist_ok=True)
    shutil.copy("tools/jupyter_server_config.py", str(server))
    stamp.write_text("\n".join([key(), *sorted(pinned())]))


def pinned():
    """The names of all packages in constraints.txt."""
    lines = Path("constraints.txt").read_text().splitlines()
    return {line.partition("==")[0] for line in lines if "==" in line and line[0] != "#"}


def key():
    """The hash of all that decides what is installed, and of the place: an environment holds its own path."""
    parts = [os.getcwdb()] + [Path(name).read_bytes() for name in INPUTS]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def check_python(words, version):
    """Stop with a message if a Python of this version cannot make the environment."""
    if version < (3, 11):
        sys.exit(WRONG_PYTHON.format(needed="3.11 or newer", **words))
    if words["venv"] == ".venv-book" and version >= (3, 12):
        sys.exit(WRONG_PYTHON.format(needed="3.11, the last one that d2l's own pins support", **words))
    for module in ["venv", "ensurepip"]:
        try:
            __import__(module)
        except ImportError:
            sys.exit(NO_VENV.format(module=module, **words))


def run(command, words):
    """Run a command, its output in plain sight; stop with a message if it fails."""
    if subprocess.call(command) != 0:
        sys.exit(FAILED.format(**words))


def installed_by_uv(pip, steps):
    """Whether uv has taken these steps of pip's in its place; if not, a line says why.

    Args:
        pip: the command of the environment's pip.
        steps: the arguments of every `pip install`.
    """
    listed = subprocess.check_output([*pip, "config", "list"], universal_newlines=True)
    environment, arguments, unknown = uv_settings.translate(uv_settings.read(listed))
    uv = [str(Path(pip[0]).with_name("uv")), "pip", "install", "--python", pip[0], *arguments]
    if unknown:
        reason = "uv has no counterpart of these settings of pip's, {}".format(", ".join(unknown))
    elif subprocess.call([*pip, *INSTALL, "--quiet", *PINNED, "uv"]) != 0:
        reason = "uv could not be installed"
    elif any(subprocess.call([*uv, *uv_settings.step(words)], env=environment) != 0 for words in steps):
        reason = "uv failed"
    else:
        return True
    print(WITHOUT_UV.format(reason=reason), flush=True)
    return False


def pip_steps(venv, torch_index):
    """The arguments of every `pip install` that fills the environment, in order."""
    import tomllib  # new in Python 3.11

    pyproject, course = (tomllib.loads(Path(folder, "pyproject.toml").read_text()) for folder in ("", "mha_course"))
    groups = pyproject["dependency-groups"]
    extras = [*pyproject["project"]["optional-dependencies"].values()]
    extras += course["project"]["optional-dependencies"].values()
    alone = groups.pop("peers") + groups.pop("strangers")
    apart = {f".venv-{name}": groups.pop(name) for name in ("nbgrader", "site")}
    lock = [] if venv == ".venv-newest" else PINNED
    if venv in apart:
        yield [*lock, *apart[venv]]
        return
    if torch_index:
        yield [*lock, "--no-deps", "--index-url", torch_index, "torch", "torchvision"]
    if venv == ".venv-book":
        listed = Path("environment.yml").read_text().split("- pip:\n")[1]  # its last part, a line "- d2l==1.0.3" each
        yield [word for line in listed.splitlines() for word in line.split()[1:]]
        yield [*lock, *groups["test"]]
    else:
        yield sum([*extras, *groups.values()], [*lock, *pyproject["project"]["dependencies"]])
        # d2l's own pins would hold numpy and others back to 2023; the strangers' layers need little of what they name
        yield [*lock, "--no-deps", *alone]


if __name__ == "__main__":
    os.chdir(str(Path(__file__).resolve().parent.parent))
    main(sys.argv[1])
