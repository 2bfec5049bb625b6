"""Train the models that ship with the library, and write them with their figures: ``make weights``.

Run twice on one machine, the second run changes nothing; on another machine the last bits of the weights may differ.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save
from torch import nn

import mha_course
from mha_course.models.heads_needed import FILE, SEEDS, train_heads_needed
from mha_course.models.induction import held_out_repeats
from mha_course.models.neighbours import STEPS as NEIGHBOURS_STEPS
from mha_course.models.positional import SCHEMES, STEPS_TO_SHIP, right_letters, train_positional
from mha_course.models.positional import weights_name as places_name
from mha_course.models.recurrent import STEPS, RecurrentEncoderDecoder, fit_recurrent, right_words, weights_name
from mha_course.models.ring_lab import RING, RING_SEED, RING_STEPS, right_without, train_ring_lab
from mha_course.models.tasks import TASKS
from mha_course.models.training import fit

FOLDER = Path(mha_course.__file__).with_name("models") / "weights"
SEED = 0
LONGER = "right words without attention after three times as many steps"


def main() -> None:
    """Train, write and say how good each model is."""
    FOLDER.mkdir(exist_ok=True)
    figures = {}
    for name, task in TASKS.items():
        model = fit(task, SEED)
        right = {"accuracy": round(task.accuracy(model), 4), "exact_match": round(task.exact_match(model), 4)}
        figures[name] = ship(name, model, task.steps, right)
    for attends in (False, True):
        model, name = fit_recurrent(attends, SEED), weights_name(attends)
        figures[name] = ship(name, model, STEPS, {"right_words": right_words_by_length(model)})
    for kind in SCHEMES:
        model, name = train_positional(kind, SEED, STEPS_TO_SHIP), places_name(kind)
        right = round(right_letters(model, held_out_repeats()).float().mean().item(), 4)
        figures[name] = ship(name, model, STEPS_TO_SHIP, {"right_letters": right})
    (FOLDER / FILE).write_bytes(save(train_heads_needed()))
    figures["neighbours"] = {"seeds": list(SEEDS), "steps": NEIGHBOURS_STEPS, "torch": torch.__version__.split("+")[0]}
    print("neighbours", figures["neighbours"])
    model = train_ring_lab()
    right = {"accuracy": round(right_without(model, []).mean().item(), 4)}
    figures[RING] = ship(RING, model, RING_STEPS, right, seed=RING_SEED)
    # What notebook 02 says of more training; this model does not ship.
    figures[LONGER] = right_words_by_length(fit_recurrent(attends=False, seed=SEED, steps=3 * STEPS))
    print(LONGER, figures[LONGER])
    (FOLDER / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def right_words_by_length(model: RecurrentEncoderDecoder) -> dict[str, float]:
    """Share of right words for some numbers of letters."""
    return {str(length): round(right_words(model, length), 4) for length in (4, 8, 12, 16)}


def ship(name: str, model: nn.Module, steps: int, right: dict, seed: int = SEED) -> dict:
    """Write a model's weights; return and print how it was trained, its size, and how often it is ``right``."""
    (FOLDER / f"{name}.safetensors").write_bytes(save(model.state_dict()))
    figures = {
        "seed": seed,
        "steps": steps,
        "torch": torch.__version__.split("+")[0],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **right,
    }
    print(name, figures)
    return figures


if __name__ == "__main__":
    main()
