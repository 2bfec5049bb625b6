"""A model from which heads were removed, saved and loaded again: weights as safetensors, all else as JSON."""

import copy
import importlib
import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mha_lib.attention.torchvision_operators import import_beside_torchvision
from mha_lib.heads.found_removal import Removal, cut_torchs_layer, fit_maps

WEIGHTS, CONFIG, README = "pruned.safetensors", "config.json", "README.md"
ENTRY = "mha_lib"
KEPT = ("plan", "sizes", "shapes", "as_torch")  # of a Removal: what building the model again takes
PAGE = """# A model without {number} of its attention heads

`from_pretrained` cannot load it, because its layers have sizes of their own. Load it with `mha_lib`:

```python
from mha_lib import heads

model = heads.load_pruned({arguments})  # from this folder
```

Removed from `{base_class}`:

| layer | heads |
|---|---|
{rows}
"""


def save_pruned(model: nn.Module, removal: Removal, folder: str | Path) -> None:
    """Save a model from which heads were removed, trained further or not, so that ``load_pruned`` can load it.

    The folder gets ``pruned.safetensors``; ``config.json`` with the plan, the sizes, the base class and, for a model of
    transformers, its configuration; and a README on how to load it. ``from_pretrained`` finds no weights in it.

    Args:
        model, removal: from ``found.remove``.
        folder: is created if it is missing.

    Raises:
        ValueError: ``removal`` is that of another model.
        FileExistsError: the folder holds other files, such as weights of the whole model.
    """
    folder, tensors = Path(folder), _tensors_of(model)
    for name, (_, after) in removal.shapes.items():
        if name not in tensors or tuple(tensors[name].shape) != after:
            got = tuple(tensors[name].shape) if name in tensors else "none"
            raise ValueError(f"removal is of another model: {name} must have shape {after}, got {got}")
    folder.mkdir(parents=True, exist_ok=True)
    if others := sorted({file.name for file in folder.iterdir()} - {WEIGHTS, CONFIG, README}):
        raise FileExistsError(f"folder must be new or empty, {folder} holds {', '.join(others)}")
    first: dict[int, str] = {}
    tied = {name: first[id(X)] for name, X in tensors.items() if first.setdefault(id(X), name) != name}
    entry = {name: getattr(removal, name) for name in KEPT} | {"tied": tied}
    entry["base_class"] = f"{type(model).__module__}.{type(model).__qualname__}"
    config: Any = getattr(model, "config", None)
    is_known = _is_of_transformers(entry["base_class"]) and hasattr(config, "to_json_string")
    if is_known:
        plain = config.to_json_string(use_diff=False)  # there, infinity is {"__float__": "Infinity"}
        spelt = lambda part: float(part["__float__"]) if "__float__" in part else part  # noqa: E731
        entry["config"] = json.loads(plain, object_hook=spelt)
        entry["attention"] = config._attn_implementation
        generation: Any = getattr(model, "generation_config", None)
        entry["generation"] = None if generation is None else generation.to_dict()
    save_file({name: tensors[name].detach().clone().contiguous() for name in first.values()}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps({ENTRY: entry}, indent=2), encoding="utf-8")
    arguments = '"."' if is_known else f'".", model={type(model).__name__}(…)'
    rows = "\n".join(f"| {name or 'the model'} | {', '.join(map(str, off))} |" for name, off in removal.plan.items())
    number = sum(map(len, removal.plan.values()))
    page = PAGE.format(number=number, arguments=arguments, rows=rows, base_class=entry["base_class"])
    (folder / README).write_text(page, encoding="utf-8")


