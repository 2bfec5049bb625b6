"""Exercises of notebook 06: choose a head and test it, and map what a head contributes."""

import torch
from torch import Tensor

from mha_course.checking.exercise import exercise


def sentences(number: int, num_layers: int, num_heads: int) -> Tensor:
    """Return random weights (number, num_layers, num_heads): each head's attention to a given word in each sentence."""
    weights = torch.rand(number, num_layers, num_heads) ** 3
    weights[0] *= 0.2
    return weights


@exercise(
    trials=lambda: [
        (sentences(4, 2, 3), sentences(3, 2, 3)),
        (sentences(3, 3, 4), sentences(5, 3, 4)),
        (sentences(6, 5, 4), sentences(4, 5, 4)),
    ],
    praise="The head is chosen on one set of sentences and tested on another, so the figure is not inflated.",
    idea="The largest of many means is partly luck, so the figure has to come from other sentences.",
    begin="Begin with the mean weight of each head over the calibration sentences.",
    mistakes="""
        test.mean(dim=0).flatten()[best] -> means.max() => The figure comes from the sentences that chose the head, so
            it is partly luck. Use the test sentences.
        means = calibration.mean(dim=0).flatten() -> means = test.mean(dim=0).flatten() => The head is chosen on the
            test sentences. Choose it on the others.
        means = calibration.mean(dim=0).flatten() -> means = torch.cat([calibration, test]).mean(dim=0).flatten() => The
            head is chosen on all sentences, so no sentence is left to test it.
        test.mean(dim=0).flatten()[best] -> torch.cat([calibration, test]).mean(dim=0).flatten()[best] => The figure
            comes from all sentences, including those that chose the head.
        test.mean(dim=0).flatten()[best] -> test.mean(dim=0).max() => The figure is that of the best head on the test
            sentences. Use the head that was chosen.
        means = calibration.mean(dim=0).flatten() -> means = calibration.amax(dim=0).flatten() => The head is chosen by
            its best sentence. Choose by the mean.
        means = calibration.mean(dim=0).flatten() -> means = -calibration.mean(dim=0).flatten() => This is the head with
            the lowest mean.
        test.mean(dim=0).flatten()[best] -> test.amax(dim=0).flatten()[best] => The figure is that of one sentence, the
            best. Take the mean.
        best // num_heads, best % num_heads -> best % num_heads, best // num_heads => Layer and head are exchanged.
        best // num_heads, best % num_heads -> best // num_heads + 1, best % num_heads + 1 => Layers and heads are
            counted from 1. Count from 0.
        [best // num_heads, best % num_heads, figure] -> [best, figure] => Layer and head are one number. Divide it by
            the number of heads.
        (calibration, test): -> (test, calibration): => The two sets of sentences are exchanged.
        calibration.shape[2] -> calibration.shape[1] => The number of the head is divided by the number of layers.
            Divide it by the number of heads.
        means.argmax().item() -> calibration.mean(dim=(0, 2)).argmax().item() * num_heads + calibration.mean(dim=(0,
            1)).argmax().item() => Layer and head are chosen separately, each by a mean over the other. Choose both
            together.
        means.argmax().item() -> max(range(len(means)), key=lambda place: (calibration.mean(dim=(0, 2))[place //
            num_heads].item(), means[place].item())) => The layer is chosen first, by the mean of its heads. The best
            head may be in another one.
        """,
)
def choose_head(calibration, test):
    """Return layer and number of the head with the highest mean weight in ``calibration``, and its mean in ``test``.

    calibration (sentences, layers, heads) and test (other sentences, layers, heads): the weight of each head on the
    wanted word in each sentence → layer, head and figure, three plain numbers (``.item()``): the head with the highest
    mean on the calibration sentences, and its mean on the test sentences.
    """
    num_heads = calibration.shape[2]
    means = calibration.mean(dim=0).flatten()
    best = means.argmax().item()
    figure = test.mean(dim=0).flatten()[best].item()
    return [best // num_heads, best % num_heads, figure]


def contribution_trial(batch: int, num_heads: int, num_queries: int, num_keys: int, head_size: int) -> tuple:
    """Return random attention weights, values and a square output matrix W_o, as inputs of ``contribution_map``."""
    num_hiddens = num_heads * head_size
    weights = torch.softmax(torch.randn(batch, num_heads, num_queries, num_keys), dim=-1)
    return weights, torch.randn(batch, num_heads, num_keys, head_size), torch.randn(num_hiddens, num_hiddens)


@exercise(
    trials=lambda: [
        contribution_trial(2, 2, 3, 4, 2),
        contribution_trial(3, 4, 2, 5, 3),
        contribution_trial(2, 3, 5, 4, 4),
    ],
    praise="A head whose columns of W_o are 0 now has an empty map, however concentrated its weights are.",
    idea="Follow one value: its head's part of W_o is applied, then the weight, then the length is taken.",
    begin="Begin by splitting W_o into the columns of each head.",
    mistakes="""
    values @ columns.mT -> values => This is the length of the values. Apply the head's part of W_o first.
    W_o.unflatten -> W_o.T.unflatten => The values are multiplied by rows of W_o. A head has columns.
    W_o.unflatten(1, (weights.shape[1], -1)).transpose(0, 1) -> W_o.unflatten(1, (-1, weights.shape[1])).permute(2, 0,
        1) || .transpose(0, 1) -> $[:1] || $.flip(0) => A head is multiplied by columns of W_o that are not its own.
        Head i has columns i·p to (i+1)·p − 1.
    weights * lengths[:, :, None] -> 0 * weights + lengths[:, :, None] || lengths => All queries have the same numbers:
        the weights are missing.
    arriving.norm(dim=-1) -> values.norm(dim=-1) * columns.norm(dim=(1, 2))[:, None] => Two lengths are multiplied. The
        length of a product is a different number.
    norm(dim=-1) -> square().sum(dim=-1) || square().mean(dim=-1).sqrt() || abs().sum(dim=-1) || sum(dim=-1) => This is
        not the length of the vector.
    weights * lengths[:, :, None] -> torch.nn.functional.normalize($, p=1, dim=-1) => Every row adds up to 1, so the
        lengths are lost.
    weights * lengths[:, :, None] -> (weights @ arriving).norm(dim=-1) => The keys are added up before the length is
        taken. Take the length for each key.
    weights * lengths[:, :, None] -> weights[..., None] * arriving[:, :, None] => These are the vectors. Return their
        lengths.
    values @ columns.mT -> ($).sum(dim=1, keepdim=True) => All heads have the length of their sum. Keep the heads apart.
    """,
)
def contribution_map(weights, values, W_o):
    """Return, for each head, the norm of the vector that each key adds to each query's output after W_o.

    weights (batch, num_heads, num_queries, num_keys), values (batch, num_heads, num_keys, head_size), W_o (num_hiddens,
    num_heads · head_size) as in ``nn.Linear`` → lengths of the shape of the weights.
    Source: G. Kobayashi et al., Attention is Not Only a Weight: Analyzing Transformers with Vector Norms, 2020.
    """
    columns = W_o.unflatten(1, (weights.shape[1], -1)).transpose(0, 1)  # (h, d, p)
    arriving = values @ columns.mT  # (b, h, k, p) @ (h, p, d) -> (b, h, k, d)
    lengths = arriving.norm(dim=-1)  # -> (b, h, k)
    return weights * lengths[:, :, None]  # (b, h, q, k) * (b, h, 1, k)
