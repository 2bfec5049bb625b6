"""Keras' own layer with the parameters of a golden vector, for ``keras.ipynb``."""

import numpy as np
from keras import layers, ops

INPUT = "queries", "keys", "values"


def layer_of(case, dtype, dropout=0.0):
    """Return ``keras.layers.MultiHeadAttention`` with the parameters of a case.

    Raises NotImplementedError where the layer has no argument for what the case needs.
    """
    if "head_mask" in case:
        raise NotImplementedError("no gates on heads")
    h, size, bias = int(case["num_heads"]), len(case["W_o.weight"]), "W_q.bias" in case
    layer = layers.MultiHeadAttention(h, size // h, dropout=dropout, use_bias=bias, output_shape=size, dtype=dtype)
    layer.build(*(case[name].shape for name in ("queries", "values", "keys")))
    weights = []
    for name in ("W_q", "W_k", "W_v", "W_o"):
        shape, bias_shape = ((h, -1, size), (size,)) if name == "W_o" else ((-1, h, size // h), (h, size // h))
        weights.append(case[f"{name}.weight"].T.reshape(shape))
        if bias:
            weights.append(case[f"{name}.bias"].reshape(bias_shape))
    layer.set_weights(weights)
    return layer


def mask_of(case):
    """Return the mask that Keras takes, (b, q, k): True for a key that may be attended to."""
    b, q, k = len(case["queries"]), case["queries"].shape[1], case["keys"].shape[1]
    lengths = case.get("valid_lens", np.full(b, k)).reshape(b, -1, 1)
    return np.arange(k) < np.broadcast_to(lengths, (b, q, 1))


def forward(case, dtype, scores=True):
    """Return the layer's output, and its weights, (b, h, q, k), where they are asked for."""
    layer = layer_of(case, dtype)
    queries, keys, values = (ops.convert_to_tensor(case[name]) for name in INPUT)
    got = layer(queries, values, keys, attention_mask=mask_of(case), return_attention_scores=scores)
    return tuple(map(ops.convert_to_numpy, got)) if scores else (ops.convert_to_numpy(got), None)


def without_weights(case, dtype):
    """Return the layer's output where nobody asks for its weights, and None."""
    return forward(case, dtype, scores=False)
