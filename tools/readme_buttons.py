"""The buttons at the top of README, made from the project's address in pyproject.toml: see first_cell.py."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from tools import first_cell

README = first_cell.PYPROJECT.with_name("README.md")
BLOCK = re.compile(r"(?<=<!-- buttons: written by make notebooks -->\n).*?(?=<!-- end of buttons -->)", re.DOTALL)
FIRST = "notebooks/00_start_here.ipynb"


def buttons(project):
    """Lines of Markdown: the tests' badge, and where the course opens with one click."""
    owner, name = Path(urlsplit(project).path).parts[-2:]
    return (
        f"[![tests]({project}/actions/workflows/ci.yml/badge.svg)]({project}/actions/workflows/ci.yml)\n"
        f"[**Open in Colab**](https://colab.research.google.com/github/{owner}/{name}/blob/main/{FIRST}) ·\n"
        f"[**Open in Codespaces**](https://codespaces.new/{owner}/{name}) ·\n"
        f"[**Read the site**](https://{owner}.github.io/{name}/)\n"
    )


def write():
    """Put the buttons into README, in the place of earlier ones."""
    text = README.read_text(encoding="utf-8")
    README.write_text(BLOCK.sub(buttons(first_cell.project()), text), encoding="utf-8")


if __name__ == "__main__":
    write()
