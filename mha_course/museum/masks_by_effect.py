"""Which form a layer's mask has: shape, and what stands for a key that takes part, found by what each form does."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.running import error_in_words
from mha_lib.attention import valid_keys

SHAPES = {  # of a mask → how it is made of the lengths, the number of queries and that of keys, True where a key counts
    "(batch, keys)": lambda n, q, k: valid_keys(n, k)[:, 0],
    "(batch, 1, 1, keys)": lambda n, q, k: valid_keys(n, k, axes=4),
    "(batch, queries, keys)": lambda n, q, k: valid_keys(n, k).repeat(1, q, 1),
    "(batch, 1, queries, keys)": lambda n, q, k: valid_keys(n, k, axes=4).repeat(1, 1, q, 1),
    "(queries, keys)": lambda n, q, k: torch.ones(q, k, dtype=torch.bool).tril(k - q),
}
HOLDS: dict[str, Callable[[Tensor], Tensor]] = {  # what is said of its numbers → it, made of one that is True for keys
    "`{name}` is True where a key takes part, {shape}.": lambda mask: mask,
    "`{name}` is True where a key is masked, {shape}.": lambda mask: ~mask,
    "`{name}` is 0 where a key takes part and −∞ where not, {shape}.": lambda mask: torch.where(mask, 0.0, -torch.inf),
}
FORMS: dict[tuple[str, str], Callable] = {
    (holds, shape): lambda *given, make=make, turn=turn: turn(make(*given))
    for shape, make in SHAPES.items()
    for holds, turn in HOLDS.items()
} | {("`{name}` is True.", ""): lambda *given: True}


def working_form(handed: Any) -> tuple[tuple[str, str], bool, tuple[str, str]]:
    """Return the first of ``FORMS`` with which a ``HandedLayer`` masks, or that runs; whether it masks; an error.

    Whatever else is wrong, a mask keeps a padded token, or a later one, from changing the output, and no other token.
    """
    layer, X, lengths = handed.build(handed.num_heads, 2), handed.sequences(2, 4, 2), torch.tensor([4, 2])

    def changes(token: int, query: int) -> bool:
        other = [part.clone() for part in X]
        for part in other[handed.num_inputs > 1 :]:
            part[1, token] = torch.randn(X[0].shape[2])  # not a shift, which a LayerNorm takes off
        one, two = (handed.output(layer, of, lengths)[0][1, query] for of in (X, other))
        return bool(one.isnan().any()) or not torch.allclose(one, two, atol=1e-5)

    errors, runs = [], []
    for name, form in FORMS.items():
        is_causal, handed.form = "batch" not in name[1], form
        if is_causal and handed.num_inputs > 1:
            continue
        try:
            if not (changes(1, 0) if is_causal else changes(2, 3)) and changes(0, 3):
                return name, True, ("", "")
            runs += [name] * (not is_causal)
        except Exception as error:
            errors.append(error_in_words(error))
    return [*runs, ("", "")][0], False, [*errors, ("", "")][0]
