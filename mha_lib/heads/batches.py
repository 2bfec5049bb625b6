"""A loss over batches: each pass is checked, counted and named in errors."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[..., Tensor]  # of the model, or of the model and a batch: a mean, or a number for each example, (b,)
Batches = Iterable[Any]  # of tensors, dictionaries or tuples


@dataclass(frozen=True)
class Run:
    """Hold one pass of a model: what is called, on which batch, and how many examples that has, if it is known."""

    call: Callable[[], object]
    number: int
    batch: Any = None
    num_examples: int | None = None

    def value(self, where: str = "") -> Tensor:
        """Return the loss, () or (b,).

        Raises:
            ValueError: it has another shape, or is NaN.
        """
        value = torch.as_tensor(self.call())
        if value.dim() > 1:
            raise ValueError(f"loss must be a mean, or a number for each example, (batch,); got {tuple(value.shape)}")
        if value.isnan().any():
            raise ValueError(f"loss is NaN on batch {self.number}{where}")
        return value


def runs(
    model: nn.Module, loss: Loss | None, batches: Batches | None, example: tuple[tuple, dict[str, Any]]
) -> Iterator[Run]:
    """Yield a pass for each batch, on the model's device; without a loss, the model is called with the batch itself.

    Raises:
        ValueError: ``batches`` is empty, a single batch, or can be used only once.
    """
    if batches is None:
        yield Run((lambda: model(*example[0], **example[1])) if loss is None else (lambda: loss(model)), 0)
        return
    if isinstance(batches, Tensor | Mapping):
        raise ValueError(f"batches must be several batches, got one {type(batches).__name__}: write [batch]")
    if isinstance(batches, Iterator):
        raise ValueError(
            f"batches must be what can be gone through again, such as a list or a DataLoader; this "
            f"{type(batches).__name__} is used up after one pass"
        )
    device, number = next((X.device for X in model.parameters()), torch.device("cpu")), -1
    for number, given in enumerate(batches):
        batch = _moved(given, device)
        sizes = [len(X) for X in tensors_in(batch) if X.dim()]
        yield Run(_call(model, loss, batch), number, batch, sizes[0] if sizes else None)
    if number < 0:
        raise ValueError("batches is empty: there is nothing to measure on")


def _call(model: nn.Module, loss: Loss | None, batch: Any) -> Callable[[], object]:
    if loss is not None:
        return lambda: loss(model, batch)
    if isinstance(batch, Mapping):
        return lambda: model(**batch)
    return (lambda: model(*batch)) if isinstance(batch, tuple | list) else (lambda: model(batch))


def _moved(batch: Any, device: torch.device) -> Any:
    if hasattr(batch, "to"):  # a tensor, or what a tokenizer gives
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: _moved(part, device) for name, part in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [_moved(part, device) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


def tensors_in(part: object) -> Iterator[Tensor]:
    """Yield the tensors in a batch or a model's output: itself, or of a list, tuple, dictionary or cache."""
    if isinstance(part, Tensor):
        yield part
    elif hasattr(part, "layers"):  # a cache of transformers, which may keep states beside keys and values
        yield from tensors_in([vars(layer) for layer in part.layers])
    elif isinstance(part, Iterable) and not isinstance(part, str | bytes | Iterator):
        for inner in part.values() if isinstance(part, Mapping) else part:
            yield from tensors_in(inner)
