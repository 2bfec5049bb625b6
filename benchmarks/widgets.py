"""How fast live pictures answer in a real browser, and whether they grow: ``python -m benchmarks.widgets``.

Latency is from a key press to the frame that shows what it changed, in one sitting, the ways in turn so that a busy
machine slows all alike. In JupyterLab: the head explorer, and the usual way, ``interact`` on a function that draws with
``plt.subplots``. On a page without a kernel: the head explorer, and a bare canvas that computes the same model and
paints its maps, no more; and a head that is cut in the explorers of the next word and of births, which then computes
all its steps anew. A held key sends 30 presses a second. Then how long such pages take to their first frame, beside
that of the sentence explorer, and the CPU of the page for each key and each step of a drag on the Ring; ``ring`` behind
the command measures only these. Needs Chromium, as the browser tests do. Exits with 1 if a bound does not hold.
"""

import itertools
import math
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from mha_course import pictures
from mha_course.models import find_task, ring_lab, shipped_model, train_on_repeats
from mha_course.pictures.live import as_json, bundle
from tools.lab_page import FLAGS, Lab, NotebookPage

ROOT = Path(__file__).resolve().parents[1]

ROUNDS, MOVES, HELD, RERUNS, MANY, LOADS = 3, 12, 60, 50, 1000, 9
SLIDES = "ArrowRight"  # held, it moves a slider on
MEDIAN_OF_RING, MOST_OF_RING = 8, 16  # milliseconds of CPU
MOST_OF_NAIVE, MOST_OF_CANVAS, MOST_OF_SENTENCES, MOST_OF_CHOICE = 0.1, 2.0, 2.0, 1.8

SETUP = """
from mha_course import pictures
from mha_course.models import find_task, shipped_model, to_images
model, batch = shipped_model("digits"), find_task("digits").held_out
"""
OURS = "pictures.HeadExplorer(model)"
NAIVE = """
import matplotlib.pyplot as plt
from ipywidgets import interact, IntSlider
@interact(example=IntSlider(max=359))
def show(example):
    model(batch.inputs[example : example + 1])
    figure, axes = plt.subplots(2, 6, figsize=(9, 3.4))
    for layer, row in zip(model.attention_weights, axes):
        for head, panel in enumerate(row):
            panel.imshow(layer[0, head, 0, 1:].detach().reshape(4, 4), vmin=0, vmax=0.4)
    plt.show()
"""
KERNEL = """
import gc, psutil
from ipywidgets.widgets import widget
gc.collect()
print(len(widget._instances), psutil.Process().memory_info().rss / 2**20)
"""
CANVAS = """<!doctype html><input type="range" min="0" max="359" value="0"><canvas width="600" height="200"></canvas>
<script type="module">
{module}
const {{ data, gates }} = {state};
const numbers = (name) => Uint8Array.from(atob(data[name].base64), (letter) => letter.charCodeAt(0));
const model = transformer(unpack({{ parameters: numbers("parameters"), shapes: data.shapes }}), data.blocks);
const inputs = integers(numbers("inputs"));
const pen = document.querySelector("canvas").getContext("2d"), slider = document.querySelector("input");
function paint() {{
  const patches = matrix(16, 4);
  inputs.subarray(64 * slider.value, 64 * slider.value + 64).forEach((shade, i) => {{
    patches.data[((i >> 4) * 4 + ((i & 7) >> 1)) * 4 + ((i >> 3) & 1) * 2 + (i & 1)] = shade / 16;
  }});
  model.run({{ patches }}, gates).weights.forEach((heads, layer) => heads.forEach((head, h) => {{
    rowOf(head, 0).subarray(1).forEach((weight, i) => {{
      pen.fillStyle = `hsl(285 60% ${{95 - 200 * Math.min(weight, 0.4)}}%)`;
      pen.fillRect(100 * h + 22 * (i & 3), 100 * layer + 22 * (i >> 2), 21, 21);
    }});
  }}));
  document.body.dataset.shown = slider.value;
}}
slider.addEventListener("input", () => requestAnimationFrame(paint));
paint();
</script>"""

