"""The project's address, `Source` in pyproject.toml, and what README, CITATION.cff and others make of it.

    python -m tools.address     write it into README, CITATION.cff and both pyproject.toml; `make notebooks` does

Until a fork has put its own there, `Source` is a placeholder that leads nowhere: then there is no address, and nothing
shows one.
"""

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
PLACEHOLDER = "_owner_"  # nobody can have an account of this name
BUTTONS = re.compile(r"(?<=<!-- buttons: written by make notebooks -->\n).*?(?=<!-- end of buttons -->)", re.DOTALL)
URLS = re.compile(r'^(Source|Documentation|Changelog) = ".*"$', re.MULTILINE)
REPOSITORY = re.compile(r"^repository-code: .*\n", re.MULTILINE)
FIRST = "notebooks/00_start_here.ipynb"


def project(root=ROOT):
    """The project's address, or None while there is none."""
    source = _source(root)
    return None if PLACEHOLDER in source else source


def _source(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]


def files(project):
    """Where each of the project's files can be read, or None."""
    return project and f"{project}/blob/main"


def site(project):
    """Where the project's pages are published, or None."""
    if project is None:
        return None
    owner, name = Path(urlsplit(project).path).parts[-2:]
    return f"https://{owner}.github.io/{name}/"


def clone(project):
    """The commands that fetch a copy and enter it, for the site's front page; nothing where there is no address."""
    return f"git clone {project}\ncd {urlsplit(project).path.rpartition('/')[2]}\n" if project else ""


def buttons(project):
    """README's: the tests' badge, and where the course opens with one click, as lines of Markdown."""
    if project is None:
        return ""
    owner, name = Path(urlsplit(project).path).parts[-2:]
    return (
        f"[![tests]({project}/actions/workflows/ci.yml/badge.svg)]({project}/actions/workflows/ci.yml)\n"
        f"[**Open in Colab**](https://colab.research.google.com/github/{owner}/{name}/blob/main/{FIRST}) ·\n"
        f"[**Open in Codespaces**](https://codespaces.new/{owner}/{name}) ·\n"
        f"[**Read the site**]({site(project)})\n"
    )


def write(root=ROOT):
    """Put the buttons into README and the address into CITATION.cff and metadata, in the place of earlier ones."""
    here, readme, citation = project(root), root / "README.md", root / "CITATION.cff"
    readme.write_text(BUTTONS.sub(lambda _: buttons(here), readme.read_text(encoding="utf-8")), encoding="utf-8")
    text = REPOSITORY.sub("", citation.read_text(encoding="utf-8"))
    line = f"repository-code: {here}\n" if here else ""
    citation.write_text(text.replace("license: ", f"{line}license: ", 1), encoding="utf-8")
    source = _source(root)
    urls = {"Source": source, "Documentation": site(source), "Changelog": f"{files(source)}/CHANGELOG.md"}
    for path in (root / "pyproject.toml", root / "mha_course" / "pyproject.toml"):
        text = URLS.sub(lambda found: f'{found[1]} = "{urls[found[1]]}"', path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
