"""Write the golden vectors: ``python golden/make_golden.py [FOLDER]``.

Multi-head attention as its formula says, in NumPy and float64, with nothing of mha_lib. README.md says what a file
holds. Results are rounded so that every machine and every release of NumPy writes the same bytes.
"""

import io
import sys
import zipfile
from pathlib import Path

import numpy as np

DECIMALS = 9

# batch, num_queries, num_keys, num_heads, head_size, query_size, key_size, value_size
SIZES = 2, 3, 4, 2, 3, 6, 6, 6
UNEQUAL = 3, 5, 4, 2, 3, 7, 8, 9

# sizes, valid_lens, with biases, with gates on heads
CASES = {
    "all_keys": (SIZES, None, False, False),
    "lengths": (SIZES, [3, 1], False, False),
    "lengths_per_query": (SIZES, [[1, 2, 3], [4, 3, 1]], False, False),
    "empty_example": (SIZES, [0, 2], False, False),
    "empty_rows": (SIZES, [[0, 2, 4], [1, 0, 0]], True, False),
    "biases": (SIZES, [4, 2], True, False),
    "unequal_sizes": (UNEQUAL, [4, 2, 3], False, False),
    "one_head": ((2, 3, 5, 1, 4, 4, 4, 4), [5, 2], False, False),
    "head_mask": (SIZES, [2, 4], True, True),
    "everything": (UNEQUAL, [[4, 3, 2, 1, 0], [0, 1, 2, 3, 4], [2, 2, 0, 4, 1]], True, True),
}


def golden(sizes, valid_lens, with_biases, with_gates) -> dict[str, np.ndarray]:
    """Input, parameters and result of one case, by the names that README.md gives."""
    batch_size, num_queries, num_keys, num_heads, head_size, query_size, key_size, value_size = sizes
    num_hiddens = num_heads * head_size
    random = np.random.RandomState(0)  # its numbers are the same in every release of NumPy

    def numbers(*shape):
        return random.standard_normal(shape).round(2)

    arrays = {
        "num_heads": np.array(num_heads),
        "queries": numbers(batch_size, num_queries, query_size),
        "keys": numbers(batch_size, num_keys, key_size),
        "values": numbers(batch_size, num_keys, value_size),
    }
    for name, size in (("W_q", query_size), ("W_k", key_size), ("W_v", value_size), ("W_o", num_hiddens)):
        arrays[f"{name}.weight"] = numbers(num_hiddens, size)
        if with_biases:
            arrays[f"{name}.bias"] = numbers(num_hiddens)
    if valid_lens is not None:
        arrays["valid_lens"] = np.array(valid_lens)
    if with_gates:
        arrays["head_mask"] = random.uniform(size=(batch_size, num_heads)).round(2)
    return arrays | attention(arrays)


def attention(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """output = W_o [head_1; …; head_h], head_i = softmax(q_i k_iᵀ / √head_size) v_i over the valid keys."""
    batch_size, num_keys = arrays["keys"].shape[:2]
    num_heads = int(arrays["num_heads"])

    def project(name, X):
        return np.einsum("bni,oi->bno", X, arrays[f"{name}.weight"]) + arrays.get(f"{name}.bias", 0.0)

    def heads(X):  # head i has the i-th block of neighbouring features
        return X.reshape(*X.shape[:2], num_heads, -1)

    Q, K, V = (heads(project(f"W_{name[0]}", arrays[name])) for name in ("queries", "keys", "values"))
    scores = np.einsum("bqhs,bkhs->bhqk", Q, K) / np.sqrt(Q.shape[-1])
    lengths = arrays.get("valid_lens", np.full(batch_size, num_keys)).reshape(batch_size, 1, -1, 1)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True)) * (np.arange(num_keys) < lengths)
    total = powers.sum(axis=-1, keepdims=True)
    weights = powers / np.where(total > 0, total, 1.0)  # a query without valid keys: weights 0
    gates = arrays.get("head_mask", np.ones((batch_size, num_heads)))
    pooled = np.einsum("bhqk,bkhs,bh->bqhs", weights, V, gates)
    output = project("W_o", pooled.reshape(*pooled.shape[:2], -1))
    return {"attention_weights": weights.round(DECIMALS), "output": output.round(DECIMALS)}


def write(file: Path, arrays: dict[str, np.ndarray]) -> None:
    """``np.savez`` with nothing in the file that depends on machine, time or release."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            array = array.astype("<i8" if array.dtype.kind == "i" else "<f8") + 0  # + 0: no negative zero
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array, version=(1, 0))
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            archive.writestr(entry, buffer.getvalue())


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, case in CASES.items():
        write(folder / f"{name}.npz", golden(*case))
