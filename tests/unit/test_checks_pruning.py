"""Exercises of notebook 06: right answers pass, typical mistakes are named, others are not taken for them."""

import itertools
import math

import pytest
import torch
from judged import Answers

from mha_lib import checks
from mha_lib.checks import pruning
from mha_lib.heads.ablation import evaluate, evaluate_all, head_outputs, head_shape
from mha_lib.heads.coalitions import best_sets, greedy, heads_in, mean_curve, sets_kept, shapley, spearman
from mha_lib.heads.measures import monte_carlo_shapley, path_gradient

# ---------------------------------------------------------------------------------------------------------------------
# A game of three

TRUE = [0.4, 0.2, 0.2]


def test_the_shares_are_those_of_the_library():
    table = torch.zeros(8, dtype=torch.float64)
    for heads, value in pruning.GAME.items():
        table[sum(2 ** "ABC".index(head) for head in heads)] = value
    torch.testing.assert_close(shapley(table), torch.tensor(TRUE, dtype=torch.float64))


@pytest.mark.parametrize("answer", [TRUE, tuple(TRUE), torch.tensor(TRUE), [2.4 / 6, 0.2, 1 / 5], [0.4, 0.203, 0.199]])
def test_the_right_shares_pass(answer):
    assert checks.fair_shares(answer).state == "right", checks.fair_shares(answer)


WRONG_SHARES = {
    "this is leave-one-out": [0.2, 0, 0.3],
    "adds alone": [0.5, 0.3, 0.0],
    "guessing included": [0.6, 0.4, 0.1],
    "coming first and coming last": [0.35, 0.15, 0.15],
    "four sets of others": [0.425, 0.225, 0.225],
    "credit for guessing": [0.433, 0.233, 0.233],
    "everyone gets the same": [0.2667, 0.2667, 0.2667],
    "such as A, B, C": [0.5, 0.0, 0.3],
    "such as B, A, C": [0.2, 0.3, 0.3],
    "such as C, A, B": [0.8, 0.0, 0.0],
    "such as C, B, A": [0.2, 0.6, 0.0],
}
UNLISTED_SHARES = {
    "they add up, but A does not earn 0.50": [0.5, 0.1, 0.2],
    "they add up, but B does not earn 0.25": [0.4, 0.25, 0.15],
    "the shares add up to 0.90, but all three together add 0.80": [0.5, 0.2, 0.2],
    "the shares add up to 0.51": [0.21, 0.0, 0.3],
    "three numbers are needed": [0.4, 0.4],
    "the shares must be finite": [0.4, math.inf, 0.2],
    "this is a float": 0.4,
}


@pytest.mark.parametrize(("words", "answer"), (WRONG_SHARES | UNLISTED_SHARES).items())
def test_wrong_shares_are_told_apart(words, answer):
    verdict = checks.fair_shares(answer)
    assert (verdict.state, words in verdict.text) == ("wrong", True), verdict
    assert [name for name in WRONG_SHARES if name in verdict.text] == [words] * (words in WRONG_SHARES)


def test_every_wrong_share_that_has_a_name_is_tried():
    assert len({checks.fair_shares(answer).text for answer in WRONG_SHARES.values()}) == len(pruning.SHARE_SLIPS)


@pytest.mark.parametrize("answer", [..., None, [..., 0.2, 0.2], [0.4, None, 0.2]])
def test_dots_are_not_yet_shares(answer):
    assert checks.fair_shares(answer).state == "not yet"


# ---------------------------------------------------------------------------------------------------------------------
# A search


def search(score, num_heads, pick=max, again=True, write=lambda order, kept, gone: order.append(gone), stop=0):
    """A loop with places to put mistakes in."""
    kept, order = list(range(num_heads)), []
    everyone = list(kept)
    while len(kept) > stop:
        company = kept if again else everyone
        scores = {head: score([other for other in company if other != head]) for head in kept}
        gone = pick(scores, key=scores.get)
        write(order, kept, gone)
        kept.remove(gone)
    return order


def by_recursion(score, num_heads):
    def order_of(kept):
        if not kept:
            return []
        rests = [tuple(h for h in kept if h != gone) for gone in kept]
        best = max(range(len(kept)), key=lambda place: score(rests[place]))
        return [kept[best], *order_of(rests[best])]

    return order_of(tuple(range(num_heads)))


def by_cost(score, num_heads):
    kept, order = set(range(num_heads)), torch.empty(num_heads, dtype=torch.long)
    for turn in range(num_heads):
        costs = [(score(kept) - score(kept - {head}), head) for head in kept]
        order[turn] = min(costs)[1]
        kept -= {min(costs)[1]}
    return order


