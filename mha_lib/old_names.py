"""Lead names that moved from mha_lib to mha_course to where they are now, so that notebooks saved before still run.

This is the only file of mha_lib that knows the course. It goes with the next release.
"""

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

ROOMS = ("checking", "exercises", "language", "models", "museum", "pictures")  # moved whole
# What has left a room that stayed: its names, then its modules.
HEADS = (
    "Planted", "load_results", "plant_heads", "sweep", "Evaluation", "ablation_values", "area_under_curve", "best_sets",
    "completeness_residual", "confidence", "evaluate", "evaluate_all", "gate_gradient", "greedy", "head_grid",
    "head_outputs", "integrated_gradients", "least_heads", "leave_one_out", "losses_without_each",
    "mean_and_ci95", "mean_ranks", "monte_carlo_shapley", "negative_entropy", "num_prunable", "output_norm",
    "patch_heads", "prune", "prune_attention", "pruning_curve",
    "random_pruning_curve", "select_heads", "shapley", "spearman", "top_k_sets", "worst_sets",
    "controls", "interactions", "kept_results", "key_patterns", "planted_heads", "seeds", "ablation", "coalitions",
    "intervals", "measures", "removal",
)  # fmt: skip
GONE = {"heads": HEADS, "attention": ("shape_trace",)}
INSTALL = "pip install mha-course"

_has_told = False


class OldNames(MetaPathFinder, Loader):
    """Import a module of mha_lib that has moved as the module of mha_course that it is now."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, inner = fullname.partition(".")
        room, _, rest = inner.partition(".")
        if package == "mha_lib" and (room in ROOMS or rest.partition(".")[0] in GONE.get(room, ())):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = _moved(module.__name__, module.__name__)


def behind(room: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for the room ``room``, such as "mha_lib.heads", that finds the names that left it."""

    def __getattr__(name: str) -> Any:
        if name not in GONE[room.rpartition(".")[2]]:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        return getattr(_moved(room, f"{room}.{name}"), name)

    return __getattr__


def install() -> None:
    """Let Python's import system ask ``OldNames`` first."""
    if not any(isinstance(finder, OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, OldNames())


def _moved(module: str, name: str) -> ModuleType:
    """The module of mha_course in the place of ``module``; the first time, a warning names the new import."""
    global _has_told
    package, _, last = _now(name).rpartition(".")
    line = f"from {package} import {last}"
    try:
        found = importlib.import_module(_now(module))
    except ModuleNotFoundError as error:
        if error.name != "mha_course":
            raise
        raise ImportError(
            f"{name} has moved to the package mha_course, which is not installed. Run `{INSTALL}`, then write `{line}`."
        ) from error
    if not _has_told:
        _has_told = True
        told = f"{name} has moved: write `{line}`. The old names of what is now in mha_course go with the next release."
        warnings.warn(told, FutureWarning, stacklevel=3)
    return found


def _now(name: str) -> str:
    """The name in mha_course, whose room for what left mha_lib.attention is models."""
    return name.replace("mha_lib", "mha_course", 1).replace(".attention.", ".models.", 1)
