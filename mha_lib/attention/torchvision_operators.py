"""Import packages beside a torchvision that was built for another torch.

Such a torchvision stops its import, and that of all that imports it, over an operator that it could not register. Where
the operators are declared, the import goes through; what needs them to run fails only then.
"""

from collections.abc import Callable
from typing import TypeVar

import torch

Package = TypeVar("Package")

_declared: list[torch.library.Library] = []  # a library that is collected takes its operators with it


def import_beside_torchvision(load: Callable[[], Package]) -> Package:
    """Return what ``load`` imports; if it fails because torchvision's operators are missing, declare them and retry."""
    try:
        return load()
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(operators)
    return load()
