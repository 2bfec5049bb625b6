"""Our layers behind other libraries' calls: torch's ``self_attn``, and an attention function of Hugging Face."""

import math

import torch
from torch import Tensor, nn

from mha_lib.attention.fused import FusedAttention
from mha_lib.attention.multi_head import MultiHeadAttention

__all__ = ["CalledLikeTorch", "hugging_face_attention"]


class _NoFastPath:
    """Stand for a weight that torch's blocks read before a call: so they take no fast path around our layer."""

    @classmethod
    def __torch_function__(cls, *given: object) -> object:
        return NotImplemented


class CalledLikeTorch(nn.Module):
    """Wrap this library's layer so that it takes the arguments and masks of ``nn.MultiheadAttention``.

    Attributes:
        layer: ours; its parameters are trained and saved.
        batch_first: whether sequences come as (b, n, d); else as (n, b, d).
    """

    in_proj_weight, in_proj_bias, _qkv_same_embed_dim = _NoFastPath(), None, False

    def __init__(self, layer: MultiHeadAttention, batch_first: bool = True):
        super().__init__()
        if not isinstance(layer, MultiHeadAttention):
            raise TypeError(f"layer must be mha_lib's MultiHeadAttention, got {type(layer).__name__}")
        self.layer, self.batch_first = layer, batch_first
        self.embed_dim, self.num_heads = layer.num_hiddens, layer.num_heads

    @property
    def out_proj(self) -> nn.Module:
        """The layer's ``W_o``, by torch's name."""
        return self.layer.W_o

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Return what ``nn.MultiheadAttention`` returns, but weights before dropout, and 0 for fully masked rows.

        Args:
            query, key, value: as ``batch_first`` says, or (n, d) for a single example.
            key_padding_mask: (b, k), or (k,); bool (True: left out), or floats that are added to the scores.
            attn_mask: (q, k) or (b · h, q, k), likewise.
            is_causal: says that ``attn_mask`` is causal, as in torch; it masks nothing by itself.
        """
        if is_causal and attn_mask is None:
            raise ValueError("is_causal must come with attn_mask, as in torch, where it is a hint alone")
        alone, swapped = query.dim() == 2, query.dim() == 3 and not self.batch_first
        if alone:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        if swapped:
            query, key, value = (X.transpose(0, 1) for X in (query, key, value))
        mask = self._mask(key_padding_mask, attn_mask, query.dtype)
        found = self.layer(query, key, value, attn_mask=mask, need_weights=need_weights)
        output, weights = found if need_weights else (found, None)
        if weights is not None:
            weights = weights.mean(dim=1) if average_attn_weights else weights
        if alone:
            return output[0], None if weights is None else weights[0]
        return output.transpose(0, 1) if swapped else output, weights

    def _mask(self, key_padding_mask: Tensor | None, attn_mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """Both masks as one of ours (True: may be attended to): four axes, or (q, k)."""
        masks = []
        if attn_mask is not None:
            masks.append(attn_mask if attn_mask.dim() == 2 else attn_mask.unflatten(0, (-1, self.num_heads)))
        if key_padding_mask is not None:
            masks.append(key_padding_mask[:, None, None])  # (b, k) -> (b, 1, 1, k)
        if all(mask.dtype == torch.bool for mask in masks):
            return ~(masks[0] if len(masks) == 1 else masks[0] | masks[1]) if masks else None
        biases = [_as_bias(mask, dtype) for mask in masks]
        return biases[0] if len(biases) == 1 else biases[0] + biases[1]


def _as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of torch's layer (True: left out) as numbers that are added to the scores."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)


def hugging_face_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, dropout: float = 0.0, is_causal: bool | None = None, **_: object,
) -> tuple[Tensor, None]:  # fmt: skip
    """Compute fused attention with the call signature that Hugging Face's transformers needs of an implementation.

    Register it under a name, with the masks that ``F.scaled_dot_product_attention`` takes, and choose it::

        AttentionInterface.register("mha_lib", hugging_face_attention)
        AttentionMaskInterface.register("mha_lib", transformers.masking_utils.sdpa_mask)
        model.set_attn_implementation("mha_lib")

    Args:
        module: the model's own layer; ``module.is_causal`` holds where ``is_causal`` and a mask are left out.
        query, key, value: (b, h, q, d), (b, g, k, d), (b, g, k, d); g divides h.
        attention_mask: None, or bool (True: may be attended to) or a float bias, (b, 1 or h, q, k or more).
        scaling: factor of the scores; left out, 1 / √d.
        dropout: probability of dropping a weight while ``module`` is in training.

    Returns:
        The output (b, q, h, d), and None for the weights.
    """
    num_queries, num_keys, head_size = query.shape[2], key.shape[2], query.shape[3]
    if attention_mask is not None:
        attention_mask = attention_mask[..., :num_keys]
    elif is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if scaling is not None:
        query = query * (scaling * math.sqrt(head_size))
    attention = FusedAttention(dropout).train(module.training)
    attention.takes_groups = True
    causal = attention_mask is None and bool(is_causal) and num_queries > 1
    output = attention(query, key, value, attn_mask=attention_mask, causal=causal)
    return output.transpose(1, 2).contiguous(), None
