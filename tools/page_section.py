"""Write what a page of an exercise shows above the editor: the part of the core that leads to it, and its live picture.

    python -m tools.page_section

The words, cells and outputs are those of notebook 00. The file is data of the library, which holds no notebooks.
"""

import html
import re

import mistune

from mha_lib import pictures
from mha_lib.pictures import live
from mha_lib.pictures.shared_with_js import style
from tools import notebooks

NOTEBOOK = notebooks.NOTEBOOKS / "00_start_here.ipynb"
TARGET = notebooks.NOTEBOOKS.parent / "mha_lib" / "exercises" / "around_transpose_qkv.html"
HEADING, LAST = "## 4. From one tensor to heads", "pictures.TransposeStepper("
OF_THE_PICTURE = re.compile(r"<(style|script)>.*?</\1>\n", re.DOTALL)  # as the library draws it, not the notebook


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
        return mistune.html(re.sub(r"^## \d+\. ", "## ", cell.source))
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


def without_picture(text):
    """A section without what draws its picture: that part is whole in itself, and may be of an earlier day."""
    return OF_THE_PICTURE.sub("", text)


if __name__ == "__main__":
    TARGET.write_text(section(), encoding="utf-8")
    print(f"{TARGET.relative_to(notebooks.NOTEBOOKS.parent)}: {TARGET.stat().st_size / 1000:.0f} kB")
