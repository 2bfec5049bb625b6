"""Find outputs of notebooks that depend on the last bit: run them as on other processors, and compare with nbval.

    python -m tools.rounding                            all notebooks, with three kinds of noise
    python -m tools.rounding notebooks/03_*.ipynb       only these
    python -m tools.rounding --turn 17                  a third of all with one kind: nine turns in a row are everything

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
KINDS = ("random", "rising", "falling")
THIRDS = 3


def everything() -> list[Path]:
    """Return the paths of all notebooks that run in the course's own environment, in all languages."""
    translated = (path for language in LANGUAGES for path in sorted((notebooks.NOTEBOOKS / language).glob("*.ipynb")))
    return [*notebooks.all_notebooks(), *translated]


def runs_of(turn: int) -> list[tuple[Path, str]]:
    """Return which notebooks are run in a turn, a third of all, each with the same kind of noise."""
    kind = KINDS[turn // THIRDS % len(KINDS)]
    return [(path, kind) for path in everything()[turn % THIRDS :: THIRDS]]


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
    parser.add_argument("--turn", type=int, help="run a third of them with one kind of noise; the number says which")
    arguments = parser.parse_args()
    runs = [(path, kind) for path in arguments.paths or everything() for kind in KINDS]
    if arguments.turn is not None:
        runs = runs_of(arguments.turn)
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
