"""The sentences of mha_course.checking that pages/verdict.py says, read from the library's source, not copied.

The library itself is not imported: so ``make page-runtime`` needs neither torch nor the environment of a learner.
"""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
COURSE = HERE.parent / "mha_course"
ROOMS = {
    "checking": ("comparing", "diagnosis", "exercise", "running", "wording"),
    "museum": (
        "handed_layer",
        "layer_calls",
        "layer_check",
        "layer_gates",
        "layer_matrices",
        "layer_notes",
        "layer_words",
    ),
    "exercises": ("transposing", "whole_layer"),
}
SAYING = ("say", "tried", "in_words")  # functions whose first argument is a few words of a sentence


def words():
    """The sentences that the verdict says, by the words it knows them by; and the tables it goes through."""
    files = {name: COURSE / room / f"{name}.py" for room, names in ROOMS.items() for name in names}
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in files.items()}
    found = {re.sub(r"\{\w+\}", "{}", template) for tree in trees.values() for template in templates(tree)}
    known = {template for template in found if "\n" not in template}  # a table of mistakes is no sentence
    keys = {key for name in ("verdict.py", "layer.py") for key in asked(ast.parse((HERE / name).read_text("utf-8")))}
    tables = {name: table(trees["diagnosis"], name) for name in ("FORMS", "ALONG_AN_AXIS", "PROPERTIES")}
    lists = {name: [ast.literal_eval(key) for key in node.keys] for name, node in tables.items()}
    by_pattern = {"ERRORS": "diagnosis", "UNFINISHED": "handed_layer"}
    for name, room in by_pattern.items():
        rows = ast.literal_eval(table(trees[room], name))
        lists[name] = [[alternatives(pattern), meaning] for pattern, meaning in rows.items()]
    lists["STEP_OF"] = ast.literal_eval(table(trees["whole_layer"], "STEP_OF"))
    lists["PART_OF"] = ast.literal_eval(table(trees["layer_check"], "PART_OF"))
    lists["DIGITS"] = list(ast.literal_eval(table(trees["transposing"], "DIGITS")))
    lists["SHARED"] = list(ast.literal_eval(table(trees["layer_calls"], "SHARED")))
    return {"sentences": {key: the_one(key, known) for key in sorted(keys)}, "lists": lists}


def table(tree, name):
    """What stands in a module under a name."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node.value
    raise ValueError(f"there is no {name} in the module")


def asked(tree):
    """The words by which a module asks for sentences."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in SAYING:
            texts = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
            yield from (text for text in texts if isinstance(text, str))


def templates(tree):
    """All texts in a module's code but its docstrings, with {} where values go."""
    nodes = [*ast.walk(tree)]
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    other = {id(part) for node in joined for part in node.values}
    other |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in other:
            yield node.value
    for node in joined:
        yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)


def the_one(key, known):
    """The one template that is these words, or has them.

    Raises:
        ValueError: there is none, or more than one.
    """
    found = [key] if key in known else [template for template in known if key in template]
    if len(found) != 1:
        raise ValueError(f"one sentence of mha_course.checking must have the words {key!r}; got {found}")
    return found[0]


def alternatives(pattern):
    """A pattern cut at each | outside brackets, since MicroPython reads none there, nor a reference to a group."""
    parts, depth = [""], 0
    pattern = pattern.partition(".* at “.*")[0]
    for sign in pattern:
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
