"""Checks of the exercises of notebook 01: kernels, weights, and what they pool."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mha_lib.checks.compare import SEEN, Slip, compare
from mha_lib.checks.verdict import check

HALF_WIDTH = 2.0  # hours at which the triangle kernel has come down to 0
GAP = 1.0  # hours; readings this near, or nearer, are left out
WRONG_SCORES = {  # of a squared distance and σ
    "the 2 below the fraction bar is missing.": lambda s, sigma: -s / sigma**2,
    "σ stands in the formula as a square.": lambda s, sigma: -s / (2 * sigma),
    "the width has no say in it; σ is missing.": lambda s, sigma: -s / 2,
    "a wider σ makes the window narrower here; does σ² stand below the fraction bar?": lambda s, sigma: (
        -s / 2 * sigma**2
    ),
    "the most distant keys get the most weight; look at the sign of the score.": lambda s, sigma: s / (2 * sigma**2),
}


@check
def triangle(function: Callable[[Tensor], Tensor]) -> str:
    """A kernel that falls in a straight line from 1 at distance 0 to 0 at two hours, and stays 0 beyond.

    Args:
        function: ``triangle(distance)``, similarities of the shape of ``distance`` (hours, of either sign).

    Source: d2l 11.2.1, where such a kernel, one wide, goes by the name of Epanechikov.
    """
    distances = torch.tensor([-3.0, -1.0, 0.0, 0.5, 2.5])
    seen = f"for the distances {distances.tolist()} place {{place}} holds {{got}} instead of {{right}}: "
    slips = [
        Slip(seen + "beyond two hours the line goes on below 0; stop it there.", lambda u: 1 - u.abs() / HALF_WIDTH),
        Slip(seen + "beyond two hours the similarity rises again.", lambda u: (1 - u.abs() / HALF_WIDTH).abs()),
        Slip(
            seen + "keys on one side come out more similar than a key at distance 0; distances have a sign.",
            lambda u: (1 - u / HALF_WIDTH).clamp(min=0),
        ),
        Slip(
            seen + "keys on one side all get 1, however far they are; distances have a sign.",
            lambda u: (1 - u / HALF_WIDTH).clamp(0, 1),
        ),
        Slip(seen + "this line is down at one hour, not at two.", lambda u: (1 - u.abs()).clamp(min=0)),
        Slip(
            seen + "this falls along a curve, as the square of the distance does, not in a straight line.",
            lambda u: (1 - (u / HALF_WIDTH) ** 2).clamp(min=0),
        ),
        Slip(seen + "this is a boxcar: it does not fall at all inside.", lambda u: (u.abs() <= HALF_WIDTH).float()),
        Slip(seen + "at distance 0 it is not 1; divide by the two hours.", lambda u: (2 - u.abs()).clamp(min=0)),
    ]
    compare(
        function, lambda u: (1 - u.abs() / HALF_WIDTH).clamp(min=0), [(distances,), (3 * torch.randn(3, 7),)], slips
    )
    return "1 at the query, less with every minute, nothing from two hours on, the same before and after."


@check
def effective_number(function: Callable[[Tensor], Tensor]) -> str:
    """How many keys each query listens to: 1 / Σᵢ αᵢ², its weights being α.

    Args:
        function: ``effective_number(attention_weights)``, (num_queries, num_keys) → (num_queries,).

    Source: L. Kish, Survey Sampling, 1965 (the effective size of a weighted sample).
    """
    simple = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    trials = [(simple,), (torch.softmax(2 * torch.randn(4, 6), dim=1),), (torch.softmax(torch.randn(5, 3), dim=1),)]
    slips = [
        Slip(
            SEEN + "this grows when few keys are heard; it is the sum of squares itself, still to be turned over.",
            lambda w: w.square().sum(dim=1),
        ),
        Slip(
            "there must be one number for each query, shape {right}, yours has {got}: you summed over the queries.",
            lambda w: 1 / w.square().sum(dim=0),
        ),
        Slip(
            "there must be one number for each query, shape {right}, yours has {got}: you summed over all at once.",
            lambda w: 1 / w.square().sum(),
        ),
        Slip(
            SEEN + "every row gives 1, whatever it holds. Is a sum squared that is 1 already, or the squares summed?",
            lambda w: 1 / w.sum(dim=1).square(),
        ),
        Slip(SEEN + "it is the root of what is asked for.", lambda w: 1 / w.norm(dim=1)),
        Slip(
            SEEN + "you took the mean of the squares, so it grows with the number of keys in the table.",
            lambda w: 1 / w.square().mean(dim=1),
        ),
        Slip(
            SEEN + "this is the exponential of the entropy, another way to count; here squares are asked for.",
            lambda w: torch.exp(-torch.xlogy(w, w).sum(dim=1)),
        ),
        Slip(
            SEEN + "you counted the keys with any weight; a key with hardly any should hardly count.",
            lambda w: (w > 0).sum(dim=1).float(),
        ),
        Slip(SEEN + "you looked at the largest weight only.", lambda w: 1 / w.max(dim=1).values),
    ]
    compare(function, lambda w: 1 / w.square().sum(dim=1), trials, slips)
    return "n equal weights count as n keys, a single weight as 1, and everything else lies between."


@check
def gaussian_pooling(function: Callable[..., Tensor]) -> str:
    """Nadaraya–Watson pooling with a Gaussian kernel, of queries and keys that are vectors.

    Args:
        function: ``gaussian_pooling(queries, keys, values, sigma)``, where queries (num_queries, size), keys
            (num_keys, size), values (num_keys, value_size) → (num_queries, value_size).

    Source: d2l 11.2.2.
    """
    slips = [
        *[Slip(SEEN + text, pooling_by(score)) for text, score in WRONG_SCORES.items()],
        Slip(
            SEEN + "you used the distance where its square is needed.",
            pooling_by(lambda s, sigma: -s.sqrt() / (2 * sigma**2)),
        ),
        Slip(
            SEEN + "you averaged the squared differences over the entries of a vector; a distance sums them.",
            pooling_by(gaussian_score, lambda q, k: (q[:, None] - k).square().mean(dim=2)),
        ),
        Slip(
            SEEN + "you summed the differences first and squared the sum; it is the squares that are summed.",
            pooling_by(gaussian_score, lambda q, k: (q[:, None] - k).sum(dim=2).square()),
        ),
        Slip(
            SEEN + "the weights of a query do not sum to 1, those of a key do: you normalised over the queries.",
            pooling_by(gaussian_score, weigh=lambda scores: torch.softmax(scores, dim=0)),
        ),
        Slip(
            SEEN + "the heights of the kernel are not weights yet; each query's must sum to 1.",
            pooling_by(gaussian_score, weigh=torch.exp),
        ),
        Slip(
            SEEN + "you averaged with the scores themselves; they are not weights yet.",
            pooling_by(gaussian_score, weigh=lambda scores: scores),
        ),
    ]
    trials = [
        (torch.randn(2, 3), torch.randn(4, 3), torch.randn(4, 5), 0.7),
        (torch.randn(6, 2), torch.randn(5, 2), torch.randn(5, 3), 1.8),
    ]
    compare(function, pooling_by(gaussian_score), trials, slips)
    return "keys and values of any size can be pooled; nothing in the formula asks for single numbers."


def gaussian_score(squared_distance: Tensor, sigma: float) -> Tensor:
    """The logarithm of a Gaussian kernel's height."""
    return -squared_distance / (2 * sigma**2)


