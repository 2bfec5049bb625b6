"""With the sanitise file nbval compares a picture's alt text and not its pixels."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from nbval.plugin import get_sanitize_patterns
from notebook_tools import SANITIZE, run_nbval

PICTURE = '<img alt="{}" src="data:image/png;base64,{}">'


@pytest.fixture
def compare(tmp_path):
    """Run nbval on one cell that shows a picture, against a saved one."""

    def compare(saved, shown, sanitize=SANITIZE):
        output = new_output("display_data", data={"text/html": saved})
        cell = new_code_cell(f"display({{'text/html': {shown!r}}}, raw=True)", outputs=[output], execution_count=1)
        nbformat.write(new_notebook(cells=[cell]), tmp_path / "sample.ipynb")
        return run_nbval(tmp_path / "sample.ipynb", sanitize=sanitize)

    return compare


def test_nbval_reads_every_rule():
    rules = SANITIZE.read_text(encoding="utf-8")
    written = [line for line in rules.splitlines() if line.lstrip().startswith("regex")]
    assert len(get_sanitize_patterns(rules)) == len(written) > 0


def test_other_pixels_pass(compare):
    done = compare(PICTURE.format("head 0", "iVBORw0+/8="), PICTURE.format("head 0", "iVBORw1+/9=="))
    assert done.returncode == 0, done.stdout


def test_other_alt_text_fails(compare):
    done = compare(PICTURE.format("head 0", "iVBO"), PICTURE.format("head 1", "iVBO"))
    assert done.returncode == 1 and "head 1" in done.stdout


def test_without_the_rule_other_pixels_fail(compare, tmp_path):
    no_rule = tmp_path / "no_rule.cfg"
    no_rule.touch()
    done = compare(PICTURE.format("head 0", "iVBO"), PICTURE.format("head 0", "iVBP"), sanitize=no_rule)
    assert done.returncode == 1 and "Cell outputs differ" in done.stdout