def by_table(score, num_heads):
    sets = (
        list(itertools.compress(range(num_heads), bits))
        for bits in heads_in(torch.arange(2**num_heads), num_heads).tolist()
    )
    return greedy(torch.tensor([score(kept) for kept in sets])).argsort().tolist()


def alone(score, num_heads):
    return sorted(range(num_heads), key=lambda head: score([head]))


def joining(score, num_heads):
    order = []
    for _ in range(num_heads):
        rest = set(range(num_heads)) - set(order)
        order.append(max(rest, key=lambda head: score([*order, head])))
    return order


ORDER = Answers(
    checks.order_of_cuts,
    right=[search, by_recursion, by_cost, by_table],
    wrong={
        "you measured every head once, in the company of all": lambda s, n: search(s, n, again=False),
        "costs most first": lambda s, n: search(s, n, pick=min),
        "and then cut the most important": lambda s, n: search(s, n, pick=min, again=False),
        "the right order, last cut first": lambda s, n: list(reversed(search(s, n))),
        "what a head can do alone": alone,
        "you started with no head": lambda s, n: joining(s, n)[::-1],
        "the order in which heads join": joining,
        "place in the list": lambda s, n: search(s, n, write=lambda order, kept, gone: order.append(kept.index(gone))),
        "for each head when it goes": lambda s, n: torch.tensor(search(s, n)).argsort(),
        "the last head that is left": lambda s, n: search(s, n, stop=1),
        "you ended after the first": lambda s, n: search(s, n, stop=n - 1),
    },
    unlisted=[
        lambda s, n: list(range(n)),
        lambda s, n: alone(s, n)[::-1],
        lambda s, n: search(s, n, again=n < 5),
        lambda s, n: search(s, n, stop=2),
        lambda s, n: [*search(s, n), 0],
        lambda s, n: search(s, n, pick=max if n < 6 else min),
    ],
)


def test_a_wrong_question_to_the_score_is_told_with_the_line():
    text = checks.order_of_cuts(lambda score, n: [score([1] * n)]).text
    assert "score takes the numbers of the heads that stay, each once, got [1, 1, 1]" in text
    text = checks.order_of_cuts(lambda score, n: [score(0)]).text
    assert "score takes a list with the numbers of the heads that stay, got 0" in text


# ---------------------------------------------------------------------------------------------------------------------
# An experiment


def sets_of(num_heads, size):
    return [sum(2**head for head in heads) for heads in itertools.combinations(range(num_heads), size)]


def experiment(seen, unseen, number, choose="seen", judge="unseen", chance="unseen"):
    """Three decisions, each of which can be the wrong one."""
    tables = {"seen": seen, "unseen": unseen}
    sets = sets_of(int(math.log2(len(seen))), number)
    best = max(sets, key=lambda s: tables[choose][s])
    return (tables[judge][best] - tables[chance][sets].mean()).item()


def against(baseline):
    def answer(seen, unseen, number):
        sets = sets_of(int(math.log2(len(seen))), number)
        return unseen[sets][seen[sets].argmax()] - baseline(unseen, sets)

    return answer


def by_mean_curve(seen, unseen, number):
    sizes = heads_in(torch.arange(len(seen)), len(seen).bit_length() - 1).sum(dim=1)
    return unseen[best_sets(seen)[number]] - mean_curve(unseen)[number] + 0 * sizes.sum()


def by_single_costs(seen, unseen, number):
    num_heads = int(math.log2(len(seen)))
    costs = torch.tensor([(seen[-1] - seen[len(seen) - 1 - 2**head]).item() for head in range(num_heads)])
    chosen = sum(2**head for head in costs.topk(number).indices.tolist())
    return unseen[chosen] - unseen[sets_of(num_heads, number)].mean()


def by_shapley(seen, unseen, number):
    chosen = sets_kept(shapley(seen))[number]
    return unseen[chosen] - unseen[sets_of(int(math.log2(len(seen))), number)].mean()


