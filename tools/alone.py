"""Compare notebooks with their saved outputs, each as it runs for someone who got only that file.

    python -m tools.alone notebooks/03_*.ipynb

A copy of the notebook stands alone in an empty folder, its home and the caches in it are empty, and no other machine
can be reached. nbval runs it there, and compares every output that is not tagged ``nbval-ignore-output``. The main
line runs first, as for somebody who unfolds nothing. Then each folded part runs, with what it finds at its place.
What the kernel says is kept (see executions.py): nbval compares it again where nothing has changed that decides it.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pytest

if TYPE_CHECKING:
    import nbformat

TOOLS = Path(__file__).resolve().parent
FONTS = Path(sys.prefix, "matplotlib")
PATIENCE = 3600  # seconds after which a cell or a kernel counts as stuck, on the slowest machine
OPTIONS = [
    "-p",
    "nbval.plugin",
    "--nbval",
    "--nbval-current-env",
    f"--nbval-cell-timeout={PATIENCE}",
    f"--nbval-kernel-startup-timeout={PATIENCE}",
    f"--nbval-sanitize-with={TOOLS / 'nbval_sanitize.cfg'}",
    f"--config-file={TOOLS.parent / 'pyproject.toml'}",
    "--rootdir=.",
    "--quiet",
    "-p",
    "no:cacheprovider",
]
HERE = "--here"  # the notebook stands alone already: run it in this process
WHERE_CACHES_ARE = ("IPYTHONDIR", "MHA_CACHE", "TORCH_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")


class Patient:
    """A plugin for pytest: nbval waits longer than its own five seconds for what a cell shows."""

    def pytest_itemcollected(self, item):
        item.output_timeout = PATIENCE


@contextlib.contextmanager
def alone(notebook: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A copy of the notebook in a folder of its own, and the environment variables to run it with.

    Only Matplotlib's list of fonts is kept from run to run: where it takes long to make, Matplotlib says so in the
    notebook.
    """
    if not any(FONTS.glob("fontlist*")):
        command = [sys.executable, "-c", "import matplotlib.font_manager"]
        subprocess.run(command, env=os.environ | {"MPLCONFIGDIR": str(FONTS)}, check=True)
    with tempfile.TemporaryDirectory() as place:
        folder, home = Path(place, "folder"), Path(place, "home")
        folder.mkdir()
        home.mkdir()
        env = {name: value for name, value in os.environ.items() if name not in WHERE_CACHES_ARE}
        env |= {"HOME": str(home), "MPLCONFIGDIR": str(FONTS), "OMP_NUM_THREADS": "1"}
        yield Path(shutil.copy(notebook, folder)), env | {"PYTHONPATH": str(TOOLS / "for_kernels")}


def in_order(notebook: Path, folded_too: bool = True) -> "nbformat.NotebookNode":
    """A notebook in the order in which it runs: its main line, and then, if they are wanted, its folded parts.

    The main line keeps what each folded part would find at its place.
    """
    sys.path.append(str(TOOLS.parent))  # this is run as a script
    from tools import main_line, notebooks  # here, since the process that only starts another one needs none of it

    def call(what: str) -> notebooks.nbformat.NotebookNode:
        return notebooks.nbformat.v4.new_code_cell(f"__import__('folds').{what}")

    written = notebooks.read(notebook)
    cells = []
    for cell, folded in zip(written.cells, main_line.is_folded(written), strict=True):
        if not folded:
            cells.append(cell)
        elif cell.metadata.get(notebooks.FOLDS):
            cells.append(call("keep()"))
    for number, part in enumerate(main_line.folded_parts(written)):
        cells += [call(f"go_back({number})"), *part.cells]
    written.cells = cells if folded_too else main_line.main_line(written).cells
    return written


def run_nbval(notebook: str, kept: str = "", key: str = "", folded_too: bool = True) -> int:
    """Compare the notebook in this folder; the exit status.

    Args:
        kept: a file for what the kernel says, from which it is said again if its key is this one.

    Of pytest's plugins nbval alone is loaded: the others take half of the time that an empty notebook needs.
    """
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    written = in_order(Path(notebook), folded_too)
    from tools import executions, notebooks

    Path(notebook).write_text(notebooks.nbformat.v4.writes(written), encoding="utf-8")
    keep = [executions.Keep(Path(kept), key)] if kept else []
    return pytest.main([*OPTIONS, notebook], plugins=[Patient(), *keep])


def compare(
    notebook: Path,
    kept: Path | None = None,
    folded_too: bool = True,
    report: TextIO | None = None,
    once: bool = False,
) -> bool:
    """Whether the notebook gives what is saved in it; pytest's report is printed, or written to ``report``.

    Args:
        kept: a file that keeps what its kernel says. If nothing has changed since that decides it, nbval compares what
            is kept; where this is red, the notebook runs again.
        folded_too: whether its folded parts run, after its main line.
        once: whether what was compared with the same result of the same code, and was green, is green.
    """
    from tools import executions

    key = executions.key(executions.code_of(in_order(notebook, folded_too))) if kept else ""
    if kept and once and executions.is_proven(kept, executions.proof(notebook, key)):
        return True
    repeats = kept is not None and executions.holds(kept, key)
    with alone(notebook) as (copy, env):
        command = [sys.executable, __file__, HERE, copy.name, str(kept or ""), key, "folded" if folded_too else ""]
        green = subprocess.run(command, cwd=copy.parent, env=env, stdout=report, stderr=report).returncode == 0
    if repeats and not green and kept:
        kept.unlink()
        return compare(notebook, kept, folded_too, report)
    if green and kept:
        kept.with_suffix(".green").write_text(executions.proof(notebook, key))
    return green


def main(paths: list[str]) -> int:
    """Compare notebooks, those of the course with what was kept of them; the exit status."""
    from tools import executions

    found = [Path(path).resolve() for path in paths]
    noisy = "ROUNDING_NOISE" in os.environ  # what is said under it is not kept, and nothing kept is said again
    return not all([compare(path, None if noisy else executions.file_of(path)) for path in found])


if __name__ == "__main__":
    if sys.argv[1] == HERE:
        sys.exit(run_nbval(*sys.argv[2:5], folded_too=bool(sys.argv[5])))
    sys.exit(main(sys.argv[1:]))
