"""Keys and values of texts that come and go, live, step by step: in one rectangle, and in blocks with a table."""

from collections.abc import Sequence
from typing import Any

import traitlets

from mha_course.pictures.live import LivePicture, Place, choice
from mha_course.pictures.picture import Canvas

ROWS, LONGEST, LINE = 4, 12, 8  # rows of the batch, places of each; places in a line of the drawn memory
PLACES, SIZES = ROWS * LONGEST, [1, 2, 4, 8]
Visit = tuple[int, int, int]  # row, first step, length
Held = tuple[int, int] | None  # text and position, or nothing yet
VISITS: list[Visit] = [
    (0, 0, 12), (1, 0, 8), (2, 1, 10), (3, 2, 5), (3, 7, 7), (1, 8, 10), (2, 11, 3), (0, 12, 4),
]  # fmt: skip
NAMES, STEPS = "ABCDEFGH", max(first + length for _, first, length in VISITS)
CELL, LEFT, TOP, HEAD, TABLE = 24, 46, 64, 14, 6  # of the still picture, in pixels; numbers in a line of a table
KEY = [
    "letters: texts; numbers: positions of the marked text",
    "hatched: keys and values of a text that has left",
]


def token_places(visits: Sequence[Visit], block_size: int, num_places: int) -> list[list[int]]:
    """Return for each text the places of its tokens in a memory that is cut into blocks.

    In each step, each text that is present writes one token; a text whose last block is full takes a free one. A text
    that has ended gives its blocks back before the next step, and the block given back last is taken first.

    Args:
        visits: row, first step and length of each text.
    """
    free = list(reversed(range(num_places // block_size)))
    places: list[list[int]] = [[] for _ in visits]
    for now in range(max(first + length for _, first, length in visits)):
        for own, (_, first, length) in zip(places, visits, strict=True):
            if first + length == now:
                free += [place // block_size for place in own[::block_size]]
        for own, (_, first, length) in zip(places, visits, strict=True):
            if first <= now < first + length:
                own.append(own[-1] + 1 if len(own) % block_size else block_size * free.pop())
    return places


class PagedCacheStepper(LivePicture):
    """Show in a widget where the keys and values of several texts are kept: in a rectangle, and in blocks with a table.

    For learners who want to see what a cache in blocks saves, and which old numbers the mask must hide.

    Args:
        first: first values of the attributes.

    Attributes:
        step: the step of decoding, 0 to 17; each text that is present writes one token.
        block_size: 1, 2, 4 or 8 places.
        row: the row of the batch whose places are marked, 0 to 3.
    """

    module = "paged_cache_stepper"

    step, row = Place(lambda _: STEPS), Place(lambda _: ROWS)
    block_size = choice(traitlets.Enum(SIZES, 4))

    def __init__(self, **first: Any):
        texts = [
            {"name": name, "row": row, "first": start, "length": length}
            for name, (row, start, length) in zip(NAMES, VISITS, strict=True)
        ]
        places = {str(size): token_places(VISITS, size, PLACES) for size in SIZES}
        data = {"texts": texts, "places": places, "longest": LONGEST, "rows": ROWS, "steps": STEPS, "line": LINE}
        super().__init__("A cache in a rectangle and in blocks", data, **{"step": 9, "row": 2, **first})

    def present(self) -> dict[int, int]:
        """Return the text of each row that has one in this step, as row → number of the text."""
        return {row: i for i, (row, first, length) in enumerate(VISITS) if first <= self.step < first + length}

    def contents(self) -> tuple[list[Held], list[Held]]:
        """Return what each place of the rectangle and of the memory in blocks holds: (text, position), or None."""
        rectangle: list[Held] = [None] * PLACES
        memory, places = rectangle.copy(), self.data["places"][str(self.block_size)]
        for now in range(self.step + 1):
            for i, (row, first, length) in enumerate(VISITS):
                if first <= now < first + length:
                    rectangle[row * LONGEST + now - first] = memory[places[i][now - first]] = (i, now - first)
        return rectangle, memory

    def tables(self) -> dict[int, list[int]]:
        """Return the numbers of each row's blocks, in order; a row without a text is left out."""
        own, size = self.data["places"][str(self.block_size)], self.block_size
        counts = {row: self.step - VISITS[i][1] + 1 for row, i in self.present().items()}
        return {row: [p // size for p in own[i][: counts[row] : size]] for row, i in sorted(self.present().items())}

    def draw(self) -> tuple[Canvas, str, str]:
        here, tables, size = self.present(), self.tables(), self.block_size
        rectangle, memory = self.contents()
        tokens = sum(self.step - VISITS[i][1] + 1 for i in here.values())
        taken = size * sum(map(len, tables.values()))
        unused = f"{taken - tokens} unused {'place' if taken - tokens == 1 else 'places'}"
        verdict = f"Blocks of {size} reserve {unused}, the rectangle {PLACES - tokens}"
        right, line = LEFT + LONGEST * CELL + 28, CELL + HEAD
        canvas = Canvas(right + LINE * CELL + 148, TOP + PLACES // LINE * line)
        canvas.text(0, 0, verdict, size=15, colour="text")
        canvas.text(0, TOP - 22, f"step {self.step}, one rectangle: a row for each text", colour="text")
        canvas.text(right, TOP - 22, f"memory in blocks of {size}, and the tables", colour="text")
        for i, held in enumerate(rectangle):
            self._cell(canvas, LEFT + i % LONGEST * CELL, TOP + i // LONGEST * CELL, held)
        for i, held in enumerate(memory):
            self._cell(canvas, right + i % LINE * CELL, TOP + i // LINE * line + HEAD, held)
        for block in range(PLACES // size):
            x, y = right + block * size % LINE * CELL, TOP + block * size // LINE * line
            colour = "soft" if any(block in own for own in tables.values()) else "edge"
            canvas.text(x + 1, y + HEAD - 2, f"{block}", size=10, anchor="ls")
            canvas.box(x, y + HEAD, size * CELL - 1, CELL - 1, line=colour, thickness=2)
        names = {row: f"{row}: {NAMES[here[row]]}" if row in here else f"{row}: –" for row in range(ROWS)}
        for row, name in names.items():
            canvas.text(LEFT - 8, TOP + (row + 0.5) * CELL, name, anchor="rm", colour="text")
            numbers = [str(block) for block in tables.get(row, [])]
            x, y = right + LINE * CELL + 14, TOP + HEAD + 40 * row
            canvas.text(x, y, name, colour="text")
            for start in range(0, len(numbers), TABLE):
                words = " ".join(numbers[start : start + TABLE])
                canvas.text(x + 32, y + 1 + 14 * start // TABLE, words, size=10)
        for line_number, words in enumerate(KEY):
            canvas.text(0, TOP + ROWS * CELL + 14 + 18 * line_number, words)
        told = "; ".join(
            f"row {row}, text {NAMES[here[row]]}: {'block' if len(own) == 1 else 'blocks'} {', '.join(map(str, own))}"
            for row, own in tables.items()
        )
        caption = f"{verdict}. Hatched: numbers of a text that has left, which the mask hides."
        return canvas, f"{verdict}. Step {self.step}, row {self.row} is marked; {told}.", caption

    def _cell(self, canvas: Canvas, x: float, y: float, held: Held) -> None:
        """Draw one place: empty, a token's letter, its position if its row is the marked one, or what was left."""
        is_used = held is not None and held[0] in self.present().values()
        is_marked = is_used and held is not None and VISITS[held[0]][0] == self.row
        fill = "text" if is_marked else "edge" if is_used else "white"
        canvas.box(x, y, CELL - 1, CELL - 1, fill=fill, line="edge")
        if held is None:
            return
        if not is_used:
            canvas.hatch(x, y, CELL - 1)
        word = str(held[1]) if is_marked else NAMES[held[0]]
        ink = "white" if is_marked else "text" if is_used else "soft"
        canvas.text(x + CELL / 2, y + CELL / 2, word, size=11, anchor="mm", colour=ink)
