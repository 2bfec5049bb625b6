"""Weights of a layer's last call: kept, or computed when they are first read. Letters as in ``pooling``."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mha_lib.attention.masks import Masks


class KeptWeights(nn.Module):
    """Keep the attention weights of the last call in ``attention_weights``: a base class for attention modules."""

    def __init__(self):
        super().__init__()
        self._kept: Tensor | Callable[[], Tensor] | None = None  # weights of the last call, or how to get them

    def store_weights(self, weights: Tensor | Callable[[], Tensor] | None) -> None:
        """Make ``attention_weights`` give these, or what this function returns; None, as a call begins, clears them."""
        object.__setattr__(self, "_kept", weights)  # nn.Module's own way takes several times as long

    @property
    def attention_weights(self) -> Tensor:
        """Weights of the last call, before dropout, detached: (b, q, k), or (b · h, q, k) as in the book's layer.

        There are none after a call that was refused.
        """
        return self.weights_of_heads.flatten(end_dim=-3)

    @property
    def weights_of_heads(self) -> Tensor:
        """The same, with an axis for heads if the call had one: (b, q, k) or (b, h, q, k)."""
        if self._kept is None:
            raise RuntimeError(
                "attention_weights: there are none. Call the layer first; a call under torch.compile, export or vmap "
                "keeps none (need_weights returns them), nor does a copy of a layer, nor a call that fails. "
                "torch.jit.trace and script, which read them before any call, cannot record attention layers: use "
                "torch.export or torch.compile"
            )
        if not isinstance(self._kept, Tensor):
            self._kept = self._kept()
        return self._kept

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_kept": None}


def lazy_weights(
    weights: Callable[[Tensor, Tensor, Tensor | None], Tensor], queries: Tensor, keys: Tensor, masks: Masks
) -> Callable[[], Tensor]:
    """Return a function without arguments that computes ``weights(queries, keys, mask)`` only when it is called."""
    queries, keys = queries.detach(), keys.detach()
    masks.keep()

    def weights_of_the_call() -> Tensor:
        if versions(queries, keys, masks.attn_mask) != before:
            raise RuntimeError(
                "attention_weights: queries, keys or attn_mask were changed in place since the last call; "
                "call the layer again"
            )
        with torch.no_grad():
            return weights(queries, keys, masks.joined()).detach()

    before = versions(queries, keys, masks.attn_mask)
    return weights_of_the_call


def nothing_was_kept() -> Tensor:
    """Raise the RuntimeError for asking for attention weights after a call whose queries and keys were not stored."""
    raise RuntimeError(
        "attention_weights: the call kept no inputs to compute them from (keep_inputs is False). Ask for them in the "
        "call, layer(…, need_weights=True), or set keep_inputs or keep_weights of its attention to True, and call again"
    )


def versions(*tensors: Tensor | None) -> list[int | None]:
    """Return each tensor's version counter, which changes when the tensor is written to in place."""
    return [None if X is None or X.is_inference() else X._version for X in tensors]
