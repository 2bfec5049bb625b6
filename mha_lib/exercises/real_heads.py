"""Exercises on heads of real models: strangers for pairs, and evidence."""

import torch

from mha_lib import heads  # noqa: F401 (mistakes of the tables use it)
from mha_lib.checking.exercise import exercise


@exercise(
    trials=lambda: [(torch.randn(n, size), torch.randn(n, size)) for n, size in ((3, 2), (4, 3), (5, 4))],
    praise="The two outputs come from different pairs, so they do not fit each other.",
    idea="After the exchange, which pair do the two outputs of one row come from?",
    begin="Begin with the first texts: each gets the output of the first text of the pair after it.",
    mistakes="""
        second.roll(1, dims=0) -> second.roll(-1, dims=0) => Both texts of a pair get their outputs from one pair, and
            these two fit together: the answer leaks. Which way must the second texts go?
        first.roll(-1, dims=0) -> first.roll(1, dims=0) => Both texts of a pair get their outputs from one pair, and
            these two fit together: the answer leaks. Which way must the first texts go?
        first.roll(-1, dims=0), second.roll(1, dims=0) -> first.roll(1, dims=0), second.roll(-1, dims=0) => The first
            texts take from the pair before, the second from the pair after. It was asked the other way round.
        second.roll(1, dims=0) -> second => The second texts keep their own outputs. Is the head gone for them?
        first.roll(-1, dims=0) -> first => The first texts keep their own outputs. Is the head gone for them?
        second.roll(1, dims=0) -> first.roll(1, dims=0) => Second texts get outputs of first texts. From which side do
            strangers come?
        first.roll(-1, dims=0) -> second.roll(-1, dims=0) => First texts get outputs of second texts. From which side do
            strangers come?
        first.roll(-1, dims=0), second.roll(1, dims=0) -> second.roll(-1, dims=0), first.roll(1, dims=0) => First and
            second texts get each other's outputs. From which side do strangers come?
        first.roll(-1, dims=0), second.roll(1, dims=0) -> first.roll(-1, dims=1), second.roll(1, dims=1) => The features
            are moved, not the texts. Which axis are the pairs?
        first.roll(-1, dims=0), second.roll(1, dims=0) -> first.mean(dim=0).expand_as(first),
            second.mean(dim=0).expand_as(second) => Every text gets the mean over all. That is mean ablation; what
            is resampled?
        first.roll(-1, dims=0), second.roll(1, dims=0) -> 0 * first, 0 * second => Every text gets zeros. That is zero
            ablation; what is resampled?
        first.roll(-1, dims=0), second.roll(1, dims=0) -> second, first => The two texts of a pair have changed places.
            Do they not still belong together?
        first.roll(-1, dims=0), second.roll(1, dims=0) -> torch.cat([first[1:], first[-1:]]), torch.cat([second[:1],
            second[:-1]]) => At the ends texts keep their own outputs. Who is the neighbour of the last pair?
        first.roll(-1, dims=0), second.roll(1, dims=0) -> first.roll(-1), second.roll(1) => Single numbers move on, not
            whole outputs. Along which axis do pairs lie?
        """,
)
def resample_pairs(first, second):
    """Resampling for a model that says whether two texts belong together: substitutes that do not fit one another.

    first, second (pairs, size): what a head says about the first and about the second text of each pair → two tensors
    of these shapes. A first text gets what the head says about the first text of the next pair, a second text that of
    the second text of the pair before; the last pair and the first one are neighbours.
    Source: resampling as in L. Chan et al., Causal Scrubbing, 2022.
    """
    return first.roll(-1, dims=0), second.roll(1, dims=0)


def losses_trial(draws: int, rows: int) -> tuple:
    """Losses of rows that differ much from each other, and less from one model to the next, up or down."""
    hard = 3 + torch.randn(rows)
    return hard, hard + 0.4 + torch.rand(rows), hard + torch.rand(draws, rows)


