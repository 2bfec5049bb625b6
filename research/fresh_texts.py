"""What the report says of SmolLM2, held against fresh texts: ``make research-fresh-texts``.

The protocol, written before anything was measured:

- **Texts**: rows of 64 tokens in fresh_texts.txt, four each of old fiction (Melville, Carroll, Shelley), descriptions
  of Python packages, and docstrings of scientific packages. No measure sees them, and none is of the kind of *prose*
  that gives means.
- **Calibration**: three draws of 24 rows that ``real_heads`` does not use: prose 100 and 101, docstrings 100.
- **Measures**: the gate gradient (towards zero) and the gradient towards the mean, absolute values of each row.
- **Removed** heads give their mean over the calibration rows and their positions; ``real_heads`` has zeros.
- **Layer-matched random baseline**: as many heads of each layer, two draws for each calibration.
- **Decision**: a measure leads if the interval over texts (Student, 95 %, paired with the mean of its baselines) lies
  below 0 and no draw loses less. An interval below 0 alone is a *weak* lead. All else is a tie.
- **Units**: heads, groups of three that share keys, whole layers, each by the summed gradient towards the mean; layers
  also by the signed single costs that ``real_heads`` keeps.
- **Circuit**: the five heads that were found on other sequences, and three of them, held fixed and patched, on two
  new sets of random tokens and on real words that come twice; beside draws of five of the same layers and of all later
  ones.
- **Words**: the 22 texts of ``next_word`` that the model continues with the word it read; the five against twenty draws
  of the same layers and twenty of all, with means; ``next_word`` has it with zeros.

Calibrations, draws, texts (six of each kind are in the file) and sizes were cut down for want of time, when nothing but
``halves`` and ``circuit`` had been seen. Each part is kept as soon as it is done. All takes about ten minutes of CPU
time on one thread.
"""

import json
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.measure import cpu_seconds
from mha_course import heads
from mha_course.heads.ablation import eval_mode, patch_heads
from mha_course.heads.coalitions import block_mean_baseline, permute_within_blocks
from mha_course.models.next_words import GROUPS, NUM_HEADS, START, gates_of
from mha_course.models.smollm2 import SmolLM2, smollm2
from mha_course.models.tasks import Batch
from mha_course.models.transformer import Transformer
from research import real_cuts as cuts
from research.kept import kept_file, kept_parts, measure_parts, rounded, write_compact
from research.next_word import five_others
from research.prose import fresh_texts
from research.real_cuts import SHAPE, loss_of
from research.real_texts import JUDGED_ON, REPEATED, ROW, TASK, drawn, pool, repeats, rows
from research.word_circuit import LATER, TELLER, Judge, without

PARTS_FOLDER = Path(__file__).with_name("results") / "subset" / "fresh_texts"  # git ignores it
CALIBRATIONS = (("prose", 100), ("prose", 101), ("docstrings", 100))
ROWS = 24
SIZES = (54, 81)
MATCHED = 2
OF_EACH_KIND, IN_FILE = 4, 6  # texts
FIVE = tuple(divmod(head, NUM_HEADS) for head in GROUPS["induction"])
THREE, OTHER_TWO = (FIVE[0], FIVE[3], FIVE[4]), FIVE[1:3]
DRAWS = 4


def main(names: list[str]) -> None:
    """Measure what is not there yet, and write the results once all parts are."""
    PARTS_FOLDER.mkdir(parents=True, exist_ok=True)
    model = smollm2()
    with eval_mode(model):
        measure_parts(names or PARTS, file_of, lambda name: rounded(PARTS[name](model), 4))
    found = kept_parts(PARTS, file_of)
    if found.keys() >= PARTS.keys():
        write_compact(kept_file("fresh_texts"), found)


def file_of(name: str) -> Path:
    """Where a part is kept."""
    return PARTS_FOLDER / f"{name}.json"


def fresh_rows() -> list[tuple[str, str]]:
    """Kind and text, the first OF_EACH_KIND of each kind."""
    return [row for number, row in enumerate(fresh_texts()) if number % IN_FILE < OF_EACH_KIND]


@cache
def fresh(model: SmolLM2) -> Batch:
    """The fresh texts' first tokens, by kind in the order of the file."""
    found = rows(model, [text for _, text in fresh_rows()])
    assert len(found) == len(fresh_rows()), "a fresh text has fewer than 64 tokens"
    return TASK.examples(found)


