"""Exercises on heads of real models: resample ablation of pairs, and the loss beside random heads."""

import torch

from mha_course import heads  # noqa: F401 (mistakes of the tables use it)
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
            texts take from the pair before, the second from the pair after. It was asked the other way round.
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


def losses_trial(draws: int, rows: int) -> tuple:
    """Invent the losses on ``rows`` texts of a whole model, a pruned model, and ``draws`` randomly pruned models."""
    hard = 3 + torch.randn(rows)
    return hard, hard + 0.4 + torch.rand(rows), hard + torch.rand(draws, rows)


@exercise(
    trials=lambda: [losses_trial(2, 4), losses_trial(5, 7), losses_trial(3, 6)],
    praise="The difference is paired by text, so hard texts do not hide the effect, and random heads are the baseline.",
    idea="If the claim is false, other heads cost as much. Compare the two losses of each text.",
    begin="Begin with the difference of each text: the loss without these heads, minus the mean loss without others.",
    mistakes="""
        without - others.mean(dim=0) -> without - whole => It is compared with the whole model. Compare with
            the loss without random heads.
        without - others.mean(dim=0) -> others.mean(dim=0) - without => The sign is reversed: the result is positive if
            the claim holds.
        others.mean(dim=0) -> others[0] => Only the first of the draws takes part.
        others.mean(dim=0) -> others.amin(dim=0) => It is compared with the draw that costs least. Take the mean.
        others.mean(dim=0) -> others.amax(dim=0) => It is compared with the draw that costs most. Take the mean.
        difference.std() / len(difference) ** 0.5 -> difference.std() => This is how much texts differ, not how sure
            their mean is. More texts make the standard error smaller.
        difference.std() / len(difference) ** 0.5 -> difference.std(correction=0) / len(difference) ** 0.5 => The
            standard deviation divides by the number of texts. For a sample, divide by one less.
        difference.std() / len(difference) ** 0.5 -> difference.std() / len(difference) => The deviation is divided by
            the number of texts. Divide by its root.
        difference.std() / len(difference) ** 0.5 -> without.std() / len(difference) ** 0.5 => The error is that of
            losses, in which easy and hard texts differ. Take it of the differences.
        difference.std() / len(difference) ** 0.5 -> (without.var() + others.mean(dim=0).var()).div(len(without)).sqrt()
            || ((without - whole).var() + (others.mean(dim=0) - whole).var()).div(len(whole)).sqrt() || (without.var() /
            len(whole) + others.var() / others.numel()).sqrt() || ((without - whole).var() / len(whole) + (others -
            whole).var() / others.numel()).sqrt() => The error treats the two as if they came from different texts.
            Take the difference of each text first.
        difference.std() / len(difference) ** 0.5 -> others.mean(dim=1).std() || others.mean(dim=1).std() / len(others)
            ** 0.5 => The error is that between draws. It must be that between texts.
        difference.std() / len(difference) ** 0.5 -> (without - others).std() / others.numel() ** 0.5 || (without -
            others).std() / len(difference) ** 0.5 => Every draw of a text counts as if it were another text.
        [mean, error] -> [mean, 1.96 * error] || [mean, 2 * error] || [mean, mean -
            heads.mean_and_ci95(difference)[1]] || [mean - 1.96 * error, mean + 1.96 * error] || [mean - 2 * error, mean
            + 2 * error] || [*heads.mean_and_ci95(difference)] || [*heads.mean_and_ci95(difference)[:2]] ||
            [*heads.mean_and_ci95(difference)[1:]] => An interval comes back, or half its width. One standard
            error is needed.
        len(difference) ** 0.5 -> len(others) ** 0.5 || others.numel() ** 0.5 || (len(difference) - 1) ** 0.5 => The
            deviation is divided by the root of another number than that of the texts.
        difference.std() / len(difference) ** 0.5 -> (without - whole).std() / len(difference) ** 0.5 ||
            others.mean(dim=0).sub(whole).std() / len(difference) ** 0.5 => The error is that of one rise alone, not of
            the difference between the two.
        difference.mean() -> difference.abs().mean() || difference.mean() -> difference.abs().mean() ; difference.std()
            -> difference.abs().std() => The signs of the differences are lost. In some texts others
            cost more.
        difference.mean() -> difference.sum() => This is the sum over texts, not their mean.
        """,
)
def excess_loss(whole, without, others):
    """Return the mean loss ``without`` some heads minus that of random removals ``others``, and its standard error.

    whole (texts,): the loss of each text with all heads; without (texts,): without the heads in question; others
    (draws, texts): without as many heads that were drawn at random, for each draw → two plain numbers: the difference
    in nats, averaged over draws and texts; and the standard error of this mean, from how much it differs between texts.
    """
    difference = without - others.mean(dim=0)  # (texts,) - (texts,)
    mean = difference.mean().item()
    error = (difference.std() / len(difference) ** 0.5).item()
    return [mean, error]
