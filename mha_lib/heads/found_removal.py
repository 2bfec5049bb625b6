"""Remove heads of any model for real: rows are found by gradient, and a copy that computes something else is refused.

In comments letters as in ``watching``.
"""

import copy
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any

import torch
from torch import Tensor, nn

from mha_lib.heads.ablation import evaluating
from mha_lib.heads.before_mixing import plainly
from mha_lib.heads.found_layers import FoundLayer, common_name, mixing_name
from mha_lib.heads.watching import Watch

Inputs = tuple[tuple, dict[str, Any]]
Plan = Mapping[str, Sequence[int]]  # for each layer by name, the numbers of the heads that are off
MOST_SIZES = 8  # integers of one layer, each of which is tried in its old and in its new size


@dataclass(frozen=True)
class Removal:
    """Hold what removing heads from a model saved: parameters, cache bytes and seconds, before and after.

    Attributes:
        plan: the heads that went, by layer.
        parameters: their number.
        cache_bytes: of the keys and values that the model returns for the example; 0 where it returns none.
        seconds: of one pass over the example, the best of three.
        difference: the largest difference between the smaller and the gated model's output, on two inputs; on one,
            where the second is the example again (see ``FoundHeads.remove``).
        sizes: the integers of modules that were changed, by module and attribute.
    """

    plan: dict[str, list[int]]
    parameters: tuple[int, int]
    cache_bytes: tuple[int, int]
    seconds: tuple[float, float]
    difference: float
    sizes: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Whole:
    """Hold the model before the cut, the example that it is compared on, and ``ablated(model, plan)``, its gates."""

    model: nn.Module
    example: Inputs
    ablated: Callable[[nn.Module, Plan], AbstractContextManager]

    def without(self, off: Plan, example: Inputs) -> Tensor:
        """Return what the model gives for an example while these heads are gated."""
        with torch.no_grad(), evaluating(self.model), self.ablated(self.model, off):
            return first_tensor(self.model(*example[0], **example[1]))


def removed(
    whole: Whole, layers: Mapping[str, FoundLayer], plan: Plan, second: Inputs | None
) -> tuple[nn.Module, Removal]:
    """Return a copy of the model without the heads in ``plan``, and a ``Removal``: see ``FoundHeads.remove``."""
    if away := [name for name, parameter in whole.model.named_parameters() if parameter.is_meta]:
        raise ValueError(f"{away[0]} is not in memory, as after offloading: load the model whole, then remove heads")
    smaller, off = copy.deepcopy(whole.model), {}
    sizes: dict[str, tuple[int, int]] = {}
    difference = 0.0
    with evaluating(smaller):
        for name, heads in plan.items():
            if not heads:
                continue
            off[name] = list(heads)
            sizes |= _cut(smaller, whole, layers[name], sorted(set(heads)), off)
        for example in (whole.example, second or _another(whole)):
            by, is_rounding = _compared(smaller, whole, off, example, whole.without(off, example))
            if not is_rounding:
                raise ValueError(f"heads cannot be removed: on another input the smaller model is off by {by:.1e}")
            difference = max(difference, by)
    both = (whole.model, smaller)
    parameters = tuple(sum(parameter.numel() for parameter in model.parameters()) for model in both)
    caches, seconds = zip(*(_cost(model, whole.example) for model in both), strict=True)
    return smaller, Removal(off, parameters, caches, seconds, difference, sizes)  # type: ignore[arg-type]


def _cut(
    model: nn.Module, whole: Whole, layer: FoundLayer, off: Sequence[int], gone: Plan
) -> dict[str, tuple[int, int]]:
    """Take these heads out of one layer of the copy and return the sizes changed, or say why it cannot be done.

    ``gone`` is the plan so far, with this layer.
    """
    mixing, kept = model.get_submodule(layer.mixing), [h for h in range(layer.num_heads) if h not in off]
    if not kept:
        raise ValueError(f"{layer.name}: all of its heads would go; leave that to a gate (ablated)")
    groups = [group for group in range(layer.num_key_value_heads) if set(layer.group(group)) <= set(off)]
    num_groups = layer.num_key_value_heads - len(groups)
    if len(kept) % num_groups:
        raise ValueError(
            f"{layer.name}: {len(kept)} heads cannot share {num_groups} key-value heads evenly; take as many from each "
            f"group of {len(layer.group(0))}, or whole groups"
        )
    axis = _axis_of_heads(mixing, layer)
    with _untied(model):
        attention, rows = _rows_of_each(model, layer, whole.example)
    for parameter in (*rows, f"{layer.mixing}.weight"):
        if others := _other_places(model, parameter):
            raise ValueError(
                f"{layer.name} cannot be cut: {parameter} is shared with {', '.join(others)}; leave its heads to gates "
                "(ablated)"
            )
    for parameter, (dim, mask) in rows.items():
        _keep(model, parameter, dim, ~(mask[off].any(dim=0) & ~mask[kept].any(dim=0)))
    columns = torch.zeros(layer.num_heads, layer.head_size, dtype=torch.bool)
    columns[kept] = True
    _keep(model, f"{layer.mixing}.weight", axis, columns.flatten())
    return _fit_sizes(model, whole, layer, attention, (len(kept), num_groups), gone)


