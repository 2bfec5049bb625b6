"""Does MiniLM's head *he or she → the person* find the person behind other words and in other sentences?

``python -m research.person_frames``; under a minute; writes person_frames.md. The frames share no person, verb or end
with ``named_heads``, on which the head was tried first. Needs ``make real-models``.
"""

import random

import torch

from benchmarks.report import markdown
from mha_course.models.pretrained import MiniLM, minilm
from mha_course.models.threads import single_thread
from research.kept import write_report
from research.named_heads import attention

HEAD = 1, 3
SEED, SENTENCES_OF_A_FRAME = 0, 100
WOMEN = ("princess", "duchess", "wife", "widow", "lady", "grandmother", "niece", "bride", "nun")
MEN = ("prince", "duke", "husband", "monk", "lord", "grandfather", "nephew", "priest", "knight")
VERBS = ("warned", "joined", "blamed", "trusted", "paid", "heard", "feared", "greeted")
ENDS = ("was tired", "could dance", "had lost", "needed help", "felt happy", "came home")
FRAMES = {  # one and other are the two persons, third another of the other sex than the pronoun
    "as before": "the {one} {verb} the {other} because {pronoun} {end}",
    "over a full stop": "the {one} {verb} the {other} . then {pronoun} {end}",
    "pronoun first": "because {pronoun} {end} , the {one} {verb} the {other}",
    "a third person between": "the {one} {verb} the {other} near the {third} because {pronoun} {end}",
}


def draw(frame: str, generator: random.Random) -> tuple[str, str, str, str]:
    """A sentence, its pronoun, the person whom it means, and the other one of the two."""
    pair = [generator.choice(WOMEN), generator.choice(MEN)]
    meant = generator.choice(pair)
    (wrong,) = (person for person in pair if person != meant)
    others = [person for person in (MEN if meant in WOMEN else WOMEN) if person != wrong]
    one, other = generator.sample(pair, 2)
    pronoun = "she" if meant in WOMEN else "he"
    sentence = frame.format(
        one=one, other=other, third=generator.choice(others), pronoun=pronoun,
        verb=generator.choice(VERBS), end=generator.choice(ENDS),
    )  # fmt: skip
    return sentence, pronoun, meant, wrong


def right_in(model: MiniLM, frame: str) -> tuple[float, float]:
    """In which share of sentences the largest weight on a word is on the person, and that on the other one is less."""
    generator = random.Random(SEED)
    drawn = [draw(frame, generator) for _ in range(SENTENCES_OF_A_FRAME)]
    weights = attention(model, [sentence for sentence, *_ in drawn])[:, HEAD[0], HEAD[1]]
    largest, ahead = [], []
    for A, (sentence, pronoun, meant, wrong) in zip(weights, drawn, strict=True):
        words = sentence.split()
        row = A[1 + words.index(pronoun), 1 : 1 + len(words)]
        largest.append(row.argmax() == words.index(meant))
        ahead.append(row[words.index(meant)] > row[words.index(wrong)])
    return torch.stack(largest).double().mean().item(), torch.stack(ahead).double().mean().item()


def main() -> None:
    """Measure, print, write."""
    with single_thread():
        rows = [[name, *(f"{share:.2f}" for share in right_in(minilm(), frame))] for name, frame in FRAMES.items()]
    title = f"# Head {HEAD[0]}, {HEAD[1]} of MiniLM, *he or she → the person*, on other words"
    told = f"Shares of {SENTENCES_OF_A_FRAME} sentences of each frame."
    table = markdown(("frame", "largest weight on the person", "more than on the other one"), rows)
    write_report(__file__, f"{title}\n\n{told}\n\n{table}\n")


if __name__ == "__main__":
    main()
