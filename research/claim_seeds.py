"""One claim about ten drawn models: held, not held or undecided, beside the truth by all choices of as many heads.

``python -m research.claim_seeds``, a quarter of an hour, writes claim_seeds.md. The claim is the same for all seeds:
*seven of twelve heads, chosen by leave-one-out and replaced by their means, cost at most 0.10 nats, and less than
layer-matched draws*. Six, seven and eight heads were tried on these seeds before, and seven has all three outcomes. The
truth of the promise is the rise on 4,096 rows that no other step uses; that of the baseline is, on 256 of them, the
mean rise of all layer-matched choices.
"""

import itertools
import sys

import torch
from torch import Tensor

from benchmarks.report import markdown
from mha_course import capstone
from mha_course.capstone.drawn import unseen_rows
from mha_course.models.threads import single_thread
from mha_lib.heads import FoundHeads
from research.kept import write_report

SEEDS = range(1, 11)
NUMBER, PROMISE, FEW, MANY = 7, 0.1, 256, 4096
PAIR = 0.1, 0.3  # two heads are redundant where they add up to less alone, and cost more together


def rise(found: FoundHeads, work: capstone.Work, plan: dict, instead: dict, rows) -> Tensor:
    """By how much the loss of each row rises without the heads of a plan."""
    return found.rise(plan, work.loss(rows), instead=instead)


def measured(seed: int) -> dict:
    """Test the claim on the model of a seed, and measure the truth."""
    work = capstone.drawn_model(seed)
    found, calibration = work.find_heads(), work.loss(work.calibration)
    instead, names = found.means(), [*found.layers]
    costs = found.leave_one_out(calibration, instead=instead)
    plan = found.plan(costs, remove=NUMBER)
    claim = capstone.Claim(work.name, NUMBER, "leave-one-out", "means", PROMISE, "layer-matched draws", "test rows", "")
    own = rise(found, work, plan, instead, work.test)
    draws = torch.stack([rise(found, work, one, instead, work.test) for one in found.fair_draws(plan, 20, seed)])
    result = capstone.verdict(claim, own, draws)

    fresh = unseen_rows(2**20 + seed, MANY, task_of=seed)
    true_rise = rise(found, work, plan, instead, fresh).mean().item()
    every = [(name, head) for name in names for head in range(6)]
    plans = [{n: [h for m, h in some if m == n] for n in names} for some in itertools.combinations(every, NUMBER)]
    all_rises, rows = [], fresh[:FEW]
    with torch.no_grad():
        whole = work.losses(work.model, rows).mean().item()
        for one in plans:
            with found.ablated(one, instead=instead):
                all_rises.append(work.losses(work.model, rows).mean().item() - whole)
    sizes = [len(plan.get(name, [])) for name in names]
    alike = [r for one, r in zip(plans, all_rises, strict=True) if [len(one[name]) for name in names] == sizes]
    few = rise(found, work, plan, instead, rows).mean().item()
    layers = [rise(found, work, {name: range(6)}, instead, work.calibration).mean().item() for name in names]
    return {
        "seed": seed,
        "layers without": layers,
        "plan": [plan.get(name, []) for name in names],
        "alone": sum(costs[name][head].item() for name, off in plan.items() for head in off),
        "result": result,
        "true rise": true_rise,
        "best": min(all_rises),
        "alike": sum(alike) / len(alike) - few,
        "cost more": sum(r > few for r in alike) / (len(alike) - 1),
        "anywhere": sum(r > few for r in all_rises) / (len(all_rises) - 1),
        "pair": redundant_pair(found, costs, calibration, instead),
    }


def redundant_pair(found: FoundHeads, costs: dict, loss, instead: dict) -> tuple[float, float] | None:
    """What two redundant heads cost alone, added up, and together: of those that cost most; None where none are."""
    every = [(name, head) for name in found.layers for head in range(6)]
    pairs = []
    for one, other in itertools.combinations(every, 2):
        alone = sum(costs[name][head].item() for name, head in (one, other))
        if alone <= PAIR[0]:
            plan = {name: [head for layer, head in (one, other) if layer == name] for name in found.layers}
            pairs.append((found.rise(plan, loss, instead=instead).mean().item(), alone))
    together, alone = max(pairs, default=(0, 0))
    return (alone, together) if together >= PAIR[1] else None


def fits(one: dict) -> bool:
    """Whether the outcome agrees with the truth; undecided always does."""
    is_true = one["true rise"] <= PROMISE and one["alike"] > 0
    return {"held": is_true, "not held": not is_true}.get(one["result"].outcome, True)


def missed(one: dict) -> int:
    """How many of the two 95 % intervals do not hold the true value."""
    pairs = ((one["result"].rise, one["true rise"]), (one["result"].ahead, one["alike"]))
    return sum(not low <= true <= high for (_, low, high), true in pairs)


def row(one: dict) -> list[str]:
    """A line of the table."""
    result, pair = one["result"], one["pair"]
    return [
        str(one["seed"]), " / ".join(f"{rise:.2f}" for rise in one["layers without"]),
        ", ".join(map(str, one["plan"])), f"{one['alone']:.3f}", capstone.told(result.rise), f"{one['true rise']:.3f}",
        f"{one['best']:.3f}", capstone.told(result.ahead), f"{one['alike']:.3f}", f"{one['cost more']:.0%}",
        f"{one['anywhere']:.0%}", f"{result.outcome} ({result.promise}, {result.baseline})",
        f"{pair[0]:.3f} → {pair[1]:.3f}" if pair else "–", "yes" if fits(one) else "NO",
    ]  # fmt: skip


def main() -> None:
    """Measure, write."""
    header = [
        "seed", "nats without layer 0 / 1", "plan", "alone, sum", "rise on test rows", "true rise", "best of 792",
        "draws − plan", "true", "layer-matched choices that cost more", "of all choices", "verdict (promise, baseline)",
        "redundant pair: alone → together", "fits the truth",
    ]  # fmt: skip
    found = []
    with single_thread():
        for seed in map(int, sys.argv[1:] or SEEDS):
            found.append(measured(seed))
            print(row(found[-1]), flush=True)
    if sys.argv[1:]:
        return
    outcomes = [one["result"].outcome for one in found]
    counts = ", ".join(f"{name} {outcomes.count(name)}" for name in ("held", "undecided", "not held"))
    pairs = sum(one["pair"] is not None for one in found)
    text = f"# One claim, ten models\n\n{markdown(header, [*map(row, found)])}\n"
    text += f"\nOutcomes: {counts}. A redundant pair in {pairs} of {len(found)} models. "
    text += f"Of {2 * len(found)} intervals, {sum(map(missed, found))} miss the true value.\n"
    write_report(__file__, text)


if __name__ == "__main__":
    main()
