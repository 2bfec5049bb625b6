"""Exercises on importance: a search, a choice tested on other data, and a measure of the learner's."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mha_course import heads
from mha_course.checking.comparing import Result, plain
from mha_course.checking.exercise import exercise, judged
from mha_course.checking.running import MistakeError, run_safely
from mha_course.checking.wording import as_sentence
from mha_course.models.tasks import Batch, Task
from mha_course.models.training import seeded
from mha_course.models.transformer import Encoder, TokenEmbedding

TASK = Task()
SHAPE = (2, 4)  # layers and heads of the small models
NEEDED = 0.8  # rank correlation with the truth
NEARLY = 0.95  # rank correlation with another measure
CALLS = 100  # of the accuracy of one model


def first_and_last(accuracy, shape):
    found, all_on = torch.zeros(shape), torch.ones(shape)
    for layer, head in itertools.product(*map(range, shape)):
        only = torch.zeros(shape)
        only[layer, head] = 1
        comes_first = accuracy(only) - accuracy(0 * all_on)
        comes_last = accuracy(all_on) - accuracy(all_on - only)
        found[layer, head] = (comes_first + comes_last) / 2
    return found


@judged(
    right=first_and_last,
    idea="Leave-one-out removes a head while all others are present. Measure it with other sets of heads present, too.",
    begin="Begin with the accuracy of a model with one head alone, and that of a model without any.",
)
def own_importance(function: Callable[..., Tensor]) -> str:
    """Check a learner's head importance function by rank correlation with exact Shapley values on four small models.

    (accuracy, shape) → numbers of this shape, (num_blocks, num_heads), higher is more important. ``accuracy(gates)`` is
    that of a model which the function cannot see, with a gate from 0 to 1 at each head; at most 100 calls a model.
    The models have random weights, and the truth is computed on other examples. The mean correlation must be above
    0.8. Source: the truth is L. S. Shapley's, 1953; leave-one-out as in P. Michel et al., 2019.
    """
    results = tables_from(function)
    bars = [agreement(said_by(measure), truths()) for measure in (leave_one_out, each_alone)]
    score = agreement(results, truths())
    told = (
        f"The rank correlation with the exact Shapley values is {score:.2f}, the mean over four models. A random order "
        f"has 0.00, leave-one-out {bars[0]:.2f}, each head alone {bars[1]:.2f}; more than {NEEDED} is needed."
    )
    if score > NEEDED:
        return told
    if score < -0.4:
        raise MistakeError(f"{told} Your ranking is reversed: important heads must get high numbers.")
    for text, measure in LOW_MEASURES.items():
        if all(heads.spearman(*pair) > 0.999 for pair in zip(results, said_by(measure), strict=True)):
            raise MistakeError(f"{told} {text}")
    closest, name = max((agreement(results, said_by(measure)), name) for name, measure in ONE_COMPANY.items())
    if closest > NEARLY:
        told = f"{told} Its order is nearly that of {name} (rank correlation {closest:.2f})."
    raise MistakeError(
        f"{told} Measure a head with several sets of other heads present: all, none, and some in between."
    )


def agreement(said: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    """Return Spearman's rank correlation of ``said[i]`` and ``others[i]``, averaged over i."""
    return sum(map(heads.spearman, said, others)) / len(said)


@functools.cache
def small_models() -> list[tuple[Encoder, Batch, Batch]]:
    """Return four small random Transformers, each with a batch for measuring importance and a batch for testing."""
    return [random_model(seed) for seed in range(4)]


def random_model(seed: int) -> tuple[Encoder, Batch, Batch]:
    """Return a random encoder and two batches labelled by its own predictions, a tenth of them replaced at random."""
    (layers, heads), size = SHAPE, 2 * SHAPE[1]
    with seeded(seed), torch.no_grad():
        model = Encoder(TokenEmbedding(11, 7, size), size, 5, layers, heads, ffn_num_hiddens=2 * size).eval()
        for attention in model.attentions:
            for linear in (attention.W_q, attention.W_k, attention.W_v, attention.W_o):
                linear.weight.normal_(std=0.3)
            attention.W_o.weight *= 2 * torch.rand(heads).repeat_interleave(2)
        model.get_parameter("output.weight").normal_()
        inputs = torch.randint(11, (128, 7))
        answers = model(inputs).argmax(dim=-1)
        answers = torch.where(torch.rand(answers.shape) < 0.1, torch.randint(5, answers.shape), answers)
    batch = Batch(inputs, None, answers)
    return model, batch[:64], batch[64:]


@functools.cache
def truths() -> list[Tensor]:
    """Return, for each model of ``small_models``, the exact Shapley value of every head for its test accuracy."""
    tables = [heads.evaluate_all(model, unseen, TASK).accuracy for model, _, unseen in small_models()]
    return [heads.shapley(table).view(SHAPE) for table in tables]


@functools.cache
def said_by(measure: Callable) -> list[Tensor]:
    """Apply an importance measure to each model of ``small_models``; return its head scores, one tensor per model."""
    return [measure(accuracy_of(model, batch), SHAPE) for model, batch, _ in small_models()]


