"""Try a release, for the maintainer before the tag and for the hosted run after it.

    python -m tools.release            what the next release would be, and what has to be done before its tag
    python -m tools.release v0.2.0     the same, held to this tag: whatever is not in order ends it

It builds the wheels and source distributions of mha_lib and mha_course, which are released together, and writes the
first section of CHANGELOG.md beside them, as the notes. Between releases the version is that of the next, with .dev0.
It needs no network and publishes nothing: the hosted run, .github/workflows/release.yml, does that with these files.
"""

import re
import sys
from pathlib import Path

from tools import address, try_wheel

ROOT = Path(__file__).resolve().parents[1]
LEFT = """What is left to the hosted run, .github/workflows/release.yml:
- before this, all tests on the commit of the tag;
- provenance: a signed statement of which commit and which run these files come from;
- the release {tag} on the project's page, with the notes and the files."""


PLACES = {  # where the version stands, and how
    "mha_lib/__init__.py": r'^__version__ = "(.+)"$',
    "mha_course/pyproject.toml": r'^version = "(.+)"$',
    "mha_course/pyproject.toml, dependencies": r'"mha-lib==(.+?)"',
    "CITATION.cff": r"^version: (.+)$",
}


def versions(root=ROOT):
    """The version as each of PLACES has it, or None."""
    texts = {place: (root / place.partition(",")[0]).read_text(encoding="utf-8") for place in PLACES}
    found = {place: re.findall(pattern, texts[place], re.MULTILINE) for place, pattern in PLACES.items()}
    return {place: here[0] if len(here) == 1 else None for place, here in found.items()}


def version(root=ROOT):
    """The version as mha_lib/__init__.py has it."""
    return versions(root)["mha_lib/__init__.py"]


def sections(root=ROOT):
    """The sections of CHANGELOG.md, newest first: (heading, text) each."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    return re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)


def notes(root=ROOT):
    """The first section of CHANGELOG.md, in which links to files lead to the files of this version."""
    here, text = address.project(root), sections(root)[0][1].strip() + "\n"
    return re.sub(r"\]\((?!\w+:|#)", f"]({here}/blob/v{version(root)}/", text) if here else text


def not_in_order(root=ROOT, tag=None):
    """What keeps this from being released, with this tag if one is given: a sentence each, with its remedy."""
    number, [(heading, text), *older] = version(root), sections(root)
    if tag not in (None, f"v{number}"):
        yield f"The tag is {tag}, but mha_lib/__init__.py has the version {number}, whose tag is v{number}."
    for place, there in versions(root).items():
        if there != number:
            yield f"{place} has {there or 'no version'}: it needs {number}, as mha_lib/__init__.py has it."
    if number.endswith(".dev0"):
        yield f"{number} is between releases: write {number.removesuffix('.dev0')} in {', '.join(PLACES)}."
    if number in [name for name, _ in older]:
        yield f"CHANGELOG.md has an older section {number}: raise the version in {', '.join(PLACES)}."
    elif heading != number.removesuffix(".dev0"):
        yield f'CHANGELOG.md begins with "## {heading}": rename that to "## {number.removesuffix(".dev0")}".'
    if not text.strip():
        yield f'CHANGELOG.md says nothing under "## {heading}".'
    if address.project(root) is None:
        yield "Source in pyproject.toml is a placeholder, which the wheel would show: put the project's address there."


def main(tag=None):
    problems, coming = list(not_in_order(tag=tag)), f"v{version().removesuffix('.dev0')}"
    if problems:
        print(f"Before the tag {coming}:", *(f"- {problem}" for problem in problems), sep="\n", flush=True)
        if tag:
            sys.exit(1)
    try_wheel.build("--no-isolation")  # an isolated build would fetch hatchling
    (try_wheel.DIST / "notes.md").write_text(notes(), encoding="utf-8")
    print(f"notes.md: {len(notes().splitlines())} lines\nAll of these are in {try_wheel.DIST.relative_to(ROOT)}.")
    print(LEFT.format(tag=coming))


if __name__ == "__main__":
    main(*sys.argv[1:2])
