"""Change a model's heads on their way to the module that mixes them, and restore the model afterwards."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def before(module: nn.Module, change: Callable[[Tensor], Tensor]) -> AbstractContextManager:
    """Apply ``change`` to the first input of every call of ``module`` inside a ``with`` block (a forward pre-hook)."""
    return module.register_forward_pre_hook(lambda _, inputs: (change(inputs[0]), *inputs[1:]))


@contextmanager
def heads_of_torchs_layer(layer: Any, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Apply ``change`` to the concatenated heads of an ``nn.MultiheadAttention``, before out_proj, in a ``with`` block.

    The layer never calls its ``out_proj``: while it runs, an identity takes the place of that module, so that the layer
    returns its heads concatenated, and ``out_proj`` is applied behind it.
    """
    mixing = layer.out_proj
    outermost = not isinstance(mixing, _Identity)

    def after(_: nn.Module, __: tuple, output: tuple) -> tuple:
        is_turned = not layer.batch_first and output[0].dim() == 3  # (q, b, h · d)
        heads = change(output[0].transpose(0, 1) if is_turned else output[0])
        return heads.transpose(0, 1) if is_turned else heads, *output[1:]

    def mixed(_: nn.Module, __: tuple, output: tuple) -> tuple:
        return F.linear(output[0], mixing.weight, mixing.bias), *output[1:]

    with ExitStack() as hooks:
        if outermost:  # both before other hooks of the layer, which so get its output, and changes before the mixing
            layer._modules["out_proj"] = _Identity(mixing)
            hooks.callback(layer._modules.__setitem__, "out_proj", mixing)
            hooks.enter_context(layer.register_forward_hook(mixed, prepend=True))
        hooks.enter_context(layer.register_forward_hook(after, prepend=True))
        yield


class _Identity(nn.Linear):
    """The identity, in the place of a linear map. Its bias is not left out: torch's layer asks for one."""

    def __init__(self, like: nn.Linear):
        super().__init__(like.in_features, like.in_features, device=like.weight.device, dtype=like.weight.dtype)
        self.requires_grad_(False)

    def reset_parameters(self) -> None:
        nn.init.eye_(self.weight)
        nn.init.zeros_(self.bias)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set a model to eval mode inside a ``with`` block, and restore every module's former mode afterwards."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, was in training.items():
            module.training = was


@contextmanager
def plainly() -> Iterator[None]:
    """Disable torch's Transformer fast path and compiled code inside a ``with`` block, so that hooks see every call."""
    # torch.compiler.set_stance imports the compiler, which takes seconds: only where it is there already.
    has_compiler = "torch._dynamo" in sys.modules
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.compiler.set_stance("force_eager") if has_compiler else nullcontext():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
