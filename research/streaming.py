"""Which heads of SmolLM2 need to see far back? Streaming by head, group and layer: ``make research-streaming``.

The protocol is in streaming.md, and was committed before this file. Each part is kept as soon as it is done, and what
is kept is printed at the end. All takes about a quarter of an hour of CPU time.
"""

import ast
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from mha_course.heads.ablation import eval_mode
from mha_course.heads.intervals import mean_and_ci95
from mha_course.models.smollm2 import FIRST_TOKEN, SmolLM2, smollm2
from mha_lib import heads
from mha_lib.heads import FoundHeads, Stream
from research.kept import kept_file, kept_once, kept_parts, measure_parts, write_compact
from research.prose import calibration_prose, descriptions, fresh_texts, of_docstrings, own_prose
from research.real_texts import TASK, docstrings

PARTS_FOLDER = Path(__file__).with_name("results") / "subset" / "streaming"  # git ignores it
PROTOCOL = "1749391fd41567463ead6d2c0c7ae959c21843b0"  # the commit that says what is done here
JUDGED_SEED = int(PROTOCOL[:8], 16)
CALIBRATION_PACKAGES = ("numpy", "pandas", "tornado", "traitlets")
JUDGED_PACKAGES = ("torch", "IPython", "prompt_toolkit", "jinja2")
CALIBRATION_TEXTS, JUDGED_TEXTS = 4, 6  # of each kind
TOKENS, WORDS_IN_A_ROW = 160, 8
STARTS = {"prose": 28, "copying": TOKENS // 2 + 1, "code": 28}  # the first token whose loss counts
STREAM = Stream(sinks=4, window=24)
GROUPS, GROUP = 90, 3
PAIRS = (  # told text by text
    ("prose alone", "base"),
    ("copying alone", "base"),
    ("code alone", "base"),
    ("heads", "base"),
    ("layers", "base"),
    ("towards means", "base"),
    ("weight outside", "base"),
    ("18 groups", "18 groups, means"),
    ("18 groups", "18 groups, zeros"),
)
Batch = Mapping[str, object]  # "ids" (b, TOKENS), and "start"


def main(names: Sequence[str]) -> None:
    """Measure what is not there yet; write what is into the library, and print its table."""
    PARTS_FOLDER.mkdir(parents=True, exist_ok=True)
    if missing := [name for name in names or PARTS if not file_of(name).exists()]:
        model = smollm2()
        with eval_mode(model):
            bench = Bench(model)
            measure_parts(missing, file_of, lambda name: PARTS[name](bench))
    found = kept_parts(PARTS, file_of)
    write_compact(kept_file("streaming"), found)
    print(table(found))


def file_of(name: str) -> Path:
    """Where a part is kept."""
    return PARTS_FOLDER / f"{name.replace(' ', '_')}.json"


def kept(name: str, compute: Callable[[], dict]) -> dict:
    """A part from its file, or computed and kept there."""
    return kept_once(file_of(name), compute)


def table(parts: Mapping[str, dict]) -> str:
    """Nats more a token: of each plan, with its interval by text; its draws, lowest to highest; the difference."""
    head = [
        "plan",
        "cache at 4,096",
        *(f"{kind}: {what}" for kind in STARTS for what in ("plan", "draws", "difference")),
    ]
    rows = []
    for name, part in parts.items():
        if "prose" not in part or "draws" not in part["prose"]:
            continue
        row = [name, f"{cache_left(part['plan']):.2f}" if "plan" in part else "–"]
        for kind in STARTS:
            plan, draws = part[kind].get("plan"), torch.tensor(part[kind]["draws"]).double()
            row.append(interval(torch.tensor(plan).double()) if plan else "–")
            means = draws.mean(dim=1).tolist() if len(draws) else []
            row.append(f"{min(means):.3f} to {max(means):.3f}" if len(means) else "–")
            both = plan and len(draws)
            row.append(interval(torch.tensor(plan).double() - draws.mean(dim=0)) if both else "–")
        rows.append(row)
    lines = [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]]
    for one, other in PAIRS:
        if {one, other} <= parts.keys():
            more = (f"{kind} {interval(plan_of(parts[one], kind) - plan_of(parts[other], kind))}" for kind in STARTS)
            lines.append(f"\n*{one}* less *{other}*: {', '.join(more)}.")
    if "induction groups" in parts:
        lines.append(f"\nThe first ten groups with each calibration seed: {parts['induction groups']['first']}.")
    return "\n".join(lines)


def plan_of(part: dict, kind: str) -> Tensor:
    """The rises of a part's plan."""
    return torch.tensor(part[kind]["plan"]).double()


def interval(values: Tensor) -> str:
    """The mean over texts, and Student's interval."""
    mean, low, high = mean_and_ci95(values)
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"


def cache_left(plan: Mapping[str, Sequence[int]], tokens: int = 4096) -> float:
    """The part of keys and values that is kept, of so many tokens, where all heads of a group stream."""
    streaming = sum(set(range(3 * group, 3 * group + 3)) <= {*off} for off in plan.values() for group in range(3))
    return 1 - streaming / GROUPS * (1 - (STREAM.sinks + STREAM.window) / tokens)


