"""Messages of the library's code: what ``tr`` is called with in Python and JavaScript, and what exercises are made of.

A message is found where it is written: as the first argument of ``tr``, under the name that is handed to it in the same
file, in the tables below, whose entries are handed to it one by one, and in the exercises of notebook 00.
"""

import ast
import functools
import itertools
import re
import sys
from pathlib import Path

from tools.notebooks import NOTEBOOKS

ROOT = NOTEBOOKS.parent
COURSE = ROOT / "mha_course"  # mha_lib knows no language
OF_NOTEBOOK_00 = ("transpose_qkv", "layer_by_formula", "layer_with_head_mask", "covering_head", "four_heads")
IN_JS = re.compile(r'\b(?:tr|parts)\(\s*"((?:[^"\\]|\\.)*)"')


@functools.cache
def strings():
    """Each message, with the files that it stands in."""
    files, found = sorted([*COURSE.rglob("*.py"), *COURSE.rglob("*.js")]), {}
    of_files = ((path, of_python(path) if path.suffix == ".py" else of_javascript(path)) for path in files)
    of_modules = ((Path(module.__file__), messages) for module, messages in of_tables())
    for path, messages in itertools.chain(of_files, of_modules):
        for message in messages:
            found.setdefault(message, {})[path.relative_to(ROOT).as_posix()] = None
    spoken = {message for message in found if message.strip(" ,")}  # separators stand in languages.toml
    return {message: list(paths) for message, paths in found.items() if message in spoken}


def of_python(path):
    """What ``tr`` and ``listed`` are called with in a Python file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named.setdefault(node.targets[0].id, []).extend(constants(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            if node.func.id == "tr":
                first = node.args[0]
                assert not isinstance(first, ast.JoinedStr), f"{path.name}:{node.lineno}: a message is no f-string"
                yield from named.get(first.id, []) if isinstance(first, ast.Name) else constants(first)
            elif node.func.id == "listed" and path.name != "language.py":
                yield from constants(node.args[1]) if len(node.args) > 1 else [", "]


def constants(node):
    """The texts that an expression may be, where it is a text or a choice between texts."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return [*constants(node.body), *constants(node.orelse)]
    return []


def of_javascript(path):
    """What ``tr`` is called with in a JavaScript file."""
    text = path.read_text(encoding="utf-8")
    other = re.search(r'\b(?:tr|parts)\((?!\s*").*', "" if path.name == "elements.js" else text)
    assert not other, f"{path.name}: a message is written where it is said, not: {other[0]}"
    return [re.sub(r'\\(["\\])', r"\1", message) for message in IN_JS.findall(text)]


def of_tables():
    """Messages that are handed to ``tr`` one by one: modules, and what they hold."""
    from mha_course import exercises
    from mha_course.checking import diagnosis, edits, running, verdict
    from mha_course.exercises import setup_check, transposing
    from mha_course.models import pretrained
    from mha_course.museum import (
        handed_layer,
        layer_calls,
        layer_check,
        layer_gates,
        layer_notes,
        layer_words,
        masks_by_effect,
        variants,
        wrong_attention,
    )
    from mha_course.pictures import drawing, ring_explorer

    yield verdict, verdict.SIGNS.values()
    yield running, [running.NO_LIMIT]
    yield diagnosis, [*diagnosis.ERRORS.values(), *diagnosis.FORMS, *diagnosis.ALONG_AN_AXIS, *diagnosis.OF_PARTS]
    yield diagnosis, diagnosis.PROPERTIES
    yield transposing, transposing.DIGITS
    yield setup_check, [purpose for purpose, _ in setup_check.PACKAGES.values()]
    yield layer_words, [*layer_words.NEXT.values(), layer_words.ROOM]
    yield layer_check, [*layer_check.CANNOT.values(), *layer_check.GRADIENTS, layer_check.LIKE_THIS]
    yield layer_gates, [text for text, _ in edits.rows_of(layer_gates.WRONG_GATES)]
    yield masks_by_effect, [said for said, _ in masks_by_effect.FORMS]
    yield variants, variants.all_words()
    yield layer_calls, [*layer_calls.STAGES, *layer_calls.SHARED, "the queries", "the keys", "the values", "anything"]
    yield layer_notes, [layer_notes.NO_DROPOUT, *itertools.chain(*layer_notes.BIASES.values())]
    yield layer_notes, [*(told for _, told in layer_notes.OTHER_CALLS if told), "examples", "heads", "queries", "keys"]
    yield handed_layer, [*handed_layer.KINDS.values(), *(hint for hint, _ in handed_layer.UNFINISHED.values())]
    yield (
        wrong_attention,
        [text for text, _ in [*wrong_attention.wrong_attentions(), *wrong_attention.other_attentions()]],
    )
    yield pretrained, pretrained.NAMED_HEADS.values()
    yield ring_explorer, ring_explorer.NAMES
    yield drawing, drawing.words("multi_head_attention")
    for exercise in map(exercises.COURSE.get, OF_NOTEBOOK_00):
        module = sys.modules[exercise.__module__]
        yield module, [*exercise.hints, *exercise.hints.values(), getattr(exercise, "praise", "")]
        yield module, [text for text, _ in getattr(exercise, "mistakes", [])]
