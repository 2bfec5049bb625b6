"""Find outputs of notebooks that depend on the last bit: run them as on other processors, and compare with nbval.

    python -m tools.rounding                            all notebooks, with three kinds of noise
    python -m tools.rounding notebooks/03_*.ipynb       only these
    python -m tools.rounding --seeds 1 --third 2        the last third of all (0, 1, 2), with one kind

Another processor adds up in another order. Its products, sums and exponentials differ in the last bit, and so does the
largest of two weights that are equal in exact arithmetic. The noise is of that kind: see for_kernels/rounding_noise.py.
It reaches what torch computes on the CPU; NumPy, Python and the browser stay as they are.
"""

import argparse
import multiprocessing.pool
import os
import subprocess
import sys
from pathlib import Path

from tools import notebooks
from tools.languages import LANGUAGES

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("falling", "rising", "random")  # the first two move what is equal apart, in both directions


def everything() -> list[Path]:
    """Return the paths of all notebooks that run in the course's own environment, in all languages."""
    translated = (path for language in LANGUAGES for path in sorted((notebooks.NOTEBOOKS / language).glob("*.ipynb")))
    return [*notebooks.all_notebooks(), *translated]


def runs_of(seeds: int, third: int | None = None) -> list[tuple[Path, str]]:
    """Return which notebooks are run, all or a third of them, each with the first ``seeds`` kinds of noise."""
    paths = everything() if third is None else everything()[third::3]
    return [(path, kind) for path in paths for kind in KINDS[:seeds]]


def compare(path: Path, kind: str) -> tuple[bool, str]:
    """Return whether the notebook gives what is saved in it under noise of this kind, and nbval's report."""
    command = [sys.executable, "-m", "tools.alone", path.resolve()]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"ROUNDING_NOISE": kind}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.returncode == 0, done.stdout.decode()


def main() -> bool:
    parser = argparse.ArgumentParser(description="Run notebooks as on other processors, and compare their outputs.")
    parser.add_argument("paths", nargs="*", type=Path, help="default: every notebook of the course")
    parser.add_argument("--seeds", type=int, choices=(1, 2, 3), default=3, help="how many kinds of noise; default: 3")
    parser.add_argument("--third", type=int, choices=(0, 1, 2), help="run a third of the notebooks, this one")
    arguments = parser.parse_args()
    runs = [(path, kind) for path in arguments.paths for kind in KINDS[: arguments.seeds]]
    runs = runs or runs_of(arguments.seeds, arguments.third)
    with multiprocessing.pool.ThreadPool(2) as pool:
        results = pool.imap(lambda run: compare(*run), runs)
        failed = 0
        for (path, kind), (same, report) in zip(runs, results, strict=True):
            print(f"{path.parent.name}/{path.name}, {kind}: {'the same' if same else 'differs'}", flush=True)
            if not same:
                failed += 1
                print(report, flush=True)
    print(f"{len(runs) - failed} of {len(runs)} runs gave what is saved.")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
