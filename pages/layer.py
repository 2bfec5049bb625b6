"""The verdict on a layer that was written on a page: what check_layer does, on values that were computed there.

CPython and MicroPython read it. A mistake is known by one number for each call, a sum over all numbers of its output.
"""

import re

import tensor as T
import verdict
from verdict import LISTS, Mistake, NotYet, Result, decoded, equal, error_in_words, first_difference, kind_of, say

HEADS = (2, 4, 1, 3)  # numbers of heads for which layers are made before any is called
MATRICES = ("W_q", "W_k", "W_v", "W_o")
RATE = 0.25  # of the dropout that is tried


def checker(data):
    """The check of an exercise, whose answer is a class or a function."""
    return LayerChecker(data) if "biased" in data else verdict.Checker(data)


def parameters(source, method):
    """The names that a method takes after self, and of these the ones that must be given."""
    inside = source.partition(f"def {method}(")[2].partition(")")[0]
    parts = [part.strip() for part in inside.split(",")][1:]
    names = [(re.match("[*\\w]*", part).group(0), "=" in part) for part in parts if part]
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
            if not isinstance(told, list) or tuple(told) != result.error:
                return False
        elif abs(told - result.sums[0]) > verdict.RTOL * result.sums[1]:
            return False
    return True


class LayerChecker(verdict.Checker):
    """The check of a class that makes attention layers."""

    def examine(self, answer, source):
        if not (isinstance(answer, type) and issubclass(answer, T.nn.Module)):
            raise Mistake(say("Give the class itself, without calling it."))
        if is_idle(source, "forward"):
            raise NotYet(say("Put your code in the place of the dots").replace("run both cells", "check it"))
        self.Layer, self.source = answer, source
        try:
            state, text, evidence = self.found()
        except NotYet as reason:
            state, text, evidence = "not yet", str(reason), ""
        except Mistake as reason:
            state, text, evidence = "wrong", str(reason), ""
        if state != "right":
            found = [
                step for parts, step in LISTS["STEP_OF"] if [x for x in parts if re.search(x.lower(), text.lower())]
            ]
            text = say("Step {}: {}", found[0], text)
        return verdict.verdict(state, text, evidence)

    def found(self):
        """State, text and evidence."""
        self.refuse_unfinished()
        stages, number = [], 0
        for label, calls in self.data["stages"]:
            stages.append((label, []))
            for call in calls:
                stages[-1][1].append(self.result_of(call, number, "second call" in label))
                number += 1
        every = [result for _, results in stages for result in results]
        if all([result.error for result in every]):
            raise NotYet(self.in_words(say("The layer could not be called"), every[0].error + (every[0].line,)))
        wrong = [label for label, results in stages if any([result.problem() for result in results])]
        if wrong:
            return self.what_is_named(stages, wrong, every)
        try:
            broken = next(self.promises(), "")
        except (NotYet, Mistake):
            raise
        except Exception as error:
            broken = self.in_words(say("In training it cannot be called"), error)
            raise NotYet(say("The output is right.") + " " + broken) from None
        if broken:
            return "wrong", say("The output is right.") + " " + broken, ""
        return "right", self.data["praise"] + " " + self.of_empty_rows(), self.data["checked"]

    def refuse_unfinished(self):
        name = self.Layer.__name__
        if not hasattr(self.Layer, "forward"):
            raise NotYet(say("has no `forward` so far", name))
        for method in ("__init__", "forward"):
            if is_idle(self.source, method):
                raise NotYet(say("is still empty", method, name).replace("run both cells", "check it"))
        taken, needed = parameters(self.source, "__init__")
        if "__init__(" in self.source and "*" not in "".join(taken) and not len(needed) <= 3 <= len(taken):
            raise NotYet(say("Take all three", name, ", ".join(needed), name))
        errors = []
        for heads in HEADS:
            try:
                self.Layer(2 * heads, heads, 0.0)
            except Exception as error:
                errors.append(error_in_words(error, self.source))
        if len(errors) == len(HEADS):
            raise NotYet(self.in_words(say("The layer could not be made"), errors[0]))
        taken, needed = parameters(self.source, "forward")
        lengths = [name for name in taken if re.search("len|valid|\\*", name)]
        if len(needed) == 3 and not lengths:
            raise NotYet(say("`forward` takes no valid_lens."))

    def in_words(self, what, error):
        """An error in a sentence, and what to write next if that is known."""
        *words, line = error if isinstance(error, tuple) else error_in_words(error, self.source)
        said = ": ".join([x for x in words if x]).rstrip(".")
        text = say("{}: {} at “{}”.", what, said, line) if line else say("{}: {}.", what, said)
        for patterns, hint in LISTS["UNFINISHED"]:
            for found in [re.search(pattern, text) for pattern in patterns]:
                name = found.group(1) if found and "{0}" in hint else ""
                if found and (not name or "self." + name in line):
                    call = say("It is called as layer(", "queries, keys, values, valid_lens")
                    return text + " " + hint.replace("{call}", call).replace("{0}", name)
        return text

    def build(self, call, dropout=0.0, **options):
        """A layer in evaluation, with the matrices of a call."""
        given = [decoded(W) for W in call["W"]]
        size = given[0].shape[0]
        layer = self.Layer(size, call["heads"], dropout, **options)
        missing = [name for name in MATRICES if not hasattr(layer, name)]
        if missing:
            own = [name for name in layer.__dict__ if isinstance(getattr(layer, name), T.nn.Linear)]
            own = sorted(own, key=lambda name: self.source.find("self." + name)) if len(own) == 4 else ["…"] * 4
            raise NotYet(say("Name its four maps", ", ".join(missing), ", ".join(["layer." + name for name in own])))
        for at, name in enumerate(MATRICES):
            part = getattr(layer, name)
            if not isinstance(part, T.nn.Linear):
                raise NotYet(say("must be a matrix or an nn.Linear", name, kind_of(part)))
            if part.weight.shape != given[at].shape:
                raise NotYet(say("W_{} from `matrices` must be {}, got {}.", name[-1], (size, size), part.weight.shape))
            part.weight = given[at]
            if part.bias is not None:
                part.bias = decoded(call["b"][at]) if "b" in call else T.zeros(size)
        return layer.eval()

    def output(self, layer, inputs, lengths=None):
        """What a call returns, the first of several."""
        got = layer(*inputs) if lengths is None else layer(*inputs, lengths)
        while verdict.is_several(got) and len(got):
            got = got[0]
        if got is None:
            raise NotYet(say("`forward` returns nothing so far"))
        if not isinstance(got, T.Tensor) or got.shape != inputs[0].shape:
            raise ValueError(say("the output must be a tensor of shape", inputs[0].shape, kind_of(got)))
        return got

    def result_of(self, call, number, is_second):
        before, trial = [[decoded(X) for X in call["trial"]] for _ in range(2)]
        try:
            layer = self.build(call)
        except NotYet:
            raise
        except Exception as error:
            raise NotYet(self.in_words(say("The layer could not be made"), error)) from None
        try:
            if is_second:
                self.output(layer, trial[:3], trial[3].flip(0).clamp(max=trial[1].shape[1] - 1))
            got = Result(before, decoded(call["right"]), self.output(layer, trial[:3], trial[3]))
            got.sums = sums(got.value)
        except NotYet:
            raise
        except Exception as error:
            *words, line = error_in_words(error, self.source)
            got = Result(before, decoded(call["right"]), None, tuple(words), line)
        if not all([verdict.same_numbers(*both) for both in zip(before[:3], trial)]):
            raise Mistake(say("The layer changes what it is given in place"))
        got.number, got.heads = number, call["heads"]
        return got

    def is_random(self):
        call = self.data["weights"]
        layer, trial = self.build(call, RATE), [decoded(X) for X in call["trial"]]
        try:
            return not equal(self.output(layer, trial[:3], trial[3]), self.output(layer, trial[:3], trial[3]))
        except Exception:
            return False

    def what_is_named(self, stages, wrong, every):
        """A mistake that explains every call, or else one that explains the first wrong stage, and the border."""
        rows, border = self.data["mistakes"], border_of([label for label, _ in stages], wrong)
        name = next((row["text"] for row in rows if explains(row, every)), "")
        if not name and all([label.startswith("a second call") for label in wrong]):
            name = say("The layer keeps something from an earlier call")
        if not name and self.is_random():
            name = say("In evaluation, the same call gives another output each time.")
        of_first = dict(stages)[wrong[0]]
        bad = [result for label, results in stages if label in wrong for result in results if result.problem()]
        if not name and bad[0].error:
            error = ": ".join([x for x in bad[0].error if x])
            told = say("It raises {} at “{}”.", error, bad[0].line) if bad[0].line else say("It raises {}.", error)
            return "not yet", border + " " + told, ""
        if not name:
            alike = next((row["text"] for row in rows if explains(row, of_first)), "")
            name, border = (say("but not in all, it looks like this", alike), border) if alike else (border, "")
        shown = [result for result in bad if not result.error] or bad
        return "wrong", name, (border + " " + example_in_words(shown[0])).strip()

    def promises(self):
        """What a layer with the right output lacks."""
        call, (queries, keys, values, lengths) = self.data["weights"], map(decoded, self.data["weights"]["trial"])
        layer, inputs = self.build(call, RATE), [queries, keys, values]
        if self.is_random():
            yield say("In evaluation, the same call gives another output each time.")
        got = layer(*inputs, lengths)
        if not isinstance(got, T.Tensor):
            yield say("A call returns {}, not one tensor.", kind_of(got))
        told = getattr(layer, "attention_weights", None)
        yield from self.of_biases()
        try:
            same = equal(self.output(layer, inputs), self.output(layer, inputs, lengths * 0 + keys.shape[1]))
            alone = "" if same else say("Without valid_lens, some keys are masked.")
        except Exception as error:
            is_asked = len(parameters(self.source, "forward")[1]) > 3
            needed = say("Give valid_lens the default None.") if is_asked else say("valid_lens is None.")
            said = ": ".join([x for x in error_in_words(error, "")[:2] if x]).rstrip(".")
            alone = say("A call without valid_lens raises", said) + " " + needed
        if alone:
            yield alone
        yield from self.of_weights(layer, inputs, told, decoded(call["right"]))

    def of_biases(self):
        call = self.data["biased"]
        try:
            layer = self.build(call, bias=True)
        except TypeError as error:
            yield say("With `bias=True` the layer cannot be made", error)
            return
        for made, wanted in ((layer, True), (self.build(call), False)):
            other = [name for name in MATRICES if (getattr(made, name).bias is not None) != wanted]
            names = ", ".join(other)
            if len(other) == 1:
                yield say("With `bias=True`, {} has no bias.", names) if wanted else say("`bias`, {} has a bias", names)
            elif other:
                yield (
                    say("With `bias=True`, {} have no bias.", names) if wanted else say("`bias`, {} have a bias", names)
                )
        trial = [decoded(X) for X in call["trial"]]
        if not equal(self.output(layer, trial[:3], trial[3]), decoded(call["right"])):
            yield say("With `bias=True`, the output is not the formula's.")

    def of_weights(self, layer, inputs, told, right):
        averaged = right.mean(1)
        if not isinstance(told, T.Tensor):
            yield say("It reports no weights")
        elif equal(told, averaged):
            yield say("The weights that it reports are averaged over the heads.")
        elif told.shape != right.shape:
            yield say("The weights that it reports have the shape", told.shape, right.shape)
        elif first_difference(told, right):
            yield say("The weights that it reports are not those of the formula.")
        else:
            layer.train()(*inputs)
            zeros = [x for x in layer.attention_weights._flat() if x == 0]
            if len(zeros) > 0.1 * right.numel():
                yield say("The weights that it reports are those after dropout.")

    def of_empty_rows(self):
        """What the layer gives for an example without a valid key."""
        call = self.data["biased"]
        layer, inputs = self.build(call), [decoded(X) for X in call["trial"][:3]]
        try:
            flat = self.output(layer, inputs, T.tensor([inputs[1].shape[1], 0]))[1]._flat()
        except Exception as error:
            return say("An example without a valid key raises", type(error).__name__)
        if max([abs(x) for x in flat]) < 1e-6:
            return say("An example without a valid key gets zeros.")
        is_nan = any([x != x for x in flat])
        return say("without a valid key gets NaN.") if is_nan else say("without a valid key gets an average")


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
    return say("Smallest example", queries.shape, keys.shape, lengths.tolist(), result.heads, place, *numbers)
