"""Flax's own layer with the parameters of a golden vector, for ``jax.ipynb``."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

INPUT = "queries", "keys", "values"


def layer_of(case, dtype):
    """Return ``nnx.MultiHeadAttention`` with the parameters of a case.

    Raises NotImplementedError where the layer has no argument for what the case needs.
    """
    h, size, bias = int(case["num_heads"]), len(case["W_o.weight"]), "W_q.bias" in case
    if "head_mask" in case:
        raise NotImplementedError("no gates on heads")
    if case["keys"].shape[-1] != case["values"].shape[-1]:
        raise NotImplementedError("unequal keys, values")
    sizes = dict(in_features=case["queries"].shape[-1], in_kv_features=case["keys"].shape[-1])
    how = dict(use_bias=bias, param_dtype=dtype, decode=False, rngs=nnx.Rngs(0))
    layer = nnx.MultiHeadAttention(h, **sizes, qkv_features=size, out_features=size, **how)
    for part, name in (("query", "W_q"), ("key", "W_k"), ("value", "W_v"), ("out", "W_o")):
        shape, bias_shape = ((h, -1, size), (size,)) if part == "out" else ((-1, h, size // h), (h, size // h))
        getattr(layer, part).kernel[...] = jnp.asarray(case[f"{name}.weight"].T.reshape(shape))
        if bias:
            getattr(layer, part).bias[...] = jnp.asarray(case[f"{name}.bias"].reshape(bias_shape))
    return layer


def mask_of(case):
    """Return the mask that Flax takes, (b, 1, 1 or q, k): True for a key that may be attended to."""
    lengths = case.get("valid_lens", np.full(len(case["keys"]), case["keys"].shape[1]))
    return jnp.arange(case["keys"].shape[1]) < lengths.reshape(len(lengths), 1, -1, 1)


def forward(case, dtype):
    """Return the layer's output and its weights, (b, h, q, k)."""
    layer = layer_of(case, dtype)
    output = layer(*(case[name] for name in INPUT), mask=mask_of(case), deterministic=True, sow_weights=True)
    return output, jax.tree.leaves(nnx.pop(layer, nnx.Intermediate))[0]


def without_weights(case, dtype):
    """Return the layer's output where nobody asks for its weights, and None."""
    inputs = (case[name] for name in INPUT)
    return layer_of(case, dtype)(*inputs, mask=mask_of(case), deterministic=True), None
