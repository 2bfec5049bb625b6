"""Run the notebooks, and write what Sphinx makes the site from: their copies with live pictures, and other pages.

    python -m tools.site_source build/site-source

A saved notebook holds a still picture, for it must stay small. Here, beside each still picture goes all that the live
one reads, so that it moves without a kernel: it is what the notebook's kernel says when nbval runs it (executions.py).
"""

import argparse
import copy
import html
import re
import shutil
import subprocess
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from mha_course.exercises import on_a_page
from mha_course.pictures import live
from mha_course.pictures.shared_with_js import style
from tools import address, alone, executions, first_cell, front_page, library_pages, main_line, notebooks, translations
from tools.languages import LANGUAGES

HERE = Path(__file__).resolve().with_name("site")
ROOT = HERE.parents[1]
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
AT_ONCE = 2  # notebooks: each keeps one core busy
LIVE = re.compile(r'data-mha-live="(\w+)"')
ELSEWHERE = notebooks.NOTEBOOKS / "elsewhere"  # not run here: shown as they are saved
PAGES = ("QUESTIONS.md", "GLOSSARY.md", "TEACHING.md", "MISTAKES.md")  # beside the notebooks
FOLDED = "folded:"
SOURCE = address.files(address.project())
SHARED_IMAGE = "ring_shared.png"
ON_A_PAGE = re.compile(r'`exercises\.page\("(\w+)"\)`')  # a call that writes a page, which the site has
CELL = re.compile(r"\]\(\w+\.ipynb#cell-id=([\w-]+)\)")  # a link to a cell, as JupyterLab follows it


def bring_to_life(notebook, stem):
    """Write beside every still picture what its live one reads, and return these states with their stills, by key."""
    states = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    shown = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            view = output.get("data", {}).get(notebooks.WIDGET_VIEW)
            kind = LIVE.search(output.get("data", {}).get("text/html", ""))
            if view and kind:
                key = f"{stem}-{len(shown)}"
                still = LIVE.sub(f'data-mha-live="{key}"', output.data["text/html"])
                state = {"kind": kind[1], "state": page_state(states[view["model_id"]])}
                output.data["text/html"] = still + live.state_of(key, state)
                shown[key] = state, still
    return shown


def pages_alone(shown, folder):
    """Write every picture on a page of its own, but for those that show again what one before has shown.

    Returns the title and the address of each page, by notebook.
    """
    folder.mkdir(parents=True)
    seen, written = [], {}
    for key, (state, still) in shown.items():
        if state["state"]["data"] not in seen:
            seen.append(state["state"]["data"])
            (folder / f"{key}.html").write_text(page_alone(key, state, still), encoding="utf-8")
            stem, title = key.rpartition("-")[0], state["state"]["title"]
            written.setdefault(stem, []).append((title, f"alone/{key}.html"))
    return written


def page_alone(key, state, still):
    """A picture on a page of its own, as large as a projector's screen."""
    script = live.page_script([state["kind"]])
    return live.PAGE.format(
        title=html.escape(state["state"]["title"]),
        style=style() + (HERE / "alone.css").read_text(encoding="utf-8"),
        still=still,
        state=live.state_of(key, state),
        script=f"{script}(() => {{\n{(HERE / 'alone.js').read_text(encoding='utf-8')}}})();\n",
    )


def page_state(saved):
    """What a picture reads, from the state that a notebook saves; its bytes as base64 where they belong."""
    state = {name: value for name, value in saved["state"].items() if not name.startswith("_")}
    for buffer in saved.get("buffers", []):
        *way, last = buffer["path"]
        place = state
        for step in way:
            place = place[step]
        place[last] = {"base64": buffer["data"]}
    return {name: value for name, value in state.items() if not str(value).startswith("IPY_MODEL_")}


def follow_links(text, place, source=SOURCE):
    """A text in which links to files that the site does not hold lead to the project's own files, or are plain words.

    Args:
        place: the folder of the text in the project.
        source: the address of the project's files, or None.
    """

    def there(link):
        words, target = link.groups()
        path = (place / target).resolve()
        if path.parent.name in LANGUAGES or (place.name in LANGUAGES and path == ROOT / "README.md"):
            return re.sub(r"(\.\./)?README\.md", "index.md", link[0])
        if path.suffix == ".ipynb" or path == ELSEWHERE / "README.md" or path.name in PAGES or not path.exists():
            return link[0]
        if path.name == "solutions":
            return f"[{words}](solutions/index.md)"
        return f"[{words}]({source}/{path.relative_to(ROOT).as_posix()})" if source else words

    return re.sub(r"\[([^\[\]]*)\]\((?!\w+:|#)([^)#\s]+)\)", there, text)


