"""An exercise on heads of real models: resample ablation of pairs of texts."""

import torch

from mha_course.checking.exercise import exercise


@exercise(
    trials=lambda: [(torch.randn(n, size), torch.randn(n, size)) for n, size in ((3, 2), (4, 3), (5, 4))],
    praise="The two outputs come from different pairs, so they do not fit each other.",
    idea="Each row must get two outputs of two different pairs.",
    begin="Begin with the first texts: each gets the output of the first text of the pair after it.",
    mistakes="""
        second.roll(1, dims=0) -> second.roll(-1, dims=0) => Both texts of a pair get their outputs from one pair, and
            these two fit together: the answer leaks. Roll the second texts the other way.
        first.roll(-1, dims=0) -> first.roll(1, dims=0) => Both texts of a pair get their outputs from one pair, and
            these two fit together: the answer leaks. Roll the first texts the other way.
        first.roll(-1, dims=0), second.roll(1, dims=0) -> first.roll(1, dims=0), second.roll(-1, dims=0) => The first
            texts take from the pair before, the second from the pair after. The task asks for the opposite.
        second.roll(1, dims=0) -> second => The second texts keep their own outputs, so their head is not
            ablated.
        first.roll(-1, dims=0) -> first => The first texts keep their own outputs, so their head is not
            ablated.
        second.roll(1, dims=0) -> first.roll(1, dims=0) => Second texts get outputs of first texts. Resample
            within one side: second texts take from second texts.
        first.roll(-1, dims=0) -> second.roll(-1, dims=0) => First texts get outputs of second texts. Resample
            within one side: first texts take from first texts.
        first.roll(-1, dims=0), second.roll(1, dims=0) -> second.roll(-1, dims=0), first.roll(1, dims=0) => First and
            second texts get each other's outputs. Resample within each side.
        first.roll(-1, dims=0), second.roll(1, dims=0) -> first.roll(-1, dims=1), second.roll(1, dims=1) => The features
            are moved, not the texts. Axis 0 holds the pairs.
        first.roll(-1, dims=0), second.roll(1, dims=0) -> first.mean(dim=0).expand_as(first),
            second.mean(dim=0).expand_as(second) => Every text gets the mean over all. That is mean ablation;
            resample ablation uses the output for another text.
        first.roll(-1, dims=0), second.roll(1, dims=0) -> 0 * first, 0 * second => Every text gets zeros. That is zero
            ablation; resample ablation uses the output for another text.
        first.roll(-1, dims=0), second.roll(1, dims=0) -> second, first => The two texts of a pair have changed places.
            They still belong together.
        first.roll(-1, dims=0), second.roll(1, dims=0) -> torch.cat([first[1:], first[-1:]]), torch.cat([second[:1],
            second[:-1]]) => At the ends texts keep their own outputs. The first pair follows the last one.
        first.roll(-1, dims=0), second.roll(1, dims=0) -> first.roll(-1), second.roll(1) => Single numbers move on, not
            whole outputs. Axis 0 holds the pairs.
        """,
)
def resample_pairs(first, second):
    """Replace a head's outputs in each text pair by another pair's: ``first`` by the next, ``second`` by the previous.

    first, second (pairs, size): the head's outputs for the first and the second text of each pair → two tensors of
    these shapes. A first text gets the output of the first text of the next pair, a second text that of the second
    text of the pair before; the first pair follows the last one.
    Source: resampling as in L. Chan et al., Causal Scrubbing, 2022.
    """
    return first.roll(-1, dims=0), second.roll(1, dims=0)