def calibration(model: SmolLM2, kind: str, draw: int) -> Batch:
    """The rows of one draw."""
    return pool(model, kind)[drawn(ROWS, draw)]


def means_of(model: SmolLM2, kind: str, draw: int) -> list[Tensor]:
    """What every head gives on average over the rows of one draw and their positions."""
    return heads.ablation_values(model, calibration(model, kind, draw), "mean")


# Measures


def gradients_towards_mean(model: SmolLM2, batch: Batch, means: Sequence[Tensor]) -> Tensor:
    """How each row's loss falls as each head opens from its mean: (rows, 30, 9)."""

    def of_rows(part: Batch) -> Tensor:
        own = torch.ones(len(part), *SHAPE, requires_grad=True)
        with patch_heads(model, means, own.transpose(0, 1)):
            loss = TASK.losses(model(part.inputs), part.targets).mean(dim=1).sum()
        return -torch.autograd.grad(loss, own)[0].double()

    return torch.cat([of_rows(batch[start : start + 4]) for start in range(0, len(batch), 4)])


def measured(model: SmolLM2, kind: str, draw: int) -> dict[str, Tensor]:
    """Both measures of each row of one draw, made once: (rows, 30, 9) by name."""
    file = PARTS_FOLDER / f"{kind} {draw}.pt"
    if not file.exists():
        batch = calibration(model, kind, draw)
        towards = gradients_towards_mean(model, batch, means_of(model, kind, draw))
        torch.save({"gate gradient": cuts.row_gradients(model, batch), "towards the mean": towards}, file)
    return torch.load(file)


def importance(model: SmolLM2, kind: str, draw: int) -> dict[str, Tensor]:
    """Mean absolute values: (30, 9) by name."""
    return {name: each.abs().mean(dim=0) for name, each in measured(model, kind, draw).items()}


def lost(model: SmolLM2, gates: Tensor, means: Sequence[Tensor]) -> Tensor:
    """The loss of each fresh text where removed heads give their means: (texts,)."""
    with patch_heads(model, means, gates):
        return loss_of(model, fresh(model))


# Parts


def whole(model: SmolLM2) -> dict:
    """The loss of each fresh text with all heads, and of which kind it is."""
    return {"kinds": [kind for kind, _ in fresh_rows()], "loss": loss_of(model, fresh(model))}


def against_matched(model: SmolLM2) -> dict:
    """Losses by measure, calibration and size: of the measure, and of draws with as many heads of each layer."""
    found: dict[str, dict] = {}
    for number, (kind, draw) in enumerate(CALIBRATIONS):
        means = means_of(model, kind, draw)
        for name, order in importance(model, kind, draw).items():
            seeds = range(100 * number, 100 * number + MATCHED)
            found.setdefault(name, {})[f"{kind} {draw}"] = {
                str(size): {
                    "measure": lost(model, cuts.kept(order, size), means),
                    "matched": [lost(model, cuts.kept(permute_within_blocks(order, s), size), means) for s in seeds],
                }
                for size in SIZES
            }
    return found


def units(model: SmolLM2) -> dict:
    """Losses where heads, groups that share keys or whole layers go, with means, and what is left of the cache."""
    found: dict[str, dict] = {}
    for kind, draw in (CALIBRATIONS[0], CALIBRATIONS[2]):
        means = means_of(model, kind, draw)
        for name, order in unit_orders(importance(model, kind, draw)["towards the mean"]).items():
            row = found.setdefault(name, {}).setdefault(f"{kind} {draw}", {})
            for size in (27, 54):
                gates = cuts.kept(order, size)
                kept = gates.unflatten(1, (3, 3)).amax(dim=2).sum()
                row[str(size)] = {"loss": lost(model, gates, means), "key-value heads": int(kept)}
    return found


def unit_orders(towards: Tensor) -> dict[str, Tensor]:
    """Importance of each head by unit: equal within a group or a layer that goes as a whole."""
    kept = json.loads(kept_file("real_heads").read_text())["costs on prose"]["mean"]
    groups = towards.unflatten(1, (3, 3)).sum(dim=2, keepdim=True).expand(-1, -1, 3).flatten(1)
    return {
        "heads": towards,
        "key-value groups": groups,
        "layers": block_mean_baseline(towards),
        "layers by signed costs": block_mean_baseline(torch.tensor(kept).double()),
    }


