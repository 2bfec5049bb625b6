"""Checks of notebook 06: fair shares, a search, an honest experiment, an importance measure of one's own."""

import copy
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from mha_lib.checks.answers import in_tensors, is_number
from mha_lib.checks.calls import call, kind_of, tensor_from
from mha_lib.checks.compare import Slip, compare, same_order
from mha_lib.checks.verdict import MistakeError, NotYetError, check
from mha_lib.heads import measures
from mha_lib.heads.ablation import evaluate_all
from mha_lib.heads.coalitions import best_sets, heads_in, mean_curve, sets_kept, shapley, spearman, worst_sets
from mha_lib.heads.measures import gate_gradient
from mha_lib.models.tasks import Batch, Task
from mha_lib.models.training import seeded
from mha_lib.models.transformer import Encoder, TokenEmbedding

# ---------------------------------------------------------------------------------------------------------------------
# A game of three

NAMES = "ABC"
GAME = {"": 0.1, "A": 0.6, "B": 0.4, "C": 0.1, "AB": 0.6, "AC": 0.9, "BC": 0.7, "ABC": 0.9}
ORDERS = ("ABC", "ACB", "BAC", "BCA", "CAB", "CBA")
ROUNDED = 0.004  # shares may be given in two digits


@check
def fair_shares(answer: list[float]) -> str:
    """Check the Shapley values of the three heads of ``GAME``.

    Args:
        answer: the shares of A, B and C.

    Source: Shapley 1953, "A Value for n-Person Games".
    """
    shares = shares_from(answer)
    right = mean_of([joining(order) for order in ORDERS])
    if close(shares, right):
        return "B and C earn the same, although B does something alone and C does not: company makes the difference."
    for text, imitation in SHARE_SLIPS:
        if close(shares, imitation):
            raise MistakeError(text)
    total = GAME["ABC"] - GAME[""]
    if abs(sum(shares) - total) > 3 * ROUNDED:
        raise MistakeError(
            f"the shares add up to {sum(shares):.2f}, but all three together add {total:.2f} to what guessing gives."
        )
    wrong = next(name for name, share, fair in zip(NAMES, shares, right, strict=True) if abs(share - fair) > ROUNDED)
    raise MistakeError(
        f"they add up, but {wrong} does not earn {shares[NAMES.index(wrong)]:.2f}. Write down the six orders, and for "
        f"each what {wrong} adds when it joins."
    )


def shares_from(answer: Any) -> list[float]:
    """Three finite numbers.

    Raises:
        NotYetError: some are still dots.
        MistakeError: they are not.
    """
    if isinstance(answer, Tensor) and answer.dim() == 1 and not answer.is_complex():
        answer = answer.tolist()
    if not isinstance(answer, list | tuple):
        raise MistakeError(f"a list of three numbers is needed, the shares of A, B and C; this is {kind_of(answer)}.")
    if any(share is None or share is ... for share in answer):
        raise NotYetError("put a number in the place of every dots.")
    if len(answer) != len(NAMES) or not all(map(is_number, answer)):
        raise MistakeError("three numbers are needed, the shares of A, B and C.")
    if not all(math.isfinite(share) for share in answer):
        raise MistakeError("the shares must be finite numbers.")
    return [float(share) for share in answer]


def worth(heads: str) -> float:
    """What some heads earn, in whatever order they stand."""
    return GAME["".join(sorted(heads))]


def joining(order: str) -> list[float]:
    """What A, B and C add when they join in an order."""
    gains = {name: worth(order[: place + 1]) - worth(order[:place]) for place, name in enumerate(order)}
    return [gains[name] for name in NAMES]


def mean_of(rows: list[list[float]]) -> list[float]:
    """The mean of each column."""
    return [sum(column) / len(column) for column in zip(*rows, strict=True)]


def close(shares: list[float], others: list[float]) -> bool:
    """Whether shares are the same, up to rounding."""
    return all(abs(share - other) <= ROUNDED for share, other in zip(shares, others, strict=True))


