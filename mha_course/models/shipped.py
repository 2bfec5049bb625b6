"""Trained models that ship with the library: there at once, and with the same numbers on every machine.

``make weights`` trains them anew and writes them. Beside them lies ``figures.json``, which says how each was trained
and how good it is.
"""

import json
from collections.abc import Callable
from importlib.resources import files
from typing import TypeVar

from safetensors.torch import load
from torch import Tensor, nn

from mha_course.models.tasks import Task, find_task
from mha_course.models.training import seeded
from mha_course.models.transformer import Transformer

COMMAND = "make weights"
Model = TypeVar("Model", bound=nn.Module)


def shipped_model(task: Task | str) -> Transformer:
    """Load the trained model for a task, such as "digits", that ships with this library.

    >>> [block.attention.num_heads for block in shipped_model("lookups").blocks.values()]
    [6, 6]

    Args:
        task: a task of this library, or its name: "digits", "lookups" or "dates".

    The model is in eval mode and has memory of its own: changing it changes no later one.

    Raises:
        ValueError: the library has no such task, or the weights do not fit the model's code.
        FileNotFoundError: this copy of the library lacks the weights; the message says how to get them.
    """
    task = find_task(task if isinstance(task, str) else task.name)
    return shipped(task.name, task.model)


def shipped_figures(task: Task | str) -> dict:
    """Return the accuracy, seed and number of training steps of the shipped model for a task, in a dict.

    >>> sorted(shipped_figures("lookups"))
    ['accuracy', 'exact_match', 'parameters', 'seed', 'steps', 'torch']

    It holds ``seed``, ``steps`` and ``torch`` (its version), as ``fit`` had them; ``parameters``, their number; and
    ``accuracy`` and ``exact_match`` on the task's held-out data, between 0 and 1. Errors as in ``shipped_model``.
    """
    task = find_task(task if isinstance(task, str) else task.name)
    return json.loads(package_data("models/weights/figures.json", COMMAND))[task.name]


def shipped(name: str, make: Callable[[], Model]) -> Model:
    """Return a model made by ``make``, in eval mode, with the weights that ship with this library under ``name``.

    Raises:
        FileNotFoundError: this copy of the library lacks the weights; the message says how to get them.
        ValueError: they do not fit the model's code.
    """
    weights = load(package_data(f"models/weights/{name}.safetensors", COMMAND))
    with seeded(0):  # the caller's random numbers stay as they were
        model = make()
    return filled(model, weights, name)


def filled(model: Model, weights: dict[str, Tensor], what: str, *, assign: bool = False) -> Model:
    """Load ``weights`` into ``model`` and return it in eval mode; raise a ValueError if names or shapes differ.

    Args:
        weights: exactly those that the model's code has a place for.
        what: whose weights they are, for the message.
        assign: whether the model keeps these tensors themselves, as one made on the meta device has to.

    Raises:
        ValueError: the message names the first few that are missing, left over or of another shape.
    """
    needed = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    wrong = [name for name in needed | given if needed.get(name) != given.get(name)]
    if wrong:
        examples = "; ".join(f"{name} is {given.get(name)}, needed {needed.get(name)}" for name in wrong[:3])
        raise ValueError(f"the weights of {what} do not fit its model, in {len(wrong)} places: {examples}")
    model.load_state_dict(weights, assign=assign)
    return model.eval()


def package_data(path: str, made_by: str) -> bytes:
    """Return the bytes of a data file in this package; if it is missing, raise an error that says how to make it.

    Args:
        path: where it lies below ``mha_course``, such as "models/weights/digits.safetensors".
        made_by: the command that makes the file, for the error.

    Raises:
        FileNotFoundError: this copy of the library lacks the file; the message says how to get it.
    """
    file = files("mha_course").joinpath(*path.split("/"))
    if not file.is_file():
        raise FileNotFoundError(
            f"mha_course/{path} is missing from this copy of mha_course. Install mha_course again, or make the "
            f"file: run `{made_by}` in its repository"
        )
    return file.read_bytes()
