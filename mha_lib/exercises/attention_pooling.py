"""The exercises of notebook 01: kernels, weights, and what they pool."""

import torch

from mha_lib.checking.exercise import exercise

WIDTH = """
    2 * sigma -> sigma => The weights are those of scores twice as large. Is a factor beside σ² lost, or are
        weights squared?
    sigma**2 -> sigma => The weights do not change with σ as its square would. Is σ squared?
    * sigma**2 -> _ || / (2 * sigma**2) -> _ => The width has no say in the result. Where is σ in the score?
    / (2 * sigma**2) -> / 2 * sigma**2 => A wider σ makes the window narrower. On which side of the fraction bar is σ²?
    -distances -> distances => The most distant keys get the most weight. What is the sign of the score?
    -distances -> $.sqrt() => The score holds the distance, not its square.
    (2 * sigma**2) -> (2 * sigma) ** 2 => The square is taken of 2σ, not of σ alone.
    """
OVER_QUERIES = "The weights of a key sum to 1, those of a query do not. Over what does the softmax run?"


@exercise(
    trials=lambda: [(torch.tensor([-3.0, -1.0, 0.0, 0.5, 2.5]),), (3 * torch.randn(3, 7),)],
    praise="1 at the query, less with every minute, nothing from two hours on, the same before and after.",
    idea="A kernel turns a distance into a similarity. This one is a straight line until it meets 0.",
    begin="Begin with how far a key is, whatever the side, as a share of the two hours.",
    mistakes="""
    .clamp(min=0) -> _ => Beyond two hours the line goes on below 0. Where does the line end?
    .clamp(min=0) -> .abs() => Beyond two hours the similarity rises again. Where does the line end?
    .abs() -> _ || .abs() -> _ ; min=0 -> 0, 1 => Keys on one side do not get less with their distance. Has a distance a
        sign?
    / 2 -> _ || / 4 => The line does not reach 0 at two hours, but elsewhere. Where should it reach 0?
    distance.abs() / 2 -> (distance / 2) ** 2 => This falls along a curve. Is anything squared in a straight line?
    (1 - distance.abs() / 2).clamp(min=0) -> (distance.abs() <= 2).float() => This is a boxcar. Does it fall inside the
        two hours?
    .clamp(min=0) -> $ * (distance.abs() < 1) || $ * (distance.abs() <= 1) => The line is cut off at one hour. Where
        does it meet 0?
    (1 - distance.abs() / 2).clamp(min=0) -> (1 - distance.abs() / 2) * (distance < 2) => Beyond two hours on one side
        the line goes on below 0. Which distance is compared with two hours?
    1 - distance.abs() / 2 -> distance.abs() / 2 || 1 + distance.abs() / 2 => It grows with the distance. What is it at
        the query, and what at two hours?
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
    1 / -> _ => This grows when few keys are heard. What becomes of the sum of squares in the end?
    dim=1 -> dim=0 || _ => There is not one number for each query. Over which axis is the sum?
    square().sum(dim=1) -> sum(dim=1).square() => Every row gives 1. Which comes first, the square or the sum?
    sum -> mean => It grows with the number of keys in the table. Is there a mean where a sum should be?
    1 / attention_weights.square() -> (1 / attention_weights.square()) => Each square is turned round before the
        sum. Which comes first?
    1 / attention_weights.square() -> torch.special.entr(attention_weights) ; dim=1) -> dim=1).exp() ||
        1 / attention_weights.square() -> torch.special.entr(attention_weights) => This is an entropy, or its
        exponential. Are squares summed?
    1 / attention_weights.square() -> (attention_weights > 0).float() || torch.ones_like(attention_weights) => Keys are
        counted, whatever their weight. Should a key with hardly any count as much as others?
    square().sum(dim=1) -> amax(dim=1) => This is 1 divided by the largest weight. Have other weights than the largest a
        say?
    """,
)
def effective_number(attention_weights):
    """How many keys each query listens to: 1 / Σᵢ αᵢ², its weights being α.

    attention_weights (num_queries, num_keys) → (num_queries,).
    Source: L. Kish, Survey Sampling, 1965 (the effective size of a weighted sample).
    """
    return 1 / attention_weights.square().sum(dim=1)


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
    sum -> mean => The squared differences are averaged over the entries of a vector, where a distance sums them.
    square().sum(dim=2) -> sum(dim=2).square() => The differences within a vector are summed before they are squared.
    dim=1 -> dim=0 => {OVER_QUERIES}
    softmax(scores, dim=1) -> exp(scores) => The weights of a query do not sum to 1. What comes after the exponential?
    torch.softmax(scores, dim=1) -> scores => The values are averaged with bare scores. What makes weights of them?
    @ values -> _ => Weights come back. Where do the values come in?
    -distances / (2 * sigma**2) -> queries @ keys.T / sigma**2 => This is attention by plain dot products: the distance
        has no say.
    -distances / (2 * sigma**2) -> torch.exp($) => The exponential is taken twice. Does the softmax not take it?
    """,
    ),
)
def gaussian_pooling(queries, keys, values, sigma):
    """Nadaraya–Watson pooling with a Gaussian kernel, of queries and keys that are vectors.

    queries (num_queries, size), keys (num_keys, size), values (num_keys, value_size) → (num_queries, value_size).
    Source: d2l 11.2.2.
    """
    distances = (queries[:, None] - keys).square().sum(dim=2)  # (q, k, s) -> (q, k)
    scores = -distances / (2 * sigma**2)
    return torch.softmax(scores, dim=1) @ values  # (q, k) @ (k, v) -> (q, v)


@exercise(
    trials=lambda: [(torch.tensor([0.0, 1, 2.5, 4, 7]), 2.0), (12 * torch.rand(7), 1.5), (24 * torch.rand(11), 5.0)],
    praise="Nothing within the hour is heard, exactly one hour included, and every row still sums to 1.",
    idea="A mask says who may be heard; it belongs where the softmax can still share the weight out among the rest.",
    begin="Begin with how many hours lie between any two readings, whatever the order.",
    mistakes=(
        WIDTH,
        f"""
    .masked_fill(near, -torch.inf) -> _ => Nothing is left out. Where is the mask?
    .abs() <= 1 -> == 0 => A reading ignores itself alone. Who else is within the hour?
    apart.abs() <= 1 -> ($) & (apart != 0) => A reading still looks at itself. Is a reading within the hour of itself?
    <= 1 -> < 1 => Readings exactly one hour apart look at each other. Does the gap include its end?
    <= 1 -> > 1 => Readings look at those within the hour, and at no other. Which way round is the mask?
    apart.abs() -> apart || -apart || apart.abs() -> apart ; dim=1) -> dim=1).nan_to_num(0) || apart.abs() -> -apart ;
        dim=1) -> dim=1).nan_to_num(0) || apart.abs() -> apart ; -torch.inf -> -1e9 || apart.abs() -> -apart ;
        -torch.inf -> -1e9 => All readings on one side are gone. Has a distance a sign?
    apart.abs() -> torch.cdist(*2 * [torch.arange(len(hours))[:, None].float()]) => Neighbours in the list are left out.
        Do places in a list say how many hours lie between?
    -torch.inf -> 0.0 => Readings that are left out keep real weight. Which score leads to a weight of 0?
    scores.masked_fill(near, -torch.inf), dim=1) -> scores, dim=1).masked_fill(near, 0) => The readings left out have
        weight 0, but the rest of a row does not sum to 1. Does the mask come before the softmax, or after?
    dim=1 -> dim=0 => {OVER_QUERIES}
    torch.softmax(scores.masked_fill(near, -torch.inf), dim=1) -> torch.exp(scores).masked_fill(near, 0) => No row sums
        to 1. What comes after the exponential?
    <= 1 -> <= sigma => The gap is as wide as σ. How wide is it to be, whatever σ is?
    <= 1 -> <= 0.5 || <= 2 => The gap is not one hour to each side. How wide is it?
    near = apart.abs() <= 1 -> near = (apart >= 0) & (apart <= 1) || near = (apart <= 0) & (apart >= -1) => Of those
        within the hour only one side is left out. Has a distance a sign?
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
    + slope * (queries - mean_key) -> _ => This is the weighted average. Where is a line followed from the means?
    queries - mean_key -> -mean_key => This is the line's height at hour 0. At which place is the line read off?
    + slope -> - slope => The slope pulls the wrong way. What is the sign of the way from the mean to the query?
    mean_key[:, None] -> keys.mean() ; mean_value[:, None] -> values.mean() ; (w * x * y).sum(dim=1) -> (x * y).sum() ;
        (w * x * x).sum(dim=1) -> (x * x).sum() || (w * x * y).sum(dim=1) -> (w * x * y).sum() ; (w * x * x).sum(dim=1)
        -> (w * x * x).sum() => All queries share one slope. Over which axes do the sums in the slope run?
    (w * x * y) -> (x * y) || (w * x * x) -> (x * x) || (w * x * y) -> (x * y) ; (w * x * x) -> (x * x) => Not every sum
        in the slope has weights.
    w @ keys -> keys.mean().expand(len(w)) ; w @ values -> values.mean().expand(len(w)) || mean_key[:, None] ->
        keys.mean() ; mean_value[:, None] -> values.mean() || queries - mean_key -> queries - keys.mean() || w @ keys ->
        keys.mean().expand(len(w)) || w @ values -> values.mean().expand(len(w)) => A plain average of all readings
        stands where a weighted mean belongs.
    queries - mean_key -> queries => The query is measured from hour 0. From where does the line start?
    x * x -> y * y || / (w * x * x).sum(dim=1) -> _ => The slope is not divided by the spread of the keys.
    (w * x * x) -> (w * (keys - queries[:, None]) ** 2) || keys - mean_key[:, None] -> keys - queries[:, None] => The
        keys are measured from the query. From where should they be?
    - mean_key[:, None] -> _ ; - mean_value[:, None] -> _ => The slope is that of a line through the origin.
    scores, dim=1 -> scores, dim=0 => {OVER_QUERIES}
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
