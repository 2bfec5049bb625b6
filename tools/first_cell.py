"""The first code cell of every notebook: where mha_course is missing, as in Colab, it installs both packages.

Its text is made here, from the project's address, so that no notebook can name an old one. While there is no address,
it says how to install instead.
"""

import re
import tomllib

from nbformat.v4 import new_code_cell

from tools import address

TAG = "install"
# The first line is all that JupyterLab shows of it.
SOURCE = """\
# Set-up, where mha_course is missing
import importlib.util

if importlib.util.find_spec("mha_course") is None:
    %pip install --quiet "mha-lib @ {library}" "mha-course[notebooks] @ {course}\""""
BOOK = """
    %pip install --quiet {needs}
    %pip install --quiet --no-deps d2l==1.0.3 torchvision"""
WITHOUT_ADDRESS = """\
# Set-up, where mha_course is missing
import importlib.util

if importlib.util.find_spec("mha_course") is None:
    raise ModuleNotFoundError(
        "This needs mha_lib and mha_course. In a copy of their project, run "
        "`make lab`; in an environment of your own, run there: "
        "pip install . './mha_course[notebooks]'"{book}
    )"""
BOOK_IN_WORDS = """
        ", pip install {needs} "
        "and pip install --no-deps d2l==1.0.3 torchvision\""""

SPEAKS = '\n\nfrom mha_course import language\n\nlanguage.use("{language}")'  # ends it on a page in several languages
SWITCHER = re.compile(r"(?m)^\*\*English\*\* · .*\n\n")  # the links to other languages, under an English title


def pip_sources():
    """What pip installs mha_lib and mha_course from, or None while the project has no address."""
    project = address.project()
    return project and (f"git+{project}", f"git+{project}#subdirectory=mha_course")


def write_first_cell(notebook, sources):
    """Put the cell in front of the notebook's code, in the place of an earlier one.

    Args:
        sources: what pip installs mha_lib and mha_course from, or None.
    """
    earlier = [cell for cell in notebook.cells if is_first_cell(cell)]
    cells = [cell for cell in notebook.cells if cell not in earlier]
    place = next(index for index, cell in enumerate(cells) if cell.cell_type == "code")
    uses_book = any("d2l" in cell.source for cell in cells if cell.cell_type == "code")
    first = earlier[0] if earlier else new_code_cell()
    needs = " ".join(tomllib.loads((address.ROOT / "pyproject.toml").read_text())["dependency-groups"]["book"])
    if sources:
        library, course = sources
        first.source = SOURCE.format(library=library, course=course) + (BOOK.format(needs=needs) if uses_book else "")
    else:
        first.source = WITHOUT_ADDRESS.format(book=BOOK_IN_WORDS.format(needs=needs) if uses_book else "")
    if SWITCHER.search(notebook.cells[0].source):
        first.source += SPEAKS.format(language="en")
    first.metadata = {"tags": [TAG], "jupyter": {"source_hidden": True}}
    notebook.cells = [*cells[:place], first, *cells[place:]]


def is_first_cell(cell):
    """Whether this is the cell that installs."""
    return TAG in cell.metadata.get("tags", [])
