"""Tests on another device than the CPU: ``MHA_DEVICE=cuda``, or ``lazy:0``, which is pretended (see second_device).

Tensors that a test makes, and parameters and buffers of every module, are born there. Tensors that the library makes
are not: it has to say where it wants them, and where it forgets to, two devices meet, and the test fails.
"""

import os
import sys
from pathlib import Path

import torch
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
    """Where a test makes a tensor and says no device: made on the CPU, so that random numbers are the same."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function not in MAKERS or "device" in kwargs or not sys._getframe(1).f_code.co_filename.startswith(TESTS):
            return function(*args, **kwargs)
        recorded = kwargs.pop("requires_grad", False)
        return function(*args, **kwargs).to(DEVICE).requires_grad_(recorded)


def parameter_there(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
    if parameter is None or parameter.device.type != "cpu":
        return parameter
    if nn.parameter.is_lazy(parameter):
        if DEVICE.type == "lazy":
            return parameter
        return type(parameter)(parameter.requires_grad, device=DEVICE, dtype=parameter.dtype)
    return nn.Parameter(parameter.detach().to(DEVICE), parameter.requires_grad)


def move_tests() -> None:
    """From now on and for good."""
    if DEVICE.type == "lazy":
        from second_device import pretend

        kernels = torch.utils._foreach_utils._get_fused_kernels_supported_devices
        sys.modules["torch.optim.optimizer"]._get_fused_kernels_supported_devices = lambda: [*kernels(), "lazy"]
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        for mode in pretend():
            mode.__enter__()
    MadeByTests().__enter__()
    nn.modules.module.register_module_parameter_registration_hook(parameter_there)
    nn.modules.module.register_module_buffer_registration_hook(
        lambda module, name, buffer: buffer if buffer is None else buffer.to(DEVICE)
    )
