"""What SmolLM2 says next, with all heads and without some; and eight texts of which this is kept.

A text stands behind the token ``<|endoftext|>``, which stood before every text that the model was first trained on. A
head is a number here, 9 · layer + head, and a *cut* is a rising list of them: those heads give zeros. A "word" is a
token, which may be a piece of a word.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from safetensors.numpy import load
from torch import Tensor

from mha_course.models.shipped import package_data
from mha_course.models.smollm2 import NUM_HEADS, NUM_LAYERS, SmolLM2

__all__ = ["kept_next_words", "next_words"]

START = 0  # <|endoftext|>
NUM_WORDS = 10
MOST_NATS = 65.0  # what costs more is kept as this
MOST_TOKENS = 40
ALL_HEADS = range(NUM_LAYERS * NUM_HEADS)
AT_ONCE = 24  # cuts that are run together
GROUPS = {  # chosen on other texts: make research-next-word says how each does on texts that nobody chose
    "induction": (156, 157, 158, 168, 169),
    "the token before": (144,),
    "her or his": (227,),
    "which country": (211,),
    "sums": (188,),
}
COMMAND = "make research-next-word"
Cut = Sequence[int]


@dataclass(frozen=True)
class NextWords:
    """Hold the most likely next words after a text, predicted with all heads and with chosen heads removed.

    Attributes:
        text: the text.
        tokens: its tokens as text, behind an empty one for the start, n of them.
        maps: where each head of the whole model looks, (NUM_LAYERS, NUM_HEADS, n, n).
        cuts: the heads that are gone, for each cut.
        words: the ten words that the whole model finds likeliest, the likeliest first; then others.
        nats: what each of the ten costs without the heads of each cut, (cuts, 10), which is −ln of its probability.
        first: the number of the word that then comes first, (cuts,).
        first_nats: what that word then costs, (cuts,).
    """

    text: str
    tokens: list[str]
    maps: Tensor
    cuts: list[tuple[int, ...]]
    words: list[str]
    nats: Tensor
    first: Tensor
    first_nats: Tensor

    def rows(self) -> np.ndarray:
        """Whole numbers for each cut, (cuts, 12): thousandths of a nat, and the number of a word.

        Ten for the ten words, then which word comes first, and what that one costs.
        """
        nats = torch.cat([self.nats, self.first_nats[:, None]], dim=1).clamp(max=MOST_NATS).mul(1000).round()
        return np.insert(nats.numpy(), NUM_WORDS, self.first.numpy(), axis=1).astype("<u2")

    def triangles(self) -> np.ndarray:
        """Return the lower triangle of every head's map in 255ths, (270, n (n + 1) / 2): no token sees a later one."""
        rows, columns = np.tril_indices(len(self.tokens))
        return (255 * self.maps.flatten(0, 1)[:, rows, columns]).round().numpy().astype(np.uint8, order="C")


@torch.no_grad()
def next_words(
    model: SmolLM2,
    text: str,
    cuts: Iterable[Cut] = (),
    *,
    each: bool = False,
    progress: Callable[[float], None] = lambda share: None,
) -> NextWords:
    """Predict the next word after a text with all heads of the model, and with each set of heads in ``cuts`` removed.

    Args:
        model: from ``smollm2()``.
        text: at most ``MOST_TOKENS`` tokens.
        cuts: heads that are switched off together, 9 · layer + head each; one list for each cut.
        each: whether to take every head out alone, too.
        progress: hears after each layer of the single cuts how much is done, from 0 to 1.

    Raises:
        ValueError: the text is empty or too long.
    """
    ids = [START, *model.tokenize(text)]
    if not 2 <= len(ids) <= MOST_TOKENS + 1:
        raise ValueError(f"text must have from 1 to {MOST_TOKENS} tokens, got {len(ids) - 1}")
    alone = [(head,) for head in ALL_HEADS] if each else []
    wanted = list(dict.fromkeys(tuple(sorted(cut)) for cut in cuts))
    wanted = [cut for cut in wanted if cut and cut not in alone]
    log_p, maps = _whole_and_each(model, ids, each, progress)
    log_p = torch.cat([log_p, log_p_without(model, ids, wanted)]) if wanted else log_p
    log_p, maps = log_p.cpu(), maps.cpu()
    ten = log_p[0].topk(NUM_WORDS).indices
    first_log_p, first = log_p.max(dim=-1)
    vocabulary = list(dict.fromkeys([*ten.tolist(), *first.tolist()]))
    return NextWords(
        text, ["", *(spell(model, token) for token in ids[1:])], maps, [(), *alone, *wanted],
        [spell(model, token) for token in vocabulary],
        -log_p[:, ten], torch.tensor([vocabulary.index(token) for token in first.tolist()]), -first_log_p,
    )  # fmt: skip


