"""How fast SmolLM2 reads a text and writes one token after it, whole, pruned and streaming: ``make bench-writing``.

The weights are random: time does not depend on them. Beside each ratio stands its ceiling, the same ratio of what is
counted: products of numbers in reading, bytes of weights, keys and values in writing, which waits for memory. Each cell
is kept as soon as it is measured; on a GPU (``MHA_DEVICE=cuda``) all is timed by the clock, else in CPU time. The plans
of ``research/streaming.py`` are timed in one cell, for the library's ``writing_speed.json``.
"""

import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor

import mha_course
from benchmarks import gpu, measure, report
from mha_course.heads import load_results
from mha_course.heads.removal import prune
from mha_course.models.short_cache import Writer
from mha_course.models.smollm2 import SmolLM2
from mha_lib.heads import Stream

DEVICE = os.environ.get("MHA_DEVICE", "cpu")
STREAM = Stream(sinks=4, window=24)
GROUPS = 3  # key-value groups of a layer
WHOLE = "whole"
KINDS = {  # how many groups of each layer are pruned, and how many stream
    WHOLE: (0, 0),
    "a third pruned": (1, 0),
    "two thirds pruned": (2, 0),
    "a third streams": (0, 1),
    "two thirds stream": (0, 2),
}


class Cell(NamedTuple):
    """What is timed: reading so many tokens at once, or writing one token after so many."""

    task: str
    tokens: int
    batch: int = 1

    def __str__(self) -> str:
        return f"{self.task} {self.tokens}" if self.task == "read" else f"write after {self.tokens}, batch {self.batch}"


CELLS = [
    *(Cell("write", tokens, batch) for tokens in (64, 2048, 8191) for batch in (1, 4)),
    *(Cell("read", tokens) for tokens in (64, 512, 4096)),
]
ROUNDS = {512: 3, 4096: 1}  # elsewhere seven
PLANS_CELL = Cell("write", 4095)
PLANS = ("18 groups", "30 groups", "45 groups", "base", "72 groups", "81 groups", "all", "heads", "layers")
PLANS_FILE = Path(mha_course.__file__).with_name("heads") / "results" / "writing_speed.json"
REMOVED = "18 groups removed"
Kinds = Mapping[str, tuple[SmolLM2, Mapping[str, list[int]]]]  # a model, and the groups of each layer that stream


def random_model() -> SmolLM2:
    """SmolLM2 with random weights."""
    torch.manual_seed(0)
    model = SmolLM2(None)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter.data, std=0.02)
    return model.eval().to(DEVICE)


def models(whole: SmolLM2) -> Kinds:
    """The kinds of every cell but that of plans."""
    found = {}
    for kind, (pruned, streaming) in KINDS.items():
        off = list(range(3 * pruned))
        model = prune(whole, remove=dict.fromkeys(whole.blocks, off)) if pruned else whole
        found[kind] = model, {name: list(range(streaming)) for name in whole.blocks}
    return found


def kinds_of_plans(whole: SmolLM2, parts: Mapping[str, dict]) -> Kinds:
    """The whole model, it with each plan, and without one group in each of 18 layers.

    Of a plan, only groups that stream whole keep less.
    """
    found: dict[str, tuple[SmolLM2, dict[str, list[int]]]] = {WHOLE: (whole, {layer: [] for layer in whole.blocks})}
    for name in PLANS:
        plan = parts[name]["plan"]
        off = {layer: set(plan.get(f"blocks.{layer}.attention", ())) for layer in whole.blocks}
        found[name] = (
            whole,
            {
                layer: [group for group in range(GROUPS) if {3 * group, 3 * group + 1, 3 * group + 2} <= heads]
                for layer, heads in off.items()
            },
        )
    model = prune(whole, remove={layer: [0, 1, 2] for layer in list(whole.blocks)[:18]})
    return found | {REMOVED: (model, found[WHOLE][1])}


def call_of(cell: Cell, model: SmolLM2, streaming: Mapping[str, list[int]]) -> tuple[Callable[[], Tensor], Writer]:
    """What is timed, and who writes."""
    writer = Writer(model, streaming, STREAM.sinks, STREAM.window)
    number = cell.tokens if cell.task == "read" else 1
    ids = torch.arange(cell.batch * number, device=DEVICE).reshape(cell.batch, number) % len(model.embedding.weight)
    length = 0 if cell.task == "read" else cell.tokens
    if length:
        fill(writer, model, cell)

    def call() -> Tensor:
        for cache in writer.caches.values():
            cache.length = length
        return writer.read(ids)

    return call, writer


def fill(writer: Writer, model: SmolLM2, cell: Cell) -> None:
    """Give each cache keys and values as if the text had been read."""
    for name, cache in writer.caches.items():
        size = model.blocks[name].attention.head_size
        for part in cache.parts:
            K = torch.empty(cell.batch, len(part.groups), 0, size, device=DEVICE)
            for slot in part.room(K, part.number_kept(cell.tokens + 1)):
                slot.normal_()


