"""Exercises of notebook 01: right answers pass, typical mistakes are named, others are not taken for them."""

import math

import numpy as np
import pytest
import torch
from judged import Answers

from mha_lib import KernelPooling, checks
from mha_lib.checks import pooling


def boxed(hours, sigma, hidden, fill=-math.inf, dim=1):
    """Softmax of Gaussian scores, filled where ``hidden``."""
    scores = -((hours.unsqueeze(1) - hours.unsqueeze(0)) ** 2) / 2 / sigma**2
    return scores.masked_fill(hidden, fill).softmax(dim=dim)


def apart(hours):
    return torch.cdist(hours[:, None], hours[:, None])


def effective_number_by_loop(attention_weights):
    return torch.stack([1 / sum(weight**2 for weight in row) for row in attention_weights])


def pooling_by_loops(queries, keys, values, sigma):
    output = torch.zeros(len(queries), values.shape[1])
    for i, query in enumerate(queries):
        heights = torch.stack([torch.exp(-((query - key) ** 2).sum() / (2 * sigma**2)) for key in keys])
        for height, value in zip(heights / heights.sum(), values, strict=True):
            output[i] += height * value
    return output


def pooling_by_layer(queries, keys, values, sigma):
    return KernelPooling(sigma)(queries[None], keys[None], values[None])[0].detach()


def pooled(queries, keys, values, scores):
    return torch.softmax(scores, dim=1) @ values


def hour_out_by_loop(hours, sigma):
    weights = torch.zeros(len(hours), len(hours))
    for i in range(len(hours)):
        heights = torch.exp(-((hours - hours[i]) ** 2) / (2 * sigma**2))
        heights[(hours - hours[i]).abs() <= 1] = 0
        weights[i] = heights / heights.sum()
    return weights


def hour_out_by_subsets(hours, sigma):
    weights = torch.zeros(len(hours), len(hours))
    for i in range(len(hours)):
        (others,) = torch.where((hours - hours[i]).abs() > 1)
        weights[i, others] = torch.softmax(-0.5 * ((hours[others] - hours[i]) / sigma) ** 2, dim=0)
    return weights


def hour_out_after_softmax(hours, sigma):
    """Masked after the softmax, but divided by the sum again."""
    weights = boxed(hours, sigma, torch.eye(len(hours)) > 1) * (apart(hours) > 1)
    return weights / weights.sum(dim=1, keepdim=True)


def heights(queries, keys, sigma):
    return torch.exp(-((queries[:, None] - keys[None]) ** 2) / (2 * sigma**2))


def line_by_least_squares(queries, keys, values, sigma, power=0.5, centre=True):
    """A fit for each query, its rows multiplied by a power of the weights."""
    answers = []
    for query, height in zip(queries, heights(queries, keys, sigma) ** power, strict=True):
        design = torch.stack([torch.ones_like(keys), keys - query if centre else keys], dim=1)
        answers.append(torch.linalg.lstsq(height[:, None] * design, (height * values)[:, None]).solution[0, 0])
    return torch.stack(answers)


def line_by_normal_equations(queries, keys, values, sigma):
    answers = torch.zeros(len(queries))
    for i, query in enumerate(queries):
        W = torch.diag(heights(queries, keys, sigma)[i])
        X = torch.stack([torch.ones(len(keys)), keys], dim=1)
        intercept, slope = torch.linalg.solve(X.T @ W @ X, X.T @ W @ values)
        answers[i] = intercept + slope * query
    return answers


def line_by_numpy(queries, keys, values, sigma):
    roots = heights(queries, keys, sigma).sqrt()
    fits = [np.polyfit(keys.double(), values.double(), 1, w=root.double()) for root in roots]
    lines = [np.polyval(fit, query) for fit, query in zip(fits, queries.tolist(), strict=True)]
    return torch.tensor(np.array(lines))


def line_by_means(queries, keys, values, sigma, slope_of=None, sign=1.0, origin=None, dim=1, sign_of_score=1):
    w = heights(queries, keys, sigma) ** sign_of_score
    w = w / w.sum(dim=dim, keepdim=True)
    mean_key, mean_value = w @ keys, w @ values
    x, y = keys - mean_key[:, None], values - mean_value[:, None]
    slope = slope_of(w, x, y, keys, values) if slope_of else (w * x * y).sum(1) / (w * x * x).sum(1)
    return mean_value + sign * slope * (queries - (mean_key if origin is None else origin))


