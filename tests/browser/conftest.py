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


class Tab:
    """A page in which one notebook after the other is opened: to load the lab anew takes longer than to open one."""

    def __init__(self, browser, lab):
        self.browser, self.lab, self.page, self.notebook = browser, lab, None, None

    def open(self, path):
        """Close the notebook that is open, and open another one."""
        self.clear()
        self.page = self.page or self.browser.new_page(viewport={"width": 1280, "height": 1000})
        self.notebook = NotebookPage(self.page, self.lab, path)
        return self.notebook

    def clear(self):
        """Close the notebook that is open, and end its kernel."""
        if self.notebook:
            self.notebook.close()
        self.notebook = None

    def leave(self):
        """Close the page; the next notebook gets a new one."""
        if self.page:
            self.page.close()
        self.page = self.notebook = None


@pytest.fixture(scope="session")
def tab(browser, lab):
    """The page that all tests share."""
    tab = Tab(browser, lab)
    yield tab
    tab.leave()


@pytest.fixture
def open_notebook(tab, lab, request):
    """``open_notebook(path)`` shows a notebook of the lab, and closes the one before; a failure ends the page."""
    yield tab.open
    if getattr(request.node, "failed", False) and tab.page:
        SCREENSHOTS.mkdir(exist_ok=True)
        tab.page.screenshot(path=SCREENSHOTS / f"{request.node.name.replace('/', '_')}.png")
        tab.leave()
    tab.clear()
    lab.end_kernels()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Tell the fixtures whether the test failed."""
    report = yield
    item.failed = getattr(item, "failed", False) or report.failed
    return report


@pytest.fixture(scope="session")
def usual_errors(tab, lab):
    """What JupyterLab writes to the browser's console as an error even on an empty notebook."""
    notebook = tab.open(lab.write("empty.ipynb", "None"))
    notebook.run_all()
    tab.clear()
    return set(notebook.console_errors)
