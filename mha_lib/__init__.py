"""Multi-head attention, written to be read, tested to be trusted.

The layer and its parts are here; everything else is in a package of its own.
"""

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

__version__ = "0.2.0"

__all__ = [
    "AdditiveAttention",
    "DotProductAttention",
    "KernelPooling",
    "MultiHeadAttention",
    "masked_softmax",
    "merge_heads",
    "split_heads",
    "transpose_output",
    "transpose_qkv",
]
