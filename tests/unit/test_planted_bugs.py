"""Bugs found in published teaching code, planted in a copy of the layer: the reference checks catch every one.

For contrast: a check of shapes misses them all, and a check on all-ones input misses some.
"""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch
from references import all_ones, assert_same_shape, hold_against_references, random_numbers

from mha_lib import attention

# The copies run on the formula, as the published code does, where the layer runs on torch's kernel.
FORMULA_ONLY = {"keep_weights = False": "keep_weights = True"}
MASKED_SOFTMAX = "weights = _softmax(scores, penalty)"


def heads_folded_into_the_batch(repeated_lengths: str) -> dict[str, str]:
    """The layer as the book writes it, with lengths repeated once for each head."""
    return {
        "heads = self.attention(Q, K, V, valid_lens)": (
            f"lengths = None if valid_lens is None else {repeated_lengths}\n"
            "        heads = self.attention(Q.flatten(0, 1), K.flatten(0, 1), V.flatten(0, 1), lengths)\n"
            "        heads = heads.unflatten(0, (-1, self.num_heads))"
        ),
        "return self.attention.attention_weights": (
            "return self.attention.attention_weights.unflatten(0, (-1, self.num_heads))"
        ),
    }


@dataclass
class Bug:
    """Source that is replaced, old → new; whether a check on all-ones input sees the bug too."""

    changes: dict[str, str]
    seen_on_ones: bool = True


BUGS = {
    "1: reshape without permute": Bug(
        {
            "X.reshape(batch_size, number, num_heads, size // num_heads).transpose(1, 2)": (
                "X.reshape(batch_size, num_heads, number, size // num_heads)"
            ),
            "X.transpose(1, 2).flatten(start_dim=2)": "X.reshape(X.shape[0], X.shape[2], -1)",
        }
    ),
    "2: masked scores set to 0": Bug({MASKED_SOFTMAX: "weights = _softmax(scores * valid)"}),
    "3: additive scores without tanh": Bug({"torch.tanh(features)": "features"}, seen_on_ones=False),
    "4: repeat for repeat_interleave": Bug(
        heads_folded_into_the_batch("valid_lens.repeat(self.num_heads, *[1] * (valid_lens.dim() - 1))")
    ),
    "5: the dropout rate left out": Bug({"nn.Dropout(dropout)": "nn.Dropout()"}),
    "6: weights kept after dropout": Bug(
        {
            "self._remember(lambda kept: kept, weights)": (
                "weights = self.dropout(weights)\n        self._remember(lambda kept: kept, weights)"
            ),
            "return self.dropout(weights) @ values": "return weights @ values",
        },
    ),
    "7: softmax over the queries": Bug(
        {
            f"torch.softmax({scores}": f"torch.softmax({scores.replace('-1', '-2')}"
            for scores in ("scores, dim=-1)", "scores if penalty is None else scores + penalty, dim=-1)")
        },
    ),
    "7: scaled by the size of all heads together": Bug(
        {"math.sqrt(queries.shape[-1])": "math.sqrt(queries.shape[-1] * queries.shape[1 : queries.dim() - 2].numel())"},
        seen_on_ones=False,
    ),
    "7: mask inverted": Bug({"device=valid_lens.device) < lengths": "device=valid_lens.device) >= lengths"}),
    "7: mask after softmax": Bug({MASKED_SOFTMAX: "weights = _softmax(scores) * valid"}),
    "8: −∞ in a row without valid keys": Bug(
        {MASKED_SOFTMAX: "return _softmax(scores.masked_fill(~valid, -math.inf))"}
    ),
    "8: −1e6 for −∞": Bug({MASKED_SOFTMAX: "return _softmax(torch.where(valid, scores, -1e6))"}),
}


def plant(changes: dict[str, str]) -> ModuleType:
    """A copy of ``mha_lib.attention`` with some of its source replaced."""
    source = Path(attention.__file__).read_text(encoding="utf-8")
    for old, new in changes.items():
        assert source.count(old) == 1, f"to be replaced once, found {source.count(old)} times: {old}"
        source = source.replace(old, new)
    copy = ModuleType("planted")
    exec(compile(source, "planted", "exec"), vars(copy))
    return copy


def caught(library: ModuleType, **how) -> bool:
    try:
        hold_against_references(library, **how)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_the_reference_catches_the_bug(bug):
    library = plant(FORMULA_ONLY | bug.changes)
    assert caught(library)
    assert not caught(library, same=assert_same_shape)
    assert caught(library, numbers=all_ones) == bug.seen_on_ones


@pytest.mark.parametrize(
    "changes",
    [{}, heads_folded_into_the_batch("valid_lens.repeat_interleave(self.num_heads, dim=0)")],
    ids=["formula", "heads folded into the batch"],
)
def test_a_copy_without_a_bug_passes(changes):
    assert not caught(plant(FORMULA_ONLY | changes))


def test_neither_a_round_trip_nor_ones_show_the_wrong_split():
    wrong = plant(BUGS["1: reshape without permute"].changes)
    X, ones = random_numbers(3, 6, 8), all_ones(3, 6, 8)
    assert torch.equal(wrong.transpose_output(wrong.transpose_qkv(X, 4), 4), X)
    assert torch.equal(wrong.transpose_qkv(ones, 4), attention.transpose_qkv(ones, 4))
    assert not torch.equal(wrong.transpose_qkv(X, 4), attention.transpose_qkv(X, 4))


def test_in_half_precision_the_fill_of_minus_a_million_is_nan():
    wrong = plant(BUGS["8: −1e6 for −∞"].changes)
    nothing_valid = torch.zeros(1, 2, 3), torch.tensor([0])
    assert (wrong.masked_softmax(*nothing_valid) == 1 / 3).all()
    assert wrong.masked_softmax(nothing_valid[0].half(), nothing_valid[1]).isnan().all()
    assert (attention.masked_softmax(nothing_valid[0].half(), nothing_valid[1]) == 0).all()
