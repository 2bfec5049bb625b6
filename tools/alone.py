"""Compare notebooks with their saved outputs, each as someone has it who got that one file.

    python tools/alone.py                          every notebook under notebooks/, two at a time
    python tools/alone.py notebooks/03_*.ipynb     only these

A copy of the notebook stands alone in an empty folder, its home and the caches in it are empty, and no other machine
can be reached. nbval runs it there, and compares every output that is not tagged ``nbval-ignore-output``.
"""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parent
PATIENCE = 3600  # seconds after which a cell or a kernel counts as stuck, on the slowest machine
OPTIONS = [
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
    "-p",
    "no:xdist",
]
WHERE_CACHES_ARE = ("IPYTHONDIR", "MHA_CACHE", "TORCH_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")


class Patient:
    """A plugin for pytest: nbval waits for what a cell shows, too, for longer than its own five seconds."""

    def pytest_itemcollected(self, item):
        item.output_timeout = PATIENCE


@contextlib.contextmanager
def alone(notebook: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A copy of the notebook in a folder of its own, and the environment variables to run it with."""
    with tempfile.TemporaryDirectory() as place:
        folder, home = Path(place, "folder"), Path(place, "home")
        folder.mkdir()
        home.mkdir()
        env = {name: value for name, value in os.environ.items() if name not in WHERE_CACHES_ARE}
        env |= {"HOME": str(home), "PYTHONPATH": str(TOOLS / "no_network"), "OMP_NUM_THREADS": "1"}
        yield Path(shutil.copy(notebook, folder)), env


def compare(notebook: Path) -> tuple[int, str]:
    """pytest's exit status and report after it has run the notebook. To be called in a process of its own."""
    with alone(notebook) as (copy, env), contextlib.redirect_stdout(io.StringIO()) as report:
        os.environ.clear()
        os.environ.update(env)
        os.chdir(copy.parent)
        start = time.monotonic()
        status = pytest.main([*OPTIONS, copy.name], plugins=[Patient()])
        print(f"{notebook.parent.name}/{notebook.name}: {time.monotonic() - start:.0f} s")
        os.chdir(TOOLS)
    return int(status), report.getvalue()


def compare_all(notebooks: list[Path], processes: int = 2) -> bool:
    """Whether all notebooks give what is saved in them; a report of each is printed."""
    with tempfile.TemporaryDirectory() as fonts:
        # Matplotlib's list of fonts is kept between runs: it takes a while, and is nobody's result.
        os.environ["MPLCONFIGDIR"] = fonts
        subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], check=True, stderr=subprocess.DEVNULL)
        same = True
        with ProcessPoolExecutor(processes, get_context("spawn"), max_tasks_per_child=1) as pool:
            for status, report in pool.map(compare, notebooks):
                print(report, flush=True)
                same = same and status == 0
    return same


def all_notebooks() -> list[Path]:
    """Every notebook of the project."""
    folder = TOOLS.parent / "notebooks"
    return sorted(path for path in folder.glob("**/*.ipynb") if ".ipynb_checkpoints" not in path.parts)


if __name__ == "__main__":
    sys.exit(not compare_all([Path(path).resolve() for path in sys.argv[1:]] or all_notebooks()))
