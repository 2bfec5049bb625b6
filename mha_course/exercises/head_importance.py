"""Exercises on importance: a search, a choice tested on other data, and a measure of the learner's."""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mha_course import heads
from mha_course.checking.comparing import Result, plain
from mha_course.checking.exercise import exercise, judged
from mha_course.checking.running import MistakeError, run_safely, same
from mha_course.checking.wording import as_sentence
from mha_course.heads.measures import measured
from mha_course.models.tasks import Batch, Task
from mha_course.models.training import seeded
from mha_course.models.transformer import Encoder, TokenEmbedding


def two_tables(num_heads: int) -> tuple[Tensor, ...]:
    """Return two correlated random tensors (2**num_heads,), as accuracies of every subset of heads on two data sets."""
    common = torch.rand(2**num_heads, dtype=torch.float64)
    return tuple(0.6 * common + 0.4 * torch.rand(2**num_heads, dtype=torch.float64) for _ in range(2))


@exercise(
    trials=lambda: [(*two_tables(h), number) for h, number in ((3, 2), (4, 1), (5, 3), (6, 4), (6, 2), (7, 3))],
    praise="The set is chosen on some examples, tested on others, and compared with random sets of its size.",
    idea="Three decisions: on which table to choose, on which to test, and what to compare with.",
    begin="Begin with the choice: heads.best_sets gives the best set of every size. Only one table may be used for it.",
    mistakes="""
    random_pruning_curve(unseen) -> random_pruning_curve(seen) ; unseen[chosen] -> seen[chosen] => Luck counts as skill:
        chosen and judged on the seen examples. Test it on the others.
    best_sets(seen) -> best_sets(unseen) => Chosen on the unseen examples, which only test the choice.
    best_sets(seen) -> best_sets(unseen) ; random_pruning_curve(unseen) -> random_pruning_curve(seen) ;
        unseen[chosen] -> seen[chosen] => Chosen on the unseen examples and tested on the seen ones. Exchange the two.
    best_sets(seen) -> best_sets(seen + unseen) => Chosen on both tables. Only the seen examples may choose.
    unseen[chosen] -> seen[chosen] || random_pruning_curve(unseen) -> random_pruning_curve(seen) => Chosen and random
        heads are judged on different examples. Test both on the unseen ones.
    - by_chance -> - unseen[-1] || - unseen[0] || heads.random_pruning_curve(unseen)[number] ->
        unseen[heads.worst_sets(unseen)[number]] || unseen[heads.best_sets(unseen)[number]] => This compares with one
        set. Compare with the mean over all sets of this size.
    heads.random_pruning_curve(unseen)[number] -> unseen.mean() || random_pruning_curve(unseen)[number] ->
        random_pruning_curve(unseen).mean() => This compares with the mean over sets of all sizes. Compare with sets of
        this size.
    - by_chance -> _ => This is the accuracy of the chosen heads. Compare it with that of random heads.
    unseen[chosen] - by_chance -> unseen[chosen] / by_chance || unseen[chosen] / by_chance - 1 => A ratio is taken.
        Return a difference.
    best_sets(seen)[number] -> best_sets(seen)[-1 - number] ; random_pruning_curve(unseen)[number] ->
        random_pruning_curve(unseen)[-1 - number] || best_sets(seen)[number] -> best_sets(seen)[number - 1] ||
        best_sets(seen)[number] -> best_sets(seen)[number - 1] ; random_pruning_curve(unseen)[number] ->
        random_pruning_curve(unseen)[number - 1] => Another number of heads is kept. Index 0 is the set without heads.
    best_sets(seen) -> top_k_sets(seen[-1] - seen[-1 - 2 ** torch.arange(len(seen).bit_length() - 1)]) ||
        top_k_sets(seen[2 ** torch.arange(len(seen).bit_length() - 1)]) || top_k_sets(heads.shapley(seen)) => Heads are
        chosen one by one, by a number for each. The table has the accuracy of every set: look up the best.
    best_sets(seen)[number] -> best_sets(seen) || best_sets(seen)[number] -> best_sets(seen) ; .item() -> _ => The best
        sets of all sizes are tested at once, which is an error where one number is needed. Take the one of this size.
    heads.best_sets(seen)[number] -> torch.stack([part for kept, part in enumerate(seen) if kept.bit_count() ==
        number]).argmax() => The best set's place among those of its size is taken for its number in the whole table.
    """,
)
def honest_gain(seen, unseen, number):
    """Choose the best set of ``number`` heads by accuracies ``seen``; return its gain over random sets in ``unseen``.

    seen, unseen (2**num_heads,), accuracies with every set of heads, numbered as in ``mha_course.heads.coalitions``, on
    examples that may be used for choosing and on others → the gain of the set that does best on the first over the mean
    of all sets of its size, on the second.
    Source: the choice must not see what it is judged by: T. Hastie, R. Tibshirani, J. Friedman, The Elements of
    Statistical Learning, section 7.10.2; random heads as a baseline as in A. Budhraja et al., 2020.
    """
    chosen = heads.best_sets(seen)[number]
    by_chance = heads.random_pruning_curve(unseen)[number]
    return (unseen[chosen] - by_chance).item()


