"""Tests on another device than the CPU: ``MHA_DEVICE=cuda``, or ``lazy:0``, which is pretended (see second_device).

Tensors that a test makes, and parameters and buffers of every module, are born there. Tensors that the library makes
are not: it has to say where it wants them, and where it forgets to, two devices meet, and the test fails.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from second_device import AWAY, pretend
from torch import nn
from torch.overrides import TorchFunctionMode

DEVICE = torch.device(os.environ.get("MHA_DEVICE", "cpu"))
TESTS = str(Path(__file__).parent)
MAKERS = {
    getattr(torch, name)
    for name in "arange as_tensor empty eye full linspace ones rand randint randn randperm tensor tril_indices "
    "zeros".split()
}


class MadeByTests(TorchFunctionMode):
    """A tensor for which a test names no device; it is made on the CPU first, so that random numbers are the same."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function not in MAKERS or "device" in kwargs or not sys._getframe(1).f_code.co_filename.startswith(TESTS):
            return function(*args, **kwargs)
        recorded = kwargs.pop("requires_grad", False)
        return function(*args, **kwargs).to(DEVICE).requires_grad_(recorded)


def parameter_there(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
    """A parameter that a module is given; one that is elsewhere already, on meta say, stays there."""
    if parameter is None or parameter.device.type != "cpu":
        return parameter
    if nn.parameter.is_lazy(parameter):
        if DEVICE == AWAY:
            return parameter  # stays open here, and its layer on the CPU: such tests are marked real_device
        return type(parameter)(parameter.requires_grad, device=DEVICE, dtype=parameter.dtype)
    return nn.Parameter(parameter.detach().to(DEVICE), parameter.requires_grad)


for_good = ExitStack()


def move_tests() -> None:
    """From now on and for good; models that are trained there are not kept for runs on the CPU."""
    os.environ["MHA_CACHE"] = for_good.enter_context(TemporaryDirectory())
    if DEVICE == AWAY:
        for_good.enter_context(pretend())
    for_good.enter_context(MadeByTests())
    nn.modules.module.register_module_parameter_registration_hook(parameter_there)
    nn.modules.module.register_module_buffer_registration_hook(
        lambda module, name, buffer: buffer if buffer is None or buffer.device.type != "cpu" else buffer.to(DEVICE)
    )
