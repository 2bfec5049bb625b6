"""The library in use, for type checkers, which must mark every line with WRONG and no other; test_typed asks mypy."""

from typing import assert_type

import torch
from torch import Tensor, nn

import mha_lib
from mha_lib import DotProductAttention, MultiHeadAttention, heads


class Classifier(nn.Module):
    """A model of someone's own, with a method that nn.Module lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = MultiHeadAttention(num_hiddens=64, num_heads=4)

    def forward(self, X: Tensor, valid_lens: Tensor | None = None) -> Tensor:
        return self.layer(X, X, X, valid_lens).mean(dim=1)

    def name_of(self, answer: int) -> str:
        return f"answer {answer}"


layer = MultiHeadAttention(64, 4)
X, valid_lens = torch.randn(2, 10, 64), torch.tensor([10, 6])
assert_type(layer(X, X, X, valid_lens), Tensor)
assert_type(layer(X, X, X, causal=True, need_weights=True), tuple[Tensor, Tensor])
assert_type(DotProductAttention()(X, X, X), Tensor)
layer(X, X, X, valid_len=valid_lens)  # WRONG: no such name
print(layer(X, X, X, need_weights=True).shape)  # WRONG: two tensors have no shape
MultiHeadAttention(64, "4")  # WRONG: num_heads is a number
found = heads.of(Classifier(), X)
assert_type(found.model, Classifier)
smaller, removal = found.remove({"layer": [0]})
assert_type(smaller.name_of(3), str)
with found.ablated({"layer": [1]}) as without:
    without.name_of("3")  # WRONG: the type of the model is known here
print(mha_lib.heads.leave_two_out)  # WRONG: no such name
mha_lib.heatmaps(layer.attention_weights[0]).savefig("heads.pdf")