ALONE = [worth(name) - worth("") for name in NAMES]
LEFT_OUT = [worth(NAMES) - worth(NAMES.replace(name, "")) for name in NAMES]
SHARE_SLIPS = [
    (
        "this is leave-one-out: what is lost when a head leaves the company of both others. The other places in the "
        "order are missing.",
        LEFT_OUT,
    ),
    ("this is what each head adds alone, when it comes first; it comes second and third as often.", ALONE),
    (
        "this is what the model can do with one head alone, guessing included; a share is what a head adds.",
        [worth(name) for name in NAMES],
    ),
    (
        "this is the mean of coming first and coming last; the places in between are missing.",
        mean_of([ALONE, LEFT_OUT]),
    ),
    (
        "you averaged over the four sets of others, each counting alike. In the six orders a head comes first twice "
        "and last twice, but joins each single one of the others once.",
        [
            sum(worth(others + name) - worth(others) for others in subsets) / len(subsets)
            for name, subsets in (("A", ("", "B", "C", "BC")), ("B", ("", "A", "C", "AC")), ("C", ("", "A", "B", "AB")))
        ],
    ),
    (
        "you let the first head to come take the credit for guessing; without any head the model has 0.1 already.",
        [share + GAME[""] / 3 for share in mean_of([joining(order) for order in ORDERS])],
    ),
    ("everyone gets the same. That is simple, but not what they earn.", [(worth(NAMES) - worth("")) / 3] * 3),
    *[
        (
            f"this is what they add in a single order, such as {', '.join(order)}; there are six, all alike.",
            joining(order),
        )
        for order in ("ABC", "BAC", "CAB", "CBA")
    ],
]

# ---------------------------------------------------------------------------------------------------------------------
# A search


class Game:
    """How well a model does with some of its heads: ``score(kept)``, kept a list of their numbers."""

    def __init__(self, num_heads: int):
        self.num_heads = num_heads
        single, pairs = torch.rand(num_heads), torch.rand(num_heads, num_heads) - 0.5
        sets = heads_in(torch.arange(2**num_heads), num_heads).float()
        self.values = (sets @ single + ((sets @ pairs) * sets).sum(dim=1) + 0.3 * torch.rand(len(sets))).double()

    def __call__(self, kept: Iterable[int]) -> float:
        if not isinstance(kept, Iterable):
            raise TypeError(f"score takes a list with the numbers of the heads that stay, got {kept!r}")
        heads = [int(head) for head in kept]
        strangers = [head for head in heads if head not in range(self.num_heads)]
        if strangers or len(set(heads)) < len(heads):
            raise ValueError(f"score takes the numbers of the heads that stay, each once, got {heads}")
        return self.values[sum(2**head for head in heads)].item()

    def __repr__(self) -> str:
        return "score"


@check
def order_of_cuts(function: Callable[[Callable, int], list[int]]) -> str:
    """Check a greedy search for the order in which heads go.

    Args:
        function: ``order_of_cuts(score, num_heads)``, where ``score(kept)`` says how well the model does with the heads
            in the list ``kept`` alone → the numbers of all heads, in the order in which they are cut: each time the one
            whose absence costs least among those that are left.

    Source: greedy backward elimination; for heads Michel, Levy, Neubig 2019, section 4, prune step by step.
    """
    trials = [(Game(num_heads), num_heads) for num_heads in (3, 4, 5, 6, 7)]
    compare(in_tensors(function), in_tensors(greedy_order), trials, ORDER_SLIPS)
    return "after every cut you asked again, in the company of those that are left."


def without(kept: list[int], head: int) -> list[int]:
    """The others."""
    return [other for other in kept if other != head]


def greedy_order(score: Game, num_heads: int, best: Callable = max) -> list[int]:
    """The head without which the score stays ``best`` goes, again and again."""
    kept, order = list(range(num_heads)), []
    while kept:
        gone = best(kept, key=lambda head: score(without(kept, head)))
        kept, order = without(kept, gone), [*order, gone]
    return order


