"""What the processes of a hub take of a machine's memory, read from Linux while a class is held."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil


class Memory(threading.Thread):
    """Watches a hub and all that it starts until ``stop``; ``most`` is the most of each that was seen, in MiB.

    PSS counts a page that several processes share in parts, so that it may be added up; RSS counts it whole for each,
    as where every student has a container.
    """

    def __init__(self, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.process, self.stop, self.kernels = process, threading.Event(), 0
        self.most: dict[str, dict[str, float]] = {}  # what → whose → MiB
        self.least_free = free_memory()

    def run(self) -> None:
        while not self.stop.wait(2):
            now = defaultdict[tuple[str, str], float](float)
            for part, whose, process in self.processes():
                pss, rss = sizes(process)
                now[f"{part}, PSS", whose] += pss
                now["all together, PSS", ""] += pss
                if whose:
                    now["server and kernel of a student, RSS", whose] += rss
            for (part, whose), size in now.items():
                most = self.most.setdefault(part, {})
                most[whose] = max(most.get(whose, 0), size)
            self.kernels = max(self.kernels, sum(part.startswith("kernel") for part, _ in now))
            self.least_free = min(self.least_free, free_memory())

    def processes(self) -> Iterator[tuple[str, str, psutil.Process]]:
        """All processes of the hub: what each is, whose, and itself."""
        yield "hub, proxy and culler", "", self.process
        with suppress(psutil.Error):  # one that has just ended; the next look sees the others
            for child in self.process.children():
                whose = child.environ()["JUPYTERHUB_USER"] if "singleuser" in " ".join(child.cmdline()) else ""
                yield "server of a student" if whose else "hub, proxy and culler", whose, child
                for process in child.children(recursive=True):
                    yield "kernel of a student" if whose else "hub, proxy and culler", whose, process


def sizes(process: psutil.Process) -> tuple[float, float]:
    """PSS and RSS of a process in MiB; nothing of one that has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return kib["Pss"] / 1024, kib["Rss"] / 1024


def free_memory() -> float:
    """GiB that this machine can still give."""
    return psutil.virtual_memory().available / 2**30
