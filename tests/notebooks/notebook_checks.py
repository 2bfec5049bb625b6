"""What a committed notebook must look like: each check takes a notebook and its path and yields faults."""

import re
from html.parser import HTMLParser
from statistics import median
from urllib.parse import unquote, urlsplit

import nbformat
from nbval.plugin import find_comment_markers, find_metadata_tags

MAX_LINES = 12
MAX_MEDIAN_LINES = 5
MIN_SHARE_SHOWN = 0.85
MIN_SHARE_COMPARED = 0.60
MAX_BYTES = 1_500_000

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
OPENING = {
    r"\A# \S": "# Title",
    r"(?m)^\*\*Goal:\*\* \S": "**Goal:** …",
    r"(?m)^\*\*Time:\*\* about \d+ minutes": "**Time:** about N minutes",
}


def opening(notebook, path):
    """The first cell has title, goal and minutes."""
    for pattern, what in OPENING.items():
        if not re.search(pattern, prose(notebook.cells[0])):
            yield f"the first cell has no line '{what}'"


def closing(notebook, path):
    """The notebook ends with a summary, which exercises and an outlook may follow."""
    headings = re.findall(r"(?m)^## (.+)$", "\n".join(map(prose, notebook.cells)))
    if "Summary" not in headings[-3:]:
        yield "'## Summary' is not among the last three headings"


def navigation(notebook, path):
    """The first and the last cell link the notebooks before and after this one."""
    notebooks = sorted(path.parent.glob("[0-9][0-9]_*.ipynb"))
    here = notebooks.index(path)
    for where, cell in (("first", notebook.cells[0]), ("last", notebook.cells[-1])):
        for neighbour in notebooks[max(here - 1, 0) : here] + notebooks[here + 1 : here + 2]:
            if neighbour.name not in links(cell):
                yield f"the {where} cell does not link {neighbour.name}"


def links_resolve(notebook, path):
    """Every relative link and picture in the text leads to a file."""
    for cell in notebook.cells:
        for link in links(cell):
            if not (path.parent / unquote(urlsplit(link).path)).exists():
                yield f"{cell.id} links {link}, which does not exist"


def text_pictures_described(notebook, path):
    """Every picture in the text has alt text."""
    for cell in notebook.cells:
        markdown = [{"alt": alt} for alt in re.findall(r"!\[(.*?)\]\(", prose(cell))]
        if not described(markdown + tags(prose(cell), "img")):
            yield f"{cell.id} has a picture without alt text"


def output_pictures_described(notebook, path):
    """Every picture among the outputs is an ``<img>`` with alt text, alone or beside a bare image."""
    for cell, output in saved_outputs(notebook):
        data = output.get("data", {})
        images = tags(data.get("text/html", ""), "img")
        if not described(images):
            yield f"{cell.id} shows an <img> without alt text"
        if not images and any(mime.startswith("image/") for mime in data):
            yield f"{cell.id} shows a bare image, which cannot have alt text"


def code_introduced(notebook, path):
    """Text stands directly before every code cell."""
    kind_before = None
    for cell in notebook.cells:
        if cell.cell_type == "code" and kind_before != "markdown":
            yield f"{cell.id} is a code cell without text before it"
        kind_before = cell.cell_type


def code_short(notebook, path):
    """No code cell is long, and most are very short; blank lines do not count."""
    lengths = [len(re.findall(r"(?m)^.*\S", cell.source)) for cell in code(notebook)]
    for cell, length in zip(code(notebook), lengths, strict=True):
        if length > MAX_LINES:
            yield f"{cell.id} has {length} lines of code, more than {MAX_LINES}"
    if lengths and median(lengths) > MAX_MEDIAN_LINES:
        yield f"the median code cell has {median(lengths)} lines, more than {MAX_MEDIAN_LINES}"


def results_shown(notebook, path):
    """Nearly every code cell shows something."""
    yield from too_few("show a result", MIN_SHARE_SHOWN, code(notebook), lambda cell: bool(cell.outputs))


def results_compared(notebook, path):
    """In most code cells nbval compares some text, or an assert stands."""
    yield from too_few("have compared text or an assert", MIN_SHARE_COMPARED, code(notebook), is_compared)


def executed_in_order(notebook, path):
    """The outputs come from one run of all cells, top to bottom."""
    for number, cell in enumerate(code(notebook), start=1):
        if cell.execution_count != number:
            yield f"{cell.id} has execution count {cell.execution_count}, not {number}"


