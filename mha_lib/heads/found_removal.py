"""Remove heads of any model: rows are found by gradient, and a copy that computes something different is refused.

In comments letters as in ``watching``.
"""

import copy
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import Any

import torch
from torch import Tensor, nn

from mha_lib.attention.converters import as_torch, from_torch
from mha_lib.heads.batches import tensors_in
from mha_lib.heads.before_mixing import evaluating, plainly
from mha_lib.heads.found_layers import FoundLayer, common_name, mixing_name
from mha_lib.heads.layer_heads import bias_with_means, copies_of_heads
from mha_lib.heads.plans import Plan
from mha_lib.heads.watching import Attended, Watch

Inputs = tuple[tuple, dict[str, Any]]
MOST_SIZES = 8  # integers of one layer, each of which is tried in its old and in its new size


@dataclass(frozen=True)
class Removal:
    """Hold what removing heads from a model saved, and what ``save_pruned`` must know of it.

    Attributes:
        plan: the heads that went, by layer.
        parameters: their number, before and after.
        cache_bytes: of the keys and values that the model returns for the example; 0 where it returns none.
        seconds: of one pass over the example, the better of two.
        difference: the largest difference between the smaller and the gated model's output, on two inputs; on one,
            where the second is the example again (see ``FoundHeads.remove``).
        sizes: the integers of modules that were changed, by module and attribute.
        shapes: the parameters that were cut, with their shapes before and after.
        as_torch: torch's layers that are now of this library, and how many heads each has.
    """

    plan: dict[str, list[int]]
    parameters: tuple[int, int]
    cache_bytes: tuple[int, int]
    seconds: tuple[float, float]
    difference: float
    sizes: dict[str, tuple[int, int]]
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    as_torch: dict[str, int]


@dataclass(frozen=True)
class Whole:
    """Hold the model before the cut, an example that it is compared on, ``ablated(model, plan)`` and the means.

    ``instead`` are the means of heads that go, by layer, (h, d), which are left behind; empty for zeros.
    """

    model: nn.Module
    example: Inputs
    ablated: Callable[[nn.Module, Plan], AbstractContextManager]
    instead: Mapping[str, Tensor]

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
    off = {name: sorted(set(heads)) for name, heads in plan.items() if heads}
    few = replace(whole, example=_two_examples(whole, off))
    rows = _rows_of_each([layers[name] for name in off], few)
    inputs = few.example, second or _another(few)
    for is_guessing in (True, False):  # sizes that fit one layer are taken for the others of its kind; or each is tried
        smaller, changes, was_guessed = copy.deepcopy(whole.model), _Changes(), False
        guesses: Guesses | None = {} if is_guessing else None
        with evaluating(smaller):
            try:
                for number, name in enumerate(off, start=1):
                    gone = {one: off[one] for one in list(off)[:number]}
                    was_guessed |= _cut(smaller, few, layers[name], rows.get(name), gone, guesses, changes)
                differences = [_checked(smaller, few, off, example) for example in inputs]
                break
            except ValueError:
                if not was_guessed:
                    raise
    both = (whole.model, smaller)
    parameters = tuple(sum(parameter.numel() for parameter in model.parameters()) for model in both)
    caches, seconds = zip(*(_cost(model, whole.example) for model in both), strict=True)
    saved = (parameters, caches, seconds, max(differences))
    return smaller, Removal(off, *saved, changes.sizes, changes.shapes, changes.as_torch)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Changes:
    """What became of a copy: as in ``Removal``."""

    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    as_torch: dict[str, int] = field(default_factory=dict)


Rows = dict[str, tuple[int, Tensor]]  # by parameter the axis, and for each head the lines on which it depends
Guesses = dict[tuple, set[tuple[bool, str]]]  # by the kind of a layer the integers that got new sizes


def _checked(model: nn.Module, whole: Whole, off: Plan, example: Inputs) -> float:
    """The difference of the smaller model from the gated one, which must be rounding."""
    difference, is_rounding = _compared(model, whole, off, example, whole.without(off, example))
    if not is_rounding:
        raise ValueError(f"heads cannot be removed: on another input the smaller model is off by {difference:.1e}")
    return difference


