"""The layer on the golden vectors, and the golden vectors on their script."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from on_device import DEVICE
from references import close, on_way

from mha_lib import MultiHeadAttention
from mha_lib.attention.converters import loop_over_heads

pytestmark = pytest.mark.real_device  # sizes are left open until parameters are loaded

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = sorted(GOLDEN.glob("*.npz"))
INPUT = ("queries", "keys", "values", "valid_lens", "head_mask")


def load(file):
    """The layer, its input and the expected result that a file holds."""
    with np.load(file) as arrays:
        tensors = {name: torch.from_numpy(array).to(DEVICE) for name, array in arrays.items()}
    num_heads = int(tensors.pop("num_heads"))
    arguments = {name: tensors.pop(name) for name in INPUT if name in tensors}
    expected = tensors.pop("output"), tensors.pop("attention_weights")
    layer = MultiHeadAttention(len(tensors["W_o.weight"]), num_heads, bias="W_q.bias" in tensors).double()
    layer.load_state_dict(tensors)  # refuses missing and left-over parameters
    return layer, arguments, expected


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("way", ["kernel", "formula"])
def test_the_layer_and_the_loop_over_heads(file, way):
    layer, arguments, expected = load(file)
    close(loop_over_heads(layer, **arguments), expected, atol=1e-8)
    for dtype, tolerance in ((torch.float64, 1e-8), (torch.float32, 1e-5)):
        given = {name: X.to(dtype) if X.is_floating_point() else X for name, X in arguments.items()}
        output, weights = on_way(layer.to(dtype), way)(**given), layer.attention_weights
        close((output.double(), weights.double()), expected, atol=tolerance)


def test_the_script_writes_the_same_bytes(tmp_path):
    subprocess.run([sys.executable, GOLDEN / "make_golden.py", tmp_path], check=True)
    written = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert written == {file.name: file.read_bytes() for file in FILES} and len(FILES) == 10
