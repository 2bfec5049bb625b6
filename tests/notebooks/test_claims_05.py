"""What 05 asserts about the trained model holds for other training runs too, not only for the one it shows."""

from functools import partial

import pytest
from notebook_tools import ROOT, make_notebooks, run_cells

from mha_lib.models import training

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "05_heads_at_work.ipynb")


def run_with(monkeypatch, seed):
    """Everything that the notebook defines, its model trained with another seed."""
    monkeypatch.setattr(training, "trained", partial(training.fit, seed=seed, progress=False))
    return run_cells(NOTEBOOK)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_notebook_holds_for_another_seed(monkeypatch, seed):
    assert run_with(monkeypatch, seed)["task"].name == "digits"


def test_a_model_that_has_learned_nothing_breaks_it(monkeypatch):
    monkeypatch.setattr(training, "fit", partial(training.fit, steps=1))
    with pytest.raises(AssertionError):
        run_with(monkeypatch, seed=1)