# ``shown`` is what a reader sees of each way, as text that changes with every press. WATCH resolves with the
# milliseconds from the next key press to the frame behind the first one in which it has changed.
SHOWN = """
const shown = (place) => (place.querySelector('.ink') ?? place.querySelector('.reading'))?.outerHTML
    ?? place.querySelector('img')?.src ?? place.closest('body')?.dataset.shown ?? '';
"""
WATCH = f"""
place => {{
    {SHOWN}
    const before = shown(place);
    window.waited = null;
    place.addEventListener('keydown', () => {{
        const start = performance.now();
        const look = () => {{
            if (shown(place) === before) requestAnimationFrame(look);
            else requestAnimationFrame(() => {{ window.waited = performance.now() - start; }});
        }};
        requestAnimationFrame(look);
    }}, {{ once: true, capture: true }});
}}
"""
COUNT = f"""
place => {{
    {SHOWN}
    window.images = new Set();
    const look = () => {{ images.add(shown(place)); requestAnimationFrame(look); }};
    look();
}}
"""


FIRST = """
const look = () => requestAnimationFrame(document.querySelector('.mha-live .reading')?.textContent
    ? () => { window.first = performance.now(); } : look);
look();
"""


class Way:
    """One way to show heads: a place in a page, and a control in it that a key is pressed on."""

    def __init__(self, place, control, *keys):
        self.place, self.page, self.times, self.keys = place, place.page, [], itertools.cycle(keys or [SLIDES])
        self.slides = not keys  # a switch is only turned on and off
        self.control = place.locator(control).first

    def measure(self):
        """A round of moves; the first one warms up."""
        self.control.scroll_into_view_if_needed()
        for number in range(1 + MOVES):
            self.place.evaluate(WATCH)
            self.control.press(next(self.keys))
            self.page.wait_for_function("window.waited !== null", timeout=30_000)
            self.page.wait_for_timeout(400)  # what still moves comes to rest
            if number:
                self.times.append(self.page.evaluate("window.waited"))

    def hold(self):
        """How many different pictures a key held for two seconds shows."""
        self.place.evaluate(COUNT)
        self.control.focus()
        for _ in range(HELD):
            self.page.keyboard.down(SLIDES)
            self.page.wait_for_timeout(33)
        self.page.keyboard.up(SLIDES)
        self.page.wait_for_timeout(500)
        return self.page.evaluate("window.images.size - 1")


def main(only_ring):
    from playwright.sync_api import sync_playwright

    if only_ring:
        with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            return tell(report_ring(ring_repaints(browser, Path(folder))))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        lab = Lab(*(new_folder(folder, name) for name in ("notebooks", "private")))
        try:
            notebook = NotebookPage(browser.new_page(viewport={"width": 1280, "height": 1000}), lab, write(lab))
            notebook.run_all()
            ways = {**ways_in_lab(notebook), **ways_on_pages(browser, Path(folder))}
            for way in list(ways.values()) * ROUNDS:
                way.page.bring_to_front()
                way.measure()
            held = {name: way.hold() for name, way in ways.items() if way.slides and not way.page.bring_to_front()}
            heap, first = heap_growth(ways["page, ours"]), first_frames(browser, Path(folder))
            ring = ring_repaints(browser, Path(folder))
            kernel = kernel_after_reruns(notebook)
        finally:
            browser.close()
            lab.stop()
    return report({name: way.times for name, way in ways.items()}, held, heap, kernel, first, ring)


def report_ring(ring):
    """Print the CPU of each repaint of the Ring; the bounds, and whether they hold."""
    print("Milliseconds of CPU for each repaint of the Ring, median and most:")
    for name, own in ring.items():
        print(f"{name:24}{statistics.median(own):7.1f}{max(own):7.1f}")
    return {
        f"{name}: at most {MEDIAN_OF_RING} ms of CPU at the median, {MOST_OF_RING} at the most": statistics.median(own)
        <= MEDIAN_OF_RING
        and max(own) <= MOST_OF_RING
        for name, own in ring.items()
    }


def tell(bounds):
    """Print which bounds hold; True if one does not."""
    for bound, holds in bounds.items():
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {bound}")
    return not all(bounds.values())


