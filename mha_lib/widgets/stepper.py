"""Step through ``transpose_qkv`` and back with numbers that carry their own address."""

from collections.abc import Iterator, Mapping

from ipywidgets import Button, Checkbox, IntSlider, ValueWidget

from mha_lib.attention.shape_trace import (
    FOLDED,
    SPLIT,
    TOKENS,
    Step,
    read_tag,
    spell_out,
    tagged_tokens,
    trace_transpose_output,
    trace_transpose_qkv,
    trace_wrong_reshape,
)
from mha_lib.pictures.picture import head_colour
from mha_lib.pictures.shape_tables import PIECE_GAP, row_pitch, table_height, table_width, tables_of
from mha_lib.widgets.explorer import Explorer, bound, slider
from mha_lib.widgets.sheet import Sheet, tint

WIDTH, CELL_WIDTH, CELL_HEIGHT, LINE = 840, 34, 22, 19
WRONG_TABLE = "#C00000"


def transpose_stepper() -> Explorer:
    """The moves of ``transpose_qkv`` and of its inverse, one at a time, or the tempting wrong reshape."""

    def paint(step: int, **choices: int) -> tuple[Sheet, str]:
        steps = moves(**choices)
        return paint_step(steps, step, choices["num_heads"]), read_step(steps, step, choices["num_heads"])

    def limit(controls: Mapping[str, ValueWidget]) -> None:
        values = {name: control.value for name, control in controls.items() if name != "step"}
        bound(controls["step"], len(moves(**values)) - 1)
        back.disabled = controls["step"].value == 0
        forward.disabled = controls["step"].value == controls["step"].max

    def move(by: int) -> None:
        controls["step"].value += by

    back = Button(description="back", tooltip="one step back")
    forward = Button(description="forward", tooltip="one step forward")
    back.on_click(lambda _: move(-1))
    forward.on_click(lambda _: move(1))
    controls = {
        "wrong": Checkbox(description="wrong reshape", indent=False, tooltip="reshape without the permute"),
        "batch_size": slider(IntSlider, "batch", min=1, max=3, value=2, tooltip="examples"),
        "num_tokens": slider(IntSlider, "tokens", min=1, max=6, value=4, tooltip="tokens of each example"),
        "num_heads": slider(IntSlider, "heads", min=1, max=4, value=2, tooltip="heads"),
        "head_size": slider(IntSlider, "features per head", min=1, max=4, value=3, tooltip="num_hiddens / num_heads"),
        "step": slider(IntSlider, "step", tooltip="how many moves have been made"),
    }
    return Explorer("Numbers on their way through transpose_qkv", controls, paint, limit, [back, forward])


def moves(wrong: bool, batch_size: int, num_tokens: int, num_heads: int, head_size: int) -> list[Step]:
    """The start and what every move, there and back, makes of it."""
    X = tagged_tokens(batch_size, num_tokens, num_heads, head_size)
    if wrong:
        steps = trace_wrong_reshape(X, num_heads).steps
        return [*steps, Step("back: reshape", TOKENS, steps[-1].tensor.reshape(X.shape))]
    steps = trace_transpose_qkv(X, num_heads).steps
    inverse = trace_transpose_output(steps[-1].tensor, num_heads).steps[1:]
    return [*steps, *(Step(f"back: {step.operation}", step.axes, step.tensor) for step in inverse)]


def paint_step(steps: list[Step], current: int, num_heads: int) -> Sheet:
    """The list of all steps with their shapes, and the numbers as they stand at the current one."""
    top = 16 + LINE * len(steps)
    heights = [places(step, num_heads)[-1][1] + pixel_height(tables_of(step)[0][1]) for step in steps]
    sheet = Sheet(WIDTH, top + max(heights) + 40)
    for number, step in enumerate(steps):
        y = 4 + number * LINE
        if number == current:
            sheet.fill(0, y, 560, LINE, "#DDE9F5")
        texts = {8: str(number), 30: step.operation, 140: str(tuple(step.tensor.shape)), 240: ", ".join(step.axes)}
        for x, text in texts.items():
            sheet.write(x, y + LINE / 2, text, anchor="lm")
    for head in range(num_heads):
        sheet.fill(600, 6 + head * LINE, 14, 14, tint(head_colour(head)))
        sheet.write(620, 4 + (head + 0.5) * LINE, f"head {head}", anchor="lm")
    step = steps[current]
    tables = tables_of(step)
    for number, ((_, rows), (left, y)) in enumerate(zip(tables, places(step, num_heads), strict=True)):
        sheet.write(left, top + y - 3, table_name(step, number, num_heads), anchor="ld", size=11, colour="0.3")
        paint_table(sheet, left, top + y, rows)
        if step.axes == FOLDED:
            outline_strangers(sheet, left, top + y, rows, number % num_heads)
    address = spell_out(int(step.tensor.max()))
    sheet.write(8, sheet.pixels.shape[0] - 4, address, anchor="ld", size=11, colour="0.3")
    return sheet