def circuit(model: SmolLM2) -> dict:
    """What the teller costs on three sets of sequences, with groups of later heads held fixed and patched."""
    pick, others = random.Random(11), [place for place in LATER if place not in FIVE]
    near = {layer: [place for place in others if place[0] == layer] for layer in (17, 18)}
    draws = {
        "same layers": [[*pick.sample(near[17], 3), *pick.sample(near[18], 2)] for _ in range(DRAWS)],
        "all later": [pick.sample(others, len(FIVE)) for _ in range(DRAWS)],
    }
    texts = [text for _, text in fresh_texts()[:JUDGED_ON]]
    words = torch.cat([rows(model, texts)[:, :REPEATED]] * 2, dim=1)
    batches = {
        "random tokens 401": repeats(JUDGED_ON, seed=401),
        "random tokens 402": repeats(JUDGED_ON, seed=402),
        "real words": TASK.examples(words),
    }
    found = {}
    for name, batch in batches.items():
        judge = Judge(model, batch)
        losses = TASK.loss(model, batch)
        found[name] = {
            "first time": losses[:, :REPEATED].mean(dim=1),
            "second time": judge.loss,
            "cut": judge.cost([TELLER]),
            "five fixed": judge.frozen(FIVE),
            "three fixed": judge.frozen(THREE),
            "five patched": judge.misled(FIVE),
            "three patched": judge.misled(THREE),
            "other two patched": judge.misled(OTHER_TWO),
            **{f"draws fixed, {kind}": [judge.frozen(draw) for draw in some] for kind, some in draws.items()},
            **{f"draws patched, {kind}": [judge.misled(draw) for draw in some] for kind, some in draws.items()},
        }
    return {"draws": draws, "costs": found}


def three_heads(model: SmolLM2) -> dict:
    """What *removed* and *the mean* are: three heads on repeats, with four replacements for their outputs."""
    batch = repeats(JUDGED_ON, seed=403)
    judge = Judge(model, batch)
    instead = {
        "zeros": None,
        "mean of these sequences": heads.ablation_values(model, batch, "mean"),
        "another sequence": heads.ablation_values(model, batch, "resample"),
        "mean of prose": means_of(model, *CALIBRATIONS[0]),
    }
    three: dict[str, dict] = {}
    for place in ((1, 4), (16, 0), (18, 6)):
        for name, given in instead.items():
            three.setdefault(str(place), {})[name] = repeat_cost(judge, place, given)
    return three


def repeat_cost(judge: Judge, place: tuple[int, int], instead: Sequence[Tensor] | None) -> Tensor:
    """What a head costs on the second time of each sequence, with zeros or with something else instead."""
    if instead is None:
        return judge.cost([place])
    with patch_heads(judge.model, instead, without(place)):
        return judge.cost()


def words(model: SmolLM2) -> dict:
    """On how many of the 22 texts the next word changes, and what the word read then costs more, for every draw."""
    kept = json.loads(kept_file("next_word").read_text())["read or known"]
    texts = [row["text"] for row in kept if row["says what was read"] and not row["seen before"]]
    draws, means = five_others(12), means_of(model, *CALIBRATIONS[2])
    all_cuts = [(), GROUPS["induction"], *draws["same layers"], *draws["all heads"]]
    nats, changes = [], []
    for text in texts:
        log_p = log_p_without(model, [START, *model.tokenize(text)], all_cuts, means)
        first = log_p.argmax(dim=1)
        changes.append(first != first[0])
        nats.append(log_p[0, first[0]] - log_p[:, first[0]])
    changed, more = torch.stack(changes).sum(dim=0).tolist(), torch.stack(nats).mean(dim=0).tolist()
    ends = 2 + len(draws["same layers"])
    found = {
        "texts": len(texts),
        "five": [changed[1], more[1]],
        "same layers": [changed[2:ends], more[2:ends]],
        "all heads": [changed[ends:], more[ends:]],
    }
    return {"draws": draws, "means": found}