def _cut(
    model: nn.Module, whole: Whole, layer: FoundLayer, found: tuple[str, Rows] | None, gone: Plan,
    guesses: Guesses | None, changes: _Changes,
) -> bool:  # fmt: skip
    """Take heads out of one layer of the copy, or say why it cannot be done; return whether its sizes are a guess.

    ``gone`` is the plan so far, with this layer last; ``found`` is None for torch's layer.
    """
    off, means = gone[layer.name], whole.instead.get(layer.name)
    mixing, kept = model.get_submodule(layer.mixing), [h for h in range(layer.num_heads) if h not in off]
    if not kept:
        raise ValueError(f"{layer.name}: all of its heads would go; leave that to a gate (ablated)")
    if found is None:
        changes.as_torch[layer.mixing.rpartition(".")[0]] = len(kept)
        cut_torchs_layer(model, layer.mixing.rpartition(".")[0], kept, means)
        return False
    groups = [group for group in range(layer.num_key_value_heads) if set(layer.group(group)) <= set(off)]
    num_groups = layer.num_key_value_heads - len(groups)
    if len(kept) % num_groups:
        raise ValueError(
            f"{layer.name}: {len(kept)} heads cannot share {num_groups} key-value heads evenly; take as many from each "
            f"group of {len(layer.group(0))}, or whole groups"
        )
    axis, (attention, rows) = _axis_of_heads(mixing, layer), found
    for parameter in (*rows, f"{layer.mixing}.weight"):
        if others := _other_places(model, parameter):
            raise ValueError(
                f"{layer.name} cannot be cut: {parameter} is shared with {', '.join(others)}; leave its heads to gates "
                "(ablated)"
            )
    if means is not None:
        _leave_means(mixing, layer, off, means)
    for parameter, (dim, mask) in rows.items():
        _keep(model, parameter, dim, ~(mask[off].any(dim=0) & ~mask[kept].any(dim=0)), changes)
    columns = torch.zeros(layer.num_heads, layer.head_size, dtype=torch.bool)
    columns[kept] = True
    _keep(model, f"{layer.mixing}.weight", axis, columns.flatten(), changes)
    attending = model.get_submodule(attention)
    return _fit_sizes(model, whole, layer, attending, (len(kept), num_groups), gone, guesses, changes.sizes)


def cut_torchs_layer(model: nn.Module, name: str, kept: Sequence[int], means: Tensor | None = None) -> None:
    """Put this library's layer with these heads, called like torch's, in the place of an ``nn.MultiheadAttention``."""
    parent, _, last = name.rpartition(".")
    layer = model.get_submodule(name)
    if not isinstance(layer, nn.MultiheadAttention) or not name:
        raise ValueError(f"{name or 'the model'} must be an nn.MultiheadAttention inside a model, to be replaced there")
    batch_first, layer.batch_first = layer.batch_first, True
    try:
        ours = from_torch(layer)
    except ValueError as error:
        raise ValueError(f"{name} cannot be cut: {error}") from error
    finally:
        layer.batch_first = batch_first
    smaller = copies_of_heads(ours, list(kept))
    if means is not None:
        gone = [head for head in range(ours.num_heads) if head not in kept]
        bias = bias_with_means(ours.W_o, ours.num_heads, gone, means)
        smaller.W_o.bias = nn.Parameter(bias.detach(), ours.W_o.weight.requires_grad)
    setattr(model.get_submodule(parent), last, as_torch(smaller, batch_first))


@torch.no_grad()
def _leave_means(mixing: nn.Module, layer: FoundLayer, off: Sequence[int], means: Tensor) -> None:
    """Add what the mixing module makes of the means of these heads to its bias."""
    if "bias" not in mixing._parameters:
        raise ValueError(f"{layer.name}: {layer.mixing} can have no bias, which instead= needs: leave it out")
    weight = mixing.get_parameter("weight")
    heads = torch.zeros(2, 1, layer.num_heads, layer.head_size).to(weight)
    heads[1, 0, off] = means.to(weight)[off]
    nothing, some = mixing(heads.flatten(start_dim=2))[:, 0]
    bias = some - nothing if mixing.bias is None else mixing.bias + (some - nothing)
    mixing.bias = nn.Parameter(bias, weight.requires_grad)


def _two_examples(whole: Whole, off: Plan) -> Inputs:
    """The first two examples, where the model takes them alone."""
    tensors = [X for X in (*whole.example[0], *whole.example[1].values()) if isinstance(X, Tensor) and X.dim()]
    if len({len(X) for X in tensors}) == 1 and len(tensors[0]) > 2:
        few = _with_tensors(lambda X: X[:2] if X.dim() else X, whole.example)
        with suppress(Exception):  # whatever a model says of what it does not take
            whole.without(off, few)
            return few
    return whole.example


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
def _rows_of_each(layers: Sequence[FoundLayer], whole: Whole) -> dict[str, tuple[str, Rows]]:
    """By layer the name of the module that attends, and by parameter the lines of each head: all in one pass.

    Torch's own layers, whose maps are no modules, are left out.
    """
    model, (inputs, named) = copy.deepcopy(whole.model), whole.example
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    names, found = {module: name for name, module in model.named_modules()}, {}
    with _untied(model), evaluating(model), plainly(), Watch(model) as watch:
        model(*inputs, **named)
        by_mixing: dict[str, Attended] = {}
        for one in watch.seen:
            by_mixing.setdefault(mixing_name(one, names), one)
        for layer in layers:
            if not (one := by_mixing[layer.mixing]).is_torchs_layer:
                found[layer.name] = names[one.module], _rows(model, layer, one, names)
    return found


