"""Who hears layer 16, head 0 of SmolLM2? Single paths, on random tokens that come twice.

The head looks at the token before. Its absence costs some five nats where tokens come again, and none of them if all
later heads are frozen, so that they say what they say with everybody there. Which of them must be? Both directions are
tried: some heads *frozen* in the model without it, and in the whole model some heads that say what they *say without
it*. Five heads are chosen on other sequences than those that are judged. One part of ``research.real_heads``.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mha_course.heads.ablation import eval_mode, found_in, patch_heads
from mha_course.models.smollm2 import SmolLM2
from mha_course.models.tasks import Batch
from research.real_texts import CHOSEN_ON, JUDGED_ON, TASK, repeats, second_time

Place = tuple[int, int]  # layer, head

TELLER: Place = (16, 0)
NEAR = (17, 18, 19, 20, 21, 22)  # layers that the search looks at one head at a time
LATER = [(layer, head) for layer in range(TELLER[0] + 1, 30) for head in range(9)]
NUMBER = 5
DRAWS = 20
SEEDS = (1, 2, 3)  # of the judged sequences


def without(*gone: Place) -> Tensor:
    """Gates that switch these heads off."""
    gates = torch.ones(30, 9)
    for place in gone:
        gates[place] = 0
    return gates


class Judge:
    """The loss of the second time, of each sequence, above that of the whole model."""

    def __init__(self, model: SmolLM2, batch: Batch):
        self.model, self.batch = model, batch
        found = found_in(model, batch)
        self.whole = [*found.outputs().values()]
        with found.gates(dict(zip(found.layers, without(TELLER), strict=True))):
            self.lacking = [*found.outputs().values()]
        self.loss = second_time(TASK.loss(model, batch))

    def cost(self, gone: Sequence[Place] = (), values: Sequence[Tensor] = (), patched: Sequence[Place] = ()) -> Tensor:
        """The cost without some heads, and with these outputs in the place of those of ``patched``: (sequences,)."""
        with eval_mode(self.model), patch_heads(self.model, values, without(*patched)):
            return second_time(TASK.loss(self.model, self.batch, without(*gone))) - self.loss

    def frozen(self, places: Sequence[Place]) -> Tensor:
        """Without the teller, while these heads say what they say with everybody there."""
        return self.cost([TELLER], self.whole, places)

    def misled(self, places: Sequence[Place]) -> Tensor:
        """In the whole model, while these heads say what they say without the teller."""
        return self.cost([], self.lacking, places)


def circuit(model: SmolLM2) -> dict:
    """The heads that a search finds, and what they cost frozen, free and misled, beside others of their layers."""
    chosen = search(Judge(model, repeats(CHOSEN_ON, seed=0)))
    layers = {layer for layer, _ in chosen}
    others = [place for place in LATER if place[0] in layers and place not in chosen]
    generator = torch.Generator().manual_seed(0)
    draws = [
        [others[number] for number in torch.randperm(len(others), generator=generator)[:NUMBER]] for _ in range(DRAWS)
    ]
    above = [place for place in LATER if place[0] > max(layers)]
    found: dict[str, list] = {}
    for seed in SEEDS:
        judge = Judge(model, repeats(JUDGED_ON, seed))
        all_but = [place for place in LATER if place not in chosen]
        rows = {
            "cut": judge.cost([TELLER]),
            "the five frozen": judge.frozen(chosen),
            "the five misled": judge.misled(chosen),
            "all later frozen": judge.frozen(LATER),
            "only the five free": judge.frozen(all_but),
            "only the five and what is above them free": judge.frozen(others),
            "what is above them frozen": judge.frozen(above),
            "the five cut": judge.cost(chosen),
            **{f"only {place} frozen": judge.frozen([place]) for place in chosen},
            **{f"only {place} free": judge.frozen([other for other in LATER if other != place]) for place in chosen},
            **{f"all of them but {place} frozen": judge.frozen([o for o in chosen if o != place]) for place in chosen},
            "five others frozen": torch.stack([judge.frozen(draw) for draw in draws]),
            "five others misled": torch.stack([judge.misled(draw) for draw in draws]),
        }
        for name, row in rows.items():
            found.setdefault(name, []).append(row.tolist())
    return {"the five": chosen, "costs": found}


def search(judge: Judge) -> list[Place]:
    """NUMBER later heads that mend most if they are frozen together: each time the one that mends most is added."""
    alone = {place: judge.frozen([place]).mean().item() for place in LATER if place[0] in NEAR}
    pool = sorted(alone, key=alone.__getitem__)[: 2 * NUMBER + 2]
    chosen: list[Place] = []
    while len(chosen) < NUMBER:
        left = {place: judge.frozen([*chosen, place]).mean().item() for place in pool if place not in chosen}
        chosen.append(min(left, key=left.__getitem__))
    return sorted(chosen)
