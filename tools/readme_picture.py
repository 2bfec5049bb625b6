"""Take the picture on README, the sentence explorer as a browser shows it.

    .venv/bin/python -m tools.readme_picture

Needs Chromium, as the browser tests do.
"""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from mha_lib import pictures

TARGET = Path(__file__).resolve().parents[1] / "img" / "sentence_explorer.png"


def main():
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = pictures.save_html(pictures.SentenceExplorer(query=9, layer=1, head=3), Path(folder, "page.html"))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 820, "height": 1000}, device_scale_factor=2, color_scheme="light")
        page.goto(page_file.as_uri())
        page.locator(".mha-live").screenshot(path=TARGET)
        browser.close()


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    main()
