"""The first code cell of every notebook: where mha_lib is missing, as in Colab, it installs what the notebook needs.

Its text is made here, from the project's address in pyproject.toml, so that no notebook can name an old one.
"""

import tomllib
from pathlib import Path

from nbformat.v4 import new_code_cell

TAG = "install"
PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
SOURCE = """\
# Where mha_lib is missing, as in Colab, this installs it; here it does nothing.
import importlib.util

if importlib.util.find_spec("mha_lib") is None:
    %pip install --quiet "mha-lib[{extras}] @ {address}\""""
BOOK = "\n    %pip install --quiet --no-deps d2l==1.0.3 torchvision"


def project():
    """The project's address."""
    return tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["urls"]["Source"]


def address():
    """What pip installs the project from."""
    return f"git+{project()}"


def files():
    """Where each of the project's files can be read."""
    return f"{project()}/blob/main"


def write_first_cell(notebook, source):
    """Put the cell in front of the notebook's code, in the place of an earlier one.

    Args:
        source: what pip installs mha_lib from.
    """
    earlier = [cell for cell in notebook.cells if is_first_cell(cell)]
    cells = [cell for cell in notebook.cells if cell not in earlier]
    place = next(index for index, cell in enumerate(cells) if cell.cell_type == "code")
    uses_book = any("d2l" in cell.source for cell in cells if cell.cell_type == "code")
    first = earlier[0] if earlier else new_code_cell()
    first.source = SOURCE.format(extras="notebooks,book" if uses_book else "notebooks", address=source)
    first.source += BOOK if uses_book else ""
    first.metadata = {"tags": [TAG], "jupyter": {"source_hidden": True}}
    notebook.cells = [*cells[:place], first, *cells[place:]]


def is_first_cell(cell):
    """Whether this is the cell that installs."""
    return TAG in cell.metadata.get("tags", [])
