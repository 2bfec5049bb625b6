"""What does a leak between packed texts do to training? ``python -m research.packing``; about ten minutes of CPU time.

Rows of three texts of 16 letters; in each text a piece of 5 to 7 letters occurs again. An attention-only model with
rotary positions (``mha_course.models.induction``) is trained on them with a mask by text and without, from the seeds 0
to 4. The neighbours of a text are *unrelated* to it or *copies* of it, as in data with duplicates. With copies and no
mask, there is a control of three times as many steps. Writes packing.json into the library. A seed that is kept
there is not run again: delete the file to measure anew.
"""

import json
import sys

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.report import markdown
from mha_course.models.induction import NUM_LETTERS, AttentionOnly
from mha_course.models.tasks import HELD_OUT_SEED
from mha_course.models.threads import single_thread
from mha_course.models.training import seeded, training_loop
from research.kept import kept_file, rounded, write_compact, write_report

SEEDS = range(5)
DRAWN_SEED = 1  # the one whose maps are kept
NUM_TEXTS, LENGTH, BATCH_SIZE, STEPS = 3, 16, 32, 600
LEARNING_RATE = 4e-3
RESULTS = kept_file("packing")
RUNS = {  # neighbours, whether masked, steps
    "unrelated, mask": ("unrelated", True, STEPS),
    "unrelated, leak": ("unrelated", False, STEPS),
    "copies, mask": ("copies", True, STEPS),
    "copies, leak": ("copies", False, STEPS),
    "copies, leak, three times the steps": ("copies", False, 3 * STEPS),
}
IDS = torch.arange(NUM_TEXTS).repeat_interleave(LENGTH)
INSIDE = torch.arange(NUM_TEXTS * LENGTH - 1) % LENGTH < LENGTH - 1  # the last letter of a text predicts no other


def same_text(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return IDS[i] == IDS[j]


def main() -> None:
    """Measure the runs that are missing, keeping each as it comes, and write the report."""
    results: dict = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name, run in RUNS.items():
        kept = results.setdefault(name, [])
        for seed in SEEDS[len(kept) :]:
            print(name, "seed", seed, file=sys.stderr)
            found = rounded(measure(*run, seed), 3)
            if seed != DRAWN_SEED:
                del found["map"]
            kept.append(found)
            write_compact(RESULTS, results)
    write_report(__file__, report(results))


def texts(number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random texts, (number, LENGTH), and which letters can be predicted from those before, (number, LENGTH − 1)."""
    letters = torch.rand(number, NUM_LETTERS, generator=generator).argsort(1)[:, :LENGTH]
    piece = torch.randint(5, 8, (number,), generator=generator)
    gap = (torch.rand(number, generator=generator) * (LENGTH - 2 * piece + 1)).long()
    start = (torch.rand(number, generator=generator) * (LENGTH - 2 * piece - gap + 1)).long()
    back, at = (piece + gap)[:, None], torch.arange(LENGTH)
    first = start[:, None] + back
    copied = (at >= first) & (at < first + piece[:, None])
    return letters.gather(1, torch.where(copied, at - back, at)), copied[:, :-1] & copied[:, 1:]


def packed_rows(number: int, neighbours: str, generator: torch.Generator) -> Tensor:
    """Return rows of NUM_TEXTS texts, (number, NUM_TEXTS · LENGTH)."""
    if neighbours == "copies":
        return texts(number, generator)[0].repeat(1, NUM_TEXTS)
    return texts(number * NUM_TEXTS, generator)[0].view(number, -1)


def train(neighbours: str, masked: bool, steps: int, seed: int) -> tuple[AttentionOnly, list[float], list[float]]:
    """Return a trained model, the loss of each step, and the accuracy on texts alone, half-way and at the end."""
    losses: list[float] = []
    alone: list[float] = []

    def batches():
        for step in range(steps):
            letters = packed_rows(BATCH_SIZE, neighbours, generator)
            logits = model.read(model.embedding(letters), attn_mask=same_text if masked else None)
            each = F.cross_entropy(logits[:, :-1].transpose(1, 2), letters[:, 1:], reduction="none")
            loss = each[:, INSIDE].mean()
            losses.append(loss.item())
            yield loss
            if step + 1 in (steps // 2, steps):
                alone.append(accuracy(model))

    with single_thread(), seeded(seed) as generator:
        model = AttentionOnly()
        training_loop(model, batches(), LEARNING_RATE)
    return model.eval(), losses, alone


@torch.no_grad()
def accuracy(model: AttentionOnly) -> float:
    """Share of the predictable letters that are right in texts that are read alone."""
    letters, predictable = texts(512, torch.Generator().manual_seed(HELD_OUT_SEED))
    right = model(letters)[:, :-1].argmax(-1) == letters[:, 1:]
    return right[predictable].double().mean().item()


@torch.no_grad()
def measure(neighbours: str, masked: bool, steps: int, seed: int) -> dict:
    """Training loss of the last 50 steps, accuracy alone, and the weight of each head of layer 1 on 15 tokens back.

    "map" is that of the head with most such weight: queries of the second text, keys of the first two texts.
    """
    with torch.enable_grad():
        model, losses, alone = train(neighbours, masked, steps, seed)
    letters = packed_rows(64, neighbours, torch.Generator().manual_seed(HELD_OUT_SEED + 1))
    model.read(model.embedding(letters), attn_mask=same_text if masked else None)
    weights = model.layers[1].attention_weights  # (b, h, n, n)
    neighbour = weights.diagonal(1 - LENGTH, dim1=-2, dim2=-1)[..., 1:].mean(dim=(0, 2))
    drawn = weights[:, neighbour.argmax(), LENGTH : 2 * LENGTH, : 2 * LENGTH].mean(dim=0)
    found = {"loss": sum(losses[-50:]) / 50, "half_way": alone[0], "alone": alone[1]}
    return found | {"neighbour": neighbour.tolist(), "map": drawn.tolist()}


def report(results: dict) -> str:
    """Median, and least to most over the seeds, as a table in Markdown."""
    body = []
    for name in RUNS:
        columns = [sorted(run[column] for run in results[name]) for column in ("loss", "alone", "half_way")]
        cells = [f"{seeds[len(seeds) // 2]:.2f} ({seeds[0]:.2f} to {seeds[-1]:.2f})" for seeds in columns]
        body.append([name, *cells, f"{max(max(run['neighbour']) for run in results[name]):.2f}"])
    head = ("neighbours, mask", "training loss", "right alone", "right alone, half-way", "most weight on a neighbour")
    return f"# What a leak does to training: {len(SEEDS)} seeds\n\n{markdown(head, body)}\n"


if __name__ == "__main__":
    main()
