"""Scores, mask and weights, live, with two other ways to mask beside ``masked_softmax``."""

import math
from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_lib.attention import masked_softmax
from mha_lib.pictures.live import LivePicture, check_place, pack, refuse
from mha_lib.pictures.still import Canvas, Still

HEAD_SIZE = 16
SHIFTS = (0, -3_000_000)
MOST = 6


class MaskExplorer(LivePicture):
    """What ``valid_lens`` does to scores, and what becomes of masked keys with a low fill or with −∞.

    For learners who want to see why ``masked_softmax`` is written as it is.

    Args:
        scores: (batch, num_queries, num_keys), at most 6 queries and 6 keys; left out, dot products of random queries
            and keys of 16 numbers, for which the divisor √16 = 4 is the usual one.
        first: first values of the attributes.

    Attributes:
        example: which example's scores are shown.
        divisor: what the scores are divided by, from 1/4 to 32.
        shift: what is then added to all scores, 0 or −3,000,000; the softmax does not notice.
        valid_lens: None, one length, or one for each query; a tensor will do.

    Raises:
        traitlets.TraitError: a choice cannot be; the message names it.
        ValueError: ``scores`` has another shape.
    """

    module, choices = "mask_explorer", ("example", "divisor", "shift", "valid_lens")

    parameters, shapes = traitlets.Bytes().tag(sync=True), traitlets.List[Any]().tag(sync=True)
    sizes, example = traitlets.List[Any]().tag(sync=True), traitlets.Int(0).tag(sync=True)
    divisor, shift = traitlets.Float(1.0).tag(sync=True), traitlets.Int(0).tag(sync=True)
    valid_lens = traitlets.Any(None, allow_none=True).tag(sync=True)

    def __init__(self, scores: Tensor | None = None, **first: object):
        if scores is None:
            scores, first = random_scores(), {"divisor": math.sqrt(HEAD_SIZE), **first}
        if scores.dim() != 3 or max(scores.shape[1:]) > MOST or not scores.numel():
            raise ValueError(
                "scores must have shape (batch, num_queries, num_keys) with at most 6 queries and 6 keys, "
                f"got {tuple(scores.shape)}"
            )
        self.scores = scores.detach().float()
        first = {"valid_lens": scores.shape[2] // 2, **first}
        super().__init__(
            title="Scores, mask and weights", **pack({"scores": self.scores}), sizes=list(scores.shape), **first
        )

    @traitlets.validate("example")
    def _validate_example(self, proposal):
        return check_place("example", proposal["value"], self.sizes[0])

    @traitlets.validate("divisor")
    def _validate_divisor(self, proposal):
        if not 0.25 <= proposal["value"] <= 32:
            refuse("divisor", "between 0.25 and 32", proposal["value"])
        return proposal["value"]

    @traitlets.validate("shift")
    def _validate_shift(self, proposal):
        if proposal["value"] not in SHIFTS:
            refuse("shift", f"one of {SHIFTS}", proposal["value"])
        return proposal["value"]

    @traitlets.validate("valid_lens")
    def _validate_valid_lens(self, proposal):
        _, num_queries, num_keys = self.sizes
        value = proposal["value"]
        plain = value.tolist() if isinstance(value, Tensor) else value
        lengths = plain if isinstance(plain, list | tuple) else [plain] * num_queries
        if plain is None:
            return None
        if len(lengths) != num_queries or any(type(n) is not int or not 0 <= n <= num_keys for n in lengths):
            refuse("valid_lens", f"None, a whole number from 0 to {num_keys}, or {num_queries} of them", value)
        return list(plain) if isinstance(plain, tuple) else plain

    def weights(self) -> Tensor:
        """What ``masked_softmax`` makes of the present state: (num_queries, num_keys)."""
        scores = self.scores[self.example : self.example + 1].double() / self.divisor + self.shift
        lengths = None if self.valid_lens is None else torch.tensor([self.valid_lens])
        return masked_softmax(scores, lengths)[0]

    def still(self) -> Still:
        weights, (_, num_queries, num_keys) = self.weights(), self.sizes
        lengths = torch.tensor(num_keys if self.valid_lens is None else self.valid_lens).expand(num_queries)
        masked = (torch.arange(num_keys) >= lengths[:, None]).numpy()
        scores = self.scores[self.example] / self.divisor
        cell, left = 36, 36 * num_keys + 40
        canvas = Canvas(2 * left, cell * num_queries + 30)
        canvas.text(0, 4, f"scores ÷ {self.divisor:g}")
        canvas.text(left, 4, "masked_softmax")
        for query, row in enumerate(scores.tolist()):
            for key, score in enumerate(row):
                canvas.box(cell * key, 24 + cell * query, cell - 1, cell - 1, line="#767676")
                canvas.text(cell * (key + 0.5), 24 + cell * (query + 0.5), f"{score:.1f}", size=11, anchor="mm")
        canvas.heat_map(left, 24, cell, weights.numpy(), masked=masked, numbers=True)
        rows = "; ".join(", ".join(f"{weight:.2f}" for weight in row) for row in weights.tolist())
        alt = f"{self.title}. valid_lens {self.valid_lens}, scores ÷ {self.divisor:g}. Weights by query: {rows}."
        return Still(canvas.png(), canvas.width, alt, "Hatched keys are masked: exactly no weight falls on them.")


def random_scores() -> Tensor:
    """Dot products of random queries and keys: (2, 4, 6), not yet divided by the root of their size."""
    generator = torch.Generator().manual_seed(3)
    queries, keys = (torch.randn(2, number, HEAD_SIZE, generator=generator) for number in (4, 6))
    return queries @ keys.mT
