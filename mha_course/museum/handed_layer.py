"""A layer as it is handed over to ``check_layer``: how to make it, call it and read its matrices."""

import dis
import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mha_course.checking.running import MistakeError, NotYetError, error_in_words, in_one, line_of, run_safely
from mha_course.checking.wording import kind_of
from mha_course.language import english, sentences, tr
from mha_course.museum.layer_matrices import NAMES, as_formula_has, by_name, pair, storage_of
from mha_course.museum.masks_by_effect import FORMS, working_form
from mha_lib.attention import valid_keys

KINDS = {1: "self-attention", 2: "attention to a memory", 3: "attention to keys and values"}
SEQUENCES = {1: "x", 2: "x, memory", 3: "queries, keys, values"}
HANDED = "`call` takes (layer, x), (layer, x, memory) or (layer, queries, keys, values), and valid_lens if it masks."
NO_LENGTHS = (
    "`forward` takes no valid_lens. Add it, or check the layer without padding: "
    "`call=lambda layer, queries, keys, values: layer(queries, keys, values)`."
)
OF_NORMS = r"(?i)norm|(^|[._])ln"  # in names of parameters; a norm's weights may be (heads, size)
HEADS = (2, 4, 1, 3)  # numbers of heads that are tried
UNFINISHED = {  # error of a class that is half written, with its line → what to write next, and the part it is in
    r"before Module.__init__\(\) call":
        ("`super().__init__()` is missing: it is the first line of `__init__`.", "init"),
    r"'\w+' object has no attribute '(\w+)'.* at “.*\bself\.\1\b":
        ("`self.{0}` is used, and `__init__` does not set it.", "init"),
    r"'tuple' (object|and)|and 'tuple'|not tuple":
        ("A function that returns a pair gives a tuple. Unpack it, as in `heads, weights = attention(…)`.", "scores"),
    r"forward\(\) takes .* positional|forward\(\) missing|forward\(\) got an unexpected":
        ("Give `forward` these arguments, or hand over `call`. {call}", ""),
    "Expected size for first two":
        ("In `A @ B`, the last axis of A is as long as the last but one of B: for the scores, transpose the last two "
         "axes of the keys.", "scores"),
    "cannot be multiplied":
        ("In `A @ B`, the last axis of A is as long as the last but one of B. Print both shapes.", ""),
    r"'NoneType' object": ("An argument that is left out is None. {call}", ""),
    r"got a tensor of shape \(\d+, \d+, \d+, \d+\)": ("Merge the heads, and apply W_o.", "output"),
}  # fmt: skip


