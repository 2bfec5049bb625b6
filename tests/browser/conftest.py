"""One JupyterLab and one Chromium for all tests; a test that fails leaves a screenshot in ``screenshots/``."""

import shutil

import pytest
from picture_cases import LivePage

from mha_course.models import find_task, shipped_model, training
from tools.lab_page import CHROMIUM, FLAGS, PATIENCE, ROOT, Lab, NotebookPage

SCREENSHOTS = ROOT / "screenshots"


def pytest_collection_modifyitems(items):
    """Run a test in a browser once more when it fails; one that fails twice is red.

    Browsers and JupyterLab do some things in an order of their own: one of them, seen once in thousands of tests, must
    not cost a run of an hour.
    """
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """A JupyterLab on copies of the notebooks, where 07 finds its model trained already: nbval sees how it trains."""
    folder, private = tmp_path_factory.mktemp("lab"), tmp_path_factory.mktemp("private")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    task = find_task("lookups")
    path = private / "mha_cache" / training.file_name(task, seed=0, steps=task.steps)
    training.save_state(shipped_model(task).state_dict(), path)
    lab = Lab(folder, private)
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


@pytest.fixture(scope="session")
def page(browser):
    """A page without a network; tests show their documents in it one after another, which is quicker than a new one."""
    return browser.new_context(reduced_motion="reduce", offline=True).new_page()


@pytest.fixture
def live(page, tmp_path):
    """``live(picture)`` opens the page that the picture saves, in place of the one before."""
    opened = []

    def leave():
        if opened:
            heard = opened[-1].heard
            heard.end()
            assert heard.errors == []
            own = [request for request in heard.requests if not request.startswith("blob:")]  # a page's worker
            assert own == [opened[-1].path.as_uri()]

    def live(picture, **options):
        leave()
        opened.append(LivePage(page, tmp_path, picture, **options))
        return opened[-1]

    yield live
    leave()


@pytest.fixture(scope="session")
def lab_page(browser):
    """A page for JupyterLab, which takes seconds to load: all tests share it."""
    return browser.new_page(viewport={"width": 1280, "height": 1000})


@pytest.fixture
def open_notebook(lab_page, lab, request):
    """``open_notebook(path)`` shows a notebook of the lab; the one that was shown before is closed."""
    opened = []

    def open_notebook(path):
        close()
        opened.append(NotebookPage(lab_page, lab, path))
        return opened[-1]

    def close():
        if opened:
            notebook = opened.pop()
            if lab_page.url.startswith(lab.address):
                notebook.close()
            lab.end_kernels()

    yield open_notebook
    if getattr(request.node, "failed", False):
        SCREENSHOTS.mkdir(exist_ok=True)
        lab_page.screenshot(path=SCREENSHOTS / f"{request.node.name.replace('/', '_')}.png")
        lab_page.goto("about:blank")  # the next test finds nothing of this one
        lab.end_kernels()
    else:
        close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Tell the fixtures whether the test failed."""
    report = yield
    item.failed = getattr(item, "failed", False) or report.failed
    return report


@pytest.fixture(scope="session")
def usual_errors(lab_page, lab):
    """What JupyterLab writes to the browser's console as an error even on an empty notebook."""
    lab_page.goto("about:blank")
    notebook = NotebookPage(lab_page, lab, lab.write("empty.ipynb", "None"))
    notebook.run_all()
    notebook.close()
    lab.end_kernels()
    return set(notebook.heard.errors)
