"""Round numbers as they are printed, before one of them is chosen by its size."""

from torch import Tensor


def as_printed(numbers: Tensor, digits: int = 2) -> Tensor:
    """Round ``numbers`` to as many digits after the point as are printed of them, in double precision.

    What is equal in exact arithmetic differs in the last bit, which depends on the processor. Choose by size among
    rounded numbers: then every processor chooses the same one, and of equal ones ``argmax`` takes the first.

    >>> as_printed(torch.tensor([0.8899999, 0.8900001])).argmax()
    tensor(0)
    """
    return numbers.double().round(decimals=digits)
