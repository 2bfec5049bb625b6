"""The verdict on a layer that was written on a page: what check_layer does, on values that were computed there.

CPython and MicroPython read it. A mistake is known by one number for each call, a sum over all numbers of its output.
"""

import re

import tensor as T
import verdict
from verdict import LISTS, Mistake, NotYet, decoded, equal, error_in_words, first_difference, joined, kind_of, say

MATRICES = ("W_q", "W_k", "W_v", "W_o")
RATE = 0.25  # of the dropout that is tried


def checker(data):
    """The check of an exercise, whose answer is a class or a function."""
    return LayerChecker(data) if "biased" in data else verdict.Checker(data)


def parameters(source, method):
    """The names that a method takes after self, and of these the ones that must be given."""
    parts = source.partition(f"def {method}(")[2].partition(")")[0].split(",")[1:]
    names = [(re.match("[*\\w]*", part.strip()).group(0), "=" in part) for part in parts if part.strip()]
    return [name for name, _ in names], [name for name, is_free in names if not is_free]


def is_idle(source, method):
    """Whether a method of the source holds nothing but dots and the like."""
    body = source.partition(f"def {method}(")[2].partition(":\n")[2].partition("def ")[0]
    lines = [line.partition("#")[0].strip() for line in body.split("\n")]
    return bool(body) and not [line for line in lines if line not in ("", "...", "pass", "raise NotImplementedError")]


def unlike(items):
    """All items, each once, in their order."""
    return [item for i, item in enumerate(items) if item not in items[:i]]


def sums(X):
    """A weighted sum of all numbers, by which a mistake is known, and how large its terms are."""
    total = size = 0.0
    for i, x in enumerate(X._flat()):
        weight, x = 50 + i * 37 % 101, 3.0 if x != x else max(min(x, 1e4), -1e4)
        total, size = total + weight * x, size + weight * (0.1 + abs(x))
    return total, size


def explains(row, results):
    """Whether a mistake gives what the layer gave in all these calls."""
    for result in results:
        told = row["of"][result.number]
        if result.error or isinstance(told, list):
            if told != list(result.error or ()):
                return False
        elif abs(told - result.sums[0]) > verdict.RTOL * result.sums[1]:
            return False
    return True


class Call:
    """A call of a layer: how it is made, with what it is called, and what is right.

    A call that a page cannot make raises an error of the learner's, or NotYet with what is missing.
    """

    def __init__(self, data, make, source):
        self.heads, self.right, self.make, self.source = data["heads"], decoded(data["right"]), make, source
        self.trial, self.W, self.b = [[decoded(X) for X in data.get(name, ())] for name in ("trial", "W", "b")]
        *self.inputs, self.lengths = self.trial

    def layer(self, dropout=0.0, **options):
        """A layer in evaluation, with the matrices of this call."""
        size = self.W[0].shape[0]
        layer = self.make(size, self.heads, dropout, **options)
        missing = [name for name in MATRICES if not hasattr(layer, name)]
        if missing:
            own = [name for name in layer.__dict__ if isinstance(getattr(layer, name), T.nn.Linear)]
            own = sorted(own, key=lambda name: self.source.find("self." + name)) if len(own) == 4 else ["…"] * 4
            own = ", ".join(["layer." + name for name in own])
            raise NotYet(say("Name its four maps", ", ".join(missing), own), "init")
        for at, name in enumerate(MATRICES):
            part = getattr(layer, name)
            if not isinstance(part, T.nn.Linear):
                raise NotYet(say("must be a matrix or an nn.Linear", name, kind_of(part)), "init")
            if part.weight.shape != (size, size):
                said = say("W_{} from `matrices` must be {}, got {}.", name[-1], (size, size), part.weight.shape)
                raise NotYet(said, "init")
            part.weight = self.W[at]
            if part.bias is not None:
                part.bias = self.b[at] if self.b else T.zeros(size)
        return layer.eval()

    def output(self, layer, *lengths):
        """What a layer gives for this call, the first of several."""
        inputs = [X.clone() for X in self.inputs]
        got = layer(*inputs, *lengths)
        while verdict.is_several(got) and len(got):
            got = got[0]
        if got is None:
            raise NotYet(say("`forward` returns nothing so far"), "output")
        if not isinstance(got, T.Tensor) or got.shape != inputs[0].shape:
            raise ValueError(say("the output must be a tensor of shape", inputs[0].shape, kind_of(got)))
        if not all([verdict.same_numbers(*both) for both in zip(self.inputs, inputs)]):
            raise Mistake(say("The layer changes what it is given in place"))
        return got

    def result(self, number, layer, is_second):
        """What came of the call, beside what is right."""
        value = error = None
        line = ""
        try:
            if is_second:
                self.output(layer, self.lengths.flip(0).clamp(max=self.inputs[1].shape[1] - 1))
            value = self.output(layer, self.lengths.clone())
        except (NotYet, Mistake):
            raise
        except Exception as raised:
            *error, line = error_in_words(raised, self.source)
        result = verdict.Result(self.trial, self.right, value, error and tuple(error), line)
        result.number, result.heads, result.sums = number, self.heads, error or sums(value)
        return result