def by_cost_once(score: Game, num_heads: int) -> list[int]:
    """All costs measured in the company of all, cheapest first."""
    everyone = list(range(num_heads))
    return sorted(everyone, key=lambda head: -score(without(everyone, head)))


def by_worth_alone(score: Game, num_heads: int) -> list[int]:
    """What a head can do alone, the least first."""
    return sorted(range(num_heads), key=lambda head: score([head]))


def by_joining(score: Game, num_heads: int) -> list[int]:
    """Greedy from the other end: the head that adds most joins, again and again."""
    joined = []
    while len(joined) < num_heads:
        others = [head for head in range(num_heads) if head not in joined]
        joined.append(max(others, key=lambda head: score([*joined, head])))
    return joined


def places_in_rest(score: Game, num_heads: int) -> list[int]:
    """The greedy order, each head told by its place among those that were left."""
    kept, places = list(range(num_heads)), []
    for gone in greedy_order(score, num_heads):
        places.append(kept.index(gone))
        kept = without(kept, gone)
    return places


def turns(score: Game, num_heads: int) -> list[int]:
    """For each head the turn in which it goes."""
    order = greedy_order(score, num_heads)
    return [order.index(head) for head in range(num_heads)]


def misordered(text: str, imitation: Callable[[Game, int], list[int]]) -> Slip:
    """A mistake in the search."""
    return Slip("{example}, cut number {place} is head {got} instead of {right}: " + text, in_tensors(imitation))


ORDER_SLIPS = [
    misordered(
        "you measured every head once, in the company of all. After a cut the company is another: measure again.",
        by_cost_once,
    ),
    misordered(
        "you cut the head that costs most first; what goes first should cost least.",
        lambda score, n: greedy_order(score, n, best=min),
    ),
    misordered(
        "you measured every head once, and then cut the most important first.",
        lambda score, n: by_cost_once(score, n)[::-1],
    ),
    misordered("this is the right order, last cut first.", lambda score, n: greedy_order(score, n)[::-1]),
    misordered("you ask what a head can do alone; ask what its absence costs those that are left.", by_worth_alone),
    misordered(
        "you started with no head and let the best join, one after the other. That is a search, too, but from the "
        "other end.",
        lambda score, n: by_joining(score, n)[::-1],
    ),
    misordered("this is the order in which heads join, and not the one in which they are cut.", by_joining),
    misordered("you give a head's place in the list of those that are left; its number is asked for.", places_in_rest),
    misordered("you say for each head when it goes; say for each cut which head goes.", turns),
    Slip(
        "there are {got} cuts instead of {right}: the last head that is left belongs into the order, too.",
        in_tensors(lambda score, n: greedy_order(score, n)[:-1]),
    ),
    Slip(
        "there are {got} cuts instead of {right}: you ended after the first.",
        in_tensors(lambda score, n: greedy_order(score, n)[:1]),
    ),
]

# ---------------------------------------------------------------------------------------------------------------------
# An experiment


@check
def honest_gain(function: Callable[[Tensor, Tensor, int], float]) -> str:
    """Check the design of an experiment: what is chosen by what, and compared with what.

    Args:
        function: ``honest_gain(seen, unseen, number)``, two tables (2**num_heads,) of accuracies with every set of
            heads, numbered as in ``mha_lib.heads.coalitions``, on examples that may be used for choosing and on
            others. → how much better the set of ``number`` heads that does best on the first does on the second than a
            set of ``number`` heads picked at random would there, on average.

    Source: the choice must not see what it is judged by, see e.g. Hastie, Tibshirani, Friedman, The Elements of
        Statistical Learning, section 7.10.2; random heads as a baseline as in Budhraja et al. 2020.
    """
    trials = [(*two_tables(num_heads), number) for num_heads, number in ((3, 2), (4, 1), (5, 3), (6, 4), (6, 2))]
    compare(in_tensors(function), in_tensors(gain), trials, GAIN_SLIPS)
    return "chosen on some examples, judged on others, and held against chance at the same size."


