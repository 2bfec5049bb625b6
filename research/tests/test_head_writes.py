"""What a head writes is what its layer gives when it reads one letter alone."""

import torch

from mha_course.models.induction import AttentionOnly
from research.head_writes import own_letter, written


def test_a_letter_goes_through_the_norm_and_one_head_alone():
    torch.manual_seed(0)
    model = AttentionOnly()
    for norm in model.norms:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    for head in (0, 1):
        Y = model.norms[1](model.embedding.weight)[:, None]  # rows of one letter, which attends to itself
        X = model.layers[1](Y, Y, Y, head_mask=torch.eye(2)[head])[:, 0]
        whole = model.output(model.norms[2](X) - model.norms[2].bias)
        expected = whole * X.std(dim=1, correction=0, keepdim=True)
        torch.testing.assert_close(written(model, head), expected, atol=1e-3, rtol=1e-3)


def test_shares_count_letters_whose_own_score_is_at_an_end():
    scores = torch.tensor([[3.0, 1, 2], [0, -1, 5], [1, 2, 0]])
    found = own_letter(scores)
    assert abs(found["highest"] - 1 / 3) < 1e-6 and abs(found["lowest"] - 2 / 3) < 1e-6
