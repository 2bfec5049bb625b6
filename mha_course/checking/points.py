"""Points for what a machine can see: a line for each thing that was done."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Points:
    """Hold points, a number for each line.

    Attributes:
        lines: what points are given for → how many there are.
        given: the points of each line, in their order.
        note: why something could not be read; "" where it could.
    """

    lines: Mapping[str, int]
    given: Sequence[int]
    note: str = ""

    @property
    def total(self) -> int:
        """The sum."""
        return sum(self.given)

    def __repr__(self) -> str:
        rows = [f"{got:2} of {most}  {what}" for got, (what, most) in zip(self.given, self.lines.items(), strict=True)]
        said = f"{'' if self.total else 'Not yet: '}{self.total} of {sum(self.lines.values())} points"
        return "\n".join([*rows, said, *filter(None, [self.note])])


def seed_of(account: str) -> int:
    """Return the seed of an account's name, from 0 to 99,999: a teacher sees whether it was chosen.

    >>> seed_of("ada")
    13097
    """
    return int(hashlib.sha256(account.encode()).hexdigest(), 16) % 100_000
