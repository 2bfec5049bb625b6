"""A matrix whose rows and columns have names, shown as a table."""

import html
from collections.abc import Sequence

from torch import Tensor

from mha_course.pictures.picture import signed
from mha_course.pictures.shared_with_js import colours

ROLES = ("query", "key", "value")
CELL = "padding:2px 6px;text-align:right;white-space:nowrap"


class NamedTable:
    """Show a matrix as a table with named rows and columns, in which zeros are dots.

    >>> NamedTable(torch.eye(2), rows=["cat", "dog"], columns=["animal", "big"])
         animal  big
    cat       1    ·
    dog       ·    1

    Args:
        matrix: (num_rows, num_columns).
        rows, columns: their names.
        row_roles, column_roles: "query", "key" or "value", one for each name or one for all; a name with a role has
            the role's colour in this course.

    Raises:
        ValueError: the names do not fit the matrix, or roles are none of these or not as many as names.
    """

    def __init__(
        self,
        matrix: Tensor,
        rows: Sequence[str],
        columns: Sequence[str],
        *,
        row_roles: str | Sequence[str] = (),
        column_roles: str | Sequence[str] = (),
    ):
        if tuple(matrix.shape) != (len(rows), len(columns)):
            raise ValueError(
                f"matrix must have shape (rows, columns) = ({len(rows)}, {len(columns)}), got {tuple(matrix.shape)}"
            )
        self.row_styles = _styles("row_roles", row_roles, len(rows))
        self.column_styles = _styles("column_roles", column_roles, len(columns))
        self.rows, self.columns = list(rows), list(columns)
        self.cells = [[_short(number) for number in row] for row in matrix.tolist()]

    def __repr__(self) -> str:
        lines = [["", *self.columns], *([row, *cells] for row, cells in zip(self.rows, self.cells, strict=True))]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines
        )

    def _repr_html_(self) -> str:
        head = "".join(
            f'<th scope="col" style="{style}">{html.escape(name)}</th>'
            for name, style in zip(self.columns, self.column_styles, strict=True)
        )
        body = "".join(
            f'<tr><th scope="row" style="{style}">{html.escape(name)}</th>'
            + "".join(f'<td style="{CELL}">{number}</td>' for number in cells)
            + "</tr>"
            for name, style, cells in zip(self.rows, self.row_styles, self.cells, strict=True)
        )
        return (
            f'<div style="overflow-x:auto"><table style="font-size:12px;margin:0"><thead><tr><td></td>{head}</tr>'
            f"</thead><tbody>{body}</tbody></table></div>"
        )


def _styles(argument: str, roles: str | Sequence[str], count: int) -> list[str]:
    """The style of each name, coloured where it has a role."""
    roles = [roles] * count if isinstance(roles, str) else list(roles)
    if not set(roles) <= set(ROLES) or len(roles) not in (0, count):
        raise ValueError(f"{argument} must be {count} of {', '.join(ROLES)}, got {roles}")
    return [f"{CELL};color:{colours()[f'{role}-anywhere']}" for role in roles] or [CELL] * count


def _short(number: float) -> str:
    """Two decimals at most, a real minus sign, a dot for 0."""
    text = signed(number).rstrip("0").rstrip(".")
    return text if text.strip("0") else "·"
