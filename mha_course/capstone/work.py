"""A model to work on, with rows to measure on and rows that are opened once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mha_course.capstone.claim import note_opening
from mha_course.models import Task
from mha_lib import heads

REHEARSAL = (
    "The test rows stay closed: write what would refute your claim, and lock it. This is a rehearsal on the "
    "calibration rows; it is not counted."
)


@dataclass
class Work:
    """Hold a model, rows to calibrate on, rows to test on, and the loss of each row.

    Args:
        name: of the model; a claim names it.
        model: any PyTorch model whose heads ``mha_lib.heads.of`` finds.
        calibration: rows for all choices, in any form that ``losses`` takes.
        test: rows of the same form, which ``open_test_rows`` gives.
        losses: of a model and rows: one number for each row, (n,).
        inputs: of rows: the tuple that the model is called with; left out, the first part of the rows.
        task: for ``models.finetune``; None where the model is trained in another way.

    Attributes:
        opened: how often the test rows were opened.
    """

    name: str
    model: nn.Module
    calibration: Any
    test: Any = field(repr=False)
    losses: Callable[[Any, Any], Tensor] = field(repr=False)
    inputs: Callable[[Any], tuple] = field(default=lambda rows: (rows[0],), repr=False)
    task: Task | None = field(default=None, repr=False)
    opened: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.model.eval()

    def __repr__(self) -> str:
        number = sum(parameter.numel() for parameter in self.model.parameters())
        return f"{self.name}; {number:,} parameters; test rows opened: {self.opened}"

    def find_heads(self) -> heads.FoundHeads:
        """Return the model's heads, found on the calibration rows: ``means()`` averages over these."""
        return heads.of(self.model, *self.inputs(self.calibration))

    def loss(self, rows: Any) -> Callable[[Any], Tensor]:
        """Return the loss of each of these rows as a function of the model, as the measures of heads take it."""
        return lambda model: self.losses(model, rows)

    def open_test_rows(self, file: str | Path) -> Any:
        """Return the test rows, count it, and note it in the file of the locked claim.

        They stay closed while nobody has written what would refute the claim: then this returns the calibration rows
        to rehearse on, says so, and counts nothing.

        Raises:
            ValueError: the file holds no claim: lock one before.
        """
        if not note_opening(file):
            print(REHEARSAL)
            return self.calibration
        self.opened += 1
        return self.test