def squared_distances(queries: Tensor, keys: Tensor) -> Tensor:
    """(num_queries, num_keys), from vectors."""
    return (queries[:, None] - keys).square().sum(dim=2)


def over_keys(scores: Tensor) -> Tensor:
    """Softmax over the keys, the last axis."""
    return torch.softmax(scores, dim=-1)


def pooling_by(
    score: Callable[[Tensor, float], Tensor], compare_vectors: Callable = squared_distances, weigh: Callable = over_keys
) -> Callable[..., Tensor]:
    """Pooling of values whose three steps can be chosen: distance, score, weights."""
    return lambda queries, keys, values, sigma: weigh(score(compare_vectors(queries, keys), sigma)) @ values


@check
def leave_hour_out(function: Callable[..., Tensor]) -> str:
    """Weights of readings on one another, where readings at most an hour apart do not look at each other.

    Args:
        function: ``leave_hour_out(hours, sigma)``, where hours (num_readings,) → weights (num_readings,
            num_readings), a row for each reading as a query. The scores are those of a Gaussian kernel.

    Source: d2l, first edition, 10.2.4 leaves out the reading itself; a gap around it is usual for data in time,
    as in P. Burman, E. Chow, D. Nolan, A cross-validatory method for dependent data, Biometrika 81, 1994.
    """
    hours = torch.tensor([0.0, 1.0, 2.5, 4.0, 7.0])
    seen = f"for readings at the hours {hours.tolist()} place {{place}} holds {{got}} instead of {{right}}: "
    slips = [
        Slip(seen + "nothing is left out.", lambda hours, sigma: over_keys(hour_scores(hours, sigma))),
        *[Slip(seen + text, masked_by(within_gap, score)) for text, score in WRONG_SCORES.items()],
        Slip(
            seen + "a reading ignores itself alone; its neighbours within the hour still have a say.",
            masked_by(lambda apart: apart == 0),
        ),
        Slip(
            seen + "a reading still looks at itself; it is within the hour, too.",
            masked_by(lambda apart: (apart.abs() <= GAP) & (apart != 0)),
        ),
        Slip(
            seen + "readings exactly one hour apart look at each other; they must not.",
            masked_by(lambda apart: apart.abs() < GAP),
        ),
        Slip(
            seen + "the mask is upside down: readings look at those within the hour, and at no other.",
            masked_by(lambda apart: apart.abs() > GAP),
        ),
        *both_signs(seen + "distances have a sign: all readings on one side of the query are gone, however far."),
        Slip(
            seen + "you left out neighbours in the list; what counts is how many hours lie between.",
            lambda hours, sigma: over_keys(hour_scores(hours, sigma).masked_fill(near_in_list(hours), -math.inf)),
        ),
        Slip(
            seen + "masked scores became 0, and exp(0) = 1, so the readings left out keep real weight.",
            lambda hours, sigma: over_keys(hour_scores(hours, sigma).masked_fill(near(hours), 0.0)),
        ),
        Slip(
            seen + "the mask came after the softmax, so what is left of a row does not sum to 1.",
            lambda hours, sigma: over_keys(hour_scores(hours, sigma)).masked_fill(near(hours), 0.0),
        ),
        Slip(
            seen + "columns sum to 1, rows do not: you normalised over the queries.",
            lambda hours, sigma: left_out(hours, sigma).T,
        ),
    ]
    trials = [(hours, 2.0), (12 * torch.rand(7), 1.5), (24 * torch.rand(11), 5.0)]
    compare(function, left_out, trials, slips)
    return "nothing within the hour is heard, exactly one hour included, and every row still sums to 1."


