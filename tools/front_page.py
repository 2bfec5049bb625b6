"""Write the site's front page: live pictures, what one will be able to do, a card for each notebook, how to run it.

What stands on a card comes from the map in README; the picture of a card is a still one of its notebook.
"""

import base64
import re
from pathlib import Path
from typing import NamedTuple

from mha_lib import pictures
from mha_lib.exercises import on_a_page
from mha_lib.pictures import live
from tools import address, ways_in

HERE = Path(__file__).resolve().with_name("site")
README = HERE.parents[1] / "README.md"
ROW = re.compile(r"^\| (\d\d) \| \[(.*?)\]\(notebooks/(\w+)\.ipynb\) \| (.*?) \| (\d+) \|$", re.MULTILINE)
IMAGE = re.compile(r'<img alt="(.*?)".*?src="data:image/(\w+).*?;base64,(.*?)"', re.DOTALL)
# Which of its pictures a notebook shows, counted from 0; one that is not here has none.
ON_THE_CARD = {
    "00_start_here": 2,
    "01_attention_pooling": 5,
    "02_scoring_functions": 4,
    "03_multi_head_attention": 5,
    "04_transpose_qkv": 0,
    "05_block_and_torch_layer": 0,
    "06_heads_at_work": 3,
    "07_head_importance": 0,
    "08_head_pruning": 0,
    "09_heads_today": 0,
    "10_bug_museum": 0,
    "11_heads_being_born": 3,
}
KINDS = (pictures.NumHeadsExplorer.module, pictures.SentenceExplorer.module)  # of the front page's live pictures
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


def card_picture(notebook, stem):
    """The image of a card: its alt text, its kind and its bytes."""
    outputs = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    images = [image for data in outputs for image in IMAGE.findall(data.get("text/html", ""))]
    alt, kind, data = images[ON_THE_CARD[stem]]
    return alt, kind, base64.b64decode(data)


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


def as_sentence(text):
    """With a large first letter and a full stop; words in code are plain."""
    plain = text.replace("`", "")
    return f"{plain[0].upper()}{plain[1:]}."


def cards(stories, folder):
    """The cards of all notebooks that README's map names; their images go into the folder.

    Args:
        stories: the notebooks as they were run, by the name of their file without its extension.
    """
    folder.mkdir()
    for row in rows():
        picture = ""
        if row.stem in ON_THE_CARD:
            alt, kind, image = card_picture(stories[row.stem], row.stem)
            (folder / f"{row.number}.{kind}").write_bytes(image)
            picture = PICTURE.format(image=f"{row.number}.{kind}", alt=alt.split(". ")[0])
        text = f"{row.text[0].upper()}{row.text[1:]}"
        yield CARD.format(**row._asdict() | {"picture": picture, "text": text})


def live_pictures():
    """The live pictures of the front page, as what Sphinx reads: how many heads it takes, and a sentence."""
    shown = {"heads": pictures.NumHeadsExplorer(), "sentence": pictures.SentenceExplorer(query=9, layer=1, head=3)}
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
