"""The exercise of notebook 01: attention pooling with a Gaussian kernel."""

import torch

from mha_course.checking.exercise import exercise


@exercise(
    trials=lambda: [
        (torch.randn(2, 3), torch.randn(4, 3), torch.randn(4, 5), 0.7),
        (torch.randn(6, 2), torch.randn(5, 2), torch.randn(5, 3), 1.8),
    ],
    praise="The weights of each query sum to 1. Queries, keys and values may have any size.",
    idea="Compute a score for every pair of query and key, turn the scores into weights, and average the values.",
    begin="Begin with the differences between every query and every key. One of the two needs a new axis of length 1.",
    mistakes="""
    2 * sigma -> sigma => The scores are twice as large as they should be. Check the factor beside σ².
    2 * sigma -> 4 * sigma => The scores are half as large as they should be. Check the factor beside σ², and what is
        squared.
    sigma**2 -> sigma => The weights change with σ, but not as fast as with σ². Check where σ is squared.
    * sigma**2 -> _ || / (2 * sigma**2) -> _ => The weights do not depend on σ. Check that the scores are divided by it.
    / (2 * sigma**2) -> / 2 * sigma**2 || / (2 * sigma**2) -> * (2 * sigma**2) || / (2 * sigma**2) -> * sigma**2 => A
        larger σ makes the window narrower. Check that σ² divides the distance: `a / b * c` multiplies by `c`.
    / (2 * sigma**2) -> / (2 * sigma**2) / queries.shape[1] ** 0.5 => The scores are also divided by √d. Here they are
        divided by 2σ² only.
    -distances -> distances => The most distant keys get the largest weights. Check the sign of the scores.
    -distances -> $.sqrt() => The scores hold the distance instead of its square.
    square().sum(dim=2) -> abs().sum(dim=2) => The scores hold a sum of absolute differences. Check what is squared.
    square().sum(dim=2) -> abs().sum(dim=2).square() || square().sum(dim=2) -> sum(dim=2).square() => The differences
        within a vector are summed first, and then squared. Check the order of the square and the sum.
    sum -> mean => The squared differences are averaged over the entries of a vector. A squared distance is their sum.
    dim=1 -> dim=0 => The weights of each key sum to 1, and those of a query do not. Check the axis of the softmax.
    torch.softmax(scores, dim=1) -> scores.flatten().softmax(dim=0).view_as(scores) => All weights of the matrix
        together sum to 1. Each query needs weights that sum to 1.
    softmax(scores, dim=1) -> exp(scores) || torch.softmax(scores, dim=1) -> (torch.exp(scores) / sigma) ||
        torch.softmax(scores, dim=1) -> (torch.exp(scores) / (sigma * (2 * torch.pi) ** 0.5)) => The weights of a query
        do not sum to 1. Check what follows the exponential.
    torch.softmax(scores, dim=1) -> torch.nn.functional.one_hot(scores.argmax(dim=1), len(keys)).float() => Every query
        gets the value of its nearest key. All keys contribute, near ones more.
    torch.softmax(scores, dim=1) -> scores => The values are averaged with the scores themselves. Check how scores
        become weights.
    torch.softmax(scores, dim=1) -> (torch.softmax(scores, dim=1) / len(keys)) => The weights of a query sum to 1
        divided by the number of keys. Check that the average divides only once.
    @ values -> _ => The attention weights are returned. Check where the values are averaged.
    @ values -> @ keys => The keys are averaged instead of the values.
    -distances / (2 * sigma**2) -> queries @ keys.T / sigma**2 || queries @ keys.T / (2 * sigma**2) || queries @ keys.T
        || queries @ keys.T / sigma => The scores are dot products. Check that they hold the squared distance.
    -distances / (2 * sigma**2) -> torch.exp($) => The exponential is taken twice. Check whether the softmax already
        contains it.
    -distances / (2 * sigma**2) -> 0 * distances => Every query gets the plain average of the values. Check that the
        weights depend on the distance.
    """,
)
def gaussian_pooling(queries, keys, values, sigma):
    """Return Nadaraya–Watson attention pooling: for each query, the values averaged with Gaussian kernel weights.

    queries (n, d), keys (m, d), values (m, v), sigma a number → outputs (n, v).
    Source: d2l 11.2.2.
    """
    distances = (queries[:, None] - keys).square().sum(dim=2)  # (n, m, d) -> (n, m)
    scores = -distances / (2 * sigma**2)
    return torch.softmax(scores, dim=1) @ values  # (n, m) @ (m, v) -> (n, v)
