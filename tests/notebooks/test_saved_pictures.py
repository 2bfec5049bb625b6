"""Every picture that a notebook has saved is read on a page: its smallest letters have ten pixels there.

That no drawing has smaller letters than ten pixels of its own is held by tests/pictures/test_places.py.
"""

import base64
import re

import pytest
from notebook_tools import NOTEBOOKS, REPORTS, TRANSLATED

from mha_course.pictures.picture import PAGE, SCALE, STILL

IMAGE = re.compile(
    rf'class=\\"{STILL}\\" width=\\"(\d+)\\".{{0,99}}?src=\\"data:image/(png|svg\+xml);base64,([\w+/=]+)\\"'
)
SAVED = [*NOTEBOOKS, *REPORTS, *TRANSLATED]


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_letters_of_saved_pictures_have_ten_pixels_on_a_page(path):
    text = path.read_text(encoding="utf-8")
    images = IMAGE.findall(text)
    assert len(images) == text.count(f'class=\\"{STILL}\\"')
    for number, (width, kind, encoded) in enumerate(images):
        image, width = base64.b64decode(encoded), int(width)
        if kind == "png":
            assert int.from_bytes(image[16:20]) == SCALE * width, f"picture {number} is not drawn at its own size"
            smallest = 10.0
        else:
            smallest = min(float(size) for size in re.findall(rb'font(?:-size)?[:=]\s*"?([\d.]+)px', image))
        assert smallest * min(1, PAGE / width) >= 10, f"picture {number} is {width} pixels wide"