def two_tables(num_heads: int) -> tuple[Tensor, Tensor]:
    """Accuracies of one game, measured on two halves of the examples."""
    common = torch.rand(2**num_heads, dtype=torch.float64)
    return tuple(0.6 * common + 0.4 * torch.rand(2**num_heads, dtype=torch.float64) for _ in range(2))


def chosen(seen: Tensor, unseen: Tensor, number: int) -> Tensor:
    """What the set that does best on the seen examples does on the others."""
    return unseen[best_sets(seen)[number]]


def by_chance(table: Tensor, number: int) -> Tensor:
    """What as many heads picked at random do on average."""
    return mean_curve(table)[number]


def gain(seen: Tensor, unseen: Tensor, number: int) -> float:
    return (chosen(seen, unseen, number) - by_chance(unseen, number)).item()


def by_leave_one_out(seen: Tensor, unseen: Tensor, number: int) -> float:
    """The set chosen by the cost of single heads."""
    num_heads = len(seen).bit_length() - 1
    costs = seen[-1] - seen[-1 - 2 ** torch.arange(num_heads)]
    return (unseen[sets_kept(costs)[number]] - by_chance(unseen, number)).item()


def misjudged(text: str, imitation: Callable[[Tensor, Tensor, int], float]) -> Slip:
    """A mistake in the design; the tables are too long to show."""
    return Slip("in the smallest game you report {got} instead of {right}: " + text, in_tensors(imitation))


GAIN_SLIPS = [
    misjudged(
        "you chose and judged on the same examples, the seen ones, so luck counts as skill.",
        lambda seen, unseen, k: gain(seen, seen, k),
    ),
    misjudged(
        "you chose on the unseen examples, which nobody may look at before the end.",
        lambda seen, unseen, k: gain(unseen, unseen, k),
    ),
    misjudged(
        "the roles are exchanged: you chose on the unseen examples and judged on the seen ones.",
        lambda seen, unseen, k: gain(unseen, seen, k),
    ),
    misjudged(
        "the chosen heads are judged on the seen examples, the random ones on the others; that compares two things at "
        "once.",
        lambda seen, unseen, k: (chosen(seen, seen, k) - by_chance(unseen, k)).item(),
    ),
    misjudged(
        "the random heads are judged on the seen examples, the chosen ones on the others; that compares two things at "
        "once.",
        lambda seen, unseen, k: (chosen(seen, unseen, k) - by_chance(seen, k)).item(),
    ),
    misjudged(
        "you compare with the whole model; that is the price of pruning, not what choosing well gains.",
        lambda seen, unseen, k: (chosen(seen, unseen, k) - unseen[-1]).item(),
    ),
    misjudged(
        "you compare with a model without heads; any set would look good.",
        lambda seen, unseen, k: (chosen(seen, unseen, k) - unseen[0]).item(),
    ),
    misjudged(
        "you compare with the mean over sets of all sizes; a fair opponent keeps as many heads.",
        lambda seen, unseen, k: (chosen(seen, unseen, k) - unseen.mean()).item(),
    ),
    misjudged(
        "you compare with the worst set of this size; random picks do better than that.",
        lambda seen, unseen, k: (chosen(seen, unseen, k) - unseen[worst_sets(unseen)[k]]).item(),
    ),
    misjudged("nothing is compared: this is the accuracy itself.", lambda seen, unseen, k: chosen(seen, unseen, k)),
    misjudged("the sign is wrong: better must come out positive.", lambda seen, unseen, k: -gain(seen, unseen, k)),
    misjudged(
        "you cut as many heads as should stay.",
        lambda seen, unseen, k: gain(seen, unseen, -1 - k),  # the curves' last place but k
    ),
    misjudged(
        "you took the best set of all, whatever its size.",
        lambda seen, unseen, k: (unseen[seen.argmax()] - by_chance(unseen, k)).item(),
    ),
    misjudged(
        "you kept the heads with the highest cost of their own, by leave-one-out; the table of all sets can tell the "
        "best set itself.",
        by_leave_one_out,
    ),
]

# ---------------------------------------------------------------------------------------------------------------------
# A measure of one's own

