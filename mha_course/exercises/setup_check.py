"""Is everything here that the notebooks need? If not: what is missing, and how to mend it."""

import importlib
import sys

from mha_course.language import tr
from mha_lib.attention import converters

__all__ = ["check_setup"]

PACKAGES = {
    "torch": ("the layer", "torch==2.13.0"),
    "numpy": ("arrays", "numpy"),
    "safetensors": ("the trained models", "safetensors"),
    "matplotlib": ("pictures", "matplotlib"),
    "ipywidgets": ("sliders and buttons", "ipywidgets"),
    "einops": ("readable reshapes in 04", "einops"),
}
BOOK = "the book's own layer, in 03"


def check_setup() -> bool:
    """Print whether Python and each required package are installed, or how to install them; return whether all are.

    Returns whether everything is there that all notebooks need; without d2l, 03 lacks one comparison.
    """
    major, minor = sys.version_info[:2]
    asked = {"major": major, "minor": minor}
    too_old = (
        "" if (major, minor) >= (3, 11) else tr("this is Python {major}.{minor}; 3.11 or newer is needed", **asked)
    )
    lines = [("python", tr("runs all of this"), too_old)]
    lines += [(name, tr(purpose), problem_with(name, requirement)) for name, (purpose, requirement) in PACKAGES.items()]
    for name, purpose, problem in lines:
        print(tr("✗ {name}: {problem}", name=name, problem=problem) if problem else there(name, purpose))
    try:
        converters.load_d2l()
        print(there("d2l", tr(BOOK)))
    except ImportError as error:
        print("–", tr("d2l is needed only for one comparison in 03. {error}", error=error))
    everything = not any(problem for _, _, problem in lines)
    if everything:
        print(tr("Everything is here."))
    else:
        print(tr("Fix the lines marked with ✗, restart the kernel, and run this cell again."))
    return everything


def there(name: str, purpose: str) -> str:
    """Return the line that says that a package is installed, and what for."""
    return tr("✓ {name} ({purpose})", name=name, purpose=purpose)


def problem_with(name: str, requirement: str) -> str:
    """Return why importing the package ``name`` fails, with a pip command for ``requirement``; "" if it succeeds."""
    try:
        importlib.import_module(name)
    except ImportError as error:
        return tr("{error}; run this in a cell: %pip install {requirement}", error=error, requirement=requirement)
    return ""
