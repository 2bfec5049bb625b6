"""Multi-head attention, written to be read, tested to be trusted.

The layer and its parts are here; ``mha_lib.heads`` finds, measures and removes the heads of a model.
"""

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

__version__ = "0.2.0"

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

old_names.install()