def products(cell: Cell, model: SmolLM2, streaming: Mapping[str, list[int]]) -> int:
    """Products of two numbers: each number of each matrix with each token, the output with one; scores and averages."""
    number, old = (cell.tokens, 0) if cell.task == "read" else (1, cell.tokens)
    total = cell.batch * model.get_parameter("output.1.weight").numel()
    sees = torch.arange(old + 1, old + number + 1)
    few = sees.clamp(max=STREAM.sinks + STREAM.window)
    for name, block in model.blocks.items():
        attention = block.attention
        matrices = sum(each.numel() for each in block.parameters() if each.dim() == 2)
        shared, stream = attention.num_heads // attention.num_key_value_heads, len(streaming[name])
        pairs = (attention.num_heads - shared * stream) * sees.sum() + shared * stream * few.sum()
        total += cell.batch * (number * matrices + 2 * attention.head_size * int(pairs))
    return total


def num_bytes(model: SmolLM2, writer: Writer) -> int:
    """Bytes that writing one token reads: all matrices but the embedding, and the cache."""
    weights = sum(each.numel() for name, each in model.named_parameters() if name != "embedding.weight")
    return 4 * weights + writer.num_bytes


def measured(cell: Cell, kinds: Kinds, rounds: int) -> dict:
    """Times and ceilings of every kind, taken in turn."""
    made = {kind: call_of(cell, *which) for kind, which in kinds.items()}
    calls = {kind: call for kind, (call, _) in made.items()}
    times = measure.in_turn(calls, 0, rounds) if DEVICE == "cpu" else on_gpu(calls, rounds)
    found: dict[str, dict] = {}
    for kind, (model, streaming) in kinds.items():
        writer = made[kind][1]
        found[kind] = {
            "seconds": statistics.median(times[kind]),
            "products": products(cell, model, streaming),
            "bytes": num_bytes(model, writer),
            "cache": writer.num_bytes,
        }
        ratios = sorted(whole / own for whole, own in zip(times[WHOLE], times[kind], strict=True))
        found[kind]["ratio"] = [statistics.median(ratios), ratios[0], ratios[-1]]
    return found


def on_gpu(calls: Mapping[str, Callable[[], Tensor]], rounds: int) -> dict[str, list[float]]:
    """As ``measure.in_turn``, by the clock."""
    rows = [{kind: gpu.seconds(call, 5) for kind, call in calls.items()} for _ in range(rounds + 1)]
    return {kind: [row[kind] for row in rows[1:]] for kind in calls}


def table(cells: Mapping[str, dict]) -> str:
    """A row for each cell: the whole model's time and cache, and how many times as fast the others are."""
    head = ["cell", "whole, ms", "cache, MB", *(kind for kind in KINDS if kind != WHOLE)]
    body = []
    for name, kinds in cells.items():
        whole, by = kinds[WHOLE], "bytes" if name.startswith("write") else "products"
        row = [name, f"{1000 * whole['seconds']:.0f}", f"{whole['cache'] / 1e6:.1f}"]
        for kind, own in kinds.items():
            if kind != WHOLE:
                median, low, high = own["ratio"]
                cache = f", cache {own['cache'] / whole['cache']:.2f}"
                row.append(f"{median:.2f} ({low:.2f}–{high:.2f}), ceiling {whole[by] / own[by]:.2f}{cache}")
        body.append(row)
    return report.markdown(head, body)


def main(names: list[str]) -> None:
    """Measure the cells that are not kept, and write the table."""
    suffix = "" if DEVICE == "cpu" else f"_{DEVICE}"
    file = report.RESULTS / f"writing{suffix}.json"
    cells = json.loads(file.read_text()) if file.exists() else {}
    missing = [cell for cell in CELLS if str(cell) not in cells and (not names or str(cell) in names)]
    kinds = models(random_model()) if missing else {}
    for cell in missing:
        cells[str(cell)] = measured(cell, kinds, ROUNDS.get(cell.tokens, 7))
        cells = {str(each): cells[str(each)] for each in CELLS if str(each) in cells}
        file.write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")
        print(cell, file=sys.stderr, flush=True)
    if DEVICE == "cpu" and not names and not PLANS_FILE.exists():
        parts = cast(dict, load_results("streaming"))
        plans = measured(PLANS_CELL, kinds_of_plans(random_model(), parts), rounds=15)
        PLANS_FILE.write_text(json.dumps(plans, separators=(",", ":")) + "\n", encoding="utf-8")
    where = "one thread, CPU time" if DEVICE == "cpu" else torch.cuda.get_device_name()
    text = (
        f"SmolLM2's shapes, random weights, {where}, torch {torch.__version__}: `make bench-writing`. Times as fast "
        "as the whole model, taken in turn: median (lowest to highest), beside the ceiling, which is the ratio of "
        "products in reading and of bytes in writing; and the part of the cache that is left.\n\n" + table(cells)
    )
    if left := [str(cell) for cell in CELLS if str(cell) not in cells]:
        text += f"\n\nNot measured yet: {', '.join(left)}."
    file.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
