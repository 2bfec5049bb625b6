"""Further training without heads, tried with a small model: what is trained, from where, and what is counted."""

import sys
from pathlib import Path

import pytest
import torch

from research import repair, streaming

sys.path.append(str(Path(__file__).parents[2] / "tests" / "models"))
from small_language_model import small_language_model


@pytest.fixture
def made(monkeypatch, tmp_path):
    """A small model and random words; two steps."""
    monkeypatch.setattr(streaming, "PARTS_FOLDER", tmp_path)
    monkeypatch.setattr(repair, "STEPS", 2)
    monkeypatch.setattr(repair, "RISING", 1)
    monkeypatch.setattr(streaming, "TOKENS", 120)

    def texts(model, kind, seed, number, packages):
        pick = torch.Generator().manual_seed(seed % 97 + len(kind))
        return {"ids": torch.randint(2, 60, (max(number, 2), 120), generator=pick), "start": 28}

    for module in (streaming, repair):
        monkeypatch.setattr(module, "texts", texts)
    return repair.Repair(streaming.Bench(small_language_model()))


@pytest.mark.parametrize("choice", repair.CHOICES)
def test_a_choice_spares_a_group_of_each_layer_and_its_draws_have_as_many(choice, made):
    plan, *draws = made.plans[choice]
    assert len(draws) == 5 and sum(map(len, plan.values())) == 3 * repair.CHOICES[choice]
    assert choice == "streaming" or max(map(len, plan.values())) <= 6
    for other in draws:
        assert other != plan and {name: len(off) for name, off in other.items()} == {
            name: len(off) for name, off in plan.items()
        }


def test_texts_are_short_and_come_twice_where_copying_is_judged(made):
    assert len(made.steps) == 2
    for prose, copying in [made.judged.values(), *made.steps]:
        assert prose["ids"].shape[1] == copying["ids"].shape[1] == 96 and (prose["start"], copying["start"]) == (28, 49)
        assert torch.equal(*copying["ids"].split(48, dim=1))
    assert not torch.equal(made.steps[0][0]["ids"], made.steps[1][0]["ids"])


def test_of_removed_groups_the_least_important_go():
    scores = torch.rand(4, 9, generator=torch.Generator().manual_seed(2))
    left = repair.sparing(scores)
    for layer in range(4):
        groups = scores[layer].reshape(3, 3)
        most = groups.sum(dim=1).argmax()
        expected = [
            float("inf") if group == most else scores[layer, 3 * group + head]
            for group in range(3)
            for head in range(3)
        ]
        torch.testing.assert_close(left[layer], torch.tensor(expected))


@pytest.mark.parametrize("name", ["whole", "removed, measure", "streaming, draw 2"])
def test_training_starts_from_the_model_and_changes_the_matrices_of_attention_alone(name, made):
    model = made.model
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    choice, plan = made.plan_of(name)
    with made.without(choice, plan):
        value = sum(streaming.loss(model, batch).mean() for batch in made.steps[0]).item() / 2
    first = made.trained(name)
    assert len(first["steps"]) == 2 and first["steps"][0] == pytest.approx(value, abs=1e-4)
    assert all((first["after"][kind] != first["before"][kind]).any() for kind in repair.STARTS)
    again = made.trained(name)
    assert torch.equal(again["before"]["copying"], first["before"]["copying"])
    torch.testing.assert_close(again["after"]["copying"], first["after"]["copying"], rtol=0, atol=1e-5)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    with torch.enable_grad(), made.without(choice, plan):
        list(repair.trained(model, made.trainable, made.steps))
    changed = {name.rsplit(".", 2)[1] for name, each in model.named_parameters() if not torch.equal(each, before[name])}
    assert changed == {"W_q", "W_k", "W_v", "W_o"}


def test_a_rise_is_over_the_whole_model_of_the_same_time():
    def part(before, after):
        both = {"before": before, "after": after}
        return {when: {kind: [value] * 4 for kind in repair.STARTS} for when, value in both.items()}

    found = {"whole": part(1.0, 0.5)}
    for choice in repair.CHOICES:
        found |= {
            f"{choice}, measure": part(2.0, 0.75),
            f"{choice}, draw 1": part(4.0, 2.5),
            f"{choice}, draw 2": part(3, 1.5),
        }
    own, draws = repair.rises(found, "removed", "copying", "after")
    assert own.tolist() == [0.25] * 4 and draws.tolist() == [[2.0] * 4, [1.0] * 4]
    lines = repair.table(found).splitlines()
    row = next(line for line in lines if line.startswith("| streaming, copying | before"))
    assert "1.000 (1.000 to 1.000) | 2.000 to 3.000 (2) | -1.500 (" in row
    assert lines[lines.index(row) + 2].startswith("| | change | -0.750 (") and "prose -0.500" in lines[-1]
