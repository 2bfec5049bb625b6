"""A claim about a model without some heads, locked in a file before it is tested."""

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

MEASURES = ("leave-one-out", "gate gradient", "greedy")
INSTEAD = ("means", "zeros")
BASELINES = ("layer-matched draws",)


@dataclass(frozen=True)
class Claim:
    """State what will be true of a model without some of its heads, before it is tested.

    Attributes:
        model: its name, as in ``Work.name``.
        remove: how many heads go.
        measure: what chooses them: "leave-one-out", "gate gradient" or "greedy".
        instead: what a head gives after its removal: its "means", or "zeros".
        promise: how much the loss rises at most, in nats.
        baseline: what else may go: "layer-matched draws", as many heads of each layer at random.
        rows: which rows decide.
        refuted_by: in your own words, which result would refute it, and why it could happen.

    Raises:
        ValueError: a field has a value that it cannot have; the message says which it needs.
    """

    model: str
    remove: int
    measure: str
    instead: str
    promise: float
    baseline: str
    rows: str
    refuted_by: str

    def __post_init__(self) -> None:
        for name, choices in (("measure", MEASURES), ("instead", INSTEAD), ("baseline", BASELINES)):
            if (got := getattr(self, name)) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {got!r}")
        if isinstance(self.remove, bool) or not isinstance(self.remove, int) or self.remove < 1:
            raise ValueError(f"remove must be a number of heads, 1 or more, got {self.remove!r}")
        if not isinstance(self.promise, int | float) or not 0 < self.promise < float("inf"):
            raise ValueError(f"promise must be a number of nats above 0, got {self.promise!r}")
        for name in ("model", "rows"):
            if not isinstance(got := getattr(self, name), str) or not got.strip():
                raise ValueError(f"{name} must be words, got {got!r}")
        if not isinstance(self.refuted_by, str):  # dots, where nothing was written yet
            object.__setattr__(self, "refuted_by", "")

    @property
    def is_own(self) -> bool:
        """Whether somebody has written what would refute it: without that, it is an example."""
        return bool(self.refuted_by.strip())

    @property
    def eight(self) -> str:
        """Eight characters of the hash of all fields: another claim has others."""
        return _hash(asdict(self))[:8]

    def __str__(self) -> str:
        return (
            f"Model: {self.model}. Claim: without {self.remove} heads, chosen by {self.measure} and replaced by "
            f"{self.instead}, the loss on {self.rows} rises by at most {self.promise} nats, and by less than for "
            f"{self.baseline}."
        )


@dataclass(frozen=True)
class Event:
    """Hold one line of a claim's file: when, what ("claim" or "test rows opened"), and the claim that was in force."""

    time: str
    what: str
    claim: Claim


def lock(claim: Claim, file: str | Path) -> str:
    """Add a claim to a file with its time, unless it is the last one there; return a line that says so.

    Raises:
        TypeError: it is no ``Claim``.
        ValueError: the file was edited.
    """
    if not isinstance(claim, Claim):
        raise TypeError(f"claim must be a capstone.Claim, got {type(claim).__name__}")
    claims = [event.claim for event in history(file) if event.what == "claim"]
    if not claims or claims[-1] != claim:
        _add(file, "claim", claim)
        claims.append(claim)
    example = "" if claim.is_own else "Not yet your claim: write what would refute it. "
    return f"{example}Claim {len(claims)} is locked: {claim.eight}."


def note_opening(file: str | Path) -> bool:
    """Note in a claim's file that the test rows were opened, and return True; for an example, note nothing, and False.

    Raises:
        ValueError: there is no claim in it, or it was edited.
    """
    events = history(file)
    if not events:
        raise ValueError(f"{file} holds no claim: lock one before you open the test rows")
    if is_own := events[-1].claim.is_own:
        _add(file, "test rows opened", events[-1].claim)
    return is_own


def history(file: str | Path) -> list[Event]:
    """Return all that a claim's file holds, the first first; empty where there is no file.

    Raises:
        ValueError: a line does not fit the hash of those before it: the file was edited.
    """
    if not Path(file).exists():
        return []
    events, before = [], ""
    for number, line in enumerate(Path(file).read_text(encoding="utf-8").splitlines(), start=1):
        kept = json.loads(line)
        chain = kept.pop("chain")
        if chain != _hash([before, kept]):
            raise ValueError(f"{file} was edited: line {number} does not fit the lines before it")
        events.append(Event(kept["time"], kept["what"], Claim(**kept["claim"])))
        before = chain
    return events


def is_changed(events: list[Event]) -> bool:
    """Return whether a claim was locked after the test rows had been opened."""
    whats = [event.what for event in events]
    return "test rows opened" in whats and "claim" in whats[whats.index("test rows opened") :]


def _add(file: str | Path, what: str, claim: Claim) -> None:
    path = Path(file)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    before = json.loads(lines[-1])["chain"] if lines else ""
    entry = {"time": datetime.now().isoformat(timespec="seconds"), "what": what, "claim": asdict(claim)}
    lines.append(json.dumps(entry | {"chain": _hash([before, entry])}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _hash(what: Any) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
