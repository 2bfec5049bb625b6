"""Compare notebooks with their saved outputs, each as it runs for someone who got only that file.

    python -m tools.alone notebooks/03_*.ipynb

A copy of the notebook stands alone in an empty folder, its home and the caches in it are empty, and no other machine
can be reached. nbval runs it there, and compares every output that is not tagged ``nbval-ignore-output``. The main
line runs first, as for somebody who unfolds nothing. Then each folded part runs, with what it finds at its place.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def put_folded_last(notebook: Path) -> None:
    """Write a notebook anew: its main line, which keeps what each folded part would find, and then these parts."""
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
    written.cells = cells
    notebook.write_text(notebooks.nbformat.v4.writes(written), encoding="utf-8")


def run_nbval(notebook: str) -> int:
    """Compare the notebook in this folder; the exit status.

    Of pytest's plugins nbval alone is loaded, and jsonschema does without the grammar of web addresses that it would
    build: the two would take three quarters of the time that an empty notebook needs, and none of it is used here.
    """
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
    put_folded_last(Path(notebook))
    return pytest.main([*OPTIONS, notebook], plugins=[Patient()])


def compare(notebook: Path) -> bool:
    """Whether the notebook gives what is saved in it; pytest's report is printed."""
    with alone(notebook) as (copy, env):
        return subprocess.run([sys.executable, __file__, HERE, copy.name], cwd=copy.parent, env=env).returncode == 0


if __name__ == "__main__":
    if sys.argv[1] == HERE:
        sys.exit(run_nbval(sys.argv[2]))
    sys.exit(not all([compare(Path(path).resolve()) for path in sys.argv[1:]]))
