"""Does training mend the choice of heads? Those of a measure beside layer-matched draws: ``make research-repair``.

The protocol is in repair.md, and was committed before this file. Each model is kept as soon as it is trained, and what
is kept is printed at the end. All takes about ten minutes of CPU time.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from mha_course.heads.ablation import eval_mode
from mha_course.models.smollm2 import SmolLM2, smollm2
from mha_lib.heads.plans import Plan
from research.kept import kept_file, kept_parts, measure_parts, write_compact
from research.streaming import (
    CALIBRATION_PACKAGES,
    GROUP,
    JUDGED_PACKAGES,
    JUDGED_TEXTS,
    STREAM,
    Batch,
    Bench,
    interval,
    loss,
    texts,
)

PARTS_FOLDER = Path(__file__).with_name("results") / "subset" / "repair"  # git ignores it
PROTOCOL = "0d53d08da29f24fecfabc2369dc41ca706189c66"  # the commit that says what is done here
JUDGED_SEED, TRAINING_SEED, DRAWS_SEED = int(PROTOCOL[:8], 16), 3, 1
STEPS, RISING, RATE = 12, 3, 3e-4
MAPS = ("W_q", "W_k", "W_v", "W_o")
TOKENS = 96
STARTS = {"prose": 28, "copying": TOKENS // 2 + 1}  # the first token whose loss counts; a text of each kind in a step
CHOICES = {"removed": 18, "streaming": 60}  # groups
WHOLE, MEASURE = "whole", "measure"
ORDER = [(choice, number) for numbers in ((0, 1, 2, 3), (4, 5)) for choice in CHOICES for number in numbers]
NAMES = [WHOLE, *(f"{choice}, {f'draw {number}' if number else MEASURE}" for choice, number in ORDER)]


def main(names: Sequence[str]) -> None:
    """Train what is not there yet; write what is into the library, and print its table."""
    PARTS_FOLDER.mkdir(parents=True, exist_ok=True)
    if missing := [name for name in names or NAMES if not file_of(name).exists()]:
        model = smollm2()
        with eval_mode(model):
            measure_parts(missing, file_of, Repair(Bench(model)).trained)
    found = kept_parts(NAMES, file_of)
    write_compact(kept_file("repair"), found)
    print(table(found))


def file_of(name: str) -> Path:
    """Where a model's losses are kept."""
    return PARTS_FOLDER / f"{name.replace(', ', '_').replace(' ', '_')}.json"


class Repair:
    """Train a model further with heads off, each time from the same parameters."""

    def __init__(self, bench: Bench):
        self.bench, self.model = bench, bench.model
        self.model.requires_grad_(False)
        blocks = self.model.blocks.values()
        self.trainable = [getattr(block.attention, name).weight for block in blocks for name in MAPS]
        self.start = [parameter.detach().clone() for parameter in self.trainable]
        self.means = bench.found.means(loss, bench.calibration(1))
        self.judged = short_texts(self.model, JUDGED_SEED, JUDGED_TEXTS, JUDGED_PACKAGES)

    @cached_property
    def plans(self) -> dict[str, list[Plan]]:
        """For each choice that of the measure, then its draws."""
        mean, stream = (self.bench.scores(by, 1) for by in ("mean", "stream"))
        first = {
            "removed": self.bench.plan(sparing(mean), CHOICES["removed"]),
            "streaming": self.bench.plan(stream, CHOICES["streaming"]),
        }
        return {name: [plan, *self.bench.found.fair_draws(plan, 5, DRAWS_SEED)] for name, plan in first.items()}

    @cached_property
    def steps(self) -> list[list[Batch]]:
        """The texts of each step, a batch for each kind."""
        drawn = short_texts(self.model, TRAINING_SEED, STEPS, CALIBRATION_PACKAGES)
        return [[batch | {"ids": batch["ids"][step : step + 1]} for batch in drawn.values()] for step in range(STEPS)]

    def plan_of(self, name: str) -> tuple[str, Plan]:
        """The choice and the plan of a name; of the whole model, nothing is off."""
        if name == WHOLE:
            return WHOLE, {}
        choice, number = ORDER[NAMES.index(name) - 1]
        return choice, self.plans[choice][number]

    def without(self, choice: str, plan: Plan) -> AbstractContextManager:
        """Inside, heads are off as they are judged."""
        if choice == WHOLE:
            return nullcontext()
        how: dict = {"instead": self.means} if choice == "removed" else {"by": STREAM}
        return self.bench.found.ablated(plan, **how)

    def trained(self, name: str) -> dict:
        """Losses on the fresh texts before and after, and of each step."""
        choice, plan = self.plan_of(name)
        self._restore()
        found: dict = {"plan": plan, "before": self._judged(choice, plan)}
        with torch.enable_grad(), self.without(choice, plan):
            found["steps"] = list(trained(self.model, self.trainable, self.steps))
        found["after"] = self._judged(choice, plan)
        self._restore()
        return found

    def _judged(self, choice: str, plan: Plan) -> dict[str, Tensor]:
        with torch.no_grad(), self.without(choice, plan):
            return {kind: loss(self.model, batch) for kind, batch in self.judged.items()}

    @torch.no_grad()
    def _restore(self) -> None:
        for parameter, start in zip(self.trainable, self.start, strict=True):
            parameter.copy_(start)


