"""The exercises of notebook 02: masked attention weights, and scaled dot-product attention."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mha_course.checking.exercise import exercise
from mha_course.checking.running import MistakeError, run_safely

SOFTMAX_AXES = """
    dim=-1) -> dim=-2) => Rows do not sum to 1. Check the axis of the softmax.
    dim=-1) -> dim=0) => The softmax runs over the examples of the batch. Check the axis of the softmax.
    """


def attention_trial(batch_size, num_queries, num_keys, size, value_size, factor=1.0) -> tuple:
    """Return random queries (scaled by ``factor``), keys and values of the given sizes."""
    sizes = (num_queries, size), (num_keys, size), (num_keys, value_size)
    queries, keys, values = (torch.randn(batch_size, *each) for each in sizes)
    return factor * queries, keys, values


@exercise(
    trials=lambda: {
        "with small scores": [attention_trial(2, 3, 4, 5, 6), attention_trial(3, 2, 6, 7, 4)],
        "with scores above 100": [attention_trial(2, 3, 4, 9, 2, factor=300)],
    },
    parts=("output", "weights"),
    praise="The weights of each query sum to 1, and the output is the average of the values with these weights.",
    idea="The formula has three steps: scores, softmax over the keys, average of the values. Keep the weights.",
    begin="Begin with the scores: every query with every key, so one of the two matrices must be transposed.",
    mistakes=(
        """
    / math.sqrt(queries.shape[-1]) -> _ => The scores are not divided by anything. The formula divides by √p.
    math.sqrt(queries.shape[-1]) -> queries.shape[-1] => The scores are divided by p. The formula divides by √p.
    / math.sqrt(queries.shape[-1]) -> * math.sqrt(queries.shape[-1]) => The scores are multiplied by √p. The formula
        divides by √p.
    math.sqrt(queries.shape[-1]) -> math.sqrt(queries.shape[1]) || math.sqrt(keys.shape[1]) || math.sqrt(len(queries))
        || math.sqrt(values.shape[-1]) || math.sqrt(queries.shape[1] * queries.shape[2]) => The scores are divided by
        the root of another size. p is the number of features of a query.
    math.sqrt(queries.shape[-1]) -> queries.shape[-1] ** 0.25 || math.sqrt(2 * queries.shape[-1]) || 2 *
        math.sqrt(queries.shape[-1]) || (1 + math.sqrt(queries.shape[-1])) => The scores are not divided by √p, but by
        another number.
    / math.sqrt(queries.shape[-1]) -> _ ; return weights @ -> weights = weights / math.sqrt(queries.shape[-1]); return
        weights @ => The weights are divided by √p. Divide the scores, before the softmax.
    / math.sqrt(queries.shape[-1]) -> _ ; @ values, -> @ values / math.sqrt(queries.shape[-1]), => The output is divided
        by √p. Divide the scores, before the softmax.
    keys.mT -> keys.reshape(len(keys), queries.shape[-1], -1) => The keys are reshaped. A reshape does not exchange rows
        and columns.
    weights @ values, -> weights @ keys, => The keys are averaged instead of the values.
    weights @ values, -> weights, => The weights are returned in place of the output. Check where the values come in.
    weights @ values, weights -> weights, weights @ values => The output and the weights are returned in the wrong
        order.
    @ values, weights -> @ values, scores => The output is right, but scores are returned in place of the weights.
    @ values, weights -> @ values, torch.softmax(queries @ keys.mT, dim=-1) => The output is right, but the weights
        returned are those of undivided scores.
    weights @ values, -> scores @ values, || torch.softmax(scores, dim=-1) -> scores => The values are averaged with the
        scores themselves. Check how scores become weights.
    torch.softmax(scores, dim=-1) -> torch.exp(scores) => The weights of a query do not sum to 1. Check what follows the
        exponential.
    torch.softmax(scores, dim=-1) -> (torch.exp(scores) / torch.exp(scores).sum(dim=-1, keepdim=True)) => The
        exponentials of large scores overflow. Check what a softmax subtracts first.
    torch.softmax(scores, dim=-1) -> torch.softmax(scores.masked_fill(torch.ones_like(scores).triu(1).bool(),
        -torch.inf), dim=-1) => Later keys are masked, as in causal attention. Here all keys take part.
    queries @ keys.mT / math.sqrt(queries.shape[-1]) -> torch.cosine_similarity(queries[:, :, None], keys[:, None],
        dim=3) || math.sqrt(queries.shape[-1]) * torch.cosine_similarity(queries[:, :, None], keys[:, None], dim=3) ||
        torch.cosine_similarity(queries[:, :, None], keys[:, None], dim=3) / math.sqrt(queries.shape[-1]) => Queries and
        keys are divided by their norms. Divide the products by √p only.
    torch.softmax(scores, dim=-1) -> torch.sigmoid(scores) => A sigmoid is used instead of the softmax.
    torch.softmax(scores, dim=-1) -> torch.softmax(torch.softmax(scores, dim=-1), dim=-1) => The softmax is applied
        twice.
    return weights @ -> weights = weights.round(decimals=2); return weights @ => The weights are rounded.
    weights @ values, -> weights @ values / keys.shape[1], => The output is divided by the number of keys. The weights
        already sum to 1.
    """,
        SOFTMAX_AXES,
    ),
)
def attention_and_weights(queries, keys, values):
    """Return the output of scaled dot-product attention, softmax(QKᵀ/√p)V, and the attention weights.

    queries (batch, n, p), keys (batch, m, p), values (batch, m, v), scores may exceed 100 → output (batch, n, v),
    weights (batch, n, m). Source: Vaswani et al. 2017, equation 1; d2l 11.3.3.
    """
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])  # (b, n, m)
    weights = torch.softmax(scores, dim=-1)
    return weights @ values, weights  # (b, n, m) @ (b, m, v) -> (b, n, v)


def random_mask(batch_size: int, num_queries: int, num_keys: int) -> Tensor:
    """Return a Boolean mask (batch_size, num_queries, num_keys) that differs between queries and allows each a key."""
    order = torch.rand(batch_size, 1, num_keys).argsort(dim=-1)
    return (order + torch.arange(num_queries)[:, None]) % num_keys <= torch.arange(batch_size)[:, None, None]


def mask_of(scores: Tensor, valid: Tensor) -> Tensor:
    """Return ``valid`` as a Boolean mask of the shape of ``scores``: lengths are converted, a mask is only expanded."""
    lengths = valid.reshape(*valid.shape, *[1] * (3 - valid.dim()))
    return (valid if valid.dtype == torch.bool else torch.arange(scores.shape[-1]) < lengths).expand_as(scores)


def masked_trials() -> dict[str, list[tuple[Tensor, Tensor]]]:
    """Return the test inputs of ``masked_weights``, pairs (scores, lengths or mask), in a dict by the case they test.

    With as many queries as examples, or as keys, lengths along a wrong axis raise nothing. Low scores are whole
    numbers, 500 apart: no order of computing rounds them, not even ``logsumexp``.
    """
    stages = {
        "with one length for each example": [
            (torch.randn(2, 2, 5), torch.tensor([2, 4])),
            (torch.randn(3, 3, 6), torch.tensor([5, 2, 3])),
            (torch.randn(3, 2, 5), torch.tensor([4, 1, 5])),
            (torch.randn(2, 4, 3), torch.tensor([3, 2])),
        ],
        "with one length for each query": [
            (torch.randn(2, 4, 4), torch.tensor([[3, 2, 3, 2], [2, 2, 3, 3]])),
            (torch.randn(3, 5, 5), torch.tensor([[4, 2, 3, 2, 3], [2, 4, 4, 3, 4], [3, 3, 2, 4, 2]])),
        ],
        "with a Boolean mask": [
            (torch.randn(2, 4, 4), random_mask(2, 4, 4)),
            (torch.randn(3, 2, 5), random_mask(3, 2, 5)),
        ],
        "where a query has no valid key": [
            (torch.randn(2, 3, 4), torch.tensor([[2, 0, 4], [1, 3, 0]])),
            (torch.randn(3, 2, 5), torch.tensor([4, 0, 2])),
            (torch.randn(2, 3, 4), random_mask(2, 3, 4) & torch.tensor([True, False, True])[:, None]),
        ],
    }
    trials = stages["where a query has no valid key"]
    masked = [~mask_of(scores, valid) for scores, valid in trials]
    return stages | {
        "where all scores are 100 higher": [(scores + 100, valid) for scores, valid in trials],
        "where all scores are near −3 million": [
            (500.0 * scores.argsort(dim=-1).argsort(dim=-1) - 3e6, valid) for scores, valid in trials
        ],
        "where masked keys score 3 million higher": [
            (scores + 3e6 * mask, valid) for (scores, valid), mask in zip(trials, masked, strict=True)
        ],
        "where masked keys score 3e38": [
            (scores.masked_fill(mask, 3e38), valid) for (scores, valid), mask in zip(trials, masked, strict=True)
        ],
    }


def require_finite_gradient(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Raise a ``MistakeError`` unless the gradient of ``function``, a masked softmax, by its scores is finite."""

    def gradient_of_scores(scores: Tensor, valid: Tensor) -> Tensor:
        scores = scores.clone().requires_grad_()
        return torch.autograd.grad(function(scores, valid).square().sum(), scores)[0]

    (outcome,) = run_safely(gradient_of_scores, masked_trials()["where a query has no valid key"][:1])
    told = "The weights are right, but the gradient of the scores"
    if outcome.error:
        raise MistakeError(f"{told} cannot be computed ({outcome.error[1]}). Check that each step has a gradient.")
    if not outcome.value.isfinite().all():
        place = outcome.value.isfinite().logical_not().nonzero()[0].tolist()
        raise MistakeError(
            f"{told} holds NaN at {place}, in a row without a valid key. Check that NaN never arises: if it is "
            f"replaced afterwards, it stays in the gradient."
        )


