"""Is it these five heads? What SmolLM2 says next, on texts that nobody chose, ``python -m research.next_word``.

The next-word explorer shows eight texts that were chosen because something is to be seen in them. This measures the
same on others, written down before they were looked at: sixteen names in three frames, and twelve phrases, in all of
which the text gives another word than the one that everybody knows; and texts for the heads that have a name. Beside
every group of heads stand draws of as many others, of the same layers and of all. A quarter of an hour on one thread;
the results become next_word.json in the library, and the eight texts next_words.safetensors and next_words.json.
"""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.numpy import save
from torch import Tensor

import mha_course
from mha_course.heads.kept_results import load_results
from mha_course.models import next_words as says
from mha_course.models.next_words import ALL_HEADS, GROUPS, NUM_HEADS, Cut, NextWords, next_words
from mha_course.models.smollm2 import PACKAGE, SmolLM2, smollm2
from mha_lib.heads.progress_bar import progress_bar
from research.kept import kept_file, rounded, write_compact

FOLDER = Path(mha_course.__file__).with_name("models") / "sentences"
DRAWS = 20
CHOSEN = (  # the first is what the explorer opens with
    "Barack Miller went to the market. There, Barack",
    "Statue of Patience, I said. She saw the Statue of",
    "The queen looked at the crowd and raised",
    "France: Paris, Germany: Berlin, Italy:",
    "2+2=4, 5+1=6, 6+3=",
    "When Mary and John went to the store, John gave a drink to",
    "The Eiffel Tower is in the city of",
    "My brother (who lives in London",
)
SEEN_BEFORE = (  # of the screened texts: those on which the five were first noticed
    CHOSEN[0],
    CHOSEN[1],
    "Hong Lee went to the market. There, Hong",
    "Albert Zweig played the violin. Everybody loved Albert",
)
OTHERS = (  # no name comes again, or none that everybody knows
    "Monday, Tuesday, Wednesday, Thursday,",
    "def add(a, b):\n    return a +",
    "one, two, three, four, five,",
    "Winter, spring, summer,",
    "She opened the door, and then she closed the",
    "The opposite of hot is",
    "The sun rises in the east and sets in the",
    "He said [see the first page",
    "Salt and pepper, bread and",
    "Quibbleworth was a small dog. Everybody loved Quib",
)
FRAMES = (
    "{first} {last} went to the market. There, {first}",
    "{first} {last} sat in the garden. It was late, and {first}",
    "{first} {last} played the violin. Everybody loved {first}",
)
NAMES = {  # as the text has them, and how the famous one goes on
    "Barack Miller": ["Obama"],
    "Hong Lee": ["Kong"],
    "Albert Zweig": ["Einstein"],
    "Donald Baker": ["Trump"],
    "Hillary Stone": ["Clinton"],
    "Vladimir Moss": ["Putin"],
    "Elvis Potter": ["Presley"],
    "Leonardo Costa": ["da", "Da", "DiCaprio"],
    "Vincent Moor": ["van", "Van"],
    "Isaac Walter": ["Newton"],
    "Marilyn Cooper": ["Monroe"],
    "Harry Baker": ["Potter"],
    "Sherlock Brown": ["Holmes"],
    "Michael Wood": ["Jackson", "Jordan"],
    "Nelson Field": ["Mandela"],
    "Abraham King": ["Lincoln"],
}
PHRASE = "{first} {last}, I said. She saw the {first}"
PHRASES = {
    "Statue of Patience": ["Liberty"],
    "Mona Clara": ["Lisa"],
    "Big Tom": ["Ben"],
    "Golden Spoon": ["Gate"],
    "White Cottage": ["House"],
    "Grand Garden": ["Canyon"],
    "Great Garden": ["Wall", "Britain"],
    "Los Pinos": ["Angeles"],
    "San Marco": ["Francisco", "Diego"],
    "New Haven": ["York"],
    "Niagara Bridge": ["Falls"],
    "Empire Flower": ["State"],
}
WOMEN = ("queen", "mother", "woman", "girl", "actress", "sister", "lady", "princess")
MEN = ("king", "father", "man", "boy", "actor", "brother", "gentleman", "prince")
CAPITALS = {
    "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Russia": "Moscow", "China": "Beijing", "Greece": "Athens",
    "Egypt": "Cairo", "Austria": "Vienna", "Portugal": "Lisbon", "Poland": "Warsaw", "Ireland": "Dublin",
    "Norway": "Oslo",
}  # fmt: skip


