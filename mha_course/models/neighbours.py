"""One head against several, where each token has several things to tell: small enough to be trained while one waits.

A row of random letters goes in, and each token predicts letters near it: the one before it, the one after it, the
second before, the second after; the row is closed to a ring. The model is one attention and a read-out, nothing else.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_course.models.tasks import HELD_OUT_SEED
from mha_course.models.threads import single_thread
from mha_course.models.training import seeded
from mha_course.models.transformer import TokenEmbedding
from mha_lib.attention import MultiHeadAttention

NUM_LETTERS, NUM_TOKENS, BATCH_SIZE, HELD_OUT = 10, 12, 32, 256
SHIFTS = (1, -1, 2, -2)  # how many tokens before its reader each message stands
NUM_HIDDENS, LEARNING_RATE, STEPS = 24, 3e-3, 400


class NeighbourModel(nn.Module):
    """Predict letters near each token of a row of letters: embedding, one attention layer, one output network.

    Args:
        num_heads: number of heads, which share the hidden units.
        num_messages: how many letters each token predicts, from 1 to 4.
        read_out_size: hidden units of the read-out; 0 makes it linear.
        num_hiddens: number of hidden units.
    """

    def __init__(
        self, num_heads: int, num_messages: int = 4, read_out_size: int = 0, *, num_hiddens: int = NUM_HIDDENS
    ):
        super().__init__()
        self.num_messages, size = num_messages, num_hiddens
        self.embedding = TokenEmbedding(NUM_LETTERS, NUM_TOKENS, size)
        self.attention = MultiHeadAttention(size, num_heads, query_size=size, key_size=size, value_size=size)
        hidden = [nn.Linear(size, read_out_size), nn.ReLU()] if read_out_size else []
        self.read_out = nn.Sequential(*hidden, nn.Linear(read_out_size or size, num_messages * NUM_LETTERS))

    def forward(self, letters: Tensor, valid_lens: Tensor | None = None, head_mask: Tensor | None = None) -> Tensor:
        """(batch, n) integers → (batch, n, num_messages, NUM_LETTERS), a logit for each letter.

        Args:
            valid_lens: (batch,), how many keys are valid in each row; left out, all are.
            head_mask: gates on the heads' outputs, (num_heads,) or (batch, num_heads); 0 switches a head off.
        """
        X = self.embedding(letters)
        Y = self.attention(X, X, X, valid_lens, head_mask)
        return self.read_out(Y).unflatten(-1, (self.num_messages, NUM_LETTERS))


@dataclass(frozen=True)
class NeighboursRun:
    """Hold the accuracy and the mean attention weights of a trained ``NeighbourModel`` on held-out rows.

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
    """Draw rows of random letters (batch_size, n) and, as targets, letters near each: (batch_size, n, num_messages)."""
    letters = torch.randint(NUM_LETTERS, (batch_size, NUM_TOKENS), generator=generator)
    return letters, torch.stack([letters.roll(shift, dims=1) for shift in SHIFTS[:num_messages]], dim=2)


def held_out_rows(num_messages: int) -> tuple[Tensor, Tensor]:
    """Return fixed test rows of letters and their targets, the letters near each token; no training run uses them."""
    return draw_rows(HELD_OUT, num_messages, torch.Generator().manual_seed(HELD_OUT_SEED))


def weights_on_messages(weights: Tensor, num_messages: int) -> Tensor:
    """Select each query's attention weights on the tokens whose letters it must predict.
    Shapes: (batch, heads, n, n) → (batch, heads, n, num_messages).
    """
    queries = torch.arange(weights.shape[-1])
    keys = (queries[:, None] - torch.tensor(SHIFTS[:num_messages])) % len(queries)
    return weights[:, :, queries[:, None], keys]


def train_neighbours(
    num_heads: int, num_messages: int = 2, read_out_size: int = 0, seed: int = 0, steps: int = STEPS
) -> NeighboursRun:
    """Train a ``NeighbourModel`` to predict neighbouring letters; return its results on held-out rows."""
    with single_thread():
        return _look(fit_neighbours(num_heads, num_messages, read_out_size, seed, steps))


def fit_neighbours(
    num_heads: int,
    num_messages: int = 2,
    read_out_size: int = 0,
    seed: int = 0,
    steps: int = STEPS,
    *,
    num_hiddens: int = NUM_HIDDENS,
    drop: float = 0.0,
) -> NeighbourModel:
    """Train a new ``NeighbourModel`` to predict letters near each token, and return it.
    The optimizer is Adam (Kingma & Ba 2015).

    Args:
        seed: where all randomness comes from.
        steps: number of training steps.
        drop: probability with which each head is switched off in a step.
        The rest as in ``NeighbourModel``.

    Raises:
        ValueError: ``num_messages`` is not from 1 to 4, ``drop`` not from 0 to below 1, or ``num_heads`` does not
            divide the hidden units.
    """
    if not 0 <= drop < 1:
        raise ValueError(f"drop must be a number from 0 to below 1, got {drop}")
    if num_messages not in range(1, len(SHIFTS) + 1):
        raise ValueError(f"num_messages must be a number from 1 to {len(SHIFTS)}, got {num_messages}")
    with single_thread(), seeded(seed) as generator:
        model = NeighbourModel(num_heads, num_messages, read_out_size, num_hiddens=num_hiddens)
        optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
        for _ in range(steps):
            letters, answers = draw_rows(BATCH_SIZE, num_messages, generator)
            gates = (torch.rand(num_heads, generator=generator) >= drop).float() if drop else None
            step(optimizer, F.cross_entropy(model(letters, head_mask=gates).flatten(0, 2), answers.flatten()))
        return model


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Move the parameters once against the gradient of the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@torch.no_grad()
def _look(model: NeighbourModel) -> NeighboursRun:
    letters, answers = held_out_rows(model.num_messages)
    right = (model(letters).argmax(dim=-1) == answers).double()
    weights = weights_on_messages(model.attention.attention_weights, model.num_messages)
    ranked = weights.sort(dim=-1, descending=True).values
    return NeighboursRun(
        right.mean(dim=(0, 1)), right.prod(dim=2).mean().item(), weights.mean(dim=(0, 2)), ranked.mean(dim=(0, 2))
    )
