"""An exercise of notebook 06: map what a head contributes."""

import torch

from mha_course.checking.exercise import exercise


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