class LayerChecker(verdict.Checker):
    """The check of a class that makes attention layers."""

    def examine(self, answer, source):
        if not (isinstance(answer, type) and issubclass(answer, T.nn.Module)):
            raise Mistake(say("Give the class itself, without calling it."))
        if is_idle(source, "forward"):
            raise NotYet(say("Put your code in the place of the dots").replace("run both cells", "check it"))
        self.Layer, self.source = answer, source
        try:
            state, text, evidence, part = self.found()
        except (NotYet, Mistake) as reason:
            state, text, evidence = "wrong" if isinstance(reason, Mistake) else "not yet", reason.args[0], ""
            part = (reason.args + ("",))[1]
        if part in LISTS["STEP_OF"]:
            text = say("Step {}: {}", LISTS["STEP_OF"][part], text)
        return verdict.verdict(state, text, evidence)

    def found(self):
        """State, text, evidence, and the part of the layer that is wrong, "" if it is not known."""
        self.refuse_unfinished()
        self.weights, self.biased = [Call(self.data[name], self.make, self.source) for name in ("weights", "biased")]
        stages, every = [], []
        for label, calls in self.data["stages"]:
            stages.append((label, []))
            for call in [Call(data, self.make, self.source) for data in calls]:
                layer = self.tried("The layer could not be made", call.layer, "init")
                every.append(call.result(len(every), layer, "second call" in label))
                stages[-1][1].append(every[-1])
        if all([result.error for result in every]):
            raise self.in_words("The layer could not be called", every[0].error + (every[0].line,))
        wrong = [label for label, results in stages if any([result.problem() for result in results])]
        if wrong:
            return self.what_is_named(stages, wrong, every)
        if self.is_random():
            told = say("In evaluation, the same call gives another output each time.")
            return "wrong", told + " " + say("Check what is random, and whether"), "", "dropout"
        try:
            part, broken = self.tried("In training it cannot be called", lambda: next(self.promises(), ("", "")))
        except Mistake as reason:
            raise Mistake(say("The output is right.") + " " + reason.args[0]) from None
        if broken:
            return "wrong", say("The output is right.") + " " + broken, "", LISTS["PART_OF"][part]
        return "right", self.data["praise"] + " " + self.of_empty_rows(), self.data["checked"], ""

    def tried(self, what, function, part=""):
        """What a function gives; an error of the learner's class is told in words."""
        try:
            return function()
        except (NotYet, Mistake):
            raise
        except Exception as error:
            raise self.in_words(what, error_in_words(error, self.source), part) from None

    def refuse_unfinished(self):
        name = self.Layer.__name__
        if not hasattr(self.Layer, "forward"):
            raise NotYet(say("has no `forward` so far", name))
        if is_idle(self.source, "__init__"):
            raise NotYet(say("is still empty", "__init__", name).replace("run both cells", "check it"))
        taken, needed = parameters(self.source, "__init__")
        self.takes_dropout = "*" in "".join(taken) or (len(taken) != 2 and taken[2:] != ["bias"])
        if self.takes_dropout and taken and "*" not in "".join(taken) and not len(needed) <= 3 <= len(taken):
            raise NotYet(say("Take all three", name, ", ".join(needed), name))
        self.tried("The layer could not be made", lambda: self.make(4, 2, 0.0), "init")
        taken, needed = parameters(self.source, "forward")
        lengths = [name for name in taken if re.search("len|valid|\\*", name)]
        others = [name for name in needed if name not in lengths]
        if len(others) == 3 and not lengths:
            raise NotYet(say("`forward` takes no valid_lens."))
        if len(others) > 4 - bool(lengths):
            names = ", ".join([name for name in taken if name in others + lengths])
            raise NotYet(say("and valid_lens if it masks") + " " + say("This one takes ({}).", names))

    def make(self, num_hiddens, num_heads, dropout, **options):
        """A layer; a class that takes no dropout is not given any."""
        rate = [dropout] * self.takes_dropout
        return self.Layer(num_hiddens, num_heads, *rate, **options)

    def in_words(self, what, error, part=""):
        """A Mistake with an error in a sentence, and what to write next if that is known."""
        line = error[2]
        text = say("{}: {} at “{}”." if line else "{}: {}.", say(what), joined(error[:2]), line)
        for patterns, (hint, of_hint) in LISTS["UNFINISHED"]:
            for found in [re.search(pattern, text) for pattern in patterns]:
                name = found.group(1) if found and "{0}" in hint else ""
                if found and (not name or "self." + name in line):
                    call = say("It is called as layer(", "queries, keys, values, valid_lens")
                    return Mistake(text + " " + hint.replace("{call}", call).replace("{0}", name), of_hint or part)
        return Mistake(text, part)

    def is_random(self):
        try:
            call, layer = self.weights, self.weights.layer(RATE)
            return not equal(call.output(layer, call.lengths), call.output(layer, call.lengths))
        except Exception:
            return False

    def what_is_named(self, stages, wrong, every):
        """A mistake that explains every call, or else one that explains the first wrong stage, and the border."""
        rows, border = self.data["mistakes"], border_of([label for label, _ in stages], wrong)
        name, part = next(((row["text"], row["part"]) for row in rows if explains(row, every)), ("", ""))
        if not name and all([label.startswith("a second call") for label in wrong]):
            name = say("The layer keeps something from an earlier call")
        if not name and self.is_random():
            name, part = say("In evaluation, the same call gives another output each time."), "dropout"
        bad = [result for label, results in stages if label in wrong for result in results if result.problem()]
        if not name and bad[0].error:
            told = say("It raises {} at “{}”." if bad[0].line else "It raises {}.", joined(bad[0].error), bad[0].line)
            return "wrong", border + " " + told, "", ""
        if not name:
            alike = next((row["text"] for row in rows if explains(row, dict(stages)[wrong[0]])), "")
            name, border = (say("but not in all, it looks like this", alike), border) if alike else (border, "")
        shown = [result for result in bad if not result.error] or bad
        return "wrong", name, (border + " " + example_in_words(shown[0])).strip(), part

    def promises(self):
        """What a layer with the right output lacks: which promise is not kept, and what is said."""
        call = self.weights
        layer = call.layer(RATE)
        got = layer(*call.trial)
        if not isinstance(got, T.Tensor):
            yield "output", say("A call returns {}, not one tensor.", kind_of(got))
        told = getattr(layer, "attention_weights", None)
        yield from [("bias", text) for text in self.of_biases()]
        yield from [("no_lengths", text) for text in self.of_lengths(layer)]
        yield from [("weights", text) for text in self.of_weights(layer, told, call.right)]

    def of_biases(self):
        try:
            layer = self.biased.layer(bias=True)
        except TypeError as error:
            yield say("With `bias=True` the layer cannot be made", error)
            return
        for made, wanted in ((layer, True), (self.biased.layer(), False)):
            other = [name for name in MATRICES if (getattr(made, name).bias is not None) != wanted]
            names = ", ".join(other)
            if len(other) == 1:
                yield say("With `bias=True`, {} has no" if wanted else "Without `bias`, {} has", names)
            elif other:
                yield say("With `bias=True`, {} have no" if wanted else "Without `bias`, {} have", names)
        if not equal(self.biased.output(layer, self.biased.lengths), self.biased.right):
            yield say("With `bias=True`, the output is not the formula's.")

    def of_lengths(self, layer):
        call, wrong = self.weights, ""
        try:
            if not equal(call.output(layer), call.output(layer, call.lengths * 0 + call.inputs[1].shape[1])):
                wrong = say("Without valid_lens, some keys are masked.")
        except Exception as error:
            is_asked = len(parameters(self.source, "forward")[1]) > 3
            needed = say("Give valid_lens the default None." if is_asked else "valid_lens is None.")
            wrong = say("A call without valid_lens raises", joined(error_in_words(error, "")[:2])) + " " + needed
        if wrong:
            yield wrong

    def of_weights(self, layer, told, right):
        if not isinstance(told, T.Tensor):
            yield say("It reports no weights")
        elif equal(told, right.mean(1)):
            yield say("The weights that it reports are averaged over the heads.")
        elif told.shape != right.shape:
            yield say("The weights that it reports have the shape", told.shape, right.shape)
        elif not equal(told, right):
            yield say("The weights that it reports are not those of the formula.")
        else:
            layer.train()(*self.weights.inputs)
            if len([x for x in layer.attention_weights._flat() if x == 0]) > 0.1 * right.numel():
                yield say("The weights that it reports are those after dropout.")

    def of_empty_rows(self):
        """What the layer gives for an example without a valid key."""
        try:
            keys = self.biased.inputs[1]
            flat = self.biased.output(self.biased.layer(), T.tensor([keys.shape[1], 0]))[1]._flat()
        except Exception as error:
            return say("An example without a valid key raises", type(error).__name__)
        if any([x != x for x in flat]):
            return say("An example without a valid key gets NaN.")
        is_empty = max([abs(x) for x in flat]) < 1e-6
        return say("without a valid key gets zeros." if is_empty else "without a valid key gets an average")


