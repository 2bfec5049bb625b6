"""What stays alive after a forward pass in ``eval`` without gradients: ``python -m benchmarks.kept_memory``.

Twelve layers one after the other, batch 8, 512 tokens, 256 hiddens, 8 heads. Counted are all tensors that Python can
reach when the output is gone, without the parameters and the input.
"""

import gc

import torch
from torch import nn

from benchmarks import report
from benchmarks.contenders import CONTENDERS, Call, Cell
from mha_lib.attention import FusedAttention

NUM_LAYERS = 12
CELL = Cell(8, 512, 256, 8)
KEPT_NOTHING = "ours, keep_inputs off"
LAYERS = ("ours", KEPT_NOTHING, "ours, weights kept", "torch", "d2l, weights")


def mebibytes_alive() -> float:
    """The memory of all tensors that are there."""
    gc.collect()
    storages = [X.untyped_storage() for X in gc.get_objects() if type(X) in (torch.Tensor, nn.Parameter)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values()) / 2**20


def kept_by(name: str, cell: Cell = CELL) -> float:
    """MiB that stay alive in twelve layers of this kind."""
    calls: list[Call] = []
    for _ in range(NUM_LAYERS):
        layer = cell.layer().eval()
        if name == KEPT_NOTHING:
            assert isinstance(layer.attention, FusedAttention)
            layer.attention.keep_inputs = False
        calls.append(CONTENDERS["ours" if name == KEPT_NOTHING else name](layer))
    X = cell.tokens()
    before = mebibytes_alive()
    with torch.no_grad():
        Y = X
        for call in calls:
            Y = call(Y, None)
    del Y
    return mebibytes_alive() - before


def main() -> None:
    """Print and write a row for each kind of layer."""
    torch.manual_seed(0)
    body = [[name, f"{kept_by(name):.0f}"] for name in LAYERS]
    caption = f"Alive after a forward pass of {NUM_LAYERS} layers in eval, (batch, n, d, heads) = {CELL}"
    text = f"{caption}\n\n{report.markdown(['layer', 'MiB'], body)}"
    print(text)
    (report.RESULTS / "kept_memory.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
