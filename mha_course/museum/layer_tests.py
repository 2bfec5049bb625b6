"""Nine tests of a multi-head attention layer, and who catches what: the panel of the bug museum.

A test takes an implementation, ``editable_layer.Layer`` or a class with the same parts. It returns None if it sees
nothing wrong, or one line that says what it sees. All draw random numbers, in sizes that differ from one another.
"""

import copy
import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from mha_course.checking.comparing import CLOSE
from mha_course.checking.running import MistakeError, error_in_words, run_safely
from mha_course.checking.verdict import Verdict
from mha_course.checking.wording import kind_of
from mha_course.language import english
from mha_course.models.training import seeded
from mha_course.museum import edge_cases
from mha_course.museum.dropped_weights import dropped_otherwise
from mha_course.museum.layer_reference import (
    BATCH_SIZE,
    NUM_HEADS,
    NUM_HIDDENS,
    NUM_KEYS,
    NUM_QUERIES,
    Implementation,
    build,
    by_formula,
    check_shape,
    difference,
    matrices_of,
    output_of,
    random_inputs,
    with_new_token,
    wrong_changes,
)

__all__ = [
    "Report",
    "all_ones",
    "as_text",
    "build",
    "by_formula",
    "gradient",
    "matrix",
    "ragged_batch",
    "random_reference",
    "round_trip",
    "run",
    "shape",
    "token_perturbation",
    "verdict",
]

RAGGED, ONE_EMPTY = torch.tensor([6, 2, 4]), torch.tensor([6, 0, 4])
RATE = 0.25  # of the dropout that is tried
RAISES = "it raises"

Test = Callable[[Implementation], str | None]


def isolated(test: Test) -> Test:
    """Wrap a test of a layer so that it runs in its own process from a fixed seed, and returns errors as faults.

    What an implementation raises is what the test sees; one that does not end is cut short where the system can.
    """

    @functools.wraps(test)
    def look(implementation: Implementation) -> str | None:
        try:
            return in_one_process(implementation, [test])[0]
        except MistakeError as mistake:
            return str(mistake)

    return look


def finding_of(test: Test, implementation: Implementation) -> str | None:
    """Run a test on a layer class from a fixed seed; return the fault found, or the error raised, or None."""
    try:
        with seeded(0):
            return test(implementation)
    except MistakeError as mistake:
        return str(mistake)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"{RAISES} {': '.join(filter(None, error_in_words(error)))}"


@isolated
def shape(implementation: Implementation) -> str | None:
    """Test the shapes of a layer's output and attention weights; return the fault found, or None."""
    layer = build(implementation)
    output_of(layer, *random_inputs(), RAGGED)
    check_shape("attention_weights", layer.attention_weights, (BATCH_SIZE, NUM_HEADS, NUM_QUERIES, NUM_KEYS))
    return None


@isolated
def round_trip(implementation: Implementation) -> str | None:
    """Test that a layer's ``merge_heads`` undoes its ``split_heads``; return the fault found, or None."""
    layer, (X, _, _) = build(implementation), random_inputs()
    back = layer.merge_heads(layer.split_heads(X))
    return None if torch.equal(back, X) else "merge_heads(split_heads(X)) is not X"


@isolated
def all_ones(implementation: Implementation) -> str | None:
    """Test a layer's output for inputs of ones against a reference computation; return the fault found, or None."""
    layer, inputs = build(implementation), [*map(torch.ones_like, random_inputs()), RAGGED]
    return difference("the output", output_of(layer, *inputs), by_formula(layer, *inputs)[0])


@isolated
def random_reference(implementation: Implementation) -> str | None:
    """Test a layer's output and weights against a reference computation on random input; return a fault or None.

    One example has no valid key. In training, weights are kept as they were before dropout, and dropped at the rate
    that was asked for.
    """
    inputs = (*random_inputs(), ONE_EMPTY)
    for rate, mode in ((RATE, "evaluation"), (0.0, "training"), (RATE, "training")):
        layer, drops = build(implementation, rate, mode == "training"), mode == "training" and rate
        output, weights = by_formula(layer, *inputs)
        where = f"in {mode}, dropout {rate:g}" if mode == "training" else "in evaluation"
        got = output_of(layer, *inputs)
        if not drops and (seen := difference(f"{where}: the output", got, output)):
            same = mode == "training" or torch.allclose(output_of(layer, *inputs), got, equal_nan=True)
            return seen if same else f"{where}: the same call gives another output each time, as if dropout were on"
        if seen := difference(f"{where}: the output is right, but attention_weights", layer.attention_weights, weights):
            return f"{where}: attention_weights are not those before dropout" if drops else seen
    return dropped(implementation)


