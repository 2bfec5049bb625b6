"""Build both wheels, and prove that they are enough: README's example and every notebook, alone in an empty folder.

    python -m tools.try_wheel            all notebooks
    python -m tools.try_wheel 03 06      these

The environment holds torch and a kernel, as Colab's does. README's example runs with mha_lib's wheel alone. Then there
is neither of the two: each notebook's first cell installs them, here from the wheels. What pip may fetch is pinned by
constraints.txt.
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
MAX_BYTES = {"mha_lib": 300_000, "mha_course": 4_000_000}
# The constraints as an address, since pip would split a path at its spaces.
PINS = {"PIP_CONSTRAINT": (ROOT / "constraints.txt").as_uri(), "PIP_ROOT_USER_ACTION": "ignore", "OMP_NUM_THREADS": "1"}


class KernelOfItsOwn(notebooks.OwnKernel):
    """A kernel in the environment without the two packages."""

    @property
    def kernel_spec(self):
        spec = super().kernel_spec
        spec.argv[0] = str(PYTHON)
        return spec


def build(*options):
    """Build mha_lib and mha_course anew, and return their two wheels.

    They and the source distributions must be small enough to be fetched over a phone.

    Args:
        options: those of `python -m build`.
    """
    shutil.rmtree(DIST, ignore_errors=True)
    for folder in (ROOT, ROOT / "mha_course"):
        command = [sys.executable, "-m", "build", *options, "--outdir", DIST, folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for path in sorted(DIST.iterdir()):
        size, most = path.stat().st_size, MAX_BYTES[path.name.partition("-")[0]]
        print(f"{path.name}: {size / 1e6:.2f} MB")
        if size > most:
            sys.exit(f"{path.name} has {size} bytes, more than {most}")
    return [next(DIST.glob(f"{name}-*.whl")) for name in MAX_BYTES]


def pip(*arguments):
    subprocess.run([PYTHON, "-m", "pip", "--quiet", *arguments], check=True, env=os.environ | PINS)


def run_readme(library):
    """README's first example runs with the wheel of mha_lib and nothing else."""
    pip("install", library)
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PYTHON, "-c", example[1]], check=True, cwd=folder)
    print("README's example: done", flush=True)


def run_alone(path, wheels):
    """A copy of the notebook, alone in a folder, its first cell pointing at the wheels, runs to the end."""
    pip("uninstall", "--yes", "mha-course", "mha-lib")
    notebook = notebooks.read(path)
    first_cell.write_first_cell(notebook, [wheel.as_uri() for wheel in wheels])
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | PINS | {"HOME": folder, "MHA_CACHE": folder}
        notebooks.execute(notebook, folder, env, KernelOfItsOwn)
    print(f"{path.name}: done", flush=True)


def main(numbers):
    wheels = build()
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    pip("install", "torch", "ipykernel")
    run_readme(wheels[0])
    for path in notebooks.of_the_course():
        if not numbers or path.name[:2] in numbers:
            run_alone(path, wheels)


if __name__ == "__main__":
    main(sys.argv[1:])
