"""Exercises of notebook 05: right answers pass, typical mistakes are named, others are not taken for them."""

import math

import pytest
import torch
from judged import Answers

from mha_lib import MultiHeadAttention, checks
from mha_lib.checks import reading
from mha_lib.heads import statistics

# ---------------------------------------------------------------------------------------------------------------------
# Reading maps

TRUE = ["same word", "next", "even", "previous", "first", "itself"]


def by_hand(weights):
    """The role whose places hold most of the weight, beyond what an even look has there; written without the check."""
    n, words = len(weights), reading.WORDS
    places = {
        "itself": [[i] for i in range(n)],
        "same word": [[j for j in range(n) if words[j] == words[i]] for i in range(n)],
        "previous": [[max(i - 1, 0)] for i in range(n)],
        "next": [[min(i + 1, n - 1)] for i in range(n)],
        "first": [[0]] * n,
        "last": [[n - 1]] * n,
    }
    shares = {role: sum(weights[i, js].sum().item() for i, js in enumerate(rows)) / n for role, rows in places.items()}
    shares["same word"] -= 0.2  # it holds the diagonal, too
    role = max(shares, key=shares.get)
    return role if shares[role] > 0.6 else "even"


def test_the_roles_are_what_the_weights_show():
    weights = reading.unknown_heads()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(6, 9))
    assert [by_hand(head) for head in weights] == TRUE


@pytest.mark.parametrize(
    "answer",
    [
        TRUE,
        tuple(TRUE),
        dict(enumerate(TRUE)),
        {head: TRUE[head] for head in (5, 3, 1, 0, 2, 4)},
        [f" {role.upper()} " for role in TRUE],
    ],
)
def test_the_right_roles_pass(answer):
    assert checks.head_roles(answer).state == "right", checks.head_roles(answer)


def changed(**roles):
    """The right list, with other words for some heads: head0="first"."""
    return [roles.get(f"head{head}", role) for head, role in enumerate(TRUE)]


MISREAD = [
    (changed(head1="previous", head3="next"), "have changed places throughout"),
    (TRUE[::-1], "in reverse order"),
    (changed(head0="itself"), "words that occur more than once give only"),
    (changed(head5="same word"), "to the places where the same word stands again"),
    (
        changed(head4="even"),
        "5 of 6 are right; head 4: an even look gives 1/9 = 0.11 to each; here the largest weight of a row is",
    ),
    (changed(head2="first"), "5 of 6 are right; head 2: for “first” most of the weight would have to be there"),
    (changed(head3="last", head4="last"), "4 of 6 are right; head 3: for “last” most"),
    (["even"] * 6, "1 of 6 are right; head 0: an even look"),
    (changed(head1="previous"), "5 of 6 are right; head 1: for “previous” most"),
    (changed(head1="itself"), "head 1: for “itself” most"),
    (changed(head1="same word"), "head 1: for “same word” most"),
]


@pytest.mark.parametrize(("answer", "words"), MISREAD)
def test_what_a_head_really_does_is_told_by_number(answer, words):
    verdict = checks.head_roles(answer)
    assert verdict.state == "wrong" and words in verdict.text, verdict
    assert sum(words in verdict.text for _, words in MISREAD) == 1


def test_the_numbers_of_an_objection_are_those_of_the_map():
    weights = reading.unknown_heads()
    at_first = weights[2, :, 0].mean()
    assert f"it is {at_first:.2f} on average (an even look has 0.11)" in checks.head_roles(changed(head2="first")).text
    repeated = [0, 1 + 2, 4, 6, 7]  # the three "the", the two "cat"
    own = torch.stack([weights[0, i, i] for i in repeated]).mean()
    assert f"give only {own:.2f} of their weight" in checks.head_roles(changed(head0="itself")).text


def test_no_verdict_names_the_role_of_a_head():
    for head, role in enumerate(TRUE):
        for claim in reading.ROLES:
            text = checks.head_roles(changed(**{f"head{head}": claim})).text
            assert claim == role or f"“{role}”" not in text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (TRUE[:5], "6 words are needed, one for each head; there are 5"),
        (changed(head2="diagonal"), "“diagonal” is not one of the words"),
        (changed(head2=3), "an int is not one of the words"),
        ({1: "even"}, "needs the heads [0, 1, 2, 3, 4, 5] as keys"),
        ("even", "this is a str"),
    ],
)
def test_what_are_no_roles(answer, words):
    assert words in checks.head_roles(answer).text


