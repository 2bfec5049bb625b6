"""What heads of the digits model do, over five seeds: ``python -m research.seeds_digits``, about two minutes.

Writes seeds_digits.md beside this file. Times are not in it, so that another run on the same machine changes nothing.
"""

import math
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import Tensor

from mha_course.models.training import fit, seeded
from mha_lib.heads import statistics
from mha_lib.models.tasks import Task, find_task
from mha_lib.models.threads import single_thread
from mha_lib.models.transformer import Transformer

SEEDS = range(5)
REPORT = Path(__file__).with_suffix(".md")
PLACES = torch.cartesian_prod(torch.arange(4), torch.arange(4))  # row and column of each patch
NUM_TOKENS = 1 + len(PLACES)
MEASURES = {
    "mean distance": lambda weights: statistics.mean_distance(weights[:, :, 1:, 1:], PLACES),
    "on itself": statistics.weight_on_self,
    "on the class token": lambda weights: statistics.weight_on_token(weights, token=0),
    "entropy": statistics.entropy,
}


def main() -> None:
    """Train, measure and write the report."""
    task = find_task("digits")
    with single_thread():
        models = {seed: fit(task, seed) for seed in SEEDS}
        accuracies = {seed: task.accuracy(model) for seed, model in models.items()}
        trained = {seed: measure(task, model) for seed, model in models.items()}
        untrained = {seed: measure(task, new_model(task, seed)) for seed in SEEDS}
    REPORT.write_text(report(accuracies, trained, untrained), encoding="utf-8")
    print(REPORT.read_text(encoding="utf-8"))


def new_model(task: Task, seed: int) -> Transformer:
    """The model that training with this seed starts from."""
    with seeded(seed):
        return task.model().eval()


def measure(task: Task, model: Transformer) -> dict[str, Tensor]:
    """Each measure of each head on the held-out images, (num_layers, num_heads)."""
    with torch.no_grad():
        model(task.held_out.inputs)
    weights = model.attention_weights
    return {name: torch.stack([function(layer) for layer in weights]) for name, function in MEASURES.items()}


def even_look() -> dict[str, float]:
    """What the measures are for a head that gives every token the same weight."""
    weights = torch.full((1, 1, NUM_TOKENS, NUM_TOKENS), 1 / NUM_TOKENS, dtype=torch.float64)
    return {name: function(weights).item() for name, function in MEASURES.items()}


def report(accuracies: dict[int, float], trained: dict[int, dict], untrained: dict[int, dict]) -> str:
    """The whole file."""
    shares = list(accuracies.values())
    lines = [
        "# The digits model over five seeds",
        "",
        "Made by `python -m research.seeds_digits` with torch "
        f"{torch.__version__.split('+')[0]}, on the 360 held-out images. Distances are in patches, between patches "
        f"only (the class token has no place); entropy is in nats, at most ln {NUM_TOKENS} = "
        f"{math.log(NUM_TOKENS):.3f}; each is a mean over images and queries.",
        "",
        "## Accuracy",
        "",
        *table(["seed", "accuracy"], [[seed, f"{share:.4f}"] for seed, share in accuracies.items()]),
        "",
        f"Mean {mean(shares):.4f}, standard deviation {stdev(shares):.4f}, "
        f"lowest {min(shares):.4f}, highest {max(shares):.4f}.",
        "",
        "## Lowest and highest head of each layer",
        "",
        *table(["model", "seed", "layer", *MEASURES], ranges("trained", trained) + ranges("untrained", untrained)),
        "",
        "A head that looks everywhere alike: "
        + ", ".join(f"{name} {number:.3f}" for name, number in even_look().items())
        + ".",
        "",
        "## Every head, trained",
        "",
        *table(["seed", "layer", "head", *MEASURES], every_head(trained)),
    ]
    return "\n".join(lines) + "\n"


def ranges(title: str, measured: dict[int, dict[str, Tensor]]) -> list[list]:
    """A row for each seed and layer: from the lowest to the highest head."""
    return [
        [title, seed, layer + 1, *(f"{rows[layer].min():.3f} to {rows[layer].max():.3f}" for rows in numbers.values())]
        for seed, numbers in measured.items()
        for layer in range(2)
    ]


def every_head(measured: dict[int, dict[str, Tensor]]) -> list[list]:
    """A row for each seed, layer and head, both counted from 1."""
    return [
        [seed, layer + 1, head + 1, *(f"{rows[layer, head]:.3f}" for rows in numbers.values())]
        for seed, numbers in measured.items()
        for layer in range(2)
        for head in range(6)
    ]


def table(header: list, rows: list[list]) -> list[str]:
    """Lines of a Markdown table."""
    cells = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(map(str, row)) + " |" for row in cells]


if __name__ == "__main__":
    main()
