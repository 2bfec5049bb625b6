"""What the heads of any model are worth, by a loss of your own: numbers for each layer by name, (num_heads,), float64.

They are on the CPU, wherever the model is: its layers may be on several devices, and not every device has float64. A
loss is a function of the model that gives a number, or one for each example, (batch,). As everywhere in the library
higher means more important.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from mha_lib.heads.ablation import evaluating
from mha_lib.heads.coalitions import permute_within_blocks, ranks
from mha_lib.models.progress_bar import progress_bar

if TYPE_CHECKING:
    from mha_lib.heads.any_model import FoundHeads

__all__ = ["costs_of_each", "gradients_at_one", "losses_without"]

Loss = Callable[[nn.Module], Tensor]


def costs_of_each(found: "FoundHeads", loss: Loss, by: str, label: str | None) -> dict[str, Tensor]:
    """Return, by layer, how much the model's ``loss`` rises when each head alone is ablated (``by`` says how)."""
    substitutes = found.substitutes(by)
    costs = {name: torch.zeros(layer.num_heads, dtype=torch.float64) for name, layer in found.layers.items()}
    each = [(name, head) for name, layer in found.layers.items() for head in range(layer.num_heads)]
    with torch.no_grad(), evaluating(found.model):
        whole = _loss_at(found, loss, {}, {})
        for name, head in each if label is None else progress_bar(each, len(each), label):
            gates = 1 - torch.eye(found.layers[name].num_heads)[head]
            costs[name][head] = _loss_at(found, loss, {name: gates}, substitutes) - whole
    return costs


def gradients_at_one(found: "FoundHeads", loss: Loss, by: str, signed: bool) -> dict[str, Tensor]:
    """Return, by layer, minus the gradient of the loss with respect to each head's mask value, with all heads on."""
    substitutes = found.substitutes(by)
    shape: tuple[int, ...] = ()
    if not signed:
        with torch.no_grad(), evaluating(found.model):
            shape = tuple(torch.as_tensor(loss(found.model)).shape)
        if len(shape) != 1:
            raise ValueError(
                f"with signed=False, loss must give a number for each example, (batch,), got shape {shape}"
            )
    gates = {
        name: torch.ones(*shape, layer.num_heads, dtype=torch.float64).requires_grad_()
        for name, layer in found.layers.items()
    }
    with torch.enable_grad(), evaluating(found.model), found.gates(gates, substitutes):
        value = loss(found.model)
        if not isinstance(value, Tensor) or not value.requires_grad:
            raise ValueError("loss must give a tensor with a gradient: without torch.no_grad(), .item() or .detach()")
        total = value.mean() if signed else value.sum()
        found_gradients = torch.autograd.grad(total, list(gates.values()), allow_unused=True, materialize_grads=True)
    gradients = [-gradient.double() for gradient in found_gradients]
    return dict(zip(gates, gradients if signed else [each.abs().mean(dim=0) for each in gradients], strict=True))


def losses_without(
    found: "FoundHeads", loss: Loss, importance: Mapping[str, Tensor], numbers: Sequence[int], by: str,
    label: str | None, seed: int,
) -> Tensor:  # fmt: skip
    """Return the model's loss with the n least important heads ablated, for each n in ``numbers``."""
    shapes = {name: tuple(row.shape) for name, row in importance.items()}
    wrong = [name for name, layer in found.layers.items() if shapes.get(name) != (layer.num_heads,)]
    if wrong or len(importance) != len(found.layers):
        raise ValueError(f"importance must have (num_heads,) for each layer, {', '.join(found.layers)}")
    rows = [importance[name] for name in found.layers]
    rank = ranks(torch.cat(rows), seed).split([len(row) for row in rows])
    num_heads = sum(map(len, rows))
    if impossible := [number for number in numbers if number not in range(num_heads + 1)]:
        raise ValueError(f"numbers must be from 0 to {num_heads}, all heads, got {impossible}")
    substitutes = found.substitutes(by)
    steps: Iterable[int] = numbers if label is None else progress_bar(numbers, len(numbers), label)
    losses = []
    with torch.no_grad(), evaluating(found.model):
        for number in steps:
            gates = {name: (row <= num_heads - number).float() for name, row in zip(found.layers, rank, strict=True)}
            losses.append(_loss_at(found, loss, gates, substitutes))
    return torch.tensor(losses, dtype=torch.float64)


def permute_within_layers(importance: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Shuffle the importance of heads at random within each layer, as a random baseline; return a new dictionary.

    >>> permuted = permute_within_layers({"0": torch.tensor([1.0, 2.0]), "1": torch.tensor([3.0])}, seed=0)
    >>> {name: row.sort().values.tolist() for name, row in permuted.items()}
    {'0': [1.0, 2.0], '1': [3.0]}

    It is ``permute_within_blocks`` for layers that may have different numbers of heads.
    """
    padded = pad_sequence(list(importance.values()), batch_first=True, padding_value=torch.nan)
    return {name: row[~row.isnan()] for name, row in zip(importance, permute_within_blocks(padded, seed), strict=True)}


def _loss_at(found: "FoundHeads", loss: Loss, gates: Mapping[str, Tensor], substitutes: Mapping[str, Tensor]) -> float:
    with found.gates(gates, substitutes):
        return float(torch.as_tensor(loss(found.model)).double().mean())
