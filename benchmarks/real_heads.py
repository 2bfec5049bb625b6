"""What survives on a real language model: heads of SmolLM2 measured and cut, ``python -m benchmarks.real_heads``.

Each part is written as soon as it is done, into results/real_heads, so that a run that was cut short goes on where it
stopped; at the end all parts become real_heads.json in the library, where notebooks read them. Parts may be named as
arguments, so that two processes can share the work. One thread each; some twenty minutes of CPU time in all.

Texts: rows of 64 tokens. Measures see three rows of scikit-learn's descriptions (and, for comparison, three of this
project's prose); cuts are judged on sixteen others, eight of each kind.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.kept import kept_file, rounded, write_compact
from mha_lib import heads
from mha_lib.heads.ablation import always, heads_seen_by, measuring
from mha_lib.models.prose import descriptions, own_prose
from mha_lib.models.smollm2 import NextToken, SmolLM2, smollm2
from mha_lib.models.tasks import Batch

PARTS_FOLDER = Path(__file__).with_name("results") / "real_heads"
DIGITS = 4  # after the point
ROW = 64  # tokens
SEEN_ROWS = 3  # of each kind of text
REPEATED, CHOSEN_ON, JUDGED_ON = 24, 6, 12  # random tokens that come twice; sequences to choose heads on; others
CUTS = (13, 27, 54, 81)  # of 270 heads: 5, 10, 20 and 30 %
RANDOM_ORDERS = 10
RANDOM_CUTS = (27, 81)  # the cuts that random orders make, to save time
TASK = NextToken()


def main(names: list[str]) -> None:
    """Measure what is not there yet, and write the results once all parts are."""
    PARTS_FOLDER.mkdir(parents=True, exist_ok=True)
    model = smollm2()
    with measuring(model):
        for name in names or PARTS:
            part(model, name)
    if all((PARTS_FOLDER / f"{name}.json").exists() for name in PARTS):
        found = {name: json.loads((PARTS_FOLDER / f"{name}.json").read_text()) for name in PARTS}
        write_compact(kept_file("real_heads"), found)


def part(model: SmolLM2, name: str):
    """A part of the results, measured now or before."""
    file = PARTS_FOLDER / f"{name}.json"
    if not file.exists():
        start = time.process_time()
        write_compact(file, rounded(PARTS[name](model), DIGITS))
        print(f"{name}: {time.process_time() - start:.0f} s of CPU time", file=sys.stderr, flush=True)
    return json.loads(file.read_text())


def rows(model: SmolLM2, texts: list[str]) -> Tensor:
    """The first tokens of each text that has enough: (number, ROW)."""
    ids = (model.tokenize(text)[:ROW] for text in texts)
    return torch.tensor([row for row in ids if len(row) == ROW])


def texts(model: SmolLM2) -> dict[str, Batch]:
    """What measures see of both kinds of text, and what cuts are judged on."""
    theirs, ours = rows(model, descriptions()), rows(model, own_prose())
    judged = torch.cat([theirs[SEEN_ROWS:], ours[SEEN_ROWS:]])
    kinds = {"descriptions": theirs[:SEEN_ROWS], "own prose": ours[:SEEN_ROWS], "judged": judged}
    return {name: TASK.examples(ids) for name, ids in kinds.items()}


def repeats(number: int, seed: int) -> Batch:
    """Random tokens that come twice: (number, 2 · REPEATED)."""
    ids = torch.randint(1000, 40_000, (number, REPEATED), generator=torch.Generator().manual_seed(seed))
    return TASK.examples(torch.cat([ids, ids], dim=1))


def second_time(losses: Tensor) -> Tensor:
    """The mean loss of each sequence where its tokens come again: all but the first, which nothing foretells."""
    return losses[..., REPEATED + 1 :].mean(dim=-1)


def without(*gone: tuple[int, int]) -> Tensor:
    """Gates that switch these heads off."""
    gates = torch.ones(30, 9)
    for place in gone:
        gates[place] = 0
    return gates


def loss_of(model: SmolLM2, batch: Batch, gates: Tensor | None = None) -> Tensor:
    """The mean loss of each row."""
    return TASK.loss(model, batch, gates).mean(dim=1)


def of_all(model: SmolLM2) -> dict:
    """The loss of each row with all heads and with none."""
    return {
        name: {"all": loss_of(model, batch), "none": loss_of(model, batch, torch.zeros(30, 9))}
        for name, batch in texts(model).items()
    }


def costs_on_prose(model: SmolLM2) -> dict:
    """What each head's absence costs, mean over rows and its standard error: (30, 9)."""
    batch = texts(model)["descriptions"]
    each = heads.losses_without_each(model, batch, TASK).mean(dim=-1) - loss_of(model, batch)  # (30, 9, rows)
    return {"mean": each.mean(dim=-1), "error": each.std(dim=-1) / len(batch) ** 0.5}


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
    costs = torch.tensor(part(model, "costs on repeats")["mean"])
    order = costs.flatten().argsort(descending=True).tolist()
    places = [divmod(number, 9) for number in order]
    judged, prose = repeats(JUDGED_ON, seed=1), texts(model)["judged"]
    whole = TASK.loss(model, judged)
    found = {
        "first time": whole[:, :REPEATED].mean(dim=1),
        "second time": second_time(whole),
        "places": places[:10],
        "without each": {
            str(tuple(place)): second_time(TASK.loss(model, judged, without(place))) for place in (*places[:4], (18, 6))
        },
        "without the first ten": second_time(TASK.loss(model, judged, without(*places[:10]))),
        "prose": loss_of(model, prose),
        "prose without": {str(place): loss_of(model, prose, without(place)) for place in places[:4]},
        "prose without the first ten": loss_of(model, prose, without(*places[:10])),
    }
    without_others = []
    for seed in range(RANDOM_ORDERS):
        drawn = torch.randperm(260, generator=torch.Generator().manual_seed(seed))[:10]
        others = [places[10 + number] for number in drawn.tolist()]
        without_others.append(second_time(TASK.loss(model, judged, without(*others))))
    return found | {"without ten others": without_others}


