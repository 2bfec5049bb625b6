"""What a learner meets who opens JupyterLab: names of files can be read, and what is folded is out of the way."""

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import notebooks

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("jupyterlab")]

# Of the longest name, which is wider than JupyterLab's side bar by 5 pixels, ".ipynb" loses a letter.
CUT = "names => names.filter(name => name.clientWidth < 0.95 * name.scrollWidth).map(name => name.textContent)"


@pytest.mark.long
def test_names_of_notebooks_can_be_read(open_notebook, lab):
    notebook = open_notebook(lab.write("beside.ipynb", "None"))
    notebook.do("await jupyterapp.commands.execute('filebrowser:go-to-path', { path: 'notebooks' })")
    notebook.page.locator(".jp-DirListing-itemName").get_by_text("11_heads_being_born.ipynb").wait_for()
    assert notebook.page.locator(".jp-DirListing-itemText").evaluate_all(CUT) == []


def test_what_is_folded_opens_folded_and_runs_with_the_rest(open_notebook, lab):
    cells = [
        new_markdown_cell("## Deeper: two", metadata={notebooks.FOLDS: True}),
        new_code_cell("heads = 2"),
        new_markdown_cell("## Three"),
        new_code_cell("print(heads + 1)"),
    ]
    kernel = notebooks.NOTEBOOK_METADATA["kernelspec"]
    notebooks.nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), lab.folder / "folded.ipynb")
    notebook = open_notebook("folded.ipynb")
    shown = notebook.panel.locator(".jp-Cell:visible")
    assert [text.split("\n")[0].strip("¶ ") for text in shown.all_inner_texts()][:-1] == ["Deeper: two", "Three"]
    notebook.run_all()
    assert notebook.code_cells()[-1]["outputs"][0]["text"] == "3\n"
    assert shown.count() == 4