def _rows(model: nn.Module, layer: FoundLayer, one: Attended, names: Mapping[nn.Module, str]) -> Rows:
    """By parameter the axis, and for each head the lines on which it depends, (h, size), asked of the gradient."""
    X = next(X for module, X in reversed(one.fed) if names[module] == layer.mixing)
    holder = common_name(names[one.module], layer.mixing)
    parameters = model.get_submodule(holder).named_parameters()
    own = {f"{holder}.{name}".lstrip("."): parameter for name, parameter in parameters}
    own = {name: own[name] for name in own if not name.startswith(f"{layer.mixing}.")}
    heads = X.unflatten(-1, (layer.num_heads, -1))
    probe = torch.randn(heads.shape, generator=torch.Generator().manual_seed(0)).to(heads)
    gradients = [
        torch.autograd.grad(
            (heads[..., h, :] * probe[..., h, :]).sum(), list(own.values()), retain_graph=True, allow_unused=True
        )
        for h in range(layer.num_heads)
    ]
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
    return found


def _fit_sizes(
    model: nn.Module, whole: Whole, layer: FoundLayer, attention: nn.Module, sizes: tuple[int, int], gone: Plan,
    guesses: Guesses | None, changed: dict[str, tuple[int, int]],
) -> bool:  # fmt: skip
    """Set as few integers of the layer's modules to new sizes as give what is expected; return whether by a guess."""
    names, numbers = {module: name for name, module in model.named_modules()}, _names_of_numbers(whole.model)
    old, (kept, groups) = (layer.num_heads, layer.num_key_value_heads), sizes
    (h, g), d = old, layer.head_size
    becomes = {h // g: kept // groups, g * d: groups * d, g: groups, 3 * h * d: 3 * kept * d, h * d: kept * d, h: kept}
    holder = model.get_submodule(common_name(names[attention], layer.mixing))
    fit_maps(holder)
    places = [
        (module, name, value, becomes[value])
        for module in dict.fromkeys((attention, holder))
        for name, value in vars(module).items()
        if type(value) is int and not name.startswith("_") and becomes.get(value, value) != value
        if (type(module), name) not in numbers
    ][:MOST_SIZES]
    kind = type(attention), type(holder), groups != g, kept // groups != h // g
    guess = None if guesses is None else guesses.get(kind)
    choices: Iterable[Sequence[tuple[nn.Module, str, int, int]]]
    if guess is None:
        expected, why = whole.without(gone, whole.example), "no size fits"
        choices = chain.from_iterable(combinations(places, number) for number in range(len(places) + 1))
    else:
        choices = [[place for place in places if (place[0] is attention, place[1]) in guess]]
    for chosen in choices:
        for module, name, before, after in places:
            setattr(module, name, after if (module, name, before, after) in chosen else before)
        try:
            difference, fits = (
                (0.0, True) if guess is not None else _compared(model, whole, gone, whole.example, expected)
            )
        except Exception as error:  # whatever a model does with sizes that no longer fit
            why = _reason(error, names, attention)
            continue
        if fits:
            if guesses is not None:
                guesses[kind] = {(module is attention, name) for module, name, *_ in chosen}
            changed |= {f"{names[module]}.{name}".lstrip("."): (old, new) for module, name, old, new in chosen}
            return guess is not None
        why = f"it is off by {difference:.1e}"
    raise ValueError(
        f"{layer.name} cannot be cut: without the rows of these heads, {why}; leave them to gates (ablated)"
    )


def fit_maps(model: nn.Module) -> None:
    """Let linear maps say the sizes that their weights have."""
    for linear in model.modules():
        weight = getattr(linear, "weight", None)
        if isinstance(linear, nn.Linear) and isinstance(weight, Tensor):
            linear.out_features, linear.in_features = weight.shape
        elif hasattr(linear, "nf") and isinstance(weight, Tensor):  # transformers' Conv1D
            setattr(linear, "nf", weight.shape[1])  # noqa: B010 (to mypy a module's attributes are modules)


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


def _keep(model: nn.Module, name: str, axis: int, lines: Tensor, changes: _Changes) -> None:
    """Keep only these lines of a parameter."""
    module, _, kind = name.rpartition(".")
    parameter = model.get_parameter(name)
    kept = parameter.detach().index_select(axis, lines.nonzero().flatten().to(parameter.device))
    setattr(model.get_submodule(module), kind, nn.Parameter(kept, parameter.requires_grad))
    changes.shapes[name] = tuple(parameter.shape), tuple(kept.shape)


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
    return next(X for X in tensors_in(output) if X.is_floating_point())


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
        for _ in range(2):
            _wait(model)
            start = time.perf_counter()
            output = model(*example[0], **example[1])
            _wait(model)
            seconds.append(time.perf_counter() - start)
    parts = dict(output.items()) if isinstance(output, Mapping) else {}
    parts = parts or {"past_key_values": getattr(output, "past_key_values", None)}
    cache = parts.get("cache", parts.get("past_key_values"))  # of transformers from 5.24 on, and before
    return sum(X.numel() * X.element_size() for X in tensors_in(cache)), min(seconds)


def _wait(model: nn.Module) -> None:
    """Wait for the accelerator that a model is on, which computes while Python goes on."""
    if (device := next(model.parameters()).device).type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)