def later_heads(model: SmolLM2) -> dict:
    """What the first heads on repeats cost there while all heads of later layers are free, and while they are frozen.

    Frozen, they say what they say with all heads there. One mean a sequence.
    """
    judged = repeats(JUDGED_ON, seed=1)
    said = heads.head_outputs(model, judged)
    whole = second_time(TASK.loss(model, judged))
    found = {}
    for layer, head in part(model, "induction")["places"][:6]:
        gates, later = without((layer, head)), slice(layer + 1, None)
        free = second_time(TASK.loss(model, judged, gates)) - whole
        with heads_seen_by(model.attentions[later], [always(kept) for kept in said[later]]):
            frozen = second_time(TASK.loss(model, judged, gates)) - whole
        found[str((layer, head))] = {"free": free, "frozen": frozen}
    return found


def gradients(model: SmolLM2) -> dict:
    """Gate gradients on both kinds of text, and path gradients, with what these should add up to."""
    seen = texts(model)
    none = torch.zeros(30, 9)
    due = {name: (loss_of(model, seen[name], none) - loss_of(model, seen[name])).mean() for name in ("descriptions",)}
    return {
        "gate gradient": heads.gate_gradient(model, seen["descriptions"], TASK),
        "gate gradient, other text": heads.gate_gradient(model, seen["own prose"], TASK),
        "path gradient, 8 steps": heads.path_gradient(model, seen["descriptions"], TASK, steps=8),
        "due": due["descriptions"],
    }


def long_path(model: SmolLM2) -> Tensor:
    """The path gradient once more, in 40 steps."""
    return heads.path_gradient(model, texts(model)["descriptions"], TASK, steps=40)


