"""Watch one forward pass of any model: which results are those of attention, and which modules they are passed to.

Attention is a softmax whose result is multiplied with something that is not a parameter,
``F.scaled_dot_product_attention``, or ``F.multi_head_attention_forward``. Its result is followed from call to call, by
identity, to the modules that receive it. No name of an attribute or of an architecture is used.

In comments b is the batch, h the number of heads, q and k the numbers of queries and keys, d the head size.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.modules import module as every_module
from torch.overrides import TorchFunctionMode

from mha_lib.attention.pooling import for_each_head, softmax_of_allowed

PRODUCTS = {"matmul", "__matmul__", "__rmatmul__", "bmm", "baddbmm", "einsum"}
MAPS = {"addmm", "mm", "conv1d", "conv2d"}


@dataclass(eq=False)
class Attended:
    """Record one attention call in a model: the calling module, the function, the value tensor, and the result.

    Attributes:
        module: the innermost module of the model that was running.
        primitive: the name of the function that computed it.
        values: what was averaged.
        result: what attention gave, (b, h, q, d), or (b · h, q, d); for torch's own layer its output.
        output: the same as the function gave it, perhaps with other axes.
        weights: the attention weights, with the axes of ``result``; None where they were not asked for.
        num_heads: of torch's own layer, which says it; else 0.
        fed: the modules that received the result, each with the tensor.
        passed_on: those of them that gave it on, such as dropout.
    """

    module: nn.Module
    primitive: str
    values: Tensor
    result: Tensor
    weights: Tensor | None = None
    num_heads: int = 0
    output: Tensor | None = None
    fed: list[tuple[nn.Module, Tensor]] = field(default_factory=list)
    passed_on: list[nn.Module] = field(default_factory=list)

    @property
    def is_torchs_layer(self) -> bool:
        return self.primitive == "multi_head_attention_forward"


class Watch(TorchFunctionMode):
    """Record every attention call of a model inside a ``with`` block in the list ``seen``, leaving results unchanged.

    Args:
        with_weights: whether to compute the attention weights, which a fused call never writes down.
        with_gradients: whether what modules receive can be differentiated with respect to what attention gave.
    """

    def __init__(self, model: nn.Module, with_weights: bool = False, with_gradients: bool = False):
        super().__init__()
        self.model, self.with_weights, self.with_gradients = model, with_weights, with_gradients
        self.seen: list[Attended] = []
        self._inside = set(model.modules())
        self._stack: list[nn.Module] = []
        self._weights: dict[int, Tensor] = {}  # by the id of a tensor: the softmax that it comes from
        self._results: dict[int, Attended] = {}  # by the id of a tensor: the attention that it comes from
        self._alive: list[Tensor] = []  # so that no other tensor gets an id again
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self):
        self._hooks = [
            every_module.register_module_forward_pre_hook(self._begin),
            every_module.register_module_forward_hook(self._end, always_call=True),
        ]
        return super().__enter__()

    def __exit__(self, *error):
        for hook in self._hooks:
            hook.remove()
        return super().__exit__(*error)

    def _begin(self, module: nn.Module, inputs: tuple) -> None:
        if module not in self._inside:
            return
        self._stack.append(module)
        for X in inputs:
            if isinstance(X, Tensor) and id(X) in self._results:
                self._results[id(X)].fed.append((module, X))

    def _end(self, module: nn.Module, inputs: tuple, output: object) -> None:
        if self._stack and self._stack[-1] is module:
            self._stack.pop()
        if isinstance(output, Tensor) and id(output) in self._results:
            self._results[id(output)].passed_on.append(module)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        output = func(*args, **kwargs)
        if name == "multi_head_attention_forward":
            self._see_torchs_layer(func, args, kwargs, output[0])
        elif name == "scaled_dot_product_attention":
            self._see_fused(args, kwargs, output)
        elif isinstance(output, Tensor):
            given = [X for X in (*args, *kwargs.values()) if isinstance(X, Tensor)]
            self._follow(name, given, output)
        return output

    def _follow(self, name: str, given: list[Tensor], output: Tensor) -> None:
        """Mark an output that is a softmax, the product of one with values, or either of them in another shape."""
        if name in ("softmax", "_softmax") and output.dim() >= 3:
            self._mark(self._weights, output, output)
            return
        weights = next((X for X in given if id(X) in self._weights), None)
        if weights is not None and name in PRODUCTS:
            others = [X for X in given if X is not weights and not isinstance(X, nn.Parameter)]
            if others and not isinstance(given[0], nn.Parameter):
                self._see_product(weights, others[-1], output)
        elif weights is not None:
            if output.numel() == weights.numel() or output.shape[:-1] == weights.shape[:-1]:  # dropout; without a sink
                self._mark(self._weights, output, self._weights[id(weights)])
        elif "linear" not in name and name not in PRODUCTS | MAPS:  # a quantised map is a linear_dynamic
            source = next((X for X in given if id(X) in self._results), None)
            if source is not None and output.numel() == source.numel():
                self._mark(self._results, output, self._results[id(source)])

    def _see_product(self, weights: Tensor, values: Tensor, output: Tensor) -> None:
        softmax = self._weights[id(weights)]
        if softmax.dim() == 4 and weights.dim() == output.dim() == values.dim() == 3:  # (b · h, q, k) for the product
            heads = softmax.shape[:2]
            weights, values = weights.unflatten(0, heads), values.unflatten(0, (-1, heads[1]))
            one = Attended(self._here(), "softmax", values, output.unflatten(0, heads), weights)
        else:
            one = Attended(self._here(), "softmax", values, output, weights)
        self._see(one, output)

    def _see_fused(self, args: tuple, kwargs: dict, output: Tensor) -> None:
        values = args[2] if len(args) > 2 else kwargs["value"]
        weights = weights_of_fused(*args, **kwargs) if self.with_weights else None
        self._see(Attended(self._here(), "scaled_dot_product_attention", values, output, weights), output)

    def _see_torchs_layer(self, func: Callable, args: tuple, kwargs: Mapping, output: Tensor) -> None:
        weights = None
        if self.with_weights:
            asked = {**kwargs, "need_weights": True, "average_attn_weights": False}
            weights = func(*args, **asked)[1]
            if weights.isnan().any():  # torch gives NaN in a row without a key, whatever came in
                zeros = map(torch.zeros_like, args[:3])
                weights = weights.masked_fill(func(*zeros, *args[3:], **asked)[1].isnan(), 0.0)
        self.seen.append(Attended(self._here(), func.__name__, args[2], output, weights, num_heads=args[4]))

    def _see(self, one: Attended, output: Tensor) -> None:
        one.output = output
        if self.with_gradients and not output.requires_grad:
            output.requires_grad_()
        self.seen.append(one)
        self._mark(self._results, output, one)

    def _mark(self, table: dict, tensor: Tensor, source: object) -> None:
        self._alive.append(tensor)
        table[id(tensor)] = source

    def _here(self) -> nn.Module:
        return self._stack[-1] if self._stack else self.model


def weights_of_fused(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Return the attention weights (b, h, q, k) that ``F.scaled_dot_product_attention`` uses for these arguments.

    A row without a key is zero.
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query.float() @ for_each_head(key, query).float().mT * scale
    if is_causal:  # aligned at the first key
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    return softmax_of_allowed(scores, attn_mask).to(query.dtype)
