"""The thirty points of the capstone that a machine can give: for what was done, and never for what came out."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mha_course.capstone.choice import choose
from mha_course.capstone.claim import Event, history, is_changed
from mha_course.capstone.claim_verdict import verdict
from mha_course.capstone.fault_check import PIPELINES
from mha_course.capstone.page import AGAIN, CHANGED
from mha_course.capstone.work import Work
from mha_course.checking.points import Points
from mha_course.checking.running import MistakeError, NotYetError
from mha_course.heads import mean_and_ci95

DRAWS = 20
OWN_WORDS, WORDS_OF_LIMITS = 8, 30  # less is no sentence, or no paragraph
SHARE = 6  # a claim about fewer than a sixth of all heads risks nothing
LINES = {  # what points are given for → how many there are
    "your claim was locked before the test rows were opened, and none after": 3,
    "it says in your own words what would refute it": 2,
    "it could fail: a quarter of the draws cost more than it promises, and at least a sixth of the heads is removed": 3,
    "your plan is the choice that it announces": 3,
    "your test fails on the pipeline with your fault and passes without it": 8,
    "it notices other faults, too": 5,
    "the page has the verdict that the test rows give": 2,
    "its rise agrees with that on rows which decide the marks": 2,
    "its limits are a paragraph": 2,
}


def points(
    seed: int, claim_file: str | Path, work: Work, plan: Mapping[str, Sequence[int]], my_test: Callable,
    page_file: str | Path, rows: Any = None,
) -> Points:  # fmt: skip
    """Return the points of a capstone, of 30. All is measured again from the claim, the plan and the test.

    *Held*, *not held* and *undecided* earn the same, and so does each fault. What nobody has written earns nothing.

    Args:
        seed: of the fault.
        claim_file: of ``lock``.
        work: the model.
        plan: the heads that went.
        my_test: as for ``check_test``.
        page_file: of ``page``; the Markdown beside it is read.
        rows: which the page's rise must agree with: a teacher's own; left out, the test rows.
    """
    try:
        events = history(claim_file)
    except ValueError as reason:
        return Points(LINES, [0] * len(LINES), str(reason))
    page = Path(page_file).with_suffix(".md")
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    if not events or f"claim {events[-1].claim.eight} locked" not in text:
        text = ""  # the page of another claim
    *claimed, has_verdict, agrees = _of_claim(events, work, plan, seed, text, rows)
    limits = text.rpartition("## Limits")[2].split()
    paged = [has_verdict, agrees, 2 * (len(limits) >= WORDS_OF_LIMITS)]
    return Points(LINES, [*claimed, *_of_test(my_test, seed), *paged])


def _of_claim(events: list[Event], work: Work, plan: Any, seed: int, page: str, rows: Any) -> list[int]:
    """Points for claim and plan, and for what the page says of them; none where the claim is nobody's, or copied."""
    claims = [event.claim for event in events if event.what == "claim"]
    if not claims or not claims[-1].is_own or claims[-1].model != work.name:
        return [0] * 6
    claim, found = claims[-1], work.find_heads()
    locked = any(event.what == "test rows opened" for event in events) and not is_changed(events)
    is_sentence = len(claim.refuted_by.split()) >= OWN_WORDS
    instead = found.means() if claim.instead == "means" else None

    def rise(plan: Mapping[str, Sequence[int]], rows: Any) -> Tensor:
        return found.rise(plan, work.loss(rows), instead=instead)

    try:
        plan = _sorted(plan)
        own = rise(plan, work.test)
        draws = torch.stack([rise(one, work.test) for one in found.fair_draws(plan, DRAWS, seed)])
    except (AttributeError, TypeError, ValueError):  # there is no plan, or it is of another model
        return [3 * locked, 2 * is_sentence, 0, 0, 0, 0]
    heads = sum(layer.num_heads for layer in found.layers.values())
    costly = (draws.double().mean(dim=1) > claim.promise).double().mean().item()
    could_fail = costly >= 0.25 and SHARE * claim.remove >= heads
    announced = _sorted(choose(claim, found, work.loss(work.calibration), instead)) == plan
    heading = f"## Verdict: {verdict(claim, own, draws).outcome}"
    headings = [line for line in page.splitlines() if line.startswith("## Verdict")]
    verdicts = [line.removesuffix(AGAIN).removesuffix(CHANGED) for line in headings]
    told = verdicts == [heading]
    agrees = _agrees(page, own, own if rows is None else rise(plan, rows))
    return [3 * locked, 2 * is_sentence, 3 * could_fail, 3 * announced, 2 * told, 2 * agrees]


def _of_test(my_test: Callable, seed: int) -> list[int]:
    """Points for the test of the faulty pipeline."""
    try:
        return PIPELINES.points(my_test, seed, (8, 5))
    except (MistakeError, NotYetError):
        return [0, 0]


def _agrees(page: str, own: Tensor, rise: Tensor) -> bool:
    """Whether the rise on the page is that of ``rise`` up to what its interval and that of ``own`` allow, the rise on
    the test rows measured again: what the page says of its interval allows nothing."""
    if not (found := re.search(r"\| rise of the loss \| (-?[0-9]+\.[0-9]+) \(", page)):
        return False
    (mean, low, high), (_, own_low, own_high) = mean_and_ci95(rise), mean_and_ci95(own)
    return abs(float(found[1]) - mean) <= 0.75 * (own_high - own_low + high - low) + 5e-4  # the page has three digits


def _sorted(plan: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {name: sorted(off) for name, off in plan.items() if len(off)}
