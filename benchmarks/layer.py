"""The layer's speed beside its peers': ``python -m benchmarks.layer [--full]``."""

import itertools
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from benchmarks import measure, report
from benchmarks.contenders import Call, Cell, contenders, timed
from mha_lib import MultiHeadAttention

CELLS = {
    "toy": Cell(1, 16, 64, 8),
    "patches": Cell(32, 16, 64, 4),
    "sentence": Cell(1, 128, 512, 8),
    "sentences": Cell(8, 64, 256, 8),
    "many sentences": Cell(32, 64, 256, 8),
    "wide sentences": Cell(8, 128, 512, 8),
    "paragraphs": Cell(8, 256, 256, 8),
    "many paragraphs": Cell(32, 256, 256, 8),
    "wide paragraphs": Cell(32, 256, 512, 8),
    "pages": Cell(8, 1024, 256, 8),
    "wide pages": Cell(8, 1024, 512, 8),
    "chapter": Cell(1, 4096, 256, 8),
}
SUBSET = ("toy", "sentences", "paragraphs", "pages")
PEERS = ("ours", "ours, weights", "ours, weights kept", "d2l, weights", "torch", "torch, weights", "packed")
DROPOUT = 0.1
# Buffers of the size of all attention weights that a layer which keeps them holds at once, forward and backward.
BUFFERS = {False: 3, True: 7}
FACTOR_OF_BACKWARD = 3  # the backward pass takes twice the operations of the forward pass


def main(full: bool) -> None:
    """Measure under both settings of the allocator, each in a process of its own; print and write the tables."""
    rows = []
    for allocator, environment in measure.ALLOCATORS.items():
        measured = measure.in_process_of_its_own(rows_of, allocator, full, environment=environment)
        rows += [row | {"allocator": allocator} for row in measured]
    report.write_speed(rows, full)


def rows_of(allocator: str, full: bool) -> Iterator[dict]:
    """What the process with this allocator measures: most where memory is kept, where noise is least."""
    torch.set_num_threads(1)
    kept = allocator == "memory kept"
    settings: Iterable[tuple[str, bool, bool]]  # cell, with lengths, in training
    dropout: Sequence[str]
    if full:
        settings = itertools.product(CELLS, (True, False) if kept else (True,), (False, True))
        seconds, rounds, dropout = 8.0, 5, ("sentences", "paragraphs", "many paragraphs", "pages")
    elif kept:
        settings = [*((name, True, False) for name in SUBSET), *((name, True, True) for name in SUBSET[:-1])]
        seconds, rounds, dropout = 1.0, 4, ("sentences", "paragraphs")
    else:
        settings = [("paragraphs", True, False), ("pages", True, False)]
        seconds, rounds, dropout = 1.0, 4, ("paragraphs",)
    for name, lengths, training in settings:
        yield beside_peers(name, lengths, training, seconds, rounds)
    for name in dropout:
        yield with_dropout(name, seconds, rounds)
    yield with_ragged_lengths("pages", seconds, rounds)


def beside_peers(name: str, lengths: bool, training: bool, seconds: float, rounds: int) -> dict:
    """All contenders in one cell, with ``valid_lens`` uniform from n / 2 to n or without."""
    cell = CELLS[name]
    row = {"table": "peers", "cell": name, "shape": str(cell), "lengths": lengths, "training": training}
    needed, free = BUFFERS[training] * cell.bytes_of_weights, measure.free_bytes()
    if needed > free / 2:
        return row | {"skipped": f"needs some {needed / 2**30:.1f} GiB, over half of the free {free / 2**30:.1f}"}
    layer, X, valid_lens = start(cell, training, shortest=cell.n // 2 if lengths else None)
    calls = contenders(layer, *PEERS)
    check_agreement(calls, X, valid_lens)
    times = run(calls, X, valid_lens, training, seconds, rounds)
    row |= compare(times)
    with_weights = [name for name in times if "weights" in name]
    row["weights"] = {name: measure.ratio(times[name], times["ours, weights kept"]) for name in with_weights}
    if not lengths:
        flops = cell.flops * (FACTOR_OF_BACKWARD if training else 1)
        row["share"] = share_of_sgemm(timed(calls["ours"], X, None, training), flops)
    return row


def with_dropout(name: str, seconds: float, rounds: int) -> dict:
    """Training with dropout: the layer, its formula on the whole batch, and peers; "packed" is torch's kernel."""
    cell = CELLS[name]
    layer, X, valid_lens = start(cell, True, shortest=cell.n // 2, dropout=DROPOUT)
    calls = contenders(layer, "ours", "ours, masked", "packed", "torch", "d2l, weights")
    row = {"table": "dropout", "cell": name, "shape": str(cell), "lengths": True, "training": True}
    return row | compare(run(calls, X, valid_lens, True, seconds, rounds))


def with_ragged_lengths(name: str, seconds: float, rounds: int) -> dict:
    """Forward, lengths uniform from 1 to n: the layer with and without ``skip_padding``, torch's kernel with a mask."""
    cell = CELLS[name]
    layer, X, valid_lens = start(cell, False, shortest=1)
    calls = contenders(layer, "ours", "ours, masked", "packed")
    check_agreement(calls, X, valid_lens)
    row = {"table": "ragged", "cell": name, "shape": str(cell), "lengths": True, "training": False}
    return row | compare(run(calls, X, valid_lens, False, seconds, rounds))


def start(
    cell: Cell, training: bool, shortest: int | None, dropout: float = 0.0
) -> tuple[MultiHeadAttention, Tensor, Tensor | None]:
    """A layer with its input, which is said; ``shortest`` None means no ``valid_lens``."""
    print(cell, "in training" if training else "forward", file=sys.stderr, flush=True)
    torch.manual_seed(0)
    layer = cell.layer(dropout).train(training)
    return layer, cell.tokens().requires_grad_(training), None if shortest is None else cell.valid_lens(shortest)


def check_agreement(calls: Mapping[str, Call], X: Tensor, valid_lens: Tensor | None) -> None:
    """Refuse to compare layers whose results differ."""
    with torch.no_grad():
        expected = calls["ours"](X, valid_lens)
        for call in calls.values():
            torch.testing.assert_close(call(X, valid_lens), expected, rtol=1e-4, atol=1e-5)


def run(
    calls: Mapping[str, Call], X: Tensor, valid_lens: Tensor | None, training: bool, seconds: float, rounds: int
) -> dict[str, list[float]]:
    """CPU seconds of every call, see ``measure.in_turn``."""
    return measure.in_turn(
        {name: timed(call, X, valid_lens, training) for name, call in calls.items()}, seconds, rounds
    )


def compare(times: Mapping[str, list[float]]) -> dict:
    """Milliseconds of our output, and every contender's time ÷ it."""
    ratios = {name: measure.ratio(seconds, times["ours"]) for name, seconds in times.items()}
    return {"ms": 1000 * statistics.median(times["ours"]), "output": ratios}


def share_of_sgemm(call: Callable[[], None], flops: int, size: int = 1024) -> measure.Ratio:
    """The time ``flops`` take in a product of two square matrices, timed in turn with the call, ÷ the call's time."""
    A, B = torch.randn(2, size, size)
    times = measure.in_turn({"call": call, "sgemm": lambda: A @ B}, seconds=1, rounds=5)
    products = flops / (2 * size**3)
    return measure.ratio([products * seconds for seconds in times["sgemm"]], times["call"])


if __name__ == "__main__":
    main(measure.is_full(__doc__))