def looks(model: SmolLM2) -> dict:
    """Measures that need no gradient and no ablation."""
    seen = texts(model)["descriptions"]
    return {
        "confidence": heads.confidence(model, seen, TASK),
        "output norm": heads.output_norm(model, seen, TASK),
    }


def orders(model: SmolLM2) -> dict[str, Tensor]:
    """Importance by name: every measure above, and orders that look at no text."""
    one_out = torch.tensor(part(model, "costs on prose")["mean"])
    gradient, look = (part(model, name) for name in ("gradients", "looks"))
    layers = torch.arange(30.0)[:, None].expand(30, 9)
    gate = torch.tensor(gradient["gate gradient"])
    by_name = {
        "gate gradient": gate,
        "gate gradient, other text": torch.tensor(gradient["gate gradient, other text"]),
        "gate gradient, normalised": torch.nn.functional.normalize(gate, dim=1),
        "path gradient": torch.tensor(part(model, "long path")),
        "leave one out": one_out,
        "leave one out, absolute": one_out.abs(),
        "leave one out, on repeats": torch.tensor(part(model, "costs on repeats")["mean"]),
        "confidence": torch.tensor(look["confidence"]),
        "output norm": torch.tensor(look["output norm"]),
        "early layers stay": -layers,
        "late layers stay": layers,
    }
    draws = {
        f"random {seed}": torch.rand(30, 9, generator=torch.Generator().manual_seed(seed))
        for seed in range(RANDOM_ORDERS)
    }
    return by_name | draws


def cuts(model: SmolLM2) -> dict:
    """The loss of each row after heads were cut by each order."""
    judged = texts(model)["judged"]
    found = {}
    for name, importance in orders(model).items():
        file = PARTS_FOLDER / f"cuts, {name}.json"
        if not file.exists():
            place = heads.ranks(importance)  # 1 is the most important
            chosen = RANDOM_CUTS if name.startswith("random") else CUTS
            losses = {str(cut): loss_of(model, judged, (place <= 270 - cut).float()) for cut in chosen}
            write_compact(file, rounded(losses, DIGITS))
        found[name] = json.loads(file.read_text())
    return found


def speed(model: SmolLM2) -> dict:
    """How many times faster the model is without heads, cut for real: CPU time, side by side with the whole one."""
    gate = torch.tensor(part(model, "gradients")["gate gradient"])
    judged = texts(model)["judged"][:4]
    found = {}
    for cut in (27, 81):
        pruned = heads.prune(model, heads.best_heads(model, gate, 270 - cut))
        masked = (heads.ranks(gate) <= 270 - cut).float()
        change = (TASK.loss(pruned, judged) - TASK.loss(model, judged, masked)).abs().max()
        ratios = []
        for _ in range(3):
            whole = cpu_seconds(lambda: TASK.loss(model, judged))
            ratios.append([whole / cpu_seconds(run) for run in (
                lambda pruned=pruned: TASK.loss(pruned, judged),
                lambda masked=masked: TASK.loss(model, judged, masked),
            )])  # fmt: skip
        found[str(cut)] = {
            "pruned": torch.tensor(ratios)[:, 0].median(),
            "masked": torch.tensor(ratios)[:, 1].median(),
            "numbers": sum(parameter.numel() for parameter in set(pruned.parameters())),
            "pruned against masked": change,
        }
    return found


def cpu_seconds(run: Callable) -> float:
    """CPU time of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


PARTS: dict[str, Callable] = {
    "of all": of_all,
    "gradients": gradients,
    "looks": looks,
    "costs on repeats": costs_on_repeats,
    "costs on prose": costs_on_prose,
    "induction": induction,
    "later heads": later_heads,
    "long path": long_path,
    "cuts": cuts,
    "speed": speed,
}

if __name__ == "__main__":
    main(sys.argv[1:])
