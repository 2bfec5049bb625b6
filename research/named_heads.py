"""What the named heads of MiniLM do on sentences that nobody chose: ``python -m research.named_heads``.

The sentences are drawn from a small grammar, so that it is known which word belongs to which. A head is right where its
strongest weight, [CLS] and [SEP] aside, falls on that word. Beside it stand what one fixed distance would reach, which
other head is best, and the same head with W_q and W_k drawn anew. Writes named_heads.md, and what ``kept_figures``
gives. Needs ``make real-models``.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor

import mha_course
from benchmarks.report import markdown
from mha_course.models.pretrained import NAMED_HEADS, MiniLM, minilm
from mha_course.models.threads import single_thread
from mha_course.models.training import seeded
from research.kept import write_report

FIGURES = Path(mha_course.__file__).with_name("models") / "sentences" / "named_heads.json"
SEED, NUM_SENTENCES = 0, 400
WOMEN = ("queen", "actress", "girl", "mother", "sister", "daughter", "aunt", "woman")
MEN = ("king", "waiter", "boy", "father", "brother", "son", "uncle", "man")
ADJECTIVES = ("old", "quiet", "tall", "young", "tired", "clever", "rich", "poor", "happy", "small")
VERBS = ("thanked", "praised", "called", "met", "followed", "helped", "saw", "kissed", "visited", "watched")
CONJUNCTIONS = ("because", "when", "while", "after", "before")
ENDS = ("was late", "had won", "felt cold", "could sing", "wanted to leave", "left the house")
ROLES = {  # what is asked of a named head
    (0, 2): "before",
    (1, 8): "after",
    (1, 3): "person",
    (2, 0): "verb",
    (2, 8): "noun",
    (2, 9): "same",
    (3, 1): "noun",
    (4, 5): "[CLS]",
}
Pair = tuple[int, int, int]  # number of the sentence, place of the query, place of the key; [CLS] stands at 0


def draw(generator: random.Random) -> tuple[list[str], dict[str, list[tuple[int, int]]]]:
    """A sentence, and for each role the places of a query and of the key that it should find."""
    people = generator.sample([generator.choice(WOMEN), generator.choice(MEN)], 2)
    adjectives = generator.sample(ADJECTIVES, 4)
    count = [generator.randrange(3), generator.randrange(3)]
    first = ["the", *adjectives[: count[0]], people[0]]
    second = ["the", *adjectives[4 - count[1] :][: count[1]], people[1]]
    named, again = generator.choice(people), generator.random() < 0.5
    subject = ["the", named] if again else ["she" if named in WOMEN else "he"]
    words = [*first, generator.choice(VERBS), *second, generator.choice(CONJUNCTIONS), *subject]
    words += generator.choice(ENDS).split()
    verb, start = 1 + len(first), 2 + len(first)  # places count [CLS]
    place = {people[0]: verb - 1, people[1]: start + len(second) - 1}
    last = start + len(second) + len(subject)
    return words, {
        "before": [(query, query - 1) for query in range(2, len(words) + 1)],
        "after": [(query, query + 1) for query in range(1, len(words))],
        "[CLS]": [(query, 0) for query in range(1, len(words) + 1)],
        "noun": [(1, place[people[0]]), (start, place[people[1]])],
        "verb": [(place[people[1]], verb)],
        "same": [(last, place[named]), (place[named], last)] if again else [],
        "person": [] if again else [(last, place[named])],
    }


def examples() -> tuple[list[str], dict[str, list[Pair]]]:
    """All sentences, and for each role all pairs."""
    generator = random.Random(SEED)
    sentences: list[str] = []
    pairs: dict[str, list[Pair]] = {role: [] for role in ROLES.values()}
    for number in range(NUM_SENTENCES):
        words, found = draw(generator)
        sentences.append(" ".join(words))
        for role, places in found.items():
            pairs[role] += [(number, *place) for place in places]
    return sentences, pairs


def attention(model: MiniLM, sentences: list[str]) -> Tensor:
    """Weights of all heads, (sentences, 6, 12, n, n), 0 on padding."""
    ids, valid_lens = model.tokenize(sentences)
    assert valid_lens.tolist() == [2 + len(sentence.split()) for sentence in sentences], "a word is cut into pieces"
    with torch.no_grad():
        model(ids, valid_lens)
        return torch.stack(model.attention_weights, dim=1)


def shares_right(weights: Tensor, pairs: list[Pair], role: str) -> Tensor:
    """For every head (6, 12): in which share of the pairs its strongest weight falls on the right word."""
    sentence, query, key = torch.tensor(pairs).T
    rows = weights[sentence, :, :, query].clone()  # (sentences, 6, 12, n, n) -> (pairs, 6, 12, n)
    if role != "[CLS]":
        ends = torch.arange(rows.shape[-1]) >= (weights[:, 0, 0, 0] > 0).sum(dim=-1)[sentence, None] - 1
        rows.masked_fill_(ends[:, None, None], 0)
        rows[..., 0] = 0
    return (rows.argmax(dim=-1) == key[:, None, None]).double().mean(dim=0)


def redrawn(model: MiniLM, layer: int) -> MiniLM:
    """The model with the queries' and keys' maps of one layer drawn anew, as large as they were."""
    model = deepcopy(model)
    attention = model.attentions[layer]
    with seeded(SEED), torch.no_grad():
        for linear in (attention.W_q, attention.W_k):
            linear.weight.normal_(0, linear.weight.std().item())
    return model


def figures(model: MiniLM) -> Iterator[dict]:
    """What ``kept_figures`` says of every named head."""
    sentences, pairs = examples()
    weights = attention(model, sentences)
    for (layer, head), role in ROLES.items():
        right = shares_right(weights, pairs[role], role)
        rivals = right.clone()
        rivals[layer, head] = 0
        best = rivals.argmax().item()
        distance = max(Counter(key - query for _, query, key in pairs[role]).values()) / len(pairs[role])
        sentence, query, key = torch.tensor(pairs[role]).T
        weight = weights[sentence, layer, head, query, key].mean().item()
        control = shares_right(attention(redrawn(model, layer), sentences), pairs[role], role)[layer, head].item()
        yield {
            "layer": layer,
            "head": head,
            "where it looks": NAMED_HEADS[layer, head],
            "pairs": len(pairs[role]),
            "mean weight": round(weight, 2),
            "right": round(right[layer, head].item(), 2),
            "one distance": None if role == "[CLS]" else round(distance, 2),
            "best other": round(rivals.max().item(), 2),
            "which other": divmod(best, 12),
            "redrawn": round(control, 2),
        }


def report(kept: list[dict]) -> str:
    """The figures as a page."""
    rows = [
        [
            f"{one['layer']}, {one['head']}",
            one["where it looks"],
            str(one["pairs"]),
            f"{one['mean weight']:.2f}",
            f"{one['right']:.2f}",
            "" if one["one distance"] is None else f"{one['one distance']:.2f}",
            f"{one['best other']:.2f} ({one['which other'][0]}, {one['which other'][1]})",
            f"{one['redrawn']:.2f}",
        ]
        for one in kept
    ]
    head = ("layer, head", "where it looks", "pairs", "mean weight", "right", "one distance", "best other", "redrawn")
    return f"# Named heads of MiniLM on {NUM_SENTENCES} drawn sentences\n\n{markdown(head, rows)}\n"


def main() -> None:
    """Measure, print, write."""
    with single_thread():
        kept = list(figures(minilm()))
    FIGURES.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_report(__file__, report(kept))


if __name__ == "__main__":
    main()