# Texts


def texts(model: SmolLM2, kind: str, seed: int, number: int, packages: Sequence[str]) -> Batch:
    """So many texts of a kind, drawn from the packages in turn, a module each."""
    pick, found = random.Random(f"{kind} {seed}"), list[list[int]]()
    modules = {name: iter(pick.sample(files, len(files))) for name in packages if (files := modules_of(name))}
    while len(found) < number:
        for name in packages[: number - len(found)]:
            found.append(next(row for file in modules[name] for row in rows_of(model, kind, file, pick)))
    ids = torch.tensor(found)
    return {"ids": torch.cat([ids, ids], dim=1) if kind == "copying" else ids, "start": STARTS[kind]}


@cache
def modules_of(package: str) -> list[Path]:
    """The package's files, without its tests."""
    spec = find_spec(package)
    assert spec and spec.submodule_search_locations, f"{package} is no package here"
    (folder,) = spec.submodule_search_locations
    files = sorted(Path(folder).rglob("*.py"))
    return [file for file in files if not any("test" in part for part in file.relative_to(folder).parts)]


def rows_of(model: SmolLM2, kind: str, file: Path, pick: random.Random) -> Iterator[list[int]]:
    """The tokens of a module's text, if it has one that is long enough and no kept text has words of it."""
    source = file.read_text(encoding="utf-8", errors="ignore")
    text = code_of(source, pick) if kind == "code" else of_docstrings(source)
    number = TOKENS // 2 if kind == "copying" else TOKENS
    if text and not runs_of_words(text) & kept_runs():
        row = model.tokenize(text)[:number]
        yield from [row] * (len(row) == number)


