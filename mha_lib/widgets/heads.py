"""Explore attention weights head by head: of a trained model, or of a layer made on the spot."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from ipywidgets import IntSlider, SelectionSlider, ValueWidget
from torch import Tensor

from mha_lib.attention import MultiHeadAttention, arguments, valid_keys
from mha_lib.pictures.heat_maps import labels
from mha_lib.widgets.explorer import Explorer, bound, choice, offer, slider
from mha_lib.widgets.heads_picture import AVERAGE, View, head_name, paint_heads, read_heads
from mha_lib.widgets.sheet import Sheet


def head_explorer(
    layers: Mapping[str, Tensor] | Sequence[Tensor],
    tokens: Sequence[str] | Callable[[int, int], tuple[Sequence[str], Sequence[str]]] | None = None,
    *,
    valid_lens: Tensor | Sequence[Tensor | None] | None = None,
    untrained: Sequence[Tensor] | None = None,
) -> Explorer:
    """Every head of a model: choose layer, example and head; compare two heads, or trained with random weights.

    Args:
        layers: attention weights, one tensor (batch, num_heads, num_queries, num_keys) a layer, perhaps by name.
        tokens: the tokens' names: one list for queries and keys alike, or a function of the numbers of layer and
            example that returns (names of queries, names of keys); left out, their numbers.
        valid_lens: None, (batch,) or (batch, num_queries), or a list of these, one a layer; keys beyond are hatched.
        untrained: weights of the same shapes as ``layers``, from the model before training.

    Raises:
        TypeError, ValueError: the weights, the names or the lengths do not fit together.
    """
    names, layers = names_of_layers(layers)
    batch_size = check_layers(layers, untrained)
    masks = masks_of_layers(layers, valid_lens)

    def view(weights: str = "trained", layer: str = names[0], example: int = 0) -> View:
        number = names.index(layer)
        shown = (layers if weights == "trained" else untrained)[number][example].detach()
        queries, keys = names_of_tokens(tokens, number, example, *shown.shape[1:])
        where = f"{layer.capitalize()}, example {example}" + (f", {weights} weights" if untrained is not None else "")
        return View(shown, masks[number][example], queries, keys, where)

    controls = {}
    if untrained is not None:
        controls["weights"] = choice("weights", ["trained", "random"], tooltip="after or before training")
    if len(names) > 1:
        controls["layer"] = slider(SelectionSlider, "layer", options=names, tooltip="which attention layer")
    if batch_size > 1:
        controls["example"] = slider(IntSlider, "example", max=batch_size - 1, tooltip="which one of the batch")
    return explorer_of(view, controls)


def layer_explorer(num_hiddens: int = 100, *, num_queries: int = 4, num_keys: int = 6) -> Explorer:
    """The heads of one untrained layer: choose how many, what goes in, and how many keys are valid.

    The sizes left out are those of the example in d2l 11.5.2; its input, all ones, is one of the choices.

    Args:
        num_hiddens: size of the layer and of its inputs; the number of heads is one of its divisors, up to 25.
        num_queries, num_keys: tokens on each side; the batch has two examples.

    Raises:
        TypeError, ValueError: a size is not a positive integer.
    """
    for name, size in (("num_hiddens", num_hiddens), ("num_queries", num_queries), ("num_keys", num_keys)):
        arguments.check_size(name, size)
    divisors = [heads for heads in range(1, min(num_hiddens, 25) + 1) if num_hiddens % heads == 0]

    def view(num_heads: int, numbers: str, seed: int, example: int, length_0: int, length_1: int) -> View:
        valid_lens = torch.tensor([length_0, length_1])
        weights = untrained_weights(num_hiddens, num_heads, num_queries, num_keys, numbers, seed, valid_lens)
        masked = masks_of_examples(valid_lens, 2, num_queries, num_keys)
        queries, keys = ([str(number) for number in range(count)] for count in (num_queries, num_keys))
        length = valid_lens[example].item()
        where = f"{numbers.capitalize()}, seed {seed}, example {example}: {length} of {num_keys} keys valid"
        return View(weights[example], masked[example], queries, keys, where)

    def limit(controls: Mapping[str, ValueWidget]) -> None:
        for example in range(2):
            controls[f"length_{example}"].disabled = controls["example"].value != example

    controls = {
        "num_heads": slider(SelectionSlider, "num_heads", options=divisors, tooltip=f"divides {num_hiddens}"),
        "numbers": choice("input", ["random numbers", "all ones"], tooltip="what the tokens hold"),
        "seed": slider(IntSlider, "seed", max=20, tooltip="of the layer and of the random input"),
        "example": slider(IntSlider, "example", max=1, tooltip="which one of the batch"),
        "length_0": slider(IntSlider, "valid_lens[0]", max=num_keys, tooltip="keys that example 0 may read"),
        "length_1": slider(IntSlider, "valid_lens[1]", max=num_keys, tooltip="keys that example 1 may read"),
    }
    controls["num_heads"].value = max(heads for heads in divisors if heads <= 5)
    controls["length_0"].value, controls["length_1"].value = (num_keys + 1) // 2, num_keys // 3
    return explorer_of(view, controls, limit)


def explorer_of(
    view: Callable[..., View],
    controls: Mapping[str, ValueWidget],
    limit: Callable[[Mapping[str, ValueWidget]], None] = lambda controls: None,
) -> Explorer:
    """All heads small; one of them large, beside another one or their average.

    Args:
        view: takes the values of ``controls`` by name; returns what to show.
        controls: all controls but those of the heads, which are added.
        limit: as for ``Explorer``.
    """

    def paint(head: int, compare: str, **values: Any) -> tuple[Sheet, str]:
        shown = view(**values)
        return paint_heads(shown, head, compare), read_heads(shown, head, compare)

    def limit_heads(every: Mapping[str, ValueWidget]) -> None:
        limit(every)
        num_heads = len(view(**{name: every[name].value for name in controls}).weights)
        bound(every["head"], num_heads - 1)
        offer(every["compare"], [AVERAGE, *(head_name(head) for head in range(num_heads))])

    heads = {
        "head": slider(IntSlider, "head", tooltip="the head that is shown large"),
        "compare": choice("compare with", [AVERAGE], tooltip="what is shown beside it"),
    }
    return Explorer("Attention weights, head by head", {**controls, **heads}, paint, limit_heads)


def names_of_layers(layers: Mapping[str, Tensor] | Sequence[Tensor]) -> tuple[list[str], list[Tensor]]:
    """The layers' names, and their weights."""
    if isinstance(layers, Mapping):
        return list(layers), list(layers.values())
    return [f"layer {number}" for number in range(1, len(layers) + 1)], list(layers)