def by_right(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a correct masked softmax that first applies ``change`` to its mask, so as to imitate a wrong answer."""
    return lambda scores, valid: masked_weights.right(scores, change(valid) if valid.dtype == torch.bool else valid)


@exercise(
    trials=masked_trials,
    then=require_finite_gradient,
    praise="Masked keys get exactly 0. A query without a valid key gets zeros, and a finite gradient.",
    idea="Turn lengths into a mask, so that one line handles all three cases. Masked scores must be low before the "
    "softmax. A row with only −∞ needs care: its softmax divides 0 by 0.",
    begin="Begin with lengths, and add axes so that they can be compared with the numbers of the keys.",
    programs=[
        (
            "The Boolean mask is inverted. Here True means that a key takes part.",
            by_right(torch.logical_not),
        ),
        ("The Boolean mask has no effect: all keys take part.", by_right(torch.ones_like)),
        ("The queries and keys of the Boolean mask are swapped.", by_right(lambda mask: mask.mT)),
        (
            "All queries use the first row of the Boolean mask.",
            by_right(lambda mask: mask[:, :1].expand_as(mask)),
        ),
        (
            "The Boolean mask is read as a number of valid keys. The valid keys need not be the first ones.",
            by_right(lambda mask: mask.sum(dim=-1)),
        ),
        (
            "The Boolean mask is read as lengths, 0 and 1. Check the type of `valid` before you compare.",
            by_right(lambda mask: torch.arange(mask.shape[-1]) < mask.int()),
        ),
    ],
    mistakes=(
        """
    lengths = valid[:, None] -> lengths = valid[None] || lengths = valid[:, None] -> lengths =
        valid.repeat(scores.shape[1]).reshape(scores.shape[:2]) => With one length for each example, the queries of an
        example get different lengths. Check the axis of the lengths.
    else valid -> else valid[:, :1] => With one length for each query, all queries of an example get the first one.
    lengths[:, :, None] -> lengths[:, None, :] => With one length for each query, key j is compared with the length of
        query j. Check the axes of the lengths.
    torch.arange(scores.shape[-1]) < lengths[:, :, None] -> ($).mT if valid.dim() == 2 else $ => With one length for
        each query, the mask is transposed: at [i, j], number i is compared with the length of query j.
    lowest), dim=-1) * valid -> -torch.inf), dim=-1) => A row without a valid key is NaN. A softmax over −∞ alone
        divides 0 by 0.
    * valid -> _ || lowest), dim=-1) * valid -> -1e6), dim=-1) => A row without a valid key gets equal weights, on
        masked keys. Check what the softmax makes of equal scores.
    else valid -> else valid ; lengths[:, :, None] -> lengths.clamp(min=1)[:, :, None] => A row whose length is 0
        attends to the first key.
    (scores.masked_fill(~valid, lowest), dim=-1) * valid -> (scores, dim=-1) => Masked keys get weight: the mask has no
        effect.
    lowest), dim=-1) * valid -> 0.0), dim=-1) || lowest), dim=-1) * valid -> 0.0), dim=-1) * valid.any(dim=-1,
        keepdim=True) => Masked keys get weight, because their score is 0 and exp(0) is 1. Check the number that
        replaces masked scores.
    scores.masked_fill(~valid, lowest), dim=-1) -> scores, dim=-1) => Masked keys get 0, but the rest of a row does not
        sum to 1. Check whether the mask acts before the softmax.
    ~valid, lowest), dim=-1) * valid -> valid, lowest), dim=-1) || ~valid, lowest), dim=-1) * valid -> valid, lowest),
        dim=-1) * ~valid || ~valid, lowest), dim=-1) * valid -> valid, -torch.inf), dim=-1) => The weight is on the
        masked keys alone. Check which way round the mask is.
    torch.arange(scores.shape[-1]) < lengths[:, :, None] -> torch.arange(scores.shape[-1]) >= scores.shape[-1] -
        lengths[:, :, None] => The last keys of an example take part instead of the first ones.
    scores.masked_fill(~valid -> torch.softmax(scores, dim=-1).masked_fill(~valid => The softmax is applied twice.
    < lengths -> <= lengths || lengths[:, :, None] -> $ - 1 => One key too many takes part, or one too few. Keys are
        counted from 0.
    lengths[:, :, None] -> lengths.max() || lengths.float().mean() || lengths.min() || lengths.flatten()[0] => All rows
        share one length. Check which length belongs to which row.
    scores.shape[-1]) -> scores.shape[-2])[:, None] || scores.shape[-1]) -> scores.shape[-2])[:, None] ; lowest),
        dim=-1) * valid -> -1e9), dim=-1) || scores.shape[-1]) -> scores.shape[-2])[:, None] ; lowest), dim=-1) * valid
        -> -torch.inf), dim=-1) => Rows of late queries are masked instead of late keys. Check the axis of the mask.
    torch.softmax(scores.masked_fill(~valid, lowest), dim=-1) -> scores.masked_fill(~valid, 0) => These are scores with
        0 for masked keys. Check how scores become weights.
    torch.softmax(scores.masked_fill(~valid, lowest), dim=-1) -> torch.exp(scores) => The rows do not sum to 1. Check
        what follows the exponential.
    ~valid, lowest) -> ~valid, -1e6) || ~valid, -1e5) || ~valid, -1e4) || ~valid, -1e3) || ~valid, -100.0) || ~valid,
        -20.0) => With this number in place of masked scores, masked keys get weight. It must be lower than every score.
    torch.softmax(scores.masked_fill(~valid, lowest), dim=-1) * valid -> torch.nn.functional.normalize(torch.exp(scores)
        * valid, p=1, dim=-1) || (torch.exp(scores) * valid / (torch.exp(scores) * valid).sum(dim=-1,
        keepdim=True)).nan_to_num(0) || torch.exp(scores) * valid / (torch.exp(scores) * valid).sum(dim=-1,
        keepdim=True).clamp(min=1e-9) || torch.exp(scores) * valid / ((torch.exp(scores) * valid).sum(dim=-1,
        keepdim=True) + 1e-9) || torch.exp(scores.masked_fill(~valid, -torch.inf)) /
        torch.exp(scores.masked_fill(~valid, -torch.inf)).sum(dim=-1, keepdim=True).clamp(min=1e-9) => The exponentials
        of large scores overflow. Check what a softmax subtracts first.
    scores.masked_fill(~valid, lowest) -> scores - 1e9 * ~valid || scores - 3e38 * ~valid || scores - 1e6 * ~valid ||
        scores - 1e5 * ~valid || scores - 1e4 * ~valid || scores - 1e3 * ~valid || scores - 100 * ~valid ||
        torch.softmax(scores.masked_fill(~valid, lowest), dim=-1) * valid -> (torch.softmax(scores, dim=-1) * valid /
        (torch.softmax(scores, dim=-1) * valid).sum(dim=-1, keepdim=True)).nan_to_num(0) ||
        torch.nn.functional.normalize(torch.softmax(scores, dim=-1) * valid, p=1, dim=-1) => A masked key with a far
        higher score takes the weight in the softmax. A finite number added to its score does not prevent that, and a
        mask after the softmax comes too late.
    """,
        SOFTMAX_AXES,
    ),
)
def masked_weights(scores, valid):
    """Return the softmax of ``scores`` over valid keys, with weight 0 at all others and in rows without a valid key.

    scores (batch, n, m), any finite numbers; valid one of: lengths (batch,), lengths (batch, n), or a Boolean mask
    (batch, n, m) that is True where a key takes part → weights (batch, n, m), with a finite gradient.
    Source: d2l 11.3.2, which gives a query without a valid key equal weights.
    """
    if valid.dtype != torch.bool:
        lengths = valid[:, None] if valid.dim() == 1 else valid  # (b, 1) or (b, n)
        valid = torch.arange(scores.shape[-1]) < lengths[:, :, None]  # (b, n or 1, m)
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~valid, lowest), dim=-1) * valid
