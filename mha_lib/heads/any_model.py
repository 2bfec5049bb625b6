"""The heads of any model: found by a forward pass, read, switched off, measured and removed."""

import copy
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from mha_lib.heads.batches import Batches, Loss, Run, runs
from mha_lib.heads.before_mixing import evaluating
from mha_lib.heads.comparison import Comparison
from mha_lib.heads.found_layers import CHANGED
from mha_lib.heads.found_removal import Removal, Whole, removed
from mha_lib.heads.gated_heads import By, Change, GatedHeads, M, Means, Substitutes, watched
from mha_lib.heads.importance import Importance, joined
from mha_lib.heads.plans import Plan, PlanTable, drawn, planned
from mha_lib.heads.progress_bar import progress_bar
from mha_lib.heads.reuse import Reuse
from mha_lib.heads.shapley_shares import shapley_shares
from mha_lib.heads.streaming import Stream

MOST_EXACT = 10  # heads whose sets are all computed
Gates = Mapping[str, Tensor]
Units = tuple[dict[str, Tensor], dict[str, Tensor]]  # what each example says, (h, n), and its weight, (n,), by layer


class FoundHeads(GatedHeads[M]):
    """Hold the attention layers that ``of`` found in a model, with methods that measure, ablate or remove their heads.

    A measure of the loss is called ``measure(loss, batches, by=…, instead=…)``; ``entropy``, ``confidence`` and
    ``output_norm`` take no ``by``. All return an ``Importance``: by layer (num_heads,), float64, on the CPU since
    layers may be on several devices; higher means more important.

    - ``loss``: a function of the model, or with ``batches`` of the model and a batch. It gives a mean, or one number
      for each example, (b,), which intervals need.
    - ``batches``: an iterable that can be used more than once, such as a DataLoader, of tensors, dictionaries or
      tuples, which are moved to the model's device. Left out, ``loss`` is computed once.
    - ``by``: what replaces a head: "zero"; "mean", its mean over ``batches`` (without them, over the example
      that the heads were found with), padding left out; "resample", its output for the next example, across batches;
      "stream", its own output where it attends only to four sinks and a window of 24, in causal attention, or with
      other numbers ``Stream(sinks, window)``.
    - ``instead``: means from ``means``, in place of ``by``.

    Raises:
        ValueError: ``batches`` is empty, one batch, or used up after one pass; the loss is NaN, or has more axes.

    Attributes:
        layers: by name, in the order of computation.
        inputs, named: the example that they were found with.
        unknown: attention that was seen and not understood, by the name of its module, with the reason.
    """

    def leave_one_out(
        self, loss: Loss, batches: Batches | None = None, by: By = "zero", instead: Means | None = None,
        layers: Sequence[str] | None = None,
    ) -> Importance:  # fmt: skip
        """Return what each head's absence adds to the loss; arguments as ``FoundHeads`` says.

        What comes before a head's layer is computed once a batch.

        Args:
            layers: only the heads of these; left out, of all.

        Source: Michel, Levy, Neubig 2019, "Are Sixteen Heads Really Better than One?", section 3.2.
        """
        names = [self._layer(name).name for name in (self.layers if layers is None else layers)]
        numbers = {name: self.layers[name].num_heads for name in names}

        def costs(passes: "_Passes") -> Units:
            each = {}
            for name, number in numbers.items():
                rows = [
                    passes.at({name: row}, f" without head {h} of {name}")
                    for h, row in enumerate(1 - torch.eye(number))
                ]
                each[name] = torch.stack(rows) - passes.whole
            return each, dict.fromkeys(names, passes.weights)

        return self._measured("leave-one-out", costs, loss, batches, by, instead, sum(numbers.values()) + 1)

    def gate_gradient(
        self, loss: Loss, batches: Batches | None = None, by: By = "zero", instead: Means | None = None,
        signed: bool = True,
    ) -> Importance:  # fmt: skip
        """Return minus the gradient of the loss with respect to each head's gate; arguments as ``FoundHeads`` says.

        It is the first-order estimate of what ``leave_one_out`` measures, from one backward pass over each batch.

        Args:
            signed: False takes the absolute value of each example; of a loss that is a mean, each example's part in it.

        Raises:
            ValueError: the loss has no gradient, or with ``signed=False`` heads do not come by example.

        Source: Michel, Levy, Neubig 2019, section 4.1 (unsigned); with its sign it is attribution patching towards
        zero, Nanda 2023, "Attribution Patching: Activation Patching At Industrial Scale".
        """
        return self._gradients("gate gradient", [1.0], loss, batches, by, instead, signed)

    def integrated_gradients(
        self, loss: Loss, batches: Batches | None = None, by: By = "zero", instead: Means | None = None,
        signed: bool = True, steps: int = 20,
    ) -> Importance:  # fmt: skip
        """Return minus the loss's gradient with respect to each gate, averaged while all gates rise from 0 to 1.

        They add up to L(no head) − L(all heads), up to the error of the sum over ``steps`` midpoints; other arguments
        as in ``gate_gradient``.

        Source: Sundararajan, Taly, Yan 2017, "Axiomatic Attribution for Deep Networks"; for heads Hao et al. 2021,
        "Self-Attention Attribution" (there, along the attention weights).
        """
        points = [(step + 0.5) / steps for step in range(steps)]
        return self._gradients("integrated gradients", points, loss, batches, by, instead, signed)

    def _gradients(
        self, label: str, points: Sequence[float], loss: Loss, batches: Batches | None, by: By,
        instead: Means | None, signed: bool,
    ) -> Importance:  # fmt: skip
        def slopes(passes: "_Passes") -> Units:
            found = [passes.slopes(point, signed) for point in points]
            each = {name: torch.stack([rows[name] for rows, _ in found]).mean(dim=0) for name in self.layers}
            return {name: rows if signed else rows.abs() for name, rows in each.items()}, dict.fromkeys(
                each, found[0][1]
            )

        return self._measured(label, slopes, loss, batches, by, instead, len(points), with_whole=False)

    def shapley(
        self, loss: Loss, batches: Batches | None = None, by: By = "zero", instead: Means | None = None,
        num_orders: int | None = None, seed: int = 0,
    ) -> Importance:  # fmt: skip
        """Return each head's Shapley value for minus the loss; other arguments as ``FoundHeads`` says.

        Args:
            num_orders: in how many random orders heads join; left out, all sets are computed, exactly.

        Raises:
            ValueError: there are more than ten heads, and no ``num_orders``.

        Source: Shapley 1953, "A Value for n-Person Games"; for heads Held & Yang 2023, "Shapley Head Pruning".
        """
        numbers = [layer.num_heads for layer in self.layers.values()]
        if num_orders is None and sum(numbers) > MOST_EXACT:
            raise ValueError(f"num_orders must be given: all sets of {sum(numbers)} heads are 2**{sum(numbers)} passes")
        sets, shares = shapley_shares(sum(numbers), num_orders, seed)

        def values(passes: "_Passes") -> Units:
            gates = [dict(zip(self.layers, members.float().split(numbers), strict=True)) for members in sets]
            each = shares @ -torch.stack(list(map(passes.at, gates)))
            rows = dict(zip(self.layers, each.split(numbers), strict=True))
            return rows, dict.fromkeys(rows, passes.weights)

        return self._measured("Shapley values", values, loss, batches, by, instead, len(sets) + 1)

    def entropy(self, loss: Loss | None = None, batches: Batches | None = None) -> Importance:
        """Return minus each head's attention entropy, in nats, averaged over queries that are not padding.

        The loss only calls the model here; left out, the model is called with the batch itself.

        Source: Ghader & Monz 2017, "What does Attention in Neural Machine Translation Pay Attention to?"; Clark et al.
        2019, "What Does BERT Look At?", section 3.3.
        """
        return self._over_queries(loss, batches, lambda maps, _: torch.special.entr(maps).sum(dim=-1).neg())

    def confidence(
        self, loss: Loss | None = None, batches: Batches | None = None, ignore: Sequence[int] = ()
    ) -> Importance:
        """Return each head's largest attention weight, averaged over queries that are not padding.

        Args:
            loss, batches: as in ``entropy``.
            ignore: positions of keys that are left out, such as 0 if it is an attention sink.

        Source: Voita et al. 2019, "Analyzing Multi-Head Self-Attention", section 4.
        """

        def largest(maps: Tensor, _: str) -> Tensor:
            if wrong := [position for position in ignore if not 0 <= position < maps.shape[-1]]:
                raise ValueError(f"ignore must hold positions from 0 to {maps.shape[-1] - 1}, got {wrong}")
            return maps.index_fill(-1, torch.tensor(ignore, dtype=torch.long, device=maps.device), 0).amax(dim=-1)

        return self._over_queries(loss, batches, largest)

    def output_norm(self, loss: Loss | None = None, batches: Batches | None = None) -> Importance:
        """Return the norm of what each head adds to its layer's output, averaged over queries that are not padding.

        Args:
            loss, batches: as in ``entropy``.

        Source: Kobayashi et al. 2020, "Attention is Not Only a Weight" (there, for each key).
        """

        def norms(heads: Tensor, name: str) -> Tensor:
            mixing = self.model.get_submodule(self.layers[name].mixing)
            nothing = mixing(torch.zeros_like(heads).flatten(start_dim=2))
            alone = torch.eye(heads.shape[2]).to(heads)[:, :, None] * heads[:, :, None]  # (b, q, h, h, d)
            rows = [mixing(part.flatten(start_dim=2)) - nothing for part in alone.unbind(dim=2)]
            return torch.stack([row.norm(dim=-1) for row in rows], dim=1)

        return self._over_queries(loss, batches, norms, of_heads=True)

    def _over_queries(
        self, loss: Loss | None, batches: Batches | None, value: Callable[[Tensor, str], Tensor], of_heads: bool = False
    ) -> Importance:
        """Average (b, h, q), a value of maps (b, h, q, k) or of heads (b, q, h, d), over queries of each example."""
        parts = []
        for run in runs(self.model, loss, batches, (self.inputs, self.named)):
            maps = self.maps_of(run.call)
            attended, each, weights = self.attended(maps), {}, {}
            for name, calls in (self.heads_of(run.call) if of_heads else maps).items():
                if not calls:
                    raise ValueError(f"{name} is not computed on batch {run.number}")
                with torch.no_grad(), evaluating(self.model):
                    values = torch.cat([value(X, name) for X in calls], dim=-1)
                sizes = [torch.Size((len(X), X.shape[1 if of_heads else 2])) for X in calls]
                masks = [attended.get(size, torch.ones(size)).to(values) for size in sizes]
                mask = torch.cat(masks, dim=-1)  # (b, all queries)
                weights[name] = mask.sum(dim=-1).double().cpu()
                each[name] = (values * mask[:, None]).sum(dim=-1).double().cpu().T / weights[name].clamp(min=1)
            parts.append((each, weights))
        return joined(parts)

    def plan(
        self, importance: Mapping[str, Tensor] | Tensor, remove: int | None = None, fraction: float | None = None,
        per_layer: int | None = None, spare: int = 1, seed: int = 0,
    ) -> PlanTable:  # fmt: skip
        """Return a plan of the least important heads: those that go, by layer. It prints as a table.

        Where heads share keys and values, whole groups go, by the mean importance of their heads.

        Args:
            importance: by layer (num_heads,), as measures return it, or (num_layers, num_heads); layers that it lacks
                stay whole.
            remove: how many heads go.
            fraction: what share of the heads goes, rounded down; in place of ``remove``.
            per_layer: how many heads of each layer go; in place of ``remove``.
            spare: how many heads of each layer stay at least.
            seed: decides which of equally important heads goes first.

        Raises:
            ValueError: there is nothing to remove, or fewer heads can go; the message says why.
        """
        return planned(self.layers, importance, remove, fraction, per_layer, spare, seed)

    def fair_draws(self, plan: Plan, number: int = 20, seed: int = 0) -> list[PlanTable]:
        """Return random plans with as many heads of each layer, none of them this plan: its null.

        Where the plan takes whole key-value groups, so do they.

        Raises:
            ValueError: there are no others.
        """
        self.gates_of(plan)  # which names what is not there
        return drawn(self.layers, plan, number, seed)

    def rise(
        self, plan: Plan, loss: Loss, batches: Batches | None = None, by: By = "zero", instead: Means | None = None
    ) -> Tensor:
        """Return how much the loss rises without the heads of a plan, for each example, (n,), or each batch's mean.

        Plans are compared in pairs by example where ``batches`` come in the same order; ``compare`` does so in any.
        """
        return self._losses([plan], loss, batches, by, instead)[0].diff(dim=0)[0]

    def compare(
        self, importance: Mapping[str, Tensor], loss: Loss, batches: Batches | None = None,
        removals: Sequence[int] = (1,), draws: int = 20, by: By = "zero", instead: Means | None = None,
        spare: int = 1, seed: int = 0,
    ) -> Comparison:  # fmt: skip
        """Return the loss without the least important heads, beside random heads of the same layers.

        Args:
            importance, spare, seed: as in ``plan``.
            loss, batches, by, instead: as ``FoundHeads`` says; use examples that ``importance`` was not measured on.
            removals: how many heads go.
            draws: how many random plans there are for each removal, from ``fair_draws``.
        """
        plans = [self.plan(importance, remove=number, spare=spare, seed=seed) for number in removals]
        others = [self.fair_draws(plan, draws, seed) for plan in plans]
        every = [one for plan, drawn in zip(plans, others, strict=True) for one in (plan, *drawn)]
        losses, weights = self._losses(every, loss, batches, by, instead)
        of_each = losses[1:].unflatten(0, (len(plans), draws + 1))
        return Comparison(plans, losses[0], of_each[:, 0], of_each[:, 1:], weights)

    def _losses(
        self, plans: Sequence[Plan], loss: Loss, batches: Batches | None, by: By, instead: Means | None
    ) -> tuple[Tensor, Tensor]:
        """The losses (1 + number of plans, n) with all heads and without those of each plan; weights (n,)."""

        def losses(passes: "_Passes") -> Units:
            rows = [passes.whole, *(passes.at(self.gates_of(plan)) for plan in plans)]
            return {"": torch.stack(rows)}, {"": passes.weights}

        found = self._measured("losses", losses, loss, batches, by, instead, len(plans) + 1)
        return found.each[""], found.weights[""]

    def _measured(
        self, label: str, measure: Callable[["_Passes"], Units], loss: Loss, batches: Batches | None, by: By,
        instead: Means | None, steps: int, with_whole: bool = True,
    ) -> Importance:  # fmt: skip
        """Measure each batch, with a progress bar after two seconds."""
        number = len(batches) if hasattr(batches, "__len__") else 1  # type: ignore[arg-type]
        bar = progress_bar(range(number * steps), number * steps, label, after=2)
        parts = []
        with evaluating(self.model):
            for run, substitutes in self._with_substitutes(loss, batches, by, instead):
                parts.append(measure(_Passes(self, run, substitutes, with_whole, bar)))
        bar.close()
        return joined(parts)

    def _with_substitutes(
        self, loss: Loss, batches: Batches | None, by: By, instead: Means | None
    ) -> Iterator[tuple[Run, Substitutes]]:
        """Each batch, with what takes the place of heads."""
        every = runs(self.model, loss, batches, (self.inputs, self.named))
        if batches is not None and instead is None and by == "resample":
            yield from self.with_next_examples(every)
            return
        if batches is not None and instead is None and by == "mean":
            instead = self.means(loss, batches)
        substitutes = self.in_place_of(self.layers, by, instead)
        yield from ((run, substitutes) for run in every)

    def remove(
        self, plan: Mapping[str, Sequence[int]], *second_inputs, instead: Means | None = None, **second_named
    ) -> tuple[M, Removal]:
        """Return a copy of the model without these heads, and what it saves; the model stays as it is.

        The gradient shows which rows belong to a head, and a copy that computes something different from the gated
        model, on two inputs of two examples each, is refused; where only rounding may differ, double precision decides.
        So is a plan that takes all heads of a layer: ``ablated`` does that. As few as possible of the copy's integers
        get new sizes; ``Removal.sizes`` names them. Torch's own layers become layers of this library that are called
        like torch's. ``save_pruned`` saves the copy, and ``load_pruned`` loads it.

        Args:
            plan: as in ``ablated``, the heads that go.
            second_inputs, second_named: another input that it is checked on; left out, the example without its last
                token (and with lengths that fit), or noise in its shape where it has no token ids. Where the model does
                not take that, and for token ids of one or two tokens, it is the example again.
            instead: from ``means``, what the heads that go leave behind, in the bias of their mixing module.

        Raises:
            ValueError: the layer cannot be cut, with the reason; so is one that shares a matrix with another layer.
        """
        self.ablated(plan, instead=instead)  # which names a layer or a head that is not there, or means that do not fit
        second = (second_inputs, second_named) if second_inputs or second_named else None
        left = {} if instead is None else {name: instead[name] for name in plan}
        if several := [name for name, means in left.items() if means.dim() == 3]:
            raise ValueError(f"{several[0]} is computed several times, and no bias is the means of each")
        whole = Whole(self.model, (self.inputs, self.named), self._ablated_in(left or None), left)
        smaller, removal = removed(whole, self.layers, plan, second)
        return cast(M, smaller), removal

    def _ablated_in(self, instead: Means | None) -> Callable[[nn.Module, Plan], AbstractContextManager]:
        """``ablated`` for a copy of the model."""

        def ablated(model: nn.Module, plan: Plan) -> AbstractContextManager:
            found: FoundHeads[Any] = copy.copy(self)
            found.model = model
            return found.ablated(plan, instead=instead)

        return ablated


