"""The first code cell of every notebook: where mha_lib is missing, as in Colab, it installs what the notebook needs.

Its text is made here, from the project's address, so that no notebook can name an old one. While there is no address,
it says how to install instead.
"""

from nbformat.v4 import new_code_cell

from tools import address

TAG = "install"
# The first line is all that JupyterLab shows of it.
SOURCE = """\
# Set-up, where mha_lib is missing
import importlib.util

if importlib.util.find_spec("mha_lib") is None:
    %pip install --quiet "mha-lib[{extras}] @ {source}\""""
BOOK = "\n    %pip install --quiet --no-deps d2l==1.0.3 torchvision"
WITHOUT_ADDRESS = """\
# Set-up, where mha_lib is missing
import importlib.util

if importlib.util.find_spec("mha_lib") is None:
    raise ModuleNotFoundError(
        "This needs mha_lib. In a copy of its project, run `make lab`; "
        "in an environment of your own, run there: pip install '.[{extras}]'"{book}
    )"""
BOOK_IN_WORDS = '\n        " and pip install --no-deps d2l==1.0.3 torchvision"'


def pip_source():
    """What pip installs the project from, or None while it has no address."""
    project = address.project()
    return project and f"git+{project}"


def write_first_cell(notebook, source):
    """Put the cell in front of the notebook's code, in the place of an earlier one.

    Args:
        source: what pip installs mha_lib from, or None.
    """
    earlier = [cell for cell in notebook.cells if is_first_cell(cell)]
    cells = [cell for cell in notebook.cells if cell not in earlier]
    place = next(index for index, cell in enumerate(cells) if cell.cell_type == "code")
    uses_book = any("d2l" in cell.source for cell in cells if cell.cell_type == "code")
    first = earlier[0] if earlier else new_code_cell()
    extras = "notebooks,book" if uses_book else "notebooks"
    if source:
        first.source = SOURCE.format(extras=extras, source=source) + (BOOK if uses_book else "")
    else:
        first.source = WITHOUT_ADDRESS.format(extras=extras, book=BOOK_IN_WORDS if uses_book else "")
    first.metadata = {"tags": [TAG], "jupyter": {"source_hidden": True}}
    notebook.cells = [*cells[:place], first, *cells[place:]]


def is_first_cell(cell):
    """Whether this is the cell that installs."""
    return TAG in cell.metadata.get("tags", [])
