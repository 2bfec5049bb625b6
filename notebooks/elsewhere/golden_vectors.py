"""Hold a layer of any framework to the golden vectors: what the Python notebooks of this folder share.

``compare`` and ``caught`` print what comes out. Where the project runs the notebooks, it also keeps it, for its table.
"""

import json
import os
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
TOLERANCE = {"float32": 1e-5, "float64": 1e-8}


def cases(dtype):
    """The ten cases by name: dicts of NumPy arrays, numbers of this type."""
    for file in sorted(GOLDEN.glob("*.npz")):
        with np.load(file) as arrays:
            yield file.stem, {name: X.astype(dtype) if X.dtype.kind == "f" else X for name, X in arrays.items()}


def arrays(name, dtype="float64"):
    """Return one case, as it is kept."""
    return dict(cases(dtype))[name]


def filled(case):
    """Return the case with what it leaves out (zero biases, full lengths, open gates) and its ``inputs``, the names."""
    b, k, h = len(case["keys"]), case["keys"].shape[1], int(case["num_heads"])
    dtype, inputs = case["queries"].dtype, ("queries", "keys", "values", "valid_lens", "head_mask")
    default = {f"{name}.bias": np.zeros(len(case["W_o.weight"]), dtype) for name in ("W_q", "W_k", "W_v", "W_o")}
    default |= {"valid_lens": np.full(b, k), "head_mask": np.ones((b, h), dtype)}
    return default | case | {"inputs": inputs}


def difference(got, right):
    """The largest difference of two arrays; infinite where shapes differ or a number is not finite."""
    got = np.asarray(got, dtype="float64")
    return float(abs(got - right).max()) if got.shape == right.shape and np.isfinite(got).all() else float("inf")


def differences(forward, dtype):
    """Name of a case → how far off ``forward(case, dtype)`` is, or in words what it cannot do.

    ``forward`` returns the output and the weights, (batch, heads, queries, keys), or None where it gives no weights.
    Where the layer has nothing for such a case, it raises NotImplementedError, and says what it has not.
    """
    found = {}
    for (name, case), (_, exact) in zip(cases(dtype), cases("float64"), strict=True):
        try:
            got = forward(case, dtype)
            pairs = zip(got, (exact["output"], exact["attention_weights"]), strict=True)
            found[name] = max(difference(X, right) for X, right in pairs if X is not None)
        except NotImplementedError as reason:
            found[name] = str(reason)
    return found


def in_words(found, dtype):
    """ok, or how far off: small differences as what they are, numbers of fewer bits."""
    if isinstance(found, str):
        return found
    few_bits = dtype == "float64" and TOLERANCE["float64"] < found <= TOLERANCE["float32"]
    return "ok" if found <= TOLERANCE[dtype] else "as float32" if few_bits else f"off by {found:.1f}"


def compare(layer, forward, dtypes=tuple(TOLERANCE)):
    """Print how a layer does on all cases, in numbers of each type."""
    found = {dtype: differences(forward, dtype) for dtype in dtypes}
    print(f"{'case':<18}" + "".join(f"{dtype:<22}" for dtype in dtypes).rstrip())
    for name in found[dtypes[0]]:
        print(f"{name:<18}" + "".join(f"{in_words(found[dtype][name], dtype):<22}" for dtype in dtypes).rstrip())
    for dtype in dtypes:
        keep(layer=layer, dtype=dtype, found=found[dtype])


def caught(bug, forward):
    """Print which cases catch a layer with a bug."""
    passed = [name for name, off in differences(forward, "float64").items() if in_words(off, "float64") == "ok"]
    print(f"{bug}: caught by {10 - len(passed)} of 10 cases; it passes {', '.join(passed) or 'none'}")
    keep(bug=bug, caught=10 - len(passed))


def off(layer, trap, got, right):
    """Print how far off a result is that a trap has changed."""
    far = float(np.abs(np.asarray(got, dtype="float64") - np.asarray(right, dtype="float64")).max())
    print(f"{trap}: off by {far:.1f}")
    keep(layer=layer, trap=trap, off=far)


def keep(**found):
    """One line of JSON for the project's table, where it asks for it."""
    if file := os.environ.get("MHA_ELSEWHERE"):
        with open(file, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(found) + "\n")
