"""Messages of a notebook's code: its comments, and the texts in it; f-strings as they are written, fields included."""

import ast
import io
import re
import tokenize

WORD = re.compile(r"[^\W\d_]{3}")
CODE = re.compile(r"[\w.]*[_.][\w.]*|W_.")  # names of code, such as repeat_interleave
JOINED = re.compile(r"'[、，]'\.join\(")  # a language may put its own comma between the parts of a list
FIELD = re.compile(r"\{[^{}]*\}")
PARTS = re.compile(r'[fr]*"((?:[^"\\]|\\.)*)"|[fr]*\'((?:[^\'\\]|\\.)*)\'')
NAMES = {"find_task", "shipped_model", "find_spec", "predict", "answer", "register_buffer", "getattr", "Drawing"}


def messages(source):
    """The messages of a cell, in order."""
    return list(dict.fromkeys(message for *_, message in found(source)))


def translate(source, words):
    """A cell with its messages as ``words`` has them; what it lacks stays English."""
    lines = source.split("\n")
    for (row, start), (last, end), prefix, message in sorted(found(source), reverse=True):
        if message in words:
            rest = lines[last][end:]
            lines[row : last + 1] = [lines[row][:start] + written(prefix, words[message]) + rest]
    return "\n".join(lines)


def written(prefix, text):
    """A comment, or a text between quotes."""
    if prefix == "#":
        return f"# {text}"
    if "f" in prefix:
        return f'{prefix}"{text}"'
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def found(source):
    """Each message: where it begins and ends, as (row, column), "#" or its prefix, and what it says."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a command to the kernel
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string.lstrip("# ")
        if token.type == tokenize.COMMENT and WORD.search(text) and "(b" not in text:
            yield (token.start[0] - 1, token.start[1]), (token.end[0] - 1, token.end[1]), "#", text
    kept = {id(part) for node in ast.walk(tree) for part in names_in(node)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)
        if id(node) in kept or not is_text:
            continue
        segment = ast.get_source_segment(source, node)
        prefix = "f" if isinstance(node, ast.JoinedStr) else ""
        text = node.value if not prefix else "".join(a or b for a, b in PARTS.findall(segment))
        said = FIELD.sub("", text) if prefix else text
        if (WORD.search(said) or said == ": ") and not CODE.fullmatch(text.strip()):
            rows = source.encode().split(b"\n")
            start, end = (
                len(rows[row - 1][:column].decode())
                for row, column in ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
            )
            yield (node.lineno - 1, start), (node.end_lineno - 1, end), prefix, text


def names_in(node):
    """Texts below a node that are names of code: of tasks and models, keys, and parts of f-strings."""
    if isinstance(node, ast.JoinedStr):
        return [part for part in ast.walk(node) if part is not node]
    if isinstance(node, ast.Subscript):
        return [node.slice]
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return node.args[:1] if name in NAMES else []
    if isinstance(node, ast.Expr):  # a docstring
        return [node.value] if isinstance(node.value, ast.Constant) else []
    return []


def damage(english, other):
    """What a translation of code or of a string has lost: pairs of a kind and of what is wrong."""
    other = JOINED.sub(r"', '.join(", other)
    for kind, pattern in (("fields", FIELD), ("code", re.compile(r"`[^`\n]+`"))):
        a, b = (set(pattern.findall(text)) for text in (english, other))
        if a != b:
            yield kind, f"lost {sorted(a - b)}, new {sorted(b - a)}"
    if '"' in other and "{" in other and '"' not in english:
        yield "quotes", 'has a ", which ends the text; use “…”'
