"""The laboratory of the ring: eight heads for four neighbours, so that two heads share each of them.

In training, every head was switched off in three steps of ten, so the model could rely on no single head. Which heads
cover for each other is therefore known, and of the 70 choices of four heads, 16 lose nothing: one of each pair.
"""

import torch

from mha_course.models.neighbours import NeighbourModel, fit_neighbours, held_out_rows
from mha_course.models.shipped import shipped

NUM_HEADS, NUM_HIDDENS, NUM_MESSAGES = 8, 48, 4
RING_STEPS, DROP, RING_SEED = 600, 0.3, 6  # of the seeds 0 to 7, only 3 and 6 have 16 choices of four that lose nothing
RING = "ring"  # the name of the file of weights


def ring_lab() -> NeighbourModel:
    """Load the trained ring model with eight heads, of which two attend to each of four neighbours, in eval mode.

    >>> ring_lab().attention.num_heads
    8

    Raises:
        FileNotFoundError: this copy of the library lacks the weights; the message says how to get them.
    """
    return shipped(RING, lambda: NeighbourModel(NUM_HEADS, NUM_MESSAGES, num_hiddens=NUM_HIDDENS))


def train_ring_lab() -> NeighbourModel:
    """Train the model that ships: 600 steps, in each of which a head is switched off with the probability 0.3."""
    return fit_neighbours(
        NUM_HEADS, NUM_MESSAGES, seed=RING_SEED, steps=RING_STEPS, num_hiddens=NUM_HIDDENS, drop=DROP
    ).eval()


@torch.no_grad()
def right_without(model: torch.nn.Module, heads: list[int]) -> torch.Tensor:
    """Return the accuracy on each neighbour of held-out letters when ``heads`` are switched off, (num_messages,)."""
    letters, truth = held_out_rows(NUM_MESSAGES)
    head_mask = torch.ones(NUM_HEADS)
    head_mask[list(heads)] = 0
    return (model(letters, head_mask=head_mask).argmax(dim=-1) == truth).double().mean(dim=(0, 1))
