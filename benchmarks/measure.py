"""How things are measured: CPU time, peers in turn, medians of paired ratios, each setting in a process of its own.

One thread and CPU time (user and system), because the clock on the wall, and two threads even more so, measure what
else the machine does.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# How the C library (glibc) gives memory back. By default a large tensor costs a page fault for every 4 KiB each time
# it is made; with memory kept by the process, what is left is the work itself.
ALLOCATORS = {
    "memory kept": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "20000000000"},
    "default": {},
}


class Ratio(NamedTuple):
    """A peer's time ÷ ours: median and quartiles over the rounds."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}–{self.high:.2f}]"


def cpu_seconds(call: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def in_turn(calls: Mapping[str, Callable[[], object]], seconds: float, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of every call, round by round, each round in a random order, after one round that does not count.

    Args:
        calls: what is compared.
        seconds: CPU time after which no further round starts.
        rounds: number of rounds that are made however long they take.
    """
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = random.Random(0)
    until = time.process_time() + seconds
    done = 0
    while done < rounds or time.process_time() < until:
        for name in order.sample(list(calls), len(calls)):
            times[name].append(cpu_seconds(calls[name]))
        done += 1
    return times


def ratio(peer: Sequence[float], ours: Sequence[float]) -> Ratio:
    """Median and quartiles of peer ÷ ours, taken within each round."""
    low, median, high = statistics.quantiles([p / o for p, o in zip(peer, ours, strict=True)], n=4)
    return Ratio(median, low, high)


def free_bytes() -> int:
    """Memory that a new process may take (on Linux; elsewhere all of the machine's)."""
    if sys.platform == "linux":
        with open("/proc/meminfo") as lines:
            kibibytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
        return int(kibibytes) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def in_process_of_its_own(function: Callable, *arguments: object, environment: Mapping[str, str] | None = None) -> Any:
    """What a function of a module of benchmarks gives, as JSON keeps it, called in a new process on one thread."""
    module = f"benchmarks.{Path(function.__code__.co_filename).stem}"  # whatever runs as __main__ here
    call = f"{module}.{function.__name__}(*{arguments!r})"
    command = [sys.executable, "-c", f"import json, {module}; print(json.dumps({call}, default=list))"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | dict(environment or {})
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def is_full(description: str | None) -> bool:
    """Whether the command line asks for everything."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--full", action="store_true", help="everything, not a subset; writes the results")
    return parser.parse_args().full
