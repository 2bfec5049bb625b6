"""What one average of two things can tell: the six averages of three things in a triangle, joined by role."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from mha_course.pictures.charts import LINES
from mha_course.pictures.picture import Picture

CORNERS = np.array([[0, 0], [1, 0], [0.5, 0.75**0.5]])
ROLES = "before", "after"  # of being the first thing, and of being the second
NAMES_AT = ((-0.04, -0.09), (0.04, -0.09), (0, 0.05))


def mixture_triangle(names: Sequence[str], share: float, *, caption: str | None = None) -> Picture:
    """Draw the weighted means of each two of three vectors in a triangle, to show what one head cannot tell apart.

    A corner is a thing by itself, and a point lies nearer to a corner the more of it the average holds. The two panels
    show the same six points. The left one joins those with the same first thing, the right one those with the same
    second thing. What a linear read-out calls by one name is convex: it can tell the three apart only if their
    segments do not meet.

    Args:
        names: of the three things.
        share: weight of the first thing, strictly between 0 and 1; the second gets the rest.
        caption: what to notice; left out, the reading.

    Raises:
        ValueError: there are not three names, or ``share`` is not between 0 and 1.
    """
    if len(names) != 3:
        raise ValueError(f"names must be three, got {len(names)}: {list(names)}")
    if not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share}")
    figure = Figure(figsize=(7.2, 3.5), layout="constrained")
    meeting = []
    for panel, role, own in zip(figure.subplots(1, 2), ROLES, (share, 1 - share), strict=True):
        panel.fill(*CORNERS.T, fill=False, color="0.7")
        for number, (name, (colour, style), marker) in enumerate(zip(names, LINES, "os^", strict=False)):
            others = CORNERS[[other for other in range(3) if other != number]]
            ends = own * CORNERS[number] + (1 - own) * others
            label = f"{role}: {name}"
            panel.plot(*ends.T, color=colour, linestyle=style, linewidth=2, marker=marker, markersize=7, label=label)
            panel.text(*(CORNERS[number] + NAMES_AT[number]), name, ha="center", fontsize=10)
        panel.text(0.5, 1.07, f"joined by the one {role}", ha="center", fontsize=12)
        panel.set(aspect="equal", xlim=(-0.12, 1.12), ylim=(-0.14, 1.14))
        panel.axis("off")
        panel.legend(loc="upper left", bbox_to_anchor=(0.72, 0.85), fontsize=8, frameon=False)
        # All points of a segment hold the same share of its own thing; two segments meet if both shares fit into 1.
        meeting.append(f"{role}, segments {'meet' if own <= 0.5 else 'stay apart'}")
    what = (
        f"Six averages of {', '.join(names)} in a triangle, {share:.2f} of the one {ROLES[0]} and the rest {ROLES[1]}"
    )
    return Picture(figure, what, f"Joined by the one {'; joined by the one '.join(meeting)}.", caption)
