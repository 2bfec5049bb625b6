"""Is everything here that the notebooks need? If not: what is missing, and how to mend it."""

import importlib
import sys

from mha_lib.attention import other_libraries

PACKAGES = {
    "torch": ("the layer", "torch==2.13.0"),
    "numpy": ("arrays", "numpy"),
    "safetensors": ("the trained models", "safetensors"),
    "matplotlib": ("pictures", "matplotlib"),
    "ipywidgets": ("sliders and buttons", "ipywidgets"),
    "sklearn": ("the digit images", "scikit-learn"),
    "einops": ("readable reshapes in 04", "einops"),
}


def check_setup() -> bool:
    """Print one line for Python and for each package the notebooks need: there, or missing and how to mend it.

    Returns:
        whether everything is there.
    """
    problems = [_check_python(), *(_check_package(name) for name in PACKAGES), _check_d2l()]
    everything = not any(problems)
    print("Everything is here." if everything else "Mend the lines marked with ✗, restart the kernel, run this again.")
    return everything


def _check_python() -> bool:
    """Whether Python is too old."""
    major, minor = sys.version_info[:2]
    problem = "" if (major, minor) >= (3, 11) else f"this is Python {major}.{minor}; 3.11 or newer is needed"
    return _report("python", "runs all of this", problem)


def _check_package(name: str) -> bool:
    """Whether a package cannot be imported."""
    purpose, requirement = PACKAGES[name]
    try:
        importlib.import_module(name)
    except ImportError as error:
        return _report(name, purpose, f"{error}; run this in a cell: %pip install {requirement}")
    return _report(name, purpose, "")


def _check_d2l() -> bool:
    """Whether the book's package, used for comparison in 03, cannot be imported."""
    try:
        other_libraries.load_d2l()
    except ImportError as error:
        return _report("d2l", "the book's own layer, in 03", str(error))
    return _report("d2l", "the book's own layer, in 03", "")


def _report(name: str, purpose: str, problem: str) -> bool:
    """Print a line; whether it tells of a problem."""
    print(f"✗ {name}: {problem}" if problem else f"✓ {name} ({purpose})")
    return bool(problem)
