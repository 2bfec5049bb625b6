"""How long a newcomer waits: from ``git clone`` to the first live picture, and to a green ``make test``.

    python -m benchmarks.newcomers_clock        writes benchmarks/newcomers_clock.md

Everything happens in a new clone of what is committed. Packages are installed twice, first into an empty cache and then
from it: the difference is the download. Needs Chromium, as the browser tests do.
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REPORT = Path(__file__).with_suffix(".md")
FIRST_PICTURE = """
import tempfile
from pathlib import Path
import benchmarks  # which finds the tools
from tools.lab_page import CHROMIUM, FLAGS, Lab, NotebookPage
from playwright.sync_api import sync_playwright
lab = Lab(Path.cwd(), Path(tempfile.mkdtemp()))
with sync_playwright() as playwright:
    page = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS).new_page()
    notebook = NotebookPage(page, lab, "notebooks/00_start_here.ipynb")
    notebook.run_all()
    page.locator("section.mha-live").first.wait_for()
lab.stop()
"""


def seconds(*command: str, folder: Path, **environment: str) -> float:
    """How long a command takes; its output is shown, and a failure stops everything."""
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env=os.environ | environment, check=True)
    return time.perf_counter() - start


def clock(place: Path) -> dict[str, float]:
    """Every step of a newcomer in a new folder, and its seconds."""
    clone, cache = place / "clone", str(place / "cache")
    took = {"git clone": seconds("git", "clone", "--quiet", str(ROOT), str(clone), folder=place)}
    with_download = seconds("make", "install", folder=clone, PIP_CACHE_DIR=cache)
    shutil.rmtree(clone / ".venv")
    took["install"] = seconds("make", "install", folder=clone, PIP_CACHE_DIR=cache)
    took["download, beside that"] = max(with_download - took["install"], 0.0)
    took["start JupyterLab, run notebook 00, first live picture"] = seconds(
        ".venv/bin/python", "-c", FIRST_PICTURE, folder=clone
    )
    took["make test, green"] = seconds("make", "test", folder=clone)
    return took


def main() -> None:
    """Take the time, print it and write it down."""
    with tempfile.TemporaryDirectory() as place:
        took = clock(Path(place))
    lines = [
        "# The newcomer's clock",
        "",
        f"`python -m benchmarks.newcomers_clock` wrote this, on {os.cpu_count()} cores; packages came from near by.",
        "",
        "| step | seconds |",
        "|---|---|",
        *(f"| {step} | {number:.0f} |" for step, number in took.items()),
    ]
    REPORT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(REPORT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
