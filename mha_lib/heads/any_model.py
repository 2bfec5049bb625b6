"""The heads of any model: found by one forward pass, read, and switched off. In comments letters as in ``watching``."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib.heads.ablation import ABLATIONS, evaluating
from mha_lib.heads.found_layers import FoundLayer, described
from mha_lib.heads.watching import Attended, Watch

Change = Callable[[Tensor, int], Tensor]  # heads (b, q, h, d) and the number of the call -> heads


class FoundHeads:
    """The heads of a model, by layer. ``of`` makes it.

    Attributes:
        layers: by name, in the order of computation.
        unknown: attention that was seen and not understood, by the name of its module, with the reason.
    """

    def __init__(self, model: nn.Module, inputs: tuple, named: dict[str, Any], watch: Watch):
        self.model, self._inputs, self._named = model, inputs, named
        self._names = {module: name for name, module in model.named_modules()}
        self.layers: dict[str, FoundLayer] = {}
        self.unknown: dict[str, str] = {}
        self._torchs: dict[str, nn.Module] = {}  # layers whose mixing module torch never calls
        found: dict[str, list[FoundLayer]] = {}
        for one, layer in self._described(watch):
            if isinstance(layer, str):
                self.unknown[self._names[one.module]] = layer
                continue
            found.setdefault(layer.mixing, []).append(layer)
            if one.is_torchs_layer:
                self._torchs[layer.name] = one.module
        names = [layers[0].name for layers in found.values()]
        for mixing, (layer, *again) in found.items():
            name = layer.name if names.count(layer.name) == 1 else mixing
            self.layers[name] = replace(layer, name=name, uses=1 + len(again))

    def __repr__(self) -> str:
        titles = "layer", "kind", "heads", "key-value heads", "head size", "mixing module", "uses"
        rows = [titles, *(tuple(map(str, vars(layer).values())) for layer in self.layers.values())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines += [f"not understood: {name or 'the model itself'}: {why}" for name, why in self.unknown.items()]
        if len(lines) == 1:
            lines = [
                "No attention was seen. Kernels that are no functions of torch (flash-attn, flex_attention) are "
                'invisible: a model of transformers shows it after model.set_attn_implementation("sdpa").'
            ]
        return "\n".join(lines)

    def maps(self, *inputs, **named) -> dict[str, Tensor]:
        """Return the attention weights of each layer: (b, h, q, k), or (uses, b, h, q, k) where it is used again.

        They are computed from what the fused calls of this pass receive. Rows sum to 1; a row without a key is 0, and
        where a model has an attention sink that is no token, its weight is missing from the sum.

        Args:
            inputs, named: what the model is called with; left out, the example that the heads were found with.
        """
        inputs, named = self._example(inputs, named)
        names = {layer.mixing: name for name, layer in self.layers.items()}
        found: dict[str, list[Tensor]] = {name: [] for name in self.layers}
        for one, layer in self._described(_watched(self.model, inputs, named, with_weights=True)):
            if isinstance(layer, FoundLayer) and layer.mixing in names and one.weights is not None:
                shape = (-1, layer.num_heads, *one.weights.shape[-2:])
                found[names[layer.mixing]].append(one.weights.reshape(shape))
        return {name: _one_or_all(weights) for name, weights in found.items()}

    def outputs(self, *inputs, **named) -> dict[str, Tensor]:
        """Return each head's output before the heads are mixed: (b, h, q, d), or (uses, b, h, q, d).

        Args:
            inputs, named: as in ``maps``.
        """
        inputs, named = self._example(inputs, named)
        found: dict[str, list[Tensor]] = {name: [] for name in self.layers}

        def keep(name: str) -> Change:
            def kept(heads: Tensor, _: int) -> Tensor:
                found[name].append(heads.detach().transpose(1, 2))  # (b, q, h, d) -> (b, h, q, d)
                return heads

            return kept

        with torch.no_grad(), evaluating(self.model), self._changed({name: keep(name) for name in self.layers}):
            self.model(*inputs, **named)
        return {name: _one_or_all(outputs) for name, outputs in found.items()}

    def gates(self, gates: Mapping[str, Tensor]) -> AbstractContextManager[nn.Module]:
        """Inside, multiply the heads of these layers by gates, (h,) or (b, h), on their way to the mixing module.

        The gates are differentiable. The result is that of a mixing matrix whose columns are multiplied by them.

        Raises:
            ValueError: a layer is not there, or its gates have another shape.
            RuntimeError: the block ends, and a layer with gates was never computed in it.
        """
        return self._changed({name: self._gated(name, gate, None) for name, gate in gates.items()})

    def ablated(self, plan: Mapping[str, Sequence[int]], by: str = "zero") -> AbstractContextManager[nn.Module]:
        """Inside, the model runs without these heads.

        Args:
            plan: for each layer by name, the numbers of the heads that are off.
            by: what takes the place of their output: "zero"; "mean", over the examples and positions of the example
                that the heads were found with; "resample", the output for the next of those examples (then the model
                must be called with inputs of the same shape).

        Raises:
            ValueError: a layer or a head is not there, or ``by`` is another word.
            RuntimeError: as in ``gates``.
        """
        if by not in ABLATIONS:
            raise ValueError(f"by must be one of {', '.join(ABLATIONS)}, got {by!r}")
        changes, outputs = {}, {} if by == "zero" else self.outputs()
        for name, heads in plan.items():
            layer = self._layer(name)
            if wrong := [head for head in heads if head not in range(layer.num_heads)]:
                raise ValueError(f"{name} has heads 0 to {layer.num_heads - 1}, got {wrong}")
            gate = torch.ones(layer.num_heads)
            gate[list(heads)] = 0
            changes[name] = self._gated(name, gate, _substitute(outputs[name], by) if by != "zero" else None)
        return self._changed(changes)

    def _gated(self, name: str, gate: Tensor, other: Tensor | None) -> Change:
        """What multiplies heads by gates, and puts the rest of ``other`` (uses, b or 1, q or 1, h, d) beside it."""
        layer = self._layer(name)
        if gate.dim() not in (1, 2) or gate.shape[-1] != layer.num_heads:
            raise ValueError(
                f"gates of {name} must have shape ({layer.num_heads},) or (batch, {layer.num_heads}), "
                f"got {tuple(gate.shape)}"
            )

        def change(heads: Tensor, call: int) -> Tensor:
            g = gate.to(heads)[..., None] if gate.dim() == 1 else gate.to(heads)[:, None, :, None]  # (b, 1, h, 1)
            if other is None:
                return heads * g
            instead = other[call % len(other)].to(heads)
            return instead + g * (heads - instead)

        return change

    def _layer(self, name: str) -> FoundLayer:
        if name not in self.layers:
            raise ValueError(f"there is no layer {name!r}; there are {', '.join(self.layers) or 'none'}")
        return self.layers[name]

    @contextmanager
    def _changed(self, changes: Mapping[str, Change]) -> Iterator[nn.Module]:
        """Inside, the layers' heads (b, q, h, d) are changed before they are mixed."""
        calls = dict.fromkeys(changes, 0)

        def counted(name: str, change: Change) -> Callable[[Tensor], Tensor]:
            layer = self.layers[name]

            def changed(X: Tensor) -> Tensor:  # (b, q, h · d) -> (b, q, h · d)
                heads = change(X.unflatten(-1, (layer.num_heads, layer.head_size)), calls[name])
                calls[name] += 1
                return heads.flatten(start_dim=-2)

            return changed

        with ExitStack() as hooks:
            hooks.enter_context(_plainly())
            for name, change in changes.items():
                if name in self._torchs:
                    hooks.enter_context(_heads_of_torchs_layer(self._torchs[name], counted(name, change)))
                else:
                    mixing = self.model.get_submodule(self.layers[name].mixing)
                    hooks.enter_context(_before(mixing, counted(name, change)))
            yield self.model
        if unused := [name for name, number in calls.items() if not number]:
            raise RuntimeError(
                f"{', '.join(unused)} was never computed here, so that nothing was changed: call the very model whose "
                "heads were found, in this block"
            )

    def _example(self, inputs: tuple, named: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return (inputs, named) if inputs or named else (self._inputs, self._named)

    def _described(self, watch: Watch) -> list[tuple[Attended, FoundLayer | str]]:
        return [(one, described(one, self._names)) for one in watch.seen]


def of(model: nn.Module, *inputs, **named) -> FoundHeads:
    """Find the heads of a model by one forward pass, in eval mode and without gradients.

    >>> found = of(nn.TransformerEncoderLayer(8, 2, batch_first=True), torch.randn(1, 3, 8))
    >>> found.layers["self_attn"].num_heads, found.maps()["self_attn"].shape
    (2, torch.Size([1, 2, 3, 3]))

    Args:
        inputs, named: an example, what the model is called with: at least two tokens, and for an encoder and a decoder
            sequences of different lengths, which tell cross-attention from self-attention.

    What is seen and not understood is in ``unknown``, with the reason.
    """
    return FoundHeads(model, inputs, named, _watched(model, inputs, named))


def _watched(model: nn.Module, inputs: tuple, named: Mapping[str, Any], with_weights: bool = False) -> Watch:
    with torch.no_grad(), _plainly(), evaluating(model), Watch(model, with_weights) as watch:
        model(*inputs, **named)
    return watch


def _substitute(outputs: Tensor, by: str) -> Tensor:
    """What takes the place of heads (uses, b or 1, q or 1, h, d), from their outputs on the example."""
    outputs = (outputs if outputs.dim() == 5 else outputs[None]).transpose(2, 3)  # (uses, b, q, h, d)
    return outputs.mean(dim=(1, 2), keepdim=True) if by == "mean" else outputs.roll(-1, dims=1)


def _one_or_all(found: list[Tensor]) -> Tensor:
    return found[0] if len(found) == 1 else torch.stack(found)


def _before(module: nn.Module, change: Callable[[Tensor], Tensor]) -> AbstractContextManager:
    """Inside, the module receives what ``change`` makes of its first input."""
    return module.register_forward_pre_hook(lambda _, inputs: (change(inputs[0]), *inputs[1:]))


@contextmanager
def _heads_of_torchs_layer(layer: Any, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """The same for ``nn.MultiheadAttention``, which never calls its ``out_proj``: it is called behind the layer.

    While the layer runs, an identity takes its place, so that the layer gives its heads side by side.
    """
    mixing = layer.out_proj
    outermost = not isinstance(mixing, _Identity)

    def after(_: nn.Module, __: tuple, output: tuple) -> tuple:
        heads = output[0] if layer.batch_first or output[0].dim() == 2 else output[0].transpose(0, 1)
        heads = change(heads)
        return (heads if layer.batch_first or output[0].dim() == 2 else heads.transpose(0, 1), *output[1:])

    def mixed(_: nn.Module, __: tuple, output: tuple) -> tuple:
        return F.linear(output[0], mixing.weight, mixing.bias), *output[1:]

    with ExitStack() as hooks:
        hooks.enter_context(layer.register_forward_hook(after, prepend=True))
        if outermost:
            layer._modules["out_proj"] = _Identity(mixing)
            hooks.callback(layer._modules.__setitem__, "out_proj", mixing)
            hooks.enter_context(layer.register_forward_hook(mixed))
        yield


class _Identity(nn.Linear):
    """The identity, in the place of a linear map. Its bias is not left out: torch's layer asks for one."""

    def __init__(self, like: nn.Linear):
        super().__init__(like.in_features, like.in_features, device=like.weight.device, dtype=like.weight.dtype)
        self.requires_grad_(False)

    def reset_parameters(self) -> None:
        nn.init.eye_(self.weight)
        nn.init.zeros_(self.bias)


@contextmanager
def _plainly() -> Iterator[None]:
    """Inside, models run by torch's plain functions: compiled ones as they were written, blocks not by a fast path."""
    # torch.compiler.set_stance imports the compiler, which takes seconds: only where it is there already.
    has_compiler = "torch._dynamo" in sys.modules
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.compiler.set_stance("force_eager") if has_compiler else nullcontext():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
