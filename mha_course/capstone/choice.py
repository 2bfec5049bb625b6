"""Which heads go: the choice that a claim announces."""

from collections.abc import Callable, Mapping

from torch import Tensor

from mha_course.capstone.claim import Claim
from mha_lib.heads import FoundHeads
from mha_lib.heads.plans import PlanTable

Means = Mapping[str, Tensor]


def choose(claim: Claim, found: FoundHeads, loss: Callable[..., Tensor], instead: Means | None = None) -> PlanTable:
    """Return the heads that go by the measure of a claim, by layer; at least one head of each layer stays.

    Args:
        claim: says how many, and by which measure.
        found: the model's heads.
        loss: of the model, on the calibration rows.
        instead: from ``found.means``; left out, zeros.
    """
    if claim.measure == "greedy":
        return greedy(found, loss, claim.remove, instead)
    measure = found.leave_one_out if claim.measure == "leave-one-out" else found.gate_gradient
    return found.plan(measure(loss, instead=instead), remove=claim.remove)


def greedy(found: FoundHeads, loss: Callable[..., Tensor], number: int, instead: Means | None = None) -> PlanTable:
    """Remove the head that costs least, measure the others again, and go on; arguments as in ``choose``.

    Of costs that are equal to six digits, the first by position goes.

    Raises:
        ValueError: so many heads cannot go.
    """
    most = sum(layer.num_heads - 1 for layer in found.layers.values())
    if not 0 < number <= most:
        raise ValueError(f"number must be from 1 to {most}, one head of each layer stays, got {number}")
    plan: dict[str, list[int]] = {}
    for _ in range(number):
        costs = {}
        for name, layer in found.layers.items():
            off = plan.get(name, [])
            for head in set(range(layer.num_heads)) - {*off} if len(off) < layer.num_heads - 1 else ():
                one_more = plan | {name: [*off, head]}
                costs[name, head] = round(found.rise(one_more, loss, instead=instead).mean().item(), 6)
        name, head = min(costs, key=lambda one: costs[one])
        plan[name] = sorted([*plan.get(name, []), head])
    return PlanTable(plan, found.layers)
