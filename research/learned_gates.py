"""Learned gates: a penalty on open gates closes those that the loss can spare, the least important first.

The gate is *hard concrete*: random, between 0 and 1, and often exactly 0 or 1, yet differentiable in log α. With
u uniform on (0, 1):  s = σ((log u − log(1 − u) + log α) / β),  gate = clip(s · (ζ − γ) + γ, 0, 1).
It is open with probability P(gate ≠ 0) = σ(log α − β log(−γ / ζ)).

Source: Louizos, Welling, Kingma 2018, "Learning Sparse Neural Networks through L0 Regularization"; for heads Voita
et al. 2019, "Analyzing Multi-Head Self-Attention", section 6.
"""

import math

import torch
from torch import Tensor

from mha_course.heads.ablation import eval_mode, head_grid
from mha_course.models.tasks import Batch, Task
from mha_course.models.transformer import Transformer

BETA, GAMMA, ZETA = 0.33, -0.1, 1.1  # sharpness, and the stretch beyond 0 and 1; as in both papers
PENALTIES = 1e-3, 10.0  # the first and the last weight of the penalty, which rises geometrically


def hard_concrete(model: Transformer, batch: Batch, task: Task, steps: int = 600, seed: int = 0) -> Tensor:
    """When the head's gate closes while the price of an open gate rises: the later, the more important.

    The loss is E L + λ Σ_h P(gate_h open); the model's weights stay as they are, λ rises from step to step. (Voita et
    al. train the weights along, with one λ.)

    Args:
        steps: number of steps, each on 32 examples of ``batch``.

    Returns:
        (num_blocks, num_heads), float64: the number of steps for which the gate was more open than closed (in
        probability). Heads that are equal in this are told apart by log α, as a fraction of a step.
    """
    generator = torch.Generator().manual_seed(seed)
    log_alpha = torch.full(head_grid(model), 2.0, device=model.device, requires_grad=True)
    optimizer = torch.optim.Adam([log_alpha], lr=0.05)
    steps_open = torch.zeros_like(log_alpha, dtype=torch.float64)
    first, last = PENALTIES
    with eval_mode(model):
        for step in range(steps):
            examples = batch[torch.randint(len(batch), (32,), generator=generator)]
            gates = sample_gates(log_alpha, len(examples), generator)
            output = model(examples.inputs, examples.valid_lens, gates)
            penalty = first * (last / first) ** (step / (steps - 1))
            loss = task.losses(output, examples.targets).mean() + penalty * probability_open(log_alpha).sum()
            (log_alpha.grad,) = torch.autograd.grad(loss, log_alpha)
            optimizer.step()
            steps_open += probability_open(log_alpha.detach()) > 0.5
    return steps_open + torch.sigmoid(log_alpha.detach())


def sample_gates(log_alpha: Tensor, num_examples: int, generator: torch.Generator) -> Tensor:
    """Random gates for each example: (num_examples, num_blocks, num_heads)."""
    uniform = torch.rand(num_examples, *log_alpha.shape, generator=generator).clamp(1e-6, 1 - 1e-6)
    s = torch.sigmoid((uniform.to(log_alpha.device).logit() + log_alpha) / BETA)
    return (s * (ZETA - GAMMA) + GAMMA).clamp(0, 1)


def probability_open(log_alpha: Tensor) -> Tensor:
    """P(gate ≠ 0)."""
    return torch.sigmoid(log_alpha - BETA * math.log(-GAMMA / ZETA))
