"""The book's own layer, of d2l 1.0.3, on the golden vectors: ``d2l_layer.py jax``, or tensorflow, mxnet, torch.

Runs in the environment of that framework, started by ``tools.elsewhere``. What d2l imports beside the framework, and
its layer does not use, is replaced by modules that are empty.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types

import numpy
from golden_vectors import compare

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
MATRICES = "W_q", "W_k", "W_v", "W_o"


class Missing(types.ModuleType):
    """A module in which every name is a class that does nothing."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds an empty module for each of these names."""

    names = frozenset("IPython matplotlib matplotlib_inline pandas requests tensorflow_datasets torchvision".split())

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name.partition(".")[0] in self.names else None

    def create_module(self, spec):
        return Missing(spec.name)

    def exec_module(self, module):
        pass


def book(framework, *first):
    """The book's package for a framework, after the modules that must see the world as it is."""
    for name in first:
        importlib.import_module(name)
    if framework == "jax":
        Finder.names |= {"tensorflow"}
    sys.meta_path.insert(0, Finder())
    return importlib.import_module(f"d2l.{framework}")


def sizes(case):
    """num_hiddens, num_heads, dropout and bias, as the book's layer takes them."""
    if "head_mask" in case:
        raise NotImplementedError("no gates on heads")
    return len(case["W_o.weight"]), int(case["num_heads"]), 0.5, "W_q.bias" in case


def inputs(case, array):
    return [array(case[name]) if name in case else None for name in ("queries", "keys", "values", "valid_lens")]


def of_jax():
    MultiHeadAttention = book("jax", "jax", "flax.linen", "flax.training.train_state", "optax").MultiHeadAttention
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
    MultiHeadAttention = book("tensorflow", "tensorflow.keras").MultiHeadAttention
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
    MultiHeadAttention = book("mxnet", "mxnet").MultiHeadAttention
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
    MultiHeadAttention = book("torch", "torch").MultiHeadAttention
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
