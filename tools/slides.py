"""Write the lecture as one page of slides, with live pictures that need neither a kernel nor a network.

    python -m tools.slides build/slides

What the slides say and show is cut from the notebook by tools/lecture.py; nothing is written here.
"""

import argparse
import base64
import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from markdown_it import MarkdownIt

from mha_course.pictures import live
from mha_course.pictures.shared_with_js import style
from tools import lecture, site_source
from tools.plans import IN_CLASS

HERE = Path(__file__).resolve().with_name("site")
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", re.DOTALL)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")  # to another file: on a slide its words alone
HEADING = re.compile(r"#{1,6} (?:\d+\. )?")
DRAWING = re.compile(r"<figure.*?data:image/svg\+xml;base64,([^\"]+).*?</figure>", re.DOTALL)
ANSI = re.compile(r"\x1b\[[0-9;]*m")
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
{style}</style>
<main>
{slides}
</main>
<script>
{script}</script>
</html>
"""
SLIDE = """<section class="slide" data-minute="{minute}">
<h1>{title}</h1>
<div class="shown">
{shown}
</div>
<footer>{number}</footer>
<aside>
<p><b>Minute {minute}</b>, {length} min. <b>Ask:</b> {ask}</p>
{notes}
</aside>
</section>"""


def markdown(text):
    """HTML of a text; formulas are MathML, and a link within the course is its words."""
    formulas = []

    def keep(found):
        formulas.append(convert((found[1] or found[2]).strip(), display="block" if found[1] else "inline"))
        return f"FORMULA{len(formulas) - 1}END"

    written = MarkdownIt("commonmark").enable("table").render(FORMULA.sub(keep, LINK.sub(r"\1", text)))
    return re.sub(r"FORMULA(\d+)END", lambda found: formulas[int(found[1])], written)


def output(cell):
    """HTML of what a cell has shown, the text or, where there is one, the picture or table.

    An answer that the notebook folds is open, and a drawing is part of the page, which can crop it.
    """
    pictures = [each.data["text/html"] for each in cell.outputs if "text/html" in each.get("data", {})]
    if not pictures:
        said = "".join(each.get("text", "") for each in cell.outputs)
        return f"<pre>{html.escape(ANSI.sub('', said).strip())}</pre>"
    shown = "\n".join(pictures).replace("<details>", "<details open>")
    return DRAWING.sub(lambda found: f'<div class="drawing">{base64.b64decode(found[1]).decode()}</div>', shown)


def shown(names, blocks, cells):
    """HTML of what a slide shows.

    Args:
        names: as ``Slide.shows`` has them.
        blocks: the notebook's.
        cells: the cells of the notebook as it ran, by their ids.
    """
    for name in names:
        block = blocks[lecture.find(name, blocks)]
        if lecture.is_text(block):
            yield markdown(block.text)
        elif name.startswith("code "):
            yield f"<pre><code>{html.escape(block.text)}</code></pre>"
        else:
            yield output(cells[block.cell.id])


def title(slide, blocks):
    """The last heading up to what a slide shows first."""
    before = [block for block in blocks[: lecture.find(slide.shows[0], blocks) + 1] if lecture.is_text(block)]
    return HEADING.sub("", next(block.text for block in reversed(before) if HEADING.match(block.text)))


def question(slide, spoken):
    """What to ask: the notebook's predictions, then the lecture's own question."""
    asked = [block.text for block in spoken if block.text.startswith("**Predict")]
    return " ".join([*asked, slide.ask])


def deck(notebook):
    """HTML of all slides of the notebook as it ran."""
    blocks, cells, minute = lecture.blocks(), {cell.id: cell for cell in notebook.cells}, 0.0
    for number, (slide, spoken) in enumerate(lecture.spoken(), start=1):
        length = IN_CLASS * sum(block.minutes for block in spoken)
        texts = [block.text for block in spoken if lecture.is_text(block)]
        yield SLIDE.format(
            number=number,
            minute=round(minute),
            length=f"{length:.1f}",
            title=markdown(title(slide, blocks)).replace("<p>", "").replace("</p>", ""),
            shown="\n".join(shown(slide.shows, blocks, cells)),
            ask=markdown(question(slide, spoken)).replace("<p>", "").replace("</p>", ""),
            notes=markdown("\n\n".join(text for text in texts if not HEADING.match(text))),
        )
        minute += length


def write(folder):
    """Run the notebook, and write its slides as one page."""
    notebook, pictures = site_source.run(lecture.NOTEBOOK)
    folder.mkdir(parents=True, exist_ok=True)
    script = live.page_script({state["kind"] for state, _ in pictures.values()})
    page = PAGE.format(
        title="Multi-head attention: the lecture",
        style=style() + (HERE / "deck.css").read_text(encoding="utf-8"),
        slides="\n".join(deck(notebook)),
        script=f"{script}(() => {{\n{(HERE / 'deck.js').read_text(encoding='utf-8')}}})();\n",
    )
    (folder / "index.html").write_text(page, encoding="utf-8")
    return folder / "index.html"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run notebook 00 and make slides of it.")
    parser.add_argument("folder", type=Path)
    print(f"Open {write(parser.parse_args().folder)}: arrows turn the slides, n opens the notes.")
