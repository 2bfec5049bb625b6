"""How much weight does SmolLM2 put on the first position, whatever is there? ``make research-sinks``; two minutes.

Twenty-four rows of prose, behind four first tokens: the one with which its conversations began, the one that ends a
text, an ordinary word, and none. Queries from position 16 on. Then the same word several times in front of twelve of
the rows: copies behind nothing else have equal states in every layer, so what is *a token that has seen only itself* is
told from *position 0*. Then what a window costs that drops the first tokens, on nine fresh texts. Writes sinks.json
into the library.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor

from mha_course import heads
from mha_course.models.smollm2 import FIRST_TOKEN, SmolLM2, smollm2
from mha_course.models.tasks import Batch
from research.kept import kept_file, rounded, write_compact
from research.prose import calibration_prose, fresh_texts
from research.real_texts import TASK, rows

ROWS, FIRST_QUERY = 24, 16
ENDS_A_TEXT = 0  # <|endoftext|>
COPIES, ROWS_BEHIND_COPIES = (1, 2, 4), 12
WINDOW_ROW = 160  # tokens
FIRST_KEPT, KEYS = 4, 28  # each window has as many keys


def main() -> None:
    """Measure every first token, copies and windows, and write the results."""
    model = smollm2()
    texts = rows(model, calibration_prose())[:ROWS]
    (the,) = model.tokenize(" the")
    firsts = {"<|im_start|>": FIRST_TOKEN, "<|endoftext|>": ENDS_A_TEXT, "the": the, "no first token": None}
    results: dict = {name: rounded(measure(model, behind(texts, first)), 3) for name, first in firsts.items()}
    results = {"first tokens": results}
    results["copies"] = {
        str(number): rounded(on_first(model, behind(texts[:ROWS_BEHIND_COPIES], *[the] * number), number + 1), 3)
        for number in COPIES
    }
    results["windows"] = rounded(windows(model), 3)
    write_compact(kept_file("sinks"), results)
    print(results)


def behind(texts: Tensor, *first: int | None) -> Tensor:
    """Put tokens before each text."""
    tokens = [token for token in first if token is not None]
    return torch.cat([torch.tensor([tokens]).long().expand(len(texts), -1), texts], dim=1)


@torch.no_grad()
def measure(model: SmolLM2, ids: Tensor) -> dict:
    """Mean weight on the first and the second position, by layer for the first, and the share of heads above a half."""
    model(ids)
    weights = torch.stack([layer[:, :, FIRST_QUERY:] for layer in model.attention_weights])  # (layers, b, h, q, k)
    heads = weights[..., :2].mean(dim=(1, 3))  # (layers, h, 2)
    uniform = (1 / torch.arange(FIRST_QUERY + 1.0, ids.shape[1] + 1)).mean()
    return {
        "first": heads[..., 0].mean().item(),
        "second": heads[..., 1].mean().item(),
        "uniform": uniform.item(),
        "above a half": (heads[..., 0] > 0.5).double().mean().item(),
        "layers": heads[..., 0].mean(dim=1).tolist(),
    }


@torch.no_grad()
def on_first(model: SmolLM2, ids: Tensor, number: int) -> Tensor:
    """Mean weight of all heads on each of the first positions: (number,)."""
    model(ids)
    return torch.stack([layer[:, :, FIRST_QUERY:, :number] for layer in model.attention_weights]).mean(dim=(0, 1, 2, 3))


def windows(model: SmolLM2) -> dict:
    """Nats a token that each text loses, where a query is past KEYS: with the last KEYS, and with fewer and the first.

    Texts are pairs of fresh ones of a kind; all keys keep their positions.
    """
    lines = [text for _, text in fresh_texts()]
    ids = [model.tokenize(f"{one} {other}")[:WINDOW_ROW] for one, other in zip(lines[::2], lines[1::2], strict=True)]
    batch = TASK.examples(torch.tensor([row for row in ids if len(row) == WINDOW_ROW]))
    whole = late_loss(model, batch)
    found = {"window": late_loss(model, batch, 0) - whole, "with the first tokens": late_loss(model, batch, FIRST_KEPT)}
    found["with the first tokens"] -= whole
    for name, more in found.items():
        print(name, heads.mean_and_ci95(more))
    return found


def late_loss(model: SmolLM2, batch: Batch, kept: int | None = None) -> Tensor:
    """The mean loss of each row where more than KEYS tokens came before; ``kept``: how many of KEYS are the first."""
    with ExitStack() as stack:
        if kept is not None:
            stack.enter_context(windowed(model, kept))
        return TASK.loss(model, batch)[:, KEYS:].mean(dim=1)


@contextmanager
def windowed(model: SmolLM2, kept: int) -> Iterator[None]:
    """Inside, each query attends to the first ``kept`` keys and to the last KEYS − ``kept``."""

    def rule(batch, head, query, key):
        return (key < kept) | (query - key < KEYS - kept)

    with ExitStack() as patches:
        for attention in model.attentions:
            patches.enter_context(patch.object(attention, "forward", partial(attention.forward, attn_mask=rule)))
        yield


if __name__ == "__main__":
    main()