def fold(notebook):
    """Tell the site what to fold, outputs that answer a prediction, solutions, parts; and what to leave out."""
    for part in main_line.folded_parts(notebook):
        heading, _, text = part.cells[0].source.partition("\n")
        minutes = max(1, round(main_line.count(part).minutes))
        # conf.py finds the comment, and folds its section.
        part.cells[0].source = f"{heading}\n\n% {FOLDED} Read on (about {minutes} min)\n\n{text}"
    for cell in notebook.cells:
        tags = cell.metadata.setdefault("tags", [])
        if first_cell.is_first_cell(cell):
            tags.append("remove-cell")
        if cell.metadata.get("jupyter", {}).get("outputs_hidden"):
            tags.append("hide-output")
        if cell.metadata.get("nbgrader", {}).get("solution"):
            tags.append("hide-input")


def executed(path):
    """What a notebook's kernel said, as nbval ran it, here or before; where the saved outputs differ, this is told."""
    kept = executions.file_of(path)
    if not alone.compare(path, kept, report=subprocess.DEVNULL):
        print(f"{path.name}: what is saved is not what came now; make test says more", flush=True)
    return kept


def run(path):
    """A story with live pictures, and their states with their stills."""
    notebook = notebooks.read(path)
    ran = alone.in_order(path)
    executions.show(ran, executed(path))
    said = {cell.id: cell for cell in ran.cells}
    notebook.cells = [said[cell.id] for cell in notebook.cells]
    notebook.metadata.widgets = ran.metadata.get("widgets", {})
    notebooks.refuse_faults(notebook)
    shown = bring_to_life(notebook, path.stem)
    notebooks.normalise(notebook)
    return notebook, shown


def page(name):
    """A page beside the notebooks, whose links to cells lead to the names that ``write`` gives them."""
    text = (notebooks.NOTEBOOKS / name).read_text(encoding="utf-8")
    return CELL.sub(r"](#\1)", follow_links(text, notebooks.NOTEBOOKS))


def linked_cells():
    """The ids of all cells to which a page links."""
    texts = [(notebooks.NOTEBOOKS / name).read_text(encoding="utf-8") for name in PAGES]
    return {cell for text in texts for cell in CELL.findall(text)}


