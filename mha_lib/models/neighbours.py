"""One head against several, where each token has several things to tell: small enough to be trained while one waits.

A row of random letters goes in, and each token names letters near it: the one before it, the one after it, the second
before, the second after; the row is closed to a ring. The model is one attention and a read-out, nothing else.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib.attention import MultiHeadAttention
from mha_lib.models.one_head import BATCH_SIZE, HELD_OUT, HELD_OUT_SEED, NUM_LETTERS, NUM_TOKENS
from mha_lib.models.training import seeded, single_thread
from mha_lib.models.transformer import TokenEmbedding

SHIFTS = (1, -1, 2, -2)  # how many tokens before its reader each message stands
NUM_HIDDENS, LEARNING_RATE = 24, 3e-3


class Neighbours(nn.Module):
    """Letters and their positions → one attention → one read-out, which names a letter for each message.

    Args:
        num_heads: number of heads, which share 24 hidden units.
        num_messages: how many letters each token names, from 1 to 4.
        read_out_size: hidden units of the read-out; 0 makes it linear.
    """

    def __init__(self, num_heads: int, num_messages: int, read_out_size: int = 0):
        super().__init__()
        self.num_messages, size = num_messages, NUM_HIDDENS
        self.embedding = TokenEmbedding(NUM_LETTERS, NUM_TOKENS, size)
        self.attention = MultiHeadAttention(size, num_heads, query_size=size, key_size=size, value_size=size)
        hidden = [nn.Linear(size, read_out_size), nn.ReLU()] if read_out_size else []
        self.read_out = nn.Sequential(*hidden, nn.Linear(read_out_size or size, num_messages * NUM_LETTERS))

    def forward(self, letters: Tensor) -> Tensor:
        """(batch, n) integers → (batch, n, num_messages, NUM_LETTERS), a logit for each letter."""
        X = self.embedding(letters)
        return self.read_out(self.attention(X, X, X)).unflatten(-1, (self.num_messages, NUM_LETTERS))


@dataclass(frozen=True)
class NeighboursRun:
    """What a trained model does with rows that the training never saw.

    Attributes:
        right: share of right answers to each message, (num_messages,).
        all_right: share of the tokens that have all their messages right.
        weights: mean weight of each head on the key of each message, (num_heads, num_messages).
        ranked: the same, where each query's weights are put in order before the mean, the largest first.
    """

    right: Tensor
    all_right: float
    weights: Tensor
    ranked: Tensor


def draw_rows(batch_size: int, num_messages: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random letters (batch_size, n), and the right answers (batch_size, n, num_messages)."""
    letters = torch.randint(NUM_LETTERS, (batch_size, NUM_TOKENS), generator=generator)
    return letters, torch.stack([letters.roll(shift, dims=1) for shift in SHIFTS[:num_messages]], dim=2)


def train_neighbours(
    num_heads: int, num_messages: int = 2, read_out_size: int = 0, seed: int = 0, steps: int = 400
) -> NeighboursRun:
    """Train a ``Neighbours`` with Adam (Kingma & Ba 2015), and look at it.

    Args:
        seed: where all randomness comes from.
        steps: number of training steps.
        The rest as in ``Neighbours``.

    Raises:
        ValueError: ``num_messages`` is not from 1 to 4, or ``num_heads`` does not divide the 24 hidden units.
    """
    if num_messages not in range(1, len(SHIFTS) + 1):
        raise ValueError(f"num_messages must be a number from 1 to {len(SHIFTS)}, got {num_messages}")
    with single_thread(), seeded(seed) as generator:
        model = Neighbours(num_heads, num_messages, read_out_size)
        optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
        for _ in range(steps):
            letters, answers = draw_rows(BATCH_SIZE, num_messages, generator)
            loss = F.cross_entropy(model(letters).flatten(0, 2), answers.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return _look(model)


@torch.no_grad()
def _look(model: Neighbours) -> NeighboursRun:
    letters, answers = draw_rows(HELD_OUT, model.num_messages, torch.Generator().manual_seed(HELD_OUT_SEED))
    right = (model(letters).argmax(dim=-1) == answers).double()
    queries = torch.arange(NUM_TOKENS)
    keys = (queries[:, None] - torch.tensor(SHIFTS[: model.num_messages])) % NUM_TOKENS  # (n, messages)
    weights = model.attention.attention_weights[:, :, queries[:, None], keys]  # (b, h, q, k) -> (b, h, n, messages)
    ranked = weights.sort(dim=-1, descending=True).values
    return NeighboursRun(
        right.mean(dim=(0, 1)), right.prod(dim=2).mean().item(), weights.mean(dim=(0, 2)), ranked.mean(dim=(0, 2))
    )
