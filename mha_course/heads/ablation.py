"""Switch heads off, in any combination, and see how well the model still does.

An attention's output is W_o's bias + Σ ξ_h head_h W_o⁽ʰ⁾ with a gate ξ_h on each head. A head that is off gives way to
a substitute: zeros, its own mean, or what it says about another example.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from mha_course.heads.coalitions import set_members
from mha_course.models.any_layer import attend, heads_before_output, num_heads_of
from mha_course.models.tasks import Batch, Task
from mha_course.models.threads import single_thread
from mha_course.models.transformer import Encoder, Transformer
from mha_lib.attention import MultiHeadAttention
from mha_lib.heads import FoundHeads, of
from mha_lib.heads.before_mixing import evaluating
from mha_lib.heads.progress_bar import progress_bar

TOKENS_AT_ONCE = 4_096  # tokens that pass a model's last layers together: more would leave the processor's cache


@dataclass(frozen=True)
class Evaluation:
    """Hold accuracy and loss of a model, one number for each of several head masks.

    ``accuracy`` is the share of right answers, ``loss`` the mean cross-entropy in nats; both (num_sets,), float64.
    """

    accuracy: Tensor
    loss: Tensor


def evaluate(
    model: Transformer,
    batch: Batch,
    task: Task,
    gates: Tensor,
    substitutes: list[Tensor] | None = None,
    label: str | None = None,
) -> Evaluation:
    """Compute accuracy and loss of a model on a batch, for each head mask in ``gates``.

    >>> model, task = models.shipped_model("lookups"), models.find_task("lookups")
    >>> evaluate(model, task.held_out[:32], task, torch.ones(3, *head_grid(model))).accuracy.shape
    torch.Size([3])

    What comes before the last attention runs once for all settings that agree there; the last attention, which is
    linear in its gates, gives all its settings in one product.

    Args:
        batch: what it is scored on.
        gates: (num_sets, num_blocks, num_heads), a number or a bool for each head: 1 is on, 0 is off.
        substitutes: what takes the place of heads that are off, from ``ablation_values``; left out, zeros.
        label: what to write beside a progress bar; left out, there is none.

    Raises:
        ValueError: ``gates`` does not fit the model.
    """
    shape = head_grid(model)
    if gates.dim() != 3 or gates.shape[1:] != shape:
        raise ValueError(f"gates must have shape (num_sets, {shape[0]}, {shape[1]}), got {tuple(gates.shape)}")
    last = model.attentions[-1]
    *early_substitutes, last_substitute = ablation_values(model, batch) if substitutes is None else substitutes
    gates = gates.to(next(last.parameters()))
    settings, which = gates[:, :-1].unique(dim=0, return_inverse=True)
    accuracy, loss = torch.empty(2, len(gates), dtype=torch.float64, device=gates.device)
    with torch.no_grad(), eval_mode(model):
        for number, setting in enumerate(settings if label is None else progress_bar(settings, len(settings), label)):
            queries, context, lengths = _before_last_attention(model, batch, setting, early_substitutes)
            base, parts = _last_attention(last, queries, context, lengths, last_substitute)
            for sets in (which == number).nonzero().flatten().split(max(1, TOKENS_AT_ONCE // queries[..., 0].numel())):
                attended = base + torch.tensordot(gates[sets, -1], parts, dims=([1], [0]))
                output = model.after_last_attention(queries, attended).flatten(0, 1)
                targets = batch.targets.expand(len(sets), *batch.targets.shape).flatten(0, 1)
                right, losses = _answers(task.logits(output), targets)
                accuracy[sets], loss[sets] = _mean_of_each(right, len(sets)), _mean_of_each(losses, len(sets))
    return Evaluation(accuracy, loss)


def evaluate_all(
    model: Transformer, batch: Batch, task: Task, ablation: str = "zero", label: str | None = None
) -> Evaluation:
    """Compute accuracy and loss for all 2**N sets of active heads; set number s contains head i if bit i of s is 1.

    ``ablation`` is as in ``ablation_values``, ``label`` as in ``evaluate``.
    """
    num_blocks, num_heads = head_grid(model)
    gates = set_members(torch.arange(2 ** (num_blocks * num_heads)), num_blocks * num_heads)
    substitutes = ablation_values(model, batch, ablation)
    return evaluate(model, batch, task, gates.unflatten(1, (num_blocks, num_heads)), substitutes, label)


def losses_without_each(model: Encoder, batch: Batch, task: Task, kept: Tensor | None = None) -> Tensor:
    """Return the loss at every target position with one head ablated (zeros), for each head of every layer.

    The losses are in nats, ``(num_blocks, num_heads, *batch.targets.shape)``. What comes before the head's layer runs
    once for all. ``kept`` (num_blocks, num_heads) says which heads are there at all; left out, all of them.
    """
    num_blocks, num_heads = head_grid(model)
    kept = torch.ones(num_blocks, num_heads, device=model.device) if kept is None else kept
    losses = torch.empty(num_blocks, num_heads, *batch.targets.shape, device=model.device)
    blocks = list(model.blocks.values())
    with torch.no_grad(), eval_mode(model):
        X = model.embedding(batch.inputs)
        for number, block in enumerate(blocks):
            for head, gates in enumerate(kept[number] * (1 - torch.eye(num_heads, device=model.device))):
                Y = block(X, X, batch.valid_lens, gates)
                for later, there in zip(blocks[number + 1 :], kept[number + 1 :], strict=True):
                    Y = later(Y, Y, batch.valid_lens, there)
                losses[number, head] = task.losses(model.output(Y), batch.targets)
            X = block(X, X, batch.valid_lens, kept[number])
    return losses


def ablation_values(model: Transformer, batch: Batch, ablation: str = "zero") -> list[Tensor]:
    """Return for each block what replaces an ablated head's output: zeros, its mean, or its output on another example.

    Each of them fits (batch, num_heads, num_queries, head_size).

    Args:
        ablation: "zero": zeros (Michel et al. 2019). "mean": the head's mean over examples and positions of ``batch``,
            one vector for all positions; work on circuits takes a mean for each position (Wang et al. 2023,
            "Interpretability in the Wild"). "resample": what the head says about the next example of ``batch`` (Chan
            et al. 2022, "Causal Scrubbing").
    """
    if ablation == "zero":
        return [torch.zeros(())] * len(model.blocks)
    return [X[0].transpose(1, 2) for X in found_in(model, batch).substitutes(ablation).values()]


def found_in(model: Transformer, batch: Batch) -> FoundHeads[Transformer]:
    """Return what ``heads.of`` finds in a model on a batch.

    Raises:
        TypeError: the heads of a layer of a learner's own are not found; the message names it, with the reason.
    """
    found = of(model, batch.inputs, batch.valid_lens)
    if found.unknown:
        raise TypeError("; ".join(f"{name}: {why}" for name, why in found.unknown.items()))
    return found


def head_grid(model: Transformer) -> tuple[int, int]:
    """Return (num_blocks, num_heads) of a model whose blocks all have the same number of heads.

    >>> head_grid(models.shipped_model("lookups"))
    (2, 6)

    Raises:
        ValueError: the blocks have different numbers of heads, so that no table can hold them.
    """
    numbers = {name: num_heads_of(block.attention) for name, block in model.blocks.items()}
    if len(set(numbers.values())) != 1:
        raise ValueError(f"model must have the same number of heads in every block, got {numbers}")
    return len(numbers), next(iter(numbers.values()))


@contextmanager
def eval_mode(model: Transformer) -> Iterator[None]:
    """Set a model to eval mode, and torch to a single thread, inside a ``with`` block."""
    with evaluating(model), single_thread():
        yield


@contextmanager
def patch_heads(model: Transformer, values: Sequence[Tensor], gates: Tensor) -> Iterator[None]:
    """Replace outputs of heads by ``values`` inside a ``with`` block: gate · output + (1 − gate) · value.

    With outputs of the whole model, the heads whose gates are 0 are held fixed: the ablation of an earlier head does
    not reach them. With outputs of a model without an earlier head, in the whole model, they alone are affected by its
    absence (activation patching).

    Args:
        values: for each block, what replaces its heads, as from ``found.outputs`` or ``ablation_values``.
        gates: (num_blocks, num_heads) or (num_blocks, batch, num_heads), or of the first blocks alone.

    Raises:
        ValueError: ``gates`` does not fit the model.

    Source: path patching, as in Wang et al. 2023, "Interpretability in the Wild".
    """
    shape = head_grid(model)
    if len(gates) > shape[0] or gates.shape[-1] != shape[1]:
        raise ValueError(f"gates must have shape {shape}, got {tuple(gates.shape)}")

    def mixed(gate: Tensor, value: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda outputs: value + gate[..., None, None] * (outputs - value)

    with ExitStack() as hooks:
        for attention, gate, value in zip(model.attentions, gates, values, strict=False):
            hooks.enter_context(heads_before_output(attention, mixed(gate, value)))
        yield


def _before_last_attention(
    model: Transformer, batch: Batch, setting: Tensor, substitutes: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What the last attention gets where these gates (num_blocks − 1, num_heads) are on the earlier heads."""
    if all(map(_is_zero, substitutes)):  # then every layer's own gates do
        gates = torch.cat([setting, setting.new_ones(1, head_grid(model)[1])])
        return model.before_last_attention(batch.inputs, batch.valid_lens, gates)
    with patch_heads(model, substitutes, setting):
        return model.before_last_attention(batch.inputs, batch.valid_lens)


