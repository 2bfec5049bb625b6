"""The golden vectors for pure functions, for ``jax.ipynb``: matrices (h, in, d), defaults filled in."""

import jax.numpy as jnp
from golden_vectors import arrays, filled


def heads_of(W, num_heads):
    """Split a matrix into those of the heads, (in, h·d) -> (h, in, d): head 0 gets the first d columns."""
    return W.reshape(len(W), num_heads, -1).swapaxes(0, 1)


def case(name, dtype="float64"):
    """Return the parameters of a case, and its queries, keys, values, valid_lens and head_mask."""
    return moved(arrays(name, dtype))


def moved(case, split=heads_of):
    case = filled(case)
    h = int(case["num_heads"])
    p = {f"b_{name}": case[f"W_{name}.bias"].reshape(h, -1) for name in "qkv"}
    p |= {f"W_{name}": split(case[f"W_{name}.weight"].T, h) for name in "qkv"}  # (out, in) -> (in, out)
    p |= {"W_o": case["W_o.weight"].T.reshape(h, -1, len(case["W_o.weight"])), "b_o": case["W_o.bias"]}
    return {name: jnp.asarray(X) for name, X in p.items()}, [jnp.asarray(case[name]) for name in case["inputs"]]


def forward(attention, split=heads_of, **arguments):
    """Return the function that ``golden_vectors.compare`` calls for each case."""

    def call(case, dtype):
        p, inputs = moved(case, split)
        return attention(p, *inputs, **arguments)

    return call
