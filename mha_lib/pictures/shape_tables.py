"""Tensors of tagged numbers as tables: where every number goes when heads are split."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mha_lib.attention.shape_trace import ShapeTrace, Step, read_tag, spell_out
from mha_lib.pictures.picture import Picture, head_colour

# Where a token's row is cut into its heads' pieces, in cells: between the pieces, and between the tokens.
PIECE_GAP, TOKEN_GAP = 0.3, 0.4


def tagged_numbers(trace: ShapeTrace) -> Picture:
    """Where every number of ``tagged_tokens`` stands at each step of a trace; the colour is the number's head.

    Args:
        trace: steps of ``transpose_qkv``, of its inverse, or of the wrong reshape, on tagged tokens.

    Raises:
        ValueError: the trace has no steps.
    """
    if not trace.steps:
        raise ValueError("trace must have at least one step, got none")
    tables = [tables_of(step) for step in trace.steps]
    heights = [max(table_height(rows) for _, rows in group) + 1.7 for group in tables]
    width = max(sum(table_width(rows) + 1 for _, rows in group) for group in tables)
    figure = Figure(figsize=(max(0.42 * width, 6.2), 0.42 * sum(heights) + 0.4), layout="constrained")
    axes = figure.subplots(len(tables), 1, height_ratios=heights, squeeze=False)[:, 0]
    for panel, step, group, height in zip(axes, trace.steps, tables, heights, strict=True):
        panel.set(xlim=(0, width), ylim=(height - 1.6, -0.9), aspect="equal", anchor="W")
        panel.axis("off")
        title = f"{step.operation}: {tuple(step.tensor.shape)}  ({', '.join(step.axes)})"
        panel.set_title(title, loc="left", fontsize=9, pad=3)
        x = 0.0
        for name, rows in group:
            draw_table(panel, x, name, rows)
            x += table_width(rows) + 1
    heads = sorted({read_tag(tag)[2] for tag in trace.steps[0].tensor.flatten().tolist()})
    handles = [Rectangle((0, 0), 1, 1, color=head_colour(head), alpha=0.55, label=f"head {head}") for head in heads]
    last = int(trace.steps[0].tensor.flatten()[-1])
    handles.append(Rectangle((0, 0), 0, 0, alpha=0, label=spell_out(last)))
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), fontsize=8, frameon=False)
    what = "Tagged numbers at each step: " + " → ".join(str(tuple(step.tensor.shape)) for step in trace.steps)
    return Picture(figure, what, read_tables(trace.steps[-1]))


def tables_of(step: Step) -> list[tuple[str, list[list[list[int]]]]]:
    """A step's tensor as named tables; a table is a list of rows, a row a list of groups of numbers side by side."""
    X = step.tensor
    if X.dim() == 3:
        return [(f"[{i}]", [[row] for row in table]) for i, table in enumerate(X.tolist())]
    if step.axes[1] == "heads":
        return [
            (f"[{i}, {h}]", [[row] for row in table])
            for i, example in enumerate(X.tolist())
            for h, table in enumerate(example)
        ]
    return [(f"[{i}]", example) for i, example in enumerate(X.tolist())]


def table_width(rows: list[list[list[int]]]) -> float:
    """Width of a table in cells; groups within a row stand a little apart."""
    return sum(len(group) for group in rows[0]) + PIECE_GAP * (len(rows[0]) - 1)


def table_height(rows: list[list[list[int]]]) -> float:
    """Height of a table in cells; rows that are cut into groups stand apart, since each is one token's."""
    return (len(rows) - 1) * row_pitch(rows) + 1


def row_pitch(rows: list[list[list[int]]]) -> float:
    """How far down in cells the next row begins."""
    return 1 + TOKEN_GAP * (len(rows[0]) > 1)


def draw_table(panel: Axes, x: float, name: str, rows: list[list[list[int]]]) -> None:
    """Draw a table of tagged numbers with its left upper corner at (x, 0); a row of several groups gets a frame."""
    panel.text(x, -0.25, name, fontsize=8, color="0.35")
    for number, row in enumerate(rows):
        left, y = x, number * row_pitch(rows)
        if len(row) > 1:
            corner, width = (x - 0.1, y - 0.1), table_width(rows) + 0.2
            panel.add_patch(Rectangle(corner, width, 1.2, fill=False, edgecolor="0.35", clip_on=False))
        for group in row:
            for tag in group:
                colour = head_colour(read_tag(tag)[2])
                panel.add_patch(Rectangle((left, y), 1, 1, facecolor=colour, alpha=0.55, edgecolor="white"))
                panel.text(left + 0.5, y + 0.52, f"{tag:04d}", ha="center", va="center", fontsize=7)
                left += 1
            left += PIECE_GAP


def read_tables(step: Step) -> str:
    """One line on where the heads' numbers ended up, counted from the tensor."""
    if step.axes[-1] != "features":
        return "Every token holds all its heads side by side."
    tables = step.tensor.reshape(-1, *step.tensor.shape[-2:])
    mixed = sum(len({read_tag(tag)[2] for tag in table.flatten().tolist()}) > 1 for table in tables)
    if mixed:
        return f"{mixed} of {len(tables)} tables mix numbers of different heads."
    return f"Each of the {len(tables)} tables holds the numbers of one head of one example."
