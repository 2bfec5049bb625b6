"""A switch for every head over the accuracy of all their sets, live: what a head is worth in company."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor

from mha_course.heads.coalitions import best_sets, random_pruning_curve, top_k_sets, worst_sets
from mha_course.pictures.live import Heads, LivePicture, OneOf, pack
from mha_course.pictures.picture import Canvas, signed

MOST_HEADS = 12  # the page gets a number for each of their 4,096 sets
FIRST = 5  # so many heads are on at first: fewer than all, so that what each is worth differs
BEST, WORST = "the best set", "the worst set"
LINE, NAME, BAR = 19, 116, 110  # of the still picture, in pixels: a line's height, a name's width, the longest bar


class HeadSwitches(LivePicture):
    """Show in a widget a model's accuracy as heads are switched off, compared with the sets importance measures keep.

    For learners who want to see that a head's worth depends on the heads beside it.

    Args:
        values: (2**N,), the accuracy with every set of the N heads, as ``evaluate_all`` gives it.
        measures: importance by name, (num_layers, num_heads) each; heads are counted row by row. Which of equals is
            kept longer is drawn once.
        first: first values of the attributes.

    Attributes:
        by: a measure, "the best set" or "the worst set": what the slider keeps heads by.
        cut: the heads that are switched off, each as (layer, head); at first all but the five that the first measure
            keeps.

    Raises:
        ValueError: there is no measure, measures differ in shape, or ``values`` are not one score for every set of
            at most 12 heads.
    """

    module = "head_switches"

    by, cut = OneOf(lambda self: self.orders), Heads()

    def __init__(self, values: Tensor, measures: Mapping[str, Tensor], **first: Any):
        shapes = {tuple(measure.shape) for measure in measures.values()}
        if len(shapes) != 1 or len(next(iter(shapes))) != 2:
            raise ValueError(f"measures must have one shape (num_layers, num_heads), got {sorted(shapes)}")
        (self.shape,) = shapes
        count, self.values = self.shape[0] * self.shape[1], values.detach().float()
        if count > MOST_HEADS or values.shape != (2**count,) or not ((values >= 0) & (values <= 1)).all():
            raise ValueError(
                f"values must be a score from 0 to 1 for every set of at most {MOST_HEADS} heads, got shape "
                f"{tuple(values.shape)} for {count} heads"
            )
        kept = {BEST: best_sets(values), **{name: top_k_sets(own) for name, own in measures.items()}}
        self.orders = {name: sets.tolist() for name, sets in (kept | {WORST: worst_sets(values)}).items()}
        self.means = random_pruning_curve(values).tolist()
        data = pack({"values": self.values}) | {"orders": self.orders, "means": self.means}
        data |= {"layers": self.shape[0], "heads": self.shape[1]}
        by = next(iter(measures))
        on = self.orders[by][min(FIRST, count)]
        self.places = list(product(*map(range, self.shape)))
        cut = [place for i, place in enumerate(self.places) if not on >> i & 1]
        super().__init__("What heads are worth in company", data, **{"by": by, "cut": cut, **first})

    def kept(self) -> int:
        """Return the number of the set of heads that are on."""
        return sum(2**i for i, place in enumerate(self.places) if list(place) not in self.cut)

    def worth(self, kept: int) -> Tensor:
        """Return what each head adds to the others of a set, or would add: with it minus without it, (num_heads,)."""
        heads = 2 ** torch.arange(len(self.means) - 1)
        return self.values[kept | heads] - self.values[kept & ~heads]

    def draw(self) -> tuple[Canvas, str, str]:
        kept, places, at = self.kept(), self.places, 2 * NAME + 50
        size, lines = kept.bit_count(), max(len(places), len(self.orders) + 1) + 2
        by_name = {name: self.values[sets[size]].item() for name, sets in self.orders.items()}
        by_name["mean of all sets"] = self.means[size]
        canvas = Canvas(at + NAME + BAR + 40, lines * LINE)
        state = f"{size} of {len(places)} heads are on: {self.values[kept]:.2f} right, with all {self.values[-1]:.2f}"
        canvas.text(0, 0, state, colour="text")
        canvas.text(NAME, LINE, "worth here (with all)", size=10)
        canvas.text(at + NAME, LINE, f"what {size} heads keep", size=10)
        worth = zip(places, self.worth(kept).tolist(), self.worth(len(self.values) - 1).tolist(), strict=True)
        for i, ((layer, head), here, beside_all) in enumerate(worth, start=2):
            off, colour = (" off", "wrong") if [layer, head] in self.cut else ("", "soft")
            canvas.text(0, i * LINE, f"layer {layer}, head {head}{off}", size=11, colour=colour)
            canvas.text(NAME + 8, i * LINE, f"{signed(here)} ({signed(beside_all)})", size=11)
        for i, (name, value) in enumerate(by_name.items(), start=2):
            canvas.text(at + NAME - 8, i * LINE, name, size=11, anchor="ra")
            canvas.box(at + NAME, i * LINE, max(value * BAR, 1), 12, fill="soft")
            canvas.text(at + NAME + BAR + 6, i * LINE, f"{value:.2f}", size=11)
        told = ", ".join(f"{name} {value:.2f}" for name, value in by_name.items())
        heads = [f"layer {layer}, head {head}" for layer, head in places if [layer, head] not in self.cut]
        on = f" On: {'; '.join(heads)}." if 0 < size < len(places) else ""
        return canvas, f"{state}.{on} As many heads keep: {told}.", f"{state}."
