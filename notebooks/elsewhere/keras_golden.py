"""The golden vectors for the layer of ``keras.ipynb``: matrices (in, h, d) for ``EinsumDense``."""

from keras import ops

INPUT = "queries", "keys", "values", "valid_lens", "head_mask"


def heads_of(W, num_heads):
    """Split a matrix into those of the heads, (in, h·d) -> (in, h, d): head 0 gets the first d columns."""
    return W.reshape(len(W), num_heads, -1)


def forward(kind, split=heads_of):
    """Return the function that ``golden_vectors.compare`` calls for each case, with a layer of this class."""

    def call(case, dtype):
        size, h, bias = len(case["W_o.weight"]), int(case["num_heads"]), "W_q.bias" in case
        layer = kind(size, h, 0.5, bias, dtype=dtype)
        inputs = [ops.convert_to_tensor(case[name]) if name in case else None for name in INPUT]
        layer(*inputs)  # now its parts have their sizes
        for name in ("W_q", "W_k", "W_v", "W_o"):
            W = case[f"{name}.weight"].T  # (out, in) -> (in, out)
            parameters = [W.reshape(h, -1, size) if name == "W_o" else split(W, h)]
            if bias:
                parameters.append(case[f"{name}.bias"].reshape((size,) if name == "W_o" else (h, 1, -1)))
            getattr(layer, name).set_weights(parameters)
        output = layer(*inputs)
        return ops.convert_to_numpy(output), ops.convert_to_numpy(layer.attention_weights)

    return call
