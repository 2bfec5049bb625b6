"""The picture of attention heads: all of them small, and two large, side by side."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from mha_lib.pictures.heat_maps import grid_shape
from mha_lib.widgets.heat_map import names_height, paint_heat_map, paint_names, paint_scale
from mha_lib.widgets.sheet import Sheet

CHOSEN, OTHER = "#D55E00", "#0072B2"
AVERAGE = "average of all heads"
WIDTH, SMALL, LARGE = 840, 84, 288
LEFT, RIGHT = 100, 484  # where the two large maps begin


@dataclass(frozen=True)
class View:
    """The heads of one layer on one example.

    Attributes:
        weights: (num_heads, num_queries, num_keys).
        masked: bool, (num_queries, num_keys).
        queries, keys: the tokens' names.
        where: which layer and example this is, in words.
    """

    weights: Tensor
    masked: Tensor
    queries: Sequence[str]
    keys: Sequence[str]
    where: str


class Plan:
    """Where the maps stand, for so many heads and for tokens of these names.

    Attributes:
        small, large: size of a cell in the small and in the large maps.
        corners: of the small maps, (left, top).
        large_top: upper edge of the large maps.
        paper: a sheet with everything that is the same for all weights.
    """

    def __init__(self, num_heads: int, queries: Sequence[str], keys: Sequence[str]):
        tokens = max(len(queries), len(keys))
        self.small, self.large = max(1, SMALL // tokens), max(1, LARGE // tokens)
        pitch = max(self.small * len(keys), 56) + 14
        rows, columns = grid_shape(num_heads, (WIDTH - 20) // pitch)
        row_height = self.small * len(queries) + 26
        places = [divmod(number, columns) for number in range(num_heads)]
        self.corners = [(14 + column * pitch, 42 + row * row_height) for row, column in places]
        self.large_top = 58 + rows * row_height
        height = self.large * len(queries)
        self.paper = Sheet(WIDTH, self.large_top + height + names_height(keys, self.large) + 26)
        for number, (left, top) in enumerate(self.corners):
            self.paper.write(left, top - 3, head_name(number), anchor="ld", size=11)
        for left in (LEFT, RIGHT):
            paint_names(self.paper, left, self.large_top, (self.large, self.large), queries, keys)
        paint_scale(self.paper, WIDTH - 58, self.large_top, height)


plan_of = functools.lru_cache(maxsize=8)(Plan)


def paint_heads(view: View, head: int, compare: str) -> Sheet:
    """The picture of a view: ``head`` large, and beside it ``compare``, the name of a head or of the average."""
    plan = plan_of(len(view.weights), tuple(view.queries), tuple(view.keys))
    sheet = plan.paper.copy()
    sheet.write(10, 4, view.where)
    outlines = {compare: OTHER, head_name(head): CHOSEN}
    for number, (weights, (left, top)) in enumerate(zip(view.weights, plan.corners, strict=True)):
        paint_heat_map(sheet, left, top, (plan.small, plan.small), weights, view.masked)
        if head_name(number) in outlines:
            size = plan.small * len(view.keys), plan.small * len(view.queries)
            sheet.outline(left, top, *size, outlines[head_name(number)], 3)
    for name, left, colour in ((head_name(head), LEFT, CHOSEN), (compare, RIGHT, OTHER)):
        paint_heat_map(sheet, left, plan.large_top, (plan.large, plan.large), weights_of(view, name), view.masked)
        sheet.write(left, plan.large_top - 4, name, anchor="ld", size=14, colour=colour)
    return sheet


def read_heads(view: View, head: int, compare: str) -> str:
    """One line on a head: where it is, its strongest links, how far it differs from what stands beside it."""
    weights = view.weights[head]
    differing = 0.5 * (weights - weights_of(view, compare)).abs().sum(dim=-1).mean().item()
    return (
        f"{view.where}, head {head}. Strongest links, query → key: {'; '.join(strongest_links(view, head))}. "
        f"Against {compare}, {differing:.0%} of the weight lies on other keys."
    )


def strongest_links(view: View, head: int, count: int = 5) -> list[str]:
    """The strongest links of a head, "query → key weight", strongest first; those of weight 0 left out."""
    valid = view.weights[head][~view.masked]
    if not valid.any():
        return ["none, as no key is valid"]
    if valid.max() - valid.min() < 1e-4:
        return [f"none, as all weigh the same {valid.max():.2f}"]
    weights, places = view.weights[head].flatten().sort(descending=True, stable=True)
    links = []
    for weight, place in zip(weights[:count].tolist(), places[:count].tolist(), strict=True):
        query, key = divmod(place, len(view.keys))
        if weight > 0:
            links.append(f"{view.queries[query]} → {view.keys[key]} {weight:.2f}")
    return links


def weights_of(view: View, name: str) -> Tensor:
    """The weights of a head by its name, or of the average over all heads."""
    if name == AVERAGE:
        return view.weights.mean(dim=0)
    return view.weights[int(name.removeprefix("head "))]


def head_name(head: int) -> str:
    """What a head is called."""
    return f"head {head}"
