"""Cuts of SmolLM2's heads beside every control: signs, chance of the same shape, calibration texts, kinds of "gone".

Every function here measures one part of ``research.real_heads`` and says what it needs. Losses are those of the
sixteen judged texts, in nats, by cut and text. Cuts run in products of bfloat16 where the processor has them, which
moves a loss by less than 0.005 nats; gradients in single precision, for the path's would be noise otherwise.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from mha_course import heads
from mha_course.heads.ablation import eval_mode, patch_heads
from mha_course.heads.coalitions import block_mean_baseline, permute_within_blocks
from mha_course.heads.controls import OF_EACH, OF_MEAN, SIGNED
from mha_course.models.smollm2 import SmolLM2
from mha_course.models.tasks import Batch
from research.real_texts import TASK, drawn

SHAPE = (30, 9)
NUM_HEADS = 270
CUTS = (13, 27, 54, 81)  # 5, 10, 20 and 30 % of the heads
LARGE_CUTS = CUTS[1:]  # a measure that is taken again looks after each of them
DRAWS = 20
CALIBRATION_ROWS = 3, 24, 48
ROWS_AT_ONCE = 8
GRID = 80  # points of the path; the even and the odd ones are two grids of half as many

Losses = dict[str, Tensor]  # by number of heads cut: (texts,)


@contextmanager
def fast_products() -> Iterator[None]:
    """Products in bfloat16 inside; exact ones afterwards."""
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


def loss_of(model: SmolLM2, batch: Batch, gates: Tensor | None = None) -> Tensor:
    """The mean loss of each row."""
    with fast_products():
        return TASK.loss(model, batch, gates).mean(dim=1)


def kept(importance: Tensor, cut: int, seed: int = 0) -> Tensor:
    """Gates that are 0 for the ``cut`` least important heads; ``seed`` draws the order of equals."""
    return (heads.ranks(importance, seed) <= NUM_HEADS - cut).float()


def losses(model: SmolLM2, judged: Batch, importance: Tensor, cuts=CUTS, seed: int = 0) -> Losses:
    """What is lost of each text after each cut in this order: its loss with what is left."""
    return {str(cut): loss_of(model, judged, kept(importance, cut, seed)) for cut in cuts}


def forms(of_each: Tensor) -> dict[str, Tensor]:
    """A measure of each row, positive where the head takes loss away, (rows, 30, 9), with its sign and without."""
    mean = of_each.mean(dim=0)
    return {SIGNED: mean, OF_EACH: of_each.abs().mean(dim=0), OF_MEAN: mean.abs()}


# What is measured of every row


def row_gradients(model: SmolLM2, batch: Batch, gates: Tensor | None = None) -> Tensor:
    """How each row's loss falls as each gate opens: (rows, 30, 9)."""
    gates = torch.ones(SHAPE) if gates is None else gates
    parts = (batch[start : start + ROWS_AT_ONCE] for start in range(0, len(batch), ROWS_AT_ONCE))
    return torch.cat([gate_gradients(model, part, gates) for part in parts])


def gate_gradients(model: SmolLM2, batch: Batch, gates: Tensor) -> Tensor:
    """Minus the gradient of each row's mean loss by each head's gate, at ``gates``: (rows, 30, 9)."""
    own = gates.expand(len(batch), -1, -1).clone().requires_grad_()  # each row has gates of its own
    with eval_mode(model):
        loss = TASK.losses(model(batch.inputs, batch.valid_lens, own), batch.targets).mean(dim=1).sum()
        return -torch.autograd.grad(loss, own)[0].double()


def row_costs(model: SmolLM2, batch: Batch, gates: Tensor | None = None) -> Tensor:
    """What each head's absence costs each row, of those that are there: (rows, 30, 9)."""
    with fast_products():
        without = heads.losses_without_each(model, batch, TASK, kept=gates).mean(dim=-1)  # (30, 9, rows)
    return (without - loss_of(model, batch, gates)).permute(2, 0, 1).double()


def path(model: SmolLM2, batch: Batch, points: range) -> Tensor:
    """The gradients of each row at some points of the GRID: (points, rows, 30, 9)."""
    return torch.stack([row_gradients(model, batch, torch.full(SHAPE, (point + 0.5) / GRID)) for point in points])


# The path


def path_sums(model: SmolLM2, batch: Batch, gradients: Tensor) -> dict:
    """What the path gradient adds up to by grid, what is due, and what happens on the way.

    Args:
        gradients: (GRID, rows, 30, 9).
    """
    at = [point / 20 for point in range(21)]
    on_the_way = {f"{alpha:.5f}": loss_of(model, batch, torch.full(SHAPE, alpha)).mean() for alpha in at}
    sums = {name: gradients[points].mean(dim=(0, 1)).sum() for name, points in GRIDS.items()}
    return {
        "due": on_the_way["0.00000"] - on_the_way["1.00000"],
        "sums": sums,
        "loss": on_the_way,
        "slope": gradients.sum(dim=(2, 3)).mean(dim=1),  # of the loss along the path, mean over rows: (GRID,)
    }


GRIDS = {"even": slice(0, None, 2), "odd": slice(1, None, 2), "all": slice(None)}


# Orders and their cuts


