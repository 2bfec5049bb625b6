"""What heads and markers are worth to MiniLM: how far the vector of a sentence turns without them.

A sentence's vector is the mean over its tokens, as MiniLM was trained. A cost is 1 minus the cosine between the vectors
with and without something, averaged over the eighteen texts of ``fresh_texts``. ``python -m research.sentence_costs``,
two minutes on one thread; writes sentence_costs.md, which notebook 06 quotes. Needs ``make real-models``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.report import markdown
from mha_course.heads import ranks
from mha_course.models.pretrained import NAMED_HEADS, MiniLM, minilm
from mha_course.models.threads import single_thread
from research.kept import write_report
from research.prose import fresh_texts

SHAPE = (6, 12)
PAIRS = ((2, 8), (3, 1)), ((2, 9), (1, 1))  # that find the same words
Place = tuple[int, int]
Change = Callable[[Tensor], Tensor]  # of values, (b, h, n, d)


@torch.no_grad()
def vectors(model: MiniLM, sentences: Sequence[str], without: Sequence[Place] = ()) -> Tensor:
    """The vector of each sentence where some heads give zeros: (sentences, 384)."""
    ids, valid_lens = model.tokenize(sentences)
    gates = torch.ones(SHAPE)
    for place in without:
        gates[place] = 0
    real = torch.arange(ids.shape[1]) < valid_lens[:, None]
    return (model(ids, valid_lens, gates) * real[..., None]).sum(dim=1) / valid_lens[:, None]


def costs(model: MiniLM, sentences: Sequence[str], removals: Sequence[Sequence[Place]]) -> list[float]:
    """What the absence of some heads costs, for each of several removals."""
    whole = vectors(model, sentences)
    return [(1 - F.cosine_similarity(whole, vectors(model, sentences, without))).mean().item() for without in removals]


@contextmanager
def values_changed(model: MiniLM, change: Change) -> Iterator[None]:
    """Inside, the values of all layers go through ``change``; queries, keys and so the scores of a layer do not."""
    with ExitStack() as patches:
        for attention in model.attentions:

            def project(*tokens: Tensor, own=attention.project) -> tuple[Tensor, Tensor, Tensor]:
                Q, K, V = own(*tokens)
                return Q, K, change(V)

            patches.enter_context(patch.object(attention, "project", project))
        yield


def markers(model: MiniLM, sentences: Sequence[str]) -> dict[str, float]:
    """The cosine with the whole model's vector where the values of two tokens of each sentence give way in all layers.

    Those of [CLS] and [SEP], or of two words that are drawn; to zeros, or to the mean over the sentence's words.
    """
    _, lengths = model.tokenize(sentences)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([1 + torch.randperm(int(n) - 2, generator=generator)[:2] for n in lengths])
    ends = torch.stack([torch.zeros_like(lengths), lengths - 1], dim=1)
    whole = vectors(model, sentences)
    found = {}
    for name, two, to_mean in (
        ("[CLS] and [SEP], zeros", ends, False),
        ("two words, zeros", drawn, False),
        ("[CLS] and [SEP], mean of the words", ends, True),
        ("two words, mean of the words", drawn, True),
    ):

        def change(V: Tensor, two: Tensor = two, to_mean: bool = to_mean) -> Tensor:
            at = torch.arange(V.shape[2])
            is_word = (at > 0) & (at < lengths[:, None] - 1)
            mean = (V * is_word[:, None, :, None]).sum(dim=2) / (lengths - 2)[:, None, None]
            gone = (at == two[..., None]).any(dim=1)[:, None, :, None]
            return torch.where(gone, mean[:, :, None] if to_mean else 0.0, V)

        with values_changed(model, change):
            found[name] = F.cosine_similarity(whole, vectors(model, sentences)).mean().item()
    return found


@torch.no_grad()
def shares_of_markers(model: MiniLM, sentences: Sequence[str]) -> dict[str, list[float]]:
    """How much of the weight, and of the lengths of what is added (Kobayashi et al. 2020), is of [CLS] and [SEP].

    One share a layer, the mean over heads, queries and sentences, each sentence read alone.
    """
    found: dict[str, list[Tensor]] = {"weight": [], "length": []}
    for sentence in sentences:
        values: list[Tensor] = []

        def keep(V: Tensor, values: list[Tensor] = values) -> Tensor:
            values.append(V[0])
            return V

        with values_changed(model, keep):
            vectors(model, [sentence])
        weight, length = [], []
        for attention, V in zip(model.attentions, values, strict=True):
            A = attention.attention_weights[0]  # (h, q, k)
            W_o = attention.W_o.weight.unflatten(1, (SHAPE[1], -1))  # (384, h, d)
            added = A * torch.einsum("ohd,hkd->hko", W_o, V).norm(dim=-1)[:, None]
            weight.append(A[..., [0, -1]].sum(dim=-1).mean())
            length.append((added[..., [0, -1]].sum(dim=-1) / added.sum(dim=-1)).mean())
        found["weight"].append(torch.stack(weight))
        found["length"].append(torch.stack(length))
    return {name: torch.stack(rows).mean(dim=0).tolist() for name, rows in found.items()}


def report(single: Tensor, together: Sequence[float], changed: Mapping[str, float], shares: Mapping) -> str:
    """Costs of single heads (6, 12) and of PAIRS, cosines without two tokens' values, shares of [CLS] and [SEP]."""
    rank = ranks(single)
    named = [
        [f"{place[0]}, {place[1]}", name, f"{single[place]:.4f}", str(rank[place].item())]
        for place, name in NAMED_HEADS.items()
    ]
    pairs = [
        [f"{one} and {other}", *(f"{cost:.4f}" for cost in (single[one], single[other], both))]
        for (one, other), both in zip(PAIRS, together, strict=True)
    ]
    values = [[name, f"{cosine:.3f}"] for name, cosine in changed.items()]
    layers = [[name, *(f"{share:.2f}" for share in row)] for name, row in shares.items()]
    parts = (
        "# What heads and markers of MiniLM are worth on the texts of fresh_texts.txt",
        "1 − cosine between a text's vectors with and without a head; rank 1 costs most:",
        markdown(("layer, head", "name", "cost", "rank of 72"), named),
        "Two heads that find the same words:",
        markdown(("heads", "first", "second", "both"), pairs),
        "Cosine with the whole model's vector where the values of two tokens give way in all layers:",
        markdown(("values of", "cosine"), values),
        "Share of [CLS] and [SEP] in the weights, and in the lengths of what heads add, by layer:",
        markdown(("share of", *map(str, range(SHAPE[0]))), layers),
    )
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measure, print, write."""
    texts, places = (
        [text for _, text in fresh_texts()],
        [(layer, head) for layer in range(SHAPE[0]) for head in range(SHAPE[1])],
    )
    with single_thread():
        model = minilm()
        found = costs(model, texts, [*([place] for place in places), *PAIRS])
        single, together = torch.tensor(found[: len(places)]).view(SHAPE), found[len(places) :]
        page = report(single, together, markers(model, texts), shares_of_markers(model, texts))
    write_report(__file__, page)


if __name__ == "__main__":
    main()
