"""A layer with one fault, drawn by a seed from the table of known mistakes: to be named, and to be seen by a test."""

import random
from collections.abc import Callable
from types import EllipsisType

import torch
from torch import Tensor, nn

from mha_course.checking.edits import idle, rows_of, with_edits
from mha_course.checking.faulty_programs import FaultyPrograms
from mha_course.checking.points import Points
from mha_course.checking.running import MistakeError, NotYetError
from mha_course.checking.verdict import Verdict
from mha_course.models.training import seeded
from mha_course.museum.wrong_attention import MISTAKES, attention

BEGINNINGS = {  # name of a fault → how its row in the table of mistakes begins
    "single reshape in the split": "The features are split into heads by a reshape",
    "single reshape in the merge": "The heads are merged by a reshape",
    "interleaved features": "A head takes every num_heads-th feature",
    "one head only": "There is only one head",
    "heads averaged": "The heads are averaged instead of added",
    "scale of num_hiddens": "The scores are divided by √num_hiddens",
    "no scale": "The scores are not divided",
    "masked scores 0": "Masked scores become 0",
    "masked scores not low enough": "Masked scores are low, but not low enough",
    "mask after the softmax": "The mask comes after the softmax",
    "mask one key too long": "The mask is one key too long",
    "masks in another order": "The valid lengths are repeated in the wrong order",
    "one mask for all": "All examples get the mask of the first one",
    "softmax over queries": "The softmax runs over the queries",
    "softmax over heads": "The softmax runs over the heads",
    "no largest score subtracted": "Exponentials of large scores overflow",
    "values from keys": "The values are made from the keys",
    "W_o transposed": "W_o is used transposed",
}


def _row_of(beginning: str) -> tuple:
    """The first row of the table of mistakes that begins so."""
    return next(row for row in rows_of(MISTAKES) if row[0].startswith(beginning))


_ROWS = {name: _row_of(beginning) for name, beginning in BEGINNINGS.items()}
LAYER_FAULTS = {name: text for name, (text, _) in _ROWS.items()}
LINES = {  # what points are given for → how many there are
    "your test fails on layers with the fault and passes on right ones": 10,
    "it notices other faults, too": 6,
}


class DrawnLayer(nn.Module):
    """Compute multi-head attention by the formula, unless a fault was drawn.

    ``W_q``, ``W_k``, ``W_v`` and ``W_o`` are linear layers without bias. A head owns features that are next to each
    other; scores are divided by the root of the head size. Called with queries (b, q, d), keys and values (b, k, d) and
    valid lengths (b,), each from 1 to k, it returns (b, q, d). Keys from an example's length on get no weight, however
    large the scores are. ``attention_weights`` are those of the last call, (b, num_heads, q, k).
    """

    def __init__(self, num_hiddens: int, num_heads: int, attention: Callable):
        super().__init__()
        self.num_hiddens, self.num_heads, self._attention = num_hiddens, num_heads, attention
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(num_hiddens, num_hiddens, bias=False) for _ in range(4))
        self.attention_weights: Tensor | None = None

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor) -> Tensor:
        """Attend with every head; shapes as said above."""
        allowed = (torch.arange(keys.shape[1]) < valid_lens[:, None])[:, None, None]  # (b, 1, 1, k)
        matrices = [linear.weight for linear in (self.W_q, self.W_k, self.W_v, self.W_o)]
        given = queries, keys, values, allowed, *matrices, self.num_heads
        with torch.no_grad():
            self.attention_weights = self._attention(*given, only_weights=True)
        return self._attention(*given)


def layer_fault_of(seed: int) -> str:
    """Return the name of the fault that a seed draws."""
    return random.Random(f"layer {seed}").choice(list(LAYER_FAULTS))


def check_layer_fault(name: object, seed: int) -> Verdict:
    """Check the name of the fault of ``drawn_layer(seed)``, which is one of ``LAYER_FAULTS``.

    >>> check_layer_fault(..., 3).state
    'not yet'
    """
    if name not in LAYER_FAULTS:
        return Verdict("not yet", f"Name the fault; one of: {', '.join(LAYER_FAULTS)}.")
    if name != layer_fault_of(seed):
        return Verdict("wrong", "The layer has another fault.", next_step="Which line of your test fails, and why?")
    return Verdict("right", LAYER_FAULTS[layer_fault_of(seed)])


def drawn_layer(seed: int) -> DrawnLayer:
    """Return the layer of a seed, with sizes and a fault of its own; ``LAYER_FAULTS`` names all faults.

    >>> drawn_layer(3)(*[torch.randn(2, 5, drawn_layer(3).num_hiddens)] * 3, torch.tensor([2, 5])).shape[:2]
    torch.Size([2, 5])
    """
    return made(layer_fault_of(seed), seed)


def made(fault: str, seed: int) -> DrawnLayer:
    """Return a layer with this fault ("" for none), with sizes and parameters drawn with ``seed``.

    Each call compiles its source with other statements that do nothing, so that its code does not say which fault it
    has.
    """
    _, edits = _ROWS.get(fault, ("", {}))
    changed = with_edits(attention, {"if only_weights:": idle("queries = queries") + "\n    if only_weights:"} | edits)
    draw = random.Random(f"sizes {seed}")
    num_heads = draw.choice([2, 3, 4])
    with seeded(seed):
        return DrawnLayer(num_heads * draw.choice([5, 6, 7]), num_heads, changed).eval()


LAYERS = FaultyPrograms("layer", made, layer_fault_of, LAYER_FAULTS)


def check_layer_test(my_test: Callable[[DrawnLayer], object] | EllipsisType | None, seed: int) -> Verdict:
    """Check a test of ``drawn_layer(seed)``: a function of a layer that raises an AssertionError or returns False where
    it finds a fault.

    It is right where it fails with the fault and passes without, both with two layers that it has not seen.
    """
    return LAYERS.verdict(my_test, seed)


def layer_test_points(my_test: Callable[[DrawnLayer], object], seed: int) -> Points:
    """Return the points of a test of ``drawn_layer(seed)``, of 16."""
    try:
        return Points(LINES, LAYERS.points(my_test, seed, (10, 6)))
    except (MistakeError, NotYetError) as reason:
        return Points(LINES, [0, 0], str(reason))
