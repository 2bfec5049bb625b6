"""One head, one average: what notebook 03 says that a linear read-out cannot tell, its limits, its price, the figures.

A pair is a noun before the verb and another one after it. Margins come from a linear programme, which finds a read-out
where there is one.
"""

import json
import math
import re
from itertools import permutations, product

import notebook_tools
import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from mha_course.heads.intervals import mean_and_ci95

KEPT = json.loads((notebook_tools.ROOT / "research" / "results" / "why_heads.json").read_text(encoding="utf-8"))
TEXT = notebook_tools.text_of("03_multi_head_attention")


def pairs(number):
    """The nouns before, and the nouns after, of all pairs."""
    return np.array(list(permutations(range(number), 2))).T


def margin(points, names):
    """By how much an affine read-out with weights in [-1, 1] can put every right name first; 0: there is none."""
    count, size = max(names) + 1, points.shape[1] + 1
    rows = []
    for point, right in zip(np.pad(points, ((0, 0), (0, 1)), constant_values=1), names, strict=True):
        for wrong in set(range(count)) - {right}:
            row = np.zeros((count, size))
            row[wrong], row[right] = point, -point
            rows.append([*row.ravel(), 1])
    goal, bounds = [0] * count * size + [-1], [(-1, 1)] * count * size + [(0, None)]
    return -linprog(goal, rows, np.zeros(len(rows)), bounds=bounds).fun


def both(points, number):
    """The smaller one of the margins for the noun before and for the noun after."""
    before, after = pairs(number)
    first = margin(points, before)
    return first if first < 1e-6 else min(first, margin(points, after))


def averages(vectors, share):
    """share · before + (1 − share) · after for all pairs; ``share`` is one number or one for each pair."""
    before, after = pairs(len(vectors))
    share = np.broadcast_to(share, len(before))[:, None]
    return share * vectors[before] + (1 - share) * vectors[after]


def shares(random, number):
    """The weight before, of a head whose scores are a sum of a part for the place and a part for the noun."""
    (before, after), place, noun = pairs(number), random.normal(0, 2), random.normal(0, 2, number)
    return 1 / (1 + np.exp(-(place + noun[before] - noun[after])))


@pytest.mark.parametrize("number", [3, 4])
@pytest.mark.parametrize("share", [0.5, 0.6, 0.7, 0.95])
def test_one_average_cannot_name_the_noun_with_the_smaller_weight(number, share):
    before, after = pairs(number)
    points, mirrored = averages(np.eye(number), share), averages(np.eye(number), 1 - share)
    assert margin(points, after) == pytest.approx(0, abs=1e-9) == margin(mirrored, before)
    assert margin(points, before) == pytest.approx(margin(mirrored, after)) == pytest.approx(2 * (2 * share - 1))
    two_heads = np.concatenate([np.eye(number)[before], np.eye(number)[after]], axis=1)
    assert both(two_heads, number) == pytest.approx(2)


def test_of_random_heads_that_weigh_nouns_differently_none_can_be_read_in_both_roles():
    random = np.random.default_rng(0)
    assert max(both(averages(random.normal(size=(3, 5)), shares(random, 3)), 3) for _ in range(500)) < 1e-6


def test_two_nouns_can():
    assert both(averages(np.eye(2), 0.7), 2) > 0.1 and both(averages(np.eye(2), 0.5), 2) < 1e-6


def test_a_hidden_layer_can_if_the_weights_are_uneven():
    points, (before, after) = torch.tensor(averages(np.eye(3), 0.7)), torch.tensor(pairs(3))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.ReLU(), torch.nn.Linear(32, 6)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(300):
        scores = model(points).unflatten(1, (2, 3))
        loss = sum(torch.nn.functional.cross_entropy(scores[:, i], role) for i, role in enumerate((before, after)))
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    assert torch.equal(model(points).unflatten(1, (2, 3)).argmax(2), torch.stack([before, after], dim=1))
    assert len(np.unique(averages(np.eye(3), 0.5), axis=0)) == 3 < len(np.unique(points, axis=0)) == 6


def test_layer_norm_can_with_random_vectors_and_not_with_one_hot_ones():
    random = np.random.default_rng(0)

    def normed(vectors):
        points = averages(vectors, random.uniform(0.5, 1))
        points = points - points.mean(axis=1, keepdims=True)
        return points / points.std(axis=1, keepdims=True)

    assert min(both(normed(random.normal(size=(3, 16))), 3) for _ in range(40)) > 1e-6
    assert max(both(normed(np.eye(3)), 3) for _ in range(40)) < 1e-6


def test_a_head_can_that_weighs_nouns_and_passes_on_places_and_the_more_nouns_the_worse():
    random, margins = np.random.default_rng(0), {}
    for number in (3, 5):
        margins[number] = []
        for _ in range(12):
            share = shares(random, number)
            points = np.column_stack([averages(np.eye(number), share), share])  # the last: weight on place 0
            margins[number].append(both(points, number))
    assert min(margins[3]) > 1e-6 and 3 * max(margins[5]) < max(margins[3]) < 0.5
    even_handed = np.column_stack([averages(np.eye(3), 0.7), np.full(6, 0.7)])
    assert both(even_handed, 3) < 1e-6


