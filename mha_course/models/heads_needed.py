"""How many heads it takes to name two or four neighbours: models with 1 to 12 heads, trained once, measured and kept.

Every model has 24 hidden units and 400 training steps, so more heads are narrower heads. ``make weights`` trains them
with five seeds; the model of seed 0 is the one whose maps and answers are kept.
"""

import functools
from dataclasses import dataclass

import torch
from safetensors.torch import load
from torch import Tensor

from mha_course.models.neighbours import NeighbourModel, fit_neighbours, held_out_rows, weights_on_messages
from mha_course.models.one_head import NUM_TOKENS
from mha_course.models.shipped import COMMAND, package_data
from mha_lib.models.threads import single_thread

NUM_MESSAGES, HEAD_COUNTS, SEEDS = (2, 4), (1, 2, 3, 4, 6, 8, 12), range(5)
FILE = "neighbours.safetensors"


@dataclass(frozen=True)
class HeadsNeeded:
    """Hold stored accuracy and attention of models that predict neighbouring letters with a given number of heads.

    Attributes:
        accuracy: share of held-out tokens with all letters right, (seeds, n + 1), by the number of valid keys.
        on_message: of seed 0, mean weight of each head on the key of each message, (num_heads, num_messages).
        scores: of seed 0, the scores of the first held-out row before the mask, but for a constant in each row of them,
            (num_heads, n, n).
        answers: of seed 0, the letters that it names for this row, (n + 1, n, num_messages), by their number.
    """

    accuracy: Tensor
    on_message: Tensor
    scores: Tensor
    answers: Tensor

    def weights(self, valid_len: int) -> Tensor:
        """Return attention weights of the row with this many valid keys, (num_heads, n, n); with none, all are 0."""
        scores = self.scores.clone()
        scores[:, :, valid_len:] = -torch.inf
        return scores.softmax(dim=-1).nan_to_num(0)


@functools.cache
def heads_needed() -> dict[tuple[int, int], HeadsNeeded]:
    """Load the stored results of models that predict neighbouring letters, by their numbers of letters and of heads.

    Raises:
        FileNotFoundError: this copy of the library lacks the file; the message says how to get it.
    """
    kept = load(package_data(f"models/weights/{FILE}", COMMAND))
    parts = ("accuracy", "on_message", "scores", "answers")
    return {
        (messages, heads): HeadsNeeded(*(_usable(kept[f"{messages}.{heads}.{part}"]) for part in parts))
        for messages in NUM_MESSAGES
        for heads in HEAD_COUNTS
    }


def measure_heads_needed() -> dict[str, Tensor]:
    """Train a ``NeighbourModel`` for each number of heads and of letters to predict; return the measured tensors."""
    kept: dict[str, Tensor] = {}
    for messages in NUM_MESSAGES:
        for heads in HEAD_COUNTS:
            with single_thread():
                models = [fit_neighbours(heads, messages, seed=seed) for seed in SEEDS]
                parts = measure(models[0]) | {"accuracy": torch.stack([accuracy(model) for model in models])}
            kept |= {f"{messages}.{heads}.{name}": _small(part) for name, part in parts.items()}
    return kept


@torch.no_grad()
def accuracy(model: NeighbourModel) -> Tensor:
    """Return the model's accuracy on held-out rows for each number of valid keys from 0 to n, as a tensor (n + 1,).
    A token counts as right if all of its letters are predicted.
    """
    letters, truth = held_out_rows(model.num_messages)
    answers = (model(letters, _lengths(letters, valid)).argmax(dim=-1) for valid in range(NUM_TOKENS + 1))
    return torch.stack([(answer == truth).all(dim=-1).double().mean() for answer in answers])


@torch.no_grad()
def measure(model: NeighbourModel) -> dict[str, Tensor]:
    """Return a dict of each head's mean weight on each neighbouring token, and scores and answers for one test row."""
    letters, _ = held_out_rows(model.num_messages)
    model(letters)
    weights = model.attention.attention_weights
    row = letters[:1]
    answers = [model(row, _lengths(row, valid))[0].argmax(dim=-1) for valid in range(NUM_TOKENS + 1)]
    return {
        "on_message": weights_on_messages(weights, model.num_messages).mean(dim=(0, 2)),
        "scores": weights[0].clamp(min=1e-12).log(),  # a softmax differs from its scores by a constant in each row
        "answers": torch.stack(answers),
    }


def _lengths(letters: Tensor, valid: int) -> Tensor:
    return torch.full((len(letters),), valid)


def _small(part: Tensor) -> Tensor:
    return part.half() if part.is_floating_point() else part.byte()


def _usable(part: Tensor) -> Tensor:
    return part.float() if part.is_floating_point() else part.long()