class HandedLayer:
    """Hold a learner's attention layer to be checked: how it is made and called, and how its matrices are read.

    Attributes:
        num_inputs: 1 for self-attention, 2 with a memory, 3 for queries, keys and values.
        masks: whether the layer takes valid lengths.
        heads: numbers of heads for which it can be made, and ``num_heads``, the largest.
        unit: a factor of all head sizes.
        form: lengths, number of queries and of keys → the mask that it takes in place of lengths, if it takes one.
    """

    def __init__(
        self, make: Callable, call: Callable | None, matrices: Callable | None, residual: bool, head_mask: bool,
        unit: int = 1,
    ) -> None:  # fmt: skip
        refuse_unfinished(make, call is None)
        self.make, self.given_call, self.given_matrices = make, call, matrices
        self.residual, self.gated, self.unit = residual, head_mask, unit
        self.form: Callable | None = None
        self.mask_note = ""
        (outcome,) = run_safely(self.makes, [()])
        self.heads, names, required, is_torchs = outcome.value
        if is_torchs:  # it imports this in a call with a mask: once here, not in each process, for seconds
            importlib.import_module("torch.fx.experimental.symbolic_shapes")
        self.num_heads = max(self.heads)
        if call is not None:
            names, required = parameters_of(call)
            names = names if "*inputs" in names else names[1:]
        lengths = [name for name in names if re.search("len|valid|^n$", name)]
        masks = [] if lengths else [name for name in names if re.search("mask|causal", name)]
        self.mask_name = next((name for name in masks if "pad" in name), [*masks, ""][0])
        names = [name for name in names if name in (*required, *lengths) and name not in masks]
        if "*inputs" in names or (len(names) == 4 and not lengths):
            names, lengths = ["queries", "keys", "values", "valid_lens"], ["valid_lens"]
        self.length_name, self.masks = lengths[0] if lengths else "", bool(lengths)
        self.num_inputs = len(names) - len(lengths)
        initials = [name[0].lower() for name in names[:3]]
        self.order = [initials.index(letter) for letter in "qkv"] if sorted(initials) == ["k", "q", "v"] else [0, 1, 2]
        if self.num_inputs not in KINDS:
            raise NotYetError(sentences([tr(HANDED), tr("This one takes ({names}).", names=", ".join(names))]))
        if self.mask_name:
            self.find_mask(self.mask_name in required)
        if call is None and self.num_inputs == 3 and not self.masks and not self.mask_name:
            raise NotYetError(tr(NO_LENGTHS))

    def find_mask(self, is_required: bool) -> None:
        """Find the form of a mask that keeps padding out, or later tokens."""
        (outcome,) = run_safely(lambda: working_form(self), [()])
        form, has_effect, error = outcome.value or (("", ""), False, outcome.error or ())
        self.form, self.masks = FORMS.get(form), "batch" in form[1]
        told = (
            "None of the masks that were tried as `{name}` masks the padding. Pass what it takes, made from the "
            "lengths: `call=lambda layer, {inputs}, valid_lens: layer({inputs}, {name}=…)`, where "
            "`torch.arange(keys) < valid_lens[:, None]` is True for each key that takes part."
        )
        if has_effect:
            told = form[0]
        self.mask_note = tr(told, name=self.mask_name, shape=form[1], inputs=SEQUENCES[self.num_inputs])
        if is_required and not self.form:
            raise NotYetError(sentences([self.mask_note, in_words(tr("It raises"), error, "").args[0]]))

    @property
    def signature(self) -> str:
        """How the layer is called, in words."""
        lengths, gates = ", valid_lens" * self.masks, ", head_mask=…" * self.gated
        return tr("It is called as layer({inputs}).", inputs=f"{SEQUENCES[self.num_inputs]}{lengths}{gates}")

    def makes(self) -> tuple[list[int], list[str], list[str], bool]:
        """Return for how many heads it can be made, what ``forward`` takes and needs, and whether it uses torch's."""
        heads, errors, is_torchs = [], [], False
        takes: tuple[list[str], list[str]] = [], []
        for number in HEADS:
            try:
                layer = self.make(2 * self.unit * number, number, 0.0)
            except (Exception, SystemExit) as error:
                errors.append((error_in_words(error), line_of(error)))
                continue
            if not isinstance(layer, nn.Module):
                raise NotYetError(tr("`make` must give an nn.Module, this is {given}.", given=kind_of(layer)))
            heads.append(number)
            takes = parameters_of(layer.forward)
            is_torchs = any(isinstance(module, nn.MultiheadAttention) for module in layer.modules())
        if not heads:
            raise in_words(tr("The layer could not be made"), *errors[0], about="init")
        return heads, *takes, is_torchs

    def call(self, layer: Any, inputs: Sequence[Tensor], lengths: Tensor | None, gates: Tensor | None = None) -> Any:
        """Return what the layer returns."""
        given: list[Any] = [inputs[i] for i in self.order[: self.num_inputs]]
        named: dict[str, Any] = {} if gates is None else {"head_mask": gates}
        if self.form is not None:
            lengths = torch.full((len(inputs[0]),), inputs[1].shape[1]) if lengths is None else lengths
            named[self.mask_name] = self.form(lengths, inputs[0].shape[1], inputs[min(1, self.num_inputs - 1)].shape[1])
        elif self.given_call is not None or (lengths is not None and self.num_inputs == 3):
            given += [lengths] * self.masks
        elif lengths is not None and self.masks:
            named[self.length_name] = lengths
        return layer(*given, **named) if self.given_call is None else self.given_call(layer, *given, **named)

    def output(
        self, layer: Any, inputs: Sequence[Tensor], lengths: Tensor | None, gates: Tensor | None = None
    ) -> tuple:
        """Return the output, less a residual, and the weights that a layer reports; in evaluation without gradients."""
        with torch.set_grad_enabled(layer.training and torch.is_grad_enabled()):
            got = self.call(layer, inputs, lengths, gates)
        weights: Any = getattr(layer, "attention_weights", None)
        while isinstance(got, tuple | list) and got:
            got, weights = got[0], got[1] if len(got) > 1 and isinstance(got[1], Tensor) else weights
        if got is None:
            raise NotYetError(tr("`forward` returns nothing so far: `return` the output."), "output")
        if not isinstance(got, Tensor) or got.shape != inputs[0].shape:
            words = {"shape": tuple(inputs[0].shape), "given": kind_of(got)}
            raise ValueError(tr("the output must be a tensor of shape {shape}, got {given}", **words))
        return got - inputs[0] if self.residual else got, weights

    def sequences(self, batch_size: int, number: int, head_size: int) -> list[Tensor]:
        """Return random queries, keys and values, some of them the same tensor if the layer takes fewer than three."""
        X = [torch.randn(batch_size, number, self.num_heads * head_size * self.unit) for _ in range(3)]
        return [X[0], X[min(1, self.num_inputs - 1)], X[self.num_inputs - 1]]

    def trial(self, layer: Any, X: Sequence[Tensor], lengths: Tensor, num_heads: int = 0) -> tuple:
        """Return the arguments of ``formula`` for a call of a layer, by default of one with the most heads."""
        with torch.no_grad():
            matrices, given = self.matrices(layer, num_heads or self.num_heads, X[0].shape[-1])
        lengths = lengths if self.masks else torch.full_like(lengths, X[1].shape[1])
        return (*X, valid_keys(lengths, X[1].shape[1], axes=4), *matrices, num_heads or self.num_heads, given)

    def build(self, num_heads: int, head_size: int, dropout: float = 0.0, **options: Any) -> Any:
        """Return a layer in evaluation, with new random numbers for the matrices, and for the biases that are read."""
        layer = self.make(num_heads * head_size * self.unit, num_heads, dropout, **options).eval()
        if any(nn.parameter.is_lazy(parameter) for parameter in layer.parameters()):
            X = torch.randn(1, 2, num_heads * head_size * self.unit)
            self.call(layer, [X, X, X], torch.tensor([2]))
        unread = self.unread(layer)
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                if name not in unread or (parameter.dim() > 1 and not re.search(OF_NORMS, name)):
                    parameter.normal_(std=0.5)
                elif re.search(r"bias|(^|\.)b(_\w+|[qkvo\d]*)$", name):
                    parameter.zero_()
        return layer

    def unread(self, layer: Any) -> dict[str, Tensor]:
        """Return by their names the parameters that no bias from ``matrices`` is, or is made of."""
        with torch.enable_grad():
            biases = [b for _, b in self.pairs(layer) if isinstance(b, Tensor)]
            made = [b.sum() for b in biases if b.requires_grad]
        learned = [p for p in layer.parameters() if p.requires_grad]
        grads = torch.autograd.grad(made, learned, allow_unused=True) if made and learned else []
        read = [*biases, *(p for p, grad in zip(learned, grads, strict=False) if grad is not None)]
        return {name: p for name, p in layer.named_parameters() if storage_of(p) not in map(storage_of, read)}

    def pairs(self, layer: Any) -> list[tuple[Any, Any]]:
        """W_q, W_k, W_v, W_o and perhaps w_v, as they are, each with its bias."""
        given = list((self.given_matrices or by_name)(layer))
        if len(given) not in (4, 5):
            told = "`matrices` must give W_q, W_k, W_v and W_o, or these and w_v; this gives {count}."
            raise NotYetError(tr(told, count=len(given)))
        found = [pair(W, layer) for W in given]
        if isinstance(given[3], nn.Identity) and isinstance(found[0][0], Tensor):
            found[3] = torch.eye(len(found[0][0])), None
        for name, (W, _) in zip(NAMES, found, strict=False):
            if not isinstance(W, Tensor) or W.dim() != 2:
                told = "{name} from `matrices` must be a matrix or an nn.Linear, this is {given}."
                raise NotYetError(tr(told, name=name, given=kind_of(W)), "init")
        return found

    def stored(self, layer: Any) -> tuple[bool, bool]:
        """Return whether heads share keys and values, and whether matrices may be (input, output): no ``nn.Linear``."""
        linear = {storage_of(module.weight) for module in layer.modules() if isinstance(module, nn.Linear)}
        W = [W for W, _ in self.pairs(layer)[:4]]
        in_out = len(W[0]) == len(W[0].T) and not any(storage_of(matrix) in linear for matrix in W)
        return W[1].numel() < W[3].numel(), in_out

    def matrices(self, layer: Any, num_heads: int, size: int) -> tuple[list[Tensor], dict[str, Any]]:
        """W_q, W_k and W_v (features of all heads, num_hiddens) and W_o, turned, where each head has rows of its own;
        the biases and w_v. ``size`` is num_hiddens: the heads may have more features than that, or fewer.
        """
        *found, (w_v, _) = [*((W.clone(), b) for W, b in self.pairs(layer)), (None, None)][:5]
        inner, matrices, given = found[3][0].numel() // size, [], {"w_v": w_v}
        for name, (W, b) in zip("qkvo", found, strict=True):
            W, b = as_formula_has(name, W, b, size, inner, num_heads)
            matrices.append(W)
            given[f"b_{name}"] = 0.0 if b is None else b.clone()
        return matrices, given


