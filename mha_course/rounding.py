"""Round numbers as they are told, and choose the largest after that, as ``told.js`` does in the browser."""

from typing import Any

import numpy as np
from torch import Tensor


def rounded(numbers: Any, digits: int) -> np.ndarray:
    """Round numbers to ``digits``, a half away from 0, but to three digits more first: no last bit rounds 0.125.

    >>> rounded([0.125, 0.125 - 1e-8, -0.125], 2).tolist()
    [0.13, 0.13, -0.13]
    """
    numbers = np.asarray(numbers, np.float64)
    return np.sign(numbers) * np.floor(np.round(10 ** (digits + 3) * np.abs(numbers)) / 1000 + 0.5) / 10**digits


def first_largest(numbers: Tensor, digits: int = 2) -> int:
    """Return where the number is that is largest as it is told with ``digits``, counted in the flattened tensor.

    Of equal ones it is the first, so that no last bit decides; NaN is none.

    >>> first_largest(torch.tensor([0.1, 0.4512, 0.4534]))
    1
    """
    return int(np.nan_to_num(rounded(numbers.detach().cpu().double(), digits), nan=-np.inf).argmax())
