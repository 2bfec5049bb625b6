"""What of the library a piece of code reaches: the modules whose names it uses, what these reach, and their data.

The doors of rooms do not count, but the modules that they take a name from; all of the room counts where the door
itself works with that name, as that of exercises does with the table of all.
"""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOUSES = ("mha_lib", "mha_course", "tools", "pages", "benchmarks", "classroom", "research")


def files_behind(sources, root=ROOT, more=()):
    """The files that these programs reach, each of them one text, and those that the modules ``more`` reach, too."""
    reached, new = set(), set(more).union(*(_reached_by(source, root) for source in sources))
    while new:
        reached |= new
        new = set().union(*(_reached_by_file(path, root) for path in new)) - reached
    return reached | set().union(*(_data_of(path) for path in reached))


@functools.cache
def _reached_by_file(path, root):
    return _reached_by(path.read_text(encoding="utf-8"), root)


@functools.cache
def _reached_by(source, root):
    """The modules whose names this code uses."""
    tree = ast.parse(source)
    names: dict[str, set[str]] = {}  # of what is read of a name: its attributes, and "" where it is used as a whole
    attributes = {id(node.value): node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.setdefault(node.id, set()).add(attributes.get(id(node), ""))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (place := _place(alias.name, root)) is not None:
                    used = names.get(alias.asname or alias.name, {""})
                    found |= _whole(place) if "" in used else set().union(*(_named(place, name, root) for name in used))
        elif isinstance(node, ast.ImportFrom) and (place := _place(node.module or "", root)) is not None:
            for alias in node.names:
                room = place / alias.name
                used = names.get(alias.asname or alias.name, {""})
                if room.is_dir() and "" not in used:
                    found = found.union(*(_named(room, name, root) for name in used))
                else:
                    found |= _named(place, alias.name, root)
    return found


def _place(module, root):
    """Where a module of the library is, without its ending; None for others' modules."""
    place = root.joinpath(*module.split("."))
    is_ours = module.partition(".")[0] in HOUSES and (place.is_dir() or place.with_suffix(".py").exists())
    return place if is_ours else None


def _whole(place):
    return set(place.rglob("*.py")) if place.is_dir() else {place.with_suffix(".py")}


def _named(place, name, root):
    """The modules that a name of a room or a module stands for; of a name that no line defines, all of the room."""
    if not place.is_dir():
        return {place.with_suffix(".py")}
    if (place / name).is_dir() or (place / f"{name}.py").exists():
        return _whole(place / name)
    path = place / "__init__.py"
    door = ast.parse(path.read_text(encoding="utf-8") if path.exists() else "")
    worked_with = {node.id for node in ast.walk(door) if isinstance(node, ast.Name)}
    for node in ast.walk(door):
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            there = _place(node.module or "", root)
            first = next(alias.name for alias in node.names if name in (alias.asname, alias.name))
            return (_named(there, first, root) if there else set()) | (_whole(place) if name in worked_with else set())
    rest = set(place.glob("*.py")) - {path}
    return {path for path in rest if re.search(rf"\b{name}\b", path.read_text(encoding="utf-8"))} or rest


@functools.cache
def data_beside(folder):
    """All files in a folder, and in those within, that are not Python's."""
    return {file for file in folder.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}


@functools.cache
def _data_of(path):
    """The data of a module: files of its own name, and, scripts of other pictures aside, folders that it names."""
    text = path.read_text(encoding="utf-8")
    return {
        file
        for file in data_beside(path.parent)
        if file.stem == path.stem or (file.suffix != ".js" and re.search(rf"['\"/]{file.parent.name}\b", text))
    }