TASK = Task()
SHAPE = (2, 4)  # layers and heads of the small models
NEEDED = 0.8  # rank correlation with the truth
NEARLY = 0.95  # rank correlation with another measure


def first_and_last(model, batch, task):
    shape = heads.head_grid(model)
    found, ones = torch.zeros(shape), torch.ones(shape)
    none, full = (task.accuracy(model, batch, gates) for gates in (0 * ones, ones))
    for head in range(found.numel()):
        only = torch.eye(found.numel())[head].view(shape)
        comes_first = task.accuracy(model, batch, only) - none
        comes_last = full - task.accuracy(model, batch, ones - only)
        found.view(-1)[head] = (comes_first + comes_last) / 2
    return found


@judged(
    right=first_and_last,
    idea="Leave-one-out removes a head while all others are present. Measure it with other sets of heads present, too.",
    begin="Begin with the accuracy of a model with one head alone, and that of a model without any.",
)
def own_importance(function: Callable[..., Tensor]) -> str:
    """Check a learner's head importance function by rank correlation with exact Shapley values on four small models.

    (model, batch, task) → (num_blocks, num_heads), higher is more important, as tables of measures are.
    The models have random weights and are asked on other examples than ``batch``. The mean correlation must be above
    0.8. Source: the truth is L. S. Shapley's, 1953; the bars, P. Michel et al., 2019 and Y. Hao et al., 2021.
    """
    results = tables_from(function)
    bars = [agreement(said_by(measure), truths()) for measure in (GATE_GRADIENT, PATH_GRADIENT)]
    score = agreement(results, truths())
    told = (
        f"The rank correlation with the exact Shapley values is {score:.2f}, the mean over four models. A random order "
        f"has 0.00, the gate gradient {bars[0]:.2f}, the path gradient {bars[1]:.2f}; more than {NEEDED} is needed."
    )
    if score > NEEDED:
        return told
    if score < -0.4:
        raise MistakeError(f"{told} Your order is upside down: important heads must get high numbers.")
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
    return [plain(measure(model, batch, TASK)) for model, batch, _ in small_models()]


def tables_from(function: Any) -> list[Tensor]:
    """Run a learner's importance function on each of ``small_models``; return its tensors, or raise if invalid."""

    def watched(model: Encoder, examples: Batch, task: Task) -> Any:
        before = copy.deepcopy((model.state_dict(), examples))
        answer = function(model, examples, task)
        require_untouched(model, examples, *before)
        return answer

    trials = [(model, batch, TASK) for model, batch, _ in small_models()]
    outcomes = run_safely(watched if callable(function) else function, trials)
    results = [Result(trial, outcome, torch.zeros(SHAPE)) for trial, outcome in zip(trials, outcomes, strict=True)]
    for result in results:
        if result.numbers is None or result.numbers.shape != SHAPE:
            rows = "" if result.got.error else " It needs one row for each layer of the model."
            raise MistakeError(as_sentence(result.problem() or "") + rows)
    tables = [plain(result.numbers) for result in results if result.numbers is not None]
    if any(not table.isfinite().all() or table.eq(table[0, 0]).all() for table in tables):
        raise MistakeError("Every head gets the same number, or some numbers are not finite. That gives no order.")
    if all(torch.equal(table, tables[0]) for table in tables):
        raise MistakeError("Four different models get one and the same table. A measure must depend on the model.")
    return tables


