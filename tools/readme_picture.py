"""Take the pictures on README as a browser shows them: the Ring as a film, light and dark, and the sentence.

And the image that stands beside a link to the site. What the pictures say is written beside them, in ``words.json``, so
that a test sees when their words are newer than the images.

    .venv/bin/python -m tools.readme_picture

Needs Chromium, as the browser tests do.
"""

import hashlib
import io
import json
import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image, ImageOps

from mha_course import pictures
from tools.site_source import SHARED_IMAGE
from tools.strings import of_javascript

FOLDER = Path(__file__).resolve().parents[1] / "img"
WORDS = FOLDER / "words.json"
WIDTH, WIDEST, SHARED = (
    735,
    980,
    (1200, 630),
)  # of the film; of the image beside a link: the picture, and its own pixels
MODELS = {1: range(40, 401, 72), 4: range(0, 401, 40)}  # of the film: heads, and the training steps that are shown
FRAME, END = 240, 2400  # milliseconds of a frame, and of the last one of each model
QUALITY, MOST_BYTES = 40, 500_000  # of a film
# Lets a scrubber show a training step, waits until all figures are there, and leaves of the curve what is known then.
SCRUB = """
async share => {
    const node = document.querySelector('.ring-course [role=slider]');
    const { left, top, width } = node.getBoundingClientRect();
    node.setPointerCapture = () => {};
    node.dispatchEvent(new PointerEvent('pointerdown', { clientX: left + share * width, clientY: top + 5 }));
    const frame = () => new Promise(requestAnimationFrame);
    for (await frame(), await frame(); document.querySelector('[aria-busy]'); await frame());
    await frame();
    const curve = document.querySelector('.curve-of.gated'), points = curve.getAttribute('d').split('L');
    curve.setAttribute('d', points.slice(0, 1 + Math.round(share * (points.length - 1))).join('L'));
    for (const name of document.querySelectorAll('.loss.named b')) name.style.opacity = share < 1 ? 0 : 1;
}
"""


def shown():
    """The pictures on README, by name."""
    return {"ring": pictures.RingExplorer(), "sentence": pictures.SentenceExplorer(query=9, layer=1, head=3)}


def words():
    """By picture, the hash of all that it says: its text twin, and the messages of its module."""
    said = {
        name: [repr(one), *of_javascript(pictures.live.MODULES / f"{one.module}.js")] for name, one in shown().items()
    }
    return {name: hashlib.sha256("\n".join(texts).encode()).hexdigest() for name, texts in said.items()}


def main():
    from playwright.sync_api import sync_playwright  # the test of the words needs no browser

    os.environ["MHA_LANGUAGE"] = "en"  # whatever was chosen last in a notebook
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        ring, sentence = shown().values()
        (FOLDER / "sentence_explorer.png").write_bytes(shot(browser, sentence, 796, 2, "light"))
        for scheme in ("light", "dark"):
            film(frames(browser, scheme), FOLDER / f"ring_{scheme}.webp")
        hero = Image.open(io.BytesIO(shot(browser, ring, WIDEST, 2, "light")))
        shared(hero.convert("RGB")).save(FOLDER / SHARED_IMAGE, optimize=True)
        browser.close()
    WORDS.write_text(json.dumps(words(), indent=1) + "\n", encoding="utf-8")


def shared(hero):
    """The image beside a link that is shared: the whole picture, on a sheet of the size that chats show."""
    sheet = Image.new("RGB", SHARED, hero.getpixel((hero.width // 2, hero.height - 20)))
    fitted = ImageOps.contain(hero, SHARED, Image.Resampling.LANCZOS)
    sheet.paste(fitted, ((SHARED[0] - fitted.width) // 2, 0))
    return sheet.quantize(256, dither=Image.Dither.NONE)


def opened(browser, picture, width, scale, scheme, folder):
    """A page that shows a picture without motion; ``width`` is that of the picture itself."""
    page = browser.new_page(
        viewport={"width": width + 24, "height": 1000},
        device_scale_factor=scale,
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    page.goto(pictures.save_html(picture, Path(folder, "page.html")).as_uri())
    page.wait_for_function("document.querySelector('.mha-live') && !document.querySelector('[aria-busy]')")
    return page


def shot(browser, picture, width, scale, scheme):
    """A picture's saved page as a PNG."""
    with tempfile.TemporaryDirectory() as folder:
        page = opened(browser, picture, width, scale, scheme, folder)
        png = page.locator(".mha-live").screenshot()
    page.close()
    return png


def frames(browser, scheme):
    """Images and their milliseconds: the Ring trains one head, and then four."""
    with tempfile.TemporaryDirectory() as folder:
        page = opened(browser, pictures.RingExplorer(num_heads=1), WIDTH, 1, scheme, folder)
    for heads, steps in MODELS.items():
        page.get_by_role("button", name=f"{heads} head").click()
        page.get_by_role("button", name="train here").click()
        page.get_by_text("step 400 of 400").wait_for(timeout=300_000)
        for step in steps:
            page.evaluate(SCRUB, step / 400)
            image = Image.open(io.BytesIO(page.locator(".mha-live").screenshot())).convert("RGB")
            yield image, END if step == steps[-1] else FRAME
    page.close()


def film(shown, path):
    """Write frames of one size as an animated WebP that goes on for ever."""
    images, times = zip(*shown, strict=True)
    images[0].save(path, save_all=True, append_images=images[1:], duration=times, loop=0, quality=QUALITY, method=3)


if __name__ == "__main__":
    main()
