"""What the calls of ``check_layer`` gave, in words: where the border of right and wrong lies, and an example."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from mha_course.checking.comparing import Result, first_difference
from mha_course.language import listed, tr
from mha_course.museum.layer_calls import SHARED

NEXT = {  # first stage that is wrong → what to look at
    "one head": "Begin with one head: softmax(QKᵀ / √d) V, then W_o.",
    "several heads": "Check how the features are split into heads, and how the heads are merged.",
    "several examples": "Check where an axis of the batch is dropped, or confused with another axis.",
    "one query": "Check what happens to an axis of length 1: a `squeeze` without an axis drops it.",
    "more keys than queries": "Check where the number of queries is used in place of the number of keys.",
    "padding": "Check the mask: which scores it reaches, and what it puts there.",
    "a second call with other lengths": "Check what the layer keeps from an earlier call.",
    "padding and large scores": "Check the number that stands for a masked score: −∞ is needed.",
    "large scores": "Check the softmax: the largest score of a row is subtracted first.",
    "many keys": "Check what depends on the number of keys.",
}
ROOM = "A call with 300 tokens raises {error}."


def wrong_in(results: Iterable[Result]) -> list[Result]:
    """Select the results of test calls in which a learner's layer gave a wrong output."""
    return [result for result in results if result.problem()]


def wrong_stages(stages: dict[str, list[Result]]) -> list[str]:
    """Return the names of the groups of test cases (``stages``) with at least one wrong result."""
    return [name for name, results in stages.items() if wrong_in(results)]


def example_in_words(result: Result, masks: bool) -> str:
    """Describe a failed test call: the shapes of its arguments, lengths if the layer ``masks``, and a wrong number."""
    queries, keys, _, allowed, *_, num_heads, _ = result.trial
    shown = [tr("queries {shape}", shape=tuple(queries.shape)), tr("keys {shape}", shape=tuple(keys.shape))]
    shown += [f"valid_lens {allowed[:, 0, -1].sum(-1).tolist()}"] * masks
    shown += [tr("causal")] * (allowed.shape[2] > 1)
    told = "Smallest example: {shown}, num_heads {num_heads}. The output at {place} is {own} instead of {right}."
    return tr(told, shown=listed(shown), num_heads=num_heads, **first_wrong(result.got.value, result.right))


def first_wrong(output: Tensor, right: Tensor) -> dict[str, Any]:
    """Return where an output first differs from the right one, and both numbers there, as words of a message."""
    place = first_difference(output, right) or []
    own, due = (f"{X[tuple(place)].item():.4g}" for X in (output, right))
    return {"place": place, "own": own, "right": due}


def border_of(stages: dict[str, list[Result]], wrong: list[str]) -> str:
    """Return a sentence that says which groups of calls in ``stages`` a layer passes, and that it fails ``wrong``."""
    good = [name for name in stages if name not in wrong]
    if not good:
        return tr("Wrong in every call.")
    parts = [[name.partition(", ") for name in names] for names in (good, wrong)]
    both = [[(stage, way or SHARED[0]) for stage, _, way in of] for of in parts]
    mixed, mixed_ways = ({pair[i] for pair in both[0]} & {pair[i] for pair in both[1]} for i in (0, 1))
    told = [
        [tr("{stage} ({way})", stage=tr(stage), way=tr(way)) if stage in mixed else tr(stage) for stage, way in pairs]
        if mixed_ways
        else [tr(way) for _, way in pairs]
        for pairs in both
    ]
    right, wrong_words = (listed(dict.fromkeys(words), ", " if mixed_ways else " and ") for words in told)
    return tr("Right with {right}; wrong with {wrong}.", right=right, wrong=wrong_words)


def stages_in_words(names: Iterable[str]) -> str:
    """Return a phrase that lists groups of calls by whether queries, keys and values were one tensor, two or three."""
    parts = [name.partition(", ") for name in names]
    ways = [way for way in dict.fromkeys(way for *_, way in parts) if way]
    stages = listed(map(tr, dict.fromkeys(stage for stage, *_ in parts)))
    if not ways:
        return stages
    ways = [SHARED[0] if len(ways) > 1 else SHARED[1], *ways]
    return tr("{stages}; with {ways}", stages=stages, ways=listed(map(tr, ways)))
