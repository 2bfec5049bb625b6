"""The book's own layer, of d2l 1.0.3, on the golden vectors: ``d2l_layer.py jax``, or tensorflow, mxnet, torch.

Runs in the environment of that framework, started by ``tools.elsewhere``.
"""

import importlib
import os
import sys
from unittest.mock import MagicMock

import numpy
from golden_vectors import compare

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
MATRICES = "W_q", "W_k", "W_v", "W_o"
UNUSED = "IPython", "matplotlib", "matplotlib_inline", "pandas", "requests", "tensorflow_datasets", "torchvision"


def layer_of(framework, first, unused=UNUSED):
    """The book's layer for a framework, after the modules that come first have been imported.

    What d2l imports beside the framework, and its layer does not use, has stand-ins: it is not installed here.
    """
    for name in first:
        importlib.import_module(name)
    for name in unused:
        sys.modules[name] = MagicMock()
    return importlib.import_module(f"d2l.{framework}").MultiHeadAttention


def sizes(case):
    """num_hiddens, num_heads, dropout and bias, as the book's layer takes them."""
    if "head_mask" in case:
        raise NotImplementedError("no gates on heads")
    return len(case["W_o.weight"]), int(case["num_heads"]), 0.5, "W_q.bias" in case


def inputs(case, array):
    return [array(case[name]) if name in case else None for name in ("queries", "keys", "values", "valid_lens")]


def of_jax():
    MultiHeadAttention = layer_of("jax", ("flax.linen", "flax.training.train_state", "optax"), (*UNUSED, "tensorflow"))
    import jax

    jax.config.update("jax_enable_x64", True)

    def call(case, dtype):
        layer = MultiHeadAttention(*sizes(case))
        named = {name: {"kernel": case[f"{name}.weight"].T} for name in MATRICES}
        for name in MATRICES if "W_q.bias" in case else ():
            named[name]["bias"] = case[f"{name}.bias"]
        return layer.apply({"params": jax.tree.map(jax.numpy.asarray, named)}, *inputs(case, jax.numpy.asarray))

    return call


def of_tensorflow():
    MultiHeadAttention = layer_of("tensorflow", ["tensorflow"])
    import tensorflow

    def call(case, dtype):
        queries, keys, values, valid_lens = inputs(case, tensorflow.constant)
        layer = MultiHeadAttention(*(X.shape[-1] for X in (keys, queries, values)), *sizes(case))
        layer(queries, keys, values, valid_lens, training=False)  # now its parts have their sizes
        for name in MATRICES:
            bias = [case[f"{name}.bias"]] if "W_q.bias" in case else []
            getattr(layer, name).set_weights([case[f"{name}.weight"].T, *bias])
        output = layer(queries, keys, values, valid_lens, training=False)
        return output, layer.attention.attention_weights

    return call


def of_mxnet():
    numpy.bool = bool  # what MXNet's import needs of a NumPy that no longer has it
    MultiHeadAttention = layer_of("mxnet", ["mxnet"])
    import mxnet

    mxnet.npx.set_np()

    def call(case, dtype):
        layer = MultiHeadAttention(*sizes(case))
        layer.initialize(mxnet.init.Zero())
        layer.cast(dtype)
        arrays = inputs(case, lambda X: mxnet.np.array(X, dtype=str(X.dtype)))
        layer(*arrays)
        for name in MATRICES:
            for part in ("weight", "bias") if "W_q.bias" in case else ("weight",):
                getattr(getattr(layer, name), part).set_data(mxnet.np.array(case[f"{name}.{part}"], dtype=dtype))
        return layer(*arrays).asnumpy(), layer.attention.attention_weights.asnumpy()

    return call


def of_torch():
    MultiHeadAttention = layer_of("torch", ["torch"])
    import torch

    def call(case, dtype):
        layer, arrays = MultiHeadAttention(*sizes(case)).eval(), inputs(case, torch.from_numpy)
        with torch.no_grad():
            layer.to(arrays[0].dtype)(*arrays)
            named = {name: torch.from_numpy(X) for name, X in case.items() if name.startswith("W_")}
            layer.to(arrays[0].dtype).load_state_dict(named)
            return layer(*arrays), layer.attention.attention_weights

    return call


if __name__ == "__main__":
    framework = sys.argv[1]
    call = globals()[f"of_{framework}"]()

    def forward(case, dtype):
        output, weights = call(case, dtype)
        weights = numpy.asarray(weights)
        return output, weights.reshape(len(case["queries"]), -1, *weights.shape[1:])  # (b·h, q, k) -> (b, h, q, k)

    compare(f"d2l, {framework}", forward)
