"""One head learns to look back, with its map kept on the way: the smallest run in which a reader sees a head appear.

A row of random letters goes in, and each token's answer is the letter before it (token 0, which has none before it,
answers its own). So every query has one right key. The model is one head and what it needs to read and to answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_course.models.neighbours import BATCH_SIZE, HELD_OUT, NUM_LETTERS, NUM_TOKENS, NeighbourModel, step
from mha_course.models.tasks import HELD_OUT_SEED
from mha_course.models.threads import single_thread
from mha_course.models.training import rising_steps, seeded

NUM_HIDDENS, LEARNING_RATE = 32, 1e-3


@dataclass(frozen=True)
class OneHeadRun:
    """Hold loss, accuracy and attention weights on held-out examples at several training steps of ``train_one_head``.

    Attributes:
        steps: the kept steps.
        maps: attention weights of the first of these examples, (num_steps, n, n).
        letters: this example, (n,).
        losses: mean cross-entropy over all of them, in nats.
        weight_on_right_key: mean weight that a query gives to its right key, between 0 and 1.
        accuracy: share of right answers, between 0 and 1.
    """

    steps: list[int]
    maps: Tensor
    letters: Tensor
    losses: list[float]
    weight_on_right_key: list[float]
    accuracy: list[float]


def target_keys(num_tokens: int) -> Tensor:
    """Return for each query the index of the previous token, to which it must attend; for token 0, its own index."""
    return torch.arange(-1, num_tokens - 1).clamp(min=0)


def draw_letters(batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw random letters and, as targets, the letter before each; both have the shape (batch_size, n)."""
    letters = torch.randint(NUM_LETTERS, (batch_size, NUM_TOKENS), generator=generator)
    return letters, letters[:, target_keys(NUM_TOKENS)]


def train_one_head(seed: int = 0, keep: Sequence[int] = (0, 20, 50, 100, 500)) -> OneHeadRun:
    """Train a single attention head to predict the previous letter; return results at several training steps.
    The optimizer is Adam (Kingma & Ba 2015).

    Args:
        seed: where all randomness comes from.
        keep: training steps, rising; 0 is before any training, so ``keep=[0]`` gives a random head.

    Raises:
        ValueError: ``keep`` is empty, not rising, or holds a negative step.
    """
    keep = rising_steps(keep)
    held_out = draw_letters(HELD_OUT, torch.Generator().manual_seed(HELD_OUT_SEED))
    seen = []
    with single_thread(), seeded(seed) as generator:
        model = NeighbourModel(num_heads=1, num_messages=1, num_hiddens=NUM_HIDDENS)
        optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
        for number in range(keep[-1] + 1):
            if number > 0:
                letters, answers = draw_letters(BATCH_SIZE, generator)
                step(optimizer, F.cross_entropy(model(letters).flatten(0, 2), answers.flatten()))
            if number in keep:
                seen.append(_look(model, *held_out))
    maps, losses, weights, accuracies = zip(*seen, strict=True)
    return OneHeadRun(keep, torch.stack(maps), held_out[0][0], list(losses), list(weights), list(accuracies))


@torch.no_grad()
def _look(model: NeighbourModel, letters: Tensor, answers: Tensor) -> tuple[Tensor, float, float, float]:
    """The first example's map (n, n), the loss, the mean weight on the right key, the share of right answers."""
    logits = model(letters)[:, :, 0]  # (b, n, NUM_LETTERS)
    weights = model.attention.attention_weights[:, 0]  # (b, h, q, k) -> (b, q, k)
    queries = torch.arange(NUM_TOKENS)
    loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten())
    on_right_key = weights[:, queries, target_keys(NUM_TOKENS)].mean()
    return weights[0], loss.item(), on_right_key.item(), (logits.argmax(-1) == answers).double().mean().item()
