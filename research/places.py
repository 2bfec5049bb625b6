"""Where does a token stand? ``python -m research.places``; about ten minutes of CPU time.

Two attention-only layers learn to go on with a piece that came before (``mha_course.models.positional``), with places
that are rotated in, added as learned rows or sines, or not told at all, from the seeds 0 to 4, in 1,500 and in 4,500
steps. Then they are asked at lengths and with padding that they were not trained on. Writes places.json into the
library, where notebook 09 reads it, and the same as a table, places.md. A seed that stands in places.json is not run
again: delete the file to measure anew.
"""

import json
import sys
import time

import torch
from torch import nn

from benchmarks.report import markdown
from mha_course.models.induction import NUM_STEPS, NUM_TOKENS, SHORTEST_PIECE, InductionBatch, held_out_repeats
from mha_course.models.positional import SCHEMES, PositionalModel, right_letters, train_positional
from research.kept import kept_file, rounded, write_compact, write_report

SEEDS = range(5)
RESULTS = kept_file("places")
LONGER, LEFT, NUM_ROWS = 48, 8, 512
LAST = NUM_TOKENS - SHORTEST_PIECE  # in training, the right key's last place, and its greatest distance
# A kind of places, and training steps.
RUNS = {f"{kind}, {steps} steps": (kind, steps) for steps in (NUM_STEPS, 3 * NUM_STEPS) for kind in SCHEMES}
COLUMNS = {
    "trained": f"{NUM_TOKENS} tokens",
    "longer": f"{LONGER} tokens",
    "early": f"right key up to place {LAST}",
    "late": "at a later place",
    "near": f"right key up to {LAST} tokens back",
    "far": "farther back",
    "left": f"{LEFT} to the left",
    "counted": "and counted",
    "not_masked": f"{LEFT} to the left, not masked",
}


def main() -> None:
    """Measure the runs that are missing, keeping each as it comes, and write the report."""
    results: dict = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"guess": guesses()}
    for name, (kind, steps) in RUNS.items():
        kept = results.setdefault(name, [])
        for seed in SEEDS[len(kept) :]:
            print(name, "seed", seed, file=sys.stderr)
            start = time.process_time()
            model = train_positional(kind, seed, steps)
            seconds = time.process_time() - start
            kept.append(rounded(measure(model), 4) | {"cpu_seconds": round(seconds, 1)})
            write_compact(RESULTS, results)
    write_report(__file__, report(results))


def measure(model: PositionalModel) -> dict:
    """Shares of right letters, by the names of ``COLUMNS``."""
    rows, longer = held_out_repeats(NUM_ROWS), held_out_repeats(NUM_ROWS, LONGER)
    right = {
        "trained": right_letters(model, rows),
        **parts(longer, right_letters(model, longer)),
        "left": right_letters(model, rows, LEFT),
        "counted": right_letters(model, rows, LEFT, counted=True),
        "not_masked": right_letters(model, rows, LEFT, masked=False),
    }
    return {column: letters.double().mean().item() for column, letters in right.items()}


def parts(rows: InductionBatch, right: torch.Tensor) -> dict[str, torch.Tensor]:
    """What holds for the predictable letters of longer rows, split by where the right key stands, and how far back."""
    keys = rows.target_keys[rows.predictable]
    late, far = keys > LAST, rows.predictable.nonzero()[:, 1] - keys > LAST
    return {"longer": right, "early": right[~late], "late": right[late], "near": right[~far], "far": right[far]}


def guesses() -> dict:
    """What a guess is right in, among the letters that the row has shown so far."""
    rows, longer = held_out_repeats(NUM_ROWS), held_out_repeats(NUM_ROWS, LONGER)
    on_rows, on_longer = (
        (1 / (nn.functional.one_hot(some.letters[:, :-1]).cumsum(1) > 0).sum(-1))[some.predictable]
        for some in (rows, longer)
    )  # one in as many as there were different letters so far
    found = {column: parts(longer, on_longer).get(column, on_rows) for column in COLUMNS}
    return rounded({column: shares.double().mean().item() for column, shares in found.items()}, 4)


def report(results: dict) -> str:
    """Mean, and least to most over the seeds, as a table in Markdown."""
    body = [["a guess among the letters so far", *(f"{results['guess'][column]:.3f}" for column in COLUMNS)]]
    for name in RUNS:
        kept = results[name]
        columns = [[run[column] for run in kept] for column in COLUMNS]
        cells = [f"{sum(shares) / len(shares):.3f} ({min(shares):.3f} to {max(shares):.3f})" for shares in columns]
        body.append([name, *cells, f"{sum(run['cpu_seconds'] for run in kept) / len(kept):.0f}"])
    head = ("places", *COLUMNS.values(), "CPU s")
    return f"# Where does a token stand? {len(SEEDS)} seeds\n\n{EXPLANATION}\n\n{markdown(head, body)}\n"


EXPLANATION = f"""\
Two attention-only layers of two heads, trained on rows of {NUM_TOKENS} tokens without padding, learn to go on with a
piece that they have seen before in the same row (`mha_course.models.positional`). Shares of the predictable letters
that are told right, on {NUM_ROWS} rows that were not trained on: mean, and least to most of the seeds. A guess is one
of the letters that the row has shown so far. The rows of {LONGER} are also split by where the right key stands (the
token that holds the right letter), and by how far back: in training, never beyond place {LAST}, and never more than
{LAST} tokens back. *{LEFT} to the left*: {LEFT} columns of padding before each row, masked, with places by column; *and
counted*: places that begin at the first token. Rotated places need no counting: a row that is moved as a whole is the
same to a rotation."""


if __name__ == "__main__":
    main()