def short_texts(model: SmolLM2, seed: int, number: int, packages: Sequence[str]) -> dict[str, dict]:
    """So many texts of each kind, of TOKENS tokens."""
    prose, copying = (texts(model, kind, seed, number, packages)["ids"] for kind in STARTS)
    once = copying[:, : TOKENS // 2]  # type: ignore[index]
    ids = {"prose": prose[:, :TOKENS], "copying": torch.cat([once, once], dim=1)}  # type: ignore[index]
    return {kind: {"ids": ids[kind], "start": start} for kind, start in STARTS.items()}


def sparing(scores: Tensor) -> Tensor:
    """Scores (layers, heads) by which the most important group of each layer is never taken."""
    groups = scores.unflatten(1, (-1, GROUP)).clone()
    groups[torch.arange(len(groups)), groups.sum(dim=2).argmax(dim=1)] = torch.inf
    return groups.flatten(1)


def trained(model: SmolLM2, parameters: Sequence[nn.Parameter], steps: Sequence[Sequence[Batch]]) -> Iterator[float]:
    """Minimise the mean loss of the texts of each step, and give it."""
    for parameter in parameters:
        parameter.requires_grad_()
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0)
    for number, batches in enumerate(steps, start=1):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(number / RISING, (len(steps) + 1 - number) / (len(steps) + 1 - RISING))
        value = torch.stack([loss(model, batch).mean() for batch in batches]).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        yield value.item()
    for parameter in parameters:
        parameter.requires_grad_(False)


def rises(found: Mapping[str, dict], choice: str, kind: str, when: str) -> tuple[Tensor, Tensor]:
    """Each text's rise over the whole model: the measure's (texts,), and the draws' (draws, texts)."""
    rows = {name: torch.tensor(part[when][kind]).double() for name, part in found.items()}
    draws = [row - rows[WHOLE] for name, row in rows.items() if name.startswith(f"{choice}, draw")]
    return rows[f"{choice}, {MEASURE}"] - rows[WHOLE], torch.stack(draws)


def table(found: Mapping[str, dict]) -> str:
    """Rises before and after, and what the whole model gains by training."""
    lines = [
        "| choice, text | when | measure | draws | difference |",
        "| --- | --- | --- | --- | --- |",
    ]
    for choice in CHOICES:
        if not {f"{choice}, {MEASURE}", f"{choice}, draw 1"} <= found.keys():
            continue
        for kind in STARTS:
            both = {}
            for when in ("before", "after"):
                own, draws = rises(found, choice, kind, when)
                both[when] = own, own - draws.mean(dim=0), draws.mean(dim=0)
                low, high = draws.mean(dim=1).aminmax()
                told = f"{interval(own)} | {low:.3f} to {high:.3f} ({len(draws)})"
                lines.append(f"| {choice}, {kind} | {when} | {told} | {interval(both[when][1])} |")
            own, gap, draws = (after - before for before, after in zip(both["before"], both["after"], strict=True))
            lines.append(f"| | change | {interval(own)} | {interval(draws)} | {interval(gap)} |")
    whole = found[WHOLE]
    gains = (
        f"{kind} {interval(torch.tensor(whole['after'][kind]).double() - torch.tensor(whole['before'][kind]))}"
        for kind in STARTS
    )
    return "\n".join([*lines, "", f"Training changes the whole model's loss: {', '.join(gains)}."])


if __name__ == "__main__":
    main(sys.argv[1:])
