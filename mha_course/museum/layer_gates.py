"""What ``head_mask`` does in a layer that is right without it, and its known mistakes."""

from collections.abc import Callable

import torch
from torch import Tensor

from mha_course.checking.comparing import first_difference
from mha_course.checking.verdict import Verdict
from mha_course.language import tr
from mha_course.museum.layer_calls import formula


def gated_columns(trial: tuple, factors: Tensor) -> Tensor:
    """Return the output of ``formula`` where each column of W_o is multiplied by one of ``factors``."""
    return formula(*(*trial[:7], trial[7] * factors, *trial[8:]))


def gated_scores(trial: tuple, factors: Tensor) -> Tensor:
    """Return the output of ``formula`` where each feature of the projected queries is multiplied by a factor."""
    given = trial[9] | {"b_q": trial[9]["b_q"] * factors}
    return formula(*(*trial[:4], trial[4] * factors[:, None], *trial[5:9], given))


def gated_by_example(trial: tuple, gates: Tensor) -> Tensor:
    """Return the output of ``formula`` where (batch, heads) take their factors in the order (heads, batch)."""
    batch_size, size = len(trial[0]), trial[7].shape[1] // len(gates)
    own = gates.repeat_interleave(batch_size).view(batch_size, -1).repeat_interleave(size, 1)
    return torch.stack([gated_columns(trial, factors)[example] for example, factors in enumerate(own)])


GATES: dict[str, Callable[[tuple, Tensor, int], Tensor]] = {  # what is said of a wrong head_mask → what it computes
    "`head_mask` has no effect.": lambda trial, gates, size: formula(*trial),
    "`head_mask` is repeated in the wrong order for the features (`repeat` for `repeat_interleave`): a head is "
    "multiplied by several numbers.": lambda trial, gates, size: gated_columns(trial, gates.repeat(size)),
    "`head_mask` is repeated in the wrong order for batch and heads (`repeat_interleave` for `repeat`): a head is "
    "multiplied by another head's number.": lambda trial, gates, size: gated_by_example(trial, gates),
    "`head_mask` is applied behind `W_o`, where features no longer belong to heads.": (
        lambda trial, gates, size: formula(*trial) * gates.repeat_interleave(size)
    ),
    "`head_mask` is applied behind `W_o`, where features no longer belong to heads, and repeated in the wrong order.": (
        lambda trial, gates, size: formula(*trial) * gates.repeat(size)
    ),
    "`head_mask` is multiplied into the scores: with 0, a head averages all values. It belongs to the heads' "
    "outputs.": (lambda trial, gates, size: gated_scores(trial, gates.repeat_interleave(size))),
    "`head_mask` is in reverse order.": lambda trial, gates, size: gated_columns(
        trial, gates.flip(0).repeat_interleave(size)
    ),
    "`head_mask` is applied twice.": lambda trial, gates, size: gated_columns(
        trial, gates.square().repeat_interleave(size)
    ),
    "A number other than 0 in `head_mask` counts as 1.": lambda trial, gates, size: gated_columns(
        trial, (gates != 0).float().repeat_interleave(size)
    ),
    "`head_mask` is inverted: 0 keeps a head.": lambda trial, gates, size: gated_columns(
        trial, (1 - gates).repeat_interleave(size)
    ),
}


def wrong_gates(trial: tuple, gates: Tensor, output: Tensor) -> Verdict | None:
    """Return a verdict on a wrong effect of ``head_mask`` in a layer that is right without it; None if it is right."""
    size = trial[7].shape[1] // len(gates)
    right = gated_columns(trial, gates.repeat_interleave(size))
    if (place := first_difference(output, right)) is None:
        return None
    same = [text for text, gated in GATES.items() if first_difference(output, gated(trial, gates, size)) is None]
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
