"""A small task and a model drawn by a seed: four questions, twelve heads, and a layer that is hardly used."""

import random

import torch
from torch import Tensor

from mha_course.capstone.work import Work
from mha_course.models import Batch, Encoder, finetune
from mha_course.models.tasks import Lookups
from mha_course.models.threads import single_thread
from mha_course.models.training import seeded

NUM_ROWS = 128  # to calibrate on, and as many to test on
LEFT_OUT = 0.15  # share of the training steps without the attention of layer 1, which is hardly used after that


class DrawnTask(Lookups):
    """Define a task of four questions about rows of 8 to 12 tokens, drawn by a seed.

    A token is a value (0 to 9), a key (each once in a row) and a wanted key. The questions, as in ``questions``: the
    value so many positions back, for two distances (before the first position, the first value); the value at one
    position; the value whose key is wanted. One layer can answer all of them, with four heads.
    """

    name = "drawn"
    steps = 500
    num_answers = 10

    def __init__(self, seed: int):
        draw = random.Random(f"questions {seed}")
        self.back, self.position = sorted(draw.sample(range(1, 5), 2)), draw.randint(1, 4)
        self.questions = [*(f"{k} back" for k in self.back), f"position {self.position}", "wanted key"]

    def rows(self, number: int, generator: torch.Generator) -> Batch:
        """Return rows drawn with ``generator``; padding has answers, too, which ``valid_lens`` says not to count."""
        shape, at = (number, self.length), torch.arange(self.length)
        lens = torch.randint(8, self.length + 1, (number, 1), generator=generator)
        values = torch.randint(10, shape, generator=generator)
        # Keys beyond the length are larger than all others, so that the wanted ones are those of valid tokens.
        keys = torch.rand(shape, generator=generator).masked_fill(at >= lens, 2).argsort(dim=1).argsort(dim=1)
        wanted = (torch.rand(shape, generator=generator) * lens).long()
        places = [
            *((at - k).clamp(min=0).expand(shape) for k in self.back),
            torch.full(shape, self.position - 1),
            keys.argsort(dim=1).gather(1, wanted),
        ]
        answers = torch.stack([values.gather(1, place) for place in places], dim=2)
        ids = torch.stack([values, 10 + keys, 10 + self.length + wanted], dim=2)
        return Batch(ids, lens[:, 0], answers)


def without_layer_1(model: Encoder, arguments: tuple) -> tuple:
    """Leave the attention of layer 1 out of a share of the calls in training: a forward pre-hook of an ``Encoder``.

    Source: Fan, Grave, Joulin 2020, "Reducing Transformer Depth on Demand with Structured Dropout" (LayerDrop).
    """
    if not model.training or torch.rand(()) >= LEFT_OUT:
        return arguments
    inputs, valid_lens = arguments
    head_mask = torch.ones(len(model.attentions), model.attentions[0].num_heads)
    head_mask[1] = 0
    return inputs, valid_lens, head_mask


def drawn_model(seed: int) -> Work:
    """Return the small model of a seed, trained here within 20 seconds, with 128 rows to calibrate on and 128 to test.

    Its task is a ``DrawnTask``. The losses of its rows are in nats an answer, padding left out.
    """
    task = DrawnTask(seed)
    with seeded(seed):
        model = task.model()
    with model.register_forward_pre_hook(without_layer_1):
        finetune(model, task, seed, progress=f"training your model, seed {seed}")
    rows = unseen_rows(seed, 2 * NUM_ROWS)

    def losses(model: Encoder, rows: Batch) -> Tensor:
        assert rows.valid_lens is not None
        with single_thread():
            each = task.losses(model(rows.inputs, rows.valid_lens), rows.targets).mean(dim=2)
        valid = torch.arange(each.shape[1]) < rows.valid_lens[:, None]
        return (each * valid).sum(dim=1) / rows.valid_lens

    name = f"seed {seed}: {', '.join(task.questions)}"
    return Work(name, model, rows[:NUM_ROWS], rows[NUM_ROWS:], losses, lambda r: (r.inputs, r.valid_lens), task)


def unseen_rows(seed: int, number: int, task_of: int | None = None) -> Batch:
    """Return rows that no training step sees, of the task of ``seed``, or of that of ``task_of``, drawn by ``seed``."""
    task = DrawnTask(seed if task_of is None else task_of)
    return task.rows(number, torch.Generator().manual_seed(2**31 + seed))