def places(step: Step, num_heads: int) -> list[tuple[int, int]]:
    """Where the step's tables stand, side by side as long as they fit."""
    x, y, corners = 8, 20, []
    for number, (_, rows) in enumerate(tables_of(step)):
        name_width = 7 * len(table_name(step, number, num_heads))
        width = max(round(table_width(rows) * CELL_WIDTH), name_width)
        if x + width > WIDTH and corners:
            x, y = 8, y + pixel_height(rows) + 28
        corners.append((x, y))
        x += width + 18
    return corners


def pixel_height(rows: list[list[list[int]]]) -> int:
    """The height of a table."""
    return round(table_height(rows) * CELL_HEIGHT)


def row_top(rows: list[list[list[int]]], y: int) -> int:
    """How far below its table's upper edge row y begins."""
    return round(y * row_pitch(rows) * CELL_HEIGHT)


def table_name(step: Step, number: int, num_heads: int) -> str:
    """The index of a table in the step's tensor, and what it holds."""
    if step.axes in (TOKENS, SPLIT):
        return f"[{number}] example {number}"
    example, head = divmod(number, num_heads)
    index = f"[{number}]" if step.axes == FOLDED else f"[{example}, {head}]"
    return f"{index} example {example}, head {head}"


def cells(left: int, top: int, rows: list[list[list[int]]]) -> Iterator[tuple[int, int, int]]:
    """Every number of a table with the corner of its cell; groups within a row stand a little apart."""
    for y, row in enumerate(rows):
        x = left
        for group in row:
            for tag in group:
                yield tag, x, top + row_top(rows, y)
                x += CELL_WIDTH
            x += round(PIECE_GAP * CELL_WIDTH)


def paint_table(sheet: Sheet, left: int, top: int, rows: list[list[list[int]]]) -> None:
    """The numbers of a table; the colour of a cell is its number's head. A row of several groups gets a frame."""
    if len(rows[0]) > 1:
        width = round(table_width(rows) * CELL_WIDTH) + 3
        for y in range(len(rows)):
            sheet.outline(left - 2, top + row_top(rows, y) - 2, width, CELL_HEIGHT + 3, "0.35")
    for tag, x, y in cells(left, top, rows):
        sheet.fill(x, y, CELL_WIDTH - 1, CELL_HEIGHT - 1, tint(head_colour(read_tag(tag)[2])))
        sheet.write(x + CELL_WIDTH / 2, y + CELL_HEIGHT / 2, f"{tag:04d}", anchor="mm", size=11)


def is_stranger(tag: int, head: int) -> bool:
    """Whether a number is in the table of a head that is not its own (no reshape brings it into another example's)."""
    return read_tag(tag)[2] != head


def outline_strangers(sheet: Sheet, left: int, top: int, rows: list[list[list[int]]], head: int) -> None:
    """Outline the numbers that are in the wrong table."""
    for tag, x, y in cells(left, top, rows):
        if is_stranger(tag, head):
            sheet.outline(x + 2, y + 2, CELL_WIDTH - 5, CELL_HEIGHT - 5, WRONG_TABLE, 2)


def read_step(steps: list[Step], current: int, num_heads: int) -> str:
    """One line on the current step: its move, its shape, and whether every number is in the right table."""
    step = steps[current]
    shape = f"{tuple(step.tensor.shape)}, {', '.join(step.axes)}"
    return f"Step {current} of {len(steps) - 1}, {step.operation}: {shape}. {read_tables(steps, current, num_heads)}"


def read_tables(steps: list[Step], current: int, num_heads: int) -> str:
    """What became of the heads' numbers."""
    step, start = steps[current], steps[0].tensor
    if step.axes in (TOKENS, SPLIT):
        if current == len(steps) - 1:
            return "Every number is back at its start. After the wrong reshape it is too: a round trip proves nothing."
        return "Every token holds the numbers of all heads."
    tables = step.tensor.reshape(-1, *step.tensor.shape[-2:]).flatten(start_dim=1).tolist()
    strangers = sum(is_stranger(tag, table % num_heads) for table, tags in enumerate(tables) for tag in tags)
    if strangers:
        return f"{strangers} of {start.numel()} numbers are in the wrong table, outlined: they belong to another head."
    return "Every table holds the numbers of one head of one example."
