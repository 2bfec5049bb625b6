"""Small Transformers and the tasks they learn, for which heads are measured; the course has their training."""

from typing import TYPE_CHECKING

from mha_lib import old_names
from mha_lib.models.tasks import TASKS, Batch, Task, find_task, to_images, to_patches
from mha_lib.models.transformer import Encoder, EncoderDecoder, Transformer

__all__ = ["TASKS", "Batch", "Encoder", "EncoderDecoder", "Task", "Transformer", "find_task", "to_images", "to_patches"]

if not TYPE_CHECKING:  # names that have left this room are found until the next release
    __getattr__ = old_names.behind(__name__)


def __dir__() -> list[str]:
    return __all__
