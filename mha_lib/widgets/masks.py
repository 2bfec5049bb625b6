"""From scores through the mask to the weights, and three ways to mask side by side."""

import math
from collections.abc import Mapping

import torch
from ipywidgets import FloatLogSlider, IntSlider, ValueWidget
from torch import Tensor

from mha_lib.attention import masked_softmax, valid_keys
from mha_lib.widgets.explorer import Explorer, bound, choice, slider
from mha_lib.widgets.heat_map import paint_heat_map, paint_numbers, paint_scale
from mha_lib.widgets.sheet import Sheet

WIDTH, FIRST, ROW = 840, 46, 30
COLUMNS, COLUMN_WIDTH = (46, 314, 582), 222
PER_EXAMPLE, PER_QUERY, NO_LENGTHS = "one per example", "one per query", "None"
SHIFTS = {"nothing": 0.0, "−3,000,000": -3e6}
SAFE, LOW_FILL, INFINITE_FILL = "masked_softmax", "masked scores set to −1e6", "masked scores set to −∞"
HEAD_SIZE = 16


def mask_explorer(scores: Tensor | None = None) -> Explorer:
    """Scores, mask and weights of one example: move the lengths, the divisor and the scores' level.

    Args:
        scores: (batch, num_queries, num_keys), at most 6 queries and 6 keys; left out, dot products of random
            queries and keys of 16 numbers, for which the divisor √16 = 4 is the usual one.

    Raises:
        ValueError: ``scores`` has another shape.
    """
    divisor = 1.0
    if scores is None:
        scores, divisor = random_scores(), math.sqrt(HEAD_SIZE)
    if scores.dim() != 3 or max(scores.shape[1:]) > 6 or not scores.numel():
        raise ValueError(
            "scores must have shape (batch, num_queries, num_keys) with at most 6 queries and 6 keys, "
            f"got {tuple(scores.shape)}"
        )
    scores = scores.detach().double()
    batch_size, num_queries, num_keys = scores.shape

    def paint(example: int, kind: str, divisor: float, shift: str, length: int, **lengths: int) -> tuple[Sheet, str]:
        valid_lens = {
            NO_LENGTHS: None,
            PER_EXAMPLE: torch.tensor([length]),
            PER_QUERY: torch.tensor([list(lengths.values())]),
        }[kind]
        shown = scores[example] / divisor
        masking = Masking(shown + SHIFTS[shift], valid_lens)
        level = f"scores ÷ {divisor:.3g}" + ("" if shift == "nothing" else f" {shift}")
        given = None if valid_lens is None else valid_lens.tolist()
        reading = f"Example {example}, {level}, valid_lens {given}. {masking.read()}"
        return paint_masking(masking, shown, level.replace("−", "− ")), reading

    def limit(controls: Mapping[str, ValueWidget]) -> None:
        kind = controls["kind"].value
        controls["length"].disabled = kind != PER_EXAMPLE
        for query in range(num_queries):
            controls[f"length_{query}"].disabled = kind != PER_QUERY

    controls = {
        "example": slider(IntSlider, "example", tooltip="which one of the batch"),
        "divisor": slider(
            FloatLogSlider,
            "divide scores by",
            base=2,
            min=-2,
            max=5,
            step=0.5,
            value=divisor,
            readout_format=".2f",
            tooltip="the temperature; scaled dot-product attention takes the square root of the queries' size",
        ),
        "shift": choice("then add", list(SHIFTS), tooltip="to all scores alike, which the softmax does not notice"),
        "kind": choice("valid_lens", [PER_EXAMPLE, PER_QUERY, NO_LENGTHS], tooltip="how lengths are given"),
        "length": length_slider("valid_len", num_keys, num_keys // 2),
    }
    bound(controls["example"], batch_size - 1)
    for query in range(num_queries):
        value = max(num_keys - 2 * query, 0)
        controls[f"length_{query}"] = length_slider(f"valid_len, query {query}", num_keys, value)
    return Explorer("Scores, mask and weights", controls, paint, limit)


def length_slider(description: str, num_keys: int, value: int) -> IntSlider:
    """A slider for a valid length."""
    return slider(IntSlider, description, max=num_keys, value=value, tooltip="how many keys count, from the first on")


def random_scores() -> Tensor:
    """Dot products of random queries and keys: (2, 4, 6), not yet divided by the root of their size."""
    generator = torch.Generator().manual_seed(3)
    queries, keys = (torch.randn(2, number, HEAD_SIZE, generator=generator) for number in (4, 6))
    return queries @ keys.mT


class Masking:
    """What three ways to mask make of the same scores.

    Args:
        scores: (num_queries, num_keys).
        valid_lens: None, (1,) or (1, num_queries).

    Attributes:
        masked: bool, (num_queries, num_keys).
        weights: by way, (num_queries, num_keys); NaN where a way fails.
    """

    def __init__(self, scores: Tensor, valid_lens: Tensor | None):
        self.masked = torch.zeros_like(scores, dtype=torch.bool)
        if valid_lens is not None:
            self.masked = ~valid_keys(valid_lens, scores.shape[1])[0].expand(scores.shape)
        self.weights = {
            SAFE: masked_softmax(scores[None], valid_lens)[0],
            LOW_FILL: torch.softmax(scores.masked_fill(self.masked, -1e6), dim=-1),
            INFINITE_FILL: torch.softmax(scores.masked_fill(self.masked, -math.inf), dim=-1),
        }

    def leak(self, way: str) -> float:
        """The largest share of a row's weight that lies on masked keys; NaN if a row is NaN."""
        return self.weights[way].masked_fill(~self.masked, 0).sum(dim=-1).max().item()

    def verdict(self, way: str) -> str:
        """What becomes of the masked keys."""
        rows = int(self.weights[way].isnan().any(dim=-1).sum())
        if rows:
            return f"NaN in {rows} row" + "s" * (rows > 1)
        leak = self.leak(way)
        return "no weight on masked keys" if leak < 0.005 else f"up to {leak:.2f} of a row's weight on masked keys"

    def read(self) -> str:
        """One line: what each way makes of the masked keys, and which queries have none to read."""
        empty = self.masked.all(dim=-1).nonzero().flatten().tolist()
        verdicts = "; ".join(f"{way}: {self.verdict(way)}" for way in self.weights)
        return f"{verdicts}. Queries without a valid key: {', '.join(map(str, empty)) or 'none'}."


def paint_masking(masking: Masking, scores: Tensor, level: str) -> Sheet:
    """Scores, mask and weights above; the two other ways to mask below."""
    num_queries, num_keys = scores.shape
    cell = (COLUMN_WIDTH // num_keys, ROW)
    height = ROW * num_queries
    second = FIRST + height + 70
    sheet = Sheet(WIDTH, second + height + 24)
    paint_scores(sheet, COLUMNS[0], cell, level, scores, torch.zeros_like(masking.masked))
    paint_scores(sheet, COLUMNS[1], cell, "mask", scores, masking.masked)
    for way, left, top in zip(masking.weights, (COLUMNS[2], *COLUMNS[1:]), (FIRST, second, second), strict=True):
        weights = masking.weights[way]
        paint_heat_map(sheet, left, top, cell, weights, masking.masked)
        paint_numbers(sheet, left, top, cell, weights, 2, weights > 0.5)
        name_cells(sheet, left, top, cell, way, scores.shape)
        sheet.write(left, top + height + 4, masking.verdict(way), size=11, colour="0.3")
        right = left + cell[0] * num_keys + 4
        sheet.write(right, top - 3, "sum", anchor="ld", size=10, colour="0.3")
        for query, total in enumerate(weights.sum(dim=-1).tolist()):
            text = "NaN" if math.isnan(total) else f"{total:.2f}"
            sheet.write(right, top + (query + 0.5) * ROW, text, anchor="lm", size=10, colour="0.3")
    paint_scale(sheet, COLUMNS[0], second, height)
    for line, text in enumerate(("rows: queries", "columns: keys", "hatched: masked")):
        sheet.write(COLUMNS[0] + 80, second + 20 * line, text, size=11, colour="0.3")
    return sheet


def paint_scores(sheet: Sheet, left: int, cell: tuple[int, int], title: str, scores: Tensor, masked: Tensor) -> None:
    """A panel of scores in black and white."""
    none = torch.zeros_like(scores)
    paint_heat_map(sheet, left, FIRST, cell, none, masked)
    paint_numbers(sheet, left, FIRST, cell, scores, 1, none > 0)
    name_cells(sheet, left, FIRST, cell, title, scores.shape)


def name_cells(sheet: Sheet, left: int, top: int, cell: tuple[int, int], title: str, shape: tuple[int, int]) -> None:
    """The title of a panel, and the numbers of its queries and keys."""
    sheet.write(left, top - 20, title, anchor="ld", size=13)
    for key in range(shape[1]):
        sheet.write(left + (key + 0.5) * cell[0], top - 3, str(key), anchor="md", size=10, colour="0.3")
    for query in range(shape[0]):
        sheet.write(left - 5, top + (query + 0.5) * cell[1], str(query), anchor="rm", size=10, colour="0.3")
