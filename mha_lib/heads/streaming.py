"""Heads that attend only to the first keys and to the latest ones. In comments letters as in ``watching``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib.heads.watching import Attended, Watch

OF_FUSED = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
Mixed = Callable[[Tensor, Tensor], Tensor]  # heads, and the same heads streaming, (b, q, h, d) both


@dataclass(frozen=True)
class Stream:
    """Name the keys of a streaming head: the first ones, ``sinks``, and the last ``window``, the query's own with them.

    Raises:
        ValueError: ``sinks`` is below 0 or ``window`` below 1.

    Source: Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks"; a gate on each head between
    this and full attention, Xiao et al. 2025, "DuoAttention".
    """

    sinks: int = 4
    window: int = 24

    def __post_init__(self):
        for name, value, least in (("sinks", self.sinks, 0), ("window", self.window, 1)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number from {least} on, got {value!r}")

    def allowed(self, num_queries: int, num_keys: int, device: torch.device | None = None) -> Tensor:
        """Return which query may attend to which key, bool (q, k); the last query is at the last key."""
        j = torch.arange(num_keys, device=device)
        return self.sees(j[-num_queries:, None], j)

    def sees(self, i: Tensor, j: Tensor) -> Tensor:
        """Return whether queries at positions ``i`` attend to keys at positions ``j``."""
        return (j <= i) & ((j < self.sinks) | (i - j < self.window))


class Streaming(Watch):
    """Compute each attention call of a model a second time, streaming, and let changes mix both, in a ``with`` block.

    Args:
        stream: which keys are left.
        layers: by module, the name and the number of heads of the layer that each of its attention calls belongs to, in
            order; the name "" where it belongs to none.
        changes: by the name of a layer.
    """

    def __init__(
        self, model: nn.Module, stream: Stream, layers: Mapping[nn.Module, Sequence[tuple[str, int]]],
        changes: Mapping[str, Mixed],
    ):  # fmt: skip
        super().__init__(model)
        self.stream, self.layers, self.changes = stream, layers, changes
        self.calls: dict[nn.Module, int] = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        output = super().__torch_function__(func, types, args, kwargs)
        if self.seen:
            output = self._changed(self.seen.pop(), func, args, kwargs, output)
            for table in (self._weights, self._results, self._alive):  # what a later pass need not keep alive
                table.clear()
        return output

    def _changed(self, one: Attended, func: Callable, args: tuple, kwargs: dict, output):
        call, layers = self.calls.get(one.module, 0), self.layers.get(one.module, [("", 0)])
        self.calls[one.module] = call + 1
        name, num_heads = layers[call % len(layers)]
        if name not in self.changes:
            return output

        def mixed(full: Tensor, streaming: Tensor, *shape: int, axes: tuple[int, int] = (1, 2)) -> Tensor:
            both = (X.reshape(shape or (-1, num_heads, *X.shape[-2:])).transpose(*axes) for X in (full, streaming))
            return self.changes[name](*both).transpose(*axes).reshape(full.shape)

        if one.is_torchs_layer:  # (q, b, h · d) or (q, h · d): an identity mixes the heads here
            allowed, mask = self.stream.allowed(len(args[0]), len(args[1]), output[0].device), kwargs["attn_mask"]
            left = _restricted(~mask if mask is not None and mask.dtype == torch.bool else mask, allowed)
            again = kwargs | {"attn_mask": ~left if left.dtype == torch.bool else left, "is_causal": False}
            shape = len(args[0]), -1, num_heads, output[0].shape[-1] // num_heads
            return mixed(output[0], func(*args, **again)[0], *shape, axes=(0, 1)), *output[1:]
        if one.primitive == "softmax":
            weights = next(X for X in args if isinstance(X, Tensor) and id(X) in self._weights)
            heads = mixed(weights, self._streaming_weights(weights))
            return func(*(heads if X is weights else X for X in args), **kwargs)
        named = dict(zip(OF_FUSED, args, strict=False)) | kwargs
        allowed = self.stream.allowed(output.shape[-2], named["key"].shape[-2], output.device)
        named |= {"attn_mask": _restricted(named.get("attn_mask"), allowed), "is_causal": False}
        return mixed(output, func(**named))

    def _streaming_weights(self, weights: Tensor) -> Tensor:
        """Attention weights (…, q, k), divided anew among the keys that are left, and a sink that is no token."""
        softmax = self._weights[id(weights)]
        num_queries, num_keys = weights.shape[-2:]
        allowed = self.stream.allowed(num_queries, num_keys, weights.device)
        left = softmax * F.pad(allowed, (0, softmax.shape[-1] - num_keys), value=True)
        left = left / left.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(left.dtype).tiny)
        return left[..., :num_keys].reshape(weights.shape).to(weights.dtype)


def _restricted(mask: Tensor | None, allowed: Tensor) -> Tensor:
    """A mask as the fused kernel takes it, bool or additive, with these keys alone."""
    if mask is None:
        return allowed
    return mask & allowed if mask.dtype == torch.bool else mask.masked_fill(~allowed, -torch.inf)
