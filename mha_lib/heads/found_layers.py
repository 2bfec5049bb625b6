"""What was seen of attention, as a layer: how many heads, of what size, and the module that mixes them.

In comments letters as in ``watching``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor, nn

from mha_lib.attention.pooling import for_each_head
from mha_lib.heads.watching import Attended


@dataclass(frozen=True)
class FoundLayer:
    """Attention of a model, as it was found.

    Attributes:
        name: the smallest module that has both the attention and the module that mixes its heads; where it has several
            of these, the module that mixes them.
        kind: "self", or "cross" where there were other numbers of keys than of queries.
        num_heads, num_key_value_heads, head_size: neighbouring heads share the values of one key-value head.
        mixing: the name of the module that mixes the heads, W_o in the course.
        uses: how often the layer is computed in one pass of the model.
    """

    name: str
    kind: str
    num_heads: int
    num_key_value_heads: int
    head_size: int
    mixing: str
    uses: int = 1

    def group(self, number: int) -> list[int]:
        """Return the heads that share this key-value head."""
        shared = self.num_heads // self.num_key_value_heads
        return list(range(number * shared, (number + 1) * shared))


def described(one: Attended, names: Mapping[nn.Module, str]) -> FoundLayer | str:
    """Return the layer's description, or why it is not understood."""
    if one.is_torchs_layer:
        name, head_size = names[one.module], one.result.shape[-1] // one.num_heads
        kind = "self" if one.result.shape[:-1] == one.values.shape[:-1] else "cross"
        return FoundLayer(name, kind, one.num_heads, one.num_heads, head_size, f"{name}.out_proj".lstrip("."))
    mixing = _mixing_module(one)
    if isinstance(mixing, str):
        return mixing.format(modules=", ".join(names[module] for module, _ in one.fed))
    module, X = mixing
    if one.result.dim() not in (3, 4) or one.result.dim() != one.values.dim():
        return f"attention gives {tuple(one.result.shape)}, which has no axis of heads"
    for result, values in _layouts(one, len(X)):
        num_heads, num_queries, head_size = result.shape[1:]
        side_by_side = result.transpose(1, 2)  # (b, h, q, d) -> (b, q, h, d)
        if X.shape[-1] == num_heads * head_size and torch.equal(X.reshape(-1), side_by_side.reshape(-1)):
            if num_queries < 2:
                return "the example has one query alone: give one of two tokens or more"
            kind = "self" if values.shape[-2] == num_queries else "cross"
            num_values = 1 + sum(not torch.equal(values[:, i], values[:, i - 1]) for i in range(1, values.shape[1]))
            name = _common(names[one.module], names[module])
            return FoundLayer(name, kind, num_heads, num_values, head_size, names[module])
    return (
        f"{names[module]} receives {tuple(X.shape)}, which is not the heads {tuple(one.result.shape)} side by side: "
        "a norm, a gate or another order lies between"
    )


def _layouts(one: Attended, batch_size: int) -> list[tuple[Tensor, Tensor]]:
    """Result and values as (b, h, q, d) and (b, g, k, d), in each way in which they may be meant."""
    result, values, weights = one.result, one.values, one.weights
    if result.dim() == 3:  # (b · h, q, d) -> (b, h, q, d)
        if len(result) % batch_size:
            return []
        result, values = (Z.unflatten(0, (batch_size, -1)) for Z in (result, values))
        weights = None if weights is None else weights.unflatten(0, (batch_size, -1))
    if one.primitive != "softmax" or weights is None:
        return [(result, values)]
    ways = [(R, V) for R in (result, result.transpose(1, 2)) for V in (values, values.transpose(1, 2))]
    fitting = [(R, V) for R, V in ways if weights.shape[:-1] == R.shape[:-1] and weights.shape[-1] == V.shape[-2]]
    return [(R, V) for R, V in fitting if weights.shape[1] % V.shape[1] == 0 and _gives(weights, V, R)]


def _gives(weights: Tensor, values: Tensor, result: Tensor) -> bool:
    """Whether these are the values whose averages are the result."""
    averages = weights.to(values) @ for_each_head(values, weights)
    return torch.allclose(averages, result, rtol=1e-2, atol=1e-2 * float(result.abs().max()))


def _mixing_module(one: Attended) -> tuple[nn.Module, Tensor] | str:
    """The module that mixes the heads and what it received; or why there is none."""
    fed = [(module, X) for module, X in one.fed if module is not one.module]
    with_matrix = [m for m, _ in fed if any(p.dim() > 1 for p in m.parameters(recurse=False))]
    leaves = [m for m, _ in fed if not list(m.children()) and m not in one.passed_on]
    mixing = set(with_matrix or leaves)  # a quantised map has no parameter
    if not mixing:
        return "its heads reach no module with a matrix: the output projection must be called as a module"
    whole = [(module, X) for module, X in fed if mixing <= set(module.modules())]  # an adapter with the map inside
    return whole[-1] if whole else "its heads reach several modules: {modules}"


def _common(first: str, second: str) -> str:
    """The name of the smallest module that holds both."""
    pairs = zip(first.split("."), second.split("."), strict=False)
    return ".".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