@isolated
def self_attention(implementation: Implementation) -> str | None:
    """Test a layer's output for self-attention against a reference computation; return the fault found, or None."""
    layer, (X, _, _) = build(implementation), random_inputs()
    inputs = X, X, X, RAGGED.clamp(max=NUM_QUERIES)
    return difference("the output", output_of(layer, *inputs), by_formula(layer, *inputs)[0])


@isolated
def token_perturbation(implementation: Implementation) -> str | None:
    """Test that changing a token changes exactly the outputs that may depend on it; return the fault found, or None.

    A query belongs to its own output. A key and its value may be seen by all queries of their example if they are
    valid, and by nobody if they are padding.
    """
    layer = build(implementation)
    queries, keys, values = random_inputs()
    before = output_of(layer, queries, keys, values, RAGGED)
    for b, t in itertools.product(range(BATCH_SIZE), range(NUM_QUERIES)):
        after = output_of(layer, with_new_token(queries, b, t), keys, values, RAGGED)
        if seen := wrong_changes(before, after, (b, t)):
            return f"a change of query {t} in example {b} {seen}"
    for b, t in itertools.product(range(BATCH_SIZE), range(NUM_KEYS)):
        valid = t < RAGGED[b]
        after = output_of(layer, queries, with_new_token(keys, b, t), with_new_token(values, b, t), RAGGED)
        if seen := wrong_changes(before, after, (b,) if valid else ()):
            return f"a change of token {t} in example {b} ({'valid' if valid else 'padding'}) {seen}"
    return None


@isolated
def gradient(implementation: Implementation) -> str | None:
    """Test that every parameter and input gets a finite gradient other than 0; return the fault found, or None.

    The loss looks at examples that have valid keys; one example of the batch has none.
    """
    layer, inputs = build(implementation, training=True), [X.requires_grad_() for X in random_inputs()]
    output_of(layer, *inputs, ONE_EMPTY)[ONE_EMPTY > 0].square().sum().backward()
    norms = {}
    for name, parameter in layer.named_parameters():
        if parameter.grad is None or not parameter.grad.isfinite().all():
            return f"{name} gets no gradient" if parameter.grad is None else f"the gradient of {name} is not finite"
        norms[name] = parameter.grad.norm()
    vanished = [name for name, norm in norms.items() if norm < CLOSE["atol"] * max(norms.values())]
    if vanished:
        return f"the gradient of {vanished[0]} is 0: it cannot learn"
    pairs = zip(("queries", "keys", "values"), inputs, strict=True)
    cut_off = [name for name, X in pairs if X.grad is None or not X.grad.any()]
    return f"no gradient reaches the {cut_off[0]}: what comes before the layer cannot learn" if cut_off else None


@isolated
def ragged_batch(implementation: Implementation) -> str | None:
    """Test that each example of a padded batch has the same output as alone; return the fault found, or None.

    An example without valid keys gets zeros.
    """
    layer, inputs = build(implementation), random_inputs()
    together = output_of(layer, *inputs, ONE_EMPTY)
    for b, length in enumerate(ONE_EMPTY.tolist()):
        queries, keys, values = (X[b : b + 1] for X in inputs)
        if length:
            alone = output_of(layer, queries, keys[:, :length], values[:, :length], ONE_EMPTY[b : b + 1])
            if difference("", together[b : b + 1], alone):
                return f"the output of example {b} in the batch differs from its output alone"
        elif not together[b].eq(0).all():
            return f"example {b} has no valid key, but its output is not 0"
    return None


@isolated
def called_again(implementation: Implementation) -> str | None:
    """Test that a layer's second call, with other valid lengths, equals a new layer's first; return a fault or None."""
    layer, inputs = build(implementation), random_inputs()
    new = copy.deepcopy(layer)
    output_of(layer, *inputs, RAGGED)
    if difference("", output_of(layer, *inputs, RAGGED.roll(1)), output_of(new, *inputs, RAGGED.roll(1))):
        return "a second call with other lengths differs from the same call of a new layer"
    return None


PANEL = (
    shape,
    round_trip,
    all_ones,
    random_reference,
    self_attention,
    token_perturbation,
    gradient,
    ragged_batch,
    called_again,
)
TESTS: dict[str, Test] = {test.__name__.replace("_", " "): test for test in PANEL}