@contextmanager
def _untied(model: nn.Module) -> Iterator[None]:
    """Inside, modules that share a parameter have one each, with the same numbers, and so gradients of their own."""
    first: set[int] = set()
    again = []
    for module in model.modules():
        for kind, parameter in module._parameters.items():
            if parameter is not None and id(parameter) in first:
                again.append((module._parameters, kind, parameter))
            first.add(id(parameter))
    for table, kind, parameter in again:
        table[kind] = nn.Parameter(parameter.detach(), parameter.requires_grad)
    try:
        yield
    finally:
        for table, kind, parameter in again:
            table[kind] = parameter


def _other_places(model: nn.Module, name: str) -> list[str]:
    """The names that a parameter has in other modules, which share it."""
    module, parameter = model.get_submodule(name.rpartition(".")[0]), model.get_parameter(name)
    return [
        f"{path}.{kind}"
        for path, other in model.named_modules()
        for kind, theirs in other._parameters.items()
        if theirs is parameter and other is not module
    ]


def _axis_of_heads(mixing: nn.Module, layer: FoundLayer) -> int:
    """The axis of the mixing module's weight along which its input lies, asked of its output."""
    weights = [name for name, parameter in mixing.named_parameters() if parameter.dim() > 1]
    if weights != ["weight"]:
        raise ValueError(
            f"{layer.name}: {layer.mixing} is {type(mixing).__name__}, with {', '.join(weights) or 'no matrix'}; it "
            "must have one matrix, called weight. Merge an adapter first"
        )
    weight = mixing.get_parameter("weight")
    width = layer.num_heads * layer.head_size
    unit = torch.zeros(2, 1, width).to(weight)
    unit[1, 0, 0] = 1  # what it gives for the first feature, and for nothing
    with torch.no_grad():
        nothing, first = mixing(unit).flatten(start_dim=1)
    for axis in (1, 0):
        if weight.shape[axis] == width and torch.allclose(
            first - nothing, weight.select(axis, 0), rtol=1e-2, atol=1e-3
        ):
            return axis
    raise ValueError(f"{layer.name}: {layer.mixing} is not the product with its weight")


@torch.enable_grad()
def _rows_of_each(
    model: nn.Module, layer: FoundLayer, example: Inputs
) -> tuple[nn.Module, dict[str, tuple[int, Tensor]]]:
    """The module that attends; by parameter the axis, and for each head the lines on which it depends, (h, size)."""
    names = {module: name for name, module in model.named_modules()}
    needed = {parameter: parameter.requires_grad for parameter in model.parameters()}
    for parameter in needed:
        parameter.requires_grad_(parameter.is_floating_point())
    try:
        with plainly(), Watch(model) as watch:
            model(*example[0], **example[1])
        one = next(one for one in watch.seen if mixing_name(one, names) == layer.mixing)
        if one.is_torchs_layer:
            raise ValueError(
                f"{layer.name}: torch's nn.MultiheadAttention has as many features in its heads as in its tokens; "
                "convert it with converters.from_torch, then heads.prune"
            )
        X = next(X for module, X in reversed(one.fed) if names[module] == layer.mixing)
        holder = common_name(names[one.module], layer.mixing)
        own = {
            f"{holder}.{name}".lstrip("."): parameter
            for name, parameter in model.get_submodule(holder).named_parameters()
        }
        own = {name: own[name] for name in own if not name.startswith(f"{layer.mixing}.")}
        heads = X.unflatten(-1, (layer.num_heads, -1))
        probe = torch.randn(heads.shape, generator=torch.Generator().manual_seed(0)).to(heads)
        gradients = [
            torch.autograd.grad(
                (heads[..., h, :] * probe[..., h, :]).sum(), list(own.values()), retain_graph=True, allow_unused=True
            )
            for h in range(layer.num_heads)
        ]
    finally:
        for parameter, was in needed.items():
            parameter.requires_grad_(was)
    found = {}
    for (name, parameter), of_each in zip(own.items(), zip(*gradients, strict=True), strict=True):
        if all(gradient is not None for gradient in of_each):
            changed = torch.stack([gradient != 0 for gradient in of_each])  # (h, *parameter.shape)
            for axis in range(parameter.dim()):
                mask = changed.movedim(1 + axis, 1).flatten(start_dim=2).any(dim=2) if parameter.dim() > 1 else changed
                if not (mask == mask[0]).all():
                    found[name] = (axis, mask)
                    break
    for name in own:  # a bias goes with its matrix; that of the keys has no gradient, since a softmax does not see it
        module, _, kind = name.rpartition(".")
        if kind == "bias":
            found.pop(name, None)
            if f"{module}.weight" in found:
                mask = found[f"{module}.weight"][1]
                if own[name].shape[0] == mask.shape[1]:
                    found[name] = (0, mask)
    return one.module, found


