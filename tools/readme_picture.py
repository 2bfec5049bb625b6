"""Take the pictures on README as a browser shows them: from 1 to 4 heads as a film, light and dark, and the sentence.

And the image that stands beside a link to the site.

    .venv/bin/python -m tools.readme_picture

Needs Chromium, as the browser tests do.
"""

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image, ImageOps
from playwright.sync_api import sync_playwright

from mha_course import pictures
from tools.site_source import SHARED_IMAGE

FOLDER = Path(__file__).resolve().parents[1] / "img"
HEADS, SECONDS, LAST = (1, 2, 3, 4), 2, 4  # of the film: its frames, how long each is shown, and the last one
WIDTH, SCALE, COLOURS = 735, 1.5, 96
WIDEST, SHARED = 980, (1200, 630)  # of the image beside a link: the picture's width, and its own pixels


def main():
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        sentence = pictures.SentenceExplorer(query=9, layer=1, head=3)
        (FOLDER / "sentence_explorer.png").write_bytes(shot(browser, sentence, 796, 2, "light"))
        for scheme in ("light", "dark"):
            shots = (shot(browser, pictures.NumHeadsExplorer(num_heads=heads), WIDTH, SCALE, scheme) for heads in HEADS)
            film([Image.open(io.BytesIO(one)).convert("RGB") for one in shots], FOLDER / f"num_heads_{scheme}.gif")
        hero = Image.open(io.BytesIO(shot(browser, pictures.NumHeadsExplorer(num_heads=4), WIDEST, 2, "light")))
        shared(hero.convert("RGB")).save(FOLDER / SHARED_IMAGE, optimize=True)
        browser.close()


def shared(hero):
    """The image beside a link that is shared: the whole picture, on a sheet of the size that chats show."""
    sheet = Image.new("RGB", SHARED, hero.getpixel((hero.width // 2, hero.height - 20)))
    fitted = ImageOps.contain(hero, SHARED, Image.Resampling.LANCZOS)
    sheet.paste(fitted, ((SHARED[0] - fitted.width) // 2, 0))
    return sheet.quantize(256, dither=Image.Dither.NONE)


def shot(browser, picture, width, scale, scheme):
    """A picture's saved page as a PNG; ``width`` is that of the picture itself."""
    page = browser.new_page(
        viewport={"width": width + 24, "height": 1000},
        device_scale_factor=scale,
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    with tempfile.TemporaryDirectory() as folder:
        page.goto(pictures.save_html(picture, Path(folder, "page.html")).as_uri())
        png = page.locator(".mha-live").screenshot()
    page.close()
    return png


def film(frames, path):
    """Write frames of one width as a GIF that goes on for ever; shorter ones get the ground of their lower edge."""
    tallest = max(frame.height for frame in frames)
    sheets = []
    for frame in frames:
        sheet = Image.new("RGB", (frame.width, tallest), frame.getpixel((frame.width // 2, frame.height - 20)))
        sheet.paste(frame)
        sheets.append(sheet)
    strip = Image.new("RGB", (sheets[0].width, tallest * len(sheets)))
    for i, sheet in enumerate(sheets):
        strip.paste(sheet, (0, i * tallest))
    palette = strip.quantize(COLOURS)  # one for all frames, so that no colour flickers
    few = [sheet.quantize(palette=palette, dither=Image.Dither.NONE) for sheet in sheets]
    times = [1000 * SECONDS] * (len(few) - 1) + [1000 * LAST]
    few[0].save(path, save_all=True, append_images=few[1:], duration=times, loop=0, optimize=True)


if __name__ == "__main__":
    main()
