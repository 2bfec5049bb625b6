"""Four ways to tell a token where it stands, on rows of ``mha_course.models.induction``, in which a piece comes again.

One model, trained with each of them, and then asked at lengths and with padding that it was not trained on.

Source: learned places and sines, Vaswani et al. 2017, "Attention Is All You Need", section 3.5; rotated ones, Su et al.
2021, "RoFormer". The sines take the base of our rotation, since our rows are short.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from mha_course.models.induction import (
    BATCH_SIZE,
    LEARNING_RATE,
    NUM_HIDDENS,
    NUM_STEPS,
    AttentionOnly,
    InductionBatch,
    letter_losses,
    rope_cos_sin,
    sample_induction_batch,
)
from mha_course.models.shipped import shipped
from mha_course.models.threads import single_thread
from mha_course.models.training import seeded, training_loop
from mha_lib.attention import MultiHeadAttention

__all__ = ["right_letters", "shipped_positional_model", "train_positional"]

SCHEMES = ("rotated", "learned", "sines", "none")
LONGEST = 64  # as many places as the tables have
STEPS_TO_SHIP = 3 * NUM_STEPS


class PositionalModel(AttentionOnly):
    """Predict the next letter by two layers of two attention heads, with the position embedding named ``kind``.

    "rotated" is ``AttentionOnly``. "learned" and "sines" add a row of ``table``, (LONGEST, NUM_HIDDENS), to each
    letter; "none" adds nothing.

    Raises:
        ValueError: ``kind`` is not one of ``SCHEMES``.
    """

    table: Tensor | None

    def __init__(self, kind: str) -> None:
        if kind not in SCHEMES:
            raise ValueError(f"kind must be one of {', '.join(SCHEMES)}, got {kind!r}")
        super().__init__()
        if kind != "rotated":
            size = NUM_HIDDENS
            layers = (MultiHeadAttention(size, 2, query_size=size, key_size=size, value_size=size) for _ in range(2))
            self.layers = cast(Sequence[MultiHeadAttention], nn.ModuleList(layers))
        if kind == "learned":
            self.table = nn.Parameter(torch.randn(LONGEST, NUM_HIDDENS))
        elif kind == "sines":
            cos, sin = rope_cos_sin(torch.arange(LONGEST), NUM_HIDDENS)
            # A buffer, so that it goes where the model goes.
            self.register_buffer("table", torch.cat([sin, cos], dim=-1), persistent=False)
        else:
            self.table = None

    def forward(
        self,
        letters: Tensor,
        head_mask: Tensor | None = None,
        padding: Tensor | None = None,
        places: Tensor | None = None,
    ) -> Tensor:
        """(b, n) integers → (b, n, NUM_LETTERS).

        Args:
            head_mask: (num_layers, num_heads); 0 switches a head off.
            padding: (b, n), True where there is no token; nobody looks there. Left out, all are tokens.
            places: (b, n), the rows of ``table`` to add; left out, 0, 1, 2, … by column.
        """
        X = self.embedding(letters)
        if self.table is not None:
            X = X + (self.table[: letters.shape[1]] if places is None else self.table[places])
        return self.read(X, head_mask, None if padding is None else ~padding[:, None, None])


def train_positional(kind: str, seed: int, steps: int = NUM_STEPS) -> PositionalModel:
    """Train a new ``PositionalModel`` with the position embedding ``kind``, and return it in eval mode.
    Training is that of ``train_on_repeats``.
    """
    with single_thread(), seeded(seed) as generator:
        model = PositionalModel(kind)
        batches = (sample_induction_batch(BATCH_SIZE, generator).letters for _ in range(steps))
        training_loop(model, (letter_losses(model, letters).mean() for letters in batches), LEARNING_RATE)
    return model.eval()


def weights_name(kind: str) -> str:
    """Return the name of the shipped weights of a ``PositionalModel`` with the position embedding ``kind``."""
    return f"places_{kind}"


def shipped_positional_model(kind: str) -> PositionalModel:
    """Load the trained ``PositionalModel`` with the position embedding ``kind`` that ships with this library.
    Errors are those of ``shipped``.
    """
    return shipped(weights_name(kind), lambda: PositionalModel(kind))


@torch.no_grad()
def right_letters(
    model: PositionalModel, rows: InductionBatch, left: int = 0, *, masked: bool = True, counted: bool = False
) -> Tensor:
    """Return a bool tensor: whether the model predicts each letter of ``rows`` that continues a repeated sequence.

    Args:
        left: how many columns of padding, all of letter 0, stand before each row.
        masked: whether nobody looks at the padding.
        counted: whether places begin at the first token; else they begin at the first column.
    """
    letters = nn.functional.pad(rows.letters[:, :-1], (left, 0))
    padding = (torch.arange(letters.shape[1], device=letters.device) < left).expand(letters.shape)
    places = (~padding).cumsum(1).sub(1).clamp(min=0) if counted else None
    logits = model(letters, padding=padding if masked else None, places=places)[:, left:]
    return (logits.argmax(-1) == rows.letters[:, 1:])[rows.predictable]