TASK = Task()
SEEDS = (0, 1, 2, 3)
NUM_HEADS = 4
NEEDED = 0.8  # rank correlation with the truth
UPSIDE_DOWN = -0.4


@check
def own_importance(function: Callable[..., Tensor]) -> str:
    """Score a measure of importance by its rank correlation with exact Shapley values, on four small models.

    Args:
        function: ``own_importance(model, batch, task)`` → (num_blocks, num_heads), higher is more important, as the
            measures of ``mha_lib.heads``. The models have random weights and are asked on other examples than
            ``batch``. The mean correlation must be at least 0.8.

    Source: the truth is Shapley's (1953); the bars, Michel, Levy, Neubig 2019 and Hao et al. 2021.
    """
    results = [measured(function, *game) for game in small_models()]
    if all(torch.equal(result, results[0]) for result in results):
        raise MistakeError("four different models get one and the same table: your measure does not look at the model.")
    score = agreement(results)
    bars = {
        "a random order": 0.0,
        "the gate's gradient": agreement(library("gate_gradient")),
        "what is asked": NEEDED,
        "the path gradient": agreement(library("path_gradient")),
    }
    told = f"the rank correlation with the exact Shapley values is {score:.2f}, the mean over four models. "
    if score < UPSIDE_DOWN:
        raise MistakeError(told + "It is upside down: higher must mean more important.")
    cleared = [f"{name} ({bar:.2f})" for name, bar in bars.items() if score > bar]
    missed = [f"{name} ({bar:.2f})" for name, bar in bars.items() if score <= bar]
    both = (("above", cleared), ("not above", missed))
    told += "It is " + "; ".join(f"{word} {', '.join(names)}" for word, names in both if names)
    if score > NEEDED:
        return f"{told}."
    known = (text for name, text in LOW_MEASURES if all(map(same_order, results, library(name))))
    raise MistakeError(f"{told}. {next(known, '')}")


@functools.cache
def small_models() -> list[tuple[Encoder, Batch]]:
    """Models with random weights, and examples of which nine answers in ten are what the model says."""
    return [random_model(seed)[:2] for seed in SEEDS]


@functools.cache
def random_model(seed: int) -> tuple[Encoder, Batch, Batch]:
    """A model of two layers of four heads, loud and quiet ones, with examples to measure and to judge on."""
    with seeded(seed):
        size = 2 * NUM_HEADS
        model = Encoder(TokenEmbedding(11, 7, size), size, 5, 2, NUM_HEADS, ffn_num_hiddens=2 * size).eval()
        with torch.no_grad():
            for attention in model.attentions:
                for linear in (attention.W_q, attention.W_k, attention.W_v, attention.W_o):
                    linear.weight.normal_(std=0.3)
                attention.W_o.weight *= 2 * torch.rand(NUM_HEADS).repeat_interleave(2)
            model.output.weight.normal_()
            inputs = torch.randint(11, (128, 7))
            answers = model(inputs).argmax(dim=-1)
        answers = torch.where(torch.rand(answers.shape) < 0.1, torch.randint(5, answers.shape), answers)
    batch = Batch(inputs, None, answers)
    return model, batch[:64], batch[64:]


@functools.cache
def truths() -> list[Tensor]:
    """Exact Shapley values of the accuracy, for each small model on its other examples."""
    found = []
    for seed in SEEDS:
        model, _, unseen = random_model(seed)
        found.append(shapley(evaluate_all(model, unseen, TASK).accuracy).view(2, NUM_HEADS))
    return found


def agreement(results: Sequence[Tensor]) -> float:
    """Mean rank correlation with the truth."""
    return sum(map(spearman, results, truths())) / len(results)


