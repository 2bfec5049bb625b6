"""The Han characters that pictures of the course need, as a small font for each language: python -m tools.fonts

Taken from Noto Sans CJK (SIL Open Font License 1.1), which must be installed; only the letters of the catalogues.
"""

import subprocess

from fontTools import subset
from fontTools.ttLib import TTFont

from tools import translations

FOLDER = translations.COURSE / "pictures" / "fonts"
FACES = {"zh": "Noto Sans CJK SC", "ja": "Noto Sans CJK JP"}  # language → face
PLAIN = "".join(map(chr, range(32, 127))) + "·×→−√…“”（），：；、。%"


def letters(language):
    """All letters of what code says in a language."""
    texts = []
    for stem, other in translations.catalogues():
        if other == language:
            words, code = translations.translated(stem, language), translations.of_code(stem)
            texts += [words[block] for block in words.keys() & code]
    return "".join(sorted({*PLAIN, *"".join(texts)}))


def write(language):
    """Write the font of a language."""
    asked = ["fc-match", "--format=%{file}\n%{index}", f"{FACES[language]}:style=Regular"]
    file, number = subprocess.check_output(asked, text=True).split("\n")
    face = TTFont(file, fontNumber=int(number), lazy=True)
    options = subset.Options(layout_features=[], hinting=False, name_IDs=[0, 1, 2, 3, 4, 5, 6, 13, 14])
    maker = subset.Subsetter(options)
    maker.populate(text=letters(language))
    maker.subset(face)
    FOLDER.mkdir(exist_ok=True)
    face.save(FOLDER / f"{language}.otf")
    print(language, (FOLDER / f"{language}.otf").stat().st_size, "bytes")


if __name__ == "__main__":
    for name in FACES:
        write(name)
