"""The exercises of notebook 09: a rule for packed texts with a window, rotary positions, a conversion to mend."""

import torch

from mha_course.checking.exercise import exercise


def row_trial(starts: list[int], size: int, sinks: int, length: int, num_queries: int | None = None) -> tuple:
    """Return arguments of ``packed_window``, with the last ``num_queries`` positions (default all) as queries."""
    places = torch.arange(length)
    return torch.tensor(starts), size, sinks, places[-(num_queries or length) :, None], places


@exercise(
    trials=lambda: {
        "for a single text": [row_trial([0], 1, 0, 3), row_trial([0], 2, 1, 5), row_trial([0], 2, 3, 8)],
        "for several texts": [
            row_trial([0, 3], 2, 1, 6),
            row_trial([0, 4, 9], 2, 2, 13),
            row_trial([0, 1, 5], 3, 0, 9),
        ],
        "for the newest queries alone": [row_trial([0, 3, 6], 2, 1, 11, num_queries=2)],
    },
    praise="Each token attends to the newest and to the first tokens of its own text, and to no later token.",
    idea="Three conditions: the same text, no later token, and one of the newest or of the first tokens of the text.",
    begin="Begin with the number of the text for each position in `i`, then in `j`.",
    mistakes="""
        right=True -> right=False => Each border is one token late: the first token of a text is counted as part of the
            text before it.
        (own == other) & (j <= i) -> (j <= i) => A token attends to earlier texts, too. Where does its own text begin?
        (own == other) & (j <= i) & (recent | first) -> (own == other) & (recent | first) => Later tokens are also
            attended to: `i - j` is negative there.
        (j <= i) & (recent | first) -> ((j <= i) & recent | first) => The first queries of a text attend to later
            tokens: the first tokens are no exception to the causal mask.
        i - j < size -> i - j <= size => The window has one token too many. With size 1, a token attends to itself.
        i - j < size -> i - j < size - 1 => The window has one token too few. With size 1, a token attends to itself.
        i - j < size -> j - i < size => No token ever leaves the window. Which of `i - j` and `j - i` grows towards the
            past?
        < sinks -> <= sinks => One first token too many is kept.
        j - starts[own - 1] < sinks -> j < sinks => Only the first text of the row keeps its first tokens. Where does
            each text start?
        (recent | first) -> recent => The first tokens are missing once the window has left them.
        (recent | first) -> (recent & first) => A token in the window *or* among the first ones is allowed; here it must
            be both.
        return (own == other) & (j <= i) & (recent | first) -> return ~((own == other) & (j <= i) & (recent | first)) =>
            The mask is inverted: True means that the query may attend to the key.
        place, starts, -> place, starts.cumsum(0), => The starts are used as lengths.
    """,
)
def packed_window(starts, size, sinks, i, j):
    """Return a causal window for packed texts: query i attends to the newest ``size`` and first ``sinks`` tokens of its
    own text.

    starts (texts,), the positions at which texts start, the first of them 0; size and sinks, whole numbers; i and j,
    numbers of queries and keys, as tensors of any shapes that broadcast → bool, of the common shape.
    Source: Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination"; Xiao et al. 2023, "Efficient
    Streaming Language Models with Attention Sinks".
    """
    own, other = (torch.bucketize(place, starts, right=True) for place in (i, j))
    recent = i - j < size
    first = j - starts[own - 1] < sinks
    return (own == other) & (j <= i) & (recent | first)


