"""The layer explorer on a trained layer with names of tokens, as several rooms' tests need it."""

import torch

from mha_course import pictures
from mha_course.models.shipped import shipped_model
from mha_course.models.tasks import find_task


def layer_of_lookups(**first):
    """Layer 0 of the model of the look-ups on two held-out sequences, the second with 8 valid keys."""
    model, task = shipped_model("lookups"), find_task("lookups")
    pairs = [task.token_labels(task.held_out, example)[0] for example in range(2)]
    names = dict(zip(("query_names", "key_names"), zip(*pairs, strict=True), strict=True))
    with torch.no_grad():
        X = model.embedding(task.held_out.inputs[:2])
    accuracies = {heads: 0.5 + heads / 100 for heads in (1, 2, 3, 4, 6, 8, 12, 16, 24)}
    first = {"valid_lens": [12, 8], "example": 1, "head": min(5, first.get("num_heads", 6) - 1), "cell": 51, **first}
    return pictures.LayerExplorer(model.attentions[0], X, X, accuracies=accuracies, **names, **first)
