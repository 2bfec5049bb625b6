"""A verdict on heads is that of the configuration and of columns of zeros."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mha_lib import heads
from research.found_families import EMPTY, FOUND, NAMED, WRONG, judged


class Layer(nn.Module):
    def __init__(self, norm=False):
        super().__init__()
        self.into, self.out, self.norm = nn.Linear(12, 36), nn.Linear(12, 12), norm

    def forward(self, X):
        Q, K, V = (Z.unflatten(-1, (3, 4)).transpose(1, 2) for Z in self.into(X).chunk(3, dim=-1))
        heads_of_X = F.scaled_dot_product_attention(Q, K, V).transpose(1, 2).flatten(2)
        return self.out(F.layer_norm(heads_of_X, (12,)) if self.norm else heads_of_X)


@pytest.mark.parametrize(
    ("model", "num_heads", "expected"),
    [
        (Layer(), {3, 6}, (FOUND, "1 layers of 3 heads on 3")),
        (Layer(), set(), (FOUND, "1 layers of 3 heads on 3")),
        (Layer(), {4}, (WRONG, "heads {3: 1}, the configuration says [4]")),
        (Layer(norm=True), {3}, (NAMED, "out receives")),
        (nn.Linear(12, 12), {3}, (EMPTY, "")),
    ],
)
def test_heads_are_held_to_the_configuration(model, num_heads, expected):
    name = "X" if isinstance(model, Layer) else "input"
    kind, detail = judged(model.eval(), {name: torch.randn(2, 5, 12)}, num_heads)
    assert kind == expected[0] and detail.startswith(expected[1])


def test_gates_that_are_no_columns_are_wrong(monkeypatch):
    monkeypatch.setattr(heads.any_model.FoundHeads, "ablated", lambda found, plan: found.gates({}))
    kind, detail = judged(Layer().eval(), {"X": torch.randn(2, 5, 12)}, {3})
    assert kind == WRONG and detail.startswith("gate and columns differ by")