@exercise(
    trials=lambda: [
        (torch.randn(2, 2), torch.tensor([0.0, 1.0]), 10.0),
        (torch.randn(5, 8), torch.arange(5.0), 10_000.0),
        (torch.randn(2, 4, 6), torch.arange(3.0, 7.0), 100.0),
        (torch.randn(2, 3, 4, 4), torch.tensor([2.0, 0.0, 9.0, 5.0]), 500.0),
    ],
    praise="The pairs are neighbours, each is rotated at its own speed, and each feature is back in its place.",
    idea="A pair (x, y) rotated by an angle is (x cos − y sin, x sin + y cos). Which features are pair j?",
    begin="Begin with the angles: one for each position and pair.",
    mistakes="""
        X[..., 0::2], X[..., 1::2] -> X.chunk(2, dim=-1) ; torch.stack( -> torch.cat( ; dim=-1).flatten(-2) -> dim=-1)
            => Feature j of the first half is rotated with feature j of the second; here neighbours are pairs. (Both are
            in use, and no test of what a rotation must do can tell them apart.)
        torch.stack( -> torch.cat( ; dim=-1).flatten(-2) -> dim=-1) => The pairs are rotated correctly, but all first
            features come before all second ones. Where were they in X?
        X[..., 0::2], X[..., 1::2] -> X.chunk(2, dim=-1) => Features of two halves are rotated together and then placed
            side by side. Which features are pair j?
        torch.arange(0, size, 2) / size -> torch.arange(size // 2) / size => The angles fall off too slowly. What is the
            exponent of pair j?
        torch.arange(0, size, 2) / size -> torch.arange(0, size, 2) => The exponent is not divided by the size.
        base ** (- -> base ** ( => The angles grow from pair to pair. What is the sign of the exponent?
        x * sin + y * cos -> x * sin - y * cos => The second feature of a pair has a wrong sign.
        x * cos - y * sin -> x * cos + y * sin => A sign is lost: this is not a rotation, and lengths change.
        x * cos - y * sin, x * sin + y * cos -> x * cos + y * sin, y * cos - x * sin => The pairs are rotated in the
            other direction.
        x * cos - y * sin, x * sin + y * cos -> x * sin + y * cos, x * cos - y * sin => The two features of each pair
            are swapped.
        angles.cos(), angles.sin() -> torch.deg2rad(angles).cos(), torch.deg2rad(angles).sin() => The angles are used as
            degrees.
        places[:, None] -> (places[:, None] + 1) => Every token is rotated as if it were one position later. Where do
            positions begin?
        places[:, None] -> torch.arange(len(places))[:, None] => The tokens are numbered from 0; `places` says where
            they are.
        x * cos - y * sin, x * sin + y * cos -> x * angles.repeat(1, 2)[:, 0::2].cos() - y * angles.repeat(1, 2)[:,
            0::2].sin(), x * angles.repeat(1, 2)[:, 1::2].sin() + y * angles.repeat(1, 2)[:, 1::2].cos() => The two
            features of a pair are rotated by different angles. In which order is each angle repeated?
        x * sin + y * cos -> (x * cos - y * sin) * sin + y * cos => The second feature is computed from the first one
            after its rotation.
        base ** (- -> 10_000.0 ** (- => The base has no effect: it is always 10,000.
        base ** (-torch.arange(0, size, 2) / size) -> torch.ones(size // 2) => All pairs are rotated at the same speed.
        torch.arange(0, size, 2) / size -> 2 * $ => The angles fall off too fast. What is the exponent of pair j?
    """,
)
def rope(X, places, base):
    """Apply rotary position embeddings: rotate features 2j, 2j + 1 of X by the angle ``places`` · base ** (−2j / size).

    X (…, n, size), size even; places (n,) → the shape of X.
    Source: Su et al. 2021, "RoFormer", section 3.2.2.
    """
    size = X.shape[-1]
    angles = places[:, None] * base ** (-torch.arange(0, size, 2) / size)
    cos, sin = angles.cos(), angles.sin()
    x, y = X[..., 0::2], X[..., 1::2]  # (…, n, size / 2)
    return torch.stack([x * cos - y * sin, x * sin + y * cos], dim=-1).flatten(-2)


@exercise(
    trials=lambda: {
        "for one head": [(torch.randn(4, 3), 1), (torch.randn(8, 5), 1)],
        "for several heads": [(torch.randn(8, 3), 2), (torch.randn(12, 12), 2), (torch.randn(24, 24), 3)],
    },
    praise="Every head has its first features on top and its second ones below; no row has left its head.",
    idea="Which rows of `W` make the features of head 1? They stay among the rows of head 1.",
    begin="Begin by giving the rows three axes: head, pair, and feature of the pair.",
    mistakes="""
        W.unflatten(0, (num_heads, -1, 2)) -> W.unflatten(0, (1, -1, 2)) => The rows of all heads are reordered
            together: this is right with one head, but with several, a head gets rows of another.
        W.unflatten(0, (num_heads, -1, 2)) -> W.unflatten(0, (num_heads, 2, -1)) => This is the conversion back, from
            halves to neighbours.
        .transpose(1, 2) -> _ => Nothing is reordered.
        .transpose(1, 2) -> .transpose(1, 2).flip(1) => The second features come first, so the pairs rotate in the other
            direction.
        W.unflatten(0, (num_heads, -1, 2)) -> W.unflatten(0, (-1, num_heads, 2)).transpose(0, 1) => A head takes every
            num_heads-th pair of rows. Its rows are next to each other.
        W.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2) -> torch.cat([W[:, 0::2], W[:, 1::2]], dim=1)
            => The columns are reordered: they belong to the features of the token. Which axis belongs to those of the
            head?
    """,
)
def for_halves(W, num_heads):
    """Reorder the rows of W, trained for rotary positions in neighbouring pairs, for a program that rotates halves.

    W (h · p, d), the weight of an ``nn.Linear`` that makes queries or keys; p even → the shape of W.
    Source: the conversion of Llama in transformers (``convert_llama_weights_to_hf.py``, ``permute``).
    """
    return W.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)
