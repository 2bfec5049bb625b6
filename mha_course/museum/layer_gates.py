"""What ``head_mask`` does in a layer that is right without it, and its known mistakes."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mha_course.checking.comparing import first_difference
from mha_course.checking.verdict import Verdict
from mha_course.language import tr
from mha_course.museum.layer_trials import formula, with_given


def multiplied(trial: tuple, heads: Any = 1, queries: Any = 1, output: Any = 1) -> Tensor:
    """Return the output of ``formula`` with the heads' outputs, their queries, or the output times numbers."""
    turn = trial[9].get("turn") or (lambda *parts: parts)

    def times(*parts: Tensor) -> tuple:
        Q, K, V = turn(*parts)
        return queries * Q, K, heads * V

    return output * formula(*with_given(trial, turn=times))


def by_head(gates: Tensor) -> Tensor:
    """Return one number for each head, as they multiply (batch, heads, number, head size)."""
    return gates[:, None, None]


# What is said of a wrong head_mask → what it multiplies, of the gates, the batch size and the head size.
GATES: dict[str, Callable[[Tensor, int, int], dict[str, Tensor]]] = {
    "`head_mask` has no effect.": lambda gates, batch_size, size: {},
    "`head_mask` is repeated in the wrong order for the features (`repeat` for `repeat_interleave`): a head is "
    "multiplied by several numbers.": lambda gates, batch_size, size: {"heads": gates.repeat(size).view(-1, 1, size)},
    "`head_mask` is repeated in the wrong order for batch and heads (`repeat_interleave` for `repeat`): a head is "
    "multiplied by another head's number.": (
        lambda gates, batch_size, size: {"heads": gates.repeat_interleave(batch_size).view(batch_size, -1, 1, 1)}
    ),
    "`head_mask` is applied behind `W_o`, where features no longer belong to heads.": (
        lambda gates, batch_size, size: {"output": gates.repeat_interleave(size)}
    ),
    "`head_mask` is applied behind `W_o`, where features no longer belong to heads, and repeated in the wrong order.": (
        lambda gates, batch_size, size: {"output": gates.repeat(size)}
    ),
    "`head_mask` is multiplied into the scores: with 0, a head averages all values. It belongs to the heads' "
    "outputs.": lambda gates, batch_size, size: {"queries": by_head(gates)},
    "`head_mask` is in reverse order.": lambda gates, batch_size, size: {"heads": by_head(gates.flip(0))},
    "`head_mask` is applied twice.": lambda gates, batch_size, size: {"heads": by_head(gates.square())},
    "A number other than 0 in `head_mask` counts as 1.": (
        lambda gates, batch_size, size: {"heads": by_head((gates != 0).float())}
    ),
    "`head_mask` is inverted: 0 keeps a head.": lambda gates, batch_size, size: {"heads": by_head(1 - gates)},
}


def wrong_gates(trial: tuple, gates: Tensor, output: Tensor) -> Verdict | None:
    """Return a verdict on a wrong effect of ``head_mask`` in a layer that is right without it; None if it is right."""
    right, sizes = multiplied(trial, by_head(gates)), (len(trial[0]), len(trial[7]) // len(gates))
    if (place := first_difference(output, right)) is None:
        return None
    same = [text for text, of in GATES.items() if not first_difference(output, multiplied(trial, **of(gates, *sizes)))]
    name = tr(same[0]) if same else tr("Right without `head_mask`, wrong with it.")
    evidence = tr(
        "With head_mask {gates}, the output at {place} is {own} instead of {right}.",
        gates=[round(gate, 2) for gate in gates.tolist()],
        place=place,
        own=f"{output[tuple(place)].item():.4g}",
        right=f"{right[tuple(place)].item():.4g}",
    )
    step = tr("Multiply the output of head i, after the average and before W_o, by head_mask[i].")
    return Verdict("wrong", name, evidence, step, trial, output, right, "head_mask")