class _Passes:
    """Passes over one batch with gates on heads.

    Attributes:
        whole: the loss with all heads, (n,), for each of n examples, or of a mean (1,).
        weights: (n,), how much each counts.
    """

    def __init__(self, found: FoundHeads, run: Run, substitutes: Substitutes, with_whole: bool, bar: Generator[int]):
        self.found, self.run, self.substitutes, self.bar = found, run, substitutes, bar
        self.reuse = Reuse(found.model, {name: found.changed_at(name) for name in found.layers})
        if with_whole:
            with self.reuse.recording():
                self.whole = self.at({})
            # Heads that stream change before they reach the mixing module; and some models keep what they saw.
            if isinstance(substitutes, Stream) or not torch.equal(self.at({}, first=[*found.layers][-1]), self.whole):
                self.reuse.forget()

    def at(self, gates: Gates, where: str = "", first: str | None = None) -> Tensor:
        """Return the loss with these gates, as ``whole``; what comes before the first of them is not computed again."""
        next(self.bar, None)
        gates = {name: gate for name, gate in gates.items() if (gate != 1).any()}  # the others may not be computed
        first = first or next((name for name in self.found.layers if name in gates), None)
        reused = nullcontext() if first is None else self.reuse.before(first)
        with torch.no_grad(), reused, self.found.gates(gates, self.substitutes):
            value = self.run.value(where)
        number = 1 if value.dim() else self.run.num_examples or 1
        self.weights = torch.full((value.numel(),), number, dtype=torch.float64)
        return value.reshape(-1).double().cpu()

    def slopes(self, point: float, signed: bool) -> tuple[dict[str, Tensor], Tensor]:
        """Return minus the loss's gradient with respect to each head's gate where all are at ``point``, and weights.

        By layer (h, n): for each of n examples where heads come by example, else their mean, (h, 1).
        """
        next(self.bar, None)
        found, gates = self.found, dict[str, Tensor]()

        def gated(name: str) -> Change:
            def change(heads: Tensor, call: int | Tensor) -> Tensor:
                if name not in gates:  # in each example a gate of its own
                    size = (len(heads), heads.shape[-2]) if heads.dim() == 4 else heads.shape[-2:-1]
                    gates[name] = torch.full(size, point, dtype=torch.float64).requires_grad_()
                return found.gated(name, gates[name], self.substitutes)(heads, call)

            return change

        changes = {name: gated(name) for name in found.layers}
        with torch.enable_grad(), found.changed(changes, self.substitutes):
            value = self.run.value()
            if not value.requires_grad:
                raise ValueError(
                    "loss must give a tensor with a gradient: without torch.no_grad(), .item() or .detach()"
                )
            leaves = list(gates.values())
            gradients = torch.autograd.grad(value.sum(), leaves, allow_unused=True, materialize_grads=True)
        sizes = {len(gate) if gate.dim() == 2 else 0 for gate in leaves}
        number = len(value) if value.dim() else self.run.num_examples or max(sizes)
        is_mean, is_by_example = not value.dim(), sizes == {number}
        each = {
            name: -gradient.double().cpu().reshape(-1, gradient.shape[-1]).T
            for name, gradient in zip(gates, gradients, strict=True)
        }
        if is_by_example:
            return {name: rows * number if is_mean else rows for name, rows in each.items()}, torch.ones(
                number
            ).double()
        if not signed:
            raise ValueError("with signed=False, heads must come by example: their gates are those of each example")
        each = {name: rows.sum(dim=1, keepdim=True) / (1 if is_mean else number) for name, rows in each.items()}
        return each, torch.tensor([float(number or 1)], dtype=torch.float64)


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
    run = lambda: model(*inputs, **named)  # noqa: E731
    found = FoundHeads(model, inputs, named, watched(model, run))
    if any(CHANGED in reason for reason in found.unknown.values()):  # gradients say what lies between
        found = FoundHeads(model, inputs, named, watched(model, run, with_gradients=True))
    return found
