"""How many heads it takes to predict four neighbours: models with 1 to 12 heads, trained once, and kept.

Every model has 24 hidden units and 400 training steps, so more heads are narrower heads. ``make weights`` trains them
with five seeds and keeps how good each is; the models of seed 0 are kept themselves, in half precision.
"""

import functools

import torch
from safetensors.torch import load
from torch import Tensor

from mha_course.models.neighbours import NeighbourModel, fit_neighbours, held_out_rows
from mha_course.models.shipped import COMMAND, filled, package_data
from mha_course.models.threads import single_thread
from mha_course.models.training import seeded

NUM_MESSAGES, HEAD_COUNTS, SEEDS = 4, (1, 2, 3, 4, 6, 8, 12), range(5)
FILE, RANGES = "neighbours.safetensors", "accuracy"


def trained_neighbours(num_heads: int) -> NeighbourModel:
    """Load a trained ``NeighbourModel`` with 1, 2, 3, 4, 6, 8 or 12 heads that ships with this library, in eval mode.

    Raises:
        ValueError: no model with this number of heads ships.
        FileNotFoundError: this copy of the library lacks the file; the message says how to get it.
    """
    if num_heads not in HEAD_COUNTS:
        raise ValueError(f"num_heads must be one of {list(HEAD_COUNTS)}, got {num_heads}")
    own = f"{num_heads}."
    weights = {name.removeprefix(own): part.float() for name, part in _kept().items() if name.startswith(own)}
    with seeded(0):  # the caller's random numbers stay as they were
        model = NeighbourModel(num_heads, NUM_MESSAGES)
    return filled(model, weights, f"{num_heads} heads")


def accuracy_by_seed() -> dict[int, Tensor]:
    """Return the accuracy of five training runs by number of heads: (5,), the share of tokens with all letters right.

    Raises:
        FileNotFoundError: this copy of the library lacks the file; the message says how to get it.
    """
    return dict(zip(HEAD_COUNTS, _kept()[RANGES], strict=True))


@functools.cache
def _kept() -> dict[str, Tensor]:
    return load(package_data(f"models/weights/{FILE}", COMMAND))


def train_heads_needed() -> dict[str, Tensor]:
    """Train a ``NeighbourModel`` for each number of heads and each seed; return the tensors that are kept."""
    kept: dict[str, Tensor] = {}
    accuracies = []
    for heads in HEAD_COUNTS:
        with single_thread():
            models = [fit_neighbours(heads, NUM_MESSAGES, seed=seed) for seed in SEEDS]
            accuracies.append(torch.tensor([accuracy(model, *held_out_rows(NUM_MESSAGES)) for model in models]))
        kept |= {f"{heads}.{name}": part.half() for name, part in models[0].state_dict().items()}
    return kept | {RANGES: torch.stack(accuracies)}


@torch.no_grad()
def accuracy(
    model: NeighbourModel, letters: Tensor, truth: Tensor, valid_len: int | None = None, head_mask: Tensor | None = None
) -> float:
    """Return the share of tokens whose letters are all predicted correctly.

    Args:
        letters, truth: rows and their targets, as ``held_out_rows`` returns them.
        valid_len: how many keys are valid in every row; left out, all are.
        head_mask: gates on the heads; left out, all heads are on.
    """
    lengths = None if valid_len is None else torch.full((len(letters),), valid_len)
    answers = model(letters, lengths, head_mask).argmax(dim=-1)
    return (answers == truth).all(dim=-1).double().mean().item()
