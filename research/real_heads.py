"""What survives on a real language model: heads of SmolLM2 measured and cut, ``python -m research.real_heads``.

Each part is written as soon as it is done, so that a run that was cut short goes on where it stopped; at the end all
parts become real_heads.json in the library, where notebooks read them. Delete that file to measure anew. Parts may be
named as arguments, so that two processes can share the work. One thread each; a part takes a quarter of an hour of CPU
time at most, on a machine with nothing else to do. What is measured of every row is too large to keep, and is made anew
if it is gone.

``real_texts`` says what is read, ``real_cuts`` what is cut and beside which chance, ``word_circuit`` follows one head.
"""

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor, nn

from mha_course import heads
from mha_course.heads.ablation import eval_mode, found_in, patch_heads
from mha_course.heads.controls import OF_EACH, SIGNED
from mha_course.heads.measures import measured
from mha_course.models.smollm2 import SmolLM2, smollm2
from mha_course.models.tasks import Batch
from research import real_cuts as cuts
from research.kept import kept_file, rounded, write_compact
from research.real_cuts import SHAPE, loss_of
from research.real_texts import (
    CHOSEN_ON,
    JUDGED_ON,
    REPEATED,
    TASK,
    drawn,
    judged,
    pool,
    repeats,
    second_time,
)
from research.word_circuit import TELLER, circuit, without

PARTS_FOLDER = Path(__file__).with_name("results") / "subset" / "real_heads"  # git ignores it
DIGITS = 4  # after the point
SEEN_ROWS = 24  # of prose, that measures see
PATH_ROWS = 12  # the first of them, for the path alone, which takes 80 times as long
RANDOM_TENS = 20


def main(names: list[str]) -> None:
    """Measure what is not there yet, and write the results once all parts are."""
    PARTS_FOLDER.mkdir(parents=True, exist_ok=True)
    model = smollm2()
    with eval_mode(model):
        for name in names or PARTS:
            part(model, name)
    found = measured_before()
    if found.keys() >= PARTS.keys():
        write_compact(kept_file("real_heads"), {name: found[name] for name in PARTS})


def measured_before() -> dict:
    """All parts that are there, those of this run before those that the library keeps."""
    kept = kept_file("real_heads")
    found = json.loads(kept.read_text()) if kept.exists() else {}
    return found | {file.stem: json.loads(file.read_text()) for file in PARTS_FOLDER.glob("*.json")}


def part(model: SmolLM2, name: str):
    """A part of the results, measured now or before."""
    found = measured_before()
    if name not in found:
        start = time.process_time()
        found[name] = rounded(PARTS[name](model), DIGITS)
        write_compact(PARTS_FOLDER / f"{name}.json", found[name])
        print(f"{name}: {time.process_time() - start:.0f} s of CPU time", file=sys.stderr, flush=True)
    return found[name]


# What is measured of every row


def of_rows(name: str, measure: Callable[[], Tensor]) -> Tensor:
    """A tensor that is too large for the results, measured now or before."""
    file = PARTS_FOLDER / f"{name}.pt"
    if not file.exists():
        start = time.process_time()
        torch.save(measure(), file)
        print(f"{name}: {time.process_time() - start:.0f} s of CPU time", file=sys.stderr, flush=True)
    return torch.load(file)


def gradients(model: SmolLM2, kind: str) -> Tensor:
    """Of each row of a pool: (rows, 30, 9)."""
    return of_rows(f"gradients on {kind}", lambda: cuts.row_gradients(model, pool(model, kind)))


def seen(model: SmolLM2) -> Batch:
    """The rows of prose that all measures of the league see."""
    return pool(model, "prose")[drawn(SEEN_ROWS, 0)]


def costs(model: SmolLM2) -> Tensor:
    """Single costs on these rows: (rows, 30, 9)."""
    return of_rows("costs on prose", lambda: cuts.row_costs(model, seen(model)))


def costs_of_judged(model: SmolLM2) -> Tensor:
    """The same on the judged texts: no measure, but what measures are held against."""
    return of_rows("costs on judged", lambda: cuts.row_costs(model, judged(model)))


def on_path(model: SmolLM2) -> Tensor:
    """Gradients on the way from no head to all: (GRID, PATH_ROWS, 30, 9)."""

    def quarter(start: int) -> Tensor:
        return of_rows(
            f"path from {start}", lambda: cuts.path(model, seen(model)[:PATH_ROWS], range(start, cuts.GRID, 4))
        )

    return torch.stack([quarter(start) for start in range(4)], dim=1).flatten(0, 1)


def of_seen(model: SmolLM2) -> dict[str, Tensor]:
    """The gate gradient and single costs of each row that measures see: (rows, 30, 9)."""
    return {"gate gradient": gradients(model, "prose")[drawn(SEEN_ROWS, 0)], "leave one out": costs(model)}


