"""While the project has no address, nothing shows one; once it has, everything that should leads there."""

import importlib.util
import re
import shutil
import tomllib

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tools import address, first_cell, links, notebooks, site_source

PYPROJECT = (address.ROOT / "pyproject.toml").read_text(encoding="utf-8")
SOURCE = re.search(r'^Source = "(.*)"$', PYPROJECT, re.MULTILINE)[1]
OURS = "https://github.com/someone/course"
WRITTEN = ["README.md", "CITATION.cff", "mha_course/pyproject.toml", "pyproject.toml"]


@pytest.fixture
def copy(tmp_path):
    """A copy of what shows the address, and what puts an address into pyproject.toml and writes the others."""
    (tmp_path / "mha_course").mkdir()
    for name in WRITTEN[:3]:
        shutil.copy(address.ROOT / name, tmp_path / name)

    def written(source):
        (tmp_path / "pyproject.toml").write_text(PYPROJECT.replace(SOURCE, source), encoding="utf-8")
        address.write(tmp_path)
        return [(tmp_path / name).read_text(encoding="utf-8") for name in WRITTEN]

    return written


def test_with_an_address_the_buttons_and_the_citation_appear_and_without_one_they_go(copy):
    without = copy("https://github.com/_owner_/course")
    readme, citation, *metadata = copy(OURS)
    top = readme.partition("<!-- end of buttons -->")[0]
    assert re.findall(r"\]\((https://.*?)\)", top) == [
        f"{OURS}/actions/workflows/ci.yml/badge.svg",
        f"{OURS}/actions/workflows/ci.yml",
        "https://colab.research.google.com/github/someone/course/blob/main/notebooks/00_start_here.ipynb",
        "https://codespaces.new/someone/course",
        "https://someone.github.io/course/",
    ]
    assert f"\nrepository-code: {OURS}\n" in citation
    for text in metadata:
        assert tomllib.loads(text)["project"]["urls"] == {
            "Source": OURS,
            "Documentation": "https://someone.github.io/course/",
            "Changelog": f"{OURS}/blob/main/CHANGELOG.md",
        }
    assert copy(OURS) == [readme, citation, *metadata]
    assert copy("https://github.com/_owner_/course") == without
    assert not any("http" in text.partition("<!-- end of buttons -->")[0] for text in without[:1])
    assert "repository-code" not in without[1]


def test_readme_citation_and_metadata_are_as_the_address_makes_them(copy):
    assert copy(SOURCE) == [(address.ROOT / name).read_text(encoding="utf-8") for name in WRITTEN]


def test_no_page_and_no_notebook_shows_the_placeholder():
    shown = [path for pattern in links.TEXTS[:2] for path in (address.ROOT / "notebooks").rglob(pattern)]
    shown += [address.ROOT / name for name in ("README.md", "CITATION.cff")]
    assert [path.name for path in shown if "_owner_" in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("path", notebooks.all_notebooks(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_first_cell_of_every_notebook_is_as_the_address_makes_it(path):
    notebook = notebooks.read(path)
    before = [cell.source for cell in notebook.cells]
    first_cell.write_first_cell(notebook, first_cell.pip_sources())
    assert [cell.source for cell in notebook.cells] == before


@pytest.mark.parametrize("uses_book", [False, True])
def test_without_an_address_the_first_cell_says_how_to_install_where_that_is_needed(monkeypatch, uses_book):
    notebook = new_notebook(cells=[new_code_cell("import d2l" if uses_book else "import torch")])
    first_cell.write_first_cell(notebook, None)
    exec(notebook.cells[0].source, {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    command = r"pip install \. '\./mha_course\[notebooks\]'"
    with pytest.raises(ModuleNotFoundError, match=rf"needs mha_lib and mha_course.*`make lab`.*{command}") as error:
        exec(notebook.cells[0].source, {})
    assert ("pandas requests" in str(error.value)) == ("d2l==1.0.3" in str(error.value)) == uses_book


def test_links_to_files_that_the_site_lacks_lead_to_the_address_or_are_plain_words():
    text = "See [the lock](../constraints.txt), [this](01_attention_pooling.ipynb) and [that](https://d2l.ai)."
    there = site_source.follow_links(text, notebooks.NOTEBOOKS, address.files(OURS))
    assert there == text.replace("../constraints.txt", f"{OURS}/blob/main/constraints.txt")
    nowhere = site_source.follow_links(text, notebooks.NOTEBOOKS, address.files(None))
    assert nowhere == text.replace("[the lock](../constraints.txt)", "the lock")


def test_the_front_page_fetches_a_copy_from_where_there_is_one():
    assert address.clone(OURS) == f"git clone {OURS}\ncd course\n" and address.clone(None) == ""
