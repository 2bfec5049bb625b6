"""A matrix whose rows and columns have names, for readers who are to read it like a table."""

import html
from collections.abc import Mapping, Sequence

from torch import Tensor

ROLES = {"query": "#c2620f", "key": "#2f7fd1", "value": "#1f9460"}  # 3 : 1 and more on white and on black
CELL = "padding:2px 6px;text-align:right;white-space:nowrap"


class NamedTable:
    """A table in a notebook, with its text twin. Zeros are dots, so that the other numbers stand out.

    Args:
        matrix: (num_rows, num_columns).
        rows, columns: their names.
        roles: row or column name → "query", "key" or "value"; such a name has that colour of this course.

    Raises:
        ValueError: the names do not fit the matrix, or a role is none of these.
    """

    def __init__(
        self, matrix: Tensor, rows: Sequence[str], columns: Sequence[str], *, roles: Mapping[str, str] | None = None
    ):
        if tuple(matrix.shape) != (len(rows), len(columns)):
            raise ValueError(
                f"matrix must have shape (rows, columns) = ({len(rows)}, {len(columns)}), got {tuple(matrix.shape)}"
            )
        self.roles = dict(roles or {})
        for name, role in self.roles.items():
            if role not in ROLES or name not in [*rows, *columns]:
                raise ValueError(f"roles must map a row or column to one of {', '.join(ROLES)}, got {name!r}: {role!r}")
        self.rows, self.columns = list(rows), list(columns)
        self.cells = [[_short(number) for number in row] for row in matrix.tolist()]

    def __repr__(self) -> str:
        lines = [["", *self.columns], *([row, *cells] for row, cells in zip(self.rows, self.cells, strict=True))]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines
        )

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col" style="{self._style(name)}">{html.escape(name)}</th>' for name in self.columns)
        body = "".join(
            f'<tr><th scope="row" style="{self._style(name)}">{html.escape(name)}</th>'
            + "".join(f'<td style="{CELL}">{number}</td>' for number in cells)
            + "</tr>"
            for name, cells in zip(self.rows, self.cells, strict=True)
        )
        return (
            f'<div style="overflow-x:auto"><table style="font-size:12px;margin:0"><thead><tr><td></td>{head}</tr>'
            f"</thead><tbody>{body}</tbody></table></div>"
        )

    def _style(self, name: str) -> str:
        role = self.roles.get(name)
        return CELL + (f";color:{ROLES[role]};border-bottom:2px solid {ROLES[role]}" if role else "")


def _short(number: float) -> str:
    """Two decimals at most, a real minus sign, a dot for 0."""
    text = f"{number:.2f}".rstrip("0").rstrip(".").replace("-", "−")
    return "·" if text in ("0", "−0") else text
