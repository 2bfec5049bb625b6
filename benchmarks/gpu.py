"""The layer beside its peers on a GPU, and which calls make the processor wait for it: ``make bench-gpu``.

Where there is no GPU it says so. ``MHA_DEVICE=cpu`` runs it on the processor, at small sizes, to see that it runs.
"""

import os
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import measure, report
from benchmarks.contenders import Cell
from mha_lib.attention import converters, split_heads, valid_keys

DEVICE = os.environ.get("MHA_DEVICE", "cuda")
CELLS = [Cell(32, 256, 512, 8), Cell(8, 1024, 512, 8), Cell(1, 4096, 512, 8)]
TINY = [Cell(2, 8, 16, 4)]
DTYPES = (torch.float32, torch.bfloat16)
CASES = ("no mask", "lengths", "causal", "weights", "lengths, weights", "training", "training, dropout")
DROPOUT = 0.1
TOLERANCES = {torch.float32: 2e-3, torch.bfloat16: 5e-2}  # a GPU may multiply single precision in TF32


def calls_of(case: str, cell: Cell, dtype: torch.dtype, device: str | None = None) -> dict[str, Callable[[], Tensor]]:
    """A pass of each contender, in training with its backward pass; the kernel, without projections, is for scale."""
    torch.manual_seed(0)
    device = device or DEVICE
    training, dropout = "training" in case, DROPOUT if "dropout" in case else 0.0
    layer = cell.layer(dropout).train(training)
    X = cell.tokens().to(device, dtype)
    lengths = cell.valid_lens(cell.n // 2).to(device) if "lengths" in case else None
    causal, weights = case == "causal", "weights" in case
    d2l, theirs = converters.to_d2l(layer), converters.to_torch(layer)
    for one in (layer, d2l, theirs):
        one.to(device, dtype)
    projected = (split_heads(W(X), cell.num_heads).detach() for W in (layer.W_q, layer.W_k, layer.W_v))
    Q, K, V = (Y.requires_grad_(training) for Y in projected)

    def our_layer() -> Tensor:
        found = layer(X, X, X, lengths, causal=causal, need_weights=weights)
        return found[0] if weights else found

    def torch_layer() -> Tensor:
        masks = {} if lengths is None else converters.torch_masks(lengths, cell.n, cell.num_heads)
        if causal:
            masks = {"attn_mask": torch.ones(cell.n, cell.n, dtype=torch.bool, device=device).triu(1)}
        return theirs(X, X, X, need_weights=weights, average_attn_weights=False, is_causal=causal, **masks)[0]

    def kernel() -> Tensor:
        mask = None if lengths is None else valid_keys(lengths, cell.n).unsqueeze(1)
        return F.scaled_dot_product_attention(Q, K, V, mask, dropout, is_causal=causal)

    def book() -> Tensor:  # causal attention is a length for each query
        seen = torch.arange(1, cell.n + 1, device=device).repeat(cell.batch, 1) if causal else lengths
        return d2l(X, X, X, seen)

    calls = {"ours": our_layer, "torch": torch_layer, "kernel": kernel, "d2l": book}
    return {name: with_backward(call) for name, call in calls.items()} if training else calls


def with_backward(call: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The same in training, forward and backward."""

    def both() -> Tensor:
        with torch.enable_grad():
            output = call()
            output.sum().backward()
        return output.detach()

    return both


def waits(call: Callable[[], object]) -> str:
    """Whether torch's own sync debug mode finds that a call waits for the GPU; ours may, where it reads a number."""
    if DEVICE == "cpu":
        return "not asked on the CPU"
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
        return "no"
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        return "yes"
    finally:
        torch.cuda.set_sync_debug_mode("default")


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Time on the clock until the GPU is done."""
    done = torch.cuda.synchronize if DEVICE != "cpu" else torch.cpu.synchronize
    done()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    done()
    return (time.perf_counter() - start) / repeats


@torch.no_grad()
def row(case: str, cell: Cell, dtype: torch.dtype, rounds: int, repeats: int) -> list[str]:
    """Our time, every contender's ÷ ours in the same round, and whether ours waits."""
    calls = calls_of(case, cell, dtype)
    for name in () if "dropout" in case else ("torch", "d2l"):
        torch.testing.assert_close(calls[name](), calls["ours"](), rtol=0, atol=TOLERANCES[dtype])
    rows = [{name: seconds(call, repeats) for name, call in calls.items()} for _ in range(rounds + 1)]
    times = {name: [one[name] for one in rows[1:]] for name in calls}  # the first round is for warming up
    ratios = [str(measure.ratio(times[name], times["ours"])) for name in ("torch", "kernel", "d2l")]
    ms = f"{1000 * statistics.median(times['ours']):.3f}"
    return [case, str(cell), str(dtype).removeprefix("torch."), ms, *ratios, waits(calls["ours"])]


def main() -> None:
    on_gpu = DEVICE != "cpu"
    if on_gpu and not torch.cuda.is_available():
        print("make bench-gpu: torch sees no GPU here, so that nothing was measured.")
        return
    cells, rounds, repeats = (CELLS, 15, 20) if on_gpu else (TINY, 3, 1)
    body = [row(case, cell, dtype, rounds, repeats) for cell in cells for dtype in DTYPES for case in CASES]
    peers = ["torch.nn ÷ ours", "kernel ÷ ours", "d2l ÷ ours"]
    head = ["case", "batch, n, d, heads", "numbers", "ours, ms", *peers, "processor waits"]
    where = torch.cuda.get_device_name() if on_gpu else "the CPU, at small sizes"
    text = f"Measured on {where}, torch {torch.__version__}.\n\n" + report.markdown(head, body)
    print(text)
    if on_gpu:
        (report.RESULTS / "gpu.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
