"""Peak memory of a forward pass against n: ``python -m benchmarks.memory [--full]``. Linux only.

Every point is a process of its own, on random input with one length a sequence.
"""

from pathlib import Path

import torch

from benchmarks import measure, report
from benchmarks.contenders import CONTENDERS, Cell, ours_causal

LAYERS = ("ours", "ours, causal", "torch", "ours, weights", "d2l, weights")
SIZES = (1024, 2048, 4096, 8192, 16384)
SUBSET = {"ours": (1024, 2048, 4096), "ours, causal": (1024, 2048, 4096), "d2l, weights": (4096,)}
BUFFERS = 4  # of the size of all attention weights: more than any of the layers holds at once
GROWTH = 2.2  # at most, when n doubles
AGAINST_D2L = 25  # times less than d2l at n = 4096, at least


def main(full: bool) -> None:
    """Measure, print a table, write it to the results (a subset to its own)."""
    plan = dict.fromkeys(LAYERS, SIZES) if full else SUBSET
    curves: dict[str, dict[int, float]] = {name: {} for name in plan}
    skipped = []
    for name, sizes in plan.items():
        for n in sizes:
            needed, free = (
                0 if name in ("ours", "ours, causal", "torch") else BUFFERS * cell(n).bytes_of_weights,
                measure.free_bytes(),
            )
            if needed > free / 2:
                skipped.append(f"{name}, n = {n}: needs some {needed / 2**30:.0f} GiB, over half of what is free")
                continue
            curves[name][n] = measure.in_process_of_its_own(peak, name, n)
    report.write_memory(curves, skipped, checks(curves), full)


def checks(curves: dict[str, dict[int, float]]) -> list[tuple[str, bool]]:
    """What must hold, in words, and whether it does."""
    growths = {}
    for name in ("ours", "ours, causal"):
        curve = curves[name]
        growths[name] = max(curve[2 * n] / curve[n] for n in curve if 2 * n in curve)
    against = curves["d2l, weights"][4096] / curves["ours"][4096]
    return [
        *(
            (f"doubling n multiplies {name} by at most {growth:.2f} (bound {GROWTH})", growth <= GROWTH)
            for name, growth in growths.items()
        ),
        (f"at n = 4096 d2l takes {against:.0f} times ours (bound {AGAINST_D2L})", against >= AGAINST_D2L),
    ]


def cell(n: int) -> Cell:
    """The layer of the curves."""
    return Cell(batch=1, n=n, num_hiddens=256, num_heads=8)


def peak(name: str, n: int) -> float:
    """MiB by which one forward pass raises the memory of this process, input and layer not counted."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    call = (CONTENDERS | {"ours, causal": ours_causal})[name](cell(n).layer().eval())
    X, valid_lens = cell(n).tokens(), torch.tensor([n - 1])
    with torch.no_grad():
        call(X[:, :64], torch.tensor([63]))  # what is set up once is not counted
        before = resident_kibibytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from here
        call(X, valid_lens)
    return (resident_kibibytes("VmHWM") - before) / 1024


def resident_kibibytes(field: str) -> int:
    """A field of /proc/self/status: VmRSS, memory in use now; VmHWM, the most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


if __name__ == "__main__":
    main(measure.is_full(__doc__))
