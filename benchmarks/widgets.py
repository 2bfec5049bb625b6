"""How fast the head explorer answers in a real browser, and whether any widget grows: ``python benchmarks/widgets.py``.

Latency is from the key press on a slider to the first frame that shows what it changed. Beside the head explorer stand
the usual way (``@interact`` on a function that draws with ``plt.subplots``) and the floor: the same slider moving a
plain label. All run in one JupyterLab, one after the other, again and again, so that a busy machine slows all alike.
Needs Chromium, as the browser tests do. Exits with 1 if a bound does not hold.
"""

import gc
import random
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser"), str(ROOT / "tests" / "unit")]

from conftest import FLAGS  # noqa: E402
from lab_page import Lab, NotebookPage  # noqa: E402
from widget_tools import GALLERY, random_move  # noqa: E402

SIZES = {"4 heads × 10 tokens": (4, 10), "16 heads × 20 tokens": (16, 20)}
ROUNDS, MOVES = 3, 10
MEMORY_MOVES, WARM_UP = 1000, 300
MOST_TIMES_FLOOR, LEAST_GAIN, MOST_GROWTH = 2.0, 3.0, 5.0

DATA = """
import torch
weights = torch.softmax(3 * torch.randn(40, {heads}, {tokens}, {tokens}), dim=-1)
"""
OURS = """
from mha_lib import widgets
widgets.head_explorer([weights])
"""
NAIVE = """
import matplotlib.pyplot as plt
from ipywidgets import interact, IntSlider
@interact(example=IntSlider(max=39))
def show(example):
    figure, axes = plt.subplots({rows}, 4, figsize=(8, 2 * {rows}), squeeze=False)
    for head, panel in enumerate(axes.flat):
        panel.imshow(weights[example, head], vmin=0, vmax=1)
        panel.set_title(f"head {{head}}")
    plt.show()
"""
FLOOR = """
from ipywidgets import IntSlider, Label, VBox
slider, label = IntSlider(max=39), Label("0")
slider.observe(lambda change: setattr(label, "value", f"example {{change.new}}"), "value")
label.add_class("floor")
VBox([slider, label])
"""
WAYS = {"ours": OURS, "naive": NAIVE, "floor": FLOOR}

# Resolves with the milliseconds from the next key press to the first frame after what is shown has changed; counts
# the frames on the way, and those without a complete picture.
WAIT_FOR_CHANGE = """
output => {
    const shown = () => (output.querySelector('img')?.src ?? output.querySelector('.floor')?.textContent);
    const before = shown();
    window.move = { frames: 0, missing: 0, milliseconds: null };
    output.addEventListener('keydown', () => {
        const start = performance.now();
        const look = () => {
            const image = output.querySelector('img');
            move.frames += 1;
            if (image ? !image.complete || !image.naturalWidth : !shown()) move.missing += 1;
            else if (shown() !== before) { move.milliseconds = performance.now() - start; return; }
            requestAnimationFrame(look);
        };
        requestAnimationFrame(look);
    }, { once: true, capture: true });
}
"""


def main():
    latencies, missing = measure_latencies()
    print(f"Key press to new picture in Chromium, {ROUNDS * MOVES} moves each, milliseconds")
    print(f"{'':22}{'way':8}{'p50':>6}{'p95':>6}  frames without a picture")
    for (size, way), times in latencies.items():
        print(f"{size:22}{way:8}{median(times):6.0f}{late(times):6.0f}  {missing[size, way]}")
    growths = {name: measure_growth(make) for name, make in GALLERY.items()}
    print(f"\n{MEMORY_MOVES} random moves after {WARM_UP}: growth of resident memory in MB, open figures")
    for name, (growth, figures) in growths.items():
        print(f"{name:22}{growth:6.1f}{figures:4d}")
    broken = list(broken_bounds(latencies, missing, growths))
    print("\n" + "\n".join(broken or ["All bounds hold."]))
    return bool(broken)


def measure_latencies():
    """Milliseconds of every move, and the number of frames without a picture, by size and way."""
    from playwright.sync_api import sync_playwright

    latencies: dict[tuple[str, str], list[float]] = {(size, way): [] for size in SIZES for way in WAYS}
    missing = dict.fromkeys(latencies, 0)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        places = [Path(folder, name) for name in ("notebooks", "private")]
        for place in places:
            place.mkdir()
        lab = Lab(*places)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        try:
            for size, (heads, tokens) in SIZES.items():
                cells = [text.format(heads=heads, tokens=tokens, rows=heads // 4) for text in (DATA, *WAYS.values())]
                page = browser.new_page(viewport={"width": 1280, "height": 1000})
                notebook = NotebookPage(page, lab, lab.write(f"{heads}.ipynb", *cells))
                notebook.run_all()
                for way in list(WAYS) * ROUNDS:
                    for move in measure_moves(notebook, 1 + list(WAYS).index(way)):
                        latencies[size, way].append(move["milliseconds"])
                        missing[size, way] += move["missing"]
                page.close()
                lab.end_kernels()
        finally:
            browser.close()
            lab.stop()
    return latencies, missing


def measure_moves(notebook, cell):
    """Press the arrow key on the slider of a cell, again and again, each time waiting for what it changes."""
    output = notebook.panel.locator(".jp-Cell").nth(cell).locator(".jp-Cell-outputArea")
    output.scroll_into_view_if_needed()
    handle = output.locator(".noUi-handle").first
    handle.focus()
    for number in range(1 + MOVES):
        output.evaluate(WAIT_FOR_CHANGE)
        handle.press("ArrowRight")
        notebook.page.wait_for_function("window.move.milliseconds !== null", timeout=30_000)
        notebook.page.wait_for_timeout(150)
        if number > 0:
            yield notebook.page.evaluate("window.move")


def measure_growth(make):
    """Megabytes that random moves add to the process, and how many matplotlib figures are open afterwards."""
    figures = count_figures()
    explorer, chooser = make(), random.Random(0)
    for _ in range(WARM_UP):
        random_move(explorer, chooser)
    before = resident_megabytes()
    for _ in range(MEMORY_MOVES):
        random_move(explorer, chooser)
    return resident_megabytes() - before, count_figures() - figures


def resident_megabytes():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def count_figures():
    gc.collect()
    return sum(type(thing) is Figure for thing in gc.get_objects())


def median(times):
    return statistics.median(times)


def late(times):
    """The 95th percentile."""
    return statistics.quantiles(times, n=20, method="inclusive")[-1]


def broken_bounds(latencies, missing, growths):
    """One line for every bound that does not hold."""
    p50 = {key: median(times) for key, times in latencies.items()}
    for size in SIZES:
        times_floor = p50[size, "ours"] / p50[size, "floor"]
        if times_floor > MOST_TIMES_FLOOR:
            yield f"{size}: {times_floor:.1f} times the floor, more than {MOST_TIMES_FLOOR}"
        if missing[size, "ours"]:
            yield f"{size}: {missing[size, 'ours']} frames without a picture"
    gain = p50["16 heads × 20 tokens", "naive"] / p50["16 heads × 20 tokens", "ours"]
    if gain < LEAST_GAIN:
        yield f"16 heads × 20 tokens: {gain:.1f} times as fast as the naive way, less than {LEAST_GAIN}"
    for name, (growth, figures) in growths.items():
        if growth >= MOST_GROWTH or figures > 1:
            yield f"{name}: grows by {growth:.1f} MB, {figures} open figures"


if __name__ == "__main__":
    sys.exit(main())
