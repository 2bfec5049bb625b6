"""One layer, live: its own projections, cut into more or fewer heads."""

from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_lib.attention import MultiHeadAttention
from mha_lib.pictures.heat_maps import draw_maps, masked_keys
from mha_lib.pictures.live import LivePicture, Place, checked_lengths, choice, pack, refuse
from mha_lib.pictures.picture import Canvas

MOST_HEADS = 25


class LayerExplorer(LivePicture):
    """Every head of a layer on given queries and keys; the browser cuts, masks and weighs.

    For learners who want to see what ``num_heads`` and ``valid_lens`` do, on a layer of their own.

    Args:
        layer: its W_q and W_k are used; it is left as it is.
        queries, keys: (batch, num_queries, query_size) and (batch, num_keys, key_size).
        first: first values of the attributes.

    Attributes:
        num_heads: one of the divisors of the layer's size, up to 25.
        valid_lens: how many keys count, for each example; a tensor will do, it reads as a list.
        ones: whether all queries and keys are ones instead, as in the example of d2l 11.5.2.
        example, head, cell: what is shown in large; cells are counted row by row.

    Raises:
        ValueError: queries or keys have a shape that does not fit.
    """

    module = "layer_explorer"

    num_heads, valid_lens = choice(traitlets.Int()), choice(traitlets.Any())
    ones = choice(traitlets.Bool(False))
    example = Place(lambda self: len(self.tensors[0]))
    head = Place(lambda self: self.num_heads)
    cell = Place(lambda self: self.tensors[0].shape[1] * self.tensors[1].shape[1])

    def __init__(self, layer: MultiHeadAttention, queries: Tensor, keys: Tensor, **first: Any):
        for name, X, projection in (("queries", queries, layer.W_q), ("keys", keys, layer.W_k)):
            if X.dim() != 3 or X.shape[-1] != projection.in_features or not X.numel():
                size = projection.in_features
                raise ValueError(f"{name} must have shape (batch, tokens, {size}), got {tuple(X.shape)}")
        if len(queries) != len(keys):
            raise ValueError(f"queries and keys must have one batch size, got {len(queries)} and {len(keys)}")
        self.layer, self.tensors = layer, (queries.detach(), keys.detach())
        tensors = {"W_q": layer.W_q.weight, "W_k": layer.W_k.weight, "queries": queries, "keys": keys}
        biases = {"b_q": layer.W_q.bias, "b_k": layer.W_k.bias}
        self.num_hiddens, num_keys = layer.W_q.out_features, keys.shape[1]
        most = min(self.num_hiddens, MOST_HEADS)
        self.divisors = [heads for heads in range(1, most + 1) if self.num_hiddens % heads == 0]
        data = pack(tensors | {name: bias for name, bias in biases.items() if bias is not None}) | {
            "num_hiddens": self.num_hiddens,
            "divisors": self.divisors,
            "sizes": [len(queries), queries.shape[1], num_keys],
        }
        first = {"num_heads": layer.num_heads, "valid_lens": [num_keys] * len(keys), **first}
        super().__init__("Heads of one layer", data, **first)

    @classmethod
    def random(cls, num_hiddens: int = 100, num_heads: int = 5, *, seed: int = 0, **first: Any) -> "LayerExplorer":
        """A fresh layer on random numbers, two examples of 4 queries and 6 keys: the sizes of d2l 11.5.2."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            layer = MultiHeadAttention(
                num_hiddens, num_heads, query_size=num_hiddens, key_size=num_hiddens, value_size=num_hiddens
            )
            queries, keys = torch.randn(2, 4, num_hiddens), torch.randn(2, 6, num_hiddens)
        return cls(layer, queries, keys, **{"valid_lens": [3, 2], **first})

    @traitlets.validate("num_heads")
    def _validate_num_heads(self, proposal):
        if proposal["value"] not in self.divisors:
            refuse("num_heads", f"one of {self.divisors}, which divide {self.num_hiddens}", proposal["value"])
        return proposal["value"]

    @traitlets.validate("valid_lens")
    def _validate_valid_lens(self, proposal):
        batch, num_keys = self.tensors[1].shape[:2]
        return checked_lengths(proposal["value"], batch, num_keys, f"{batch} whole numbers from 0 to {num_keys}")

    @traitlets.observe("num_heads")
    def _stay_among_the_heads(self, change):
        self.head = min(self.head, change["new"] - 1)

    def weights(self) -> Tensor:
        """What torch makes of the present state: (batch, num_heads, num_queries, num_keys)."""
        queries, keys = (torch.ones_like(X) if self.ones else X for X in self.tensors)
        layer = MultiHeadAttention(
            self.num_hiddens, self.num_heads, bias=self.layer.W_q.bias is not None,
            query_size=queries.shape[-1], key_size=keys.shape[-1], value_size=keys.shape[-1],
        )  # fmt: skip
        layer.W_q, layer.W_k = self.layer.W_q, self.layer.W_k
        with torch.no_grad():
            layer(queries, keys, keys, torch.tensor(self.valid_lens))
        return layer.attention_weights

    def draw(self) -> tuple[Canvas, str, str]:
        weights = self.weights()
        batch, num_heads, num_queries, num_keys = weights.shape
        titles = [f"example {example}, head {head}" for example in range(batch) for head in range(num_heads)]
        masks = [masked_keys(torch.tensor(length), num_queries, num_keys) for length in self.valid_lens]
        all_masks = [mask for mask in masks for _ in range(num_heads)]
        columns, side = next(c for c in (5, 4, 3, 2, 1) if num_heads % c == 0), 26 * max(num_queries, num_keys)
        canvas = draw_maps(list(weights.flatten(0, 1)), titles, columns, side, all_masks, numbers=True)
        largest = ", ".join(f"{weight:.2f}" for weight in weights.amax(dim=(0, 2, 3)))
        state = f"{self.num_heads} heads of {self.num_hiddens // self.num_heads} features, valid_lens {self.valid_lens}"
        inputs = ", all inputs ones" if self.ones else ""
        alt = f"{state}{inputs}. Largest weight of each head: {largest}. Hatched keys are masked."
        return canvas, alt, f"{state}. Hatched keys are masked: they get no weight."
