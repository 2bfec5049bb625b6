"""Where the matrices and biases of a learner's layer are found: by their names, in linear modules, in fused weights."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from mha_course.checking.running import NotYetError
from mha_course.language import tr

NAMES = ("W_q", "W_k", "W_v", "W_o", "w_v")


def by_name(layer: Any) -> Sequence[Any]:
    """Return the attributes W_q, W_k, W_v, W_o (and w_v) of a layer; raise an error if one of the four is missing."""
    if hasattr(layer, "matrices"):
        return layer.matrices()
    if missing := [name for name in NAMES[:4] if not hasattr(layer, name)]:
        linear = [name for name, module in layer.named_children() if isinstance(module, nn.Linear)]
        names = linear if len(linear) == 4 else ["…"] * 4
        told = (
            "The layer has no {missing}. Name its four maps W_q, W_k, W_v and W_o, or say which they are: "
            "`matrices=lambda layer: ({names})`."
        )
        given = ", ".join(f"layer.{name}" for name in names)
        raise NotYetError(tr(told, missing=", ".join(missing), names=given), "init")
    return [getattr(layer, name) for name in NAMES if hasattr(layer, name)]


def pair(W: Any, layer: Any) -> tuple[Any, Tensor | None]:
    """Convert ``W``, which is a linear module, a pair or a tensor of ``layer``, to a pair (weight, bias)."""
    if isinstance(W, nn.Module):
        return getattr(W, "weight", W), getattr(W, "bias", None)
    if isinstance(W, tuple | list) and len(W) == 2:
        return W[0], W[1]
    return W, bias_beside(W, layer) if isinstance(W, Tensor) else None


def bias_beside(W: Tensor, layer: Any) -> Tensor | None:
    """Find the bias of the weight ``W``, or of that of which ``W`` is a part, in a layer; None if there is none."""
    parameters = dict(layer.named_parameters())
    for name, whole in parameters.items():
        bias = parameters.get(f"{name.removesuffix('weight')}bias")
        if storage_of(whole) != storage_of(W) or bias is None or not name.endswith("weight") or W.dim() != 2:
            continue
        turned = W.stride(0) == 1 < whole.stride(0)  # (input, output), handed over as (output, input)
        by_columns = turned or len(bias) != len(whole)
        first = W.storage_offset() % whole.stride(0) if by_columns else W.storage_offset() // whole.stride(0)
        return bias[first : first + (W.shape[1] if by_columns and not turned else len(W))]
    return None


def storage_of(X: Tensor) -> int:
    """Return the memory address of a tensor's storage, which all views of the tensor share."""
    return X.untyped_storage().data_ptr()


def as_formula_has(
    name: str, W: Tensor, b: Tensor | None, size: int, inner: int, num_heads: int
) -> tuple[Tensor, Tensor | None]:
    """Return W_q, W_k or W_v as (inner, size), or W_o as (size, inner), and its bias. The rows of W_k or W_v that query
    heads share, and those of its bias, are repeated, so that each head has its own.
    """
    of_hiddens = 0 if name == "o" else 1  # the axis of num_hiddens; where it is the other one, W is (input, output)
    shape, turned = (size, inner) if name == "o" else (inner, size), W if W.shape[of_hiddens] == size else W.T
    if name in "kv" and turned.shape != shape:
        groups, rest = divmod(len(turned) * num_heads, inner)
        if rest or not groups or num_heads % groups or turned.shape[1] != size:
            raise NotYetError(f"W_{name} from `matrices` has the shape {tuple(W.shape)}, which fits no heads.", "init")
        turned = repeated(turned, groups, num_heads)
        b = b if b is None else repeated(b, groups, num_heads)
    if turned.shape != shape:
        raise NotYetError(f"W_{name} from `matrices` must be {shape}, got {tuple(W.shape)}.", "init")
    return turned, b


def repeated(X: Tensor, groups: int, num_heads: int) -> Tensor:
    """Repeat the rows of each group for its heads."""
    return X.unflatten(0, (groups, -1)).repeat_interleave(num_heads // groups, 0).flatten(0, 1)
