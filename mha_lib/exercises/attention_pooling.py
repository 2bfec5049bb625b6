"""The exercises of notebook 01: kernels, weights, and what they pool."""

import torch

from mha_lib.exercises.exercise import exercise

WIDTH = """
    2 * sigma → sigma ⇒ The weights fall twice as fast as they should in the squared distance: what stands below the
        fraction bar?
    sigma**2 → sigma ⇒ The weights change with σ otherwise than its square would have it. Is σ squared?
    * sigma**2 → ∅ ⇒ The width has no say in the result. Where is σ?
    / (2 * sigma**2) → / 2 * sigma**2 ⇒ A wider σ makes the window narrower here. On which side of the fraction bar is
        σ²?
    -distances → distances ⇒ The most distant keys get the most weight. What is the sign of the score?
    -distances → -distances.sqrt() ⇒ The score falls with the distance, not with its square.
    / (2 * sigma**2) → ∅ ⇒ The width has no say, nor has any factor: the score is the bare squared distance.
    (2 * sigma**2) → (2 * sigma) ** 2 ⇒ The square is taken of 2σ, not of σ alone.
    """
OVER_QUERIES = "The weights of a key sum to 1, those of a query do not. Over what do you normalise?"
NOT_WEIGHTS = "These weights are no average's: their rows do not sum to 1. Are heights of the kernel weights already?"


@exercise(
    trials=lambda: [(torch.tensor([-3.0, -1.0, 0.0, 0.5, 2.5]),), (3 * torch.randn(3, 7),)],
    praise="1 at the query, less with every minute, nothing from two hours on, the same before and after.",
    idea="A kernel turns a distance into a similarity. This one is a straight line until it meets 0.",
    begin="Begin with how far a key is, whatever the side, as a share of the two hours.",
    mistakes="""
        .clamp(min=0) → ∅ ⇒ Beyond two hours the line goes on below 0. What should it be there?
        .clamp(min=0) → .abs() ⇒ Beyond two hours the similarity rises again.
        .abs() → ∅ ⇒ Keys on one side come out more similar than a key at distance 0. Distances have a sign.
        .abs() → ∅ ; min=0 → 0, 1 ⇒ Keys on one side all get 1, however far they are. Distances have a sign.
        / 2 → ∅ ⇒ This line is down at one hour, not at two.
        distance.abs() / 2 → (distance / 2) ** 2 ⇒ This falls along a curve, not in a straight line.
        (1 - distance.abs() / 2).clamp(min=0) → (distance.abs() <= 2).float() ⇒ This does not fall at all inside the
            two hours: it is a boxcar.
        1 - distance.abs() / 2 → 2 - distance.abs() ⇒ At distance 0 it is not 1, but 2.
        1 - distance.abs() / 2 → distance.abs() / 2 ⇒ It grows with the distance: it is 0 at the query and 1 at two
            hours.
        (1 - distance.abs() / 2).clamp(min=0) → (1 - distance.abs() / 2).where(distance.abs() <= 2, 1) ⇒ Within the two
            hours all is right, but beyond them it is 1.
        1 - distance.abs() / 2 → 2 - distance.abs() ; min=0 → 0, 1 ⇒ It stays at 1 for an hour; then it falls.
        / 2 → / 4 ⇒ This line is down at four hours, not at two.
        """,
)
def triangle(distance):
    """A kernel that falls in a straight line from 1 at distance 0 to 0 at two hours, and stays 0 beyond.

    distance (any shape), hours of either sign → similarities of the same shape.
    Source: d2l 11.2.1, where such a kernel, one wide, goes by the name of Epanechikov.
    """
    return (1 - distance.abs() / 2).clamp(min=0)


@exercise(
    trials=lambda: [
        (torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]),),
        (torch.softmax(2 * torch.randn(4, 6), dim=1),),
        (torch.softmax(torch.randn(5, 3), dim=1),),
    ],
    praise="Equal weights, n of them, count as n keys, a single weight as 1, and everything else lies between.",
    idea="Try a row of four equal weights: what do their squares sum to, and how does that become 4?",
    begin="Begin with the squares of all weights; then ask which axis is that of the keys.",
    mistakes="""
        1 / → ∅ ⇒ This grows when few keys are heard: it is the sum of squares itself.
        dim=1 → dim=0 ⇒ There is one number for each key. Over which axis do you sum?
        dim=1 → ∅ ⇒ There is one number in all, where each query needs its own. Over which axis do you sum?
        square().sum(dim=1) → sum(dim=1).square() ⇒ Every row gives 1, whatever it holds. What do the weights of a row
            sum to before anything is squared?
        square().sum(dim=1) → norm(dim=1) ⇒ It is the root of what is asked for.
        sum → mean ⇒ It grows with the number of keys in the table, heard or not. Is there a mean where a sum should
            be?
        1 / weights.square() → torch.special.entr(weights) ; dim=1) → dim=1).exp() ⇒ This is the exponential of the
            entropy, another way to count; here squares are asked for.
        1 / weights.square() → torch.special.entr(weights) ⇒ This is the entropy, and here squares are asked for.
        1 / weights.square() → (weights > 0).float() ⇒ This counts the keys with any weight; a key with hardly any
            should hardly count.
        square().sum(dim=1) → amax(dim=1).square() ⇒ This is 1 divided by the square of the largest weight.
        square().sum(dim=1) → amax(dim=1) ⇒ This is 1 divided by the largest weight; the others have no say.
        1 / weights.square().sum(dim=1) → (1 / weights.square()).sum(dim=1) ⇒ Each weight is turned over by itself;
            keys without weight count without end.
        """,
)
def effective_number(weights):
    """How many keys each query listens to: 1 / Σᵢ αᵢ², its weights being α.

    weights (num_queries, num_keys) → (num_queries,).
    Source: L. Kish, Survey Sampling, 1965 (the effective size of a weighted sample).
    """
    return 1 / weights.square().sum(dim=1)


