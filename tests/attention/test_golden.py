"""The layer on the golden vectors, and the golden vectors on their script."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mha_lib import MultiHeadAttention
from mha_lib.attention.other_libraries import loop_over_heads

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.npz"))
INPUT = ("queries", "keys", "values", "valid_lens", "head_mask")
RESULT = ("output", "attention_weights")


def load(file, dtype=torch.float64):
    """The layer, its input and the expected result that a file holds."""
    with np.load(file) as arrays:
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    num_heads = int(tensors.pop("num_heads"))
    arguments = {name: tensors.pop(name) for name in INPUT if name in tensors}
    expected = [tensors.pop(name) for name in RESULT]
    layer = MultiHeadAttention(
        num_hiddens=expected[0].shape[-1], num_heads=num_heads, bias="W_q.bias" in tensors,
        **{f"{name}_size": arguments[sequence].shape[-1]
           for name, sequence in (("query", "queries"), ("key", "keys"), ("value", "values"))},
    ).double()  # fmt: skip
    layer.load_state_dict(tensors)  # refuses missing and left-over parameters
    converted = {name: X.to(dtype) if X.is_floating_point() else X for name, X in arguments.items()}
    return layer.to(dtype), converted, expected


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-8), (torch.float32, 1e-5)])
@pytest.mark.parametrize("by_formula", [False, True])
def test_the_layer(file, dtype, tolerance, by_formula):
    layer, arguments, expected = load(file, dtype)
    if by_formula:
        layer.attention.dropout.p = 1e-300  # active in training, and drops nothing
    results = layer.train()(**arguments), layer.attention_weights
    for result, golden in zip(results, expected, strict=True):
        torch.testing.assert_close(result.double(), golden, rtol=0, atol=tolerance)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_loop_over_heads(file):
    layer, arguments, expected = load(file)
    for result, golden in zip(loop_over_heads(layer, **arguments), expected, strict=True):
        torch.testing.assert_close(result, golden, rtol=0, atol=1e-8)


def test_what_is_covered():
    lengths, biases, gates, equal = set(), set(), set(), set()
    for file in FILES:
        layer, arguments, expected = load(file)
        valid_lens = arguments.get("valid_lens")
        lengths.add(None if valid_lens is None else (valid_lens.dim(), bool((valid_lens == 0).any())))
        biases.add(layer.W_q.bias is not None)
        gates.add("head_mask" in arguments)
        equal.add(len({*(arguments[name].shape[-1] for name in INPUT[:3]), layer.num_hiddens}) == 1)
        assert all(golden.isfinite().all() and (golden != 0).any() for golden in expected)
    assert lengths == {None, (1, False), (1, True), (2, False), (2, True)}
    assert biases == gates == equal == {False, True}


def test_the_script_writes_the_same_bytes(tmp_path):
    subprocess.run([sys.executable, GOLDEN / "make_golden.py", tmp_path], check=True)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        file.name: file.read_bytes() for file in FILES
    }


def test_the_readme_names_every_array():
    named = set(re.findall(r"`([A-Za-z_]+(?:\.[a-z]+)?)`", (GOLDEN / "README.md").read_text(encoding="utf-8")))
    held = set()
    for file in FILES:
        with np.load(file) as arrays:
            held |= set(arrays.files)
    assert held <= named
