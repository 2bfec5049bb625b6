"""Build the wheel, and prove that it is enough: README's example and every notebook, each alone in an empty folder.

    python -m tools.try_wheel            all notebooks
    python -m tools.try_wheel 03 06      these

The environment holds torch and a kernel, as Colab's does, and no mha_lib: each notebook's first cell installs it, here
from the wheel. What pip may fetch is pinned by constraints.txt.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import first_cell, notebooks

ROOT = Path(__file__).resolve().parents[1]
DIST, ENVIRONMENT = ROOT / "build" / "dist", ROOT / "build" / "wheel-environment"
PYTHON = ENVIRONMENT / "bin" / "python"
MAX_BYTES = 4_000_000
# The constraints as an address, since pip would split a path at its spaces.
PINS = {"PIP_CONSTRAINT": (ROOT / "constraints.txt").as_uri(), "PIP_ROOT_USER_ACTION": "ignore", "OMP_NUM_THREADS": "1"}


class KernelOfItsOwn(notebooks.OwnKernel):
    """A kernel in the environment without mha_lib."""

    @property
    def kernel_spec(self):
        spec = super().kernel_spec
        spec.argv[0] = str(PYTHON)
        return spec


def build(*options):
    """Build the wheel anew; it and the source distribution must be small enough to be fetched over a phone.

    Args:
        options: those of `python -m build`.
    """
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "build", *options, "--outdir", DIST, ROOT], check=True, stdout=subprocess.DEVNULL
    )
    for path in sorted(DIST.iterdir()):
        size = path.stat().st_size
        print(f"{path.name}: {size / 1e6:.2f} MB")
        if size > MAX_BYTES:
            sys.exit(f"{path.name} has {size} bytes, more than {MAX_BYTES}")
    return next(DIST.glob("*.whl"))


def pip(*arguments):
    subprocess.run([PYTHON, "-m", "pip", "--quiet", *arguments], check=True, env=os.environ | PINS)


def run_readme(wheel):
    """README's first example runs with the wheel and nothing else."""
    pip("install", wheel)
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PYTHON, "-c", example[1]], check=True, cwd=folder)
    print("README's example: done", flush=True)


def run_alone(path, wheel):
    """A copy of the notebook, alone in a folder, its first cell pointing at the wheel, runs to the end."""
    pip("uninstall", "--yes", "mha-lib")
    notebook = notebooks.read(path)
    first_cell.write_first_cell(notebook, wheel.as_uri())
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | PINS | {"HOME": folder, "MHA_CACHE": folder}
        notebooks.execute(notebook, folder, env, KernelOfItsOwn)
    print(f"{path.name}: done", flush=True)


def main(numbers):
    wheel = build()
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    pip("install", "torch", "ipykernel")
    run_readme(wheel)
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        if not numbers or path.name[:2] in numbers:
            run_alone(path, wheel)


if __name__ == "__main__":
    main(sys.argv[1:])
