"""Heads being born: a small model learns to go on with a piece that it has seen before, and is kept on the way.

Its examples are rows of letters, all different, but one piece of a row comes again later in it. Inside the second copy,
what comes next is known: it is what came next the first time. The model has attention layers and nothing else, so all
that a token knows of others came through a head. Two layers learn it with a pair of heads: one of the first layer looks
at the token before, one of the second at the token *after* the earlier copy of its own letter, an induction head.

Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Olsson et al. 2022, "In-context
Learning and Induction Heads". The task and its sizes are ours.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_course.models.tasks import HELD_OUT_SEED
from mha_course.models.threads import single_thread
from mha_course.models.training import rising_steps, seeded, training_loop
from mha_lib.attention import MultiHeadAttention
from mha_lib.attention.masks import Rule
from mha_lib.heads.progress_bar import progress_bar

__all__ = ["held_out_repeats", "letter_losses", "sample_induction_batch"]

NUM_LETTERS, NUM_TOKENS, NUM_HIDDENS = 64, 32, 32  # a row has one letter more, the last answer
SHORTEST_PIECE, LONGEST_PIECE = 10, 14
BATCH_SIZE, LEARNING_RATE, NUM_STEPS = 32, 4e-3, 1500
ROTATION_BASE = 100.0  # for 32 tokens; language models, which read thousands, take 10,000 and more
HELD_OUT = 128


@dataclass(frozen=True)
class InductionBatch:
    """Hold rows of random letters in which one sequence of letters occurs twice.

    Attributes:
        letters: (b, n + 1) integers, with n = NUM_TOKENS unless asked otherwise.
        predictable: (b, n), bool: whether the letter after this token goes on with a copy that has begun.
        target_keys: (b, n), where ``predictable``: the token that holds the same next letter, the first time.
    """

    letters: Tensor
    predictable: Tensor
    target_keys: Tensor


def sample_induction_batch(batch_size: int, generator: torch.Generator, num_tokens: int = NUM_TOKENS) -> InductionBatch:
    """Sample rows of random letters in which one sequence of letters occurs twice, at random positions.

    >>> sample_induction_batch(2, torch.Generator().manual_seed(0)).predictable.shape
    torch.Size([2, 32])
    """
    count = num_tokens + 1
    letters = torch.rand(batch_size, NUM_LETTERS, generator=generator).argsort(dim=1)[:, :count]
    length = torch.randint(SHORTEST_PIECE, LONGEST_PIECE + 1, (batch_size,), generator=generator)
    gap = (torch.rand(batch_size, generator=generator) * (count - 2 * length + 1)).long()
    start = (torch.rand(batch_size, generator=generator) * (count - 2 * length - gap + 1)).long()
    back = (length + gap)[:, None]  # from the second copy to the first
    first, places = start[:, None] + back, torch.arange(count)
    copied = (places >= first) & (places < first + length[:, None])
    letters = letters.gather(1, torch.where(copied, places - back, places))
    return InductionBatch(letters, copied[:, :-1] & copied[:, 1:], places[:-1] - back + 1)


def rope_cos_sin(places: Tensor, size: int, base: float = ROTATION_BASE) -> tuple[Tensor, Tensor]:
    """Return the cosine and sine of the rotation angles of rotary position embeddings (RoPE) at the given positions.

    places (n,) -> two of (n, size / 2).
    """
    angles = places[:, None] * base ** (-torch.arange(0, size, 2, device=places.device) / size)
    return angles.cos(), angles.sin()


def rotate(X: Tensor, places: Tensor | None = None) -> Tensor:
    """Apply rotary position embeddings to ``X``: rotate each pair of features by an angle proportional to the position.

    X (…, n, size), size even; a pair is feature i of the first half of them with feature i of the second. ``places``
    (n,) says where the tokens stand; left out, at 0, 1, 2, … Source: Su et al. 2021, "RoFormer", section 3.2.
    """
    n, size = X.shape[-2:]
    cos, sin = rope_cos_sin(torch.arange(n, device=X.device) if places is None else places, size)
    own, others = torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)
    return X * own + X.roll(size // 2, dims=-1) * others  # (x, y) -> (x cos - y sin, y cos + x sin)


class RotaryAttention(MultiHeadAttention):
    """Compute multi-head self-attention with rotary position embeddings on queries and keys.

    With ``keys_from_before``, the key at each token is made from the token before it (at token 0, from nothing).
    """

    def __init__(self, num_heads: int, keys_from_before: bool) -> None:
        super().__init__(NUM_HIDDENS, num_heads, query_size=NUM_HIDDENS, key_size=NUM_HIDDENS, value_size=NUM_HIDDENS)
        self.keys_from_before = keys_from_before

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.keys_from_before:
            keys = F.pad(keys, (0, 0, 1, -1))  # (b, n, d): one place on, zeros first
        Q, K, V = super().project(queries, keys, values)
        return rotate(Q), rotate(K), V


class AttentionOnly(nn.Module):
    """Predict the next letter by layers of causal self-attention alone, without feed-forward networks.
    Each is added to the residual stream.
    """

    def __init__(self, num_layers: int = 2, num_heads: int = 2, keys_from_before: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_LETTERS, NUM_HIDDENS)
        self.output = nn.Linear(NUM_HIDDENS, NUM_LETTERS, bias=False)
        layers = nn.ModuleList(RotaryAttention(num_heads, keys_from_before) for _ in range(num_layers))
        self.layers = cast(Sequence[MultiHeadAttention], layers)  # to torch, they are any modules
        self.norms = nn.ModuleList(nn.LayerNorm(NUM_HIDDENS) for _ in range(num_layers + 1))

    def forward(self, letters: Tensor, head_mask: Tensor | None = None) -> Tensor:
        """(b, n) integers → (b, n, NUM_LETTERS). ``head_mask``, (num_layers, num_heads): 0 switches a head off."""
        return self.read(self.embedding(letters), head_mask)

    def read(self, X: Tensor, head_mask: Tensor | None = None, attn_mask: Tensor | Rule | None = None) -> Tensor:
        """Return the same from letters that are embedded, (b, n, NUM_HIDDENS). ``attn_mask`` is that of the layers."""
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms[:-1], strict=True)):
            Y = norm(X)
            heard = None if head_mask is None else head_mask[number]
            X = X + layer(Y, Y, Y, head_mask=heard, attn_mask=attn_mask, causal=True)
        return self.output(self.norms[-1](X))

    @property
    def attention_weights(self) -> Tensor:
        """Those of the last call, (num_layers, b, num_heads, n, n)."""
        return torch.stack([layer.attention_weights for layer in self.layers])

    def all_but(self, *heads: tuple[int, int]) -> Tensor:
        """Return a ``head_mask`` that switches off these heads, each given as (layer, head)."""
        mask = torch.ones(len(self.layers), self.layers[0].num_heads, device=self.output.weight.device)
        for layer, head in heads:
            mask[layer, head] = 0
        return mask


@dataclass(frozen=True)
class BirthRun:
    """Hold checkpoints of a model trained by ``train_on_repeats``, and the results of each on held-out rows.

    Attributes:
        steps: the kept steps.
        letters: the first of these rows, (NUM_TOKENS,).
        maps: its attention weights, (num_steps, num_layers, num_heads, NUM_TOKENS, NUM_TOKENS).
        losses: mean cross-entropy over the letters that are predictable, in nats.
        losses_elsewhere: the same over all others.
        previous_token: mean weight of each head on the token before, (num_steps, num_layers, num_heads).
        induction: mean weight of each head on the right key where the next letter is predictable, of the same shape.
        states: the parameters of the model.
        sizes: arguments of ``AttentionOnly``.
    """

    steps: list[int]
    letters: Tensor
    maps: Tensor
    losses: list[float]
    losses_elsewhere: list[float]
    previous_token: Tensor
    induction: Tensor
    states: list[dict[str, Tensor]]
    sizes: dict[str, Any]

    def model_at(self, step: int) -> AttentionOnly:
        """Return the model as it was after one of the kept steps.

        Raises:
            ValueError: this step was not kept.
        """
        if step not in self.steps:
            raise ValueError(f"step must be one of the kept steps, {self.steps}, got {step}")
        model = AttentionOnly(**self.sizes)
        model.load_state_dict(self.states[self.steps.index(step)])
        return model.eval()


def train_on_repeats(
    seed: int = 0,
    keep: Iterable[int] = range(0, NUM_STEPS + 1, 50),
    *,
    num_layers: int = 2,
    num_heads: int = 2,
    keys_from_before: bool = False,
    progress: bool | str = True,
) -> BirthRun:
    """Train an attention-only model on rows that repeat a sequence of letters; return checkpoints and their results.

    Steps are those of ``training_loop`` at a constant rate, on the loss over all letters.

    Args:
        seed: where all randomness comes from.
        keep: training steps, rising; 0 is before any training.
        num_layers, num_heads, keys_from_before: the model; see ``AttentionOnly`` and ``RotaryAttention``.
        progress: whether to show a progress bar, or the words to show beside it.

    Raises:
        ValueError: ``keep`` is empty, not rising, or holds a negative step.
    """
    keep = rising_steps(keep)
    sizes: dict[str, Any] = dict(num_layers=num_layers, num_heads=num_heads, keys_from_before=keys_from_before)
    rows = held_out_repeats()
    steps: Iterable[int] = range(keep[-1] + 1)
    if progress:
        steps = progress_bar(steps, keep[-1] + 1, progress if isinstance(progress, str) else "training")
    seen, states = [], []
    with single_thread(), seeded(seed) as generator:
        model = AttentionOnly(**sizes)

        def watched() -> Iterator[Tensor]:
            for step in steps:  # how many steps have been made
                if step in keep:
                    seen.append(_look(model, rows))
                    states.append({name: value.clone() for name, value in model.state_dict().items()})
                if step < keep[-1]:
                    yield letter_losses(model, sample_induction_batch(BATCH_SIZE, generator).letters).mean()

        training_loop(model, watched(), LEARNING_RATE)
    maps, losses, elsewhere, previous_token, induction = zip(*seen, strict=True)
    scores = torch.stack(previous_token), torch.stack(induction)
    return BirthRun(
        keep, rows.letters[0, :-1], torch.stack(maps), list(losses), list(elsewhere), *scores, states, sizes
    )


def held_out_repeats(number: int = HELD_OUT, num_tokens: int = NUM_TOKENS) -> InductionBatch:
    """Return fixed test rows in which one sequence of letters occurs twice; no training run uses them.

    >>> held_out_repeats(4).letters.shape
    torch.Size([4, 33])
    """
    return sample_induction_batch(number, torch.Generator().manual_seed(HELD_OUT_SEED), num_tokens)


def letter_losses(model: AttentionOnly, letters: Tensor, head_mask: Tensor | None = None) -> Tensor:
    """Return the model's cross-entropy at each next letter, in nats: letters (b, n + 1) -> losses (b, n)."""
    logits = model(letters[:, :-1], head_mask)
    return F.cross_entropy(logits.transpose(1, 2), letters[:, 1:], reduction="none")