def accuracy_of(model: Encoder, batch: Batch) -> Callable[[Tensor], float]:
    """Return the function from gates (num_blocks, num_heads) to the accuracy of ``model`` on ``batch``.

    It raises a ``MistakeError`` for gates of another shape, and at call number ``CALLS`` + 1.
    """
    calls = itertools.count(1)

    def accuracy(gates: Tensor) -> float:
        if next(calls) > CALLS:
            raise MistakeError(f"Your code calls `accuracy` more than {CALLS} times. Choose which sets to measure.")
        if not isinstance(gates, Tensor) or gates.shape != SHAPE:
            raise MistakeError(f"`accuracy` needs gates of the shape {SHAPE}, one for each head.")
        return TASK.accuracy(model, batch, gates.float())

    return accuracy


def tables_from(function: Any) -> list[Tensor]:
    """Run a learner's importance function on each of ``small_models``; return its tensors, or raise if invalid."""
    trials = [(accuracy_of(model, batch), SHAPE) for model, batch, _ in small_models()]
    outcomes = run_safely(function, trials)
    results = [Result(trial, outcome, torch.zeros(SHAPE)) for trial, outcome in zip(trials, outcomes, strict=True)]
    for result in results:
        if result.numbers is None or result.numbers.shape != SHAPE:
            rows = "" if result.got.error else " It needs one row for each layer of the model."
            raise MistakeError(as_sentence(result.problem() or "") + rows)
    tables = [plain(result.numbers) for result in results if result.numbers is not None]
    if any(not table.isfinite().all() or table.eq(table[0, 0]).all() for table in tables):
        raise MistakeError("Every head gets the same number, or some numbers are not finite. So there is no ranking.")
    if all(torch.equal(table, tables[0]) for table in tables):
        raise MistakeError("Four different models get the same table. A measure must depend on the model.")
    return tables


def leave_one_out(accuracy: Callable[[Tensor], float], shape: tuple[int, int]) -> Tensor:
    """Return, for each head, the loss of accuracy without it."""
    return accuracy(torch.ones(shape)) - torch.tensor([accuracy(1 - only) for only in one_head(shape)]).view(shape)


def each_alone(accuracy: Callable[[Tensor], float], shape: tuple[int, int]) -> Tensor:
    """Return, for each head, the accuracy when every other head is masked."""
    return torch.tensor([accuracy(only) for only in one_head(shape)]).view(shape)


def one_head(shape: tuple[int, int]) -> Tensor:
    """Return gates (num_heads of the model, *shape) that let through one head each."""
    return torch.eye(math.prod(shape)).view(-1, *shape)


ONE_COMPANY = {"leave-one-out": leave_one_out, "the accuracy of each head alone": each_alone}
LOW_MEASURES = {
    "It is leave-one-out. It removes a head only while all others are present.": leave_one_out,
    "It measures each head alone. It misses what a head adds to others.": each_alone,
}


def accuracies(num_heads: int) -> tuple[Tensor, Tensor]:
    """Return two random tensors (2**num_heads,), accuracies of every subset of heads, mostly higher for larger ones."""
    sizes = heads.set_members(torch.arange(2**num_heads), num_heads).sum(dim=1)
    common = 0.5 * (sizes / num_heads) ** 0.5 + 0.3 * torch.rand(2**num_heads)
    first, second = (common + 0.15 * torch.rand(2**num_heads) for _ in range(2))
    return (first / first.max()).double(), (0.95 * second / second.max()).double()


@exercise(
    trials=lambda: [
        (*accuracies(number), share) for number, share in ((3, 0.8), (4, 0.9), (5, 0.85), (6, 0.9), (7, 0.8))
    ],
    praise="Each set is chosen on the calibration set, and its size on other examples.",
    idea="There is one best set for each size. Choose all of them first, then check which of them are good enough.",
    begin="Begin with `heads.best_sets`, which gives the best set of every size.",
    mistakes="""
    best_sets(calibration) -> best_sets(test) => The sets are chosen on the test set. Choose all of them on the
        calibration set.
    test[chosen] >= share * test[-1] -> calibration[chosen] >= share * calibration[-1] => The accuracy is that on the
        calibration set, where the sets were chosen: it is partly luck. Use the test set here.
    best_sets(calibration) -> best_sets(test) ; test[chosen] >= share * test[-1] -> calibration[chosen] >= share *
        calibration[-1] => The two sets of examples are exchanged.
    share * test[-1] -> share => The accuracy is compared with `share` itself. Compare it with that share of the
        accuracy with all heads.
    share * test[-1] -> share * calibration[-1] => The accuracy with all heads is that on the calibration set. Compare
        on one set of examples.
    share * test[-1] -> share * test.max() => The accuracy is compared with that of the best set. Compare it with that
        of all heads, the last set.
    nonzero()[0] -> nonzero()[-1] => This is the largest set that is good enough. Return the smallest.
    chosen[enough.nonzero()[0]].item() -> enough.nonzero()[0].item() => This is the number of heads. Return the number
        of the set.
    chosen[enough.nonzero()[0]].item() -> chosen.flip(0)[(~enough.flip(0)).nonzero()[0] - 1].item() => The search goes
        down from the largest size, and stops at the first that is not good enough. Check all sizes.
    """,
)
def smallest_set(calibration, test, share):
    """Find the smallest set of heads, best of its size in ``calibration``, that keeps ``share`` of the full accuracy.

    calibration, test (2**num_heads,): accuracy with every set of heads, numbered as in ``mha_course.heads.coalitions``,
    on two sets of examples; share, a number from 0 to 1 → the number of a set. For each size, take the set that is best
    on the calibration set. Of these, return the smallest that has at least this share of the accuracy with all heads on
    the test set.
    """
    chosen = heads.best_sets(calibration)
    enough = test[chosen] >= share * test[-1]
    return chosen[enough.nonzero()[0]].item()