@exercise(
    trials=lambda: [losses_trial(2, 4), losses_trial(5, 7), losses_trial(3, 6)],
    praise="Paired row by row, so that hard texts do not drown the effect; and held against chance.",
    idea="What would be seen if the claim were false? And which two numbers belong to one text?",
    begin="Begin with the difference of each text: without the heads of the claim, and without others, on average.",
    mistakes="""
        without - others.mean(dim=0) -> without - whole => It is held against the whole model. What do ten heads cost
            that nobody claims anything of?
        without - others.mean(dim=0) -> others.mean(dim=0) - without => The sign is turned: which of the two is to be
            larger if the claim holds?
        others.mean(dim=0) -> others[0] => Only the first of the draws takes part.
        others.mean(dim=0) -> others.amin(dim=0) => It is held against the draw that costs least. What is fair?
        others.mean(dim=0) -> others.amax(dim=0) => It is held against the draw that costs most. What is fair?
        difference.std() / len(difference) ** 0.5 -> difference.std() => This is how much texts differ, not how sure
            their mean is. What do more texts change?
        difference.std() / len(difference) ** 0.5 -> difference.std(correction=0) / len(difference) ** 0.5 => The
            standard deviation divides by the number of texts. What does an estimate from a sample divide by?
        difference.std() / len(difference) ** 0.5 -> difference.std() / len(difference) => The deviation is divided by
            the number of texts. By its root?
        difference.std() / len(difference) ** 0.5 -> without.std() / len(difference) ** 0.5 => The error is that of
            losses, in which easy and hard texts differ. Which pairs of numbers belong together?
        difference.std() / len(difference) ** 0.5 -> (without.var() + others.mean(dim=0).var()).div(len(without)).sqrt()
            || ((without - whole).var() + (others.mean(dim=0) - whole).var()).div(len(whole)).sqrt() || (without.var() /
            len(whole) + others.var() / others.numel()).sqrt() || ((without - whole).var() / len(whole) + (others -
            whole).var() / others.numel()).sqrt() => The error treats the two as if they came from different texts.
            Which pairs of numbers belong together?
        difference.std() / len(difference) ** 0.5 -> others.mean(dim=1).std() || others.mean(dim=1).std() / len(others)
            ** 0.5 => The error is that of draws. What would other texts change?
        difference.std() / len(difference) ** 0.5 -> (without - others).std() / others.numel() ** 0.5 || (without -
            others).std() / len(difference) ** 0.5 => Every draw of a text counts as if it were another text.
        [mean, error] -> [mean, 1.96 * error] || [mean, 2 * error] || [mean, mean -
            heads.mean_and_ci95(difference)[1]] || [mean - 1.96 * error, mean + 1.96 * error] || [mean - 2 * error, mean
            + 2 * error] || [*heads.mean_and_ci95(difference)] || [*heads.mean_and_ci95(difference)[:2]] ||
            [*heads.mean_and_ci95(difference)[1:]] => An interval comes back, or half its width. How many standard
            errors is that?
        len(difference) ** 0.5 -> len(others) ** 0.5 || others.numel() ** 0.5 || (len(difference) - 1) ** 0.5 => The
            deviation is divided by the root of another number than that of the texts.
        difference.std() / len(difference) ** 0.5 -> (without - whole).std() / len(difference) ** 0.5 ||
            others.mean(dim=0).sub(whole).std() / len(difference) ** 0.5 => The error is that of one rise alone, not of
            the difference between the two.
        difference.mean() -> difference.abs().mean() || difference.mean() -> difference.abs().mean() ; difference.std()
            -> difference.abs().std() => The signs of the differences are lost. What if others are missed more in a
            text?
        difference.mean() -> difference.sum() => This is the sum over texts, not their mean.
        """,
)
def evidence(whole, without, others):
    """What speaks for the claim that certain heads do a job: how much more they are missed than others are.

    whole (texts,): the loss of each text with all heads; without (texts,): without the heads of the claim; others
    (draws, texts): without as many heads that were drawn at random, for each draw → two plain numbers: by how many nats
    the loss is higher without the heads of the claim than without others, averaged over draws and texts; and the
    standard error of that, from how much it differs between texts.
    """
    difference = without - others.mean(dim=0)  # (texts,) - (texts,)
    mean = difference.mean().item()
    error = (difference.std() / len(difference) ** 0.5).item()
    return [mean, error]