def hour_scores(hours: Tensor, sigma: float) -> Tensor:
    """Gaussian scores of readings with one another, (num_readings, num_readings)."""
    return gaussian_score((hours[:, None] - hours) ** 2, sigma)


def within_gap(apart: Tensor) -> Tensor:
    """Which distances, in hours of either sign, are too small."""
    return apart.abs() <= GAP


def near(hours: Tensor) -> Tensor:
    """Which readings are at most the gap apart."""
    return within_gap(hours[:, None] - hours)


def near_in_list(hours: Tensor) -> Tensor:
    """Which readings stand side by side in the list."""
    numbers = torch.arange(len(hours))
    return (numbers[:, None] - numbers).abs() <= 1


def masked_by(
    hidden: Callable[[Tensor], Tensor], score: Callable[[Tensor, float], Tensor] = gaussian_score
) -> Callable[..., Tensor]:
    """Weights where ``hidden`` says, of the hours from key to query, which pairs are masked."""

    def weights(hours: Tensor, sigma: float) -> Tensor:
        apart = hours[:, None] - hours
        return over_keys(score(apart**2, sigma).masked_fill(hidden(apart), -math.inf))

    return weights


left_out = masked_by(within_gap)


def both_signs(text: str) -> list[Slip]:
    """A distance taken with its sign, in either direction; rows that are left empty become NaN, or 0 if mended."""
    signed = [masked_by(lambda apart: apart <= GAP), masked_by(lambda apart: -apart <= GAP)]
    mended = [lambda *arguments, weights=weights: weights(*arguments).nan_to_num(0) for weights in signed]
    return [Slip(text, imitation) for imitation in signed + mended]


