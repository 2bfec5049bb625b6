"""Scores, mask and weights, live, with two other ways to mask beside ``masked_softmax``."""

import math
from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_lib.attention import masked_softmax
from mha_lib.pictures.heat_maps import draw_scores, masked_keys
from mha_lib.pictures.live import LivePicture, Numbers, Place, checked_lengths, choice
from mha_lib.pictures.picture import Canvas

HEAD_SIZE = 16
SHIFTS = (0, -3_000_000)
MOST = 6


class MaskExplorer(LivePicture):
    """Show what ``valid_lens`` does to scores and weights, with −∞ or with a too small fill.

    For learners who want to see why ``masked_softmax`` is written as it is.

    Args:
        scores: (batch, num_queries, num_keys), at most 6 queries and 6 keys; left out, dot products of random queries
            and keys of 16 numbers, for which the divisor √16 = 4 is the usual one.
        first: first values of the attributes.

    Attributes:
        numbers: "scores", as lists; they can be changed, and their shape stays.
        example: which example's scores are shown.
        divisor: what the scores are divided by, from 1/4 to 32.
        shift: what is then added to all scores, 0 or −3,000,000; the softmax does not notice.
        valid_lens: None, one length, or one for each query; a tensor will do. At first they fall to 0.

    Raises:
        ValueError: ``scores`` has another shape.
    """

    module = "mask_explorer"

    numbers, example = Numbers(), Place(lambda self: len(self.numbers["scores"]))
    divisor, shift = choice(traitlets.Float(1.0, min=0.25, max=32)), choice(traitlets.Enum(SHIFTS, 0))
    valid_lens = choice(traitlets.Any(None, allow_none=True))

    def __init__(self, scores: Tensor | None = None, **first: Any):
        if scores is None:
            scores, first = random_scores(), {"divisor": math.sqrt(HEAD_SIZE), **first}
        if scores.dim() != 3 or max(scores.shape[1:]) > MOST or not scores.numel():
            raise ValueError(
                "scores must have shape (batch, num_queries, num_keys) with at most 6 queries and 6 keys, "
                f"got {tuple(scores.shape)}"
            )
        self.shapes = {"scores": tuple(scores.shape)}
        _, num_queries, num_keys = scores.shape  # from all keys down to none, where the other ways fail
        falling = [num_keys * (num_queries - query - 1) // max(num_queries - 1, 1) for query in range(num_queries)]
        choices = {"numbers": {"scores": scores.detach()}, "valid_lens": falling, **first}
        super().__init__("Scores, mask and weights", {"sizes": list(scores.shape)}, **choices)

    @property
    def scores(self) -> Tensor:
        """The scores as they are now: (batch, num_queries, num_keys)."""
        return torch.tensor(self.numbers["scores"])

    @traitlets.validate("valid_lens")
    def _validate_valid_lens(self, proposal):
        _, num_queries, num_keys = self.scores.shape
        value = proposal["value"]
        plain = value.item() if isinstance(value, Tensor) and not value.dim() else value
        need = f"None, a whole number from 0 to {num_keys}, or {num_queries} of them"
        if plain is None or isinstance(plain, int):
            return None if plain is None else checked_lengths([plain], 1, num_keys, need)[0]
        return checked_lengths(plain, num_queries, num_keys, need)

    def weights(self) -> Tensor:
        """Return what ``masked_softmax`` makes of the present state: (num_queries, num_keys)."""
        scores = self.scores[self.example : self.example + 1].double() / self.divisor + self.shift
        lengths = None if self.valid_lens is None else torch.tensor([self.valid_lens])
        return masked_softmax(scores, lengths)[0]

    def draw(self) -> tuple[Canvas, str, str]:
        weights, lengths = self.weights(), None if self.valid_lens is None else torch.tensor(self.valid_lens)
        scaled, by = self.scores[self.example] / self.divisor, f"scores ÷ {self.divisor:g}"
        canvas = draw_scores(scaled, by, weights, masked_keys(lengths, *weights.shape))
        rows = "; ".join(", ".join(f"{weight:.2f}" for weight in row) for row in weights.tolist())
        alt = f"valid_lens {self.valid_lens}, {by}. Weights by query: {rows}."
        return canvas, alt, "Hatched keys are masked: exactly no weight falls on them."


def random_scores() -> Tensor:
    """Return dot products of random queries and keys, (2, 4, 6), before the division by √d."""
    generator = torch.Generator().manual_seed(3)
    queries, keys = (torch.randn(2, number, HEAD_SIZE, generator=generator) for number in (4, 6))
    return queries @ keys.mT
