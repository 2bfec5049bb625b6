"""The quiz bank as a file in the format GIFT, for Moodle and others: ``python -m classroom.quiz`` (make quiz).

Each prediction of the notebooks for which ``mha_course/checking/choices.csv`` has answers is a question. Behind a wrong
answer stands where its misconception is met, which a learner sees who chose it. The format:
https://docs.moodle.org/en/GIFT_format.
"""

import re
from pathlib import Path

from mha_course.checking.quiz_bank import bank

FILE = Path(__file__).resolve().parents[1] / "build" / "quiz.gift"
KINDS = {  # of a source → what a learner reads
    "QUESTIONS ": "See the forty questions, number ",
    "museum ": "See the bug museum (notebook 10), room ",
    "mistakes: ": "A known mistake in code: ",
}


def escaped(text: str) -> str:
    """Return a text in which GIFT reads no character as a sign of its own."""
    return re.sub(r"([~=#{}:\\])", r"\\\1", text)


def told(source: str) -> str:
    """Return in words where a misconception is met."""
    for kind, words in KINDS.items():
        if source.startswith(kind):
            return f"{words}{source.removeprefix(kind)}."
    return f"See notebook {source}."


def gift() -> str:
    """Return the whole bank, a category for each notebook."""
    lines, category = [], ""
    for name, item in bank().items():
        if name[:2] != category:
            category = name[:2]
            lines.append(f"$CATEGORY: $course$/top/Attention/Notebook {category}\n")
        wrong = "".join(f"\t~{escaped(text)}#{escaped(told(source))}\n" for text, source in item.wrong.items())
        lines.append(f"::{escaped(name)}::[markdown]{escaped(item.question)}{{\n\t={escaped(item.right)}\n{wrong}}}\n")
    return "\n".join(lines)


def main() -> None:
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(gift(), encoding="utf-8")
    print(f"{len(bank())} questions: {FILE}")


if __name__ == "__main__":
    main()