def no_errors(notebook, path):
    """No cell failed, unless it is tagged as meant to fail."""
    for cell, output in saved_outputs(notebook):
        if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
            yield f"{cell.id} failed with {output.ename}"


def no_stderr(notebook, path):
    """No warning, log line or text progress bar is left."""
    for cell, output in saved_outputs(notebook):
        if output.get("name") == "stderr":
            yield f"{cell.id} wrote to stderr"


def no_widget_state(notebook, path):
    """Nothing is saved that only a running kernel could draw."""
    if "widgets" in notebook.metadata:
        yield "metadata.widgets is saved, which makes GitHub refuse the notebook"
    for cell, output in saved_outputs(notebook):
        if WIDGET_VIEW in output.get("data", {}):
            yield f"{cell.id} saves a widget view, which shows nothing without a kernel"


def ids_stable(notebook, path):
    """Cell ids are ``<file stem>-NN``, each used once."""
    seen = set()
    for cell in notebook.cells:
        if not re.fullmatch(rf"{re.escape(path.stem)}-\d\d+", cell.id):
            yield f"cell id {cell.id} is not of the form {path.stem}-NN"
        if cell.id in seen:
            yield f"cell id {cell.id} is used twice"
        seen.add(cell.id)


def plain_numbers(notebook, path):
    """No numpy scalar is shown: its repr depends on the numpy version."""
    for cell, output in saved_outputs(notebook):
        scalar = re.search(r"\bnp\.((float|int|uint|bool|str)\w*\(|True_|False_)", text(output))
        if scalar:
            yield f"{cell.id} shows a numpy scalar: {scalar.group()}"


def no_machine_paths(notebook, path):
    """No output names a folder of the machine it was made on."""
    for cell, output in saved_outputs(notebook):
        folder = re.search(r"(?<![\w.:/])(/[\w.-]+){2,}|\b[A-Z]:\\\w+", text(output))
        if folder:
            yield f"{cell.id} shows a path of this machine: {folder.group()}"


def small(notebook, path):
    """The file is quick to load and to review."""
    size = len(nbformat.writes(notebook).encode())
    if size > MAX_BYTES:
        yield f"the notebook has {size} bytes, more than {MAX_BYTES}"


CHECKS = (
    opening,
    closing,
    navigation,
    links_resolve,
    text_pictures_described,
    output_pictures_described,
    code_introduced,
    code_short,
    results_shown,
    results_compared,
    executed_in_order,
    no_errors,
    no_stderr,
    no_widget_state,
    ids_stable,
    plain_numbers,
    no_machine_paths,
    small,
)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def saved_outputs(notebook):
    return [(cell, output) for cell in code(notebook) for output in cell.outputs]


def text(output):
    """What nbval compares of an output, pictures aside."""
    return output.get("text", "") + output.get("data", {}).get("text/plain", "")


def is_compared(cell):
    options = dict(find_metadata_tags(cell.metadata)) | dict(find_comment_markers(cell.source))
    if re.search(r"(?m)^\s*[\w.]*\bassert", cell.source):
        return True
    return options.get("check", True) and not options.get("skip") and any(map(text, cell.outputs))


def too_few(what, share, cells, holds):
    """One line with the cells' ids where less than ``share`` of them hold."""
    missing = [cell.id for cell in cells if not holds(cell)]
    if len(cells) - len(missing) < share * len(cells):
        yield f"only {len(cells) - len(missing)} of {len(cells)} code cells {what}; not: {', '.join(missing)}"


def prose(cell):
    """A text cell's markdown without code and formulas, whose brackets are no links; "" for a code cell."""
    if cell.cell_type != "markdown":
        return ""
    return re.sub(r"(?s)```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]+\$", "`", cell.source)


def links(cell):
    """Targets of a text cell's links and pictures, those with a host or within the page left out."""
    markdown = re.findall(r"\]\(<?([^)\s>]+)", prose(cell))
    html = [tag.get("href") or tag.get("src", "") for tag in tags(prose(cell), "a", "img")]
    return [link for link in markdown + html if not urlsplit(link).scheme and urlsplit(link).path]


def tags(html, *names):
    """Attributes of every start tag in ``html`` that has one of the names."""
    reader = TagReader()
    reader.feed(html)
    return [attributes for name, attributes in reader.tags if name in names]


class TagReader(HTMLParser):
    """Collects the start tags of what it is fed, as (name, attributes)."""

    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def described(images):
    return all((image.get("alt") or "").strip() for image in images)
