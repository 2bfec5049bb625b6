"""Write what a page of an exercise shows above the editor: the part of the core that leads to it, and its live picture.

    python -m tools.page_section

The words, cells and outputs are those of notebook 00, script and style those of the live picture. The file is data of
the library, which holds no notebooks, and whose exercises import no pictures.
"""

import html
import re

from markdown_it import MarkdownIt

from mha_course import pictures
from mha_course.pictures import live
from mha_course.pictures.shared_with_js import style
from tools import notebooks

NOTEBOOK = notebooks.NOTEBOOKS / "00_start_here.ipynb"
TARGET = notebooks.NOTEBOOKS.parent / "mha_course" / "exercises" / "around_transpose_qkv.html"
HEADING, LAST = "## 4. From one tensor to heads", "pictures.TransposeStepper("


def cells():
    """The cells of the section up to its live picture; the first one begins with the heading."""
    every = notebooks.read(NOTEBOOK).cells
    [first] = [place for place, cell in enumerate(every) if HEADING in cell.source]
    [last] = [place for place, cell in enumerate(every) if cell.source.startswith(LAST)]
    every[first].source = every[first].source[every[first].source.index(HEADING) :]
    return every[first : last + 1]


def as_html(cell):
    """A cell, and what it prints."""
    if cell.cell_type == "markdown":
        return MarkdownIt().enable("table").render(re.sub(r"^## \d+\. ", "## ", cell.source))
    if cell.source.startswith(LAST):
        picture = eval(cell.source, {"pictures": pictures})
        return f'<figure data-mha-live="around"></figure>{live.state_of("around", picture.page_data())}\n'
    printed = "".join(output.get("text", "") for output in cell.outputs)
    return f'<pre class="cell"><code>{html.escape(cell.source)}</code></pre>\n<pre>{html.escape(printed)}</pre>\n'


def section():
    """The section as part of a page, whose script brings the picture to life."""
    parts = "".join(map(as_html, cells()))
    script = live.page_script([pictures.TransposeStepper.module])
    return (
        f'<p><a href="#exercise">To the exercise</a></p>\n<section>\n{parts}</section>\n'
        f'<style>\n{style()}</style>\n<script>\n{script}</script>\n<h2 id="exercise" tabindex="-1">The exercise</h2>\n'
    )


if __name__ == "__main__":
    TARGET.write_text(section(), encoding="utf-8")
    print(f"{TARGET.relative_to(notebooks.NOTEBOOKS.parent)}: {TARGET.stat().st_size / 1000:.0f} kB")
