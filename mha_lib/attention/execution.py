"""How torch runs the current call: eagerly, compiled, in a transform, in which precision."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.autograd import forward_ad

FAKE, RECORDED = torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.PROXY


def in_transform() -> bool:
    """Return whether a transform of ``torch.func`` (``vmap``, ``grad``, …) or forward-mode autograd is active."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def in_plain_call(X: Tensor) -> bool:
    """Return whether ``X`` is an ordinary tensor in eager execution, without compiling, tracing or ``vmap``.

    Under ``torch.compile``, export, ``make_fx``, function transforms such as ``vmap`` and with fake tensors, one call
    stands for many calls, or for none: its weights must not be kept.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if torch._C._len_torch_dispatch_stack() and any(map(torch._C._get_dispatch_mode, (RECORDED, FAKE))):
        return False
    return type(X) is Tensor or not hasattr(X, "fake_mode")


def values_readable(tensor: Tensor) -> bool:
    """Return whether a tensor's values can be read without waiting: False on ``meta``, on a GPU and in tracing."""
    return tensor.is_cpu and in_plain_call(tensor)


def is_autocast_on(tensor: Tensor) -> bool:
    """Return whether torch converts dtypes by itself on the tensor's device."""
    kind = tensor.device.type
    # torch 2.11 cannot compile the question whether a device has it. Of those that it compiles for, meta has none.
    available = kind != "meta" if torch.compiler.is_compiling() else torch.amp.is_autocast_available(kind)
    return available and torch.is_autocast_enabled(kind)


def without_autocast(tensor: Tensor) -> AbstractContextManager:
    """Return a context manager that switches torch's autocast off on the tensor's device."""
    return torch.autocast(tensor.device.type, enabled=False) if is_autocast_on(tensor) else nullcontext()
