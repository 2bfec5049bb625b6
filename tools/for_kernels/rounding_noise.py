"""Pretend to be another processor: change what torch computes in the last place.

The noise is the same for the same operation, shape and position, as it is on one machine: what is computed twice in the
same way stays equal, and what is equal in exact arithmetic alone does not.
"""

import functools
import zlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode

KINDS = ("random", "rising", "falling")  # of equal numbers the last one grows most where noise is rising
ROUNDED = {
    *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"),
    *("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"),
    *("exp", "log", "tanh", "sigmoid", "sin", "cos", "gelu", "sum", "mean", "std", "var", "linalg_vector_norm"),
    *("native_layer_norm", "_scaled_dot_product_flash_attention_for_cpu"),
}
KEPT = 1_000_000  # of larger tensors the noise is drawn anew each time


def draw(kind: str, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Return −1, 0 or 1 for each position: by how many places a number moves."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {shape}".encode()))
    steps = torch.randint(-1, 2, shape, generator=generator)
    if kind == "random":
        return steps
    return steps.flatten().sort(descending=kind == "falling").values.view(shape)


class Noise(TorchDispatchMode):
    """Move what an operation of ``ROUNDED`` returns on the CPU to a neighbouring number, or leave it.

    flex_attention, which has no rule under a mode, passes unchanged.
    """

    supports_higher_order_operators = True

    def __init__(self, kind: str):
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"ROUNDING_NOISE must be one of {KINDS}, got {kind!r}")
        self.kind = kind
        self.kept = functools.lru_cache(draw)

    @classmethod
    def is_infra_mode(cls):
        return True  # else torch.compile, by which flex_attention is called, refuses

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.name().partition("::")[2].partition(".")[0]
        first, *others = result if isinstance(result, tuple) else (result,)
        if name not in ROUNDED or function._schema.is_mutable:
            return result
        is_traced = type(first) is not torch.Tensor  # without numbers, as torch.export sees it
        if is_traced or first.dtype not in (torch.float32, torch.float64) or first.device.type != "cpu":
            return result
        if name in ("sum", "mean") and not args[0].frac().any():
            return result  # sums of whole numbers are exact on every processor
        steps = (self.kept if first.numel() <= KEPT else draw)(self.kind, name, tuple(first.shape))
        first = first.nextafter(first * (1 + steps.to(first.dtype) / 2))  # what is 0 or infinite stays
        return (first, *others) if isinstance(result, tuple) else first
