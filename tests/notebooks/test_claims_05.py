"""What 05 asserts about the trained model holds for other training runs too, not only for the one it shows."""

from functools import partial

import pytest
from notebook_tools import ROOT, make_notebooks, run_cells

from mha_lib import models

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "05_heads_at_work.ipynb")


def run_with(monkeypatch, seed, steps=None):
    """Everything that the notebook defines, its models trained with another seed."""
    monkeypatch.setattr(models, "shipped_model", partial(models.fit, seed=seed, steps=steps, progress=False))
    return run_cells(NOTEBOOK)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_notebook_holds_for_another_seed(monkeypatch, seed):
    assert run_with(monkeypatch, seed)["task"].name == "digits"


def test_a_model_that_has_learned_nothing_breaks_it(monkeypatch):
    with pytest.raises(AssertionError):
        run_with(monkeypatch, seed=1, steps=1)
