"""The calls that ``check_layer`` makes: one head, several, padding, shared sequences, what is rare, and training."""

import copy
import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.comparing import Result
from mha_course.checking.running import MistakeError, NotYetError, Outcome, error_in_words, in_one, line_of, run_safely
from mha_course.language import tr
from mha_course.models.training import seeded
from mha_course.museum.handed_layer import HandedLayer, in_words
from mha_course.museum.layer_trials import changed, close, formula, is_stable, output_of

# What is special about some calls → their batch size, queries, keys, heads, head size, lengths, size of the numbers.
STAGES: dict[str, list[tuple]] = {
    "one head": [(1, 2, 3, 1, 2, None, 1), (1, 5, 5, 1, 4, None, 1)],
    "several heads": [(1, 3, 3, 2, 2, None, 1), (1, 6, 6, 4, 4, None, 1), (1, 5, 5, 3, 2, None, 1)],
    "several examples": [(2, 5, 5, 3, 2, None, 1), (3, 3, 3, 2, 4, None, 1)],
    "more keys than queries": [(2, 2, 3, 2, 2, None, 1), (2, 3, 5, 4, 4, None, 1)],
    "one query": [(1, 1, 4, 2, 2, None, 1), (3, 1, 5, 4, 4, None, 1)],
    "padding": [(2, 3, 3, 1, 2, [3, 1], 1), (3, 4, 4, 2, 2, [4, 2, 3], 1), (3, 4, 4, 4, 2, [1, 4, 2], 1)],
    "a second call with other lengths": [(2, 3, 3, 2, 2, [3, 1], 1), (3, 4, 4, 2, 2, [1, 4, 2], 1)],
    "padding and large scores": [(2, 3, 3, 2, 2, [2, 1], 150)],
    "large scores": [(1, 3, 3, 2, 2, None, 30)],
    "many keys": [(1, 300, 300, 2, 4, None, 1)],
}
ONE_AFTER_THE_OTHER = (  # calls of one layer: whether it is in training, batch size, tokens, and how many are valid
    (False, 2, 3, 3), (False, 2, 3, 2), (False, 2, 5, 4), (False, 2, 2, 1), (False, 3, 3, 2),
    (True, 2, 3, 3), (True, 2, 3, 2), (False, 2, 3, 3),
)  # fmt: skip
ROOMY = "many keys"  # the calls that a layer raises in that has room for fewer tokens
SHARED = ("different sequences", "one sequence for keys and values", "one sequence for all three")


def found_once(method: Callable) -> Any:
    """Make a method that calls a learner's layer an attribute that is found once: None if the method raises."""
    return functools.cached_property(lambda self: run_safely(method, [(self,)])[0].value)


