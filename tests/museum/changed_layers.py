"""The museum's layer, changed in one place: what the tests of the panel and of ``check_layer`` look at."""

import math

import torch

from mha_course.museum.editable_layer import AdditiveLayer, Layer


def variant(base=Layer, **parts):
    """A right layer with other parts."""
    return type("Variant", (base,), parts)


def afterwards(change, base=Layer):
    """A right layer of which something is changed once the output is there: (layer, output) -> output."""
    return variant(base, forward=lambda self, *inputs: change(self, base.forward(self, *inputs)))


def using(change):
    """A layer whose weights pass through this on their way to the values: (weights, rate, training) -> weights."""

    def forward(self, queries, keys, values, valid_lens):
        Q, K, V = self.project(queries, keys, values)
        self.attention_weights = self.masked_softmax(self.scores(Q, K), valid_lens)
        used = change(self.attention_weights, self.dropout.p, self.training)
        return self.W_o(self.merge_heads(used @ V))

    return variant(forward=forward)


def infinite_where_padded(self, scores, valid_lens):
    """A masked softmax that gives NaN in rows without a valid key."""
    padding = torch.arange(scores.shape[-1]) >= valid_lens[:, None, None, None]
    return torch.softmax(scores.masked_fill(padding, -math.inf), dim=-1)


class AdditiveByLoop(AdditiveLayer):
    """Right, key by key."""

    def scores(self, Q, K):
        columns = [torch.tanh(Q + key) @ self.w_v[:, :, None] for key in K.split(1, dim=-2)]
        return torch.cat(columns, dim=-1)
