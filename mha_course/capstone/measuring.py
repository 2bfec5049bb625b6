"""The right pipeline that measures heads: four plain functions, of which ``faults`` makes copies with one fault."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_course.models import Batch, Transformer
from mha_lib import heads

Plan = dict[str, list[int]]
Means = dict[str, Tensor]


def split(rows: Batch, number: int, seed: int = 0) -> tuple[Batch, Batch]:
    """Return ``number`` rows to measure on, drawn with ``seed``, and the others to test on."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[:number]], rows[order[number:]]


def no_padding(rows: Batch) -> Tensor:
    """Return which tokens of these rows are not padding: bool (rows, n)."""
    b, n = rows.targets.shape[:2]
    lens = torch.full((b,), n) if rows.valid_lens is None else rows.valid_lens
    return torch.arange(n) < lens[:, None]


def means(model: Transformer, rows: Batch) -> Means:
    """Return each head's mean output over the tokens of these rows, without padding: by layer (heads, head size)."""
    outputs = heads.of(model, rows.inputs, rows.valid_lens).outputs()
    valid = no_padding(rows)
    return {name: X.transpose(1, 2)[valid].mean(dim=0) for name, X in outputs.items()}  # (b, h, n, d) -> (b, n, h, d)


def losses(model: Transformer, rows: Batch, off: Plan, instead: Means | None) -> Tensor:
    """Return the mean loss of each row over its tokens that are not padding, in nats an answer: (rows,).

    The model is in evaluation mode. The heads in ``off``, {layer: [heads]}, give their means ``instead``, or zeros
    where it is None; in the next call they are on again.
    """
    found = heads.of(model, rows.inputs, rows.valid_lens)
    gates = {name: torch.ones(layer.num_heads) for name, layer in found.layers.items()}
    for name, numbers in off.items():
        gates[name][list(numbers)] = 0
    left = {name: instead[name][None, None, None] for name in off} if instead else None
    model.eval()
    with torch.no_grad(), found.gates(gates, left):
        output = model(rows.inputs, rows.valid_lens)
    logits = output.unflatten(-1, (rows.targets.shape[-1], -1)).movedim(-1, 1)  # (b, answers, n, questions)
    each = F.cross_entropy(logits, rows.targets.clamp(min=0), reduction="none").mean(dim=-1)
    valid = no_padding(rows)
    return (each * valid).sum(dim=1) / valid.sum(dim=1)


def cut(model: Transformer, rows: Batch, off: Plan, instead: Means) -> Transformer:
    """Return a copy of the model without the heads in ``off``, which computes what ``losses`` computes without them.

    At least one head of each layer stays. The means of the others stay in the bias of the output projection. ``rows``
    are an example to find the heads with.
    """
    found = heads.of(model, rows.inputs, rows.valid_lens)
    smaller, _ = found.remove(off)
    for name, numbers in off.items():
        left = torch.zeros_like(instead[name])
        left[list(numbers)] = instead[name][list(numbers)]
        mixing = found.layers[name].mixing
        weight, bias = model.get_parameter(f"{mixing}.weight"), smaller.get_parameter(f"{mixing}.bias")
        smaller.get_submodule(mixing).bias = nn.Parameter((bias + weight @ left.flatten()).detach())
    return smaller
