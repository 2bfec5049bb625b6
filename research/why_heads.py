"""What several heads bring: ``python -m research.why_heads``, some minutes; goes on where it was interrupted.

Small models learn to tell one to four messages at once (``mha_course.models.neighbours``), with 1 to 24 heads and a
read-out that is linear or has 64 hidden units, all from the seeds 0 to 4. Writes results/why_heads.json: for each
setting the share of tokens with all messages right, seed by seed, and how a lone head divides its weight.
"""

import json
from itertools import product
from pathlib import Path

import torch

from benchmarks.report import markdown
from mha_course.heads.intervals import mean_and_ci95
from mha_course.models.neighbours import train_neighbours
from research.kept import rounded, write_compact

RESULTS = Path(__file__).with_name("results") / "why_heads.json"
SEEDS = range(5)
Setting = tuple[int, int, int, int]
# Messages, heads, hidden units of the read-out, training steps.
SETTINGS: list[Setting] = [
    *product((1, 2, 3, 4), (1, 2, 3, 4, 6), (0,), (400,)),
    *product((2, 3, 4), (1, 2, 4), (64,), (400,)),
    *product((2,), (12, 24), (0,), (400,)),
    *product((4,), (1,), (64,), (1200,)),
]


def measure(setting: Setting, seed: int) -> dict:
    """One run."""
    num_messages, num_heads, read_out_size, steps = setting
    run = train_neighbours(num_heads, num_messages, read_out_size, seed, steps)
    return {"right": run.all_right} | ({"weights": run.ranked[0]} if num_heads == 1 else {})


def main() -> None:
    """Run what is not kept yet, keep it, print the table."""
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for setting in SETTINGS:
        kept = found.setdefault(name(setting), {})
        for seed in SEEDS[len(kept.get("right", ())) :]:
            for part, value in rounded(measure(setting, seed), 4).items():
                kept.setdefault(part, []).append(value)
            write_compact(RESULTS, found)
    print(table(found))


def name(setting: Setting) -> str:
    """A setting's key in the results."""
    return "messages {}, heads {}, read-out {}, steps {}".format(*setting)


def table(found: dict) -> str:
    """Mean, 95 % interval and every seed of each setting."""
    head = ("setting", "right: mean", "95 % interval", "each seed")
    body = []
    for key, kept in found.items():
        mean, low, high = mean_and_ci95(torch.tensor(kept["right"]))
        seeds = " ".join(f"{share:.2f}" for share in kept["right"])
        body.append([key, f"{mean:.2f}", f"{low:.2f} to {high:.2f}", seeds])
    return markdown(head, body)


if __name__ == "__main__":
    main()
