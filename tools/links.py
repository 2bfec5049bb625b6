"""Ask every address that the project cites whether it still answers: `make links`, which needs a network.

Sphinx's link checker asks; here, each file becomes a page that has the file's addresses in the lines where they stand.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ("*.md", "*.ipynb", "*.py", "*.js", "*.toml", "*.cff")
OURS = (":!tests", ":!tools")  # their addresses are made up, or this machine's
ADDRESS = re.compile(r"""(?:https?://|\bgithub\.com/)[^\s<>()\[\]"'`\\]*[\w/]""")
MADE_UP = re.compile(r"_owner_|[{}]|127\.0\.0\.1|example|\.\.\.|www\.w3\.org/\d")  # the last names languages, not pages
SETTINGS = """extensions = ["myst_parser"]
linkcheck_anchors = False
linkcheck_report_timeouts_as_broken = False
linkcheck_timeout = {timeout}
suppress_warnings = ["toc.not_included"]
"""


def cited(line):
    """The addresses in a line of text."""
    found = [address for address in ADDRESS.findall(line) if not MADE_UP.search(address)]
    return [address if "://" in address else f"https://{address}" for address in found]


def write_pages(root, names, folder):
    """Write a page for each file of ``root`` that cites an address; the number of addresses."""
    shutil.rmtree(folder, ignore_errors=True)
    number = 0
    for name in names:
        links = [cited(line) for line in (root / name).read_text(encoding="utf-8").splitlines()]
        if any(links):
            page = folder / f"{name}.md"
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text("\n".join(" ".join(f"<{link}>" for link in line) for line in links), encoding="utf-8")
            number += sum(map(len, links))
    return number


def check(root, names, folder, timeout=30):
    """Whether every address answers; what does not is printed, with its file and its line.

    Args:
        root: the folder of the files.
        names: the files to read, relative to it.
        folder: for pages that Sphinx reads and what it writes; emptied first.
        timeout: seconds after which a server counts as silent.
    """
    print(f"{write_pages(root, names, folder)} addresses", flush=True)
    (folder / "index.md").write_text("# Addresses\n", encoding="utf-8")
    (folder / "conf.py").write_text(SETTINGS.format(timeout=timeout), encoding="utf-8")
    sphinx = [
        ROOT / ".venv-site" / "bin" / "python",
        "-m",
        "sphinx",
        "-q",
        "-b",
        "linkcheck",
        folder,
        folder / "checked",
    ]
    return subprocess.run(sphinx).returncode == 0


if __name__ == "__main__":
    names = subprocess.check_output(["git", "ls-files", "--", *TEXTS, *OURS], cwd=ROOT, text=True).splitlines()
    all_answer = check(ROOT, names, ROOT / "build" / "links")
    sys.exit(0 if all_answer else "Some addresses do not answer: see above.")
