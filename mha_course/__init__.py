"""What the notebooks add to mha_lib: models and their training, pictures, checks, exercises and the bug museum.

Each room is a package of its own, imported when it is first asked for: ``from mha_course import exercises, pictures``.
"""

import importlib
from types import ModuleType

ROOMS = ("capstone", "checking", "exercises", "heads", "language", "models", "museum", "pictures")


def __getattr__(name: str) -> ModuleType:
    if name not in ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return [*ROOMS]
