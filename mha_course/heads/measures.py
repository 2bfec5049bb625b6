"""How important is each head? Nine answers from the literature, all (model, batch, task) → (num_blocks, num_heads).

Every measure returns float64, and higher means more important. ``kept`` (num_blocks, num_heads), where a measure takes
it, says which heads are still there: so a measure can be taken again after each cut. A measure that draws takes
``seed``, and nothing else decides what it draws. A gradient has a sign, which says whether the head takes loss away or
adds some; ``signed`` keeps it, and without it every example counts by its absolute value.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mha_course.heads.ablation import (
    ablation_values,
    eval_mode,
    evaluate,
    head_contributions,
    head_grid,
    head_outputs,
    mean_over_tokens,
)
from mha_course.heads.coalitions import sampled_shapley
from mha_course.models.tasks import Batch, Task
from mha_course.models.transformer import Transformer

SCORES = ("accuracy", "loss")


def leave_one_out(
    model: Transformer,
    batch: Batch,
    task: Task,
    ablation: str = "zero",
    score: str = "accuracy",
    kept: Tensor | None = None,
) -> Tensor:
    """Return how much the ``score`` of the model drops when each head alone is ablated: (num_blocks, num_heads).

    >>> model, task = models.shipped_model("lookups"), models.find_task("lookups")
    >>> leave_one_out(model, task.held_out[:32], task).shape
    torch.Size([2, 6])

    Args:
        ablation: what takes its place: "zero", "mean" or "resample", see ``ablation_values``.
        score: what v is: "accuracy", or "loss" for minus the loss.

    Source: Michel, Levy, Neubig 2019, "Are Sixteen Heads Really Better than One?", section 3.2 (zero, BLEU).
    """
    _check_score(score)
    kept = _kept(model, kept)
    each = torch.eye(kept.numel(), device=kept.device).view(-1, *kept.shape)
    gates = torch.cat([kept[None], kept * (1 - each)])
    values = _values(model, batch, task, gates, score, ablation_values(model, batch, ablation))
    return (values[0] - values[1:]).view(kept.shape)


def gate_gradient(
    model: Transformer,
    batch: Batch,
    task: Task,
    normalise: bool = False,
    kept: Tensor | None = None,
    signed: bool = False,
) -> Tensor:
    """Return each head's mean absolute gradient of the loss by its mask value ξ_h: ``E_x |∂L(x) / ∂ξ_h|`` at ξ = 1.

    >>> model, task = models.shipped_model("lookups"), models.find_task("lookups")
    >>> gate_gradient(model, task.held_out[:32], task).shape
    torch.Size([2, 6])

    The absolute value is taken for each example, since the mean of the gradient itself vanishes where training has
    ended. One backward pass gives all, since each example has gates of its own.

    Args:
        normalise: whether each block's values are divided by their ℓ2 norm.
        signed: whether it is −E_x ∂L(x) / ∂ξ_h, the first-order guess at what the head's absence costs.

    Source: Michel, Levy, Neubig 2019, section 4.1; the norm as in Molchanov et al. 2017; with its sign it is
    attribution patching towards zero, Nanda 2023, "Attribution Patching: Activation Patching At Industrial Scale".
    """
    kept = _kept(model, kept)
    importance = _over_examples(gate_gradients(model, batch, task, kept), signed) * kept
    return torch.nn.functional.normalize(importance, dim=1) if normalise else importance


def gate_gradients(model: Transformer, batch: Batch, task: Task, gates: Tensor) -> Tensor:
    """Return minus the gradient of each example's loss by each head's mask value: (batch, num_blocks, num_heads).

    ``gates`` (num_blocks, num_heads) are where it is taken; L(x) is an example's mean loss.
    """
    own = gates.expand(len(batch), -1, -1).clone().requires_grad_()  # each example has gates of its own
    with eval_mode(model):
        output = model(batch.inputs, batch.valid_lens, own)
        loss = task.losses(output, batch.targets).flatten(start_dim=1).mean(dim=1).sum()
        return -torch.autograd.grad(loss, own)[0].double()


def integrated_gradients(
    model: Transformer,
    batch: Batch,
    task: Task,
    steps: int = 20,
    kept: Tensor | None = None,
    signed: bool = True,
) -> Tensor:
    """Compute each head's integrated gradient as all head mask values rise from 0 to 1: −∫₀¹ ∂L / ∂ξ_h (α, …, α) dα.

    >>> model, task = models.shipped_model("lookups"), models.find_task("lookups")
    >>> integrated_gradients(model, task.held_out[:8], task, steps=4).shape
    torch.Size([2, 6])

    The values add up to L(no head) − L(all heads), up to the error of the sum over ``steps`` midpoints that stands for
    the integral. They are the Aumann–Shapley values of the gates, the Shapley values' counterpart for heads that join
    bit by bit: that the two agree is partly built in.

    Args:
        signed: without it, the mean over examples of the absolute value of what stands above. It adds up to nothing.

    Source: Aumann & Shapley 1974, "Values of Non-Atomic Games"; Sundararajan, Taly, Yan 2017, "Axiomatic Attribution
    for Deep Networks"; for heads Hao et al. 2021, "Self-Attention Attribution" (there, along the attention weights).
    """
    kept = _kept(model, kept)
    total = torch.zeros(len(batch), *kept.shape, dtype=torch.float64, device=kept.device)
    for step in range(steps):
        total += gate_gradients(model, batch, task, (step + 0.5) / steps * kept)
    return _over_examples(total / steps, signed) * kept


def completeness_residual(attributions: Tensor, model: Transformer, batch: Batch, task: Task) -> float:
    """Return L(no head) − L(all heads) minus the sum of integrated gradients, which is 0 if they are exact.

    If this is far from 0, too few steps were taken, and single values say little. It costs two forward passes.
    ``attributions`` must be of this model, batch and task, with all heads there.
    """
    shape = head_grid(model)
    without, whole = evaluate(model, batch, task, torch.stack([torch.zeros(shape), torch.ones(shape)])).loss
    return (without - whole - attributions.sum()).item()


def confidence(model: Transformer, batch: Batch, task: Task, leave_out: Sequence[int] = ()) -> Tensor:
    """Return each head's largest attention weight, averaged over unpadded queries: (num_blocks, num_heads).

    Args:
        leave_out: positions of keys that do not count, from 0, the same in every block and example. A language model
            often puts much weight on position 0, an attention sink, and then the weight there decides the measure.

    Raises:
        ValueError: a block has no key at one of these positions.

    Source: Voita et al. 2019, "Analyzing Multi-Head Self-Attention", section 4. They leave the end-of-sentence token
    out.
    """
    positions = list(leave_out)
    largest = []
    for weights in _attention_weights(model, batch):
        num_keys = weights.shape[-1]
        if not all(0 <= position < num_keys for position in positions):
            raise ValueError(f"leave_out must hold positions from 0 to {num_keys - 1}, got {positions}")
        counted = weights.clone()
        counted[..., positions] = 0
        largest.append(counted.amax(dim=-1))
    return _mean_over_queries(model, batch, largest)


def negative_entropy(model: Transformer, batch: Batch, task: Task) -> Tensor:
    """Return each head's negative attention entropy, Σ_j a_j log a_j in nats, averaged over unpadded queries.

    Source: entropy of attention as in Ghader & Monz 2017, "What does Attention in Neural Machine Translation Pay
    Attention to?"; Clark et al. 2019, "What Does BERT Look At?", section 3.3.
    """
    weights = _attention_weights(model, batch)
    return _mean_over_queries(model, batch, [torch.special.entr(block).sum(dim=-1).neg() for block in weights])


def output_norm(model: Transformer, batch: Batch, task: Task) -> Tensor:
    """Return the norm of each head's contribution to its layer's output, ‖head_h W_o⁽ʰ⁾‖, averaged over queries.

    Source: Kobayashi et al. 2020, "Attention is Not Only a Weight" (there, for each key).
    """
    with torch.no_grad():
        parts = map(head_contributions, model.attentions, head_outputs(model, batch))
        return _mean_over_queries(model, batch, [part.norm(dim=-1).transpose(0, 1) for part in parts])


def monte_carlo_shapley(
    model: Transformer, batch: Batch, task: Task, num_orders: int = 50, score: str = "accuracy", seed: int = 0
) -> Tensor:
    """Estimate every head's Shapley value for accuracy or loss from ``num_orders`` random orders of the heads.

    Source: Held & Yang 2023, "Shapley Head Pruning".
    """
    _check_score(score)
    shape = head_grid(model)
    return sampled_shapley(
        lambda sets: _values(model, batch, task, sets.view(-1, *shape), score),
        shape[0] * shape[1], num_orders, seed,
    ).view(shape)  # fmt: skip


def _over_examples(gradients: Tensor, signed: bool) -> Tensor:
    """(batch, num_blocks, num_heads) → the mean over examples, (num_blocks, num_heads)."""
    return (gradients if signed else gradients.abs()).mean(dim=0)


def _values(
    model: Transformer, batch: Batch, task: Task, gates: Tensor, score: str, substitutes: list[Tensor] | None = None
) -> Tensor:
    """What each setting of the gates is worth: accuracy, or minus the loss."""
    scores = evaluate(model, batch, task, gates, substitutes)
    return scores.accuracy if score == "accuracy" else -scores.loss


def _attention_weights(model: Transformer, batch: Batch) -> list[Tensor]:
    with torch.no_grad(), eval_mode(model):
        model(batch.inputs, batch.valid_lens)
        return model.attention_weights


def _mean_over_queries(model: Transformer, batch: Batch, values: list[Tensor]) -> Tensor:
    """For each block (batch, num_heads, num_queries) → (num_blocks, num_heads), padding left out."""
    return torch.stack(mean_over_tokens(model, batch, values)).double()


def _kept(model: Transformer, kept: Tensor | None) -> Tensor:
    shape = head_grid(model)
    if kept is None:
        return torch.ones(shape, device=model.device)
    if tuple(kept.shape) != shape:
        raise ValueError(f"kept must have shape {shape}, got {tuple(kept.shape)}")
    return kept.to(model.device, torch.float32)


def _check_score(score: str) -> None:
    if score not in SCORES:
        raise ValueError(f"score must be one of {', '.join(SCORES)}, got {score!r}")