def code_of(source: str, pick: random.Random) -> str:
    """A module's source from one of its functions or classes on."""
    starts = [node.lineno for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return "\n".join(source.splitlines()[pick.choice(starts) - 1 :]) if starts else ""


def runs_of_words(text: str) -> set[tuple[str, ...]]:
    """All runs of WORDS_IN_A_ROW words."""
    words = text.lower().split()
    return {tuple(words[i : i + WORDS_IN_A_ROW]) for i in range(len(words) - WORDS_IN_A_ROW + 1)}


@cache
def kept_runs() -> set[tuple[str, ...]]:
    """Those of all texts that other reports on SmolLM2 read."""
    fresh = [text for _, text in fresh_texts()]
    return set().union(
        *map(runs_of_words, [*fresh, *descriptions(), *own_prose(), *calibration_prose(), *docstrings()])
    )


# Measures and plans


def loss(model: SmolLM2, batch: Batch) -> Tensor:
    """Mean nats of each text, (b,), from the first token that counts."""
    ids: Tensor = batch["ids"]  # type: ignore[assignment]
    inputs = torch.cat([torch.full_like(ids[:, :1], FIRST_TOKEN), ids[:, :-1]], dim=1)
    return TASK.losses(model(inputs, None, None), ids)[:, batch["start"] :].mean(dim=1)


@dataclass
class Bench:
    """The model, its heads, and the texts that it is judged on."""

    model: SmolLM2
    found: FoundHeads = field(init=False)

    def __post_init__(self):
        self.found = heads.of(self.model, torch.arange(1, 41)[None])

    @cached_property
    def judged(self) -> dict[str, Batch]:
        """The texts that plans are judged on."""
        return {kind: texts(self.model, kind, JUDGED_SEED, JUDGED_TEXTS, JUDGED_PACKAGES) for kind in STARTS}

    def calibration(self, seed: int, kinds: Sequence[str] = ("prose", "copying")) -> list[Batch]:
        """The texts that measures see."""
        return [texts(self.model, kind, seed, CALIBRATION_TEXTS, CALIBRATION_PACKAGES) for kind in kinds]

    def losses(self, plan: heads.plans.Plan | None = None, **how) -> dict[str, Tensor]:
        """Each judged text's loss, by kind, without a plan's heads."""
        with torch.no_grad(), self.found.ablated(plan or {}, **how):
            return {kind: loss(self.model, batch) for kind, batch in self.judged.items()}

    def scores(self, measure: str, seed: int, *kinds: str) -> Tensor:
        """What a measure says of each head, (30, 9), kept by name."""
        name = " ".join(["scores", measure, str(seed), *kinds])
        batches = self.calibration(seed, *[kinds] * bool(kinds))
        compute = {"outside": self._outside}.get(measure, partial(self._gradients, measure))
        return torch.tensor(kept(name, lambda: {"heads": compute(batches)})["heads"])

    def _gradients(self, by: str, batches: list[Batch]) -> Tensor:
        meaning = STREAM if by == "stream" else by
        return self.found.gate_gradient(loss, batches, by=meaning, signed=False).table

    def _outside(self, batches: list[Batch]) -> Tensor:
        """The attention weight on keys that streaming leaves out."""
        away = ~STREAM.allowed(TOKENS, TOKENS)
        parts = []
        for batch in batches:
            maps = self.found.maps_of(partial(loss, self.model, batch))
            parts.append(torch.stack([(weights * away).sum(dim=-1).mean(dim=(0, 2)) for (weights,) in maps.values()]))
        return torch.stack(parts).mean(dim=0)

    def plan(self, scores: Tensor, number: int, unit: int = GROUP) -> dict[str, list[int]]:
        """The least important units, of so many neighbouring heads each; the first of equals."""
        units = scores.flatten().unflatten(0, (-1, unit)).sum(dim=1).argsort(stable=True)[:number]
        chosen = (units[:, None] * unit + torch.arange(unit)).flatten().tolist()
        by_layer: dict[str, list[int]] = {}
        names = list(self.found.layers)
        for head in sorted(chosen):
            by_layer.setdefault(names[head // 9], []).append(head % 9)
        return by_layer


def rises(bench: Bench, plans: Sequence[heads.plans.Plan], **how) -> dict[str, Tensor]:
    """How much each judged text's loss rises, by kind: (plans, texts)."""
    whole = {kind: torch.tensor(row) for kind, row in kept("whole", partial(whole_losses, bench)).items()}
    found = [bench.losses(plan, **how) for plan in plans]
    return {kind: torch.stack([one[kind] - whole[kind] for one in found]) for kind in whole}


def whole_losses(bench: Bench) -> dict:
    return bench.losses()


def induction_groups(bench: Bench) -> dict:
    """The first ten groups by the gradient towards streaming, with both calibration seeds."""
    orders = [bench.scores("stream", seed).flatten().unflatten(0, (-1, GROUP)).sum(dim=1) for seed in (1, 2)]
    first = [order.argsort(descending=True, stable=True)[:10].tolist() for order in orders]
    return {"first": [[divmod(group, 3) for group in groups] for groups in first]}


def tried(
    bench: Bench, measure: str = "stream", seed: int = 1, kinds: Sequence[str] = (), number: int = 60,
    unit: int = GROUP, by: str = "stream", draws: int = 0,
) -> dict:  # fmt: skip
    """A plan's rises, and those of its layer-matched draws."""
    scores = bench.scores(measure, seed, *kinds)
    plan = bench.plan(scores, number, unit)
    how: dict = {"by": STREAM if by == "stream" else by}
    if by == "mean":
        how = {"instead": bench.found.means(loss, bench.calibration(seed))}
    others = bench.found.fair_draws(plan, draws, seed=seed) if draws else []
    found = rises(bench, [plan, *others], **how)
    return {"plan": plan, **{kind: {"plan": each[0], "draws": each[1:]} for kind, each in found.items()}}


def at_random(bench: Bench, number: int, unit: int, draws: int) -> dict:
    """The rises of random units of all layers."""
    pick = torch.Generator().manual_seed(3)
    plans = [
        bench.plan(torch.rand(270 // unit, generator=pick).repeat_interleave(unit), number, unit) for _ in range(draws)
    ]
    found = rises(bench, plans, by=STREAM)
    return {kind: {"draws": each} for kind, each in found.items()}


def circuit_spared(bench: Bench, draws: int = 5) -> dict:
    """The rises of layer-matched draws of the base that leave the induction groups as they are: asked by a review."""
    plan, first = bench.plan(bench.scores("stream", 1), 60), ((17, 1), (18, 2))
    names = list(bench.found.layers)
    kept_full = [(names[layer], GROUP * group) for layer, group in first]
    others = (
        one
        for one in bench.found.fair_draws(plan, 100, seed=1)
        if not any(head in one.get(layer, ()) for layer, head in kept_full)
    )
    found = rises(bench, [one for one, _ in zip(others, range(draws), strict=False)], by=STREAM)
    return {kind: {"draws": each} for kind, each in found.items()}


PARTS: dict[str, Callable[[Bench], dict]] = {
    "whole": whole_losses,
    "induction groups": induction_groups,
    "base": partial(tried, draws=5),
    "prose alone": partial(tried, kinds=("prose",)),
    "seed 2": partial(tried, seed=2, draws=3),
    "18 groups": partial(tried, number=18, draws=3),
    "18 groups, means": partial(tried, measure="mean", number=18, by="mean", draws=3),
    "18 groups, zeros": partial(tried, measure="zero", number=18, by="zero", draws=3),
    "copying alone": partial(tried, kinds=("copying",)),
    "code alone": partial(tried, kinds=("code",)),
    "towards zeros": partial(tried, measure="zero"),
    "towards means": partial(tried, measure="mean"),
    "weight outside": partial(tried, measure="outside"),
    "random groups": partial(at_random, number=60, unit=GROUP, draws=3),
    "heads": partial(tried, number=180, unit=1, draws=3),
    "layers": partial(tried, number=20, unit=9),
    "random layers": partial(at_random, number=20, unit=9, draws=3),
    "all": partial(tried, number=GROUPS),
    "72 groups": partial(tried, number=72, draws=3),
    "30 groups": partial(tried, number=30),
    "45 groups": partial(tried, number=45),
    "81 groups": partial(tried, number=81),
    "circuit spared": circuit_spared,
}

if __name__ == "__main__":
    main(sys.argv[1:])