@torch.no_grad()
def repeat_loss(model: AttentionOnly, without: Sequence[tuple[int, int]] = ()) -> float:
    """Return a model's mean cross-entropy on repeated letters of test rows, with the heads in ``without`` removed.
    It is in nats.

    Args:
        model: such as ``BirthRun.model_at`` gives.
        without: heads that are switched off, each as (layer, head).
    """
    rows = held_out_repeats()
    letters = rows.letters.to(model.output.weight.device)
    return letter_losses(model, letters, model.all_but(*without))[rows.predictable].mean().item()


@torch.no_grad()
def _look(model: AttentionOnly, rows: InductionBatch) -> tuple[Tensor, float, float, Tensor, Tensor]:
    """The first row's maps, the loss at predictable letters and elsewhere, and both scores of each head."""
    losses = letter_losses(model, rows.letters)
    weights = model.attention_weights  # (num_layers, b, num_heads, q, k)
    previous_token = weights.diagonal(-1, dim1=-2, dim2=-1).mean(dim=(1, 3))  # (num_layers, num_heads)
    return (
        weights[:, 0],
        losses[rows.predictable].mean().item(),
        losses[~rows.predictable].mean().item(),
        previous_token,
        weight_on_right_keys(weights, rows),
    )


def weight_on_right_keys(weights: Tensor, rows: InductionBatch) -> Tensor:
    """Return each head's mean attention weight on the token from which the next letter can be copied.
    Shapes: weights (num_layers, b, num_heads, q, k) -> (num_layers, num_heads).

    The mean is over the queries after which the next letter can be predicted.
    """
    examples, queries = rows.predictable.nonzero(as_tuple=True)
    return weights[:, examples, :, queries, rows.target_keys[examples, queries]].mean(dim=0)  # over these queries