def orders(model: SmolLM2) -> dict[str, Tensor]:
    """Importance by name: every measure, of the same rows, and orders that look at no text."""
    looks = {
        "confidence": measured(model, seen(model), TASK, "confidence"),
        "output norm": measured(model, seen(model), TASK, "output_norm"),
        "leave one out, on repeats": torch.tensor(part(model, "costs on repeats")["mean"]),
    }
    return cuts.orders(of_seen(model), on_path(model), looks)


def leaders(model: SmolLM2, *forms: str) -> dict[str, Tensor]:
    """The orders that are held against chance of their own shape, in these forms."""
    of_each = {name: cuts.forms(each) for name, each in of_seen(model).items()}
    return {f"{name} | {form}": of_each[name][form] for form in forms for name in of_each}


def chance_for(measure: str) -> Callable[[SmolLM2], dict]:
    """Cuts by chance in the shape of a measure, with its sign and without."""

    def of(model: SmolLM2) -> dict:
        by_name = leaders(model, OF_EACH, SIGNED)
        mine = {name: order for name, order in by_name.items() if name.startswith(measure)}
        return cuts.chance(model, judged(model), mine)

    return of


# Parts


def of_all(model: SmolLM2) -> dict:
    """The loss of each judged row with all heads and with none."""
    batch = judged(model)
    return {"all": loss_of(model, batch), "none": loss_of(model, batch, torch.zeros(SHAPE))}


def costs_on_prose(model: SmolLM2) -> dict:
    """What each head's absence costs, mean over rows and its standard error: (30, 9).

    ``ranks by three``: that of one head among all, by the mean over three of these rows, for each of several draws.
    """
    each, ranks = costs(model), []
    for draw in range(cuts.DRAWS):
        three = torch.randperm(len(each), generator=torch.Generator().manual_seed(draw))[:3]
        ranks.append(int(heads.ranks(each[three].mean(dim=0))[TELLER]))
    return {"mean": each.mean(dim=0), "error": each.std(dim=0) / len(each) ** 0.5, "ranks by three": ranks}


def costs_on_repeats(model: SmolLM2) -> dict:
    """The same where random tokens come again, and how each head attends there.

    ``previous``: its mean weight on the token before; ``induction``: from a token that has come before, its mean weight
    on the one that came after it then.
    """
    batch = repeats(CHOSEN_ON, seed=0)
    whole = TASK.loss(model, batch)
    maps = torch.stack(model.attention_weights).mean(dim=1)  # 30 of (b, 9, n, n) -> (30, 9, n, n)
    each = second_time(heads.losses_without_each(model, batch, TASK)) - second_time(whole)  # (30, 9, sequences)
    again = torch.arange(REPEATED + 1, 2 * REPEATED)
    return {
        "mean": each.mean(dim=-1),
        "error": each.std(dim=-1) / CHOSEN_ON**0.5,
        "previous": maps.diagonal(offset=-1, dim1=-2, dim2=-1)[..., 1:].mean(dim=-1),
        "induction": maps[..., again, again - REPEATED + 1].mean(dim=-1),
    }


def induction(model: SmolLM2) -> dict:
    """Heads that were chosen on some sequences, taken out on others: the loss of each sequence the second time."""
    found = torch.tensor(part(model, "costs on repeats")["mean"])
    order = found.flatten().argsort(descending=True).tolist()
    places = [divmod(number, 9) for number in order]
    random, prose = repeats(JUDGED_ON, seed=1), judged(model)
    whole = TASK.loss(model, random)
    result = {
        "first time": whole[:, :REPEATED].mean(dim=1),
        "second time": second_time(whole),
        "places": places[:10],
        "without each": {
            str(tuple(place)): second_time(TASK.loss(model, random, without(place))) for place in (*places[:4], (18, 6))
        },
        "without the first ten": second_time(TASK.loss(model, random, without(*places[:10]))),
        "prose": loss_of(model, prose),
        "prose without": {str(place): loss_of(model, prose, without(place)) for place in places[:4]},
        "prose without the first ten": loss_of(model, prose, without(*places[:10])),
    }
    without_others = []
    for seed in range(RANDOM_TENS):
        chosen = torch.randperm(260, generator=torch.Generator().manual_seed(seed))[:10]
        others = [places[10 + number] for number in chosen.tolist()]
        without_others.append(second_time(TASK.loss(model, random, without(*others))))
    return result | {"without ten others": without_others}


