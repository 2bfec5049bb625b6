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
STEPS = range(0, 401, 20)  # of the film: the training steps that are shown
FRAME, WHOLE, LIT = 200, 1500, 2000  # milliseconds of a frame, of all chords, and of one letter's: at both ends
QUALITY, MOST_BYTES = 50, 500_000  # of a film
# What is there to be touched.
HIDDEN = ".ring-opening > p { display: none !important }"
# What the workers of both trainings say is held back until a frame asks for a step.
HOLD = """
const held = [];
window.Worker = class extends Worker {
    set onmessage(hear) { super.onmessage = event => held.push({ step: event.data.step, tell: () => hear(event) }); }
};
window.upTo = async step => {
    const frame = () => new Promise(requestAnimationFrame);
    while (held.filter(one => one.step === step).length < 2) await frame();
    for (const one of held) if (one.step <= step) one.tell?.(one.tell = null);
    await frame();
    await frame();
};
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
            film(frames(browser, ring, scheme), FOLDER / f"ring_{scheme}.webp")
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


def opened(browser, picture, width, scale, scheme, motion):
    """A page that shows a picture; ``width`` is that of the picture itself."""
    page = browser.new_page(
        viewport={"width": width + 24, "height": 1000},
        device_scale_factor=scale,
        color_scheme=scheme,
        reduced_motion=motion,
    )
    page.add_init_script(HOLD)
    with tempfile.TemporaryDirectory() as folder:
        page.goto(pictures.save_html(picture, Path(folder, "page.html")).as_uri())
    page.locator(".mha-live").wait_for()
    return page


def shot(browser, picture, width, scale, scheme):
    """A picture's saved page as a PNG, without motion."""
    page = opened(browser, picture, width, scale, scheme, "reduce")
    page.wait_for_function("!document.querySelector('.mha-live [aria-busy]')")
    png = page.locator(".mha-live").screenshot(style=HIDDEN)
    page.close()
    return png


def frames(browser, ring, scheme):
    """Images and their milliseconds: one head and four train, then all chords, then one letter's, as at the start."""
    page, images = opened(browser, ring, WIDTH, 1, scheme, "no-preference"), []

    def take():
        png = page.locator(".mha-live").screenshot(style=HIDDEN, animations="disabled")
        images.append(Image.open(io.BytesIO(png)).convert("RGB"))

    for step in STEPS:
        page.evaluate("step => upTo(step)", step)
        take()
    page.locator(".ring-side.lit").first.wait_for()
    take()
    page.close()
    *training, whole, lit = images
    return [(lit, LIT), *((image, FRAME) for image in training), (whole, WHOLE), (lit, LIT)]


def film(shown, path):
    """Write frames of one size as an animated WebP that goes on for ever."""
    images, times = zip(*shown, strict=True)
    images[0].save(path, save_all=True, append_images=images[1:], duration=times, loop=0, quality=QUALITY, method=3)


if __name__ == "__main__":
    main()
