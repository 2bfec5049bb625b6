"""Scaled scores with their mask added, by one product: few passes over q × k numbers. Letters as in ``pooling``."""

import math
from contextlib import suppress
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_lib.attention.execution import values_readable, without_autocast
from mha_lib.attention.pooling import in_float32

SPARE = 8  # so many that rows whose length is divisible by 8, as a GPU likes them, stay so


def masked_scores(queries, keys, mask: Tensor | None, is_empty: Tensor | None, in_place: bool) -> Tensor:
    """Compute qᵀk / √d plus the mask, in single precision at least: (b, q, d), (b, k, d) -> (b, q, k).

    ``is_empty`` is what ``empty_rows`` returns. Where it cannot be read, empty rows alone may attend to ``SPARE`` more
    keys, (b, q, k + 8): a softmax gives their own keys zeros, without a pass. ``in_place``: no gradient is needed.
    """
    bias = torch.zeros(1, 1, device=queries.device) if mask is None else mask
    bias = bias.log() if bias.dtype == torch.bool else bias  # log 1 = 0, log 0 = −∞
    if is_empty is not None:
        queries = queries.masked_fill(is_empty, 0.0)  # they may be padding, and NaN
        if values_readable(is_empty):
            bias = bias.masked_fill(is_empty, 0.0)
        else:
            spare = torch.where(is_empty, 0.0, -math.inf).to(bias).expand(*bias.shape[:-1], SPARE)
            bias, keys = torch.cat([bias, spare], dim=-1), F.pad(keys, (0, 0, 0, SPARE))
    single, others = in_place and gives_single(queries), queries.shape[:-2]
    queries, keys = (queries, keys) if single else (in_float32(queries), in_float32(keys))
    bias = bias.to(torch.float32 if single else queries.dtype)
    # The product takes one axis before queries. To bring a mask of each example's queries there would be a pass, too.
    adds = bias.dim() < 4 or 1 in (bias.shape[0], bias.shape[2]) or bias.shape[1] == others[1]
    Q, K, added = queries.flatten(end_dim=-3), keys.flatten(end_dim=-3), bias if adds else bias.new_zeros(1, 1)
    added = added.expand(*others, -1, -1).flatten(end_dim=-3).expand(-1, Q.shape[1], K.shape[1])
    product = partial(torch.baddbmm, out_dtype=torch.float32) if single else torch.baddbmm
    with without_autocast(queries):  # autocast would use 16 bits
        scores = product(added, Q, K.mT, beta=int(adds), alpha=Q.shape[-1] ** -0.5)
    scores = scores.view(*others, *scores.shape[-2:])
    return scores if adds else torch.add(scores, bias, out=scores if in_place else None)


def gives_single(X: Tensor) -> bool:
    """Return whether half precision can be multiplied with results in single precision: on CUDA since torch 2.8."""
    return X.dtype in (torch.float16, torch.bfloat16) and _gives_single(X.device, X.dtype)


@cache
def _gives_single(device: torch.device, dtype: torch.dtype) -> bool:
    one = torch.ones(1, 8, 8, device=device, dtype=dtype)
    with suppress(RuntimeError, TypeError):
        return torch.baddbmm(one.float(), one, one, out_dtype=torch.float32).dtype == torch.float32
    return False