@dataclass(frozen=True)
class Report:
    """Hold the results of all tests of one layer: by test name, the fault found, or None."""

    name: str
    findings: Mapping[str, str | None]

    @property
    def caught_by(self) -> list[str]:
        """The tests that see something wrong."""
        return [test for test, finding in self.findings.items() if finding]

    def __repr__(self) -> str:
        width = max(map(len, self.findings))
        lines = [f"  {test:<{width}}  {finding or 'passes'}" for test, finding in self.findings.items()]
        return "\n".join([f"The tests on {self.name}:", *lines])


def run(implementation: Implementation, tests: Mapping[str, Test] = TESTS) -> Report:
    """Run all tests on a layer class, ``implementation``, and return the faults found as a ``Report``."""
    name = getattr(implementation, "__name__", type(implementation).__name__)
    try:
        findings = in_one_process(implementation, list(tests.values()))
    except MistakeError:  # tests in processes of their own show which of them it was
        findings = [look(implementation) for look in tests.values()]
    return Report(name, dict(zip(tests, findings, strict=True)))


def in_one_process(implementation: Implementation, looks: Sequence[Test]) -> list[str | None]:
    """Run several tests on a layer class in one process; return the fault that each finds, or None.

    Raises:
        MistakeError: the process was cut short.
    """
    (outcome,) = run_safely(lambda: [finding_of(inspect.unwrap(look), implementation) for look in looks], [()])
    return outcome.value


def verdict(implementation: Implementation, tests: Mapping[str, Test] = TESTS) -> Verdict:
    """Run all tests on a layer class; return the verdict that all pass, or the names of those that find a fault."""
    if not isinstance(implementation, type):
        return Verdict("not yet", f"Give the class itself; this is {kind_of(implementation)}.")
    report = run(implementation, tests)
    if not report.caught_by:
        seen = f"The {len(tests)} tests find no fault, which does not prove the layer right."
        return Verdict("passes", f"{seen} A fault that shows in none of their inputs would pass, too.")
    first = report.caught_by[0]
    seen = report.findings[first] or ""
    if seen.startswith(RAISES) and seen in [report.findings[test] for test in tests if "reference" in test]:
        return Verdict("wrong", f"The tests could not run it: {seen}.")
    return Verdict("not yet", f"Still caught by: {', '.join(report.caught_by)}. ({first}: {seen})")


def matrix(
    implementations: Mapping[str, Implementation], tests: Mapping[str, Test] = TESTS
) -> dict[str, dict[str, bool]]:
    """Run every test on every layer class; return, by class name and test name, whether the test finds a fault."""
    reports = {name: run(implementation, tests) for name, implementation in implementations.items()}
    return {name: {test: test in report.caught_by for test in tests} for name, report in reports.items()}


def as_text(caught: Mapping[str, Mapping[str, bool]]) -> str:
    """Format the result of ``matrix`` as a text table: a row for each test, with marks at the layers it finds wrong."""
    lines = {}
    for test in next(iter(caught.values()), {}):
        marks = {name: "×" if row[test] else "·" for name, row in caught.items()}
        lines[test] = {**marks, "caught": str(sum(row[test] for row in caught.values()))}
    return edge_cases.as_text(lines)


def dropped(implementation: Implementation) -> str | None:
    """Test that dropout acts on each attention weight alone, at the rate ``RATE``; return the fault found, or None.

    With two keys of chosen values, the weights that reach the values can be worked out from the output.
    """
    layer, where = build(implementation, RATE, training=True), f"in training, dropout {RATE:g}"
    W_v, W_o = (W.detach().double() for W in matrices_of(layer)[2:4])
    chosen = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.double)  # (key, feature): each tells of both keys
    values = torch.linalg.solve(W_v, chosen.repeat(1, NUM_HEADS).T).T.float().expand(2, -1, -1)
    queries, keys = 0.1 * torch.randn(2, 500, NUM_HIDDENS), torch.randn(2, 2, NUM_HIDDENS)
    inputs = queries, keys, values, torch.tensor([2, 2])
    heads = torch.linalg.solve(W_o, output_of(layer, *inputs).detach().double().mT).unflatten(1, (NUM_HEADS, -1)).mT
    factors = heads @ torch.linalg.inv(chosen) / by_formula(layer, *inputs)[1]  # of the weights, (b, h, q, k)
    seen = english(dropped_otherwise(factors, torch.ones_like(factors, dtype=torch.bool), RATE))
    return f"{where}: {seen}" if seen else None
