"""What does a head of notebook 11 write? ``python -m research.head_writes``; about five minutes of CPU time.

For each of six seeds, two layers are trained on rows in which a piece comes again. Each letter alone goes through W_v
and W_o of a head of layer 1 to the output: which letters does the head make more likely? Then heads are removed. For
two seeds, one layer of four heads is trained six times as long. Writes head_writes.json into the library, where
notebook 11 reads it. A seed that is in the file is not run again: delete the file to measure anew.
"""

import json
import sys

import torch
from torch import Tensor

from mha_course.models.induction import (
    NUM_STEPS,
    AttentionOnly,
    held_out_repeats,
    letter_losses,
    train_on_repeats,
    weight_on_right_keys,
)
from research.kept import kept_file, rounded, write_compact

SEEDS, LONG_SEEDS = range(6), range(2)
LONG_STEPS = (1500, 3000, 4500, 6000, 9000)
RESULTS = kept_file("head_writes")


def main() -> None:
    """Measure the seeds that are missing, keeping each as it comes."""
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"writes": {}, "one_layer": {}}
    for part, seeds, measure in (("writes", SEEDS, writes), ("one_layer", LONG_SEEDS, one_layer)):
        for seed in map(str, seeds):
            if seed not in results[part]:
                print(part, seed, file=sys.stderr)
                results[part][seed] = rounded(measure(int(seed)), 3)
                write_compact(RESULTS, results)
    print(json.dumps(results, indent=1))


def writes(seed: int) -> dict:
    """Return what the heads of layer 1 write with one seed, and what their removal costs."""
    run = train_on_repeats(seed, [0, NUM_STEPS], progress=False)
    model = run.model_at(NUM_STEPS)
    first = int(run.previous_token[-1, 0].argmax())
    cuts = {"none": [], "0": [(1, 0)], "1": [(1, 1)], "both": [(1, 0), (1, 1)]}
    return {
        "on_right_key": run.induction[-1, 1].tolist(),
        "blind": on_right_key(model, model.all_but((0, first))),
        "heads": [own_letter(written(model, head)) for head in (0, 1)],
        "untrained": [own_letter(written(run.model_at(0), head)) for head in (0, 1)],
        "without": {name: losses(model, cut) for name, cut in cuts.items()},
    }


@torch.no_grad()
def written(model: AttentionOnly, head: int, layer: int = 1) -> Tensor:
    """Return what a head adds to the score of each letter (column) where it attends to a letter (row), up to a scale.

    The letter's embedding goes through the layer's norm, the head's W_v and W_o, and the output. The last norm divides
    each row by a positive number, which is left out.
    """
    attention = model.layers[layer]
    size = len(attention.W_v.weight) // attention.num_heads
    rows = slice(head * size, (head + 1) * size)
    values = model.norms[layer](model.embedding.weight) @ attention.W_v.weight[rows].T  # (letters, p)
    X = values @ attention.W_o.weight[:, rows].T  # (letters, d)
    return model.output((X - X.mean(dim=1, keepdim=True)) * model.norms[-1].weight)


def own_letter(scores: Tensor) -> dict[str, float]:
    """Return for how many letters their own score is the highest and the lowest, and how many deviations it is off."""
    own, places = scores.diagonal(), torch.arange(len(scores))
    return {
        "highest": (scores.argmax(dim=1) == places).float().mean().item(),
        "lowest": (scores.argmin(dim=1) == places).float().mean().item(),
        "deviations": ((own - scores.mean(dim=1)) / scores.std(dim=1)).mean().item(),
    }


@torch.no_grad()
def losses(model: AttentionOnly, cut: list[tuple[int, int]]) -> dict[str, float]:
    """Return the loss on marked letters and on all others without some heads, and the probability of letters seen.

    The last is the probability of all letters that were in the row, on average over tokens behind which nothing can be
    predicted.
    """
    rows = held_out_repeats()
    mask = model.all_but(*cut)
    each = letter_losses(model, rows.letters, mask)
    probabilities = model(rows.letters[:, :-1], mask).softmax(dim=-1)  # (b, n, letters)
    seen = torch.nn.functional.one_hot(rows.letters[:, :-1], probabilities.shape[-1]).cumsum(dim=1) > 0
    return {
        "marked": each[rows.predictable].mean().item(),
        "others": each[~rows.predictable].mean().item(),
        "seen": (probabilities * seen).sum(dim=-1)[~rows.predictable].mean().item(),
        "even": seen.float().mean(dim=-1)[~rows.predictable].mean().item(),
    }


@torch.no_grad()
def on_right_key(model: AttentionOnly, head_mask: Tensor) -> list[float]:
    """Return the mean weight of each head of layer 1 on the right key."""
    rows = held_out_repeats()
    model(rows.letters[:, :-1], head_mask)
    return weight_on_right_keys(model.attention_weights, rows)[1].tolist()


def one_layer(seed: int) -> dict:
    """Return the losses of one layer of four heads on marked letters, and how many of these it predicts."""
    run = train_on_repeats(seed, LONG_STEPS, num_layers=1, num_heads=4, progress=False)
    return {"steps": run.steps, "losses": run.losses, "right": [right(run.model_at(step)) for step in run.steps]}


@torch.no_grad()
def right(model: AttentionOnly) -> float:
    """Return the share of marked letters that get the highest score."""
    rows = held_out_repeats()
    best = model(rows.letters[:, :-1]).argmax(dim=-1)
    return (best == rows.letters[:, 1:])[rows.predictable].float().mean().item()


if __name__ == "__main__":
    main()