def plain_slope(weights, keys, values):
    """Weighted sums around means that are not."""
    x, y = keys - keys.mean(), values - values.mean()
    return weights @ (x * y) / (weights @ x**2)


def whole_line(queries, keys, values):
    slope = ((keys - keys.mean()) * values).sum() / ((keys - keys.mean()) ** 2).sum()
    return values.mean() + slope * (queries - keys.mean())


EXERCISES = [
    Answers(
        checks.triangle,
        right=[
            lambda d: torch.relu(1 - d.abs() / 2),
            lambda d: torch.where(d.abs() < 2, 1 - 0.5 * d.abs(), 0.0),
            lambda d: torch.maximum(1 - torch.sqrt(d**2) / 2, torch.zeros_like(d)),
            lambda d: torch.tensor([max(0.0, 1 - abs(x) / 2) for x in d.flatten().tolist()]).reshape(d.shape),
        ],
        wrong={
            "goes on below 0": lambda d: 1 - d.abs() / 2,
            "rises again": lambda d: torch.abs(1 - torch.abs(d) / 2),
            "more similar than a key at distance 0": lambda d: torch.relu(1 - d / 2),
            "all get 1, however far": lambda d: torch.clamp(1 - d / 2, 0, 1),
            "down at one hour": lambda d: torch.relu(1 - d.abs()),
            "along a curve": lambda d: torch.relu(1 - d**2 / 4),
            "boxcar": lambda d: (d.abs() <= 2).float(),
            "at distance 0 it is not 1": lambda d: torch.relu(2 - d.abs()),
        },
        unlisted=[
            lambda d: torch.relu(1 - d.abs() / 2.01),
            lambda d: torch.exp(-(d**2) / 2),
            lambda d: 1 - d.abs() / 4,
            lambda d: torch.relu(1 - d / 2) + 0.001,
        ],
    ),
    Answers(
        checks.effective_number,
        right=[
            lambda w: 1 / (w**2).sum(dim=1),
            lambda w: torch.einsum("qk,qk->q", w, w).reciprocal(),
            lambda w: 1 / torch.diagonal(w @ w.T),
            effective_number_by_loop,
        ],
        wrong={
            "still to be turned over": lambda w: (w * w).sum(dim=1),
            "summed over the queries": lambda w: 1 / (w**2).sum(dim=0),
            "summed over all at once": lambda w: 1 / (w**2).sum(),
            "every row gives 1": lambda w: 1 / w.sum(dim=1) ** 2,
            "the root of what is asked for": lambda w: (w**2).sum(dim=1) ** -0.5,
            "took the mean": lambda w: 1 / (w**2).mean(dim=1),
            "entropy": lambda w: torch.distributions.Categorical(w).entropy().exp(),
            "counted the keys": lambda w: (w != 0).float().sum(dim=1),
            "largest weight only": lambda w: 1 / w.amax(dim=1),
        },
        unlisted=[
            lambda w: 1 / (w**3).sum(dim=1),
            lambda w: 1.01 / (w**2).sum(dim=1),
            lambda w: 1 / (w**2).sum(dim=1, keepdim=True),
            lambda w: 2 * (w**2).sum(dim=1),
        ],
    ),
    Answers(
        checks.gaussian_pooling,
        right=[
            pooling_by_loops,
            pooling_by_layer,
            lambda q, k, v, sigma: pooled(q, k, v, -(torch.cdist(q, k) ** 2) / 2 / sigma**2),
            lambda q, k, v, sigma: pooled(q, k, v, (q @ k.T - (k * k).sum(1) / 2) / sigma**2),
        ],
        wrong={
            "σ stands in the formula as a square": lambda q, k, v, s: pooled(
                q, k, v, -(torch.cdist(q, k) ** 2) / 2 / s
            ),
            "the 2 below the fraction bar": lambda q, k, v, s: pooled(q, k, v, -(torch.cdist(q, k) ** 2) / s**2),
            "σ is missing": lambda q, k, v, s: pooled(q, k, v, -(torch.cdist(q, k) ** 2) / 2),
            "look at the sign": lambda q, k, v, s: pooled(q, k, v, torch.cdist(q, k) ** 2 / (2 * s**2)),
            "where its square is needed": lambda q, k, v, s: pooled(q, k, v, -torch.cdist(q, k) / (2 * s**2)),
            "a distance sums them": lambda q, k, v, s: pooled(
                q, k, v, -((q[:, None] - k[None]) ** 2).mean(-1) / (2 * s**2)
            ),
            "normalised over the queries": lambda q, k, v, s: (
                torch.softmax(-(torch.cdist(q, k) ** 2) / (2 * s**2), dim=0) @ v
            ),
            "a wider σ makes the window narrower": lambda q, k, v, s: pooled(
                q, k, v, -(torch.cdist(q, k) ** 2) / 2 * s**2
            ),
            "summed the differences first": lambda q, k, v, s: pooled(
                q, k, v, -((q.sum(1)[:, None] - k.sum(1)) ** 2) / (2 * s**2)
            ),
            "not weights yet; each": lambda q, k, v, s: torch.exp(-(torch.cdist(q, k) ** 2) / (2 * s**2)) @ v,
            "averaged with the scores themselves": lambda q, k, v, s: -(torch.cdist(q, k) ** 2) / (2 * s**2) @ v,
        },
        unlisted=[
            lambda q, k, v, s: pooled(q, k, v, -(torch.cdist(q, k) ** 2) / 2 / s**3),
            lambda q, k, v, s: pooled(q, k, v, q @ k.T),
            lambda q, k, v, s: 1.001 * pooled(q, k, v, -(torch.cdist(q, k) ** 2) / 2 / s),
            lambda q, k, v, s: pooled(q, k, v, -(torch.cdist(q, k) ** 2) / 2 / s**2).T,
        ],
    ),
    Answers(
        checks.leave_hour_out,
        right=[
            hour_out_by_loop,
            hour_out_by_subsets,
            hour_out_after_softmax,
            lambda hours, sigma: boxed(hours, sigma, apart(hours) <= 1),
        ],
        wrong={
            "ignores itself alone": lambda hours, sigma: boxed(hours, sigma, torch.eye(len(hours)).bool()),
            "still looks at itself": lambda hours, sigma: boxed(
                hours, sigma, (apart(hours) <= 1) & ~torch.eye(len(hours)).bool()
            ),
            "exactly one hour apart": lambda hours, sigma: boxed(hours, sigma, apart(hours) < 1),
            "upside down": lambda hours, sigma: boxed(hours, sigma, apart(hours) > 1),
            "distances have a sign": lambda hours, sigma: boxed(hours, sigma, hours[:, None] - hours <= 1),
            "neighbours in the list": lambda hours, sigma: boxed(
                hours, sigma, torch.ones(len(hours), len(hours)).triu(-1).tril(1).bool()
            ),
            "became 0, and exp(0) = 1": lambda hours, sigma: boxed(hours, sigma, apart(hours) <= 1, fill=0.0),
            "does not sum to 1": lambda hours, sigma: boxed(hours, sigma, apart(hours) < 0) * (apart(hours) > 1),
            "nothing is left out": lambda hours, sigma: boxed(hours, sigma, apart(hours) < 0),
            "the 2 below the fraction bar": lambda hours, sigma: boxed(hours, sigma / 2**0.5, apart(hours) <= 1),
            "σ is missing": lambda hours, sigma: boxed(hours, 1, apart(hours) <= 1),
            "σ stands in the formula as a square": lambda hours, sigma: boxed(hours, sigma**0.5, apart(hours) <= 1),
            "a wider σ makes the window narrower": lambda hours, sigma: boxed(hours, 1 / sigma, apart(hours) <= 1),
            "look at the sign": lambda hours, sigma: (
                (apart(hours) ** 2 / (2 * sigma**2)).masked_fill(apart(hours) <= 1, -math.inf).softmax(1)
            ),
            "normalised over the queries": lambda hours, sigma: boxed(hours, sigma, apart(hours) <= 1, dim=0),
        },
        unlisted=[
            lambda hours, sigma: boxed(hours, sigma, apart(hours) <= 2),
            lambda hours, sigma: boxed(hours, sigma, apart(hours) <= 1, fill=0.001),
            lambda hours, sigma: boxed(hours, sigma**2, apart(hours) <= 1),
            lambda hours, sigma: boxed(hours, 2 * sigma, apart(hours) < 0),
            lambda hours, sigma: boxed(hours, 2 * sigma, apart(hours) <= 1),
        ],
    ),
    Answers(
        checks.local_line,
        right=[line_by_least_squares, line_by_normal_equations, line_by_numpy, line_by_means],
        wrong={
            "no slope in it": lambda q, k, v, s: heights(q, k, s) @ v / heights(q, k, s).sum(1),
            "at hour 0": lambda q, k, v, s: line_by_least_squares(q, k, v, s, centre=False),
            "pulls the wrong way": lambda q, k, v, s: line_by_means(q, k, v, s, sign=-1.0),
            "that of the line through all readings": lambda q, k, v, s: line_by_means(
                q,
                k,
                v,
                s,
                lambda w, x, y, keys, values: ((keys - keys.mean()) * values).sum() / keys.var() / (len(k) - 1),
            ),
            "one straight line": lambda q, k, v, s: whole_line(q, k, v),
            "through the origin": lambda q, k, v, s: line_by_means(
                q, k, v, s, lambda w, x, y, keys, values: w @ (keys * values) / (w @ keys.square())
            ),
            "spread of the values": lambda q, k, v, s: line_by_means(
                q, k, v, s, lambda w, x, y, keys, values: (w * x * y).sum(1) / (w * y * y).sum(1)
            ),
            "summed over queries and keys at once": lambda q, k, v, s: line_by_means(
                q, k, v, s, lambda w, x, y, keys, values: (w * x * y).sum() / (w * x * x).sum()
            ),
            "lack their weights": lambda q, k, v, s: line_by_means(
                q, k, v, s, lambda w, x, y, keys, values: (x * y).sum(1) / (x * x).sum(1)
            ),
            "both means are plain": lambda q, k, v, s: v.mean() + plain_slope(heights(q, k, s), k, v) * (q - k.mean()),
            "in the slope the means are plain": lambda q, k, v, s: line_by_means(
                q, k, v, s, lambda w, x, y, keys, values: plain_slope(w, keys, values)
            ),
            "from the plain average of the keys": lambda q, k, v, s: line_by_means(q, k, v, s, origin=k.mean()),
            "from hour 0": lambda q, k, v, s: line_by_means(q, k, v, s, origin=0),
            "normalised over the queries": lambda q, k, v, s: line_by_means(q, k, v, s, dim=0),
            "σ is missing": lambda q, k, v, s: line_by_least_squares(q, k, v, 1),
            "σ stands in the formula as a square": lambda q, k, v, s: line_by_least_squares(q, k, v, s**0.5),
            "a wider σ makes the window narrower": lambda q, k, v, s: line_by_means(q, k, v, 1 / s),
            "look at the sign of the score": lambda q, k, v, s: line_by_means(q, k, v, s, sign_of_score=-1),
            "as if each counted twice": lambda q, k, v, s: line_by_least_squares(q, k, v, s, power=1),
        },
        unlisted=[
            lambda q, k, v, s: line_by_means(q, k, v, 2 * s),
            lambda q, k, v, s: line_by_least_squares(q, k, v, s, power=2),
            lambda q, k, v, s: line_by_means(q, k, v, s, sign=0.5),
            lambda q, k, v, s: whole_line(q, k, v) + 0.001,
        ],
    ),
]


