"""Multi-head attention, written to be read, tested to be trusted.

The layer and its parts are here; ``mha_lib.heads`` finds, measures and removes the heads of a model. A room is imported
when it is first used.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from mha_lib import old_names
from mha_lib.attention import (
    AdditiveAttention,
    DotProductAttention,
    KernelPooling,
    MultiHeadAttention,
    masked_softmax,
    merge_heads,
    split_heads,
    transpose_output,
    transpose_qkv,
)
from mha_lib.figures import heatmaps

__version__ = "0.2.0.dev0"

__all__ = [
    "AdditiveAttention",
    "DotProductAttention",
    "KernelPooling",
    "MultiHeadAttention",
    "heatmaps",
    "masked_softmax",
    "merge_heads",
    "split_heads",
    "transpose_output",
    "transpose_qkv",
]

ROOMS = ("attention", "figures", "heads")

old_names.install()

if TYPE_CHECKING:
    from mha_lib import attention as attention
    from mha_lib import figures as figures
    from mha_lib import heads as heads
else:

    def __getattr__(name: str) -> ModuleType:
        if name not in ROOMS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted([*__all__, *ROOMS])