def _fit_sizes(
    model: nn.Module, whole: Whole, layer: FoundLayer, attention: nn.Module, sizes: tuple[int, int], gone: Plan
) -> dict[str, tuple[int, int]]:  # fmt: skip
    """Set as few integers of the layer's modules to new sizes as give what is expected, and return these."""
    names, numbers = {module: name for name, module in model.named_modules()}, _names_of_numbers(whole.model)
    expected = whole.without(gone, whole.example)
    old, (kept, groups) = (layer.num_heads, layer.num_key_value_heads), sizes
    (h, g), d = old, layer.head_size
    becomes = {h // g: kept // groups, g * d: groups * d, g: groups, 3 * h * d: 3 * kept * d, h * d: kept * d, h: kept}
    holder = model.get_submodule(common_name(names[attention], layer.mixing))
    for linear in holder.modules():
        weight = getattr(linear, "weight", None)
        if isinstance(linear, nn.Linear):
            linear.out_features, linear.in_features = linear.weight.shape
        elif hasattr(linear, "nf") and isinstance(weight, Tensor):  # transformers' Conv1D
            setattr(linear, "nf", weight.shape[1])  # noqa: B010 (to mypy a module's attributes are modules)
    places = [
        (module, name, value, becomes[value])
        for module in dict.fromkeys((attention, holder))
        for name, value in vars(module).items()
        if type(value) is int and not name.startswith("_") and becomes.get(value, value) != value
        if (type(module), name) not in numbers
    ][:MOST_SIZES]
    why = "no size fits"
    for chosen in chain.from_iterable(combinations(places, number) for number in range(len(places) + 1)):
        for module, name, before, _ in places:
            setattr(module, name, before)
        for module, name, _, after in chosen:
            setattr(module, name, after)
        try:
            difference, is_rounding = _compared(model, whole, gone, whole.example, expected)
        except Exception as error:  # whatever a model does with sizes that no longer fit
            why = _reason(error, names, attention)
            continue
        if is_rounding:
            return {f"{names[module]}.{name}".lstrip("."): (old, new) for module, name, old, new in chosen}
        why = f"it is off by {difference:.1e}"
    raise ValueError(
        f"{layer.name} cannot be cut: without the rows of these heads, {why}; leave them to gates (ablated)"
    )


def _reason(error: Exception, names: Mapping[nn.Module, str], attention: nn.Module) -> str:
    """Which module cannot compute with fewer heads, and what that means."""
    said = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    callers = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    module = [one for one in callers if isinstance(one, nn.Module) and one in names][-1]
    if module in set(attention.children()) and not isinstance(module, nn.Linear):
        return f"{names[module]} ({type(module).__name__}) still takes all heads at once, as a norm over them ({said})"
    return (
        f"{names[module]} ({type(module).__name__}) still has a size of all heads, read from elsewhere, as from a "
        f"config, or got a tensor of all heads, as a position bias that layers share ({said})"
    )


def _names_of_numbers(model: nn.Module) -> set[tuple[type, str]]:
    """Attributes that number the modules of a class, 0, 1, 2 and so on: such a number is no size."""
    values: dict[tuple[type, str], list[int]] = {}
    for module in model.modules():
        for name, value in vars(module).items():
            if type(value) is int:
                values.setdefault((type(module), name), []).append(value)
    return {place for place, found in values.items() if len(found) > 1 and found == list(range(len(found)))}


def _keep(model: nn.Module, name: str, axis: int, lines: Tensor) -> None:
    """Keep only these lines of a parameter."""
    module, _, kind = name.rpartition(".")
    parameter = model.get_parameter(name)
    kept = parameter.detach().index_select(axis, lines.nonzero().flatten().to(parameter.device))
    setattr(model.get_submodule(module), kind, nn.Parameter(kept, parameter.requires_grad))


def _difference(model: nn.Module, example: Inputs, expected: Tensor) -> float:
    with torch.no_grad(), plainly():
        output = first_tensor(model(*example[0], **example[1]))
    return (output - expected).abs().max().item() if output.shape == expected.shape else float("inf")


def _compared(model: nn.Module, whole: Whole, off: Plan, example: Inputs, expected: Tensor) -> tuple[float, bool]:
    """The largest difference from what is expected, and whether it is rounding: in doubt, double precision says so."""
    difference, tolerance = _difference(model, example, expected), _tolerance(expected)
    if difference <= tolerance or not difference < 1e4 * tolerance or expected.dtype == torch.float64:
        return difference, difference <= tolerance
    doubled = _with_tensors(lambda X: X.double() if X.is_floating_point() else X, example)
    try:
        expected = replace(whole, model=copy.deepcopy(whole.model).double()).without(off, doubled)
        return difference, _difference(copy.deepcopy(model).double(), doubled, expected) <= _tolerance(expected)
    except Exception:  # a model of one precision alone
        return difference, False


def _tolerance(expected: Tensor) -> float:
    return max(1e-6, 8 * torch.finfo(expected.dtype).eps) * max(1.0, expected.abs().max().item())


def first_tensor(output: object) -> Tensor:
    """Return the first floating-point tensor in a model's output: a tensor, a tuple or a dictionary."""
    return next(X for X in _tensors(output) if X.is_floating_point())


def _tensors(output: object) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        yield from _tensors(list(output.values()))
    elif isinstance(output, Iterable) and not isinstance(output, str | bytes):
        for part in output:
            yield from _tensors(part)


def _another(whole: Whole) -> Inputs:
    """The example without its last token; where it has no numbers of tokens, noise in its shape.

    Where the model does not take that, it is the example again.
    """
    example = whole.example
    given = [X for X in (*example[0], *example[1].values()) if isinstance(X, Tensor)]
    tokens = [X for X in given if not X.is_floating_point() and X.dim() == 2]
    shorter = min((X.shape[1] for X in tokens if X.shape[1] > 2), default=0) - 1

    def other(X: Tensor) -> Tensor:
        if not tokens and X.is_floating_point():
            return torch.randn(X.shape, generator=torch.Generator().manual_seed(0)).to(X)
        if X.is_floating_point() or shorter < 0:
            return X
        if X.dim() == 1 and X.dtype != torch.bool:  # lengths
            return X.clamp(max=shorter)
        return X[:, :-1] if X.dim() == 2 and X.shape[1] > 2 else X

    another = _with_tensors(other, example)
    try:
        whole.without({}, another)
    except Exception:  # whatever a model says of what it does not take
        return example
    return another


def _with_tensors(change: Callable[[Tensor], Tensor], example: Inputs) -> Inputs:
    """The example with every tensor changed."""
    inputs, named = example
    changed = [change(X) if isinstance(X, Tensor) else X for X in (*inputs, *named.values())]
    return tuple(changed[: len(inputs)]), dict(zip(named, changed[len(inputs) :], strict=True))


def _cost(model: nn.Module, example: Inputs) -> tuple[int, float]:
    """The bytes of the cache that the model returns, and the seconds of a pass."""
    seconds = []
    with torch.no_grad(), evaluating(model):
        for _ in range(3):
            _wait(model)
            start = time.perf_counter()
            output = model(*example[0], **example[1])
            _wait(model)
            seconds.append(time.perf_counter() - start)
    cache = getattr(output, "cache", None)  # of transformers from 5.24 on
    cache = getattr(output, "past_key_values", None) if cache is None else cache
    layers = getattr(cache, "layers", None)
    kept = cache if layers is None else [(getattr(one, "keys", None), getattr(one, "values", None)) for one in layers]
    return sum(X.numel() * X.element_size() for X in _tensors(kept)), min(seconds)


def _wait(model: nn.Module) -> None:
    """Wait for the accelerator that a model is on, which computes while Python goes on."""
    if (device := next(model.parameters()).device).type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)