def report(times, held, heap, kernel, first, ring):
    """Print all figures; True if a bound does not hold."""
    print(f"Key press to painted frame in Chromium, {ROUNDS * MOVES} moves each, milliseconds; pictures of a held key")
    print(f"{'':24}{'p50':>7}{'p95':>7}   of {HELD}")
    for name, own in times.items():
        print(
            f"{name:24}{statistics.median(own):7.1f}{statistics.quantiles(own, n=20)[-1]:7.1f}{held.get(name, '–'):>5}"
        )
    print(f"heap of the page after {MANY} moves: {heap:+.1f} MB")
    models, memory = zip(*kernel, strict=True)
    print(f"widget models after one run of the cell and after {RERUNS} more: {models[0]:.0f} and {models[1]:.0f}")
    growth = (memory[1] - memory[0]) / RERUNS
    print(f"megabytes resident in the kernel then: {memory[0]:.0f} and {memory[1]:.0f}, {growth:+.2f} a run")
    print(f"milliseconds from opening a page to its first frame, medians of {LOADS}:", first)
    p50 = {name: statistics.median(own) for name, own in times.items()}
    bounds = {
        f"in the lab at most {MOST_OF_NAIVE} of interact": p50["lab, ours"] <= MOST_OF_NAIVE * p50["lab, interact"],
        **{
            f"{name} at most {MOST_OF_CANVAS} of a bare canvas": p50[name] <= MOST_OF_CANVAS * p50["page, canvas"]
            for name in ("page, ours", "page, next word", "page, births")
        },
        **{
            f"first frame of {name} at most {MOST_OF_SENTENCES} of the sentence explorer's": first[name]
            <= MOST_OF_SENTENCES * first["sentence"]
            for name in ("next word", "births")
        },
        f"another number of heads at most {MOST_OF_CHOICE} of another head": p50["layer, num_heads"]
        <= MOST_OF_CHOICE * p50["layer, one of its heads"],
        "no more models after many runs": models[0] == models[1],
    }
    return tell(bounds | report_ring(ring))


def new_folder(folder, name):
    path = Path(folder, name)
    path.mkdir()
    return path


def write(lab):
    return lab.write("pictures.ipynb", SETUP, OURS, NAIVE, KERNEL)


def ways_in_lab(notebook):
    """The head explorer and a naive ``interact`` in JupyterLab."""
    cells = notebook.panel.locator(".jp-Cell")
    notebook.panel.locator("section.mha-live").wait_for(timeout=30_000)
    return {
        "lab, ours": Way(cells.nth(1).locator(".jp-Cell-outputArea"), "input[type=range]"),
        "lab, interact": Way(cells.nth(2).locator(".jp-Cell-outputArea"), ".noUi-handle"),
    }


def ways_on_pages(browser, folder):
    """The head explorer and a bare canvas on pages without a kernel."""
    explorer = pictures.HeadExplorer(shipped_model("digits"))
    ours = pictures.save_html(explorer, folder / "ours.html")
    bare = folder / "canvas.html"
    bare.write_text(
        CANVAS.format(
            module=bundle("transformer.js").replace("export ", ""), state=as_json(explorer.page_data()["state"])
        )
    )
    ways = {}
    for name, path in (("page, ours", ours), ("page, canvas", bare)):
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(path.as_uri())
        ways[name] = Way(page.locator("body"), "input[type=range]")
    for name, control in (("next word", ".head-cell"), ("births", ".switch")):
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(pictures.save_html(picture(name), folder / f"{name}.html").as_uri())
        ways[f"page, {name}"] = Way(page.locator("body"), control, "Enter")
    model = shipped_model("lookups")
    X = model.get_submodule("embedding")(find_task("lookups").held_out.inputs[:2])
    layer = pictures.LayerExplorer(model.attentions[0], X, X)
    for name, control in (("num_heads", "[aria-label=num_heads]"), ("one of its heads", ".small[aria-pressed=true]")):
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(pictures.save_html(layer, folder / "layer.html").as_uri())
        back, forth = (
            (["ArrowLeft"] * 2, ["ArrowRight"] * 2) if name == "num_heads" else (["ArrowLeft"], ["ArrowRight"])
        )
        ways[f"layer, {name}"] = Way(page.locator("body"), control, *forth, *back)
    return ways


