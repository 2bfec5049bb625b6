"""The exercise of notebook 10: a test of one's own, which needs no right answer."""

import torch

from mha_course.checking.exercise import exercise
from mha_course.museum.editable_layer import Layer


class PaddingKeepsWeight(Layer):
    """Set masked scores to 0 instead of −∞: a typical mistake."""

    def masked_softmax(self, scores, valid_lens):
        """Return weights of the shape of ``scores``."""
        return torch.softmax(scores * (torch.arange(scores.shape[-1]) < valid_lens[:, None, None, None]), dim=-1)


class LengthOfTheFirst(Layer):
    """Mask all examples by the length of the first one: a typical mistake."""

    def masked_softmax(self, scores, valid_lens):
        """Return weights of the shape of ``scores``."""
        return super().masked_softmax(scores, valid_lens[:1].expand(len(scores)))


def batch_trial(kind: type[Layer], valid_lens: list[int], num_heads: int) -> tuple:
    """Return a layer of this kind in eval mode, random tokens and their valid lengths, all in double precision."""
    layer = kind(4 * num_heads, num_heads).double().eval().requires_grad_(False)
    X = torch.randn(len(valid_lens), max(valid_lens), 4 * num_heads, dtype=torch.float64)
    return layer, X, torch.tensor(valid_lens)


@exercise(
    trials=lambda: {
        "for a correct layer": [batch_trial(Layer, [3, 2], 1), batch_trial(Layer, [2, 5, 3], 2)],
        "for a layer in which padding keeps weight": [
            batch_trial(PaddingKeepsWeight, [4, 1], 1),
            batch_trial(PaddingKeepsWeight, [2, 5, 3], 2),
            batch_trial(PaddingKeepsWeight, [4, 2, 6, 3], 3),
        ],
        "for a layer that masks all examples by the first length": [batch_trial(LengthOfTheFirst, [2, 4, 4, 3], 2)],
    },
    praise="Your test needs no right answer, and it distinguishes a correct layer from two wrong ones.",
    idea="A correct layer gives an example the same outputs in a batch as alone, cut off after its valid tokens.",
    begin="Begin with the output for the whole batch, and loop over the valid lengths.",
    mistakes="""
        own = X[b : b + 1, :length] -> own = X[b : b + 1] ; together[b : b + 1, :length] - alone -> together[b : b + 1]
            - alone || own = X[b : b + 1, :length] -> own = X[b : b + 1] ; together[b : b + 1, :length] - alone ->
            (together[b : b + 1] - alone)[:, :length] => The example is alone, but keeps its padding: a layer in which
            padding has weight passes.
        max(largest, change) -> change => Only the last example counts.
        max(largest, change) -> largest + change => The changes of the examples are added; the largest is needed.
        .abs().max() -> .max() => A change downwards does not count. Take the absolute value.
        .abs().max() -> .abs().mean() => The changes are averaged, so a single wrong output hardly shows.
        - alone).abs().max() -> - alone).mean().abs() => The changes are averaged with their signs, so they cancel.
        together[b : b + 1, :length] -> together[:1, :length] => Every example is compared with the first one of the
            batch.
    """,
)
def change_when_alone(layer, X, valid_lens):
    """Return the largest change of an output of ``layer`` when examples leave their batch and lose their padding.

    layer, called as layer(queries, keys, values, valid_lens); X (batch, n, d), one tensor for all three; valid_lens
    (batch,), each from 1 to n. Outputs of padding do not count → a number.
    Source: Chen, Cheung, Yiu 1998, "Metamorphic testing".
    """
    together, largest = layer(X, X, X, valid_lens), 0.0
    for b, length in enumerate(valid_lens.tolist()):
        own = X[b : b + 1, :length]
        alone = layer(own, own, own, valid_lens[b : b + 1])
        change = (together[b : b + 1, :length] - alone).abs().max().item()
        largest = max(largest, change)
    return largest