def spell(model: SmolLM2, token: int) -> str:
    """Return the text of a token id, with the space that it may begin with."""
    return model.tokenizer.decode([token], skip_special_tokens=False)


def _whole_and_each(model: SmolLM2, ids: list[int], each: bool, progress: Callable) -> tuple[Tensor, Tensor]:
    """log p of the next token, (1 or 271, vocabulary), and the whole model's maps.

    The nine cuts of a layer join in at this layer: what lies below them is computed once.
    """
    X, maps = _embedded(model, ids), []  # (1, n, d)
    for layer, block in enumerate(model.blocks.values()):
        gates = X.new_ones(len(X), NUM_HEADS)
        if each:
            X = torch.cat([X, X[:1].expand(NUM_HEADS, -1, -1)])  # (1 + 9 layer, n, d) -> (1 + 9 (layer + 1), n, d)
            gates = torch.cat([gates, 1 - torch.eye(NUM_HEADS, device=X.device)])
        X = block(X, X, None, gates)
        maps.append(block.attention.attention_weights[0].clone())
        progress((layer + 1) / NUM_LAYERS)
    return _last(model, X), torch.stack(maps)


def gates_of(cuts: Sequence[Cut]) -> Tensor:
    """Return a head mask for each set of heads, 0 for the heads in it and 1 for all others: (cuts, layers, heads)."""
    gates = torch.ones(len(cuts), NUM_LAYERS * NUM_HEADS)
    for row, cut in zip(gates, cuts, strict=True):
        row[list(cut)] = 0
    return gates.unflatten(1, (NUM_LAYERS, NUM_HEADS))


@torch.no_grad()
def log_p_without(model: SmolLM2, ids: Sequence[int], cuts: Sequence[Cut]) -> Tensor:
    """Return the log probabilities of the next token with each set of heads in ``cuts`` removed: (cuts, vocabulary)."""
    found = []
    for some in gates_of(cuts).split(AT_ONCE):
        X = _embedded(model, ids).expand(len(some), -1, -1)  # (1, n, d) -> (cuts, n, d)
        for layer, block in enumerate(model.blocks.values()):
            X = block(X, X, None, some[:, layer].to(X.device))
        found.append(_last(model, X))
    return torch.cat(found)


def _embedded(model: SmolLM2, ids: Sequence[int]) -> Tensor:
    """The tokens as the first layer gets them: (1, n, d)."""
    return model.embedding(torch.tensor([ids], device=model.device))


def _last(model: SmolLM2, X: Tensor) -> Tensor:
    """log p of what comes after the last token: (b, n, d) -> (b, vocabulary)."""
    return model.output(X[:, -1]).log_softmax(dim=-1)


def kept_next_words() -> list[NextWords]:
    """Load stored next-word predictions of SmolLM2 for eight texts, with all heads and with many sets removed.
    The sets are all single heads, all unions of ``GROUPS``, and random ones.

    No package is needed. Nats are kept in thousandths, weights in 255ths; ``next_words.json``, beside the numbers,
    holds source and licence.

    Raises:
        FileNotFoundError: this copy of the library lacks them; the message says how to get them.
    """
    numbers = load(package_data("models/sentences/next_words.safetensors", COMMAND))
    about = _kept_about()
    cuts = [tuple(cut) for cut in about["cuts"]]
    return [_unpacked(one, cuts, numbers[f"{i}.rows"], numbers[f"{i}.maps"]) for i, one in enumerate(about["texts"])]


def kept_draws() -> dict[str, list[list[int]]]:
    """Load stored random sets of five heads of SmolLM2: from the layers of its induction heads, and from all layers.
    There are twenty of each, the random baselines of ``kept_next_words``.
    """
    return _kept_about()["draws"]


def _kept_about() -> dict:
    return json.loads(package_data("models/sentences/next_words.json", COMMAND))


def _unpacked(about: dict, cuts: list[tuple[int, ...]], rows: np.ndarray, triangles: np.ndarray) -> NextWords:
    """What ``rows`` and ``triangles`` gave, read back."""
    n = len(about["tokens"])
    maps = np.zeros((len(triangles), n, n), np.float32)
    maps[:, *np.tril_indices(n)] = triangles / 255
    nats = torch.from_numpy(np.delete(rows, NUM_WORDS, axis=1).astype(np.float32) / 1000)
    return NextWords(
        about["text"], about["tokens"], torch.from_numpy(maps).unflatten(0, (NUM_LAYERS, NUM_HEADS)), cuts,
        about["words"], nats[:, :-1], torch.from_numpy(rows[:, NUM_WORDS].astype(np.int64)), nats[:, -1],
    )  # fmt: skip
