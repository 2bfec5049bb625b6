"""A measurement that learners design in 06: it tells heads that follow a target from heads that only seem to."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from mha_course.checking.exercise import judged
from mha_course.checking.running import MistakeError, Outcome, run_safely
from mha_course.checking.wording import as_sentence
from mha_course.models import find_task, shipped_model

EXAMPLES, TOKENS = 1000, 8
MARGIN = 0.02  # by which the number must exceed its baseline: planted heads without a job differ by less
USUAL = {  # where the target of query 0, 1, … mostly is, and what a head does that always attends there
    "always attends one token back": torch.arange(TOKENS).roll(1),
    "always attends to token 0": torch.zeros(TOKENS, dtype=torch.long),
    "has the same map in every example": torch.tensor([3, 6, 1, 7, 0, 5, 2, 4]),
}
ANYWHERE = "attends to a random token"


def evidence(weights, target):
    def on(target):
        at = target[:, None, :, None].expand(-1, weights.shape[1], -1, -1)
        return weights.gather(-1, at).mean(dim=(0, 2, 3))

    return on(target), on(target.roll(1, dims=0))  # targets of another example


@judged(
    right=evidence,
    idea="A target is often at one position or at one distance. Which number would the same head get if its map did "
    "not depend on the example?",
    begin="Begin with the mean weight on the target. For the baseline, break the link between maps and targets.",
)
def own_evidence(function: Callable) -> str:
    """Check a measurement and its baseline, by which a learner decides whether heads attend to a given target.

    weights (examples, heads, queries, keys); target (examples, queries), for each query the position of a key → two
    tensors (heads,): a number for each head, and its baseline. It is tried on planted heads, of which one attends to
    the target, and then on the heads of the digits model. Source: notebook 06, sections 2 and 5.
    """
    planted = {**{name: planted_heads(usual, 0.8) for name, usual in USUAL.items()}, ANYWHERE: planted_heads(None, 0.4)}
    outcomes = run_safely(function, [*planted.values(), digits()])
    for name, outcome in zip(planted, outcomes, strict=False):
        number, baseline = numbers_of(outcome, 3)
        follows, seems, uniform = (number > baseline + MARGIN).tolist()
        share = "4" if name == ANYWHERE else "8"
        values = [f"{a:.2f} against a baseline of {b:.2f}" for a, b in zip(number, baseline, strict=True)]
        if seems:
            raise MistakeError(
                f"Your evidence supports a head that {name}, whatever the tokens are: {values[1]}. The target is often "
                "there, too. The baseline must get this right without the tokens of the example."
            )
        if uniform:
            raise MistakeError(f"Your evidence supports a head with uniform attention: {values[2]}.")
        if not follows:
            raise MistakeError(
                f"Your evidence refuses a head that attends to its target in {share} of 10 cases: {values[0]}. The "
                "baseline must be what a head gets without the tokens of the example, and no more."
            )
    number, baseline = numbers_of(outcomes[-1], 6)
    own = [f"{a:.2f} against {b:.2f}" for a, b in zip(number, baseline, strict=True)]
    heads = [str(head) for head in range(6) if number[head] > baseline[head] + MARGIN]
    return (
        "Your evidence supports the planted heads that follow their target, and refuses the others. Now the digits. "
        f"From the class token to the patch with the most ink, heads 0 to 5 of layer 0 have {', '.join(own)}. "
        f"So the claim holds for: {', '.join(heads) or 'none'}."
    )


def planted_heads(usual: Tensor | None, share: float) -> tuple[Tensor, Tensor]:
    """Return maps of three heads and a target: one head follows it, one attends to ``usual``, one is uniform.

    The target is at ``usual`` in six of ten cases, and anywhere else. Without ``usual`` the second head is random.
    """
    random, target, other = torch.randint(TOKENS, (3, EXAMPLES, TOKENS))
    if usual is not None:
        target = torch.where(torch.rand(EXAMPLES, TOKENS) < 0.6, usual, target)
        other = usual.expand(EXAMPLES, -1)
    follows = torch.where(torch.rand(EXAMPLES, TOKENS) < share, target, random)
    attended = one_hot(torch.stack([follows, other], dim=1), TOKENS).float()  # (examples, 2, queries, keys)
    uniform = torch.full_like(attended[:, :1], 1 / TOKENS)
    return torch.cat([0.9 * attended + 0.1 / TOKENS, uniform], dim=1), target


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    """Return the weights from *class* to the patches in layer 0 of the digits model, and the patch with most ink."""
    task, model = find_task("digits"), shipped_model("digits")
    images = task.held_out.inputs
    assert isinstance(images, Tensor)
    with torch.no_grad():
        model(images)
    ink = images.double().mean(dim=-1)  # (images, patches)
    return model.attention_weights[0][:, :, :1, 1:], ink.round(decimals=6).argmax(dim=1)[:, None]


def numbers_of(outcome: Outcome, num_heads: int) -> list[Tensor]:
    """Return the number and the baseline of each head, or raise a ``MistakeError`` that says what is missing."""
    if outcome.error:
        raise MistakeError(as_sentence(outcome.raised()))
    if not isinstance(outcome.value, list | tuple) or len(outcome.value) != 2:
        raise MistakeError("Return two things: a number for each head, and its baseline for each head.")
    return [as_numbers(given, num_heads) for given in outcome.value]


def as_numbers(given: Any, num_heads: int) -> Tensor:
    """Return a tensor (num_heads,) of what was returned; one number for all heads is repeated."""
    try:
        found = torch.as_tensor(given, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        raise MistakeError("A number and a baseline must be tensors, or lists of numbers.") from None
    if found.shape not in ((), (num_heads,)) or not found.isfinite().all():
        raise MistakeError(f"There must be a finite number for each of the {num_heads} heads.")
    return found.expand(num_heads)