def border_of(labels, wrong):
    """Which stages, or which ways to share sequences, are right and which are wrong."""
    sides = [[label.partition(", ") for label in labels if (label in wrong) == side] for side in (False, True)]
    if not sides[0]:
        return say("Wrong in every call.")
    sides = [[(stage, way or LISTS["SHARED"][0]) for stage, _, way in side] for side in sides]
    ways = [unlike([way for _, way in side]) for side in sides]
    if not [way for way in ways[0] if way in ways[1]]:
        return say("Right with {}; wrong with {}.", *[" and ".join(some) for some in ways])
    both = [stage for stage, _ in sides[0] if stage in [stage for stage, _ in sides[1]]]
    words = [unlike([f"{stage} ({way})" if stage in both else stage for stage, way in side]) for side in sides]
    return say("Right with {}; wrong with {}.", *[", ".join(some) for some in words])


def example_in_words(result):
    """A failed call: the sizes of its arguments, and the first wrong number."""
    queries, keys, _, lengths = result.trial
    place = first_difference(result.value, result.right) or []
    numbers = [f"{X[tuple(place)].item():.4g}" for X in (result.value, result.right)]
    shown = [say("queries {}", queries.shape), say("keys {}", keys.shape), say("valid_lens {}", lengths.tolist())]
    return say("Smallest example", ", ".join(shown), result.heads, place, *numbers)
