"""Attention. Read ``pooling``, then ``multi_head``; ``fused`` gives the same numbers faster."""

from mha_lib.attention.fused import FusedAttention
from mha_lib.attention.masks import causal, rule_matrix, valid_keys
from mha_lib.attention.multi_head import MultiHeadAttention, merge_heads, split_heads, transpose_output, transpose_qkv
from mha_lib.attention.pooling import (
    AdditiveAttention,
    AttentionPooling,
    DotProductAttention,
    KernelPooling,
    ScoredAttention,
    masked_softmax,
)

__all__ = [
    "AdditiveAttention", "AttentionPooling", "DotProductAttention", "FusedAttention", "KernelPooling",
    "MultiHeadAttention", "ScoredAttention", "causal", "masked_softmax", "merge_heads", "rule_matrix", "split_heads",
    "transpose_output", "transpose_qkv", "valid_keys",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