GAIN = Answers(
    checks.honest_gain,
    right=[experiment, by_mean_curve, against(lambda unseen, sets: unseen[sets].mean())],
    wrong={
        "luck counts as skill": lambda s, u, k: experiment(s, s, k),
        "nobody may look": lambda s, u, k: experiment(s, u, k, choose="unseen"),
        "roles are exchanged": lambda s, u, k: experiment(u, s, k),
        "the chosen heads are judged on the seen": lambda s, u, k: experiment(s, u, k, judge="seen"),
        "the random heads are judged on the seen": lambda s, u, k: experiment(s, u, k, chance="seen"),
        "with the whole model": against(lambda unseen, sets: unseen[-1]),
        "without heads": against(lambda unseen, sets: unseen[0]),
        "sets of all sizes": against(lambda unseen, sets: unseen.mean()),
        "with the worst set": against(lambda unseen, sets: unseen[sets].min()),
        "nothing is compared": against(lambda unseen, sets: 0),
        "the sign is wrong": lambda s, u, k: -experiment(s, u, k),
        "as many heads as should stay": lambda s, u, k: experiment(s, u, int(math.log2(len(s))) - k),
        "whatever its size": lambda s, u, k: u[s.argmax()] - u[sets_of(int(math.log2(len(s))), k)].mean(),
        "by leave-one-out": by_single_costs,
    },
    unlisted=[
        against(lambda unseen, sets: unseen[sets].median()),
        against(lambda unseen, sets: unseen[sets].max()),
        lambda s, u, k: experiment(s, s, k, chance="unseen") + 0.01,
        by_shapley,
        lambda s, u, k: experiment(s, u, k) if len(s) < 20 else experiment(s, s, k),
        lambda s, u, k: [experiment(s, u, k)],
    ],
)

# ---------------------------------------------------------------------------------------------------------------------
# A measure of one's own


def marginal(model, batch, task, orders=20):
    """Sampled Shapley values, loop by loop."""
    shape = head_shape(model)
    total = torch.zeros(shape)
    generator = torch.Generator().manual_seed(3)
    for _ in range(orders):
        gates = torch.zeros(shape)
        before = task.accuracy(model, batch, gates)
        for head in torch.randperm(total.numel(), generator=generator).tolist():
            gates.view(-1)[head] = 1
            after = task.accuracy(model, batch, gates)
            total.view(-1)[head] += after - before
            before = after
    return total / orders


def gate_gradients(model, batch, task, at=1.0):
    gates = torch.full((len(batch), *head_shape(model)), at, requires_grad=True)
    losses = task.losses(model(batch.inputs, batch.valid_lens, gates), batch.targets).mean(dim=1)
    return torch.autograd.grad(losses.sum(), gates)[0]


def half_way(model, batch, task):
    return -sum(gate_gradients(model, batch, task, at=at).mean(dim=0) for at in (0.1, 0.3, 0.5, 0.7, 0.9))


def shares(model, batch, task):
    table = evaluate_all(model, batch, task).accuracy
    return shapley(table).view(head_shape(model))


def first_and_last(model, batch, task):
    """What each head adds to none, and to all others."""
    shape = head_shape(model)
    each = torch.eye(shape[0] * shape[1]).view(-1, *shape)
    scores = evaluate(model, batch, task, torch.cat([each, 1 - each])).accuracy
    return (scores[: len(each)] - scores[len(each) :]).view(shape)


def greedy_turns(model, batch, task):
    table = -evaluate_all(model, batch, task).loss
    return greedy(table).view(head_shape(model))


def loop_without(model, batch, task):
    shape = head_shape(model)
    costs = torch.empty(shape)
    for place in itertools.product(*map(range, shape)):
        gates = torch.ones(shape)
        gates[place] = 0
        costs[place] = task.accuracy(model, batch) - task.accuracy(model, batch, gates)
    return costs


def per_layer(model, batch, task):
    found = gate_gradients(model, batch, task).abs().mean(dim=0)
    return found / found.square().sum(dim=1, keepdim=True).sqrt()


def weights_of(model, batch):
    with torch.no_grad():
        model(batch.inputs)
        return torch.stack(model.attention_weights)


def norms(model, batch, task):
    """‖head W_o‖, from what the heads say."""
    found = []
    for attention, heads in zip(model.attentions, head_outputs(model, batch), strict=True):
        parts = attention.W_o.weight.detach().chunk(attention.num_heads, dim=1)
        found += [torch.stack([(heads[:, h] @ part.T).norm(dim=-1).mean() for h, part in enumerate(parts)])]
    return torch.stack(found)


def changes_weights(model, batch, task):
    found = half_way(model, batch, task)
    with torch.no_grad():
        model.attentions[0].W_o.weight[:, 0] = 0
    return found


def in_train_mode(model, batch, task):
    model.train()
    return half_way(model, batch, task)


def with_backward(model, batch, task):
    task.losses(model(batch.inputs), batch.targets).mean().backward()
    return torch.stack([layer.W_o.weight.grad.unflatten(1, (4, -1)).norm(dim=(0, 2)) for layer in model.attentions])


