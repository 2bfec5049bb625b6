"""One JupyterLab and one Chromium for all tests; a test that fails leaves a screenshot in ``screenshots/``."""

import shutil

import pytest
from lab_page import PATIENCE, ROOT, Lab, NotebookPage

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]
SCREENSHOTS = ROOT / "screenshots"


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """A JupyterLab on copies of the notebooks."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    lab = Lab(folder, tmp_path_factory.mktemp("private"))
    yield lab
    lab.stop()


@pytest.fixture(scope="session")
def browser():
    """Chromium, driven by Playwright."""
    if CHROMIUM is None:
        pytest.skip("browser tests need Chromium, which is not on the PATH (Debian: apt install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=1000 * PATIENCE)
        yield browser
        browser.close()


@pytest.fixture
def open_notebook(browser, lab, request):
    """``open_notebook(path)`` shows a notebook of the lab in a page of its own."""
    pages = []

    def open_notebook(path):
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        pages.append(page)
        return NotebookPage(page, lab, path)

    yield open_notebook
    failed = getattr(request.node, "failed", False)
    for number, page in enumerate(pages):
        if failed and not page.is_closed():
            SCREENSHOTS.mkdir(exist_ok=True)
            page.screenshot(path=SCREENSHOTS / f"{request.node.name.replace('/', '_')}-{number}.png")
        page.close()
    lab.end_kernels()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Tell the fixtures whether the test failed."""
    report = yield
    item.failed = getattr(item, "failed", False) or report.failed
    return report


@pytest.fixture(scope="session")
def usual_errors(browser, lab):
    """What JupyterLab writes to the browser's console as an error even on an empty notebook."""
    page = browser.new_page()
    notebook = NotebookPage(page, lab, lab.write("empty.ipynb", "None"))
    notebook.run_all()
    page.close()
    return set(notebook.console_errors)