class LayerCalls:
    """Call a learner's layer on all test cases, in groups such as one head or padding, and hold the outcomes.

    Attributes:
        got: name of a stage → what came of each of its calls.
        no_room: what a layer raises that has room for fewer tokens than the call of many keys has, or "".
        shares: whether heads share keys and values.
        may_be_in_out: whether the matrices may be stored as (input, output).
    """

    def __init__(self, handed: HandedLayer) -> None:
        self.handed = handed
        stages = {name: calls for name, calls in self.all_stages() if calls}
        outcomes = iter(run_safely(self.example, [numbers for calls in stages.values() for numbers in calls]))
        self.got = {name: [next(outcomes) for _ in calls] for name, calls in stages.items()}
        every = [outcome for stage in self.got.values() for outcome in stage]
        for outcome in every:
            if outcome.error:
                raise in_words(tr("The layer could not be made"), outcome.error, outcome.line, about="init")
        raising = [(name, of.value[2]) for name, outcomes in self.got.items() for of in outcomes if of.value[2]]
        self.no_room = in_one(raising[0][1][0]) if [name for name, _ in raising] == [ROOMY] else ""
        if self.no_room:
            del self.got[ROOMY]
        self.shares = any(outcome.value[3][0] for outcome in every)
        self.may_be_in_out = all(outcome.value[3][1] for outcome in every)

    def all_stages(self) -> Iterable[tuple[str, list[tuple]]]:
        """Return the calls that this kind of layer can get, by what is special about them."""
        own = 3 - self.handed.num_inputs
        for name, calls in STAGES.items():
            if not self.handed.masks and ("padding" in name or "lengths" in name):
                continue
            for number, shared in enumerate(SHARED[own:], own):
                # Many keys, and more than queries, are tried once; one sequence for all has as many of both.
                if "keys" not in name or (number == own and not (number == 2 and "more" in name)):
                    label = name if number == own else f"{name}, {shared}"
                    yield label, [tried for call in calls if (tried := self.with_heads(call, number, name))]

    def with_heads(self, call: tuple, shared: int, name: str) -> tuple | None:
        """Return a call with a number of heads for which the layer can be made."""
        batch_size, num_queries, num_keys, num_heads, *others = call
        if num_heads not in self.handed.heads:
            if num_heads == 1:
                return None
            num_heads = self.handed.num_heads
        if shared == 2:
            num_queries = num_keys = 1 if num_queries == 1 else num_keys
        return batch_size, num_queries, num_keys, num_heads, *others, shared, "second call" in name

    def example(self, batch_size, num_queries, num_keys, num_heads, head_size, lengths, scale, shared, again) -> tuple:
        """Return the arguments of ``formula``, what the layer gives or raises, and how its matrices are."""
        layer = self.handed.build(num_heads, head_size)
        num_hiddens = num_heads * head_size * self.handed.unit
        X = [scale * torch.randn(batch_size, n, num_hiddens) for n in (num_queries, num_keys, num_keys)]
        X[1] = X[0] if shared == 2 else X[1]
        X[2] = X[1] if shared else X[2]
        valid_lens = torch.tensor(lengths or [num_keys] * batch_size)
        trial = self.handed.trial(layer, X, valid_lens, num_heads)
        if scale > 1 and not is_stable(trial):
            return self.example(batch_size, num_queries, num_keys, num_heads, head_size, lengths, scale, shared, again)
        before, stored = [part.clone() for part in X], self.handed.stored(layer)
        try:
            if again:
                self.handed.output(layer, X, valid_lens.flip(0).clamp(max=num_keys - 1))
            output, _ = self.handed.output(layer, X, valid_lens)
        except (MistakeError, NotYetError):
            raise
        except Exception as error:
            return trial, None, (error_in_words(error), line_of(error)), stored
        if not all(map(torch.equal, X, before)):
            raise MistakeError(tr("The layer changes what it is given in place, which spoils the caller's tensor."))
        return trial, output, (), stored

    def results(self, *changes: Callable[[tuple], tuple]) -> dict[str, list[Result]]:
        """Return what each call gave beside what the formula gives, with the call read in another way."""

        def result(trial: tuple, output: Tensor | None, error: tuple, _: Any) -> Result:
            trial = changed(trial, changes)
            return Result(trial, Outcome(output, *error), formula(*trial))

        return {name: [result(*outcome.value) for outcome in outcomes] for name, outcomes in self.got.items()}

    def drawn(self, number: int = 4) -> tuple[Any, list[Tensor]]:
        """Return a new layer with heads of four features, and two random examples for it."""
        return self.handed.build(self.handed.num_heads, 4), self.handed.sequences(2, number, 4)

    def small(self, size: int) -> Any:
        """Return a new layer with small matrices, so that no weight is almost 0."""
        layer = self.handed.build(self.handed.num_heads, size)
        with torch.no_grad():
            for matrix in (part for part in layer.parameters() if part.dim() > 1):
                matrix *= 0.2 * min(1, 8 / (size * self.handed.unit)) ** 0.5
        return layer

    def of_many(self, batches: int, number: int, size: int, are_equal: bool = False) -> tuple:
        """Return a call of a new layer and its output, of several calls of eight examples taken as one.
        The values of all tokens may be equal; if not, matrices are small.
        """
        layer = self.handed.build(self.handed.num_heads, size) if are_equal else self.small(size)
        found, lengths = [], torch.full((8,), number)
        for _ in range(batches):
            X = self.handed.sequences(8, number, size)
            X = [X[2][:, :1].repeat(1, number, 1) if are_equal and part is X[2] else part for part in X]
            found.append((*X, self.handed.output(layer, X, lengths)[0]))
        *X, output = map(torch.cat, zip(*found, strict=True))
        return self.handed.trial(layer, X, lengths.repeat(batches)), output

    @found_once
    def even(self) -> tuple:
        """A call in which all values are equal, and its output."""
        return self.of_many(2, 4, 4, are_equal=True)

    @found_once
    def wide(self) -> tuple:
        """A call with heads of more features than keys, of which weights are read; ``wider`` has other heads."""
        return self.of_many(1, 5, max(8 // self.handed.unit, 1))

    @found_once
    def wider(self) -> tuple:
        """A call with heads of another size."""
        return self.of_many(1, 5, max(16 // self.handed.unit, 2))

    @found_once
    def reach(self) -> tuple[int, int]:
        """How many keys before and behind it a query sees in self-attention, of 150."""
        layer, (X, *_) = self.small(4), self.handed.sequences(1, 300, 4)
        token = X[:, 150:151].flip(-1)  # a change of sign would leave products of keys and values as they are
        other = torch.cat([X[:, :150], token, X[:, 151:]], dim=1)
        one, two = (self.handed.output(layer, [of] * 3, torch.tensor([300]))[0] for of in (X, other))
        seen = (one - two).abs().amax(-1)[0].gt(1e-6).nonzero().flatten() - 150
        return int(seen.max()), -int(seen.min())

    @found_once
    def by_position(self) -> bool:
        """Whether the first or the last token's output changes when the keys and values between change places."""
        layer, X = self.small(4), self.handed.sequences(2, 5, 4)
        moved = [part[:, [0, 2, 3, 1, 4]] for part in X]
        moved[0] = moved[0] if self.handed.num_inputs == 1 else X[0]
        one, two = (self.handed.output(layer, of, torch.tensor([5, 5]))[0][:, [0, -1]] for of in (X, moved))
        return not close(one, two)

    @found_once
    def keeps(self) -> bool:
        """Whether an output is another one after calls with other inputs, numbers of tokens or examples, or modes."""
        new, others = self.handed.build(self.handed.num_heads, 4), []
        used = copy.deepcopy(new)
        for training, batch, number, valid in ONE_AFTER_THE_OTHER:
            X, lengths = self.handed.sequences(batch, number, 4), torch.full((batch,), valid)
            outputs = []
            for layer in (copy.deepcopy(new), used):
                with seeded(0), torch.no_grad():
                    outputs.append(output_of(self.handed.output, (layer.train(training), X, lengths)))
            first, later = outputs
            others.append(first is not None and not (later and close(later[0], first[0])))  # None where it raises
        return any(others)

    @found_once
    def is_random(self) -> bool:
        """Whether one call in evaluation gives another output each time, and the same one from the same seed."""
        (layer, X), outputs = self.drawn(), []
        for seed in (1, 1, 2, 3):
            with seeded(seed):
                outputs.append(self.handed.output(layer, X, torch.tensor([4, 4]))[0])
        same = [torch.allclose(output, outputs[0], equal_nan=True) for output in outputs[1:]]
        return same[0] and not all(same)

    def wrong_gradients(self, changes: Iterable[Callable[[tuple], tuple]]) -> tuple[list[str], list[str]]:
        """Parameters and inputs that no gradient reaches in training, and those that another reaches than that of the
        formula, with the call changed.
        """
        (layer, X), lengths = self.drawn(3), torch.tensor([3, 2])
        found = {name: p for name, p in layer.named_parameters() if p.requires_grad}
        found |= zip(("the queries", "the keys", "the values"), X[: self.handed.num_inputs], strict=False)
        output, _ = self.handed.output(layer.train(), [part.requires_grad_() for part in X], lengths)
        if not output.requires_grad:
            return ["anything"], []
        matrices, given = self.handed.matrices(layer, self.handed.num_heads, X[0].shape[-1])  # to which gradients flow
        trial = (*self.handed.trial(layer, X, lengths)[:4], *matrices, self.handed.num_heads, given)
        right = formula(*changed(trial, changes))
        along = torch.randn_like(output)  # a norm leaves the sum of squares as it is
        own, due = (
            torch.autograd.grad((Y * along).sum(), [*found.values()], allow_unused=True, retain_graph=True)
            for Y in (output, right)
        )

        def has_effect(x: Tensor) -> bool:
            """Return whether a number changes the output; one that is not used needs no gradient."""
            with torch.no_grad():
                x += 1
                changed_by_it, _ = self.handed.output(layer, X, lengths)
                x -= 1
            return not close(changed_by_it, output)

        most = max(grad.abs().max() for grad in due if grad is not None)
        none, other = [], []
        for (name, x), grad, wanted in zip(found.items(), own, due, strict=True):
            is_due = x.dim() > 1 if wanted is None else wanted.abs().max() > 1e-5 * most  # a bias of keys has none
            if grad is not None and not grad.isfinite().all():
                none.append(name)
            elif grad is None and wanted is None:
                none += [name] * has_effect(x)
            elif is_due and (grad is None or grad.abs().max() < 1e-5 * most):
                none.append(name)
            elif grad is not None and wanted is not None and (grad - wanted).abs().max() > 0.01 * most:
                other.append(name)
        return none, other * close(output, right)  # what is another in training is told elsewhere

    def gated(self, changes: Iterable[Callable[[tuple], tuple]]) -> tuple:
        """Return a call with gates: the arguments of ``formula``, the gates, and the output."""
        layer, X = self.drawn()
        gates, lengths = torch.tensor([0.0, 2.0, 0.5, -1.0])[: self.handed.num_heads], torch.tensor([4, 4])
        output, _ = self.handed.output(layer, X, lengths, gates)
        return changed(self.handed.trial(layer, X, lengths), changes), gates, output
