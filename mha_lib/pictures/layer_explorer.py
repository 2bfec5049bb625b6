"""One layer, live: its own projections, cut into more or fewer heads."""

from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_lib.attention import MultiHeadAttention, valid_keys
from mha_lib.pictures.live import LivePicture, check_place, pack, refuse
from mha_lib.pictures.still import Canvas, Still

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
        traitlets.TraitError: a choice cannot be; the message names it.
        ValueError: queries or keys have a shape that does not fit.
    """

    module, choices = "layer_explorer", ("num_heads", "valid_lens", "ones", "example", "head", "cell")

    parameters, shapes = traitlets.Bytes().tag(sync=True), traitlets.List[Any]().tag(sync=True)
    num_hiddens, divisors = traitlets.Int().tag(sync=True), traitlets.List[Any]().tag(sync=True)
    sizes = traitlets.List[Any]().tag(sync=True)
    num_heads, valid_lens = traitlets.Int().tag(sync=True), traitlets.Any().tag(sync=True)
    ones = traitlets.Bool(False).tag(sync=True)
    example, head = traitlets.Int(0).tag(sync=True), traitlets.Int(0).tag(sync=True)
    cell = traitlets.Int(0).tag(sync=True)

    def __init__(self, layer: MultiHeadAttention, queries: Tensor, keys: Tensor, **first: object):
        for name, X, projection in (("queries", queries, layer.W_q), ("keys", keys, layer.W_k)):
            if X.dim() != 3 or X.shape[-1] != projection.in_features or not X.numel():
                size = projection.in_features
                raise ValueError(f"{name} must have shape (batch, tokens, {size}), got {tuple(X.shape)}")
        if len(queries) != len(keys):
            raise ValueError(f"queries and keys must have one batch size, got {len(queries)} and {len(keys)}")
        self.layer, self.tensors = layer, (queries.detach(), keys.detach())
        tensors = {"W_q": layer.W_q.weight, "W_k": layer.W_k.weight, "queries": queries, "keys": keys}
        biases = {"b_q": layer.W_q.bias, "b_k": layer.W_k.bias}
        size, num_keys = layer.W_q.out_features, keys.shape[1]
        super().__init__(
            title="Heads of one layer",
            **pack(tensors | {name: bias for name, bias in biases.items() if bias is not None}),
            num_hiddens=size,
            divisors=[heads for heads in range(1, min(size, MOST_HEADS) + 1) if size % heads == 0],
            sizes=[len(queries), queries.shape[1], num_keys],
            **{"num_heads": layer.num_heads, "valid_lens": [num_keys] * len(keys), **first},
        )

    @classmethod
    def random(cls, num_hiddens: int = 100, num_heads: int = 5, *, seed: int = 0, **first: object) -> "LayerExplorer":
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
        batch, _, num_keys = self.sizes
        value = proposal["value"]
        lengths = value.tolist() if isinstance(value, Tensor) else value
        is_list = isinstance(lengths, list | tuple) and len(lengths) == batch
        if not is_list or any(type(length) is not int or not 0 <= length <= num_keys for length in lengths):
            refuse("valid_lens", f"{batch} whole numbers from 0 to {num_keys}", value)
        return list(lengths)

    @traitlets.validate("example", "head", "cell")
    def _validate_place(self, proposal):
        name, (batch, num_queries, num_keys) = proposal["trait"].name, self.sizes
        counts = {"example": batch, "head": self.num_heads, "cell": num_queries * num_keys}
        return check_place(name, proposal["value"], counts[name])

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

    def still(self) -> Still:
        weights, (_, num_queries, num_keys) = self.weights(), self.sizes
        masked = ~valid_keys(torch.tensor(self.valid_lens), num_keys)
        columns, cell = min(self.num_heads, 5), 22
        width, height = num_keys * cell + 16, num_queries * cell + 30
        rows = -(-self.num_heads // columns)
        canvas = Canvas(columns * width, len(weights) * rows * height + 40)
        for example, heads in enumerate(weights.numpy()):
            hidden = masked[example].expand(num_queries, num_keys).numpy()
            for head, own in enumerate(heads):
                x, y = head % columns * width, (example * rows + head // columns) * height
                canvas.text(x, y + 4, f"example {example}, head {head}", size=11)
                canvas.heat_map(x, y + 22, cell, own, masked=hidden, numbers=True)
        canvas.scale(0, len(weights) * rows * height + 8, 160, {0: "0", 0.5: ".5", 1: "1"})
        largest = ", ".join(f"{weight:.2f}" for weight in weights.amax(dim=(0, 2, 3)))
        state = f"{self.num_heads} heads of {self.num_hiddens // self.num_heads} features, valid_lens {self.valid_lens}"
        inputs = ", all inputs ones" if self.ones else ""
        alt = f"{self.title}: {state}{inputs}. Largest weight of each head: {largest}. Hatched keys are masked."
        return Still(canvas.png(), canvas.width, alt, f"{state}. Hatched keys are masked: they get no weight.")
