"""The heads of any model: found by a forward pass, read, and switched off. In comments letters as in ``watching``."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from mha_lib.heads.ablation import ABLATIONS, evaluating
from mha_lib.heads.before_mixing import before, heads_of_torchs_layer, plainly
from mha_lib.heads.coalitions import ranks
from mha_lib.heads.found_layers import CHANGED, FoundLayer, described, mixing_name
from mha_lib.heads.found_removal import Plan, Removal, Whole, removed
from mha_lib.heads.watching import Watch
from mha_lib.models.progress_bar import progress_bar

M = TypeVar("M", bound=nn.Module)
Loss = Callable[[nn.Module], Tensor]  # a number, or one for each example, (b,)
Change = Callable[[Tensor, int], Tensor]  # heads (b, q, h, d) and the number of the call -> heads


class FoundHeads(Generic[M]):
    """Hold the attention layers that ``of`` found in a model, with methods that measure, ablate or remove their heads.

    What its measures return is on the CPU, since layers may be on several devices; higher means more important.

    Attributes:
        layers: by name, in the order of computation.
        inputs, named: the example that they were found with.
        unknown: attention that was seen and not understood, by the name of its module, with the reason.
    """

    def __init__(self, model: M, inputs: tuple, named: dict[str, Any], watch: Watch):
        self.model, self.inputs, self.named = model, inputs, named
        self.names = {module: name for name, module in model.named_modules()}
        self.layers: dict[str, FoundLayer] = {}
        self.unknown: dict[str, str] = {}
        self.torchs_layers: dict[str, nn.Module] = {}  # by the name of their mixing module, which torch never calls
        found: dict[str, list[FoundLayer]] = {}
        for one in watch.seen:
            layer = described(one, self.names)
            if isinstance(layer, str):
                self.unknown[self.names[one.module]] = layer
                continue
            found.setdefault(layer.mixing, []).append(layer)
            if one.is_torchs_layer:
                self.torchs_layers[layer.mixing] = one.module
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

        Raises:
            ValueError: a layer is used again in one pass for another number of tokens, or these inputs skip it.
        """
        inputs, named = self._example(inputs, named)
        names = {layer.mixing: name for name, layer in self.layers.items()}
        found: dict[str, list[Tensor]] = {name: [] for name in self.layers}
        for one in _watched(self.model, inputs, named, with_weights=True).seen:
            name = names.get(mixing_name(one, self.names))
            if name is not None and one.weights is not None:
                shape = (-1, self.layers[name].num_heads, *one.weights.shape[-2:])
                found[name].append(one.weights.reshape(shape))
        return {name: _one_or_all(name, weights) for name, weights in found.items()}

    def outputs(self, *inputs, **named) -> dict[str, Tensor]:
        """Return each head's output before the heads are mixed: (b, h, q, d), or (uses, b, h, q, d).

        Args:
            inputs, named: as in ``maps``.

        Raises:
            ValueError: as in ``maps``, or the mixing module of a layer does not receive three axes, (b, q, h · d).
            RuntimeError: these inputs skip a layer.
        """
        inputs, named = self._example(inputs, named)
        found: dict[str, list[Tensor]] = {name: [] for name in self.layers}

        def keep(name: str) -> Change:
            def kept(heads: Tensor, _: int) -> Tensor:
                self._need_batch(name, heads, "outputs are")
                found[name].append(heads.detach().transpose(1, 2))  # (b, q, h, d) -> (b, h, q, d)
                return heads

            return kept

        with torch.no_grad(), evaluating(self.model), self._changed({name: keep(name) for name in self.layers}):
            self.model(*inputs, **named)
        return {name: _one_or_all(name, outputs) for name, outputs in found.items()}

    def gates(
        self, gates: Mapping[str, Tensor], substitutes: Mapping[str, Tensor] | None = None
    ) -> AbstractContextManager[M]:
        """Inside, multiply the heads of these layers by gates, (h,) or (b, h), on their way to the mixing module.

        The gates are differentiable. The result is that of a mixing matrix whose columns are multiplied by them.

        Args:
            substitutes: from ``substitutes``, what 1 − gate is multiplied with; left out, zeros.

        Raises:
            ValueError: a layer is not there, or its gates have another shape; in the block, gates or substitutes do not
                fit the batch, or are of each example where the mixing module does not receive (b, q, h · d).
            RuntimeError: the block ends, and a layer with gates was never computed in it.
        """
        others = substitutes or {}
        return self._changed({name: self._gated(name, gate, others.get(name)) for name, gate in gates.items()})

    def ablated(self, plan: Mapping[str, Sequence[int]], by: str = "zero") -> AbstractContextManager[M]:
        """Inside, the model runs without these heads.

        Args:
            plan: for each layer by name, the numbers of the heads that are off.
            by: what takes the place of their output: "zero"; "mean", over the examples and positions of the example
                that the heads were found with, without padding: positions that no query attends to; "resample", the
                output for the next of those examples (then the model must be called with inputs of the same shape).

        Raises:
            ValueError: a layer or a head is not there, or ``by`` is another word, or needs what ``substitutes`` says.
            RuntimeError: as in ``gates``.
        """
        gates = {}
        for name, heads in plan.items():
            layer = self._layer(name)
            if wrong := [head for head in heads if head not in range(layer.num_heads)]:
                raise ValueError(f"{name} has heads 0 to {layer.num_heads - 1}, got {wrong}")
            gate = torch.ones(layer.num_heads)
            gate[list(heads)] = 0
            gates[name] = gate
        return self.gates(gates, self.substitutes(by))

    def leave_one_out(self, loss: Loss, by: str = "zero", label: str | None = None) -> dict[str, Tensor]:
        """Return what each head's absence adds to a loss, by layer, (num_heads,), float64.

        Args:
            loss: a function of the model that gives a number, or one for each example, whose mean is taken.
            by: as in ``ablated``.
            label: what to write beside a progress bar; left out, there is none.

        Source: as ``heads.leave_one_out``.
        """
        substitutes = self.substitutes(by)
        costs = {name: torch.zeros(layer.num_heads, dtype=torch.float64) for name, layer in self.layers.items()}
        each = [(name, head) for name, layer in self.layers.items() for head in range(layer.num_heads)]
        with torch.no_grad(), evaluating(self.model):
            whole = self._loss_at(loss, {}, {})
            for name, head in each if label is None else progress_bar(each, len(each), label):
                gates = 1 - torch.eye(self.layers[name].num_heads)[head]
                costs[name][head] = self._loss_at(loss, {name: gates}, substitutes) - whole
        return costs

    def gate_gradient(self, loss: Loss, by: str = "zero", signed: bool = True) -> dict[str, Tensor]:
        """Return minus the gradient of a loss by each head's gate, by layer, (num_heads,), float64.

        It is the first-order guess at what ``leave_one_out`` measures, from one pass backward (with ``signed=False``
        the loss is computed once more, for its shape).

        Args:
            loss: as in ``leave_one_out``; differentiable.
            by: what the gate goes over to: with "mean" it is the gradient towards the head's mean.
            signed: False takes the absolute value of each example; then the loss gives one number for each.

        Raises:
            ValueError: the loss has no gradient, or no examples where it needs them.

        Source: as ``heads.gate_gradient``.
        """
        substitutes = self.substitutes(by)
        shape: tuple[int, ...] = ()
        if not signed:
            with torch.no_grad(), evaluating(self.model):
                shape = tuple(torch.as_tensor(loss(self.model)).shape)
            if len(shape) != 1:
                raise ValueError(
                    f"with signed=False, loss must give a number for each example, (batch,), got shape {shape}"
                )
        gates = {
            name: torch.ones(*shape, layer.num_heads, dtype=torch.float64).requires_grad_()
            for name, layer in self.layers.items()
        }
        with torch.enable_grad(), evaluating(self.model), self.gates(gates, substitutes):
            value = loss(self.model)
            if not isinstance(value, Tensor) or not value.requires_grad:
                raise ValueError(
                    "loss must give a tensor with a gradient: without torch.no_grad(), .item() or .detach()"
                )
            total, leaves = value.mean() if signed else value.sum(), list(gates.values())
            gradients = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
        gradients = tuple(-gradient.double() for gradient in gradients)
        return dict(zip(gates, gradients if signed else [each.abs().mean(dim=0) for each in gradients], strict=True))

    def losses_without(
        self, loss: Loss, importance: Mapping[str, Tensor], numbers: Sequence[int], by: str = "zero",
        label: str | None = None, seed: int = 0,
    ) -> Tensor:  # fmt: skip
        """Return the loss with so many of the least important heads off, for each of ``numbers``: float64.

        Args:
            importance: by layer, as measures return it; ``permute_within_layers`` of it is a fair random baseline.
            numbers: how many heads are off, each from 0 to all.
            loss, by, label: as in ``leave_one_out``.
            seed: draws which of equals goes first.

        Raises:
            ValueError: ``importance`` is not that of these layers, or there are not so many heads.
        """
        shapes = {name: tuple(row.shape) for name, row in importance.items()}
        wrong = [name for name, layer in self.layers.items() if shapes.get(name) != (layer.num_heads,)]
        if wrong or len(importance) != len(self.layers):
            raise ValueError(f"importance must have (num_heads,) for each layer, {', '.join(self.layers)}")
        rows = [importance[name] for name in self.layers]
        rank = ranks(torch.cat(rows), seed).split([len(row) for row in rows])
        num_heads = sum(map(len, rows))
        if impossible := [number for number in numbers if number not in range(num_heads + 1)]:
            raise ValueError(f"numbers must be from 0 to {num_heads}, all heads, got {impossible}")
        substitutes = self.substitutes(by)
        steps: Iterable[int] = numbers if label is None else progress_bar(numbers, len(numbers), label)
        losses = []
        with torch.no_grad(), evaluating(self.model):
            for number in steps:
                gates = {name: (row <= num_heads - number).float() for name, row in zip(self.layers, rank, strict=True)}
                losses.append(self._loss_at(loss, gates, substitutes))
        return torch.tensor(losses, dtype=torch.float64)

    def remove(self, plan: Mapping[str, Sequence[int]], *second_inputs, **second_named) -> tuple[M, Removal]:
        """Return a copy of the model without these heads, and what it saves; the model stays as it is.

        Which rows belong to a head is asked of the gradient, and a copy that computes something else than the gated
        model, on two inputs, is refused; where only rounding may differ, double precision decides. So is a plan that
        takes all heads of a layer: ``ablated`` does that. Of the copy's integers as few as possible get new sizes;
        ``Removal.sizes`` names them. The plan applied to a fresh load of the model gives the same shapes, so that a
        saved ``state_dict`` of the copy can be loaded.

        Args:
            plan: as in ``ablated``, the heads that go.
            second_inputs, second_named: another input that it is checked on; left out, the example without its last
                token (and with lengths that fit), or noise in its shape where it has no token ids. Where the model does
                not take that, and for token ids of one or two tokens, it is the example again.

        Raises:
            ValueError: the layer cannot be cut, with the reason; so is one that shares a matrix with another layer.
        """
        self.ablated(plan)  # which names a layer or a head that is not there
        second = (second_inputs, second_named) if second_inputs or second_named else None
        whole = Whole(self.model, (self.inputs, self.named), self._ablated_in)
        smaller, removal = removed(whole, self.layers, plan, second)
        return cast(M, smaller), removal

    def _ablated_in(self, model: nn.Module, plan: Plan) -> AbstractContextManager[nn.Module]:
        """``ablated`` for a copy of the model."""
        found: FoundHeads[Any] = copy.copy(self)
        found.model = model
        return found.ablated(plan)

    def substitutes(self, by: str = "zero") -> dict[str, Tensor]:
        """Return what takes the place of heads, from the example: (uses, b or 1, q or 1, h, d); none for zeros.

        Raises:
            ValueError: ``by`` is another word, or "resample" with one example; as in ``outputs``, but for zeros.
        """
        if by not in ABLATIONS:
            raise ValueError(f"by must be one of {', '.join(ABLATIONS)}, got {by!r}")
        found, attended = {}, self._attended() if by == "mean" else {}
        for name, outputs in ({} if by == "zero" else self.outputs()).items():
            heads = (outputs if outputs.dim() == 5 else outputs[None]).transpose(2, 3)  # (uses, b, q, h, d)
            if by == "resample" and heads.shape[1] < 2:
                raise ValueError(
                    f"by='resample' takes the next example, and {name} was found with one: give two or more"
                )
            if by == "resample":
                found[name] = heads.roll(-1, dims=1)
                continue
            counts = attended.get(heads.shape[1:3], torch.ones(heads.shape[1:3], dtype=torch.bool))
            found[name] = heads[:, counts.to(heads.device)].mean(dim=1)[
                :, None, None
            ]  # (uses, positions, h, d) -> (uses, 1, 1, h, d)
        return found

    def _loss_at(self, loss: Loss, gates: Mapping[str, Tensor], substitutes: Mapping[str, Tensor]) -> float:
        with self.gates(gates, substitutes):
            return float(torch.as_tensor(loss(self.model)).double().mean())

    def _attended(self) -> dict[torch.Size, Tensor]:
        """Return by (b, n) which positions some query attends to, in any layer of self-attention over n of them."""
        found: dict[torch.Size, Tensor] = {}
        for name, weights in self.maps().items():
            if self.layers[name].kind == "self":
                some = (weights > 0).reshape(-1, *weights.shape[-4:]).any(dim=0).any(dim=1).any(dim=1).cpu()  # (b, k)
                found[some.shape] = some | found.get(some.shape, torch.zeros_like(some))
        return found

    def _gated(self, name: str, gate: Tensor, other: Tensor | None) -> Change:
        """What multiplies heads by gates, and puts the rest of ``other`` (uses, b or 1, q or 1, h, d) beside it."""
        layer = self._layer(name)
        if not isinstance(gate, Tensor) or gate.dim() not in (1, 2) or gate.shape[-1] != layer.num_heads:
            got = tuple(gate.shape) if isinstance(gate, Tensor) else f"{gate!r}, which is no tensor"
            raise ValueError(
                f"gates of {name} must have shape ({layer.num_heads},) or (batch, {layer.num_heads}), got {got}"
            )

        def change(heads: Tensor, call: int) -> Tensor:
            if gate.dim() == 2:
                self._need_batch(name, heads, "gates of each example are")
                if len(gate) != len(heads):
                    raise ValueError(f"gates of {name} are of {len(gate)} examples, the batch has {len(heads)}")
            g = gate.to(heads)[..., None] if gate.dim() == 1 else gate.to(heads)[:, None, :, None]  # (b, 1, h, 1)
            if other is None:
                return heads * g
            self._need_batch(name, heads, "substitutes are")
            instead = other[call % len(other)].to(heads)
            if any(size not in (1, whole) for size, whole in zip(instead.shape, heads.shape, strict=True)):
                raise ValueError(
                    f"substitutes of {name} have shape {tuple(instead.shape)}, its heads {tuple(heads.shape)}: call "
                    "the model with inputs of the shape that the heads were found with"
                )
            return instead + g * (heads - instead)

        return change

    def _need_batch(self, name: str, heads: Tensor, what: str) -> None:
        """Refuse heads that are not (b, q, h, d)."""
        if heads.dim() != 4:
            layer, received = self.layers[name], tuple(heads.flatten(start_dim=-2).shape)
            raise ValueError(
                f"{name}: {what} of a mixing module that receives (batch, queries, features), and {layer.mixing} "
                f"receives {received}; gates of shape ({layer.num_heads},) towards zero are possible"
            )

    def _layer(self, name: str) -> FoundLayer:
        if name not in self.layers:
            raise ValueError(f"there is no layer {name!r}; there are {', '.join(self.layers) or 'none'}")
        return self.layers[name]

    @contextmanager
    def _changed(self, changes: Mapping[str, Change]) -> Iterator[M]:
        """Inside, the layers' heads, (b, q, h, d) in most models, are changed before they are mixed."""
        calls = dict.fromkeys(changes, 0)

        def counted(name: str, change: Change) -> Callable[[Tensor], Tensor]:
            layer = self.layers[name]

            def changed(X: Tensor) -> Tensor:  # (b, q, h · d) -> (b, q, h · d)
                heads = change(X.unflatten(-1, (layer.num_heads, layer.head_size)), calls[name])
                calls[name] += 1
                return heads.flatten(start_dim=-2)

            return changed

        with ExitStack() as hooks:
            hooks.enter_context(plainly())
            for name, change in changes.items():
                mixing = self.layers[name].mixing
                if mixing in self.torchs_layers:
                    hooks.enter_context(heads_of_torchs_layer(self.torchs_layers[mixing], counted(name, change)))
                else:
                    hooks.enter_context(before(self.model.get_submodule(mixing), counted(name, change)))
            yield self.model
        if unused := [name for name, number in calls.items() if not number]:
            raise RuntimeError(
                f"{', '.join(unused)} was never computed here, so that nothing was changed: call the very model whose "
                "heads were found, in this block"
            )

    def _example(self, inputs: tuple, named: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return (inputs, named) if inputs or named else (self.inputs, self.named)


def of(model: M, *inputs, **named) -> FoundHeads[M]:
    """Find the attention layers of a torch model, and their heads, by running it on an example; return ``FoundHeads``.

    Where heads do not reach their mixing module as they are, as behind a gate, a second pass follows, with gradients.

    >>> found = of(nn.TransformerEncoderLayer(8, 2, batch_first=True), torch.randn(1, 3, 8))
    >>> found.layers["self_attn"].num_heads, found.maps()["self_attn"].shape
    (2, torch.Size([1, 2, 3, 3]))

    Args:
        inputs, named: an example, what the model is called with: at least two tokens, and for an encoder and a decoder
            sequences of different lengths, which tell cross-attention from self-attention.

    What is seen and not understood is in ``unknown``, with the reason.
    """
    found = FoundHeads(model, inputs, named, _watched(model, inputs, named))
    if any(CHANGED in reason for reason in found.unknown.values()):  # gradients say what lies between
        found = FoundHeads(model, inputs, named, _watched(model, inputs, named, with_gradients=True))
    return found


def _watched(
    model: nn.Module, inputs: tuple, named: Mapping[str, Any], with_weights: bool = False, with_gradients: bool = False
) -> Watch:
    gradients = torch.set_grad_enabled(with_gradients)
    with gradients, plainly(), evaluating(model), Watch(model, with_weights, with_gradients) as watch:
        model(*inputs, **named)
    return watch


def _one_or_all(name: str, found: list[Tensor]) -> Tensor:
    if not found:
        raise ValueError(f"{name} is not computed with these inputs: give inputs that use every layer found")
    if len({X.shape for X in found}) > 1:
        shapes = " and ".join(str(tuple(X.shape)) for X in found)
        raise ValueError(
            f"{name} is computed {len(found)} times in one pass, in shapes that are no one tensor: {shapes}"
        )
    return found[0] if len(found) == 1 else torch.stack(found)