@check
def local_line(function: Callable[..., Tensor]) -> str:
    """For each query the weighted least-squares line through the readings, read off at the query.

    Args:
        function: ``local_line(queries, keys, values, sigma)``, where queries (num_queries,), keys and values
            (num_keys,) → (num_queries,). The weights are those of a Gaussian kernel.

    Source: W. S. Cleveland, Robust locally weighted regression and smoothing scatterplots, 1979; T. Hastie,
    R. Tibshirani, J. Friedman, The Elements of Statistical Learning, section 6.1.1.
    """
    slips = [
        Slip(
            SEEN + "this is the weighted average; there is no slope in it.",
            lambda q, k, v, sigma: kernel_weights(q, k, sigma) @ v,
        ),
        Slip(
            SEEN + "this is the line's height at hour 0; read it off at the query.",
            line_by(at=lambda q: torch.zeros_like(q)),
        ),
        Slip(
            SEEN + "the slope pulls the wrong way; look at the sign of the distance from the weighted mean.",
            line_by(slope=lambda *parts: -weighted_slope(*parts)),
        ),
        Slip(
            SEEN + "all queries share one slope, that of the line through all readings; weigh the sums in it, too.",
            line_by(slope=lambda w, k, v: weighted_slope(torch.full_like(w, 1 / len(k)), k, v)),
        ),
        Slip(
            SEEN + "all queries share one slope, since you summed over queries and keys at once; sum for each query.",
            line_by(slope=lambda w, k, v: slope_around(w, k, v, (w @ k)[:, None], (w @ v)[:, None], over=(0, 1))),
        ),
        Slip(
            SEEN + "the sums in the slope lack their weights.",
            line_by(slope=lambda w, k, v: slope_around(torch.ones_like(w), k, v, (w @ k)[:, None], (w @ v)[:, None])),
        ),
        Slip(
            SEEN + "both means are plain averages of all readings; each query has weighted means of its own.",
            lambda q, k, v, sigma: (
                v.mean() + slope_around(kernel_weights(q, k, sigma), k, v, k.mean(), v.mean()) * (q - k.mean())
            ),
        ),
        Slip(
            SEEN + "in the slope the means are plain averages; each query has weighted means of its own.",
            line_by(slope=lambda w, k, v: slope_around(w, k, v, k.mean(), v.mean())),
        ),
        Slip(
            SEEN + "the query is measured from the plain average of the keys; it has a weighted mean of its own.",
            line_by(origin=lambda w, k: k.mean()),
        ),
        Slip(
            SEEN + "the query is measured from hour 0; measure it from the weighted mean of the keys.",
            line_by(origin=lambda w, k: 0),
        ),
        Slip(
            SEEN + "the weights of a query do not sum to 1, those of a key do: you normalised over the queries.",
            line_by(weights=lambda q, k, sigma: torch.softmax(gaussian_score((q[:, None] - k) ** 2, sigma), dim=0)),
        ),
        Slip(
            SEEN + "this is one straight line for the whole day; the weights have no say in it.",
            line_by(weights=lambda q, k, sigma: torch.full((len(q), len(k)), 1 / len(k))),
        ),
        Slip(
            SEEN + "the slope is that of a line through the origin; measure from the weighted means.",
            line_by(slope=lambda w, k, v: (w @ (k * v)) / (w @ k**2)),
        ),
        Slip(
            SEEN + "the slope is divided by the spread of the values; it is the keys' that belongs there.",
            line_by(slope=lambda w, k, v: weighted_slope(w, k, v) * spread(w, k) / spread(w, v)),
        ),
        Slip(
            SEEN + "the weights fall as if each counted twice: the 2 below the fraction bar is missing, or you "
            "multiplied both sides of a least-squares fit by the weights, and its squares hold them squared.",
            line_by(weights=lambda q, k, sigma: kernel_weights(q, k, sigma / math.sqrt(2))),
        ),
        *[
            Slip(SEEN + text, line_by(weights=lambda q, k, sigma, score=score: kernel_weights(q, k, sigma, score)))
            for text, score in WRONG_SCORES.items()
        ],
    ]
    trials = [
        (torch.tensor([1.0, 4.0, 6.5]), 6 * torch.rand(5), torch.randn(5), 1.5),
        (6 * torch.rand(4), 6 * torch.rand(9), 1 + torch.randn(9), 0.8),
    ]
    compare(function, line_by(), trials, slips)
    return "readings that lie on a straight line are now met exactly, even at the ends and beyond them."


def kernel_weights(
    queries: Tensor, keys: Tensor, sigma: float, score: Callable[[Tensor, float], Tensor] = gaussian_score
) -> Tensor:
    """(num_queries, num_keys)."""
    return over_keys(score((queries[:, None] - keys) ** 2, sigma))


def spread(weights: Tensor, numbers: Tensor) -> Tensor:
    """Weighted variance of some numbers, for each row of weights."""
    means = weights @ numbers
    return (weights * (numbers - means[:, None]) ** 2).sum(dim=1)


def weighted_slope(weights: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Slope of the weighted least-squares line, for each row of weights."""
    return slope_around(weights, keys, values, (weights @ keys)[:, None], (weights @ values)[:, None])


def slope_around(
    weights: Tensor, keys: Tensor, values: Tensor, mean_key: Tensor, mean_value: Tensor, over: tuple[int, ...] = (1,)
) -> Tensor:
    """A slope whose means, and the axes that its sums run over, can be chosen."""
    from_key, from_value = keys - mean_key, values - mean_value
    return (weights * from_key * from_value).sum(dim=over) / (weights * from_key**2).sum(dim=over)


def line_by(
    weights: Callable = kernel_weights,
    slope: Callable = weighted_slope,
    at: Callable[[Tensor], Tensor] = lambda q: q,
    origin: Callable[[Tensor, Tensor], Tensor] = lambda w, k: w @ k,
) -> Callable[..., Tensor]:
    """Local lines whose steps can be chosen: weights, slope, where the line is read off, whence that is measured."""

    def line(queries: Tensor, keys: Tensor, values: Tensor, sigma: float) -> Tensor:
        w = weights(queries, keys, sigma)
        return w @ values + slope(w, keys, values) * (at(queries) - origin(w, keys))

    return line
