"""Which form a layer's mask has: shape, and what stands for a key that takes part, found by what each form does."""

from collections.abc import Callable, Sequence
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
    "`{name}` is 0 where a key takes part and −∞ where not, {shape}.": (
        lambda mask: torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    ),
}
FORMS: dict[tuple[str, str], Callable] = {
    (holds, shape): lambda *given, make=make, turn=turn: turn(make(*given))
    for shape, make in SHAPES.items()
    for holds, turn in HOLDS.items()
} | {("`{name}` is True.", ""): lambda *given: True}


def working_form(
    output: Callable[[Sequence[Tensor], Tensor, Callable], Tensor], X: Sequence[Tensor], num_inputs: int
) -> tuple[tuple[str, str] | None, tuple[str, str] | None, Any]:
    """Return the first of ``FORMS`` that has the effect of a mask, the first that runs, and the first error, or None.

    output: (inputs, lengths, form) → what a layer gives for sequences such as ``X``, (2, 4, size). Whatever else is
    wrong with a layer, a mask keeps a padded token, or a later one, from changing the output, and lets others through.
    """
    errors, runs, lengths = [], [], torch.tensor([4, 2])
    for name, form in FORMS.items():
        is_causal = "batch" not in name[1]
        if is_causal and num_inputs > 1:
            continue

        def changes(token: int, query: int, form: Callable = form) -> bool:
            other = [part.clone() for part in X]
            for part in other[num_inputs > 1 :]:
                part[1, token] = torch.randn(X[0].shape[2])  # not a shift, which a LayerNorm takes off
            one, two = (output(of, lengths, form)[1, query] for of in (X, other))
            return bool(one.isnan().any()) or not torch.allclose(one, two, atol=1e-5)

        try:
            with torch.no_grad():
                hidden = changes(1, 0) if is_causal else changes(2, 3)
                if not hidden and changes(0, 3):
                    return name, name, None
                runs += [name] * (not is_causal)
        except Exception as error:
            errors.append(error_in_words(error))
    return None, runs[0] if runs else None, errors[0] if errors else None