@pytest.mark.parametrize("answer", [..., changed(head3=...), dict(enumerate(changed(head3=None)))])
def test_dots_are_not_yet_roles(answer):
    assert checks.head_roles(answer).state == "not yet"


# ---------------------------------------------------------------------------------------------------------------------
# Near or far


def far_apart(weights):
    n = weights.shape[-1]
    return torch.tensor([[abs(i - j) for j in range(n)] for i in range(n)]).to(weights)


def mean_distance_by_loops(weights):
    batch, num_heads, n, _ = weights.shape
    totals = [0.0] * num_heads
    for b in range(batch):
        for h in range(num_heads):
            for i in range(n):
                totals[h] += sum(weights[b, h, i, j].item() * abs(i - j) for j in range(n))
    return torch.tensor(totals) / (batch * n)


def share_beyond(weights, steps):
    return (weights * (far_apart(weights) > steps)).sum(dim=-1).mean(dim=(0, 2))


def signed_distance(weights):
    places = torch.arange(weights.shape[-1]).to(weights)
    return torch.einsum("bhij,j->bhi", weights, places).sub(places).mean(dim=(0, 2))


def mean_place(weights):
    return torch.einsum("bhij,j->h", weights, torch.arange(weights.shape[-1]).to(weights))


def variance_of_places(weights):
    places = torch.arange(weights.shape[-1]).to(weights)
    mean = (weights * places).sum(dim=-1)
    return ((weights * places**2).sum(dim=-1) - mean**2).mean(dim=(0, 2))


REACH = Answers(
    checks.reach,
    right=[
        statistics.mean_distance,
        mean_distance_by_loops,
        lambda w: torch.einsum("bhij,ij->h", w, far_apart(w)),
        lambda w: (w * far_apart(w) ** 2).sum(dim=-1).mean(dim=(0, 2)).sqrt(),
        lambda w: share_beyond(w, steps=2),
        lambda w: 1 - sum(w.diagonal(k, 2, 3).sum(dim=(0, 2)) for k in (-2, -1, 0, 1, 2)) / w[:, 0].sum(),
        lambda w: statistics.mean_distance(w[:1]),
    ],
    wrong={
        "how many tokens they look at": lambda w: -torch.xlogy(w, w).sum(dim=3).mean(dim=(0, 2)),
        "the largest weight": lambda w: -w.max(dim=3).values.mean(dim=(0, 2)),
        "the diagonal alone": lambda w: 1 - torch.einsum("bhii->h", w),
        "the previous token alone": lambda w: -w[:, :, 1:, :-1].diagonal(0, 2, 3).sum(dim=(0, 2)),
        "where in the text": signed_distance,
        "from one another": variance_of_places,
        "the first token alone": lambda w: w[..., 0].sum(dim=(0, 2)),
        "upside down": lambda w: -statistics.mean_distance(w),
        "the same number": lambda w: torch.ones(w.shape[1]),
        "the mean over the examples is missing": lambda w: (w * far_apart(w)).sum(dim=-1).mean(dim=2),
        "one number for all heads": lambda w: (w * far_apart(w)).sum(dim=-1).mean(),
    },
    unlisted=[
        lambda w: share_beyond(w, steps=3),
        lambda w: statistics.entropy(w) + statistics.mean_distance(w) / 100,
        lambda w: w[..., :3].sum(dim=(0, 2, 3)),
        lambda w: -w[..., -1].sum(dim=(0, 2)),
        lambda w: torch.arange(w.shape[1]),
        lambda w: statistics.mean_distance(w) if w.shape[-1] == 12 else statistics.entropy(w),
        lambda w: (w.transpose(0, 1) * far_apart(w)).sum(dim=(1, 2, 3))[:-1],
    ],
)


def test_the_place_in_the_text_is_no_distance_either():
    assert "where in the text" in checks.reach(mean_place).text


def test_two_heads_show_what_is_wrong():
    text = checks.reach(lambda w: torch.arange(w.shape[1])).text
    assert text.startswith("a head that looks at ") and text.endswith("the first must get the larger number.")


# ---------------------------------------------------------------------------------------------------------------------
# How even a look is


