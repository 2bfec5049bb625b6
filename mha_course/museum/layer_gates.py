"""What ``head_mask`` does in a layer that is right without it, and its known mistakes."""

from torch import Tensor

from mha_course.checking.comparing import equal
from mha_course.checking.edits import mistakes_of
from mha_course.checking.verdict import Verdict
from mha_course.language import tr
from mha_course.museum.layer_trials import close, formula, output_of, with_given
from mha_course.museum.layer_words import first_wrong
from mha_course.museum.wrong_attention import attention, programs

WRONG_GATES = """
    V * gates[:, None, None] -> V => `head_mask` has no effect.
    gates[:, None, None] -> gates.repeat(V.shape[-1]).view(-1, 1, V.shape[-1]) => `head_mask` is repeated in the wrong
        order for the features (`repeat` for `repeat_interleave`): a head is multiplied by several numbers.
    gates[:, None, None] -> gates.repeat_interleave(len(V)).view(len(V), -1, 1, 1) => `head_mask` is repeated in the
        wrong order for batch and heads (`repeat_interleave` for `repeat`): a head is multiplied by another head's
        number.
    V * gates[:, None, None] -> V ; merge_heads(weights @ V) @ W_o.T + b_o -> ($) * gates.repeat_interleave(V.shape[-1])
        => `head_mask` is applied behind `W_o`, where features no longer belong to heads.
    V * gates[:, None, None] -> V ; merge_heads(weights @ V) @ W_o.T + b_o -> ($) * gates.repeat(V.shape[-1]) =>
        `head_mask` is applied behind `W_o`, where features no longer belong to heads, and repeated in the wrong order.
    V = V * -> Q = Q * => `head_mask` is multiplied into the scores: with 0, a head averages all values. It belongs to
        the heads' outputs.
    gates[:, None, None] -> gates.flip(0)[:, None, None] => `head_mask` is in reverse order.
    gates[:, None, None] -> gates.square()[:, None, None] => `head_mask` is applied twice.
    gates[:, None, None] -> (gates != 0)[:, None, None] => A number other than 0 in `head_mask` counts as 1.
    gates[:, None, None] -> (1 - gates)[:, None, None] => `head_mask` is inverted: 0 keeps a head.
    """


def wrong_gates(trial: tuple, gates: Tensor, output: Tensor) -> Verdict | None:
    """Return a verdict on a wrong effect of ``head_mask`` in a layer that is right without it; None if it is right."""
    trial = with_given(trial, gates=gates)
    right = formula(*trial)
    if equal(output, right):
        return None
    rows = programs(formula, [*mistakes_of(attention, WRONG_GATES)])
    same = [tr(text) for text, program in rows if close(output_of(program, trial), output)]
    told = "With head_mask {gates}, the output at {place} is {own} instead of {right}."
    evidence = tr(told, gates=[round(gate, 2) for gate in gates.tolist()], **first_wrong(output, right))
    step = tr("Multiply the output of head i, after the average and before W_o, by head_mask[i].")
    name = [*same, tr("Right without `head_mask`, wrong with it.")][0]
    return Verdict("wrong", name, evidence, step, trial, output, right, "head_mask")