def load_pruned(folder: str | Path, model: nn.Module | None = None) -> nn.Module:
    """Load a model that ``save_pruned`` saved, in eval mode: outputs are equal to the last bit. Nothing is unpickled.

    Args:
        model: a fresh model of the same class and sizes, with all its heads; it stays as it is. Left out, a model of
            transformers is built from its configuration.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the folder was not written by ``save_pruned``; it needs ``model``; or ``model``, the plan and the
            weights do not belong together, with the names that differ.
    """
    folder = Path(folder)
    if missing := [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]:
        raise FileNotFoundError(f"{folder} lacks {' and '.join(missing)}, which save_pruned writes")
    entry = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get(ENTRY)
    if entry is None:
        raise ValueError(f"{folder / CONFIG} has no entry {ENTRY}: it was not written by save_pruned")
    weights = load_file(folder / WEIGHTS)
    weights |= {name: weights[first] for name, first in entry["tied"].items() if first in weights}
    model = _fresh(entry) if model is None else copy.deepcopy(model)
    for name, number in entry["as_torch"].items():
        cut_torchs_layer(model, name, range(number))
    _check_fit(model, entry, weights)
    made: dict[int, nn.Parameter] = {}
    for name, tensor in weights.items():
        path, _, kind = name.rpartition(".")
        module = model.get_submodule(path)
        if kind in module._buffers:
            module._buffers[kind] = tensor
            continue
        before = module._parameters[kind]
        trained = tensor.is_floating_point() and (before is None or before.requires_grad)
        module._parameters[kind] = made.setdefault(id(tensor), nn.Parameter(tensor, trained))
    for place, (_, new) in entry["sizes"].items():
        path, _, name = place.rpartition(".")
        setattr(model.get_submodule(path), name, new)
    fit_maps(model)
    return model.eval()


def _check_fit(model: nn.Module, entry: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Raise an error that names what does not belong together of a fresh model, a plan and weights."""
    there, modules, wrong = _tensors_of(model), dict(model.named_modules()), []
    for name in there.keys() | weights.keys() | entry["shapes"].keys():
        path, _, kind = name.rpartition(".")
        if name not in weights:
            wrong.append(f"{name} is not in {WEIGHTS}")
        elif name not in there:
            # A bias that takes the means of removed heads may be new.
            if kind != "bias" or kind not in getattr(modules.get(path), "_parameters", ()):
                wrong.append(f"{name} is not in the model")
        else:
            before, after = entry["shapes"].get(name, [there[name].shape, there[name].shape])
            if tuple(there[name].shape) != tuple(before):
                wrong.append(f"{name} has shape {tuple(there[name].shape)} in the model and had {tuple(before)}")
            if tuple(weights[name].shape) != tuple(after):
                wrong.append(
                    f"{name} has shape {tuple(weights[name].shape)} in {WEIGHTS}, the plan needs {tuple(after)}"
                )
    for place, (old, _) in entry["sizes"].items():
        path, _, name = place.rpartition(".")
        if (got := getattr(modules.get(path), name, None)) != old:
            wrong.append(f"{place} is {got} in the model and was {old}")
    if wrong:
        rest = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise ValueError(f"model, plan and weights do not belong together: {'; '.join(sorted(wrong)[:3])}{rest}")


def _tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by every name that they have."""
    tensors = dict(model.named_parameters(remove_duplicate=False))
    return tensors | dict(model.named_buffers(remove_duplicate=False))


def _is_of_transformers(name: str) -> bool:
    return name.startswith("transformers.models.")


def _fresh(entry: dict[str, Any]) -> nn.Module:
    """A model of transformers with random weights; no other class is imported by its name."""
    if not _is_of_transformers(entry["base_class"]) or "config" not in entry:
        raise ValueError(
            f"{entry['base_class']} is no model of transformers with a configuration: give a fresh one, "
            "load_pruned(folder, model=fresh)"
        )
    module, _, name = entry["base_class"].rpartition(".")
    kind = getattr(import_beside_torchvision(lambda: importlib.import_module(module)), name)
    config = kind.config_class.from_dict(entry["config"])
    model = kind._from_config(config, attn_implementation=entry["attention"])
    if entry["generation"] is not None:
        model.generation_config = type(model.generation_config).from_dict(entry["generation"])
    return model