def evenness(weights, valid_lens, base=None, padded=False, by_keys=False):
    """A loop with places to put mistakes in."""
    batch, num_heads, n, _ = weights.shape
    found = [[] for _ in range(num_heads)]
    for b in range(batch):
        length = valid_lens[b].item()
        for h in range(num_heads):
            for i in range(n if padded else length):
                row = [w for w in weights[b, h, i].tolist() if w > 0]
                entropy = -sum(w * math.log(w, base or math.e) for w in row)
                found[h].append(entropy / math.log(n if by_keys else length))
    return torch.tensor([sum(rows) / len(rows) for rows in found])


def by_mask(weights, valid_lens):
    keep = torch.arange(weights.shape[2])[None] < valid_lens[:, None]
    rows = -torch.where(weights > 0, weights * weights.clamp(min=1e-30).log(), 0.0).sum(dim=-1)
    rows = rows / torch.log(valid_lens.float())[:, None, None]
    return torch.stack([rows[:, h][keep].mean() for h in range(rows.shape[1])])


def by_example(weights, valid_lens):
    """(batch, num_heads), of valid queries."""
    rows = [
        torch.special.entr(w[:, :length]).sum(dim=-1).mean(dim=1) / math.log(length)
        for w, length in zip(weights, valid_lens.tolist(), strict=True)
    ]
    return torch.stack(rows)


def weighted_examples(weights, valid_lens):
    return (by_example(weights, valid_lens) * valid_lens[:, None]).sum(dim=0) / valid_lens.sum()


def keep_sum(weights, valid_lens):
    return weighted_examples(weights, valid_lens) * valid_lens.sum()


def entropies(weights, valid_lens, divide=lambda lens: torch.ones(())):
    rows = [
        torch.special.entr(w[:, :length]).sum(dim=-1) / divide(torch.tensor(float(length)))
        for w, length in zip(weights, valid_lens.tolist(), strict=True)
    ]
    return torch.cat(rows, dim=1).mean(dim=1)


EVENNESS = Answers(
    checks.evenness,
    right=[evenness, by_mask, weighted_examples, lambda w, lens: entropies(w, lens, torch.log)],
    wrong={
        "the logarithm of all keys": lambda w, lens: evenness(w, lens, by_keys=True),
        "queries that are padding": lambda w, lens: evenness(w, lens, padded=True),
        "the sign is wrong": lambda w, lens: -evenness(w, lens),
        "1 − the evenness": lambda w, lens: 1 - evenness(w, lens),
        "the division is missing": entropies,
        "bits above": lambda w, lens: evenness(w, lens, base=2),
        "short examples count more": lambda w, lens: by_example(w, lens).mean(dim=0),
        "counted them below": lambda w, lens: keep_sum(w, lens) / (w.shape[0] * w.shape[2]),
        "by the number of keys": lambda w, lens: entropies(w, lens, lambda length: length),
        "is not a number": lambda w, lens: -(w * w.log()).sum(dim=-1).mean(dim=(0, 2)),
        "examples are not averaged yet": by_example,
        "over the heads, too": lambda w, lens: evenness(w, lens).mean(),
    },
    unlisted=[
        lambda w, lens: entropies(w, lens) / math.log(w.shape[-1] - 1),
        lambda w, lens: evenness(w, lens, padded=True, by_keys=True),
        lambda w, lens: evenness(w, lens, base=10),
        keep_sum,
        lambda w, lens: evenness(w, lens) if w.shape[0] == 2 else -evenness(w, lens),
    ],
)


def test_an_even_look_is_1_at_any_length():
    valid_lens = torch.tensor([2, 5])
    weights = (torch.arange(6) < valid_lens[:, None, None, None]) / valid_lens[:, None, None, None]
    assert reading.mean_evenness(weights.expand(2, 3, 6, 6), valid_lens).tolist() == pytest.approx([1.0] * 3)


# ---------------------------------------------------------------------------------------------------------------------
# What is heard


def heard(weights, values, W_o, own=lambda h, size, num_heads: slice(h * size, (h + 1) * size), length=torch.norm):
    """A loop with places to put mistakes in."""
    result = torch.empty_like(weights)
    batch, num_heads, num_queries, num_keys = weights.shape
    for b in range(batch):
        for h in range(num_heads):
            columns = W_o[:, own(h, values.shape[-1], num_heads)]
            for j in range(num_keys):
                arrives = length(columns @ values[b, h, j])
                for i in range(num_queries):
                    result[b, h, i, j] = weights[b, h, i, j] * arrives
    return result


