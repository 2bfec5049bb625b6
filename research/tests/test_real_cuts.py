"""What SmolLM2's heads are cut by and held against, tried without the model: counts of heads, draws and texts."""

import re
from itertools import islice

import pytest
import torch

from research import real_cuts as cuts
from research import real_texts
from research.prose import calibration_prose, descriptions, own_prose


@pytest.fixture
def order():
    """An importance that keeps five layers whole and is lowest in the others."""
    importance = torch.rand(cuts.SHAPE, generator=torch.Generator().manual_seed(0)).double()
    importance[7:12] += 1
    return importance


@pytest.fixture
def gates_cut(monkeypatch):
    """The gates that a loss was asked for, one after the other; every loss is 1."""
    asked = []

    def loss_of(model, batch, gates=None):
        asked.append(gates)
        return torch.ones(2)

    monkeypatch.setattr(cuts, "loss_of", loss_of)
    return asked


def test_the_forms_of_a_measure():
    each = torch.tensor([[[1.0, -1.0]], [[-3.0, -2.0]]])  # two rows, one layer of two heads
    forms = cuts.forms(each)
    assert forms[cuts.SIGNED].tolist() == [[-1.0, -1.5]]
    assert forms[cuts.OF_EACH].tolist() == [[2.0, 1.5]]
    assert forms[cuts.OF_MEAN].tolist() == [[1.0, 1.5]]


def test_chance_has_the_shape_that_it_says(order, gates_cut):
    found = cuts.chance(None, None, {"mine": order})
    assert {kind: len(draws) for kind, draws in found.items()} == dict.fromkeys(
        ("as many of each layer: mine", "its layers spared: mine", "the layers alone: mine"), cuts.DRAWS
    )
    numbers = [int((gates == 0).sum()) for gates in gates_cut]
    assert numbers == [*cuts.LARGE_CUTS] * (3 * cuts.DRAWS)
    kinds = zip(*[iter(gates_cut)] * (len(cuts.LARGE_CUTS) * cuts.DRAWS), strict=True)
    many, spared, layers = ([kind[number::3] for number in range(3)] for kind in kinds)
    for number, cut in enumerate(cuts.LARGE_CUTS):
        own = cuts.kept(order, cut)
        assert all(torch.equal(gates.sum(dim=1), own.sum(dim=1)) for gates in many[number])
        assert not all(torch.equal(gates, own) for gates in many[number])
        assert all(gates[own.all(dim=1)].all() for gates in spared[number])
        assert any(gates[:7].sum() != own[:7].sum() for gates in spared[number])
        assert all(((gates == 0).any(dim=1) & gates.any(dim=1)).sum() <= 1 for gates in layers[number])


def test_a_measure_taken_again_cuts_on_from_where_it_stood(order, gates_cut):
    looks = [torch.rand(cuts.SHAPE, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    told = iter(looks)
    cuts.again(None, None, lambda gates: next(told)[None], order[None])  # of one row
    assert [int((gates == 0).sum()) for gates in gates_cut] == list(cuts.LARGE_CUTS)
    assert torch.equal(gates_cut[0], cuts.kept(order, 27))
    for before, after, look in zip(gates_cut, gates_cut[1:], looks, strict=False):
        assert (after[before == 0] == 0).all()  # gone stays gone
        new = (before == 1) & (after == 0)
        assert look[new].max() < look[after == 1].min()


def test_draws_of_texts_differ_and_stay():
    assert len(real_texts.drawn(24, 3).unique()) == 24
    assert torch.equal(real_texts.drawn(24, 3), real_texts.drawn(24, 3))
    assert not torch.equal(real_texts.drawn(24, 3), real_texts.drawn(24, 4))


def eight_words(text):
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[start : start + 8]) for start in range(len(words) - 7)}


def test_measures_see_nothing_that_cuts_are_judged_on():
    judged = set().union(*map(eight_words, [*own_prose(), *descriptions()]))
    prose = calibration_prose()
    assert len(prose) == real_texts.POOL
    assert not judged & set().union(*map(eight_words, prose))


def test_docstrings_are_prose_of_pythons_library():
    texts = list(islice(real_texts.docstrings(), 5))
    assert all(len(text.split()) == real_texts.WORDS_OF_A_TEXT and ">>>" not in text for text in texts)
    assert len(set(texts)) == 5
