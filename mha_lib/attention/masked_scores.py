"""Scaled scores with their mask added, by one product: few passes over q × k numbers. Letters as in ``pooling``."""

import math
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_lib.attention.execution import values_readable, without_autocast
from mha_lib.attention.masks import row_is_empty
from mha_lib.attention.pooling import in_float32

SPARE = 8  # so many that rows whose length is divisible by 8, as a GPU likes them, stay so


def masked_scores(queries: Tensor, keys: Tensor, mask: Tensor | None, in_place: bool) -> Tensor:
    """Compute qᵀk / √d plus the mask, in single precision at least: (b, q, d), (b, k, d) -> (b, q, k).

    Where a query may be without a key, ``SPARE`` keys are added, (b, q, k + 8), to which such a query alone may attend:
    a softmax then gives it zeros for its own keys, without a pass that fills them in. ``in_place``: no gradient is
    needed.
    """
    bias = mask if mask is None or mask.dtype != torch.bool else torch.where(mask, 0.0, -math.inf)
    is_empty = None if mask is None else row_is_empty(mask)
    if is_empty is not None and (not values_readable(is_empty) or is_empty.any()):
        spare = torch.where(is_empty, 0.0, -math.inf).to(bias).expand(*mask.shape[:-1], SPARE)
        bias, keys = torch.cat([bias, spare], dim=-1), F.pad(keys, (0, 0, 0, SPARE))
        queries = queries.masked_fill(is_empty, 0.0)  # they may be padding, and NaN
    single = in_place and gives_single(queries)
    options = {"out_dtype": torch.float32} if single else {}
    queries, keys = (queries, keys) if single else (in_float32(queries), in_float32(keys))
    dtype, (*others, num_queries, size) = options.get("out_dtype", queries.dtype), queries.shape
    # The product takes one axis before queries. To bring a mask of each example's queries there would be a pass, too.
    adds = mask is not None and (bias.dim() < 4 or 1 in (bias.shape[0], bias.shape[2]) or bias.shape[1] == others[1])
    added = bias.to(dtype) if adds else torch.zeros(1, 1, dtype=dtype, device=queries.device)
    added = added.expand(*others, *added.shape[-2:]).flatten(end_dim=-3).expand(-1, num_queries, keys.shape[-2])
    Q, K = queries.flatten(end_dim=-3), keys.flatten(end_dim=-3)
    with without_autocast(queries):  # autocast would use 16 bits
        scores = torch.baddbmm(added, Q, K.mT, beta=int(adds), alpha=size**-0.5, **options)
    scores = scores.view(*others, *scores.shape[-2:])
    return scores if adds or mask is None else torch.add(scores, bias.to(dtype), out=scores if in_place else None)


def gives_single(X: Tensor) -> bool:
    """Return whether products of such tensors, of half precision, can give single precision: on CUDA since torch 2.8."""
    return X.dtype in (torch.float16, torch.bfloat16) and _gives_single(X.device, X.dtype)


@cache
def _gives_single(device: torch.device, dtype: torch.dtype) -> bool:
    one = torch.ones(1, 8, 8, device=device, dtype=dtype)
    try:
        torch.baddbmm(one.float(), one, one, out_dtype=torch.float32)
    except (NotImplementedError, RuntimeError, TypeError):
        return False
    return True
