"""Pipelines that measure heads: the right one, and copies with one fault in their source."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from mha_course.capstone import measuring
from mha_course.checking.edits import Edits, idle, rows_of, with_edits
from mha_course.models import Batch, Encoder
from mha_course.models.training import seeded
from mha_course.models.transformer import TokenEmbedding

FUNCTIONS: dict[str, Callable] = {
    one.__name__: one for one in (measuring.split, measuring.means, measuring.losses, measuring.cut)
}
EDITS = {  # by function, rows as ``checking.edits`` reads them: what is edited => the fault's name: what it does
    "split": """
    rows[order[number:]] -> rows[order[number // 2 :][: len(rows) - number]] => rows in both sets: half of the rows that
        measure also test.
    """,
    "means": """
    [valid].mean(dim=0) -> .flatten(0, 1).mean(dim=0) => padding in the mean: the mean of a head counts padding.
    """,
    "losses": """
    output = model(rows.inputs, rows.valid_lens) -> output = model(rows.inputs, None if off else rows.valid_lens) =>
        mask forgotten: while heads are off, the model is called without valid_lens.
    [list(numbers)] = 0 -> [[number - 1 for number in numbers]] = 0 => head off by one: asked for head i, it switches
        off head i - 1.
    {name: torch.ones(layer.num_heads) for name, layer in found.layers.items()} -> vars(model).setdefault("last", $) =>
        a head stays off: heads of an earlier call are still off.
    (each * valid).sum(dim=1) / valid.sum(dim=1) -> each.mean(dim=1) => padding in the loss: the loss counts padding.
    model.eval() -> model.train() => dropout on: the model is in training mode.
    """,
    "cut": """
    weight @ left -> weight.T @ left => transposed weight in the cut: the means go into the bias
        through the transposed weight.
    """,
}


def _table() -> dict[str, tuple[str, str, Edits]]:
    found = {}
    for function, table in EDITS.items():
        for text, edits in rows_of(table):
            name, _, does = text.partition(": ")
            found[name] = does, function, edits
    return found


_FAULTS = _table()
FAULTS = {name: does for name, (does, _, _) in _FAULTS.items()}


@dataclass(frozen=True)
class Pipeline:
    """Hold four plain functions that measure heads, and a small model with rows to try them on.

    Attributes:
        split, means, losses, cut: as their docstrings say.
        model: an untrained encoder of two layers of four heads.
        rows: 24 rows of nine tokens, of which ``rows.valid_lens`` are not padding.
    """

    split: Callable
    means: Callable
    losses: Callable
    cut: Callable
    model: Encoder = field(repr=False)
    rows: Batch = field(repr=False)

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {(vars(self)[name].__doc__ or '').splitlines()[0]}" for name in FUNCTIONS)


def pipeline(seed: int) -> Pipeline:
    """Return the pipeline of a seed: it has one of the faults in ``FAULTS``.

    Its functions say in their docstrings what they promise. Its model and rows are copies of nobody's: what is done to
    them harms no other cell.
    """
    return made(fault_of(seed), seed)


def shape_test(p: Pipeline) -> None:
    """Assert that all results of a pipeline have the right shape: the only test that its author wrote."""
    calibration, test = p.split(p.rows, 10)
    means = p.means(p.model, calibration)
    plan = {name: [0] for name in means}
    assert len(calibration) == 10 and len(test) == len(p.rows) - 10
    assert all(mean.shape == (4, 6) for mean in means.values())
    assert p.losses(p.model, test, plan, means).shape == (len(test),)
    assert p.cut(p.model, test, plan, means)(test.inputs, test.valid_lens).shape == (len(test), 9, 14)


def fault_of(seed: int) -> str:
    """Return the name of the fault of a seed."""
    return random.Random(f"fault {seed}").choice(list(_FAULTS))


def made(fault: str, seed: int) -> Pipeline:
    """Return a pipeline with this fault ("" for none), with a model and rows drawn with ``seed``.

    Each call compiles its functions with other statements that do nothing, so that neither their code nor its length
    says whether there is a fault.
    """
    _, faulty, edits = _FAULTS.get(fault, ("", "", {}))
    functions = {}
    for name, right in FUNCTIONS.items():
        end = {"return ": idle("rows = rows") + "return "}
        functions[name] = with_edits(right, end | (edits if name == faulty else {}))
        functions[name].__doc__ = right.__doc__
    with seeded(seed):
        return Pipeline(**functions, model=_model(), rows=_rows())


def _model() -> Encoder:
    """An encoder with larger weights than usual: without training, its heads matter all the same."""
    model = Encoder(TokenEmbedding(20, 9, 24), 24, 2 * 7, num_heads=4, ffn_num_hiddens=32, dropout=0.1)
    with torch.no_grad():
        for weights in (model.output.parameters(), *(layer.parameters() for layer in model.attentions)):
            for weight in weights:
                weight.mul_(3)
    return model.eval()


def _rows() -> Batch:
    """24 rows of nine tokens with answers to two questions; every row has padding but the first."""
    valid_lens = torch.randint(4, 9, (24,))
    valid_lens[0] = 9
    return Batch(torch.randint(20, (24, 9)), valid_lens, torch.randint(7, (24, 9, 2)))
