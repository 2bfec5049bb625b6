"""What masks cost: ``python -m benchmarks.masks``.

Causal attention beside the bare kernel's, where there are as many queries as keys; and lengths beside the bare kernel
with a mask, which lets NaN at invalid keys through, where the layer writes zeros over it.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import measure
from benchmarks.contenders import Call, Cell, ours_causal, ours_masked, timed
from benchmarks.report import markdown
from mha_lib import MultiHeadAttention
from mha_lib.attention import merge_heads, split_heads, valid_keys

CHAPTER = Cell(1, 4096, 256, 8)
MASKED = (Cell(8, 64, 256, 8), Cell(8, 256, 256, 8))
AT_MOST = 1.15  # times the bare kernel's causal attention with projections
CAUSAL, LENGTHS = "causal", "lengths, masked"


def main() -> None:
    """Measure in a process of its own, where memory is kept; print the tables."""
    body = []
    for row in measure.in_process_of_its_own(rows, environment=measure.ALLOCATORS["memory kept"]):
        ratio = measure.Ratio(*row["ratio"])
        verdict = "" if row["kind"] != CAUSAL else "yes" if ratio.median <= AT_MOST else "NO"
        body.append([row["kind"], row["shape"], row["lengths"], f"{row['ms']:.2f}", str(ratio), verdict])
    head = ["masks", "batch, n, d, heads", "valid_lens", "ours, ms", "ours ÷ (projections + kernel)", f"≤ {AT_MOST}"]
    print(markdown(head, body))


def rows() -> Iterator[dict]:
    """Forward passes, ours and the bare kernel in turn."""
    torch.set_num_threads(1)
    for lengths in (None, torch.tensor([CHAPTER.n - CHAPTER.n // 4])):
        yield beside_the_kernel(CAUSAL, CHAPTER, lengths, seconds=10, rounds=5)
    for cell in MASKED:
        yield beside_the_kernel(LENGTHS, cell, cell.valid_lens(cell.n // 2), seconds=2, rounds=5)


def beside_the_kernel(kind: str, cell: Cell, lengths: Tensor | None, seconds: float, rounds: int) -> dict:
    """The time of the layer ÷ that of the kernel with the same projections, and milliseconds of the layer."""
    torch.manual_seed(0)
    layer, X = cell.layer().eval(), cell.tokens()
    ours = ours_causal if kind == CAUSAL else ours_masked
    calls = {"ours": ours(layer), "kernel": bare_kernel(layer, kind == CAUSAL)}
    with torch.no_grad():  # the bare kernel's causal attention knows no lengths: up to them, the outputs are the same
        results = [call(X, lengths)[:, : cell.n if lengths is None else lengths.min()] for call in calls.values()]
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    times = measure.in_turn({name: timed(call, X, lengths, False) for name, call in calls.items()}, seconds, rounds)
    ratio = measure.ratio(times["ours"], times["kernel"])
    milliseconds = 1000 * sorted(times["ours"])[len(times["ours"]) // 2]
    shown = "none" if lengths is None else str(tuple(lengths.shape))
    return {"kind": kind, "shape": str(cell), "lengths": shown, "ms": milliseconds, "ratio": ratio}


def bare_kernel(layer: MultiHeadAttention, causal: bool) -> Call:
    """The layer's projections around torch's kernel, with nothing checked, zeroed or kept."""

    def call(X: Tensor, valid_lens: Tensor | None) -> Tensor:
        Q, K, V = (split_heads(W(X), layer.num_heads) for W in (layer.W_q, layer.W_k, layer.W_v))
        mask = None if causal or valid_lens is None else valid_keys(valid_lens, X.shape[1]).unsqueeze(1)
        return layer.W_o(merge_heads(F.scaled_dot_product_attention(Q, K, V, mask, is_causal=causal)))

    return call


if __name__ == "__main__":
    main()