def main() -> None:
    """Measure, and write the figures and what the explorer reads."""
    model, screened, others = smollm2(), list(texts_to_screen()), (*CHOSEN, *OTHERS)
    assert GROUPS["induction"] == induction_by_looks()
    draws = five_others()
    figures: dict[str, Any] = {
        "read or known": [
            read_or_known(model, *one, draws) for one in progress_bar(screened, len(screened), "screened")
        ],
        "others": [about(model, text, draws) for text in progress_bar(others, len(others), "others")],
        "her or his": her_or_his(model),
        "which country": which_country(model),
        "sums": sums(model),
    }
    write_compact(kept_file("next_word"), rounded(figures, 4))
    write_for_explorer([kept(model, text, draws) for text in progress_bar(CHOSEN, len(CHOSEN), "chosen")], draws)


# Heads and draws


def induction_by_looks() -> tuple[int, ...]:
    """The five heads that look most at the place behind an earlier copy, where random tokens come again."""
    looks = torch.tensor(cast(dict, load_results("real_heads"))["costs on repeats"]["induction"])
    return tuple(sorted(looks.flatten().topk(5).indices.tolist()))


def five_others(seed: int = 0) -> dict[str, list[tuple[int, ...]]]:
    """Draws of five heads that are none of the five: as many of the same layers, and of all 270."""
    five, pick = GROUPS["induction"], random.Random(seed)
    layers = sorted({head // NUM_HEADS for head in five})
    others = {layer: [head for head in in_layer(layer) if head not in five] for layer in layers}
    count = {layer: sum(head // NUM_HEADS == layer for head in five) for layer in layers}
    everywhere = [head for head in ALL_HEADS if head not in five]
    return {
        "same layers": [
            tuple(sorted(head for layer in layers for head in pick.sample(others[layer], count[layer])))
            for _ in range(DRAWS)
        ],
        "all heads": [tuple(sorted(pick.sample(everywhere, len(five)))) for _ in range(DRAWS)],
    }


def in_layer(layer: int) -> range:
    """The heads of a layer."""
    return range(layer * NUM_HEADS, (layer + 1) * NUM_HEADS)


def alone(group: str) -> dict[str, list[Cut]]:
    """No cut; a group's one head; and as cuts of one head the eight others of its layer, and twenty others of all."""
    (head,) = GROUPS[group]
    rest: list[Cut] = [(other,) for other in ALL_HEADS if other != head]
    own: list[Cut] = [(other,) for other in in_layer(head // NUM_HEADS) if other != head]
    return {"whole": [()], "it": [(head,)], "same layer": own, "all heads": random.Random(1).sample(rest, DRAWS)}


# Texts whose next word can be read or known


def texts_to_screen() -> Iterator[tuple[str, str, list[str]]]:
    """Each text, the word that it gave before, and the words by which everybody would know how to go on."""
    framed = [(frame, *pair) for pair in NAMES.items() for frame in FRAMES] + [
        (PHRASE, *pair) for pair in PHRASES.items()
    ]
    for frame, name, famous in framed:
        first, _, last = name.rpartition(" ")
        yield frame.format(first=first, last=last), last, famous


def about(model: SmolLM2, text: str, draws: dict) -> dict:
    """What the model says after a text: whole, without each group, and how many draws and single cuts change it."""
    found = next_words(model, text, [*GROUPS.values(), *itertools.chain(*draws.values())], each=True)
    return {
        "text": text,
        "whole": said(found, ()),
        "without": {name: said(found, heads) for name, heads in GROUPS.items()},
        "words of draws": {name: [said(found, cut)["word"] for cut in cuts] for name, cuts in draws.items()},
        "single cuts that change it": sum(said(found, (head,))["word"] != found.words[0] for head in ALL_HEADS),
        "single cuts that help": sum(cost(found, (head,)) < 0 for head in ALL_HEADS),
        "nats alone": sum(cost(found, (head,)) for head in GROUPS["induction"]),
        "nats together": cost(found, GROUPS["induction"]),
    }


def read_or_known(model: SmolLM2, text: str, read: str, famous: list[str], draws: dict) -> dict:
    """The same, and whether it is the word that was read, or one that everybody knows."""
    row = about(model, text, draws)
    known = begins(row["without"]["induction"]["word"], famous)
    return row | {
        "seen before": text in SEEN_BEFORE,
        "says what was read": begins(row["whole"]["word"], [read]),
        "says what is known without": known,
    }


def said(found: NextWords, cut: Cut) -> dict:
    """The word that comes first without some heads, its probability, and that of the whole model's word."""
    place = found.cuts.index(tuple(cut))
    return {
        "word": found.words[found.first[place]],
        "p": (-found.first_nats[place]).exp().item(),
        "p of the whole model's": (-found.nats[place, 0]).exp().item(),
    }


def cost(found: NextWords, cut: Cut) -> float:
    """What the whole model's word costs more without some heads, in nats."""
    return (found.nats[found.cuts.index(tuple(cut)), 0] - found.nats[0, 0]).item()


def begins(token: str, words: Sequence[str]) -> bool:
    """Whether a token is one of the words, or a beginning of one, with a space before it and at least one letter."""
    return token.startswith(" ") and len(token) > 1 and any(word.startswith(token[1:]) for word in words)


# Texts for the heads that have a name


def nats_of(model: SmolLM2, text: str, answers: Sequence[str], ways: dict[str, list[Cut]]) -> Tensor:
    """What the first token of each answer costs after a text without each of the cuts: (cuts, answers)."""
    cuts = [cut for own in ways.values() for cut in own]
    log_p = says.log_p_without(model, [says.START, *model.tokenize(text)], cuts)
    return -log_p[:, [model.tokenize(answer)[0] for answer in answers]]


def her_or_his(model: SmolLM2) -> dict:
    """log p(her) − log p(his) for each woman and man: whole, and for each way to cut a list."""
    ways = alone("her or his")
    found: dict[str, dict] = {}
    for kind, people in (("women", WOMEN), ("men", MEN)):
        nats = {
            one: nats_of(model, f"The {one} looked at the crowd and raised", [" her", " his"], ways) for one in people
        }
        found[kind] = {one: split((table[:, 1] - table[:, 0]).tolist(), ways) for one, table in nats.items()}
    return found


def which_country(model: SmolLM2) -> dict:
    """The probability of each capital: whole, and for each way to cut a list."""
    ways = alone("which country")
    found = {}
    for country, capital in CAPITALS.items():
        text = f"France: Paris, Germany: Berlin, {country}:"
        nats = nats_of(model, text, [f" {capital}"], ways)
        found[country] = split((-nats[:, 0]).exp().tolist(), ways)
    return found


def sums(model: SmolLM2) -> dict:
    """How many of the 36 sums of two digits that stay below ten are right: whole, and for each way to cut a list."""
    ways = alone("sums")
    right = torch.zeros(sum(map(len, ways.values())))
    pairs = [(a, b) for a in range(1, 9) for b in range(1, 9) if a + b <= 9]
    for a, b in pairs:
        nats = nats_of(model, f"2+2=4, 5+1=6, {a}+{b}=", [str(digit) for digit in range(10)], ways)
        right += nats.argmin(dim=1) == a + b
    return {"sums": len(pairs), **split(right.tolist(), ways)}


def split(values: list, ways: dict[str, list[Cut]]) -> dict[str, list]:
    """A list of results, in the parts that their cuts stand in."""
    rest = iter(values)
    return {name: list(itertools.islice(rest, len(own))) for name, own in ways.items()}


# What the explorer reads


def kept(model: SmolLM2, text: str, draws: dict) -> NextWords:
    """A text with every single cut, all sets of the marked heads, and all draws."""
    marked = sorted({head for group in GROUPS.values() for head in group})
    sets = itertools.chain.from_iterable(itertools.combinations(marked, size) for size in range(2, len(marked) + 1))
    return next_words(model, text, [*sets, *itertools.chain(*draws.values())], each=True)


def write_for_explorer(texts: list[NextWords], draws: dict) -> None:
    """Results as thousandths of a nat, maps as bytes; what they are, in words, beside them."""
    arrays = {}
    for number, one in enumerate(texts):
        arrays[f"{number}.rows"], arrays[f"{number}.maps"] = one.rows(), one.triangles()
    (FOLDER / "next_words.safetensors").write_bytes(save(arrays))
    about = {
        "what": "SmolLM2's next word with heads cut: see mha_course/models/next_words.py",
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct, Apache License 2.0",
        "package": f"{PACKAGE.requirement}, Apache License 2.0; {PACKAGE.sha256}",
        "cuts": texts[0].cuts,
        "draws": draws,
        "texts": [{"text": one.text, "tokens": one.tokens, "words": one.words} for one in texts],
    }
    (FOLDER / "next_words.json").write_text(
        json.dumps(about, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
