"""What was seen of attention, as a layer: how many heads, of what size, and the module that mixes them.

In comments letters as in ``watching``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, takewhile

import torch
from torch import Tensor, nn

from mha_lib.attention.pooling import for_each_head
from mha_lib.heads.watching import Attended

Layout = Callable[[Tensor], Tensor]
CHANGED = "a norm, a gate or another order lies between"
NOT_THE_BATCH = "the first axis is not the batch"


@dataclass(frozen=True)
class FoundLayer:
    """Describe an attention layer found in a model: name, kind, number and size of heads, and its output projection.

    Attributes:
        name: the smallest module that has both the attention and the module that mixes its heads; where it has several
            of these, the module that mixes them.
        kind: "self", or "cross" where there were other numbers of keys than of queries: those of another sequence, or
            some tokens of the same one, such as global tokens.
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


@torch.enable_grad()  # what lies between is asked of the gradient
def described(one: Attended, names: Mapping[nn.Module, str]) -> FoundLayer | str:
    """Return a ``FoundLayer`` for a recorded attention call, or as text why its heads could not be identified."""
    if one.is_torchs_layer:
        name, head_size = names[one.module], one.result.shape[-1] // one.num_heads
        kind = "self" if one.result.shape[:-1] == one.values.shape[:-1] else "cross"
        return FoundLayer(name, kind, one.num_heads, one.num_heads, head_size, mixing_name(one, names))
    mixing = _mixing_module(one)
    if isinstance(mixing, str):
        return mixing.format(modules=", ".join(names[module] for module, _ in one.fed))
    module, X = mixing
    if one.result.dim() not in (3, 4) or one.result.dim() != one.values.dim():
        return f"attention gives {tuple(one.result.shape)}, which has no axis of heads"
    reason = CHANGED
    for arrange, values in _layouts(one, len(X)):
        result = arrange(one.result)
        num_heads, num_queries, head_size = result.shape[1:]
        side_by_side = result.transpose(1, 2)  # (b, h, q, d) -> (b, q, h, d)
        if X.shape[-1] != num_heads * head_size or X.numel() != result.numel():
            continue
        if X.dim() == 3 and X.shape[:2] == (num_queries, len(result)) != (len(result), num_queries):
            reason = NOT_THE_BATCH
        elif torch.equal(X.reshape(-1), side_by_side.reshape(-1)):
            reason = ""
        else:
            reason = _between(one, X, arrange)
        if reason in ("", CHANGED) and num_queries < 2:
            return "the example has one query alone: give one of two tokens or more"
        if not reason:
            kind = "self" if values.shape[-2] == num_queries else "cross"
            name = common_name(names[one.module], names[module])
            return FoundLayer(name, kind, num_heads, _num_different(values), head_size, names[module])
    received = (
        f"{names[module]} receives {tuple(X.shape)}, which is not the heads {tuple(one.result.shape)} side by side"
    )
    return f"{received}: {reason}"


def mixing_name(one: Attended, names: Mapping[nn.Module, str]) -> str:
    """Return the module name of the output projection (W_o) that follows a recorded attention call; "?" if unknown."""
    if one.is_torchs_layer:
        return f"{names[one.module]}.out_proj".lstrip(".")
    mixing = _mixing_module(one)
    return "?" if isinstance(mixing, str) else names[mixing[0]]


def _num_different(values: Tensor) -> int:
    """How many key-value heads are in values (b, g, k, d): neighbours are one where all have as many equal copies."""
    new = [i for i in range(values.shape[1]) if not i or not torch.equal(values[:, i], values[:, i - 1])]
    copies = {end - start for start, end in pairwise([*new, values.shape[1]])}
    return len(new) if len(copies) == 1 else values.shape[1]


