"""What was measured, as text."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Ratio

RESULTS = Path(__file__).parent / "results"
PASS = {False: "forward", True: "forward + backward"}
FROM_64 = (
    "sentence", "sentences", "many sentences", "wide sentences", "paragraphs", "many paragraphs", "wide paragraphs",
    "pages", "wide pages", "chapter",
)  # fmt: skip


class Floor(NamedTuple):
    """The least that must hold in each of some cells, with memory kept by the process."""

    what: str
    least: float
    cells: tuple[str, ...]
    peer: str | None = None  # None: the share of the sgemm rate
    column: str = "output"
    training: tuple[bool, ...] = (False,)
    lengths: tuple[bool, ...] = (True,)
    table: str = "peers"

    def found(self, row: dict) -> float | None:
        """The number in this row of the measurements that the floor is about."""
        if (
            row["table"] != self.table
            or row["cell"] not in self.cells
            or row["training"] not in self.training
            or row["lengths"] not in self.lengths
            or "skipped" in row
        ):
            return None
        return row["share"][0] if self.peer is None else row[self.column][self.peer][0]


BOTH = (False, True)
FLOORS = (
    Floor("output only, against d2l", 1.25, ("paragraphs",), "d2l, weights"),
    Floor("output only, against d2l", 1.5, ("pages",), "d2l, weights"),
    Floor("output only, against d2l", 1.2, ("paragraphs",), "d2l, weights", training=(True,)),
    Floor("output only, against d2l", 1.35, ("pages",), "d2l, weights", training=(True,)),
    Floor("output only, against torch.nn", 0.95, FROM_64, "torch", training=BOTH, lengths=BOTH),
    Floor("output only, against packed + kernel", 0.93, FROM_64, "packed", training=BOTH, lengths=BOTH),
    Floor("with weights kept, against d2l", 1.2, ("pages",), "d2l, weights", "weights"),
    Floor("with weights kept, against torch.nn", 0.9, ("paragraphs", "pages"), "torch, weights", "weights"),
    Floor("share of the sgemm rate", 0.7, ("paragraphs", "pages", "wide paragraphs"), lengths=(False,)),
    Floor("ragged lengths, against packed + kernel", 1.3, ("pages",), "packed", table="ragged"),
)


def write_speed(rows: Sequence[dict], full: bool) -> None:
    """Print the tables of ``benchmarks.layer``; write them to the results (a subset to its own)."""
    text = "\n\n".join(speed_tables(rows))
    print(text)
    (folder_of(full) / "speed.md").write_text(text + "\n", encoding="utf-8")


def folder_of(full: bool) -> Path:
    """Where results of the full run, or of the subset, belong."""
    folder = RESULTS if full else RESULTS / "subset"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def speed_tables(rows: Sequence[dict]) -> list[str]:
    """All tables: a caption and the table itself, for each allocator and kind."""
    texts = []
    for allocator in dict.fromkeys(row["allocator"] for row in rows):
        mine = [row for row in rows if row["allocator"] == allocator]
        for lengths, caption in ((True, "valid_lens uniform from n / 2 to n"), (False, "no valid_lens")):
            beside = [row for row in mine if row["table"] == "peers" and row["lengths"] == lengths]
            if beside:
                texts += [f"Beside peers, {caption}; allocator: {allocator}", table_of_peers(beside, lengths)]
        for kind, caption in (
            ("dropout", "Forward + backward with dropout 0.1, valid_lens uniform from n / 2 to n"),
            ("ragged", "Forward, valid_lens uniform from 1 to n"),
        ):
            texts += [f"{caption}; allocator: {allocator}", table_of_ratios([r for r in mine if r["table"] == kind])]
    return [*texts, "What must hold, and the lowest number that was measured", table_of_floors(rows)]


def table_of_peers(rows: Sequence[dict], lengths: bool) -> str:
    """One line a cell and pass: our milliseconds, and contenders ÷ ours, without and with weights for each head."""
    head = ["cell", "batch, n, d, heads", "pass", "ours, ms", "% of sgemm", "d2l", "torch.nn", "packed + kernel",
            "ours, weights", "ours, weights kept", "weights: d2l", "weights: torch.nn"]  # fmt: skip
    body = []
    for row in rows:
        line = [row["cell"], row["shape"], PASS[row["training"]]]
        if "skipped" in row:
            body.append([*line, row["skipped"]])
            continue
        share = f"{100 * row['share'][0]:.0f}" if "share" in row else ""
        line += [f"{row['ms']:.2f}", share]
        names = ("d2l, weights", "torch", "packed", "ours, weights", "ours, weights kept")
        line += [str(Ratio(*row["output"][name])) for name in names]
        line += [str(Ratio(*row["weights"][name])) for name in ("d2l, weights", "torch, weights")]
        body.append(line)
    if lengths:
        head.remove("% of sgemm")
        body = [line[:4] + line[5:] for line in body]
    return markdown(head, body)


def table_of_ratios(rows: Sequence[dict]) -> str:
    """One line a cell: our milliseconds, and every other contender ÷ ours."""
    names = {
        "packed": "packed + kernel",
        "torch": "torch.nn",
        "d2l, weights": "d2l",
        "ours, masked": "ours, skip_padding off",
    }
    shown = [name for name in names if name in rows[0]["output"]]
    body = [
        [row["cell"], row["shape"], f"{row['ms']:.2f}", *(str(Ratio(*row["output"][name])) for name in shown)]
        for row in rows
    ]
    return markdown(["cell", "batch, n, d, heads", "ours, ms", *(names[name] for name in shown)], body)


def table_of_floors(rows: Sequence[dict]) -> str:
    """Every floor with the lowest number that it is about; it has to hold with memory kept by the process."""
    body = []
    for floor in FLOORS:
        lowest: dict[str, tuple[float, dict]] = {}
        for row in rows:
            number = floor.found(row)
            if number is not None and number < lowest.get(row["allocator"], (math.inf,))[0]:
                lowest[row["allocator"]] = number, row
        if lowest:
            number, row = lowest["memory kept"]
            where = f"{row['cell']}, {PASS[row['training']]}, {'' if row['lengths'] else 'no '}valid_lens"
            by_default = f"{lowest['default'][0]:.2f}" if "default" in lowest else ""
            holds = "yes" if number >= floor.least else "NO"
            body.append([floor.what, str(floor.least), f"{number:.2f}", holds, where, by_default])
    return markdown(["check", "at least", "memory kept", "holds", "lowest in", "default allocator"], body)


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up as text too."""
    body = [[*line, *[""] * (len(head) - len(line))] for line in body]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = [head, ["-" * width for width in widths], *body]
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def write_memory(
    curves: Mapping[str, Mapping[int, float]], skipped: Sequence[str], checks: Sequence[tuple[str, bool]], full: bool
) -> None:
    """Print the table of ``benchmarks.memory``; write it to the results (a subset to its own)."""
    sizes = sorted({n for curve in curves.values() for n in curve})
    body = [[name, *(f"{curve[n]:.0f}" if n in curve else "" for n in sizes)] for name, curve in curves.items()]
    table = markdown(["peak MiB at n =", *map(str, sizes)], body)
    held = [f"{'holds' if holds else 'DOES NOT HOLD'}: {what}" for what, holds in checks]
    text = "\n\n".join([table, *skipped, *held])
    print(text)
    (folder_of(full) / "memory.md").write_text(text + "\n", encoding="utf-8")
