"""Checks of the exercises of notebook 02: scores, masks, additive attention."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mha_lib.attention import masked_softmax, valid_keys
from mha_lib.checks.calls import call_all
from mha_lib.checks.compare import SEEN, Slip, compare, first_difference, numbers_at
from mha_lib.checks.pooling import over_keys
from mha_lib.checks.verdict import MistakeError, check, describe_error

SHIFTS = {  # of all scores alike, which leaves their softmax as it is
    0.0: "",
    100.0: " where all scores are 100 higher",
    -3e6: " where all scores are 3 million lower",
}


@check
def scaled_scores(function: Callable[..., Tensor]) -> str:
    """Dot products divided so that their variance is 1, where the vectors' entries have standard deviation ``std``.

    Args:
        function: ``scaled_scores(queries, keys, std)``, where queries (batch, num_queries, size), keys (batch,
            num_keys, size) → (batch, num_queries, num_keys).

    Source: Vaswani et al., 2017, section 3.2.1, footnote 4, for a standard deviation of 1.
    """
    slips = [
        Slip(SEEN + "these are bare dot products, not divided by anything.", scores_over(lambda q, k, std: 1)),
        Slip(
            SEEN + "divided by √d, which is right for entries of standard deviation 1 only.",
            scores_over(lambda q, k, std: math.sqrt(size(q))),
        ),
        Slip(
            SEEN + "every product has two factors, and each of them brings its own standard deviation.",
            scores_over(lambda q, k, std: std * math.sqrt(size(q))),
        ),
        Slip(
            SEEN + "you divided by the variance of a score; its root is needed.",
            scores_over(lambda q, k, std: std**4 * size(q)),
        ),
        Slip(
            SEEN + "the root covers d alone; the standard deviations stand in the variance, too.",
            scores_over(lambda q, k, std: std**4 * math.sqrt(size(q))),
        ),
        Slip(
            SEEN + "under the root stands std where the variance of one product belongs.",
            scores_over(lambda q, k, std: math.sqrt(std * size(q))),
        ),
        Slip(
            SEEN + "divided by d where √d is needed: a sum of d products grows as √d.",
            scores_over(lambda q, k, std: std**2 * size(q)),
        ),
        Slip(SEEN + "the size of the vectors has no say in it.", scores_over(lambda q, k, std: std**2)),
        Slip(
            SEEN + "you multiplied by what you should divide by.",
            scores_over(lambda q, k, std: 1 / (std**2 * math.sqrt(size(q)))),
        ),
        Slip(
            SEEN + "you took the number of queries for d; d is the size of one vector.",
            scores_over(lambda q, k, std: std**2 * math.sqrt(q.shape[1])),
        ),
        Slip(
            SEEN + "you took the number of keys for d; d is the size of one vector.",
            scores_over(lambda q, k, std: std**2 * math.sqrt(k.shape[1])),
        ),
        Slip(
            "the scores must have shape {right}, a row for each query; yours have {got}, a row for each key.",
            lambda q, k, std: right_scores(q, k, std).mT,
        ),
    ]
    trials = [
        (0.5 * torch.randn(2, 3, 5), 0.5 * torch.randn(2, 4, 5), 0.5),
        (3 * torch.randn(3, 2, 7), 3 * torch.randn(3, 6, 7), 3.0),
    ]
    compare(function, right_scores, trials, slips)
    return "d products with two factors each: the score's standard deviation is std²·√d, and now it is 1."


def size(vectors: Tensor) -> int:
    """d, the size of one vector."""
    return vectors.shape[-1]


def scores_over(divisor: Callable[[Tensor, Tensor, float], float]) -> Callable[..., Tensor]:
    """Scores divided by what ``divisor`` says."""
    return lambda queries, keys, std: queries @ keys.mT / divisor(queries, keys, std)


right_scores = scores_over(lambda queries, keys, std: std**2 * math.sqrt(size(queries)))


@check
def masked_softmax_1d(function: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Softmax over the valid keys, with one length, at least 1, for each example; padding gets 0 at any scores.

    Args:
        function: ``masked_softmax_1d(scores, valid_lens)``, where scores (batch, num_queries, num_keys) and
            valid_lens (batch,) → weights of the shape of scores.

    Source: d2l 11.3.2.
    """
    # With as many queries as examples a length taken for a row's raises nothing, so this mistake can be told.
    as_many_queries_as_examples = [
        (torch.randn(2, 2, 5), torch.tensor([2, 4])),
        (torch.randn(3, 3, 6), torch.tensor([5, 2, 3])),
    ]
    seen = seen_with(*as_many_queries_as_examples[0])
    in_turn = Slip(
        seen + "the rows of an example have different lengths; all of them share the example's one length.",
        lambda scores, lengths: masked_softmax(scores, lengths.repeat(scores.shape[1]).reshape(scores.shape[:2])),
    )
    compare(function, masked_softmax, as_many_queries_as_examples, [in_turn, *mask_slips(seen)])
    any_sizes = [
        (torch.randn(2, 3, 4), torch.tensor([1, 3])),
        (torch.randn(3, 2, 5), torch.tensor([4, 1, 5])),
        (torch.randn(2, 4, 3), torch.tensor([3, 2])),
    ]
    compare(function, masked_softmax, any_sizes, [])
    check_far_scores(function, any_sizes)
    return "padding gets exactly 0, every row sums to 1, and each example has its own length."


