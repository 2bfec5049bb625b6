"""What a committed notebook must look like: each check takes a notebook and its path and yields faults."""

import re
from html.parser import HTMLParser
from itertools import zip_longest
from statistics import median
from urllib.parse import unquote, urlsplit

import nbformat
from nbval.plugin import find_comment_markers, find_metadata_tags
from notebook_tools import code, make_notebooks, stubs

MAX_LINES = 12
MAX_MEDIAN_LINES = 5
MIN_SHARE_SHOWN = 0.85
MIN_SHARE_COMPARED = 0.60
MAX_BYTES = 1_500_000
MIN_EXERCISES, MAX_EXERCISES = 3, 5
WITHOUT_EXERCISES = ("00", "07")

EXERCISE = r"(?m)^\*\*Exercise (\d+) \(.*?\d+ minutes.*?\)"
SOLUTION = {"schema_version": 3, "task": False, "solution": True, "grade": False, "locked": False}
GRADED = {"schema_version": 3, "task": False, "solution": False, "grade": True, "locked": True}
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
    """Text stands directly before every code cell, but for the check of an exercise, which follows its stub."""
    introduced = False
    for cell in notebook.cells:
        if cell.cell_type == "code" and not introduced:
            yield f"{cell.id} is a code cell without text before it"
        introduced = cell.cell_type == "markdown" or is_stub(cell)


def code_short(notebook, path):
    """No code cell is long, and most are very short; blank lines do not count."""
    lengths = [len(re.findall(r"(?m)^.*\S", cell.source)) for cell in code(notebook)]
    for cell, length in zip(code(notebook), lengths, strict=True):
        if length > MAX_LINES:
            yield f"{cell.id} has {length} lines of code, more than {MAX_LINES}"
    if lengths and median(lengths) > MAX_MEDIAN_LINES:
        yield f"the median code cell has {median(lengths)} lines, more than {MAX_MEDIAN_LINES}"


def results_shown(notebook, path):
    """Nearly every code cell shows something; a stub need not."""
    yield from too_few("show a result", MIN_SHARE_SHOWN, complete(notebook), lambda cell: bool(cell.outputs))


def results_compared(notebook, path):
    """In most code cells nbval compares some text, or an assert stands."""
    yield from too_few("have compared text or an assert", MIN_SHARE_COMPARED, complete(notebook), is_compared)


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


def exercises_checked(notebook, path):
    """A few exercises, numbered from 1, each with a stub and, right after it, its check; some notebooks have none."""
    numbers = exercises(notebook)
    low, high = (0, 0) if path.stem[:2] in WITHOUT_EXERCISES else (MIN_EXERCISES, MAX_EXERCISES)
    if not low <= len(numbers) <= high:
        yield f"{len(numbers)} exercises, not {low} to {high}"
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"the exercises are numbered {numbers}"
    unsolved = [cell for cell in code(notebook) if is_stub(cell)]
    if len(unsolved) != len(numbers):
        yield f"{len(numbers)} exercises, but {len(unsolved)} stubs"
    for stub, following in pairs(notebook):
        if is_stub(stub) and not (following and re.search(r"\bexercises\.\w+\(", following.source)):
            yield f"{stub.id} is a stub without a check after it"
        elif is_stub(stub) and "Not yet" not in "".join(map(text, following.outputs)):
            yield f"{following.id} does not say 'Not yet'"


def no_grading(notebook, path):
    """What nbgrader reads stands in the solutions alone: it makes the learners' notebooks from them."""
    for cell in notebook.cells:
        if "nbgrader" in cell.metadata:
            yield f"{cell.id} has metadata for nbgrader"


def titled(notebook, path):
    """Solutions have a title and a link to the notebook that they belong to."""
    if not re.search(r"\A# \S", prose(notebook.cells[0])):
        yield "the first cell has no line '# Title'"
    if f"../{path.name}" not in links(notebook.cells[0]):
        yield f"the first cell does not link ../{path.name}"


def same_exercises(notebook, path):
    """Solutions hold the exercises of their notebook, each with a solution."""
    asked = exercises(make_notebooks.read(path.parents[1] / path.name))
    if exercises(notebook) != asked:
        yield f"solutions of the exercises {exercises(notebook)}, asked are {asked}"
    solved = len(stubs.stubs_from(notebook))
    if solved != len(asked):
        yield f"{solved} solution cells for {len(asked)} exercises"


def gradable(notebook, path):
    """Every solution is followed by a check with points, and nbgrader is told which is which."""
    seen = set()
    for cell, following in pairs(notebook):
        grading = cell.metadata.get("nbgrader", {})
        if stubs.is_solution(cell):
            if not (following and is_graded(following)):
                yield f"{cell.id} is a solution without a graded check after it"
            if not fits(grading, SOLUTION):
                yield f"{cell.id} needs the metadata of a solution: {SOLUTION}"
        elif grading:
            if not fits(grading, GRADED) or not grading.get("points", 0) > 0:
                yield f"{cell.id} needs the metadata of a graded check: {GRADED}, and points"
            if not re.search(r"(?m)^assert \w", cell.source):
                yield f"{cell.id} is graded, but asserts nothing"
        if grading and grading.get("grade_id") in seen | {None}:
            yield f"{cell.id} needs a grade_id of its own"
        seen.add(grading.get("grade_id"))


def reasons_marked(notebook, path):
    """After every graded check comes a text that says why, tagged so that learners' copies leave it out."""
    expected = {following.id for cell, following in pairs(notebook) if following and is_graded(cell)}
    found = {cell.id for cell in notebook.cells if "reason" in cell.metadata.get("tags", [])}
    for cell, following in pairs(notebook):
        if is_graded(cell) and not (following and following.id in found):
            yield f"{cell.id} is graded, but no text tagged 'reason' follows"
    for cell_id in sorted(found - expected):
        yield f"{cell_id} is tagged 'reason', but follows no graded cell"


FILE_CHECKS = (
    links_resolve,
    text_pictures_described,
    output_pictures_described,
    executed_in_order,
    no_errors,
    no_stderr,
    no_widget_state,
    ids_stable,
    plain_numbers,
    no_machine_paths,
    small,
)
STORY_CHECKS = (
    opening,
    closing,
    navigation,
    code_introduced,
    code_short,
    results_shown,
    results_compared,
    exercises_checked,
    no_grading,
    *FILE_CHECKS,
)
SOLUTION_CHECKS = (titled, same_exercises, gradable, reasons_marked, *FILE_CHECKS)


def is_stub(cell):
    """Whether a cell waits for a learner's code."""
    return cell.cell_type == "code" and stubs.PLACEHOLDER in cell.source


def is_graded(cell):
    """Whether nbgrader gives points for a cell."""
    return cell.metadata.get("nbgrader", {}).get("grade", False)


def complete(notebook):
    """The code cells that wait for nobody."""
    return [cell for cell in code(notebook) if not is_stub(cell)]


def pairs(notebook):
    """Every code cell and the cell after it, None after the last."""
    return [pair for pair in zip_longest(notebook.cells, notebook.cells[1:]) if pair[0].cell_type == "code"]


def exercises(notebook):
    """The numbers of the exercises, as they come."""
    return [int(number) for cell in notebook.cells for number in re.findall(EXERCISE, prose(cell))]


def fits(grading, kind):
    """Whether metadata holds all that a kind of cell has, apart from what is the cell's own."""
    return grading == grading | kind


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
