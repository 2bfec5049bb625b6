"""Try a release, for the maintainer before the tag and for the hosted run after it.

    python -m tools.release            what the next release would be, and what has to be done before its tag
    python -m tools.release v0.2.0     the same, held to this tag: whatever is not in order ends it

It builds the wheel and the source distribution, and writes the first section of CHANGELOG.md beside them, as the notes.
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


def version(root=ROOT):
    """The version as mha_lib/__init__.py has it."""
    text = (root / "mha_lib" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]


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
    citation = re.findall(r"^version: (.+)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    if tag not in (None, f"v{number}"):
        yield f"The tag is {tag}, but mha_lib/__init__.py has the version {number}, whose tag is v{number}."
    if citation != [number]:
        yield f'CITATION.cff has {citation or "no version"}: it needs one line "version: {number}".'
    if number in [name for name, _ in older]:
        yield f"CHANGELOG.md has an older section {number}: raise the version in mha_lib/__init__.py and CITATION.cff."
    elif heading != number:
        yield f'CHANGELOG.md begins with "## {heading}": rename that to "## {number}".'
    if not text.strip():
        yield f'CHANGELOG.md says nothing under "## {heading}".'
    if address.project(root) is None:
        yield "Source in pyproject.toml is a placeholder, which the wheel would show: put the project's address there."


def main(tag=None):
    problems, coming = list(not_in_order(tag=tag)), f"v{version()}"
    if problems:
        print(f"Before the tag {coming}:", *(f"- {problem}" for problem in problems), sep="\n", flush=True)
        if tag:
            sys.exit(1)
    wheel = try_wheel.build("--no-isolation")  # an isolated build would fetch setuptools
    wheel.with_name("notes.md").write_text(notes(), encoding="utf-8")
    print(f"notes.md: {len(notes().splitlines())} lines\nAll three are in {wheel.parent.relative_to(ROOT)}.")
    print(LEFT.format(tag=coming))


if __name__ == "__main__":
    main(*sys.argv[1:2])