def later_heads(model: SmolLM2) -> dict:
    """What the first heads on repeats cost there: later layers free, their heads frozen, and their networks as well.

    What is frozen says what it says with all heads there. One mean a sequence.
    """
    random = repeats(JUDGED_ON, seed=1)
    said, fed = [*found_in(model, random).outputs().values()], feed_forward_outputs(model, random)
    whole = second_time(TASK.loss(model, random))
    found = {}
    for layer, head in part(model, "induction")["places"][:6]:
        gates, frozen_heads = without((layer, head)), torch.ones(SHAPE)
        frozen_heads[layer + 1 :] = 0

        def cost(gates: Tensor = gates) -> Tensor:
            return second_time(TASK.loss(model, random, gates)) - whole

        free = cost()
        with patch_heads(model, said, frozen_heads):
            frozen = cost()
            with ExitStack() as hooks:
                for number in range(layer, len(fed)):  # its own layer's network comes after it, too
                    hooks.enter_context(
                        networks(model)[number].register_forward_hook(lambda *_, kept=fed[number]: kept)
                    )
                both = cost()
        found[str((layer, head))] = {"free": free, "frozen": frozen, "networks frozen, too": both}
    return found


def feed_forward_outputs(model: SmolLM2, batch: Batch) -> list[Tensor]:
    """What every layer's feed-forward network adds, with all heads there."""
    found: list[Tensor] = []
    with torch.no_grad(), ExitStack() as hooks:
        for network in networks(model):
            hooks.enter_context(network.register_forward_hook(lambda *call: found.append(call[-1])))
        model(batch.inputs)
    return found


def networks(model: SmolLM2) -> list[nn.Module]:
    """The feed-forward network of every layer."""
    return [block.get_submodule("feed_forward") for block in model.blocks.values()]


def of_single_heads_gone(model: SmolLM2) -> dict:
    """What three heads cost on repeats where they give way to zeros, to their mean or to another sequence's words."""
    random = repeats(JUDGED_ON, seed=1)
    whole = second_time(TASK.loss(model, random))
    found: dict[str, dict] = {}
    for ablation in ("zero", "mean", "resample"):
        instead = heads.ablation_values(model, random, ablation)
        for place in ((1, 4), (16, 0), (18, 6)):
            with patch_heads(model, instead, without(place)):
                found.setdefault(str(place), {})[ablation] = second_time(TASK.loss(model, random)) - whole
    return found


def by_confidence(model: SmolLM2) -> dict:
    """Cuts by confidence over all keys and without position 0, where ``research.sinks`` finds a sink; zeros and means.

    ``on position 0``: each head's mean weight there; ``spearman``: how confidence over all keys agrees with it.
    """
    batch, test = seen(model), judged(model)
    found: dict[str, dict] = {"zeros": {}, "means": {}}
    by_name = {"all keys": (), "without position 0": (0,)}
    orders = {name: measured(model, batch, TASK, "confidence", ignore=leave_out) for name, leave_out in by_name.items()}
    on_first = torch.stack([weights[..., 0].mean(dim=(0, 2)) for weights in model.attention_weights])
    means = heads.ablation_values(model, batch, "mean")
    for name, order in orders.items():
        found["zeros"][name] = cuts.losses(model, test, order)
        with_means = found["means"][name] = {}
        for cut in cuts.CUTS:
            with patch_heads(model, means, cuts.kept(order, cut)):
                with_means[str(cut)] = loss_of(model, test)
    return found | {"on position 0": on_first, "spearman": heads.spearman(orders["all keys"], on_first)}


PARTS: dict[str, Callable] = {
    "of all": of_all,
    "costs on repeats": costs_on_repeats,
    "induction": induction,
    "later heads": later_heads,
    "word circuit": circuit,
    "three heads gone": of_single_heads_gone,
    "costs on prose": costs_on_prose,
    "calibrated on prose": lambda model: cuts.calibrated(model, judged(model), gradients(model, "prose")),
    "calibrated on docstrings": lambda model: cuts.calibrated(model, judged(model), gradients(model, "docstrings")),
    "path": lambda model: cuts.path_sums(model, seen(model)[:PATH_ROWS], on_path(model)),
    "cuts": lambda model: cuts.of_orders(model, judged(model), orders(model), costs_of_judged(model)),
    "chance": lambda model: {
        "free": [cuts.losses(model, judged(model), cuts.random(draw)) for draw in range(cuts.DRAWS)]
    },
    "chance, gate gradient": chance_for("gate gradient"),
    "chance, leave one out": chance_for("leave one out"),
    "gate gradient, taken again": lambda model: cuts.gate_gradient_again(
        model, judged(model), pool(model, "prose"), gradients(model, "prose")
    ),
    "leave one out, taken again": lambda model: cuts.costs_again(model, judged(model), seen(model), costs(model)),
    "other ablations": lambda model: cuts.ablated(model, judged(model), seen(model), leaders(model, OF_EACH)),
    "confidence": by_confidence,
}

if __name__ == "__main__":
    main(sys.argv[1:])
