"""Write what Sphinx makes the site's pages of the library from: a page for each room, of its docstrings.

What a room offers is what its door hands on, and what modules behind the door name in their ``__all__``.
The recipe, from a trained model to a smaller one, is README's.
"""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

ROOMS = {  # a page, and the door that it shows
    "attention": "mha_lib.attention",
    "figures": "mha_lib.figures",
    "heads": "mha_lib.heads",
    "models": "mha_course.models",
    "course_heads": "mha_course.heads",
    "pictures": "mha_course.pictures",
    "museum": "mha_course.museum",
    "capstone": "mha_course.capstone",
    "exercises": "mha_course.exercises",
    "language": "mha_course.language",
}
FOR_LEARNERS = {"mha_course.language": ["use"]}  # the rest of it is for other rooms
OF_EVERY_PICTURE = "draw, page_data, reply, still"  # for those who write one
INDEX = """# The library

[From a trained model to a smaller one](recipe.md) is the way through it. The rest is from the docstrings; the code
of the notebooks leads here. `mha_lib`, the library: the layer and its parts can be imported from
`mha_lib` itself, everything else from its room.

```{{toctree}}
recipe
{mha_lib}
```

`mha_course`, what the notebooks add to it:

```{{toctree}}
{mha_course}
```
"""


def handed_on(door):
    """The names of the functions and classes of its own package that a room's door hands on."""
    values = {name: getattr(door, name) for name in FOR_LEARNERS.get(door.__name__) or door.__all__}
    kept = {name: value for name, value in values.items() if inspect.isfunction(value) or inspect.isclass(value)}
    own = door.__name__.partition(".")[0]
    return [name for name, value in kept.items() if value.__module__.startswith(own)]


def section(module, names, mark):
    """What autodoc shall show of a module, under a heading, in reStructuredText."""
    lines = [module, mark * len(module), "", f".. automodule:: {module}"]
    options = [":imported-members:", ":ignore-module-all:", f":exclude-members: {OF_EVERY_PICTURE}"]
    options += [f":members: {', '.join(names)}"] if names else []
    return "\n".join([*lines, *(f"   {option}" for option in options), ""])


def behind(door):
    """The modules of a room that say by ``__all__`` what they offer, unless the door hands it on."""
    inside = pkgutil.iter_modules(getattr(door, "__path__", []))
    modules = [importlib.import_module(f"{door.__name__}.{found.name}") for found in inside]
    return [module for module in modules if not {*getattr(module, "__all__", ())} <= {*door.__all__}]


def recipe():
    """README's part on taking heads out of a model of one's own, as a page."""
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    [part] = re.findall(r"<!-- recipe: .*? -->\n(.*?)<!-- end of recipe -->", readme, re.DOTALL)
    return f"# From a trained model to a smaller one\n\n{part}"


def write(folder):
    """Write the pages, one for each room, the recipe, and their index."""
    folder.mkdir(parents=True)
    (folder / "recipe.md").write_text(recipe(), encoding="utf-8")
    for room, name in ROOMS.items():
        door = importlib.import_module(name)
        parts = [section(door.__name__, handed_on(door), "=")]
        parts += [section(module.__name__, module.__all__, "-") for module in behind(door)]
        (folder / f"{room}.rst").write_text("\n".join(parts), encoding="utf-8")
    of = {
        package: "\n".join(room for room, name in ROOMS.items() if name.startswith(package))
        for package in ("mha_lib", "mha_course")
    }
    (folder / "index.md").write_text(INDEX.format(**of), encoding="utf-8")
