"""Results of long runs, kept in the repository's folder ``benchmarks``: tables over many seeds, speeds."""

import json
from pathlib import Path

COMMANDS = {"heads": "make bench-heads", "pruning_speed": "make bench-full"}


def kept_results(name: str) -> dict | list:
    """What ``benchmarks/<name>.json`` holds.

    The folder is looked for beside this library, then in the working directory and in those above it.

    Args:
        name: "heads", what ``mha_lib.comparison`` found over eight seeds: for "lookups" and "dates" the results of
            ``compare``, for "planted" those of ``planted_controls``. Or "pruning_speed": for each cut of a layer its
            shape, the number of heads kept, and how many times faster it became (median and quartiles), with ideals.

    Raises:
        ValueError: no such results are kept; the message lists those that are.
        FileNotFoundError: the file is in none of the folders; the message names the command that makes it.
    """
    if name not in COMMANDS:
        raise ValueError(f"name must be one of {', '.join(COMMANDS)}, got {name!r}")
    here = Path.cwd()
    for folder in (Path(__file__).resolve().parents[1], here, *here.parents):
        path = folder / "benchmarks" / f"{name}.json"
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8"))
    raise FileNotFoundError(
        f"there is no benchmarks/{name}.json beside mha_lib, in this folder or above it. It comes with the "
        f"repository; copy it from there, or run `{COMMANDS[name]}` there to make it"
    )
