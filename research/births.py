"""Do heads come into being with every seed? ``python -m research.births``; about three minutes of CPU time.

For each of eight seeds: two layers, one layer, and one layer whose keys are made from the token before. Writes
births.json into the library, where notebook 11 reads it, and the same as a table, births.md. A seed that stands in
births.json is not run again: delete the file to measure anew.
"""

import json
import sys
import time
from collections.abc import Mapping

from benchmarks.report import markdown
from mha_course.models.induction import NUM_STEPS, BirthRun, repeat_loss, train_on_repeats
from research.kept import kept_file, rounded, write_compact, write_report

SEEDS = range(8)
RESULTS = kept_file("births")
HEADS = [(layer, head) for layer in (0, 1) for head in (0, 1)]
FALLING, FALLEN = 3.3, 0.8
SHORT_STEPS = 800  # for the layer whose keys are made from the token before
HEAD = ("seed", "loss on the repeat", f"below {FALLING} / {FALLEN} at step", "previous token, layer 0",
        "induction, layer 1", "loss without 0.0, 0.1, 1.0, 1.1", "without both of layer 1", "one layer",
        f"one layer, keys from before (below {FALLING} at step)", "CPU s")  # fmt: skip


def main() -> None:
    """Measure the seeds that are missing, keeping each as it comes, and write the report."""
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for seed in map(str, SEEDS):
        if seed not in results:
            print("seed", seed, file=sys.stderr)
            results[seed] = rounded(measure(int(seed)), 3)
            write_compact(RESULTS, results)
    write_report(__file__, report(results))


def measure(seed: int) -> dict:
    """What comes of one seed."""
    start = time.process_time()
    run = train_on_repeats(seed, progress=False)
    seconds = time.process_time() - start
    model = run.model_at(NUM_STEPS)
    one_layer = train_on_repeats(seed, [0, NUM_STEPS], num_layers=1, num_heads=4, progress=False)
    from_before = train_on_repeats(
        seed, range(0, SHORT_STEPS + 1, 50), num_layers=1, num_heads=4, keys_from_before=True, progress=False
    )
    return {
        "steps": run.steps,
        "losses": run.losses,
        "losses_elsewhere": run.losses_elsewhere,
        "falling": first_below(run, FALLING),
        "fallen": first_below(run, FALLEN),
        "previous_token": run.previous_token[:, 0],
        "induction": run.induction[:, 1],
        "without": {f"{layer}.{head}": repeat_loss(model, [(layer, head)]) for layer, head in HEADS},
        "without_layer_1": repeat_loss(model, [(1, 0), (1, 1)]),
        "one_layer": one_layer.losses[-1],
        "keys_from_before": from_before.losses[-1],
        "keys_from_before_falling": first_below(from_before, FALLING),
        "cpu_seconds": round(seconds, 1),
    }


def first_below(run: BirthRun, bound: float) -> int | None:
    """The first kept step at which the loss on the repeat is below a bound."""
    return next((step for step, loss in zip(run.steps, run.losses, strict=True) if loss < bound), None)


def report(results: Mapping[str, dict]) -> str:
    """All seeds as a table in Markdown."""
    body = [
        [
            seed,
            f"{result['losses'][-1]:.2f}",
            f"{result['falling']} / {result['fallen']}",
            in_words(result["previous_token"][-1]),
            in_words(result["induction"][-1]),
            in_words(result["without"].values()),
            f"{result['without_layer_1']:.2f}",
            f"{result['one_layer']:.2f}",
            f"{result['keys_from_before']:.2f} ({result['keys_from_before_falling']})",
            f"{result['cpu_seconds']:.1f}",
        ]
        for seed, result in results.items()
    ]
    return f"# Heads being born, {len(results)} seeds\n\n{EXPLANATION}\n\n{markdown(HEAD, body)}\n"


def in_words(numbers) -> str:
    return ", ".join(f"{number:.2f}" for number in numbers)


EXPLANATION = """\
Two attention-only layers of two heads learn to go on with a piece that they have seen before in the same row
(`mha_course.models.induction`). Losses are in nats, over the letters that are predictable; a guess among 64 letters
costs 4.16. *Previous token*: mean weight of each head on the token before. *Induction*: mean weight on the token that
holds the right next letter. *Without 0.1*: head 1 of layer 0 switched off. *One layer*: of four heads, ordinary or with
keys made from the token before, the latter after 800 steps. CPU seconds are those
of the two layers, one thread, with all that is kept on the way."""


if __name__ == "__main__":
    main()