@exercise(
    trials=lambda: [
        (torch.randn(2, 3), torch.randn(4, 3), torch.randn(4, 5), 0.7),
        (torch.randn(6, 2), torch.randn(5, 2), torch.randn(5, 3), 1.8),
    ],
    praise="Keys and values of any size can be pooled; nothing in the formula asks for single numbers.",
    idea="Three steps: a score for every pair, weights from the scores of a query, an average of values.",
    begin="Begin with the differences of every query and every key: give one of the two a new axis of length 1.",
    mistakes=(
        WIDTH,
        f"""
        sum → mean ⇒ The squared differences are averaged over the entries of a vector; a squared distance sums them.
        square().sum(dim=2) → sum(dim=2).square() ⇒ Differences of opposite sign cancel within a vector. What is
            squared, the entries or their sum?
        dim=1 → dim=0 ⇒ {OVER_QUERIES}
        softmax(scores, dim=1) → exp(scores) ⇒ {NOT_WEIGHTS}
        torch.softmax(scores, dim=1) → scores ⇒ The values are averaged with scores; these are not weights yet.
        @ values → ∅ ⇒ These are the weights; the values are not pooled yet.
        -distances / (2 * sigma**2) → queries @ keys.T / sigma**2 ⇒ This is the plain dot product's attention: the
            distance has no say.
        """,
    ),
)
def gaussian_pooling(queries, keys, values, sigma):
    """Nadaraya–Watson pooling with a Gaussian kernel, of queries and keys that are vectors.

    queries (num_queries, size), keys (num_keys, size), values (num_keys, value_size) → (num_queries, value_size).
    Source: d2l 11.2.2.
    """
    distances = (queries[:, None] - keys).square().sum(dim=2)  # (q, 1, s) - (k, s) -> (q, k)
    scores = -distances / (2 * sigma**2)
    return torch.softmax(scores, dim=1) @ values  # (q, k) @ (k, v) -> (q, v)


@exercise(
    trials=lambda: [
        (torch.tensor([0.0, 1.0, 2.5, 4.0, 7.0]), 2.0),
        (12 * torch.rand(7), 1.5),
        (24 * torch.rand(11), 5.0),
    ],
    praise="Nothing within the hour is heard, exactly one hour included, and every row still sums to 1.",
    idea="A mask says who may be heard; it belongs where the softmax can still share the weight out among the rest.",
    begin="Begin with how many hours lie between any two readings, whatever the order.",
    mistakes=(
        WIDTH,
        f"""
        .masked_fill(near, -torch.inf) → ∅ ⇒ Nothing is left out.
        .abs() <= 1 → == 0 ⇒ A reading ignores itself alone; its neighbours within the hour still have a say.
        apart.abs() <= 1 → (apart.abs() <= 1) & (apart != 0) ⇒ A reading still looks at itself, which is within the
            hour, too.
        <= 1 → < 1 ⇒ Readings exactly one hour apart look at each other.
        <= 1 → > 1 ⇒ Readings look at those within the hour, and at no other. Which way round is the mask?
        apart.abs() → apart ∨ apart.abs() → -apart ∨ apart.abs() → apart ; dim=1) → dim=1).nan_to_num(0) ∨ apart.abs()
            → -apart ; dim=1) → dim=1).nan_to_num(0) ⇒ All readings on one side of the query are gone, however far.
            Distances have a sign.
        apart.abs() → torch.cdist(*2 * [torch.arange(len(hours))[:, None].float()]) ⇒ Neighbours in the list are left
            out; what counts is how many hours lie between.
        -torch.inf → 0.0 ⇒ Readings that are left out keep real weight, as if their score were 0. What is exp(0)?
        scores.masked_fill(near, -torch.inf), dim=1) → scores, dim=1).masked_fill(near, 0) ⇒ The readings left out have
            weight 0, but what is left of a row does not sum to 1. Where is the mask?
        dim=1 → dim=0 ⇒ {OVER_QUERIES}
        torch.softmax(scores.masked_fill(near, -torch.inf), dim=1) → torch.exp(scores).masked_fill(near, 0) ⇒ These are
            the heights of the kernel where nothing is masked: no row sums to 1 yet.
        <= 1 → <= sigma ⇒ The gap is as wide as σ; it should be an hour, whatever σ is.
        """,
    ),
)
def leave_hour_out(hours, sigma):
    """Weights of readings on one another, where readings at most an hour apart do not look at each other.

    hours (n,), sigma of a Gaussian kernel → weights (n, n), a row for each reading as a query.
    Source: d2l, first edition, 10.2.4 leaves out the reading itself; a gap around it is usual for data in time,
    as in P. Burman, E. Chow, D. Nolan, A cross-validatory method for dependent data, Biometrika 81, 1994.
    """
    apart = hours[:, None] - hours  # (n, 1) - (n,) -> (n, n)
    distances = apart.square()
    scores = -distances / (2 * sigma**2)
    near = apart.abs() <= 1
    return torch.softmax(scores.masked_fill(near, -torch.inf), dim=1)