def changes_examples(model, batch, task):
    batch.targets.zero_()
    return half_way(model, batch, task)


def signed(sign):
    return lambda model, batch, task: sign * gate_gradients(model, batch, task).mean(dim=0)


IMPORTANCE = Answers(
    checks.own_importance,
    right=[marginal, half_way, first_and_last, shares, path_gradient, monte_carlo_shapley],
    wrong={
        "the same number": lambda m, b, t: torch.ones(2, 4),
        "does not look at the model": lambda m, b, t: torch.arange(8.0).view(2, 4),
        "upside down": lambda m, b, t: -half_way(m, b, t),
        "changes the model's weights": changes_weights,
        "in train mode": in_train_mode,
        "leaves gradients": with_backward,
        "changes the examples": changes_examples,
        "a table for each example": lambda m, b, t: gate_gradients(m, b, t).abs(),
        "stand in one row": lambda m, b, t: half_way(m, b, t).flatten(),
        "take the numbers from the model": lambda m, b, t: torch.rand(2, 6),
        "how sure they look": lambda m, b, t: weights_of(m, b).amax(dim=-1).mean(dim=(1, 3)),
        "how narrowly they look": lambda m, b, t: -torch.special.entr(weights_of(m, b)).sum(dim=-1).mean(dim=(1, 3)),
        "how loud they are": norms,
        "before it drops the sign": lambda m, b, t: gate_gradients(m, b, t).mean(dim=0).abs(),
        "have a negative one": signed(1),
        "helps and hurts cancel": signed(-1),
        "by their norm": per_layer,
        "the bar itself": lambda m, b, t: gate_gradients(m, b, t).abs().sum(dim=0),
        "It is leave-one-out": loop_without,
    },
    unlisted=[
        lambda m, b, t: torch.rand(
            2, 4, generator=torch.Generator().manual_seed(int(1000 * m.output.weight.sum().abs()))
        ),
        lambda m, b, t: per_layer(m, b, t) + weights_of(m, b).amax(dim=-1).mean(dim=(1, 3)),
        lambda m, b, t: weights_of(m, b).var(dim=(1, 2, 3, 4))[:, None] * torch.arange(1.0, 5.0),
        lambda m, b, t: torch.rand(4, 2),
        greedy_turns,
    ],
)


def test_what_is_asked_lies_between_two_bars():
    text = checks.own_importance(loop_without).text
    assert text.startswith("the rank correlation with the exact Shapley values is 0.6")
    assert "It is above a random order (0.00), the gate's gradient (0.6" in text
    assert "; not above what is asked (0.80), the path gradient (0.9" in text
    assert "It is above a random order (0.00), the gate's gradient (0.6" in checks.own_importance(marginal).text


def test_the_truth_is_the_mean_over_all_orders():
    model, _, unseen = pruning.random_model(pruning.SEEDS[1])
    table = evaluate_all(model, unseen, pruning.TASK).accuracy
    total, orders = torch.zeros(8, dtype=torch.float64), list(itertools.permutations(range(8)))[::97]
    for order in orders:
        sets = torch.tensor([0, *itertools.accumulate(2**head for head in order)])
        total[list(order)] += table[sets].diff()
    found = pruning.truths()[1].flatten()
    assert spearman(total, found) > 0.9
    assert found.sum().item() == pytest.approx((table[-1] - table[0]).item())


def test_the_models_that_are_kept_do_not_change():
    before = [model.state_dict()["output.weight"].clone() for model, _ in pruning.small_models()]
    (
        checks.own_importance(changes_weights),
        checks.own_importance(in_train_mode),
        checks.own_importance(changes_examples),
    )
    assert all(
        torch.equal(old, model.state_dict()["output.weight"])
        for old, (model, _) in zip(before, pruning.small_models(), strict=True)
    )
    assert checks.own_importance(half_way).state == "right"
    assert not any(model.training for model, _ in pruning.small_models())


# ---------------------------------------------------------------------------------------------------------------------
# All that are functions

EXERCISES = [ORDER, GAIN, IMPORTANCE]


@pytest.mark.parametrize(
    ("answers", "slips"),
    [(ORDER, pruning.ORDER_SLIPS), (GAIN, pruning.GAIN_SLIPS), (IMPORTANCE, pruning.LOW_MEASURES)],
    ids=["order of cuts", "gain", "importance"],
)
def test_every_mistake_that_has_a_name_is_tried(answers, slips):
    texts = {answers.check(answer).text for answer in answers.wrong.values()}
    others = 10 if answers is IMPORTANCE else 0
    assert len(texts) == len(slips) + others
