"""Which heads go: plans from an importance, and random plans of the same shape."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mha_lib.heads.found_layers import FoundLayer, text_table

Plan = Mapping[str, Sequence[int]]  # for each layer by name, the numbers of the heads that go


class PlanTable(dict[str, list[int]]):
    """Name the heads that go, by layer: a dictionary that prints as a table. Layers that it lacks stay whole."""

    def __init__(self, remove: Mapping[str, Sequence[int]], layers: Mapping[str, FoundLayer]):
        super().__init__({name: sorted(heads) for name, heads in remove.items() if len(heads)})
        self.layers = dict(layers)

    def __repr__(self) -> str:
        rows: list[tuple[str, ...]] = [("layer", "heads that go", "heads that stay")]
        for name, layer in self.layers.items():
            stay = [head for head in range(layer.num_heads) if head not in self.get(name, [])]
            rows.append((name or "the model itself", *(_grouped(heads, layer) for heads in (self.get(name, []), stay))))
        total = sum(layer.num_heads for layer in self.layers.values())
        return "\n".join([*text_table(rows), f"{self.num_heads} of {total} heads go"])

    @property
    def num_heads(self) -> int:
        """How many heads go."""
        return sum(map(len, self.values()))


def planned(
    layers: Mapping[str, FoundLayer], importance: Mapping[str, Tensor] | Tensor, remove: int | None,
    fraction: float | None, per_layer: int | None, spare: int, seed: int,
) -> PlanTable:  # fmt: skip
    """Return the plan that ``FoundHeads.plan`` describes."""
    asked = {"remove": remove, "fraction": fraction, "per_layer": per_layer}
    given = {name: value for name, value in asked.items() if value is not None}
    if len(given) != 1:
        raise ValueError(f"give one of remove=, fraction= and per_layer=, got {', '.join(given) or 'none'}")
    if isinstance(importance, Tensor):
        importance = dict(zip(layers, importance, strict=True))
    if unknown := sorted(importance.keys() - layers.keys()):
        raise ValueError(f"importance has unknown layers: {', '.join(unknown)}; there are {', '.join(layers)}")
    chosen = {name: layer for name, layer in layers.items() if name in importance}
    for name, layer in chosen.items():
        if tuple(importance[name].shape) != (layer.num_heads,):
            got = tuple(importance[name].shape)
            raise ValueError(f"importance of {name} must have shape ({layer.num_heads},), got {got}")
    total = sum(layer.num_heads for layer in chosen.values())
    if fraction is not None and not 0 < fraction <= 1:
        raise ValueError(f"fraction must be above 0 and at most 1, got {fraction}")
    number = int(fraction * total + 1e-9) if fraction is not None else (remove or per_layer or 0)
    ((name, value),) = given.items()
    if number < 1:
        raise ValueError(f"{name}={value} of {total} heads: there is nothing to remove")
    parts = [[name] for name in chosen] if per_layer is not None else [list(chosen)]
    plan: dict[str, list[int]] = {}
    for names in parts:
        units = [(layer, unit) for layer in names for unit in _units(chosen[layer])]
        means = torch.stack([importance[layer][unit].double().mean() for layer, unit in units])
        left, missing = {layer: chosen[layer].num_heads - spare for layer in names}, number
        for which in ranks(means, seed).argsort(descending=True).tolist():
            layer, unit = units[which]
            if len(unit) <= min(left[layer], missing):
                plan.setdefault(layer, []).extend(unit)
                left[layer] -= len(unit)
                missing -= len(unit)
        free = [(layer.num_heads - spare, len(layer.group(0))) for layer in map(chosen.__getitem__, names)]
        most = sum(heads - heads % size for heads, size in free)
        if missing and (number > most or fraction is None):
            why = f"spare={spare} leaves at most {most}" if number > most else "heads go by whole key-value groups"
            raise ValueError(f"{name}={value}: {number} heads cannot go from {', '.join(names)}, since {why}")
    if not plan:
        raise ValueError(f"{name}={value}: there is nothing to remove, since heads go by whole key-value groups")
    return PlanTable({name: plan[name] for name in chosen if name in plan}, layers)


def drawn(
    layers: Mapping[str, FoundLayer], plan: Mapping[str, Sequence[int]], number: int, seed: int
) -> list[PlanTable]:
    """Return the random plans that ``FoundHeads.fair_draws`` describes."""
    generator = torch.Generator().manual_seed(seed)
    whole, found = PlanTable(plan, layers), []
    for _ in range(100 * number):
        heads = {}
        for name, off in plan.items():
            units = _units(layers[name])
            if any(0 < len(set(unit) & set(off)) < len(unit) for unit in units):  # no whole groups
                units = [[head] for head in range(layers[name].num_heads)]
            order = torch.randperm(len(units), generator=generator)[: len(off) // len(units[0])].tolist()
            heads[name] = [head for which in order for head in units[which]]
        other = PlanTable(heads, layers)
        found += [other] if other != whole else []
        if len(found) == number:
            return found
    raise ValueError("plan has no random counterpart: no other heads of its layers are as many")


def ranks(importance: Tensor, seed: int = 0) -> Tensor:
    """Return every head's rank by ``importance``, 1 for the most important; ties are broken at random by ``seed``.

    >>> ranks(torch.tensor([[0.1, 0.9], [0.5, 0.3]]))
    tensor([[4, 1],
            [2, 3]])

    ``seed`` draws the order of equals.
    """
    flat = importance.flatten()
    shuffled = torch.rand(len(flat), generator=torch.Generator().manual_seed(seed)).argsort(descending=True)
    shuffled = shuffled.to(flat.device)
    order = shuffled[flat[shuffled].argsort(descending=True, stable=True)]
    return (order.argsort() + 1).view(importance.shape)


def _units(layer: FoundLayer) -> list[list[int]]:
    """The heads of a layer, or its key-value groups: what can be removed on its own."""
    return [layer.group(number) for number in range(layer.num_key_value_heads)]


def _grouped(heads: Sequence[int], layer: FoundLayer) -> str:
    """Heads as text, those of a key-value group in brackets."""
    units = [[head for head in unit if head in heads] for unit in _units(layer)]
    words = [", ".join(map(str, unit)) for unit in units if unit]
    return (", ".join(words) if len(_units(layer)) == layer.num_heads else " ".join(f"({w})" for w in words)) or "–"