def names(model: SmolLM2) -> dict:
    """The share of the 22 texts whose word the five change, with zeros; bootstrap over their names and phrases."""
    kept = json.loads(kept_file("next_word").read_text())["read or known"]
    of_name: dict[str, list[bool]] = {}
    for row in kept:
        if row["says what was read"] and not row["seen before"]:
            name = " ".join(row["text"].split()[:2])
            of_name.setdefault(name, []).append(row["without"]["induction"]["word"] != row["whole"]["word"])
    changed, number = (torch.tensor([float(of(own)) for own in of_name.values()]) for of in (sum, len))
    drawn_again = torch.randint(len(of_name), (4000, len(of_name)), generator=torch.Generator().manual_seed(0))
    shares = changed[drawn_again].sum(dim=1) / number[drawn_again].sum(dim=1)
    ends = shares.quantile(torch.tensor([0.025, 0.975])).tolist()
    return {"number": len(of_name), "changed": [(changed.sum() / number.sum()).item(), *ends]}


def log_p_without(
    model: SmolLM2, ids: Sequence[int], all_cuts: Sequence[Sequence[int]], means: Sequence[Tensor]
) -> Tensor:
    """log p of the next token where the heads of each cut give their means: (cuts, vocabulary)."""
    by_layer = gates_of(all_cuts).transpose(0, 1)  # (cuts, layers, heads) -> (layers, cuts, heads)
    inputs = torch.tensor([ids]).expand(len(all_cuts), -1)
    with torch.no_grad(), patch_heads(model, means, by_layer):
        return model(inputs)[:, -1].log_softmax(dim=-1)


def halves(model: SmolLM2) -> dict:
    """Rank correlation of what heads cost on repeats and on prose, by half of the layers; bootstrap over layers."""
    kept = json.loads(kept_file("real_heads").read_text())
    on_repeats, on_prose = (torch.tensor(kept[f"costs on {kind}"]["mean"]) for kind in ("repeats", "prose"))
    pick, found = torch.Generator().manual_seed(0), {}
    for name, layers in (("all", slice(None)), ("lower half", slice(0, 15)), ("upper half", slice(15, 30))):
        pair = on_repeats[layers], on_prose[layers]
        drawn_again = [torch.randint(len(pair[0]), (len(pair[0]),), generator=pick) for _ in range(2000)]
        again = torch.tensor([heads.spearman(*(costs[some].flatten() for costs in pair)) for some in drawn_again])
        agreement = heads.spearman(*(costs.flatten() for costs in pair))
        found[name] = [agreement, *again.quantile(torch.tensor([0.025, 0.975])).tolist()]
    return found


def speed(model: SmolLM2) -> dict:
    """How many times faster the model is with 54 heads' worth removed, by unit: CPU time beside the whole, median."""
    orders = unit_orders(importance(model, *CALIBRATIONS[0])["towards the mean"])
    found: dict[str, dict] = {}
    inputs = fresh(model)[:4].inputs
    for name in ("heads", "key-value groups", "layers"):
        pruned = heads.prune(model, remove=cuts.kept(orders[name], 54) == 0)
        with torch.no_grad():
            ratios = [cpu_seconds(partial(model, inputs)) / cpu_seconds(partial(pruned, inputs)) for _ in range(3)]
        found[name] = {"4 x 64": [statistics.median(ratios), min(ratios), max(ratios)]}
        found[name]["parameters"] = num_parameters(pruned)
        found[name]["ceiling"] = num_products(model, ROW) / num_products(pruned, ROW)
    found["whole"] = {"parameters": num_parameters(model)}
    return found


def num_parameters(model: Transformer) -> int:
    """How many numbers the model has; the table of tokens, which embeds and predicts, once."""
    return sum(each.numel() for each in model.parameters()) - model.get_parameter("embedding.weight").numel()


def num_products(model: Transformer, num_tokens: int) -> int:
    """Multiplications for each token of a row: one for each number of each matrix, and those with keys and values."""
    matrices = (each for name, each in model.named_parameters() if each.dim() == 2 and name != "embedding.weight")
    num_features = sum(layer.num_heads * layer.head_size for layer in model.attentions if layer.num_heads)
    return sum(each.numel() for each in matrices) + 2 * num_tokens * num_features


PARTS: dict[str, Callable[[SmolLM2], dict]] = {
    "whole": whole,
    "halves": halves,
    "circuit": circuit,
    "units": units,
    "means": against_matched,
    "words": words,
    "names": names,
    "speed": speed,
    "three heads": three_heads,
}

if __name__ == "__main__":
    main(sys.argv[1:])
