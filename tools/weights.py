"""Train the models that ship with the library, and write them with their figures: ``make weights``.

Run twice on one machine, the second run changes nothing; on another machine the last bits of the weights may differ.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save

import mha_lib
from mha_lib.models.tasks import TASKS
from mha_lib.models.training import fit

FOLDER = Path(mha_lib.__file__).with_name("models") / "weights"
SEED = 0


def main() -> None:
    """Train, write and say how good each model is."""
    FOLDER.mkdir(exist_ok=True)
    figures = {}
    for name, task in TASKS.items():
        model = fit(task, SEED)
        (FOLDER / f"{name}.safetensors").write_bytes(save(model.state_dict()))
        figures[name] = {
            "seed": SEED,
            "steps": task.steps,
            "torch": torch.__version__.split("+")[0],
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "accuracy": round(task.accuracy(model), 4),
            "exact_match": round(task.exact_match(model), 4),
        }
        print(name, figures[name])
    (FOLDER / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
