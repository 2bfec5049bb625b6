"""Heads that were found in a model, seen and gated. In comments letters as in ``watching``."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from mha_lib.heads.batches import Batches, Loss, Run, runs
from mha_lib.heads.before_mixing import before, evaluating, heads_of_torchs_layer, plainly
from mha_lib.heads.found_layers import FoundLayer, described, mixing_name, text_table
from mha_lib.heads.plans import Plan
from mha_lib.heads.streaming import Stream, Streaming
from mha_lib.heads.watching import Watch

M = TypeVar("M", bound=nn.Module)
ABLATIONS = ("zero", "mean", "resample")  # by a tensor
Means = Mapping[str, Tensor]  # by layer (h, d), or (uses, h, d)
By = str | Stream  # a word of ABLATIONS, or "stream"
Substitutes = Mapping[str, Tensor] | Stream
# Heads (b, q, h, d), and the number of the call or what the same heads give where they stream -> heads.
Change = Callable[[Tensor, int | Tensor], Tensor]


class GatedHeads(Generic[M]):
    """Hold the attention layers that were found in a model, with methods that read their heads and switch them off.

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
        self._in_torchs_layers: set[str] = set()  # the names of mixing modules that torch never calls
        self._calls: dict[nn.Module, list[str]] = {}  # by module, the mixing modules of its attention calls, in order
        found: dict[str, list[FoundLayer]] = {}
        for one in watch.seen:
            layer = described(one, self.names)
            self._calls.setdefault(one.module, []).append("" if isinstance(layer, str) else layer.mixing)
            if isinstance(layer, str):
                self.unknown[self.names[one.module]] = layer
                continue
            found.setdefault(layer.mixing, []).append(layer)
            if one.is_torchs_layer:
                self._in_torchs_layers.add(layer.mixing)
        names = [layers[0].name for layers in found.values()]
        for mixing, (layer, *again) in found.items():
            name = layer.name if names.count(layer.name) == 1 else mixing
            self.layers[name] = replace(layer, name=name, uses=1 + len(again))

    def __repr__(self) -> str:
        titles = "layer", "kind", "heads", "key-value heads", "head size", "mixing module", "uses"
        lines = text_table([titles, *(tuple(map(str, vars(layer).values())) for layer in self.layers.values())])
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
        where a model has an attention sink that is not a token, its weight is missing from the sum.

        Args:
            inputs, named: what the model is called with; left out, the example that the heads were found with.

        Raises:
            ValueError: a layer is used again in one pass for another number of tokens, or these inputs skip it.
        """
        return {name: _one_or_all(name, weights) for name, weights in self.maps_of(self._run(inputs, named)).items()}

    def outputs(self, *inputs, **named) -> dict[str, Tensor]:
        """Return each head's output before the heads are mixed: (b, h, q, d), or (uses, b, h, q, d).

        Args:
            inputs, named: as in ``maps``.

        Raises:
            ValueError: as in ``maps``, or the mixing module of a layer does not receive three axes, (b, q, h · d).
            RuntimeError: these inputs skip a layer.
        """
        found = {
            name: [heads.transpose(1, 2) for heads in calls]
            for name, calls in self.heads_of(self._run(inputs, named)).items()
        }
        return {name: _one_or_all(name, outputs) for name, outputs in found.items()}

    def maps_of(self, run: Callable[[], object]) -> dict[str, list[Tensor]]:
        """Return the attention weights (b, h, q, k) of each call of each layer while ``run`` runs the model."""
        names = {layer.mixing: name for name, layer in self.layers.items()}
        found: dict[str, list[Tensor]] = {name: [] for name in self.layers}
        for one in watched(self.model, run, with_weights=True).seen:
            name = names.get(mixing_name(one, self.names))
            if name is not None and one.weights is not None:
                shape = (-1, self.layers[name].num_heads, *one.weights.shape[-2:])
                found[name].append(one.weights.reshape(shape))
        return found

    def heads_of(self, run: Callable[[], object]) -> dict[str, list[Tensor]]:
        """Return the heads (b, q, h, d) of each call of each layer while ``run`` runs the model."""
        found: dict[str, list[Tensor]] = {name: [] for name in self.layers}

        def keep(name: str) -> Change:
            def kept(heads: Tensor, _: int | Tensor) -> Tensor:
                self._need_batch(name, heads, "outputs are")
                found[name].append(heads.detach())
                return heads

            return kept

        with torch.no_grad(), evaluating(self.model), self.changed({name: keep(name) for name in self.layers}):
            run()
        return found

    def means(
        self, loss: Loss | None = None, batches: Batches | None = None,
        valid: Tensor | Callable[[Any], Tensor] | None = None,
    ) -> dict[str, Tensor]:  # fmt: skip
        """Return each head's mean output over examples and positions, by layer: (h, d). ``instead=`` takes them.

        Where a layer is computed several times in a pass, they are (uses, h, d).

        Args:
            loss: of the model and a batch, which calls the model; left out, it is called with the batch itself.
            batches: an iterable of tensors, dictionaries or tuples; left out, the example that ``of`` had.
            valid: which positions count, bool (b, n), or a function of a batch that gives them; left out, padding is
                left out: positions that no query attends to, in any layer of self-attention over as many.
        """
        sums: dict[str, list[Tensor]] = {}
        counts: dict[str, list[Tensor]] = {}
        for run in runs(self.model, loss, batches, (self.inputs, self.named)):
            mask = valid(run.batch) if callable(valid) else valid
            attended = self.attended(self.maps_of(run.call)) if mask is None else {mask.shape: mask}
            for name, calls in self.heads_of(run.call).items():
                masks = [attended.get(X.shape[:2], torch.ones(X.shape[:2])).to(X.device).bool() for X in calls]
                parts = torch.stack([X[mask].double().sum(dim=0) for X, mask in zip(calls, masks, strict=True)])
                sums.setdefault(name, []).append(parts.to(calls[0].dtype))  # (uses, h, d)
                counts.setdefault(name, []).append(torch.stack([mask.sum() for mask in masks]))
        means = {name: sum(parts) / sum(counts[name])[:, None, None] for name, parts in sums.items()}  # type: ignore
        return {name: each[0] if len(each) == 1 else each for name, each in means.items()}

    def attended(self, maps: Mapping[str, list[Tensor]]) -> dict[torch.Size, Tensor]:
        """Return by (b, n) which positions some query attends to, in any layer of self-attention over n of them."""
        found: dict[torch.Size, Tensor] = {}
        for name, calls in maps.items():
            for weights in calls if self.layers[name].kind == "self" else ():
                some = (weights > 0).any(dim=1).any(dim=1).cpu()  # (b, h, q, k) -> (b, k)
                found[some.shape] = some | found.get(some.shape, torch.zeros_like(some))
        return found

    def gates(self, gates: Mapping[str, Tensor], substitutes: Substitutes | None = None) -> AbstractContextManager[M]:
        """Inside, multiply the heads of these layers by gates, (h,) or (b, h), on their way to the mixing module.

        The gates are differentiable. The result is that of a mixing matrix whose columns are multiplied by them.

        Args:
            substitutes: from ``substitutes``, what 1 − gate is multiplied with; left out, zeros.

        Raises:
            ValueError: a layer is not there, or its gates have another shape, or would mix in streaming where attention
                is not causal; in the block, gates or substitutes do not fit the batch, or are of each example where the
                mixing module does not receive (b, q, h · d).
            RuntimeError: the block ends, and a layer with gates was never computed in it.
        """
        return self.changed({name: self.gated(name, gate, substitutes) for name, gate in gates.items()}, substitutes)

    def ablated(
        self, plan: Plan, by: By = "zero", instead: Means | None = None, sinks: int = 4, window: int = 24
    ) -> AbstractContextManager[M]:
        """Inside, the model runs without these heads.

        Args:
            plan: for each layer by name, the numbers of the heads that are off.
            by: what replaces their output: "zero"; "mean", over the examples and positions of the example
                that the heads were found with, without padding: positions that no query attends to; "resample", the
                output for the next of those examples (then the model must be called with inputs of the same shape);
                "stream", their own output where they attend to few keys, in causal attention.
            instead: what replaces their output, by layer, from ``means``; then ``by`` is ignored.
            sinks, window: with "stream", to how many of the first keys a query attends, and of the last ones, its own
                among them. ``maps`` are those of all keys.

        Raises:
            ValueError: a layer or a head is not there, or ``by`` is another word, or needs what ``substitutes`` says.
            RuntimeError: as in ``gates``.
        """
        by = Stream(sinks, window) if by == "stream" else by
        return self.gates(self.gates_of(plan), self.in_place_of(plan, by, instead))

    def gates_of(self, plan: Plan) -> dict[str, Tensor]:
        """Return gates that are 0 for the heads in a plan and 1 for the others of its layers."""
        gates = {}
        for name, heads in plan.items():
            layer = self._layer(name)
            if wrong := [head for head in heads if head not in range(layer.num_heads)]:
                raise ValueError(f"{name} has heads 0 to {layer.num_heads - 1}, got {wrong}")
            gates[name] = torch.ones(layer.num_heads)
            gates[name][list(heads)] = 0
        return gates

    def in_place_of(self, names: Iterable[str], by: By, instead: Means | None) -> Substitutes:
        """Return what takes the place of heads of these layers."""
        if instead is not None:
            return self._as_substitutes(instead, names)
        return by if isinstance(by, Stream) else Stream() if by == "stream" else self.substitutes(by)

    def substitutes(self, by: str = "zero") -> dict[str, Tensor]:
        """Return what takes the place of heads: (uses, b or 1, q or 1, h, d) by layer; none for zeros.

        Args:
            by: as in ``ablated``.

        Raises:
            ValueError: ``by`` is another word, or "resample" with one example; as in ``outputs``, but for zeros.
        """
        if by not in ABLATIONS:
            raise ValueError(f"by must be one of {', '.join(ABLATIONS)}, stream, got {by!r}")
        if by == "zero":
            return {}
        if by == "mean":
            return self._as_substitutes(self.means(), self.layers)
        ((_, found),) = self.with_next_examples([Run(self._run((), {}), 0)])
        return found

    def with_next_examples(self, every: Iterable[Run]) -> Iterator[tuple[Run, dict[str, Tensor]]]:
        """Yield each pass with what the heads of each example's next give; that of the last of all is the first.

        Where the next example is in another batch and shorter, its positions are gone through again.
        """
        first, before = dict[str, Tensor](), list[tuple[Run, dict[str, Tensor]]]()
        for run in every:
            heads = {name: torch.stack(calls) for name, calls in self.heads_of(run.call).items()}  # (uses, b, q, h, d)
            for last, its_heads in before:
                yield last, _moved_up(its_heads, heads)
            first = first or {name: X[:, :1].clone() for name, X in heads.items()}
            before = [(run, heads)]
        for last, its_heads in before:
            if not last.number and any(X.shape[1] < 2 for X in its_heads.values()):
                raise ValueError("by='resample' takes the next example, and there is one alone: give two or more")
            yield last, _moved_up(its_heads, first)

    def _as_substitutes(self, means: Means, names: Iterable[str]) -> dict[str, Tensor]:
        """Means of these layers, (h, d) or (uses, h, d), in the form (uses, 1, 1, h, d)."""
        found = {}
        for name in names:
            layer, given = self.layers[name], means.get(name)
            size = (layer.num_heads, layer.head_size)
            if given is None or tuple(given.shape) not in (size, (layer.uses, *size)):
                got = "none" if given is None else tuple(given.shape)
                raise ValueError(f"instead must have means of {name}, {size}, as found.means() gives them; got {got}")
            found[name] = given.reshape(-1, 1, 1, *size)
        return found

    def gated(self, name: str, gate: Tensor, substitutes: Substitutes | None) -> Change:
        """Return what multiplies heads by gates, and adds the rest of what takes their place."""
        layer, other = self._layer(name), substitutes.get(name) if isinstance(substitutes, Mapping) else None
        if not isinstance(gate, Tensor) or gate.dim() not in (1, 2) or gate.shape[-1] != layer.num_heads:
            got = tuple(gate.shape) if isinstance(gate, Tensor) else f"{gate!r}, which is no tensor"
            raise ValueError(
                f"gates of {name} must have shape ({layer.num_heads},) or (batch, {layer.num_heads}), got {got}"
            )

        def change(heads: Tensor, call: int | Tensor) -> Tensor:
            if gate.dim() == 2:
                self._need_batch(name, heads, "gates of each example are")
                if len(gate) != len(heads):
                    raise ValueError(f"gates of {name} are of {len(gate)} examples, the batch has {len(heads)}")
            g = gate.to(heads)[..., None] if gate.dim() == 1 else gate.to(heads)[:, None, :, None]  # (b, 1, h, 1)
            if isinstance(call, Tensor):
                return call + g * (heads - call)
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

    def changed_at(self, name: str) -> nn.Module:
        """Return the module at which a layer's heads are changed: the mixing module, or torch's layer around it."""
        mixing = self.layers[name].mixing
        return self.model.get_submodule(mixing.rpartition(".")[0] if mixing in self._in_torchs_layers else mixing)

    @cached_property
    def _not_causal(self) -> set[str]:
        """The layers in which some query of the example attends to a later key, or to those of another sequence."""
        maps = self.maps_of(self._run((), {})).items()
        return {name for name, calls in maps if any(len({*X.shape[-2:]}) > 1 or X.triu(1).any() for X in calls)}

    @contextmanager
    def changed(self, changes: Mapping[str, Change], substitutes: Substitutes | None = None) -> Iterator[M]:
        """Inside, the layers' heads, (b, q, h, d) in most models, are changed before they are mixed.

        With a ``Stream``, that is where they are computed, and changes get what they give where they stream besides.

        Raises:
            ValueError: a layer cannot stream, since its attention is not causal.
            RuntimeError: as in ``gates``.
        """
        stream = substitutes if isinstance(substitutes, Stream) else None
        if stream and (wrong := sorted(self._not_causal & changes.keys())):
            raise ValueError(f"by='stream' needs causal attention, and that of {', '.join(wrong)} is not")
        calls = dict.fromkeys(changes, 0)

        def counted(name: str, change: Change) -> Callable[..., Tensor]:
            layer = self.layers[name]

            def changed(X: Tensor, streaming: Tensor | None = None) -> Tensor:  # (b, q, h · d), or both (b, q, h, d)
                calls[name] += 1
                if streaming is not None:
                    return change(X, streaming)
                heads = X.unflatten(-1, (layer.num_heads, layer.head_size))
                return change(heads, calls[name] - 1).flatten(start_dim=-2)

            return changed

        with ExitStack() as hooks:
            hooks.enter_context(plainly())
            counting = {name: counted(name, change) for name, change in changes.items()}
            for name, change in counting.items():
                if self.layers[name].mixing in self._in_torchs_layers:  # which else mixes its heads at once
                    hooks.enter_context(
                        heads_of_torchs_layer(self.changed_at(name), (lambda X: X) if stream else change)
                    )
                elif not stream:
                    hooks.enter_context(before(self.changed_at(name), change))
            if stream:
                of = {layer.mixing: (name, layer.num_heads) for name, layer in self.layers.items()}
                layers = {module: [of.get(each, ("", 0)) for each in mixing] for module, mixing in self._calls.items()}
                hooks.enter_context(Streaming(self.model, stream, layers, counting))
            yield self.model
        if unused := [name for name, number in calls.items() if not number]:
            raise RuntimeError(
                f"{', '.join(unused)} was never computed here, so that nothing was changed: call the very model whose "
                "heads were found, in this block"
            )

    def _run(self, inputs: tuple, named: dict[str, Any]) -> Callable[[], object]:
        inputs, named = (inputs, named) if inputs or named else (self.inputs, self.named)
        return lambda: self.model(*inputs, **named)


def watched(
    model: nn.Module, run: Callable[[], object], with_weights: bool = False, with_gradients: bool = False
) -> Watch:
    """Return what was seen of attention while ``run`` ran the model."""
    gradients = torch.set_grad_enabled(with_gradients)
    with gradients, plainly(), evaluating(model), Watch(model, with_weights, with_gradients) as watch:
        run()
    return watch


def _moved_up(heads: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The heads of each example's next; ``after`` the last comes the first of others."""
    places = {name: torch.arange(X.shape[2], device=X.device) % after[name].shape[2] for name, X in heads.items()}
    return {name: torch.cat([X[:, 1:], after[name][:, :1, places[name]]], dim=1) for name, X in heads.items()}


def _one_or_all(name: str, found: list[Tensor]) -> Tensor:
    if not found:
        raise ValueError(f"{name} is not computed with these inputs: give inputs that use every layer found")
    if len({X.shape for X in found}) > 1:
        shapes = " and ".join(str(tuple(X.shape)) for X in found)
        raise ValueError(
            f"{name} is computed {len(found)} times in one pass, in shapes that are no one tensor: {shapes}"
        )
    return found[0] if len(found) == 1 else torch.stack(found)