def orders(of_seen: Mapping[str, Tensor], on_path: Tensor, looks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Importance by name, of the same rows: what has a sign in three forms, and what has none.

    Args:
        of_seen: measures of each row, (rows, 30, 9), by name.
        on_path: (GRID, rows, 30, 9).
        looks: measures that have no sign, by name.
    """
    layers = torch.arange(30.0)[:, None].expand(SHAPE)
    signed = dict(of_seen) | {
        f"path gradient, {name} points": on_path[points].mean(0) for name, points in GRIDS.items()
    }
    by_name = {f"{name} | {form}": order for name, each in signed.items() for form, order in forms(each).items()}
    by_name["gate gradient, normalised"] = torch.nn.functional.normalize(by_name[f"gate gradient | {OF_EACH}"], dim=1)
    return {**by_name, **looks, "early layers stay": -layers, "late layers stay": layers}


def of_orders(model: SmolLM2, judged: Batch, by_name: Mapping[str, Tensor], of_judged: Tensor) -> dict:
    """For each order its cuts, and how it agrees with single costs on the judged texts themselves.

    Args:
        of_judged: these costs, (texts, 30, 9): an order of absolute values is held against theirs.
    """
    truth = forms(of_judged)
    return {
        name: losses(model, judged, order)
        | {
            "spearman": heads.spearman(order, truth[SIGNED]),
            "spearman, absolute": heads.spearman(order, truth[OF_EACH]),
            "negative": int((order < 0).sum()),
        }
        for name, order in by_name.items()
    }


# Chance


def chance(model: SmolLM2, judged: Batch, by_name: Mapping[str, Tensor]) -> dict[str, list[Losses]]:
    """Cuts by chance in the shape of each of these orders, DRAWS of each kind.

    "as many of each layer": what a measure cuts, from other heads of the same layers. "its layers spared": at random,
    but where it cuts no head of a layer, neither does chance. "the layers alone": every head counts as the mean of its
    layer.
    """
    found = {}
    for name, order in by_name.items():
        shaped = (permute_within_blocks(order, draw) for draw in range(DRAWS))
        found[f"as many of each layer: {name}"] = [losses(model, judged, other, LARGE_CUTS) for other in shaped]
        found[f"its layers spared: {name}"] = [
            {str(cut): loss_of(model, judged, kept(random(draw) + spared(order, cut), cut)) for cut in LARGE_CUTS}
            for draw in range(DRAWS)
        ]
        found[f"the layers alone: {name}"] = [
            losses(model, judged, block_mean_baseline(order), LARGE_CUTS, draw) for draw in range(DRAWS)
        ]
    return found


def random(draw: int) -> Tensor:
    """An order that knows nothing."""
    return torch.rand(SHAPE, generator=torch.Generator().manual_seed(draw)).double()


def spared(order: Tensor, cut: int) -> Tensor:
    """1 for all heads of the layers of which this order cuts none: (30, 1)."""
    return kept(order, cut).all(dim=1, keepdim=True).double()


def calibrated(model: SmolLM2, judged: Batch, gradients: Tensor) -> dict:
    """Cuts by the gate gradient of many draws of rows, by number of rows and form: lists of losses.

    Args:
        gradients: of each row of a pool, (rows, 30, 9).
    """

    def of_draw(number: int, form: str, draw: int) -> Losses:
        return losses(model, judged, forms(gradients[drawn(number, draw)])[form], LARGE_CUTS)

    return {
        str(number): {form: [of_draw(number, form, draw) for draw in range(DRAWS)] for form in (OF_EACH, SIGNED)}
        for number in CALIBRATION_ROWS
    }


def again(model: SmolLM2, judged: Batch, look: Callable[[Tensor], Tensor], first: Tensor) -> Losses:
    """Cuts by the absolute values of each row of a measure that is taken again after each of LARGE_CUTS.

    Args:
        look: gates → the measure of each row, of the heads that are left, (rows, 30, 9).
        first: what it says with all heads there.
    """
    gates, of_each, found = torch.ones(SHAPE), first, {}
    for cut in LARGE_CUTS:
        importance = forms(of_each)[OF_EACH].masked_fill(gates == 0, -torch.inf)  # what is gone stays gone
        gates = kept(importance, cut)
        found[str(cut)] = loss_of(model, judged, gates)
        if cut != LARGE_CUTS[-1]:
            of_each = look(gates)
    return found


def gate_gradient_again(model: SmolLM2, judged: Batch, batch: Batch, gradients: Tensor) -> list[Losses]:
    """The gate gradient, taken again, of each draw of 24 rows."""
    draws = [drawn(24, draw) for draw in range(DRAWS)]
    return [again(model, judged, partial(row_gradients, model, batch[rows]), gradients[rows]) for rows in draws]


def costs_again(model: SmolLM2, judged: Batch, batch: Batch, costs: Tensor) -> Losses:
    """Single costs, taken again."""
    return again(model, judged, partial(row_costs, model, batch), costs)


# Other meanings of "gone"


def ablated(model: SmolLM2, judged: Batch, seen: Batch, by_name: Mapping[str, Tensor]) -> dict:
    """The same cuts where heads that are off give way to their mean, or to what they say about the next text.

    Args:
        seen: the rows that measures see, over which means are taken.
        by_name: orders; DRAWS random ones stand beside them.
    """
    substitutes = {
        "mean": heads.ablation_values(model, seen, "mean"),
        "resample": heads.ablation_values(model, judged, "resample"),
    }
    chosen = dict(by_name) | {f"random {draw}": random(draw) for draw in range(DRAWS)}
    found: dict[str, dict[str, Losses]] = {ablation: {name: {} for name in chosen} for ablation in substitutes}
    for ablation, instead in substitutes.items():
        for name, order in chosen.items():
            for cut in LARGE_CUTS:
                with patch_heads(model, instead, kept(order, cut)):
                    found[ablation][name][str(cut)] = loss_of(model, judged)
    return found