def test_what_the_verb_receives():
    told = notebook_tools.told("03_multi_head_attention", before="## Deeper: what one head")
    powers = np.exp(np.array([1, 0, 0.927]) * 20 / math.sqrt(3))
    weights = powers / powers.sum()
    assert weights.round(2).tolist() == [0.7, 0, 0.3]
    cat, mice = np.array([1, 0, 1, 0]), np.array([0, 1, 0, 1])  # one, many, cat, mouse
    for number, (before, after) in enumerate([(cat, mice), (mice, cat)]):
        expected = {"two_heads": [*before[:2], *after[2:]], "even": (before + after) / 2}
        expected["uneven"] = weights[0] * before + weights[2] * after
        for name, row in expected.items():
            np.testing.assert_allclose(told[name][number], row, atol=1e-4)


def test_the_two_changes_of_exercise_3_do_not_move_the_average_the_same_way():
    cats, mice, dogs = np.eye(3)
    for a in np.linspace(0.5, 1, 11):
        after = (a * cats + (1 - a) * mice) - (a * cats + (1 - a) * dogs)
        exchanged = (a * dogs + (1 - a) * mice) - (a * mice + (1 - a) * dogs)
        assert after @ exchanged <= 1e-12
        np.testing.assert_allclose((1 - a) * exchanged, (1 - 2 * a) * after, atol=1e-12)


def test_a_lone_head_keeps_messages_less_far_apart():
    """Over all messages of k parts from four nouns; two heads of the same size keep them √2 apart."""
    for parts, text in ((2, "0.47"), (3, "0.25"), (4, "0.13")):
        weights = 2.0 ** np.arange(parts) / (2**parts - 1)
        points = np.array([weights @ np.eye(4)[list(nouns)] for nouns in product(range(4), repeat=parts)])
        least = torch.nn.functional.pdist(torch.tensor(points)).min().item() * math.sqrt(
            parts
        )  # said once for each part
        assert least / math.sqrt(2) == pytest.approx(math.sqrt(parts) / (2**parts - 1))
        assert f"{least / math.sqrt(2):.2f}" == text and text in TEXT


def test_noise_takes_a_quarter_of_the_messages_and_half_of_those_with_even_weights():
    random = np.random.default_rng(1)
    before, after = np.eye(10)[np.array(list(product(range(10), repeat=2)))].swapaxes(0, 1)
    lone = [np.tile(share * before + (1 - share) * after, 2) for share in (2 / 3, 1 / 2)]
    for code, right in zip([np.concatenate([before, after], axis=1), *lone], (1, 0.75, 0.5), strict=True):
        received = np.tile(code, (60, 1)) + 0.2 * random.normal(size=(6000, 20))
        nearest = ((code**2).sum(axis=1) - 2 * received @ code.T).argmin(axis=1)
        assert (nearest == np.tile(np.arange(100), 60)).mean() == pytest.approx(right, abs=0.03)


def figure(messages, heads, read_out=0, steps=400):
    mean, low, high = mean_and_ci95(
        KEPT[f"messages {messages}, heads {heads}, read-out {read_out}, steps {steps}"]["right"]
    )
    return f"{mean:.2f} ± {(high - low) / 2:.2f}"


def test_the_tables_are_those_that_were_measured():
    assert all(len(kept["right"]) == 5 for kept in KEPT.values())
    for heads in (1, 2, 3, 4, 6):
        row = " | ".join(figure(messages, heads) for messages in (1, 2, 3, 4))
        assert f"| {heads} × {24 // heads} | {row} |" in TEXT
    for heads in (1, 2, 4):
        row = " | ".join(figure(messages, heads, read_out=64) for messages in (2, 3, 4))
        assert f"| {heads} × {24 // heads} | {row} |" in TEXT
    for words in (
        f"suffice ({figure(2, 12)})",
        f"fail ({figure(2, 24)})",
        f"it has {figure(4, 1, 64, 1200)}",
    ):
        assert words in TEXT


def test_more_heads_help_until_each_message_has_one():
    for messages, heads in product((1, 2, 3, 4), (1, 2, 3, 4, 6)):
        _, low, high = mean_and_ci95(KEPT[f"messages {messages}, heads {heads}, read-out 0, steps 400"]["right"])
        assert low > 0.98 if heads >= messages else high < 1.01 and low < 0.9
    assert mean_and_ci95(KEPT["messages 2, heads 24, read-out 0, steps 400"]["right"])[2] < 0.6


def test_the_code_of_a_lone_head():
    for messages, wanted in ((2, (2, 1)), (3, (4, 2, 1))):
        runs = torch.tensor(KEPT[f"messages {messages}, heads 1, read-out 64, steps 400"]["weights"])
        np.testing.assert_allclose(runs, torch.tensor(wanted).expand(5, -1) / sum(wanted), atol=0.05)
        said = [f"{weight:.2f}" for weight in runs.mean(dim=0).tolist()]
        assert re.search(r"(?:, | and )".join(said), TEXT)