def measured(function: Any, model: Encoder, batch: Batch) -> Tensor:
    """What a measure says of a model, which must be left as it was.

    Raises:
        MistakeError: the measure changes what it measures, or gives no table of different numbers.
    """

    def watched(model: Encoder, examples: Batch, task: Task) -> Any:
        before = copy.deepcopy((model.state_dict(), examples))
        answer = function(model, examples, task)
        require_untouched(model, examples, *before)
        return answer

    result = call(watched if callable(function) else function, model, batch, TASK)
    if isinstance(result, Tensor) and result.shape == (len(batch), 2, NUM_HEADS):
        raise MistakeError("there is a table for each example; average over the examples.")
    if isinstance(result, Tensor) and result.shape == (2 * NUM_HEADS,):
        raise MistakeError(f"the heads stand in one row; the shape must be {(2, NUM_HEADS)}, a row for each layer.")
    if isinstance(result, Tensor) and result.shape == (2, 6):
        raise MistakeError(f"these models have 2 layers of {NUM_HEADS} heads; take the numbers from the model.")
    table = tensor_from(result, (2, NUM_HEADS), floating=False).to("cpu", torch.float64)
    if (table == table[0, 0]).all():
        raise MistakeError("every head gets the same number: that is no order.")
    return table


def require_untouched(model: Encoder, examples: Batch, before: dict[str, Tensor], given: Batch) -> None:
    """Do nothing if a measure has left what it measured as it was.

    Raises:
        MistakeError: it has not.
    """
    if any(not torch.equal(value, before[name]) for name, value in model.state_dict().items()):
        raise MistakeError("your code changes the model's weights: a measure must leave the model as it was.")
    if not (torch.equal(examples.inputs, given.inputs) and torch.equal(examples.targets, given.targets)):
        raise MistakeError("your code changes the examples in place.")
    if model.training:
        raise MistakeError("your code leaves the model in train mode: put it back into eval mode.")
    if any(parameter.grad is not None for parameter in model.parameters()):
        raise MistakeError(
            "your code leaves gradients in the model's parameters: backward adds to them, and the next training step "
            "would use them. Ask torch.autograd.grad for those of the gates alone."
        )


@functools.cache
def library(name: str) -> tuple[Tensor, ...]:
    """What another measure says of the small models."""
    measure = globals().get(name) or getattr(measures, name)
    return tuple(measure(model, batch, TASK) for model, batch in small_models())


def gradients(model: Encoder, batch: Batch, task: Task) -> Tensor:
    """The gradient of each example's loss by its gates: (batch, num_blocks, num_heads)."""
    gates = torch.ones(len(batch), 2, NUM_HEADS, requires_grad=True)
    losses = task.losses(model(batch.inputs, batch.valid_lens, gates), batch.targets).mean(dim=1)
    return torch.autograd.grad(losses.sum(), gates)[0].double()


def signed_gradient(model: Encoder, batch: Batch, task: Task) -> Tensor:
    return gradients(model, batch, task).mean(dim=0)


def negative_gradient(model: Encoder, batch: Batch, task: Task) -> Tensor:
    return -signed_gradient(model, batch, task)


def mean_gradient(model: Encoder, batch: Batch, task: Task) -> Tensor:
    return signed_gradient(model, batch, task).abs()


def normalised_gradient(model: Encoder, batch: Batch, task: Task) -> Tensor:
    return gate_gradient(model, batch, task, normalise=True)


LOW_MEASURES = [
    ("confidence", "It orders heads by how sure they look; nobody need listen to a head that is sure."),
    ("negative_entropy", "It orders heads by how narrowly they look; nobody need listen to a narrow head."),
    ("output_norm", "It orders heads by how loud they are; the next layer norm may take that away again."),
    (
        "mean_gradient",
        "It averages the gradient over the examples before it drops the sign, so a head that helps some and hurts "
        "others comes out idle.",
    ),
    ("signed_gradient", "It is the gradient with its sign: heads that help have a negative one."),
    ("negative_gradient", "It is the mean gradient, in which examples that a head helps and hurts cancel."),
    ("normalised_gradient", "It divides each layer's gradients by their norm, which hides that one layer does more."),
    ("gate_gradient", "It is the gate's gradient, the bar itself: what does it not see?"),
    ("leave_one_out", "It is leave-one-out: who else is there, when a head goes?"),
]