@exercise(
    trials=lambda: [
        (torch.tensor([1.0, 4.0, 6.5]), 6 * torch.rand(5), torch.randn(5), 1.5),
        (6 * torch.rand(4), 6 * torch.rand(9), 1 + torch.randn(9), 0.8),
    ],
    praise="Readings that lie on a straight line are now met exactly, even at the ends and beyond them.",
    idea="Each query has weights of its own, and with them means and a slope of its own; then follow the line to it.",
    begin="Begin with the weights of ordinary Gaussian pooling; both weighted means follow by a product with them.",
    mistakes=(
        WIDTH,
        f"""
        + slope * (queries - mean_key) → ∅ ⇒ This is the weighted average; no line is followed from it.
        queries - mean_key → -mean_key ⇒ This is the line's height at hour 0, not at the query.
        + slope → - slope ⇒ The slope pulls the wrong way. What is the sign of the distance from the mean?
        mean_key[:, None] → keys.mean() ; mean_value[:, None] → values.mean() ; (w * x * y).sum(dim=1) → (x * y).sum()
            ; (w * x * x).sum(dim=1) → (x * x).sum() ⇒ All queries share one slope, that of the line through all
            readings.
        (w * x * y).sum(dim=1) → (w * x * y).sum() ; (w * x * x).sum(dim=1) → (w * x * x).sum() ⇒ All queries share one
            slope. Over which axes do the sums in it run?
        (w * x * y) → (x * y) ⇒ Above the fraction bar the slope does not weigh its parts.
        (w * x * x) → (x * x) ⇒ Below the fraction bar the slope does not weigh its parts.
        (w * x * y) → (x * y) ; (w * x * x) → (x * x) ⇒ The sums in the slope do not weigh their parts.
        w @ keys → keys.mean().expand(len(w)) ; w @ values → values.mean().expand(len(w)) ⇒ Both means are plain
            averages of all readings; each query has weighted means of its own.
        mean_key[:, None] → keys.mean() ; mean_value[:, None] → values.mean() ⇒ In the slope the means are plain
            averages; each query has weighted means of its own.
        queries - mean_key → queries - keys.mean() ⇒ The query is measured from the plain average of the keys; it has a
            weighted mean of its own.
        queries - mean_key → queries ⇒ The query is measured from hour 0. From where does the line start?
        -distances → 0 * distances ⇒ This is one straight line for the whole day; the weights have no say in it.
        - mean_key[:, None] → ∅ ; - mean_value[:, None] → ∅ ⇒ The slope is that of a line through the origin.
        x * x → y * y ⇒ The slope is divided by the spread of the values, where the keys' belongs.
        / (w * x * x).sum(dim=1) → ∅ ⇒ The slope is not divided by the spread of the keys.
        mean_value + slope * (queries - mean_key) → slope ⇒ This is the slope alone.
        scores, dim=1 → scores, dim=0 ⇒ {OVER_QUERIES}
        """,
    ),
)
def local_line(queries, keys, values, sigma):
    """For each query the weighted least-squares line through the readings, read off at the query.

    queries (num_queries,), keys and values (num_keys,), sigma of a Gaussian kernel → (num_queries,).
    Source: W. S. Cleveland, Robust locally weighted regression and smoothing scatterplots, 1979; T. Hastie,
    R. Tibshirani, J. Friedman, The Elements of Statistical Learning, section 6.1.1.
    """
    distances = (queries[:, None] - keys).square()  # (q, 1) - (k,) -> (q, k)
    scores = -distances / (2 * sigma**2)
    w = torch.softmax(scores, dim=1)
    mean_key, mean_value = w @ keys, w @ values  # (q, k) @ (k,) -> (q,)
    x, y = keys - mean_key[:, None], values - mean_value[:, None]
    slope = (w * x * y).sum(dim=1) / (w * x * x).sum(dim=1)
    return mean_value + slope * (queries - mean_key)
