"""Every live picture and every page of the site in Firefox and WebKit: `make test-browsers`, and always in CI.

The file's name keeps it out of `make test`, which has Chromium.
"""

import functools
import json
import shutil

import pytest
from engines import CrashError, Firefox, WebKit, serve
from picture_cases import CASES, LOOKS, NEXT_FRAME, moved_and_idle
from PIL import ImageChops
from test_site import SITE, SIZES, STORIES

from mha_course import exercises, pictures

ALIVE = "() => document.querySelectorAll('section.mha-live').length"
SEARCHES = "() => document.querySelector('.mha-live [aria-busy]') !== null"
FROM_ELSEWHERE = """
() => performance.getEntriesByType("resource").map(entry => entry.name)
    .filter(name => !name.startsWith(location.origin))
"""
# The middle of the visible part of an element, or three quarters along a slider; null where there is no such element.
PLACE = """
(kind, number) => {
    const node = document.querySelectorAll(`.mha-live ${kind}`)[number];
    if (!node || !node.getClientRects().length) return null; // what is folded is not clicked
    node.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    const { left, top, width, height } = node.getBoundingClientRect();
    return [left + width * (node.type === "range" ? 0.77 : 0.5), top + height / 2];
}
"""
MOUSE = ("svg .cell", "input[type=range]:enabled", "button:enabled:not([aria-pressed=true])", "[role=switch]")


@pytest.fixture(
    scope="session",
    params=[pytest.param(kind, marks=pytest.mark.xdist_group(kind.__name__)) for kind in (Firefox, WebKit)],
    ids=lambda kind: kind.__name__,
)
def engine(request, tmp_path_factory):
    missing = [program for program in request.param.programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{request.param.__name__} needs {', '.join(missing)}, which README says how to install")
    engine = request.param(tmp_path_factory.mktemp("profile"))
    yield engine
    engine.stop()


def in_a_browser_that_lives(test):
    """Begin a test anew, in a new browser, where the browser has crashed; the third crash is the test's failure."""

    @functools.wraps(test)
    def begin(engine, **arguments):
        for _ in range(2):
            try:
                return test(engine, **arguments)
            except CrashError:
                engine.stop()
                engine.start()
        return test(engine, **arguments)

    return begin


@pytest.fixture(scope="session")
def shown(tmp_path_factory):
    """The address of a folder with every picture's saved page."""
    folder = tmp_path_factory.mktemp("pictures")
    for name, case in CASES.items():
        pictures.save_html(case(), folder / f"{name}.html")
    with serve(folder) as address:
        yield address


@pytest.fixture(scope="session")
def site():
    if not (SITE / "index.html").exists():
        pytest.skip("there is no site: run `make site`")
    with serve(SITE) as address:
        yield address


def looks(engine):
    """A number for what a reader sees when nothing is searched for any more: the same for the same."""
    engine.evaluate(NEXT_FRAME)
    engine.wait_until(lambda: not engine.evaluate(SEARCHES))
    return engine.evaluate(LOOKS)


@pytest.mark.parametrize("name", CASES)
@in_a_browser_that_lives
def test_a_picture_draws_and_moves_by_keyboard(engine, shown, name):
    engine.resize(1200, 900)
    engine.open(f"{shown}/{name}.html")
    looks(engine)  # once all that is computed is there
    drawn = engine.screenshot()
    moved, idle = moved_and_idle(engine.evaluate, engine.press, functools.partial(looks, engine))
    assert idle == []
    assert moved
    assert ImageChops.difference(drawn.convert("L"), engine.screenshot().convert("L")).getbbox(), (
        "nothing is drawn anew"
    )
    assert engine.evaluate("() => heard") == []


@pytest.mark.parametrize("name", CASES)
@in_a_browser_that_lives
def test_a_picture_moves_by_mouse(engine, shown, name):
    """Of each kind of things that one can click, one that answers is enough: some show what is shown already."""
    engine.resize(1200, 900)
    engine.open(f"{shown}/{name}.html")
    seen, answered = [looks(engine)], {}

    def changes(place):
        engine.click(*place)
        seen.append(looks(engine))
        return seen[-1] != seen[-2]

    for kind in MOUSE:
        for number in range(6):
            if place := engine.evaluate(PLACE, kind, number):
                answered[kind] = answered.get(kind, False) or changes(place)
    assert answered and all(answered.values()), answered
    assert engine.evaluate("() => heard") == []


@pytest.mark.parametrize("width", SIZES.values())
@pytest.mark.parametrize("stem", ["index", "library/attention", "alone/02_scoring_functions-0", *STORIES])
@in_a_browser_that_lives
def test_a_page_of_the_site_lives(engine, site, stem, width):
    engine.resize(width, 900)
    engine.open(f"{site}/{stem}.html")
    kept = engine.evaluate("() => document.querySelectorAll('script[data-mha-state]').length")
    engine.wait_until(lambda: engine.evaluate(ALIVE) == kept)
    assert engine.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    assert engine.evaluate("() => heard") == []
    assert engine.evaluate(FROM_ELSEWHERE) == []


@pytest.mark.parametrize("where", ["served", "from disk"])
@in_a_browser_that_lives
def test_an_exercise_is_checked_on_its_page(engine, tmp_path, where):
    path = exercises.page("transpose_qkv", tmp_path)
    with serve(tmp_path) as address:
        engine.open(path.as_uri() if where == "from disk" else f"{address}/{path.name}")
        engine.wait_until(lambda: engine.evaluate("() => document.body.dataset.ready"))
        for returned, state in (("return ", "right"), ("return 1 + ", "wrong")):
            engine.evaluate("word => { put(SHOWN.solution.replace('return ', word)); check(); }", returned)
            said = engine.wait_until(lambda: engine.evaluate("() => document.body.dataset.verdict"))
            assert json.loads(said)["state"] == state
        assert engine.evaluate("() => document.querySelector('#said').getAttribute('aria-busy')") == "false"
        assert engine.evaluate("() => document.querySelectorAll('section.mha-live').length") == 1


# Returns when the notebook that has just been opened has a kernel that takes work.
READY = """
async () => {
    const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
    await context?.ready;
    await context?.session.kernel.info;
    return Boolean(context);
}
"""


@in_a_browser_that_lives
def test_a_picture_lives_in_jupyterlab(engine, lab):
    path = lab.write("one_picture.ipynb", "from mha_course import pictures\npictures.TransposeStepper()")
    engine.resize(1200, 900)
    engine.open(f"{lab.address}/lab/tree/{path}?reset&token={lab.token}")
    engine.wait_until(lambda: engine.evaluate(READY))
    engine.evaluate("() => void jupyterapp.commands.execute('notebook:run-all-cells')")
    engine.wait_until(lambda: engine.evaluate(ALIVE) == 1)
    moved, idle = moved_and_idle(engine.evaluate, engine.press, functools.partial(looks, engine))
    assert idle == []
    assert moved
    lab.end_kernels()