def require_untouched(model: Encoder, examples: Batch, before: dict[str, Tensor], given: Batch) -> None:
    """Raise a ``MistakeError`` if ``model`` or ``examples`` differ from the copies made before a learner's code ran."""
    changes = {
        "changes the model's weights": not same(before, dict(model.state_dict())),
        "changes the examples": not same((examples.inputs, examples.targets), (given.inputs, given.targets)),
        "leaves the model in train mode": model.training,
        "leaves gradients in the model's parameters": any(p.grad is not None for p in model.parameters()),
    }
    for change, made in changes.items():
        if made:
            raise MistakeError(f"Your code {change}. A measure must leave all that it is given as it was.")


def signed_gradient(model: Encoder, batch: Batch, task: Task) -> Tensor:
    """Return the gradient of the mean loss with respect to each entry of an all-ones head mask, with its sign."""
    gates = torch.ones(len(batch), *SHAPE, requires_grad=True)
    losses = task.losses(model(batch.inputs, batch.valid_lens, gates), batch.targets).mean(dim=1)
    return torch.autograd.grad(losses.sum(), gates)[0].mean(dim=0)


def each_alone(model: Encoder, batch: Batch, task: Task) -> Tensor:
    """Return, for each head, the accuracy of the model when every other head is masked."""
    return torch.tensor([task.accuracy(model, batch, only) for only in torch.eye(8).view(8, *SHAPE)]).view(SHAPE)


GATE_GRADIENT = functools.partial(measured, measure="gate_gradient", signed=False)
PATH_GRADIENT = functools.partial(measured, measure="integrated_gradients")
ONE_COMPANY = {
    "leave-one-out": functools.partial(measured, measure="leave_one_out", score="accuracy"),
    "leave-one-out, by the loss": functools.partial(measured, measure="leave_one_out"),
    "the gate gradient": GATE_GRADIENT,
    "the accuracy of each head alone": each_alone,
}
LOW_MEASURES = {
    "It ranks heads by confidence. Concentrated attention does not show whether the output is used.": (
        functools.partial(measured, measure="confidence")
    ),
    "It ranks heads by entropy. Narrow attention does not show whether the output is used.": (
        functools.partial(measured, measure="entropy")
    ),
    "It ranks heads by the norm of their output. A large output may have no effect on the answers.": (
        functools.partial(measured, measure="output_norm")
    ),
    "It takes the absolute value after averaging, so helping some examples cancels hurting others.": (
        lambda *given: signed_gradient(*given).abs()
    ),
    "It is the gradient with its sign. A head that helps has a negative one.": signed_gradient,
    "It is minus the mean gradient, in which helping some examples cancels hurting others.": (
        lambda *given: -signed_gradient(*given)
    ),
    "It divides each layer's gradients by their norm, as if all layers were equally important.": (
        lambda *given: torch.nn.functional.normalize(GATE_GRADIENT(*given), dim=1)
    ),
    "It is the gate gradient, the bar itself. It measures only small changes near the full model.": GATE_GRADIENT,
    "It is leave-one-out. It removes a head only while all others are present.": ONE_COMPANY["leave-one-out"],
    "It is leave-one-out, by the loss. It removes a head only while all others are present.": (
        ONE_COMPANY["leave-one-out, by the loss"]
    ),
    "It measures each head alone. It misses what a head adds to others.": each_alone,
}