def _is_zero(substitute: Tensor) -> bool:
    """Whether zeros take the place of a block's heads that are off."""
    return not substitute.dim()


def _last_attention(
    attention: MultiHeadAttention, queries: Tensor, context: Tensor, valid_lens: Tensor | None, substitute: Tensor
) -> tuple[Tensor, Tensor]:
    """The attention's output as base + Σ gate · part: base (batch, n, num_hiddens), parts (num_heads, batch, …)."""
    found: list[Tensor] = []
    if _is_zero(substitute) and not isinstance(attention, MultiHeadAttention):
        gates = torch.eye(num_heads_of(attention), dtype=queries.dtype, device=queries.device)
        nothing, *alone = (attend(attention, queries, context, valid_lens, own) for own in (0 * gates[0], *gates))
        return nothing, torch.stack(alone) - nothing
    with heads_before_output(attention, found.append):
        attend(attention, queries, context, valid_lens)
    heads = found[0]
    base = head_contributions(attention, substitute.to(heads).expand_as(heads)).sum(dim=0)
    if attention.W_o.bias is not None:
        base = base + attention.W_o.bias
    return base, head_contributions(attention, heads - substitute)


def head_contributions(attention: MultiHeadAttention, heads: Tensor) -> Tensor:
    """Multiply each head's output by its columns of W_o: (batch, h, n, head_size) → (h, batch, n, num_hiddens)."""
    weight = attention.W_o.weight.unflatten(1, (attention.num_heads, -1))  # (num_hiddens, num_heads, head_size)
    return torch.einsum("bhns,dhs->hbnd", heads, weight)


def _answers(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """``Task.correct`` and ``Task.losses`` in a fraction of the time: torch is slow along rows as short as these.

    A class that ties for the highest logit counts as the answer.
    """
    classes = logits.movedim(-1, 0).contiguous()  # (number of classes, *targets.shape)
    of_target = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return of_target == classes.amax(dim=0), classes.logsumexp(dim=0) - of_target


def _mean_of_each(answers: Tensor, num_sets: int) -> Tensor:
    return answers.double().view(num_sets, -1).mean(dim=1)
