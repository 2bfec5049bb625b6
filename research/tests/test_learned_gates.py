"""Hard-concrete gates: their formula, and the order in which they close."""

import math

import torch
from head_models import TASK, encoder, examples

from research.learned_gates import hard_concrete, probability_open, sample_gates


def hard_concrete_gate(uniform, log_alpha):
    """The gate as the paper writes it (Louizos et al. 2018, equations 10 and 11), one number at a time."""
    s = 1 / (1 + math.exp(-(math.log(uniform) - math.log(1 - uniform) + log_alpha) / 0.33))
    return min(1.0, max(0.0, s * 1.2 - 0.1))


def test_gates_follow_the_formula():
    log_alpha = torch.tensor([[-1.0, 0.0, 2.5]])
    gates = sample_gates(log_alpha, 50, torch.Generator().manual_seed(0))
    uniform = torch.rand(50, 1, 3, generator=torch.Generator().manual_seed(0))
    expected = [
        hard_concrete_gate(u.item(), a.item())
        for u, a in zip(uniform.flatten(), log_alpha.expand(50, 1, 3).flatten(), strict=True)
    ]
    torch.testing.assert_close(gates.flatten(), torch.tensor(expected), rtol=1e-4, atol=1e-5)
    assert {0.0, 1.0} <= set(gates.flatten().tolist()) and gates.unique().numel() > 10


def test_probability_open_is_how_often_gates_are_not_zero():
    log_alpha = torch.linspace(-2, 2, 5).view(1, 5)
    gates = sample_gates(log_alpha, 200_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(probability_open(log_alpha), (gates != 0).float().mean(dim=0), rtol=0, atol=5e-3)


def test_heads_that_say_nothing_close_first():
    model = encoder(num_heads=4)
    batch = examples(model, number=20)
    silent = [(0, 1), (1, 3)]
    with torch.no_grad():
        for block, head in silent:
            model.attentions[block].W_o.weight[:, 2 * head : 2 * head + 2] = 0
    importance = hard_concrete(model.float(), batch, TASK, steps=300)
    assert {divmod(head, 4) for head in importance.flatten().argsort()[:2].tolist()} == set(silent)
    assert importance.min() < 200 and importance.max() <= 301


def test_the_same_seed_gives_the_same_importance_whatever_was_drawn_before():
    model = encoder().float()
    batch = examples(model)
    first = hard_concrete(model, batch, TASK, steps=5)
    torch.rand(3)
    assert torch.equal(hard_concrete(model, batch, TASK, steps=5), first)
    assert not torch.equal(hard_concrete(model, batch, TASK, steps=5, seed=1), first)


def test_it_has_the_shape_of_the_heads_and_leaves_no_trace():
    model = encoder().float().train()
    importance = hard_concrete(model, examples(model), TASK, steps=2)
    assert (tuple(importance.shape), importance.dtype) == ((2, 3), torch.float64)
    assert not importance.requires_grad and importance.isfinite().all()
    assert model.training and all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