def refuse_unfinished(make: Any, needs_forward: bool) -> None:
    """Raise an error that says what to write next if ``make`` is an unfinished layer class, or no class at all."""
    if isinstance(make, nn.Module):
        told = "Give the class itself, `{name}`, not a layer: the check makes layers of several sizes."
        raise NotYetError(tr(told, name=type(make).__name__))
    if not callable(make):
        told = "`make` must be a class or a function that makes a layer, this is {given}."
        raise NotYetError(tr(told, given=kind_of(make)))
    name = getattr(make, "__name__", "make").replace("<lambda>", "make")
    if isinstance(make, type):
        if not issubclass(make, nn.Module):
            raise NotYetError(tr("`{name}` must be an nn.Module: write `class {name}(nn.Module):`.", name=name))
        if needs_forward and make.forward is nn.Module.forward:
            raise NotYetError(tr("`{name}` has no `forward` so far.", name=name))
        for method in ("__init__", *["forward"] * needs_forward):
            if is_empty(getattr(make, method)):
                told = "`{method}` of `{name}` is still empty. Write it, then run both cells."
                raise NotYetError(tr(told, method=method, name=name))
    takes, _ = parameters_of(make)
    first, second, *_ = [*takes, "", ""]
    if "head" in first and re.search("hidden|model|dim|embed|size", second) and "head" not in second:
        told = (
            "`{name}` takes ({first}, {second}), and is called with (num_hiddens, num_heads, dropout). Hand over "
            "`make=lambda num_hiddens, num_heads, dropout: {name}(num_heads, num_hiddens, …)`."
        )
        raise NotYetError(tr(told, name=name, first=first, second=second), "init")
    try:
        inspect.signature(make).bind(4, 2, 0.0)
    except TypeError:
        told = (
            "`{name}` is called with (num_hiddens, num_heads, dropout), and it takes ({takes}). Take all three, or "
            "hand over `make=lambda num_hiddens, num_heads, dropout: {name}(…)`."
        )
        raise NotYetError(tr(told, name=name, takes=", ".join(takes))) from None