def picture(name):
    """A live picture that computes nothing at first but what it shows."""
    if name == "births":
        return pictures.BirthExplorer(train_on_repeats(keep=range(20), progress=False))
    return {"next word": pictures.NextWordExplorer, "sentence": pictures.SentenceExplorer}[name]()


def first_frames(browser, folder):
    """Milliseconds from opening a page of each kind to the first frame in which its line is written: medians."""
    names = "sentence", "next word", "births"
    paths = {name: pictures.save_html(picture(name), folder / f"first {name}.html") for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    for name in names * (1 + LOADS):  # the first round warms up
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.add_init_script(FIRST)
        page.goto(paths[name].as_uri())
        page.wait_for_function("window.first", timeout=30_000)
        times[name].append(page.evaluate("window.first"))
        page.close()
    return {name: round(statistics.median(own[1:])) for name, own in times.items()}


FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))"


def ring_repaints(browser, folder):
    """CPU of the page's main thread for each key and each step of a drag along the rim, with four and twelve heads, and
    of the laboratory.

    All states are seen once before: what a head is worth is counted between frames, and then is known. What a key that
    moves nothing costs is taken off; it is the measuring itself.
    """
    times: dict[str, list[float]] = {}
    shown = {f"{heads} heads": pictures.RingExplorer(num_heads=heads) for heads in (4, 12)}
    for heads, explorer in {**shown, "a model": pictures.RingExplorer(ring_lab())}.items():
        context = browser.new_context(viewport={"width": 1280, "height": 1000}, reduced_motion="reduce")
        page = context.new_page()
        page.goto(pictures.save_html(explorer, folder / f"ring {heads}.html").as_uri())
        knob, ring = page.locator(".ring-knob"), page.locator(".ring").bounding_box()
        session = context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def cpu(session=session):
            found = session.send("Performance.getMetrics")["metrics"]
            return next(1000 * one["value"] for one in found if one["name"] == "TaskDuration")

        def to(length, page=page, ring=ring):
            angle = 2 * math.pi * (length - 0.5) / 12
            x, y = (ring[start] + ring[side] / 2 for start, side in (("x", "width"), ("y", "height")))
            page.mouse.move(x + 0.46 * ring["width"] * math.sin(angle), y - 0.46 * ring["height"] * math.cos(angle))

        keys = [lambda key=key, knob=knob: knob.press(key) for key in ["ArrowLeft"] * 8 + ["ArrowRight"] * 8]
        drags = [lambda length=length: to(length) for length in [*range(11, 3, -1), *range(5, 13)]]
        idle = 0.0
        for name, moves in (("idle", [lambda knob=knob: knob.press("Shift")] * 8), ("key", keys), ("drag", drags)):
            if name == "drag":
                knob.hover()
                page.mouse.down()
            own = times[f"{name}, {heads}"] = []
            for number in range(3):
                for move in moves:
                    before = cpu()
                    move()
                    page.evaluate(FRAMES)
                    if number:
                        own.append(cpu() - before - idle)
                    else:
                        page.wait_for_function("!document.querySelector('.mha-live [aria-busy]')", timeout=60_000)
            if name == "idle":
                idle = statistics.median(times.pop(f"idle, {heads}"))
        context.close()
    return times


def heap_growth(way):
    """Megabytes that many moves add to the heap of a page, after a collection of garbage before and behind."""
    session = way.page.context.new_cdp_session(way.page)

    def used():
        session.send("HeapProfiler.collectGarbage")
        return session.send("Runtime.getHeapUsage")["usedSize"] / 2**20

    before = used()
    for number in range(MANY):
        way.control.press("ArrowRight" if number % 600 < 300 else "ArrowLeft")
    return used() - before


def kernel_after_reruns(notebook):
    """Widget models and megabytes that the kernel holds now, and after its cell has been run again and again."""

    def count():
        run(notebook, 3)
        return [float(number) for number in "".join(notebook.code_cells()[3]["outputs"][0]["text"]).split()]

    before = count()
    for _ in range(RERUNS):
        run(notebook, 1)
    return before, count()


def run(notebook, cell):
    notebook.do(
        f"jupyterapp.shell.currentWidget.content.activeCellIndex = {cell};"
        "await jupyterapp.commands.execute('notebook:run-cell')"
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(only_ring=sys.argv[1:] == ["ring"]))
