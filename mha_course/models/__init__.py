"""Small Transformers and an older, recurrent model: the tasks they learn, their training, and those that ship."""

from mha_course.models.grouped import to_grouped
from mha_course.models.hugging_face import load_transformers, smollm2_of_transformers
from mha_course.models.induction import AttentionOnly, BirthRun, repeat_loss, train_on_repeats
from mha_course.models.kept_layer import KeptLayer, kept_layer
from mha_course.models.neighbours import NeighboursRun, train_neighbours
from mha_course.models.one_head import OneHeadRun, train_one_head
from mha_course.models.recurrent import RecurrentEncoderDecoder, fit_recurrent, right_words, shipped_recurrent
from mha_course.models.ring_lab import ring_lab
from mha_course.models.shipped import shipped_figures, shipped_model
from mha_course.models.tasks import TASKS, Batch, Task, find_task, to_images, to_patches
from mha_course.models.torch_blocks import torch_decoder_layer, torch_encoder_layer
from mha_course.models.training import finetune, fit, trained
from mha_course.models.transformer import Encoder, EncoderDecoder, Transformer
from mha_course.models.with_layer import with_layer

__all__ = [
    "TASKS", "AttentionOnly", "Batch", "BirthRun", "Encoder", "EncoderDecoder", "KeptLayer", "NeighboursRun",
    "OneHeadRun", "RecurrentEncoderDecoder", "Task", "Transformer", "find_task", "finetune", "fit", "fit_recurrent",
    "kept_layer", "load_transformers", "repeat_loss", "right_words", "ring_lab", "shipped_figures", "shipped_model",
    "shipped_recurrent", "smollm2_of_transformers", "to_grouped", "to_images", "to_patches", "torch_decoder_layer",
    "torch_encoder_layer", "train_neighbours", "train_on_repeats", "train_one_head", "trained", "with_layer",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
