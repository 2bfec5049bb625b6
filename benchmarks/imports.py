"""CPU time that ``import mha_lib`` adds to ``import torch``: ``python -m benchmarks.imports``."""

import resource
import statistics
import subprocess
import sys

AT_MOST = 0.1  # seconds


def main(rounds: int = 9) -> None:
    """Run pairs of processes, one after the other; print the median of the differences."""
    differences = [seconds_to_run("import torch, mha_lib") - seconds_to_run("import torch") for _ in range(rounds)]
    added = statistics.median(differences)
    print(
        f"import mha_lib adds {added:.3f} s of CPU time to import torch, median of {rounds} pairs "
        f"({min(differences):.3f} to {max(differences):.3f}); at most {AT_MOST}: {'yes' if added <= AT_MOST else 'NO'}"
    )


def seconds_to_run(code: str) -> float:
    """CPU seconds of a new Python that runs the code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
