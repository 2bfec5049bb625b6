"""Write the site's front page: live pictures, what one will be able to do, a card for each notebook, how to run it.

What stands on a card comes from the map in README; the picture of a card is a still one of its notebook.
"""

import base64
import re
from pathlib import Path
from typing import NamedTuple

from mha_course import pictures
from mha_course.exercises import on_a_page
from mha_course.pictures import live
from tools import address, ways_in

HERE = Path(__file__).resolve().with_name("site")
README = HERE.parents[1] / "README.md"
ROW = re.compile(r"^\| (\d\d) \| \[(.*?)\]\(notebooks/(\w+)\.ipynb\) \| (.*?) \| (\d+) \|$", re.MULTILINE)
IMAGE = re.compile(r'<img alt="(.*?)".*?src="data:image/(\w+).*?;base64,(.*?)"', re.DOTALL)
# Which of its pictures a notebook shows, counted from 0; one that is not here shows its first, if it has any.
ON_THE_CARD = {"00": 2, "01": 3, "02": 3, "03": 5, "06": 3, "07": 1, "09": 1, "10": 1, "11": 3}
KINDS = (pictures.RingExplorer.module, pictures.SentenceExplorer.module)  # of the front page's live pictures
CARD = """::::{{grid-item-card}} {number} · {title}
:link: {stem}
:link-type: doc{picture}

{text}
:::{{card-footer}}
{minutes} minutes
:::
::::"""
PICTURE = """
:img-top: _static/cards/{image}
:img-alt: {alt}
:class-img-top: mha-still"""


def images(notebook):
    """The images of a notebook: the alt text, the kind and the bytes in base64 of each."""
    outputs = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    return [image for data in outputs for image in IMAGE.findall(data.get("text/html", ""))]


class Row(NamedTuple):
    """A row of README's map of the notebooks."""

    number: str
    title: str
    stem: str
    text: str
    minutes: str


def rows():
    """README's map of the notebooks."""
    return [Row(*found) for found in ROW.findall(README.read_text(encoding="utf-8"))]


def cards(stories, folder):
    """The cards of all notebooks that README's map names; their images go into the folder.

    Args:
        stories: the notebooks as they were run, by the name of their file without its extension.
    """
    folder.mkdir()
    for row in rows():
        picture = ""
        if found := images(stories[row.stem]):
            alt, kind, data = found[ON_THE_CARD.get(row.number, 0)]
            (folder / f"{row.number}.{kind}").write_bytes(base64.b64decode(data))
            picture = PICTURE.format(image=f"{row.number}.{kind}", alt=alt.split(". ")[0])
        text = f"{row.text[0].upper()}{row.text[1:]}"
        yield CARD.format(**row._asdict() | {"picture": picture, "text": text})


def live_pictures():
    """The live pictures of the front page, as what Sphinx reads: how many heads it takes, and a sentence."""
    shown = {"heads": pictures.RingExplorer(), "sentence": pictures.SentenceExplorer(query=9, layer=1, head=3)}
    return {
        key: f"```{{raw}} html\n{one.still().html(key)}{live.state_of(key, one.page_data())}\n```"
        for key, one in shown.items()
    }


def write(folder, stories, alone, others, languages):
    """Write the page and the images of its cards.

    Args:
        stories: the notebooks as they were run, by the name of their file without its extension.
        alone: the titles and addresses of live pictures' own pages, by notebook.
        others: the names of the pages beside the notebooks.
        languages: the names of the first pages in other languages, by what these are called.
    """
    text = (HERE / "index.md").read_text(encoding="utf-8")
    lectures = "\n".join(
        f"- {stem[:2]}: " + " · ".join(f'<a href="{address}">{title}</a>' for title, address in pages)
        for stem, pages in alone.items()
    )
    parts = {
        **live_pictures(),
        "cards": "\n\n".join(cards(stories, folder / "_static" / "cards")),
        "ways": ways_in.table(""),
        "clone": address.clone(address.project()),
        "lectures": lectures,
        "written": " · ".join(f'<a href="write/{name}.html"><code>{name}</code></a>' for name in on_a_page.PAGES),
        "notebooks": "\n".join(f"{short_title(notebook, stem)} <{stem}>" for stem, notebook in stories.items()),
        "others": "\n".join([*others, *(f"{language} <{name}>" for language, name in languages.items())]),
        "languages": " · ".join(f"[{language}]({name}.md)" for language, name in languages.items()),
    }
    (folder / "index.md").write_text(text.format(**parts), encoding="utf-8")


def short_title(notebook, stem):
    """The first line of a notebook, after its number if it has one."""
    first = notebook.cells[0].source.splitlines()[0].removeprefix("# ")
    return f"{stem[:2]} {first}" if stem[0].isdigit() else first
