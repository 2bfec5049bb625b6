"""Passes that differ in a late layer do not compute the early ones again: the results of modules are kept."""

import functools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mha_lib.heads.batches import tensors_in


@dataclass(frozen=True)
class _Call:
    """What a module gave, the how manieth call of it that was, and when it began and ended."""

    module: nn.Module
    number: int
    start: int
    end: int
    output: Any
    versions: list[int]


class Reuse:
    """Record a pass of a model, and let later passes begin at the module that they change first.

    Only what ended before that module began is given again, and only where no later step wrote into it.

    Args:
        model: in eval mode; later passes get the same inputs.
        targets: the modules at which passes may begin to differ, by a name.
    """

    def __init__(self, model: nn.Module, targets: Mapping[str, nn.Module]):
        self._modules = [m for m in model.modules() if m is not model and not isinstance(m, torch.jit.ScriptModule)]
        self._name_of = {module: name for name, module in targets.items()}
        self._starts: dict[str, int] = {}
        self._calls: list[_Call] = []
        self._clock = 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Inside, keep what the modules of a pass give: of modules without a target inside, not of their parts."""
        counts: Counter[nn.Module] = Counter()

        def recorded(module: nn.Module, forward: Callable) -> Callable:
            def run(*inputs, **named):
                start, kept, number = self._tick(), len(self._calls), counts[module]
                counts[module] += 1
                if module in self._name_of:
                    self._starts.setdefault(self._name_of[module], start)
                output = forward(*inputs, **named)
                if not any(target >= start for target in self._starts.values()):
                    del self._calls[kept:]
                self._calls.append(_Call(module, number, start, self._tick(), output, _versions(output)))
                return output

            return run

        with _replaced({module: recorded for module in self._modules}):
            yield
        self._calls = [call for call in self._calls if _versions(call.output) == call.versions]

    @contextmanager
    def before(self, target: str) -> Iterator[None]:
        """Inside, what ended before this target began is not computed again."""
        chosen: dict[nn.Module, list[_Call]] = {}
        until = -1
        for call in sorted(self._calls, key=lambda call: call.start):
            if call.end < self._starts.get(target, 0) and call.end > until:  # the largest modules
                chosen.setdefault(call.module, []).append(call)
                until = call.end

        def given(module: nn.Module, forward: Callable) -> Callable:
            left = deque(call.output for call in chosen[module])
            return lambda *inputs, **named: left.popleft() if left else forward(*inputs, **named)

        first = {m for m, calls in chosen.items() if [call.number for call in calls] == list(range(len(calls)))}
        with _replaced(dict.fromkeys(first, given)):
            yield

    def forget(self) -> None:
        """Give nothing again."""
        self._calls = []

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


@contextmanager
def _replaced(changes: Mapping[nn.Module, Callable[[nn.Module, Callable], Callable]]) -> Iterator[None]:
    """Inside, each module's ``forward`` is what a change makes of it."""
    before = {module: vars(module).get("forward") for module in changes}
    try:
        for module, change in changes.items():
            module.forward = functools.update_wrapper(change(module, module.forward), module.forward)  # its signature
        yield
    finally:
        for module, forward in before.items():
            if forward is None:
                vars(module).pop("forward", None)
            else:
                module.forward = forward


def _versions(output: Any) -> list[int]:
    """How often each tensor was written into."""
    return [X._version for X in tensors_in(output) if not X.is_inference()]