def heard_by_einsum(weights, values, W_o):
    W = W_o.unflatten(1, weights.shape[1:2] + values.shape[-1:])
    return torch.einsum("bhqk,bhkp,ohp->bhqko", weights, values, W).norm(dim=-1)


def heard_by_the_layer(weights, values, W_o):
    """Everything but one head's values is zero: what the layer's W_o makes of the rest."""
    batch, num_heads, num_keys, size = values.shape
    layer = MultiHeadAttention(num_heads * size, num_heads)
    layer.W_o.weight = torch.nn.Parameter(W_o)
    result = []
    for h in range(num_heads):
        alone = torch.zeros(batch, num_keys, num_heads * size)
        alone[..., h * size : (h + 1) * size] = values[:, h]
        result.append(weights[:, h] * layer.W_o(alone).norm(dim=-1)[:, None])
    return torch.stack(result, dim=1)


def vectors(weights, values, W_o):
    return torch.stack(
        [weights[:, h, :, :, None] * (values[:, h] @ part.T)[:, None] for h, part in parts_of(W_o, weights)], dim=1
    )


def parts_of(W_o, weights):
    return enumerate(W_o.chunk(weights.shape[1], dim=1))


HEARD = Answers(
    checks.heard,
    right=[heard, heard_by_einsum, heard_by_the_layer, lambda w, v, W_o: vectors(w, v, W_o).square().sum(-1).sqrt()],
    wrong={
        "W_o is missing": lambda w, v, W_o: torch.einsum("bhqk,bhk->bhqk", w, v.norm(dim=3)),
        "you use its rows": lambda w, v, W_o: heard(w, v, W_o.T),
        "every num_heads-th column": lambda w, v, W_o: heard(w, v, W_o, own=lambda h, p, n: slice(h, None, n)),
        "columns of head 0": lambda w, v, W_o: heard(w, v, W_o, own=lambda h, p, n: slice(p)),
        "the weights have no say": lambda w, v, W_o: heard(torch.ones_like(w), v, W_o),
        "the square of the length": lambda w, v, W_o: heard(w, v, W_o, length=lambda x: x @ x),
        "take the root": lambda w, v, W_o: vectors(w, v, W_o).pow(2).sum(dim=-1),
        "absolute values": lambda w, v, W_o: heard(w, v, W_o, length=lambda x: x.abs().sum()),
        "whose signs cancel": lambda w, v, W_o: vectors(w, v, W_o).sum(dim=-1),
        "back to a sum of 1": lambda w, v, W_o: heard(w, v, W_o) / heard(w, v, W_o).sum(dim=-1, keepdim=True),
        "added up the keys": lambda w, v, W_o: vectors(w, v, W_o).sum(dim=3).norm(dim=-1),
        "these are the vectors": vectors,
    },
    unlisted=[
        lambda w, v, W_o: heard(w, v, W_o, length=lambda x: x.abs().max()),
        lambda w, v, W_o: heard(w, v, W_o) * 1.01,
        lambda w, v, W_o: heard(w, v, W_o.flip(1)),
        lambda w, v, W_o: heard(w, v, W_o, own=lambda h, p, n: slice(h, None, n), length=lambda x: x @ x),
        lambda w, v, W_o: vectors(w, v, W_o).norm(dim=-1).mean(dim=2),
    ],
)


def test_a_dead_head_is_not_heard():
    weights, values, W_o = reading.heard_trial(2, 3, 4, 5, 2)
    W_o[:, 2:4] = 0
    lengths = reading.length_heard(weights, values, W_o)
    assert (lengths[:, 1] == 0).all() and (lengths[:, ::2] > 0).all()


# ---------------------------------------------------------------------------------------------------------------------
# All that are functions

EXERCISES = [REACH, EVENNESS, HEARD]


@pytest.mark.parametrize(
    ("answers", "mistakes"),
    [
        (REACH, len(reading.MISREADINGS) + 4),
        (EVENNESS, len(reading.EVENNESS_SLIPS)),
        (HEARD, len(reading.HEARD_SLIPS)),
    ],
    ids=["reach", "evenness", "heard"],
)
def test_every_mistake_that_has_a_name_is_tried(answers, mistakes):
    assert len({answers.check(answer).text for answer in answers.wrong.values()}) == mistakes