def _between(one: Attended, received: Tensor, arrange: Layout) -> str:
    """What lies between heads and what is received, in the order (b, q, h, d).

    It is "" where each head is alone multiplied by what does not depend on it. Then the tensor is linear in what
    attention gave, head h reaches its own slice and no other, and so does an example: all are asked of the gradient.
    """
    if not received.requires_grad or one.output is None:
        return CHANGED
    X = received.reshape(arrange(one.result).transpose(1, 2).shape)
    num_heads = X.shape[2]
    probe = torch.randn(X.shape, generator=torch.Generator().manual_seed(0)).to(X)
    if received.dim() == 3 and len(received) == len(X) > 1:
        gradient = torch.autograd.grad((X[0] * probe[0]).sum(), one.output, retain_graph=True, allow_unused=True)[0]
        if gradient is not None and arrange(gradient.reshape(one.result.shape))[1:].any():
            return NOT_THE_BATCH
    for head in range(num_heads):
        part = (X[:, :, head] * probe[:, :, head]).sum()
        gradient = torch.autograd.grad(part, one.output, retain_graph=True, allow_unused=True)[0]
        if gradient is None:
            return "its slices do not depend on single heads"
        gradient = arrange(gradient.reshape(one.result.shape))  # (b, h, q, d)
        if gradient[:, torch.arange(num_heads, device=gradient.device) != head].any():
            return "what lies between, such as a norm over all heads, mixes them"
        size = (gradient * arrange(one.result)).abs().sum() + part.abs()
        if ((gradient * arrange(one.result)).sum() - part).abs() > 1e-3 * size:
            return "a norm of each head, or another map that is not linear, lies between"
    return ""


def _layouts(one: Attended, batch_size: int) -> list[tuple[Layout, Tensor]]:
    """What makes (b, h, q, d) of the result, and values as (b, g, k, d), in each way in which they may be meant."""
    values, weights = one.values, one.weights
    arrange: Layout = _as_it_is
    if one.result.dim() == 3:  # (b · h, q, d) -> (b, h, q, d)
        if len(one.result) % batch_size:
            return []
        arrange = partial(torch.unflatten, dim=0, sizes=(batch_size, -1))
        values, weights = arrange(values), None if weights is None else arrange(weights)
    if one.primitive != "softmax" or weights is None:
        return [(arrange, values)]
    swapped = lambda Z: arrange(Z).transpose(1, 2)  # noqa: E731
    ways = [(way, V) for way in (arrange, swapped) for V in (values, values.transpose(1, 2))]
    fitting = []
    for way, V in ways:
        R = way(one.result)
        fits = (
            weights.shape[:-1] == R.shape[:-1]
            and weights.shape[-1] == V.shape[-2]
            and not weights.shape[1] % V.shape[1]
        )
        if fits and _gives(weights, V, R):
            fitting.append((way, V))
    return fitting


def _as_it_is(Z: Tensor) -> Tensor:
    return Z


def _gives(weights: Tensor, values: Tensor, result: Tensor) -> bool:
    """Whether these are the values whose averages are the result."""
    averages = weights.to(values) @ for_each_head(values, weights)
    return torch.allclose(averages, result, rtol=1e-2, atol=1e-2 * float(result.abs().max()))


def _mixing_module(one: Attended) -> tuple[nn.Module, Tensor] | str:
    """The module that mixes the heads and what it received; or why there is none."""
    fed = [(module, X) for module, X in one.fed if module is not one.module]
    with_matrix = [m for m, _ in fed if any(p.dim() > 1 for p in m.parameters(recurse=False))]
    fed_modules = {m for m, _ in fed}
    leaves = [m for m, _ in fed if m not in one.passed_on and fed_modules & set(m.modules()) == {m}]
    mixing = set(with_matrix or leaves)  # a quantised map has no parameter
    if not mixing:
        return "its heads reach no module with a matrix: the output projection must be called as a module"
    whole = [(module, X) for module, X in fed if mixing <= set(module.modules())]  # an adapter with the map inside
    return whole[-1] if whole else "its heads reach several modules: {modules}"


def text_table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the rows as lines, with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def common_name(first: str, second: str) -> str:
    """Return the common prefix of two dotted module names, such as "a.b" of "a.b.c" and "a.b.d"."""
    pairs = zip(first.split("."), second.split("."), strict=False)
    return ".".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