def is_empty(function: Any) -> bool:
    """Return whether a function does nothing: its body is ``pass``, dots, a docstring or a NotImplementedError."""
    idle = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE", "POP_TOP", "COPY_FREE_VARS"}
    if (code := getattr(function, "__code__", None)) is None:
        return False
    return code.co_names == ("NotImplementedError",) or {step.opname for step in dis.get_instructions(code)} <= idle


def parameters_of(function: Callable) -> tuple[list[str], list[str]]:
    """Return the names of a function's parameters that are required, or for lengths or masks; and of the required."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ["*inputs"], ["*inputs"]
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "head_mask"]
    required = [p.name for p in named if p.default is p.empty]
    if any(p.kind == p.VAR_POSITIONAL for p in parameters):
        return [*required, "*inputs"], [*required, "*inputs"]
    return [p.name for p in named if p.name in required or re.search("len|mask|causal", p.name)], required


def in_words(what: str, error: Sequence[str], line: str, call: str = "", about: str = "") -> MistakeError:
    """Describe in a MistakeError what failed, the error and the learner's line, with a hint to a part, or ``about``."""
    told = tr("{what}: {error} at “{line}”." if line else "{what}: {error}.", what=what, error=in_one(error), line=line)
    for pattern, (hint, part) in UNFINISHED.items():
        if found := re.search(pattern, english(told)):
            return MistakeError(sentences([told, tr(hint, *found.groups(), call=call)]), part or about)
    return MistakeError(told, about)