@check
def masked_softmax_2d(function: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Softmax over the valid keys, with a length for each query; 0 throughout for a query whose length is 0.

    The gradient of the scores must be finite, too.

    Args:
        function: ``masked_softmax_2d(scores, valid_lens)``, where scores (batch, num_queries, num_keys) and
            valid_lens (batch, num_queries) → weights of the shape of scores.

    Source: d2l 11.3.2, which gives a query without a valid key equal weights.
    """
    # With as many queries as keys, lengths along the wrong axis raise nothing, so this mistake can be told.
    as_many_queries_as_keys = [
        (torch.randn(2, 4, 4), torch.tensor([[3, 2, 3, 2], [2, 2, 3, 3]])),
        (torch.randn(3, 5, 5), torch.tensor([[4, 2, 3, 2, 3], [2, 4, 4, 3, 4], [3, 3, 2, 4, 2]])),
    ]
    seen = seen_with(*as_many_queries_as_keys[0])
    slips = [
        Slip(
            seen + "all queries of an example share one length, the first; here each has its own.",
            lambda scores, lengths: masked_softmax(scores, lengths[:, 0]),
        ),
        Slip(
            seen + "key number j was held against the length of query number j; a row has one length for all its keys.",
            lambda scores, lengths: masked_by(scores, torch.arange(scores.shape[-1]) < lengths[:, None, :]),
        ),
        *mask_slips(seen),
    ]
    compare(function, masked_softmax, as_many_queries_as_keys, slips)
    with_empty_rows = [
        (torch.randn(2, 3, 4), torch.tensor([[2, 0, 4], [1, 3, 0]])),
        (torch.randn(3, 2, 5), torch.tensor([[5, 1], [0, 0], [3, 0]])),
    ]
    compare(function, masked_softmax, with_empty_rows, empty_row_slips(seen_with(*with_empty_rows[0])))
    check_gradient(function, *with_empty_rows[0])
    check_far_scores(function, with_empty_rows)
    return "a query that may look at nothing gets nothing, and no NaN, in the gradient either."


def check_far_scores(function: Callable[[Tensor, Tensor], Tensor], trials: list[tuple[Tensor, Tensor]]) -> None:
    """Do nothing if the weights are right at high and at low scores, too, and where padding alone scores high.

    Raises:
        MistakeError: they are not, at scores of which the message says how high they are.
    """
    for shift, where in SHIFTS.items():
        check_weights(function, [(scores + shift, lengths) for scores, lengths in trials], where)
    high = [(torch.where(valid_scores(*trial), trial[0], trial[0] + 30), trial[1]) for trial in trials]
    check_weights(function, high, " where padding scores 30 higher than valid keys do")


def check_weights(function: Callable, trials: list[tuple[Tensor, Tensor]], where: str) -> None:
    """Do nothing if all weights are right; ``where`` says at which scores.

    Raises:
        MistakeError: some are not.
    """
    for weights, (scores, lengths) in zip(call_all(function, trials), trials, strict=True):
        padding = ((weights > 0) & ~valid_scores(scores, lengths)).nonzero()
        if len(padding):
            place = padding[0].tolist()
            raise MistakeError(
                f"with valid_lens {lengths.tolist()}, padding at {place} gets {weights[tuple(place)].item():.3g} "
                f"instead of exactly 0{where}: does a number take the place of a score that a score can be "
                "lower than?"
            )
        right = masked_softmax(scores, lengths)
        if (place := first_difference(weights, right)) is not None:
            wrong, needed = numbers_at(place, weights, right)
            raise MistakeError(
                f"with valid_lens {lengths.tolist()}, place {place} holds {wrong} instead of {needed}{where}, "
                "although the softmax asks only for differences between scores: does a power overflow, or vanish, on "
                "the way?"
            )


def seen_with(scores: Tensor, valid_lens: Tensor) -> str:
    """How a message begins that shows the first of several trials."""
    lengths = f"scores of shape {tuple(scores.shape)} and valid_lens {valid_lens.tolist()}"
    return f"with {lengths}, place {{place}} holds {{got}} instead of {{right}}: "


def valid_scores(scores: Tensor, valid_lens: Tensor) -> Tensor:
    """The mask of valid keys, (batch, 1 or num_queries, num_keys)."""
    return valid_keys(valid_lens, scores.shape[-1])


def masked_by(scores: Tensor, valid: Tensor, fill: float = -math.inf, dim: int = -1) -> Tensor:
    """Softmax of the scores with all that is not valid filled; NaN where all is filled with −∞."""
    return torch.softmax(scores.masked_fill(~valid, fill), dim=dim)


def mask_slips(seen: str) -> list[Slip]:
    """What goes wrong with a mask, for lengths (batch,) or (batch, num_queries), from 2 to one less than the keys."""
    queries = seen + "columns sum to 1, rows do not: you normalised over the queries."
    examples = seen + "you normalised over the examples of the batch, which have nothing to do with each other."
    return [
        Slip(seen + "nothing is masked.", lambda scores, lengths: over_keys(scores)),
        Slip(
            seen + "masked scores became 0, and exp(0) = 1, so padding keeps real weight.",
            lambda scores, lengths: masked_by(scores, valid_scores(scores, lengths), fill=0.0),
        ),
        Slip(
            seen + "the mask came after the softmax, so what is left of a row does not sum to 1.",
            lambda scores, lengths: torch.softmax(scores, dim=-1) * valid_scores(scores, lengths),
        ),
        Slip(
            seen + "the mask is upside down: the weight is on the padding, and on nothing else.",
            lambda scores, lengths: masked_by(scores, ~valid_scores(scores, lengths)),
        ),
        Slip(
            seen + "one key too many takes part; keys are counted from 0.",
            lambda scores, lengths: masked_softmax(scores, lengths + 1),
        ),
        Slip(
            seen + "one key too few takes part; keys are counted from 0.",
            lambda scores, lengths: masked_softmax(scores, lengths - 1),
        ),
        *[Slip(queries, weights) for weights in along(-2)],
        *[Slip(examples, weights) for weights in along(0)],
    ]


def along(dim: int) -> list[Callable[[Tensor, Tensor], Tensor]]:
    """Masked softmax along an axis: as it is, NaN where a key counts for nobody, and with 0 in the place of NaN."""

    def weights(scores: Tensor, valid_lens: Tensor) -> Tensor:
        return masked_by(scores, valid_scores(scores, valid_lens), dim=dim)

    return [weights, lambda scores, valid_lens: weights(scores, valid_lens).nan_to_num(0)]


def empty_row_slips(seen: str) -> list[Slip]:
    """What goes wrong with a row that has no valid key, in an answer that masks well otherwise."""
    return [
        Slip(
            seen + "that query's length is 0, so its weights are 0 divided by 0.",
            lambda scores, lengths: masked_by(scores, valid_scores(scores, lengths)),
        ),
        Slip(
            seen
            + "that query's length is 0, yet all keys get equal weights, padding too, as if the masked scores were "
            "low, but equally low.",
            lambda scores, lengths: masked_by(scores, valid_scores(scores, lengths), fill=-1e6),
        ),
        Slip(
            seen + "that query's length is 0, yet it listens to all keys as if nothing were masked.",
            lambda scores, lengths: torch.where(
                (lengths == 0)[:, :, None], torch.softmax(scores, dim=-1), masked_softmax(scores, lengths)
            ),
        ),
        Slip(
            seen + "that query's length is 0, yet it listens to the first key.",
            lambda scores, lengths: masked_softmax(scores, lengths.clamp(min=1)),
        ),
    ]


def check_gradient(function: Callable[[Tensor, Tensor], Tensor], scores: Tensor, valid_lens: Tensor) -> None:
    """Do nothing if the gradient of the scores, through the function's weights, is finite.

    Raises:
        MistakeError: there is no gradient, or NaN in it, or something on its way was changed in place.
    """

    def checked(scores: Tensor, valid_lens: Tensor) -> Tensor:
        scores = scores.clone().requires_grad_()
        return gradient_of(function(scores, valid_lens), scores)

    (gradient,) = call_all(checked, [(scores, valid_lens)])
    if not gradient.isfinite().all():
        place = gradient.isfinite().logical_not().nonzero()[0].tolist()
        raise MistakeError(
            f"the weights are right, but the gradient of the scores holds NaN at {place}, where the length is 0. Does "
            "NaN arise on the way, and is replaced later?"
        )


def gradient_of(weights: Tensor, scores: Tensor) -> Tensor:
    """How the sum of squared weights changes with the scores.

    Raises:
        MistakeError: no gradient finds its way back.
    """
    if not weights.requires_grad:
        raise MistakeError(
            "the weights are right, but no gradient flows back from them to the scores: stay with tensors all the way."
        )
    try:
        return torch.autograd.grad(weights.square().sum(), scores)[0]
    except RuntimeError as error:
        reason = describe_error(error)
        raise MistakeError(f"the weights are right, but the gradient does not find its way back ({reason}).") from None


@check
def additive_attention(function: Callable[..., Tensor]) -> str:
    """Attention with the score w_vᵀ tanh(W_q q + W_k k), all keys valid.

    Args:
        function: ``additive_attention(queries, keys, values, W_q, W_k, w_v)``, where queries (batch, num_queries,
            query_size), keys (batch, num_keys, key_size), values (batch, num_keys, value_size), W_q (num_hiddens,
            query_size), W_k (num_hiddens, key_size), w_v (num_hiddens,) → (batch, num_queries, value_size).

    Source: D. Bahdanau, K. Cho, Y. Bengio, 2015, appendix A.1.2; d2l 11.3.3.
    """
    at = "place {place} holds {got} instead of {right}: "
    slips = [
        Slip(
            at + "all queries of an example get one and the same answer. The scores are right up to tanh: what does a "
            "row of them owe to its query, if nothing bends the sum?",
            additive(lambda q, k, w: (q + k) @ w),
        ),
        Slip(
            at + "all queries of an example get one and the same answer, by the bent keys alone. Does the query take "
            "part, and does it meet the key before tanh, or after?",
            additive(lambda q, k, w: (torch.tanh(q) + torch.tanh(k)) @ w),
        ),
        Slip(
            at + "tanh bends the finished score; it belongs before w_v.",
            additive(lambda q, k, w: torch.tanh((q + k) @ w)),
        ),
        Slip(
            at + "query and key are multiplied; in additive attention they are added.",
            additive(lambda q, k, w: torch.tanh(q * k) @ w),
        ),
        Slip(
            at + "the features are summed as they are; w_v has no say.",
            additive(lambda q, k, w: torch.tanh(q + k).sum(dim=-1)),
        ),
        Slip(
            at + "the key is taken away from the query; the two are added.",
            additive(lambda q, k, w: torch.tanh(q - k) @ w),
        ),
        Slip(
            at + "scores are divided by a root; tanh keeps them small already.",
            additive(lambda q, k, w: torch.tanh(q + k) @ w / math.sqrt(len(w))),
        ),
        Slip(
            at + "you normalised over the queries, so the weights of a query do not sum to 1.",
            additive(bent, weigh=lambda scores: torch.softmax(scores, dim=-2)),
        ),
        Slip(
            at + "you normalised over the examples of the batch, which have nothing to do with each other.",
            additive(bent, weigh=lambda scores: torch.softmax(scores, dim=0)),
        ),
        Slip(
            at + "the scores went into the average as they are; the softmax is missing.",
            additive(bent, weigh=lambda scores: scores),
        ),
    ]
    sizes = [(2, 3, 4, 5, 6, 7, 8), (3, 5, 2, 4, 3, 6, 1)]
    compare(function, additive(bent), [additive_trial(*numbers) for numbers in sizes], slips)
    return "queries and keys of different sizes meet, every pair in one table, and the values are averaged."


def additive_trial(batch_size, num_queries, num_keys, query_size, key_size, num_hiddens, value_size) -> tuple:
    """Random queries, keys, values, W_q, W_k, w_v."""
    queries, keys = torch.randn(batch_size, num_queries, query_size), torch.randn(batch_size, num_keys, key_size)
    W_q, W_k = torch.randn(num_hiddens, query_size), torch.randn(num_hiddens, key_size)
    return queries, keys, torch.randn(batch_size, num_keys, value_size), W_q, W_k, torch.randn(num_hiddens)


def bent(queries: Tensor, keys: Tensor, w_v: Tensor) -> Tensor:
    """The score of projected queries and keys."""
    return torch.tanh(queries + keys) @ w_v


def additive(score: Callable, weigh: Callable[[Tensor], Tensor] = over_keys) -> Callable[..., Tensor]:
    """Additive attention whose score, of projected queries and keys, and weights can be chosen."""

    def attention(queries: Tensor, keys: Tensor, values: Tensor, W_q: Tensor, W_k: Tensor, w_v: Tensor) -> Tensor:
        return weigh(score((queries @ W_q.T)[:, :, None], (keys @ W_k.T)[:, None], w_v)) @ values

    return attention


@check
def distance_weights(function: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Weights of the Gaussian kernel with σ = 1, softmax(−½‖q − k‖²), for a batch.

    Args:
        function: ``distance_weights(queries, keys)``, where queries (batch, num_queries, size), keys (batch,
            num_keys, size) → (batch, num_queries, num_keys).

    Source: section 1 of the notebook.
    """
    queries = SEEN + "columns sum to 1, rows do not: you normalised over the queries."
    slips = [
        Slip(
            SEEN + "these are the weights of the bare dot product: the lengths of the keys have no say. (A term that "
            "is the same for all keys of a row does not count.)",
            lambda q, k: over_keys(q @ k.mT),
        ),
        Slip(SEEN + "the keys' squared norm lacks its ½.", by_key_norm(lambda k: -(k**2).sum(dim=-1))),
        Slip(SEEN + "long keys gain where they should lose.", by_key_norm(half_square)),
        Slip(SEEN + "the keys' norm is not squared.", by_key_norm(lambda k: -k.norm(dim=-1) / 2)),
        Slip(
            SEEN + "all scores are twice what they should be; the ½ before the distance is missing.",
            lambda q, k: over_keys(2 * distance_scores(q, k)),
        ),
        Slip(SEEN + "the distance is not squared.", lambda q, k: over_keys(-(-2 * distance_scores(q, k)).sqrt() / 2)),
        Slip(
            SEEN + "the most distant keys get the most weight.",
            lambda q, k: over_keys(-distance_scores(q, k)),
        ),
        Slip(
            SEEN + "all scores are divided by √d, which belongs to the scaled dot product.",
            lambda q, k: over_keys(distance_scores(q, k) / math.sqrt(size(q))),
        ),
        Slip(
            SEEN + "the dot product alone is divided by √d, which belongs to the scaled dot product.",
            lambda q, k: over_keys(q @ k.mT / math.sqrt(size(q)) - half_square(k)[:, None]),
        ),
        Slip(queries, lambda q, k: torch.softmax(distance_scores(q, k), dim=-2)),
        Slip(queries, lambda q, k: torch.softmax(q @ k.mT - half_square(k)[:, None], dim=-2)),
        Slip(SEEN + "these are the scores; the softmax is missing.", distance_scores),
        Slip(
            SEEN + "these are the scores without the queries' norm; the softmax is missing.",
            lambda q, k: q @ k.mT - half_square(k)[:, None],
        ),
    ]
    trials = [(torch.randn(2, 3, 5), torch.randn(2, 4, 5)), (torch.randn(4, 2, 3), torch.randn(4, 6, 3))]
    compare(function, lambda q, k: over_keys(distance_scores(q, k)), trials, slips)
    return "a distance is a dot product in which long keys pay for their length."


def distance_scores(queries: Tensor, keys: Tensor) -> Tensor:
    """−½‖q − k‖² for every pair, from the differences themselves."""
    return -(queries[:, :, None] - keys[:, None]).square().sum(dim=-1) / 2


def half_square(vectors: Tensor) -> Tensor:
    """½‖k‖² of each vector."""
    return vectors.square().sum(dim=-1) / 2


def by_key_norm(term: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Softmax of the dot products plus a term of each key, (batch, num_keys)."""
    return lambda queries, keys: over_keys(queries @ keys.mT + term(keys)[:, None])