def check_layers(layers: Sequence[Tensor], untrained: Sequence[Tensor] | None) -> int:
    """The batch size that all layers share."""
    shapes = [tuple(weights.shape) for weights in layers]
    if not shapes or any(len(shape) != 4 or 0 in shape for shape in shapes):
        raise ValueError(
            "layers must be attention weights (batch, num_heads, num_queries, num_keys), one tensor a layer, "
            f"got shapes {shapes}"
        )
    if len({shape[0] for shape in shapes}) > 1:
        raise ValueError(f"layers must all have the same batch size, got shapes {shapes}")
    if untrained is not None and [tuple(weights.shape) for weights in untrained] != shapes:
        raise ValueError(
            f"untrained must have the shapes of layers, {shapes}, got {[tuple(weights.shape) for weights in untrained]}"
        )
    return shapes[0][0]


def names_of_tokens(
    tokens: Sequence[str] | Callable | None, layer: int, example: int, num_queries: int, num_keys: int
) -> tuple[Sequence[str], Sequence[str]]:
    """The names of the queries and of the keys."""
    queries, keys = tokens(layer, example) if callable(tokens) else (tokens, tokens)
    return (
        labels("tokens (queries)", queries, num_queries, [str(number) for number in range(num_queries)]),
        labels("tokens (keys)", keys, num_keys, [str(number) for number in range(num_keys)]),
    )


def masks_of_layers(layers: Sequence[Tensor], valid_lens: Tensor | Sequence[Tensor | None] | None) -> list[Tensor]:
    """Which keys are masked in each layer: bool, (batch, num_queries, num_keys)."""
    by_layer = [valid_lens] * len(layers) if valid_lens is None or isinstance(valid_lens, Tensor) else valid_lens
    if len(by_layer) != len(layers):
        raise ValueError(f"valid_lens must have an entry for each of {len(layers)} layers, got {len(by_layer)}")
    shapes = [(len(weights), *weights.shape[2:]) for weights in layers]
    return [masks_of_examples(lengths, *shape) for lengths, shape in zip(by_layer, shapes, strict=True)]


def masks_of_examples(valid_lens: Tensor | None, batch_size: int, num_queries: int, num_keys: int) -> Tensor:
    """Which keys are masked: bool, (batch_size, num_queries, num_keys)."""
    if valid_lens is None:
        return torch.zeros(batch_size, num_queries, num_keys, dtype=torch.bool)
    arguments.check_valid_lens(valid_lens, batch_size, num_queries, num_keys)
    return ~valid_keys(valid_lens, num_keys).expand(batch_size, num_queries, num_keys)


def untrained_weights(
    num_hiddens: int, num_heads: int, num_queries: int, num_keys: int, numbers: str, seed: int, valid_lens: Tensor
) -> Tensor:
    """Attention weights (2, num_heads, num_queries, num_keys) of a fresh layer; the seed alone decides them."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        sizes = dict.fromkeys(("query_size", "key_size", "value_size"), num_hiddens)
        layer = MultiHeadAttention(num_hiddens, num_heads, **sizes)
        make = torch.ones if numbers == "all ones" else torch.randn
        queries, keys = make(2, num_queries, num_hiddens), make(2, num_keys, num_hiddens)
        layer(queries, keys, keys, valid_lens)
        return layer.attention_weights