def write(notebook, target, linked=(), place=notebooks.NOTEBOOKS):
    """A notebook of the site; a text to which a page links gets its id as a name (a solution's ids may be the same)."""
    fold(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = follow_links(cell.source, place)
            up = "../" * (place.name in LANGUAGES)
            cell.source = ON_A_PAGE.sub(rf'<a href="{up}write/\1.html">\g<0></a>', cell.source)
            cell.source = f"({cell.id})=\n{cell.source}" if cell.id in linked else cell.source
    text = notebook.cells[0].source if target.suffix == ".md" else notebooks.nbformat.v4.writes(notebook)
    target.write_text(text, encoding="utf-8")


def write_elsewhere(folder):
    """The notebooks in other frameworks, and the page that leads to them."""
    folder.mkdir()
    paths = sorted(ELSEWHERE.glob("*.ipynb"))
    for path in paths:
        write(notebooks.read(path), folder / path.name, place=ELSEWHERE)
    text = follow_links((ELSEWHERE / "README.md").read_text(encoding="utf-8"), ELSEWHERE)
    names = "\n".join(path.stem for path in paths)
    (folder / "README.md").write_text(f"{text}\n```{{toctree}}\n:hidden:\n\n{names}\n```\n", encoding="utf-8")


def write_languages(folder, runs):
    """The pages in other languages, whose first one has live pictures; where these are, by the languages' names.

    ``runs`` are the notebooks as they ran for the site, by their paths.
    """
    built, written = translations.all_built(), {}
    shown = front_page.live_pictures()
    for language, said in LANGUAGES.items():
        place, stems = notebooks.NOTEBOOKS / language, [stem for stem in built if language in built[stem]]
        pages = {
            stem: runs.get(translations.target(stem, language)) or translations.build(stem, language, built)
            for stem in stems
        }
        (folder / language).mkdir()
        for stem in pages.keys() - {"README"}:
            write(pages[stem], folder / language / translations.target(stem, language).name, place=place)
        if "README" in pages:
            start = follow_links(pages["README"].cells[0].source, place)
            start = re.sub(r"(?s)<a [^>]*><picture>.*?</a>", lambda _: shown["heads"], start)
            start = re.sub(r"(?m)^!\[.*\]\(.*\)$", lambda _: shown["sentence"], start)
            names = "\n".join(stem for stem in stems if stem != "README")
            start += f"\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"
            (folder / language / "index.md").write_text(start, encoding="utf-8")
            written[said["name"]] = f"{language}/index"
    return written


def write_front_door(folder):
    """The sign of the site, its style, the image beside a link to it, and the page for addresses that it lacks."""
    for file in (HERE / "favicon.svg", HERE / "site.css", ROOT / "img" / SHARED_IMAGE):
        shutil.copy(file, folder / "_static")
    here = address.site(address.project()) or ""  # the page is shown at every address, so that relative links may fail
    page = (HERE / "404.html").read_text(encoding="utf-8")
    missing = page.format(start=f"{here}index.html", search=f"{here}search.html")
    (folder / "extra" / "404.html").write_text(missing, encoding="utf-8")


def write_exercises(folder, stories):
    """The exercises that are written on a page, each with a way to the notebook that has it."""
    for path in on_a_page.all_pages(folder):
        [there] = [stem for stem, notebook in stories.items() if f"exercises.{path.stem}(" in str(notebook.cells)]
        text = path.read_text(encoding="utf-8")
        link = f'<p><a href="../{there}.html">The notebook around this exercise</a></p>\n</main>'
        path.write_text(text.replace("</main>", link), encoding="utf-8")


def main(folder):
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("_static", "solutions"):
        (folder / part).mkdir(parents=True)
    paths = [path for path in notebooks.all_notebooks() if path.parent == notebooks.NOTEBOOKS]
    in_languages = [path for language in LANGUAGES for path in sorted((notebooks.NOTEBOOKS / language).glob("*.ipynb"))]
    linked, stories, shown = linked_cells(), {}, {}
    with ProcessPoolExecutor(AT_ONCE) as pool:
        others_run = pool.map(run, in_languages)
        for path, (notebook, its_pictures) in zip(paths, pool.map(run, paths), strict=True):
            stories[path.stem] = notebook
            shown |= its_pictures
            write(copy.deepcopy(notebook), folder / path.name, linked)
            print(f"{path.name}: {len(its_pictures)} live pictures", flush=True)
        runs = {path: notebook for path, (notebook, _) in zip(in_languages, others_run, strict=True)}
    solutions = sorted((notebooks.NOTEBOOKS / "solutions").glob("*.ipynb"))
    for path in solutions:
        write(notebooks.read(path), folder / "solutions" / path.name)
    names = "\n".join(path.stem for path in solutions)
    (folder / "solutions" / "index.md").write_text(f"# Worked solutions\n\n```{{toctree}}\n{names}\n```\n")
    write_elsewhere(folder / "elsewhere")
    shutil.copy(HERE / "conf.py", folder)
    for name in PAGES:
        (folder / name).write_text(page(name), encoding="utf-8")
    library_pages.write(folder / "library")
    others = [*(name.removesuffix(".md") for name in PAGES), "elsewhere/README", "solutions/index", "library/index"]
    front_page.write(
        folder, stories, pages_alone(shown, folder / "extra" / "alone"), others, write_languages(folder, runs)
    )
    write_exercises(folder / "extra" / "write", stories)
    write_front_door(folder)
    (folder / "_static" / "live.css").write_text(style(), encoding="utf-8")
    kinds = {state["kind"] for state, _ in shown.values()} | set(front_page.KINDS)
    script = live.page_script(kinds)
    (folder / "_static" / "pictures.js").write_text(script, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run the notebooks and write what the site is made from.")
    parser.add_argument("folder", type=Path)
    main(parser.parse_args().folder)
