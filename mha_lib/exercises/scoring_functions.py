"""The exercises of notebook 02: scores, masks, additive attention."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mha_lib.attention import valid_keys
from mha_lib.checking.exercise import exercise
from mha_lib.checking.running import MistakeError, run_safely

SOFTMAX_AXES = """
    dim=-1) -> dim=-2) || dim=-2).nan_to_num(0) => Rows do not sum to 1. Over what does the softmax run?
    dim=-1) -> dim=0) || dim=0).nan_to_num(0) => The softmax runs over the examples of the batch.
    """
MASK = """
    .masked_fill(~valid, {lowest}), dim=-1){times_valid} -> , dim=-1) => Padding gets weight. Where is the mask?
    {lowest}), dim=-1){times_valid} -> 0.0), dim=-1) => Padding keeps real weight. Which score leads to a weight of 0?
    scores.masked_fill(~valid, {lowest}), dim=-1){times_valid} -> scores, dim=-1) * valid => Padding has weight 0, but
        what is left of a row does not sum to 1. Does the mask come before the softmax, or after?
    ~valid, {lowest}), dim=-1){times_valid} -> valid, {lowest}), dim=-1) => The weight is on the padding, and on nothing
        else. Which way round is the mask?
    torch.arange(scores.shape[-1]) < {lengths} -> torch.arange(scores.shape[-1]) >= scores.shape[-1] - {lengths} => The
        last keys of an example take part, where the first ones should.
    scores.masked_fill -> torch.softmax(scores, dim=-1).masked_fill => The softmax is applied twice.
    < -> <= || {lengths} -> $ - 1 => One key too many takes part, or one too few. From which number are keys counted?
    {lengths} -> valid_lens.max() || valid_lens.float().mean() || valid_lens.min() || valid_lens.flatten()[0] => All
        rows share one length. Which one belongs to each?
    scores.shape[-1]) -> scores.shape[-2])[:, None] || scores.shape[-1]) -> scores.shape[-2])[:, None] ; {lowest}),
        dim=-1){times_valid} -> -1e9), dim=-1) || scores.shape[-1]) -> scores.shape[-2])[:, None] ; {lowest}),
        dim=-1){times_valid} -> -torch.inf), dim=-1).nan_to_num(0) => Rows of late queries are masked. Along which axis
        does the mask run?
    torch.softmax(scores.masked_fill(~valid, {lowest}), dim=-1) -> scores.masked_fill(~valid, 0) => These are scores
        with 0 for padding. What makes weights of scores?
    ~valid, {lowest}) -> ~valid, -1e6) || ~valid, -1e5) || ~valid, -1e4) || ~valid, -1e3) || ~valid, -100.0) || ~valid,
        -20.0) => With this finite number padding takes weight in the softmax. Is the number for padding lower than
        every score can be?
    scores.masked_fill(~valid, {lowest}) -> scores - 1e9 * ~valid || scores - 3e38 * ~valid || scores - 1e6 * ~valid ||
        scores - 1e5 * ~valid || scores - 1e4 * ~valid || scores - 1e3 * ~valid || scores - 100 * ~valid ||
        torch.softmax(scores.masked_fill(~valid, {lowest}), dim=-1){times_valid} -> (torch.softmax(scores, dim=-1) *
        valid / (torch.softmax(scores, dim=-1) * valid).sum(dim=-1, keepdim=True)){nan_to_num} ||
        torch.nn.functional.normalize(torch.softmax(scores, dim=-1) * valid, p=1, dim=-1) => Padding with a far higher
        score takes the weight in the softmax. Neither a finite number added to its score nor a mask after the softmax
        prevents that. Which score has the weight 0?
    """


@exercise(
    trials=lambda: [
        (0.5 * torch.randn(2, 3, 5), 0.5 * torch.randn(2, 4, 5), 0.5),
        (3 * torch.randn(3, 2, 7), 3 * torch.randn(3, 6, 7), 3.0),
    ],
    praise="A score is d products of two factors: its standard deviation is std²·√d, and now it is 1.",
    idea="What is the variance of one product of two entries, and of a sum of d such products?",
    begin="Begin with the product of queries and turned keys; only the divisor is new.",
    mistakes="""
    / (std**2 * math.sqrt(d)) -> _ => These are bare dot products, not divided by anything.
    std**2 * math.sqrt(d) -> math.sqrt(d) => The divisor holds no std. How does the size of entries change a product?
    std**2 -> std || std**4 || std**2 * math.sqrt(d) -> math.sqrt(std * d) || std * math.sqrt(std * d) => The divisor
        holds std to a wrong power. What is the variance of one product, and what does the root cover?
    std**2 * math.sqrt(d) -> std**4 * d => The divisor is the variance of a score. Is it that, or its root?
    math.sqrt(d) -> d => The divisor holds d, not √d. How fast does the spread of a sum of d products grow?
    * math.sqrt(d) -> _ => The size of the vectors has no say in the result.
    / (std**2 * math.sqrt(d)) -> * (std**2 * math.sqrt(d)) => The products are multiplied by what should divide them.
    (std**2 * math.sqrt(d)) -> std**2 * math.sqrt(d) => The products are divided by std², but multiplied by √d. What
        does a / b * c mean without brackets?
    queries.shape[-1] -> queries.shape[1] || keys.shape[1] || len(queries) => The number of queries, keys or examples
        stands for d. Which axis holds one vector?
    queries @ keys.mT -> keys @ queries.mT => There is a row for each key, where each query should have one.
    (std**2 * math.sqrt(d)) -> (math.sqrt(d) / std**2) => The products are multiplied by std². On which side of the bar
        is it?
    keys.mT -> keys.reshape(len(keys), d, -1) => The keys are reshaped. Do rows become columns in that way?
    """,
)
def scaled_scores(queries, keys, std):
    """Dot products divided so that their variance is 1, where the vectors' entries have standard deviation ``std``.

    queries (batch, num_queries, d), keys (batch, num_keys, d) → (batch, num_queries, num_keys).
    Source: Vaswani et al., 2017, section 3.2.1, footnote 4, for a standard deviation of 1.
    """
    d = queries.shape[-1]
    # (b, q, d) @ (b, d, k) -> (b, q, k)
    return queries @ keys.mT / (std**2 * math.sqrt(d))


def with_far_scores(stages: dict[str, list[tuple[Tensor, Tensor]]]) -> dict[str, list[tuple[Tensor, Tensor]]]:
    """Add stages to these: the last one again, with all scores high, or low, or with padding alone far higher.

    Low scores are whole numbers, 500 apart: no order of computing rounds them, not even ``logsumexp``.
    """
    trials = list(stages.values())[-1]
    padding = [~valid_keys(lengths, scores.shape[-1]) for scores, lengths in trials]
    return stages | {
        "where all scores are 100 higher": [(scores + 100, lengths) for scores, lengths in trials],
        "where all scores are near −3 million": [
            (500.0 * scores.argsort(dim=-1).argsort(dim=-1) - 3e6, lengths) for scores, lengths in trials
        ],
        "where padding scores 3 million higher": [
            (scores + 3e6 * mask, lengths) for (scores, lengths), mask in zip(trials, padding, strict=True)
        ],
        "where padding scores 3e38": [
            (scores.masked_fill(mask, 3e38), lengths) for (scores, lengths), mask in zip(trials, padding, strict=True)
        ],
    }


@exercise(
    # With as many queries as examples a length taken for a row's raises nothing, so this mistake can be told.
    trials=lambda: with_far_scores(
        {
            "with as many queries as examples": [
                (torch.randn(2, 2, 5), torch.tensor([2, 4])),
                (torch.randn(3, 3, 6), torch.tensor([5, 2, 3])),
            ],
            "in other sizes": [
                (torch.randn(2, 3, 4), torch.tensor([1, 3])),
                (torch.randn(3, 2, 5), torch.tensor([4, 1, 5])),
                (torch.randn(2, 4, 3), torch.tensor([3, 2])),
            ],
        }
    ),
    praise="Padding gets exactly 0, every row sums to 1, and each example has its own length.",
    idea="Padding must have lost before the softmax shares anything out.",
    begin="Begin with the keys' numbers, and hold them against the lengths, to which you give two new axes.",
    mistakes=(
        """
    [:, None, None] -> [:, None] || valid_lens[:, None, None] -> valid_lens.repeat(scores.shape[1]).reshape(
        scores.shape[:2])[:, :, None] => Rows of one example have different lengths. Which axis do lengths belong to?
    """,
        MASK.format(lengths="valid_lens[:, None, None]", lowest="-torch.inf", times_valid="", nan_to_num=""),
        SOFTMAX_AXES,
    ),
)
def masked_softmax_1d(scores, valid_lens):
    """Softmax over the valid keys, with one length, at least 1, for each example; padding gets 0 at any scores.

    scores (batch, num_queries, num_keys), valid_lens (batch,) → weights of the shape of scores. Source: d2l 11.3.2.
    """
    # (k,) < (b, 1, 1) -> (b, 1, k)
    valid = torch.arange(scores.shape[-1]) < valid_lens[:, None, None]
    return torch.softmax(scores.masked_fill(~valid, -torch.inf), dim=-1)


def trials_2d() -> dict[str, list[tuple[Tensor, Tensor]]]:
    """With as many queries as keys, where lengths along the wrong axis raise nothing; then with empty rows."""
    return {
        "where every query has a key": [
            (torch.randn(2, 4, 4), torch.tensor([[3, 2, 3, 2], [2, 2, 3, 3]])),
            (torch.randn(3, 5, 5), torch.tensor([[4, 2, 3, 2, 3], [2, 4, 4, 3, 4], [3, 3, 2, 4, 2]])),
        ],
        "where some lengths are 0": [
            (torch.randn(2, 3, 4), torch.tensor([[2, 0, 4], [1, 3, 0]])),
            (torch.randn(3, 2, 5), torch.tensor([[5, 1], [0, 0], [3, 0]])),
        ],
    }


def require_finite_gradient(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """A ``MistakeError`` if no finite gradient of the scores comes back through the weights."""

    def gradient_of_scores(scores: Tensor, valid_lens: Tensor) -> Tensor:
        scores = scores.clone().requires_grad_()
        return torch.autograd.grad(function(scores, valid_lens).square().sum(), scores)[0]

    (outcome,) = run_safely(gradient_of_scores, trials_2d()["where some lengths are 0"][:1])
    told = "The weights are right, but the gradient of the scores"
    if outcome.error:
        raise MistakeError(f"{told} does not find its way back ({outcome.error[1]}).")
    if not outcome.value.isfinite().all():
        place = outcome.value.isfinite().logical_not().nonzero()[0].tolist()
        raise MistakeError(
            f"{told} holds NaN at {place}, where the length is 0. Does NaN arise, and is replaced later?"
        )


@exercise(
    trials=lambda: with_far_scores(trials_2d()),
    then=require_finite_gradient,
    praise="A query that may look at nothing gets nothing, and no NaN, in the gradient either.",
    idea="Where a row is empty, a softmax over −∞ divides 0 by 0. What if the row were low, but finite?",
    begin="Begin with the mask of valid keys; it is needed twice, before the softmax and after.",
    mistakes=(
        """
    valid_lens[:, :, None] -> valid_lens[:, :1, None] => All queries of an example share one length, the first.
    valid_lens[:, :, None] -> valid_lens[:, None, :] => Key number j is held against the length of query number j.
    scores.shape[-1]) < valid_lens[:, :, None] -> scores.shape[-2])[:, None] < valid_lens[:, None, :] ||
        scores.shape[-1]) < valid_lens[:, :, None] -> scores.shape[-2])[:, None] < valid_lens[:, None, :] ; lowest),
        dim=-1) * valid -> -1e9), dim=-1) => The mask is transposed: at [i, j] number i is held against the length of
        query number j.
    lowest), dim=-1) * valid -> -torch.inf), dim=-1) => A row whose length is 0 is NaN. What does a softmax make of a
        row of −∞?
    * valid -> _ || lowest), dim=-1) * valid -> -1e6), dim=-1) => A row whose length is 0 gets equal weights, padding
        too. What does a softmax make of scores that are equally low?
    valid_lens[:, :, None] -> valid_lens.clamp(min=1)[:, :, None] => A row whose length is 0 listens to the first key.
    """,
        MASK.format(
            lengths="valid_lens[:, :, None]", lowest="lowest", times_valid=" * valid", nan_to_num=".nan_to_num(0)"
        ),
        SOFTMAX_AXES,
    ),
)
def masked_softmax_2d(scores, valid_lens):
    """Softmax over the valid keys, with a length for each query; 0 throughout for a query whose length is 0.

    scores (batch, num_queries, num_keys), valid_lens (batch, num_queries) → weights of the shape of scores, through
    which the scores have a finite gradient.
    Source: d2l 11.3.2, which gives a query without a valid key equal weights.
    """
    lowest = torch.finfo(scores.dtype).min
    # (k,) < (b, q, 1) -> (b, q, k)
    valid = torch.arange(scores.shape[-1]) < valid_lens[:, :, None]
    return torch.softmax(scores.masked_fill(~valid, lowest), dim=-1) * valid


def additive_trial(batch_size, num_queries, num_keys, query_size, key_size, num_hiddens, value_size) -> tuple:
    """Random queries, keys, values, W_q, W_k, w_v."""
    queries, keys = torch.randn(batch_size, num_queries, query_size), torch.randn(batch_size, num_keys, key_size)
    W_q, W_k = torch.randn(num_hiddens, query_size), torch.randn(num_hiddens, key_size)
    return queries, keys, torch.randn(batch_size, num_keys, value_size), W_q, W_k, torch.randn(num_hiddens)


@exercise(
    trials=lambda: [additive_trial(2, 3, 4, 5, 6, 7, 8), additive_trial(3, 5, 2, 4, 3, 6, 1)],
    praise="Queries and keys of different sizes meet, every pair in one table, and the values are averaged.",
    idea="Every query meets every key: their projections are added, bent by tanh, and w_v makes one number of them.",
    begin="Begin with both projections, and give each a new axis of length 1, in different places.",
    mistakes=(
        """
    torch.tanh((queries @ W_q.T)[:, :, None] + (keys @ W_k.T)[:, None]) -> (queries @ W_q.T)[:, :, None] + (keys @
        W_k.T)[:, None] => All queries of an example get the same output. Is tanh applied to
        the sum of query and key?
    queries @ W_q.T -> 0 * $ => All queries of an example get one and the same answer, by the bent keys alone. Does the
        query meet the key before tanh?
    torch.tanh((queries -> ((queries ; features @ w_v -> torch.tanh($) => tanh bends the finished score, not the
        features that w_v weighs.
    [:, :, None] + -> [:, :, None] * => Query and key are multiplied; in additive attention they are added.
    [:, :, None] + -> [:, :, None] - => The key is taken away from the query; the two are added.
    features @ w_v -> features.sum(dim=-1) => The features are summed as they are. Where is w_v?
    features @ w_v -> $ / math.sqrt(len(w_v)) || $ / math.sqrt(queries.shape[-1]) => Scores are divided by the root of a
        size. Does tanh need that?
    features @ w_v -> 0 * ($) => All keys get equal weights: these are plain means of the values. Where are the scores?
    torch.softmax(features @ w_v, dim=-1) -> features @ w_v => The values are averaged with bare scores. What makes
        weights of them?
    @ values -> _ => Weights come back. Where do the values come in?
    torch.tanh( -> torch.sigmoid( || torch.relu( => The sum is not bent by tanh, but by another function.
    [:, :, None] + (keys @ W_k.T)[:, None] -> [:, None] + (keys @ W_k.T)[:, :, None] => An error is raised: the table
        has a row for each key. Where do the new axes of queries and keys belong?
    """,
        SOFTMAX_AXES,
    ),
)
def additive_attention(queries, keys, values, W_q, W_k, w_v):
    """Attention with the score w_vᵀ tanh(W_q q + W_k k), all keys valid.

    queries (batch, num_queries, query_size), keys (batch, num_keys, key_size), values (batch, num_keys, value_size),
    W_q (h, query_size), W_k (h, key_size), w_v (h,) → (batch, num_queries, value_size).
    Source: D. Bahdanau, K. Cho, Y. Bengio, 2015, appendix A.1.2; d2l 11.3.3.
    """
    # (b, q, 1, h) + (b, 1, k, h) -> (b, q, k, h)
    features = torch.tanh((queries @ W_q.T)[:, :, None] + (keys @ W_k.T)[:, None])
    weights = torch.softmax(features @ w_v, dim=-1)  # (b, q, k, h) @ (h,) -> (b, q, k)
    return weights @ values  # (b, q, k) @ (b, k, v) -> (b, q, v)


@exercise(
    trials=lambda: [(torch.randn(2, 3, 5), torch.randn(2, 4, 5)), (torch.randn(4, 2, 3), torch.randn(4, 6, 3))],
    praise="A distance is a dot product in which long keys pay for their length.",
    idea="Multiply the square out. Which of the three terms is the same for all keys, and what does it change?",
    begin="Begin with all dot products; then take from each what its key has to pay.",
    mistakes="""
    - keys.square().sum(dim=-1)[:, None] / 2 -> _ => These are the weights of bare dot products. The lengths of the keys
        have no say; what is the same for all keys of a row does not count.
    / 2 -> _ => The keys' squared norm is not halved beside the dot product.
    - keys.square() -> + keys.square() => Long keys gain. Which sign has the keys' squared norm?
    keys.square().sum(dim=-1) -> keys.norm(dim=-1) => The keys' norm is not squared.
    queries @ keys.mT -> 2 * $ ; / 2 -> _ => All scores are twice what they should be. Where is the ½?
    scores = queries @ keys.mT - keys.square().sum(dim=-1)[:, None] / 2 -> scores = -torch.cdist(queries, keys) / 2 ||
        scores = -torch.cdist(queries, keys) => The distance is not squared.
    queries @ keys.mT - -> -queries @ keys.mT + => The most distant keys get the most weight. What is the sign of the
        score?
    softmax(scores -> $ / math.sqrt(keys.shape[-1]) || keys.mT -> keys.mT / math.sqrt(keys.shape[-1]) => Something is
        divided by √d. Does a distance need that?
    softmax(scores, dim=-1) -> softmax(scores, dim=-2) || softmax(scores - queries.square().sum(dim=-1)[..., None] / 2,
        dim=-2) => Columns sum to 1, rows do not. Over what does the softmax run?
    torch.softmax(scores, dim=-1) -> scores || scores - queries.square().sum(dim=-1)[..., None] / 2 => Scores come back.
        Where is the softmax?
    torch.softmax(scores, dim=-1) -> scores.sub(queries.square().sum(dim=-1)[..., None] / 2).exp() => The weights of a
        query do not sum to 1. What comes after the exponential?
    """,
)
def distance_weights(queries, keys):
    """Weights of the Gaussian kernel with σ = 1, softmax(−½‖q − k‖²), for a batch.

    queries (batch, num_queries, d), keys (batch, num_keys, d) → (batch, num_queries, num_keys).
    Source: section 2 of the notebook.
    """
    # (b, q, k) - (b, 1, k) -> (b, q, k)
    scores = queries @ keys.mT - keys.square().sum(dim=-1)[:, None] / 2
    return torch.softmax(scores, dim=-1)
