"""Nine tests of a multi-head attention layer, and who catches what: the panel of the bug museum.

A test takes an implementation, ``editable_layer.Layer`` or a class with the same parts. It returns None if it sees
nothing wrong, or one line that says what it sees. All draw random numbers, in sizes that differ from one another.
"""

import copy
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.comparing import CLOSE, differences, first_difference
from mha_course.checking.running import MistakeError, error_in_words, run_safely
from mha_course.checking.verdict import Verdict
from mha_course.checking.wording import kind_of
from mha_course.models.training import seeded
from mha_course.museum import edge_cases
from mha_course.museum.editable_layer import Layer

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

BATCH_SIZE, NUM_QUERIES, NUM_KEYS, NUM_HEADS, NUM_HIDDENS = 3, 5, 6, 4, 8
RAGGED, ONE_EMPTY = torch.tensor([6, 2, 4]), torch.tensor([6, 0, 4])
RATE = 0.25  # of the dropout that is tried
RAISES = "it raises"

Implementation = Callable[..., Any]  # of (num_hiddens, num_heads, dropout) for the nine tests here
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
    return dropped_otherwise(implementation)


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


def matrices_of(layer: Any) -> Sequence[Tensor]:
    """Return a layer's weight matrices W_q, W_k, W_v, W_o, and w_v if its scores are additive."""
    if hasattr(layer, "matrices"):
        return layer.matrices()
    w_v = [layer.w_v] if hasattr(layer, "w_v") else []
    return [*(W.weight for W in (layer.W_q, layer.W_k, layer.W_v, layer.W_o)), *w_v]


@torch.no_grad()
def by_formula(layer: Any, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor) -> tuple[Tensor, ...]:
    """Compute the right output and weights from a layer's parameters, one example and one head at a time.

    It takes the layer's parameters, shares no code with it, needs no mask and knows no dropout.

    queries, keys, values (batch, number, num_hiddens), valid_lens (batch,) → output (batch, num_queries, num_hiddens)
    and weights (batch, num_heads, num_queries, num_keys). Source: Vaswani et al. 2017, section 3.2.2; d2l 11.5.1.
    """
    output = torch.zeros_like(queries)
    weights = queries.new_zeros(len(queries), layer.num_heads, queries.shape[1], keys.shape[1])
    *W, W_o = matrices_of(layer)[:4]
    w_v = matrices_of(layer)[4:]  # there only if scores are additive
    W_q, W_k, W_v = (matrix.chunk(layer.num_heads) for matrix in W)
    for b, length in enumerate(valid_lens.tolist()):
        heads = []
        for h in range(layer.num_heads):
            q, k, v = queries[b] @ W_q[h].T, keys[b, :length] @ W_k[h].T, values[b, :length] @ W_v[h].T
            scores = torch.tanh(q[:, None] + k) @ w_v[0][h] if w_v else q @ k.T / math.sqrt(q.shape[-1])
            weights[b, h, :, :length] = torch.softmax(scores, dim=-1)
            heads.append(weights[b, h, :, :length] @ v)
        output[b] = torch.cat(heads, dim=-1) @ W_o.T
    return output, weights


def build(implementation: Implementation, dropout: float = 0.0, training: bool = False) -> Layer:
    """Make a layer of the class ``implementation`` with random parameters, in training or eval mode."""
    return with_random_parameters(implementation(NUM_HIDDENS, NUM_HEADS, dropout).train(training), std=0.5)


def with_random_parameters(layer: Any, std: float) -> Any:
    """Fill a layer's parameters with normal random numbers of standard deviation ``std``, and return the layer."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=std)
    return layer


def random_inputs() -> list[Tensor]:
    """Return random queries, keys and values, each of shape (batch, number, num_hiddens)."""
    return [torch.randn(BATCH_SIZE, number, NUM_HIDDENS) for number in (NUM_QUERIES, NUM_KEYS, NUM_KEYS)]


def output_of(layer: Layer, *inputs: Tensor) -> Tensor:
    """Return a layer's output for ``inputs``; raise a MistakeError if its shape or dtype is not the queries'."""
    output, queries = layer(*inputs), inputs[0]
    check_shape("the output", output, tuple(queries.shape))
    if output.dtype != queries.dtype:
        raise MistakeError(f"the output must be of {queries.dtype}, as the queries are, got {output.dtype}")
    return output


def check_shape(name: str, got: Any, shape: tuple[int, ...]) -> None:
    """Raise a MistakeError unless ``got`` is a tensor of this shape; the message calls it ``name``."""
    if not isinstance(got, Tensor) or got.shape != shape:
        raise MistakeError(f"{name} must be a tensor of shape {shape}, got {got if got is None else kind_of(got)}")


def with_new_token(X: Tensor, example: int, token: int) -> Tensor:
    """Return a copy of ``X`` in which one token of one example is replaced by random numbers."""
    X = X.clone()
    X[example, token] = torch.randn(X.shape[-1])
    return X


def difference(name: str, got: Any, right: Tensor) -> str | None:
    """Return a sentence on the first entry at which ``got`` differs from ``right``; None if they are equal.
    NaN always differs.
    """
    check_shape(name, got, tuple(right.shape))
    place = first_difference(got, right, equal_nan=False)
    if place is None:
        return None
    axes = ("example", "token", "feature") if right.ndim == 3 else ("example", "head", "query", "key")
    where = ", ".join(f"{axis} {i}" for axis, i in zip(axes, place, strict=True))
    return f"{name} is wrong, first at {where}"


def wrong_changes(before: Tensor, after: Tensor, place: tuple[int, ...]) -> str | None:
    """Describe the first output that wrongly changed, or did not change, between ``before`` and ``after``; else None.
    Outputs at ``place`` must change, and no others; at ``()``, none.
    """
    must_change = torch.zeros(before.shape[:2], dtype=torch.bool)
    if place:
        must_change[place] = True
    changed = differences(before, after, equal_nan=False).any(dim=-1)
    wrong = (changed != must_change).nonzero().tolist()
    if not wrong:
        return None
    b, t = wrong[0]
    return f"{'changes' if changed[b, t] else 'does not change'} output {t} of example {b}"


def dropped_otherwise(implementation: Implementation) -> str | None:
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
    kept = factors.abs() > 0.01
    factor = factors[kept].median().item() if kept.any() else math.nan
    if not torch.allclose(factors[kept], torch.tensor(factor, dtype=torch.double), rtol=0.01):
        return f"{where}: some weights are neither dropped nor multiplied by what all others are"
    share, due = 1 - kept.double().mean().item(), 1 / (1 - RATE)
    for axis, name in enumerate(("examples", "heads", "queries", "keys")):
        alike, by_chance = (kept == kept.roll(1, axis)).double().mean(), share**2 + (1 - share) ** 2
        if alike > (1 + by_chance) / 2:
            return f"{where}: weights of different {name} are dropped together"
    if abs(share - RATE) > 0.025:  # five standard deviations of the share of 8000 weights
        return f"{where}: {share:.0%} of the weights are dropped"
    if abs(factor - due) > 0.005:
        return f"{where}: the weights that are kept are multiplied by {factor:.3f} instead of {due:.3f}"
    return None