@pytest.mark.parametrize("mend", [torch.clone, torch.nan_to_num], ids=["NaN", "NaN replaced"])
@pytest.mark.parametrize("sign", [1, -1])
def test_signed_distances_are_named_either_way(sign, mend):
    signed = checks.leave_hour_out(lambda hours, sigma: mend(boxed(hours, sigma, sign * (hours[:, None] - hours) <= 1)))
    assert "distances have a sign" in signed.text


def test_a_local_line_whose_weights_lack_a_two_is_told_so():
    narrow = checks.local_line(lambda q, k, v, s: line_by_means(q, k, v, s / 2**0.5))
    assert "the 2 below the fraction bar is missing, or" in narrow.text


def test_the_place_in_a_message_is_one_that_is_wrong():
    text = checks.effective_number(lambda w: 1 / w.amax(dim=1)).text
    assert "shape (4, 6), place [0]" in text  # for the simple weights before it, the answer happens to be right


def test_what_is_said_of_a_right_local_line():
    """It meets readings on a straight line at the ends and beyond them, where pooling does not."""
    queries, keys = torch.tensor([-1.0, 0.0, 3.0, 7.0]), torch.arange(7.0)
    height = 2 - 0.5 * queries
    torch.testing.assert_close(pooling.line_by()(queries, keys, 2 - 0.5 * keys, 1.5), height)
    pooled = pooling.kernel_weights(queries, keys, 1.5) @ (2 - 0.5 * keys)
    assert (pooled - height).abs()[[0, -1]].min() > 0.5
