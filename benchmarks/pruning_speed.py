"""What taking heads out saves: ``python -m benchmarks.pruning_speed [--full]``.

A layer's work is proportional to its heads, and that is the ideal; its block does the work of a feed-forward network
besides.
"""

import json
from pathlib import Path

import torch

import mha_course
from benchmarks import measure
from benchmarks.contenders import Cell
from benchmarks.report import markdown
from mha_course.heads.removal import select_heads
from mha_course.models.transformer import Block

RESULTS = Path(mha_course.__file__).with_name("heads") / "results" / "pruning_speed.json"
# What is measured: a cell, and how many of its heads are kept.
CUTS = (
    (Cell(32, 64, 256, 8), 4),
    (Cell(32, 128, 512, 8), 4),
    (Cell(32, 128, 512, 8), 2),
    (Cell(32, 64, 512, 16), 4),
    (Cell(32, 256, 512, 16), 4),
)
FLOOR = 0.9  # share of the ideal that the layer must reach
MUST_REACH = CUTS[1:3]  # the cuts where it must
FEED_FORWARD = 4  # hidden units of a feed-forward network for every number of a token
RATIOS = ("layer", "masked layer", "block", "masked block")


def main(full: bool) -> None:
    """Print the table; in full also write it to pruning_speed.json in the library, for the notebook on pruning."""
    rows = measure.in_process_of_its_own(measured, full, environment=measure.ALLOCATORS["memory kept"])
    if full:
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        print(f"{RESULTS.name} is new, and a notebook prints it: run `make notebooks` before you commit it.")
    print(
        "Whole ÷ pruned or masked, time of a forward pass; allocator: memory kept",
        table(rows),
        floors(rows),
        sep="\n\n",
    )


def measured(full: bool) -> list[dict]:
    """All cuts, for long, or those where the layer must reach a share of the ideal."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cuts, seconds = (CUTS, 6.0) if full else (MUST_REACH, 3.0)
    return [speed_ups(*cut, seconds) for cut in cuts]


def speed_ups(cell: Cell, kept: int, seconds: float) -> dict:
    """Time of the whole layer and of the whole block ÷ those of the pruned and the masked ones, and the ideals."""
    whole = Block(cell.num_hiddens, cell.num_heads, FEED_FORWARD * cell.num_hiddens, dropout=0.0).eval()
    pruned = Block(cell.num_hiddens, cell.num_heads, FEED_FORWARD * cell.num_hiddens, dropout=0.0).eval()
    pruned.load_state_dict(whole.state_dict())
    pruned.attention = select_heads(pruned.attention, range(kept))
    gates = (torch.arange(cell.num_heads) < kept).float()
    X = cell.tokens()
    calls = {
        "layer": lambda: pruned.attention(X, X, X),
        "masked layer": lambda: whole.attention(X, X, X, head_mask=gates),
        "block": lambda: pruned(X, X, None, None),
        "masked block": lambda: whole(X, X, None, gates),
        "whole layer": lambda: whole.attention(X, X, X),
        "whole block": lambda: whole(X, X, None, None),
    }
    with torch.no_grad():
        torch.testing.assert_close(calls["block"](), calls["masked block"](), rtol=1e-4, atol=1e-4)
        times = measure.in_turn(calls, seconds, rounds=5)
    feed_forward = 4 * cell.batch * cell.n * cell.num_hiddens**2 * FEED_FORWARD
    return {
        "shape": str(cell),
        "kept": kept,
        **{name: measure.ratio(times[f"whole {name.split()[-1]}"], times[name]) for name in RATIOS},
        "layer ideal": cell.num_heads / kept,
        "block ideal": (cell.flops + feed_forward) / (cell.flops * kept / cell.num_heads + feed_forward),
    }


def table(rows: list[dict]) -> str:
    """One line a cut: speed-ups beside their ideals."""
    head = ["batch, n, d, heads", "kept", "layer", "ideal", "masked layer", "block", "ideal", "masked block"]
    body = []
    for row in rows:
        layer, masked_layer, block, masked_block = (str(measure.Ratio(*row[name])) for name in RATIOS)
        ideals = [f"{row[name]:.2f}" for name in ("layer ideal", "block ideal")]
        body.append([row["shape"], str(row["kept"]), layer, ideals[0], masked_layer, block, ideals[1], masked_block])
    return markdown(head, body)


def floors(rows: list[dict]) -> str:
    """Whether the layer is as fast as it must be."""
    shapes = [(str(cell), kept) for cell, kept in MUST_REACH]
    shares = [row["layer"][0] / row["layer ideal"] for row in rows if (row["shape"], row["kept"]) in shapes]
    verdict = "holds" if min(shares) >= FLOOR else "FAILS"
    reached = ", ".join(f"{share:.2f}" for share in shares)
    return f"Share of the ideal at d = 512, n = 128, half and a quarter of the heads: {reached}; ≥ {FLOOR} {verdict}."


if __name__ == "__main__":
    main(measure.is_full(__doc__))
