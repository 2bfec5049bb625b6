"""The verdict on an answer that was written on a page: what mha_course.checking does, on values computed there.

CPython and MicroPython read it. Its sentences are those of mha_course.checking: ``say`` knows each by a few of its
words.
"""

import io
import math
import re
import sys

import tensor as T

RTOL, ATOL = 1e-4, 1e-5
WORDS = {}  # a few words of a sentence → the sentence, with {} where values go; filled by ``use``
LISTS = {}  # name of a table in mha_course → its sentences


class NotYet(Exception):
    """There is no answer yet. A second argument names the part of it that the first one is about."""


class Mistake(Exception):
    """The answer is wrong. A second argument names the part of it that the first one is about."""


def use(words):
    """Take the sentences that pages.export has read from mha_course."""
    WORDS.update(words["sentences"])
    LISTS.update(words["lists"])


def say(key, *values):
    return WORDS[key].format(*values)


def verdict(state, text, evidence=""):
    return {"state": state, "text": text, "evidence": evidence}


# --- values


def decoded(value):
    """A value as mha_course.exercises.on_a_page has written it."""
    if not isinstance(value, dict):
        return value
    if "f" in value:
        return float(value["f"])
    if "t" in value:
        numbers = [float(x) if isinstance(x, str) else x for x in value["v"]]
        return T._made(numbers, value["s"], T.DTYPES[value["t"]])
    parts = [decoded(part) for part in value["l"]]
    return tuple(parts) if value["u"] else parts


def is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def is_several(x):
    return isinstance(x, (list, tuple))


def as_tensor(value):
    if isinstance(value, T.Tensor):
        return value
    if is_number(value):
        return T.tensor(value, T.float64 if isinstance(value, float) else None)
    if is_several(value) and len(value):
        if all([is_number(x) or (isinstance(x, T.Tensor) and not x.shape) for x in value]):
            return T.tensor([float(x.item() if isinstance(x, T.Tensor) else x) for x in value], T.float64)
        if all([isinstance(x, T.Tensor) and x.shape == value[0].shape for x in value]):
            return T.stack(value)
    return None


def unpacked(value, shape):
    """The numbers in nested lists, tuples and dictionaries, if they are in this shape."""
    value = list(value.values()) if isinstance(value, dict) else value
    if is_several(value):
        parts = [unpacked(part, shape[1:]) for part in value] if shape[:1] == (len(value),) else []
        return T.stack(parts) if parts and not [part for part in parts if part is None] else None
    X = as_tensor(value)
    return X if X is not None and X.shape == shape else None


def close(x, y):
    if x == y or (x != x and y != y):
        return True
    return abs(x) < math.inf and abs(y) < math.inf and abs(x - y) <= ATOL + RTOL * abs(y)


def first_difference(got, right):
    for i, (x, y) in enumerate(zip(got._flat(), right._flat())):
        if not close(x, y):
            return [i // step % size for step, size in zip(T._row_major(right.shape), right.shape)]
    return None


def equal(got, right):
    return got is not None and got.shape == right.shape and first_difference(got, right) is None


# --- words


def kind_of(value):
    if isinstance(value, T.Tensor):
        return say("a tensor of shape {}", value.shape)
    if value is None:
        return "None"
    name = type(value).__name__
    name = ("an " if name[0].lower() in "aeiou" else "a ") + name
    return f"{name} of {len(value)}" if isinstance(value, (list, tuple, dict)) else name


def given(value):
    if not is_several(value) or not value:
        return kind_of(value)
    if all([is_number(x) for x in value]):
        return f"{kind_of(value)} number{'s' * (len(value) > 1)}"
    parts = sorted(set([kind_of(x) for x in value]))
    listed = ", ".join(parts[:3]) + " and more" * (len(parts) > 3)
    return kind_of(value) + (", each " if len(parts) == 1 < len(value) else " that holds ") + listed


def two_numbers(got, right):
    if all([abs(x) < 1e9 and x == int(x) for x in (got, right) if x == x]) and got == got and right == right:
        return f"{got:.0f}", f"{right:.0f}"
    for digits in range(3, 17):
        form = "{:." + str(digits) + "g}"
        texts = form.format(got), form.format(right)
        if texts[0] != texts[1]:
            break
    return texts


def two_tags(got, right):
    """As mha_course.exercises.transposing writes numbers whose digits say where they are from."""

    def read(x):
        x = int(x)
        return x // 1000, x // 100 % 10, x // 10 % 10, x % 10

    def is_tag(x):
        return 0 <= x < 2000 and x == int(x) and all([a < b for a, b in zip(read(x), (2, 4, 2, 3))])

    if got == right or not (is_tag(got) and is_tag(right)):
        return two_numbers(got, right)
    rows = [row for row in zip(LISTS["DIGITS"], read(got), read(right)) if row[1] != row[2]]
    words = [", ".join([f"{row[0]} {row[side]}" for row in rows]) for side in (1, 2)]
    return f"{int(got)} ({words[0]})", f"{int(right)} ({words[1]})"


def trimmed(text, length):
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def sentence(words):
    return words[0].upper() + words[1:] + "."


def joined(error):
    """Kind and message of an error."""
    return ": ".join([x for x in error if x]).rstrip(".")


def call_in_words(names, trial):
    shown = []
    for name, value in zip(names, trial):
        if not isinstance(value, T.Tensor):
            written = f"{name} = {value!r}"
            shown.append((0, written if len(written) <= 40 and value is not None else ""))
        elif value.dtype.rank < 2 and value.numel() <= 12:
            shown.append((1, f"{name} {value.tolist()}"))
        else:
            shown.append((2, f"{name} of shape {value.shape}"))
    listed = [words for rank in range(3) for r, words in shown if r == rank and words][:2]
    return "with " + " and ".join(listed) if listed else ""


def error_in_words(error, source):
    """Kind and first line of an error, and the learner's line that raised it."""
    lines = str(error).strip().split("\n")
    number = 0
    if T.IS_MICROPYTHON:
        out = io.StringIO()
        sys.print_exception(error, out)
        numbers = re.compile('"<string>", line ').split(out.getvalue())[1:]
        number = int(re.match("\\d+", numbers[-1]).group(0)) if numbers else 0
    else:
        at = error.__traceback__
        while at:
            number = at.tb_lineno if at.tb_frame.f_code.co_filename == "<string>" else number
            at = at.tb_next
    number = getattr(error, "lineno", None) or number
    own = source.split("\n")
    return type(error).__name__, trimmed(lines[0], 160), own[number - 1].strip() if 0 < number <= len(own) else ""


# --- results


class Result:
    """One call: what came of it, beside the tensor that is right."""

    def __init__(self, trial, right, value=None, error=None, line=""):
        self.trial, self.right, self.value, self.error, self.line = trial, right, value, error, line
        self.any_form = None if error else as_tensor(value)
        self.numbers = self.any_form if isinstance(value, T.Tensor) else None

    def problem(self, words=two_numbers):
        got, right = self.numbers, self.right
        if self.error:
            at = trimmed(self.line, 60)
            return say("your code raises {} at “{}”" if at else "your code raises {}", joined(self.error), at)
        if got is None:
            return say("your function returns", kind_of(right) + " is needed", given(self.value))
        if got.shape != right.shape:
            return say("the shape must be", right.shape, got.shape)
        place = first_difference(got, right)
        if place is not None:
            yours, other = words(got[tuple(place)].item(), right[tuple(place)].item())
            return say("position {} holds {} instead of {}", place, yours, other)
        return say("must be floating-point numbers", got.dtype) if got.dtype.rank < 2 else None

    def is_packed_otherwise(self):
        if self.error or (self.numbers is not None and self.numbers.shape == self.right.shape):
            return False
        return equal(unpacked(self.value, self.right.shape), self.right)


def explains(row, results):
    """Whether a mistake gives what the answer gave, in every call so far, and is wrong in some."""
    if not any(row["wrong"][: len(results)]):
        return False
    for told, result in zip(row["of"], results):
        if result.error or "e" in told:
            if tuple(told.get("e", ())) != result.error:
                return False
        elif result.value is None and told.get("r", 0) is None:
            continue
        elif result.any_form is None or "r" not in told or not equal(as_tensor(decoded(told["r"])), result.any_form):
            return False
    return True


def form(results):
    wrong = [result for result in results if result.problem()]
    start = "The numbers are right, but they come"
    if all([isinstance(result.value, tuple) and len(result.value) == 1 for result in wrong]):
        bad = [one for one in wrong if Result(one.trial, one.right, one.value[0]).problem()]
        yield say("returns a tuple of 1 part" if bad else "they come as a tuple", say("as a comma behind"))
    if all([result.is_packed_otherwise() for result in wrong]):
        yield f"{start} as {given(wrong[0].value)}; {kind_of(wrong[0].right)} is needed."


def meanings(message):
    for patterns, meaning in LISTS["ERRORS"]:
        for pattern in patterns:
            found = re.search(pattern, message)
            if found:
                count = 2 if "{1}" in meaning else 1 if "{0}" in meaning else 0
                yield say("An error is raised", meaning.format(*[found.group(i + 1) for i in range(count)]))
                break


# --- what is true of results that no mistake of the table explains

FORMS = (T.Tensor.neg, lambda X: 1 - X, T.Tensor.reciprocal, T.Tensor.square, T.Tensor.sqrt, T.Tensor.exp, T.Tensor.log)
FORMS += (T.Tensor.abs, T.Tensor.relu)
ALONG_AN_AXIS = (T.Tensor.sum, T.Tensor.mean, lambda X, d: X.select(d, 0), T.Tensor.softmax, T.Tensor.flip)
ALONG_AN_AXIS += (lambda X, d: X.roll(1, d), lambda X, d: X.roll(-1, d))


def one_change(results, pairs):
    for number in range(len(results[0].trial)):
        own = [as_tensor(result.trial[number]) for result in results]
        if all([X is not None and equal(X, got) for X, (got, _) in zip(own, pairs)]):
            yield say("counted from 0, as it was given", number)
    count, forms = pairs[0][1].dim(), list(zip(LISTS["FORMS"], FORMS))
    for i in range(count):
        for j in range(i + 1, count):
            forms.append((say("are exchanged", i, j), lambda X, i=i, j=j: X.transpose(i, j)))
    for d in range(count):
        along = zip(LISTS["ALONG_AN_AXIS"], ALONG_AN_AXIS)
        forms += [(text.format(d), lambda X, f=f, d=d: f(X, d)) for text, f in along]
    for text, change in forms:
        if all([equal(got, change(right)) for got, right in pairs]):
            yield text
    if all([equal(got.flatten(), right.flatten()) for got, right in pairs]):
        yield say("split or merged in another way")
    told = (ratio, lambda x: say("times what it should be", x)), (shift, lambda x: say("is added.", x))
    for found, said in told:
        numbers = [found(*pair) for pair in pairs]
        if all([x == x for x in numbers]) and max(numbers) - min(numbers) < 1e-3 * max([abs(x) for x in numbers]):
            yield said(f"{numbers[0]:.4g}")
    distinct = [set(got._flat()) for got, _ in pairs]
    if len(pairs) > 1 and len(set([x for own in distinct for x in own])) == 1:
        yield say("All numbers of the result are the same")
    if all([len(own) == 1 < right.numel() and got.shape == right.shape for own, (got, right) in zip(distinct, pairs)]):
        yield say("Within a call all numbers of the result")


def marks(pairs):
    if any([got.shape != right.shape for got, right in pairs]):
        return
    if any([not got.isfinite().all() for got, _ in pairs]):
        yield say("The result holds NaN or infinity")
        return
    for found, what in ((ratio, "factor"), (shift, "number that is added")):
        numbers = [found(*pair) for pair in pairs]
        if all([abs(x) < math.inf for x in numbers]) and all([right.numel() > 1 for _, right in pairs]):
            yield say("which changes from call to call", what, ", ".join([f"{x:.3g}" for x in numbers]))
    for axis in range(pairs[0][1].dim()):
        yield from rearranged(pairs, axis, say("the entries", axis))
    for text, holds in zip(LISTS["PROPERTIES"], PROPERTIES):
        if all([got.dim() and holds(got, right) for got, right in pairs]):
            yield text


def rearranged(pairs, axis, what):
    """Where the first misplaced entry comes from, if all entries of every call are among the right ones."""
    moved, twice, one_for_all = [], False, True
    for got, right in pairs:
        rows, wanted = [[list(part._flat()) for part in X.unbind(axis)] for X in (got, right)]
        same = [[max([abs(x - y) for x, y in zip(row, other)]) < 1e-5 for other in wanted] for row in rows]
        if not all([any(row) for row in same]):
            return
        one_for_all = one_for_all and equal(got, got.narrow(axis, 0, 1).expand(got.shape))
        alike = [len([1 for other in same if any([a and b for a, b in zip(row, other)])]) for row in same]
        twice = twice or alike != [sum(row) for row in same]
        moved += [(place, row.index(True)) for place, row in enumerate(same) if not row[place]]
    if moved and not one_for_all and not (twice and pairs[0][1].dim() == 1):
        yield say("more than once", what, *moved[0]) if twice else say("in another order", what, *moved[0])


def ratio(got, right):
    if got.shape != right.shape or not any(right._flat()):
        return math.nan
    factor = sum([x * y for x, y in zip(got._flat(), right._flat())]) / sum([y * y for y in right._flat()])
    return factor if abs(factor) > 1e-6 and equal(got, right * factor) else math.nan


def shift(got, right):
    if got.shape != right.shape or not got.numel():
        return math.nan
    mean = sum([x - y for x, y in zip(got._flat(), right._flat())]) / got.numel()
    return mean if equal(got, right + mean) else math.nan


def sum_to_one(X, axis):
    return X.dim() > 1 and min(X._flat()) >= 0 and equal(X.sum(axis), T.ones_like(X.sum(axis)))


PROPERTIES = (
    lambda got, right: all([close(x, y) for x, y in zip(sorted(got._flat()), sorted(right._flat()))]),
    lambda got, right: sum_to_one(right, -1) and not sum_to_one(got, -1) and sum_to_one(got, -2),
    lambda got, right: sum_to_one(right, -1) and not sum_to_one(got, -1),
    lambda got, right: len(got) > 1 and all([equal(row, got[0]) for row in got]),
    lambda got, right: right.dim() > 1 and len(got) > 1 and equal(got[0], right[0]),
)


def boundary(results, names, stages):
    """Which kind of call is right and which is wrong: by the stages of the check, or by one argument."""
    if len(stages) > 1 and all(stages):
        yield say("Right {}, but not {}.", ", ".join(stages[:-1]), stages[-1])
    told = []
    for number, name in enumerate(names):
        values = [(one.trial[number], one.problem() is None) for one in results if isinstance(one.trial[number], int)]
        good, bad = [sorted(set([x for x, ok in values if ok == side])) for side in (True, False)]
        if good and bad and len(results) > 2 and (good[-1] < bad[0] or bad[-1] < good[0]):
            words = [" or ".join([str(x) for x in some]) for some in (good, bad)]
            told.append(say("; wrong with {} = ", name, words[0], name, words[1]))
    yield from told if len(told) == 1 else []


# --- the check


class Checker:
    """The check of one exercise."""

    def __init__(self, data):
        self.data = data
        self.words = two_tags if data["tags"] else two_numbers

    def namespace(self):
        """The names that the notebook has at hand."""
        names = {"torch": T.torch, "nn": T.nn, "F": T.F, "math": math, "Tensor": T.Tensor, "__name__": "__main__"}
        if T.IS_MICROPYTHON:  # which makes slices by indexing alone, and would compute 2.0 * X by float(X)
            names["slice"] = lambda first, *more: (
                T.Cut()[first : more[0] : more[1] if len(more) > 1 else None] if more else T.Cut()[:first]
            )
            names["float"] = lambda x=0.0: float(x.item() if isinstance(x, T.Tensor) else x)
        exec(compile(self.data["helpers"], "<helpers>", "exec"), names)  # whose lines are not the learner's
        return names

    def check(self, source):
        names = self.namespace()
        try:
            exec(source, names)
        except Exception as error:
            kind, said, line = error_in_words(error, source)
            return verdict("error", f"{kind}: {said}" + (f" at “{line}”" if line else ""))
        try:
            answer = names.get(self.data["name"])
            if answer is None:
                raise NotYet(f"Keep the name `{self.data['name']}`.")
            return self.examine(answer, source)
        except NotYet as reason:
            return verdict("not yet", reason.args[0])
        except Mistake as reason:
            return verdict("wrong", reason.args[0])

    def result_of(self, answer, call, source):
        trial, own = [[decoded(x) for x in call["trial"]] for _ in range(2)]
        right = decoded(call["right"])
        try:
            value = answer(*own)
        except Exception as error:
            kind, said, line = error_in_words(error, source)
            if kind == "NotImplementedError" and not said:
                raise NotYet(say("Write the function first").replace("run both cells", "check it")) from None
            return Result(trial, right, None, (kind, said), line)
        for name, before, after in zip(self.data["names"], trial, own):
            if isinstance(before, T.Tensor) and not same_numbers(before, after):
                raise Mistake(say("result is right: work on a new tensor", f"`{name}`"))
        return Result(trial, right, None if value is Ellipsis else value)

    def examine(self, answer, source):
        results, passed = [], []
        for where, calls in self.data["stages"]:
            of_stage = [self.result_of(answer, call, source) for call in calls]
            if all([result.value is None and not result.error for result in of_stage]):
                raise NotYet(say("printing is not") if "print(" in source else say("nothing so far."))
            results += of_stage
            passed.append(where)
            if any([result.problem() for result in results]):
                return self.what_is_wrong(results, passed, source)
        return verdict("right", self.data["praise"])

    def what_is_wrong(self, results, stages, source):
        failed = [result for result in results if result.error]
        text = next(self.named(results), "")
        shown = [result for result in results if result.problem()][0]
        if failed and (not text or "error" in text):
            shown, text = failed[0], text or next(self.errors(failed[0]), "")
        text = text or ("" if failed else next(self.described(results, stages, source), ""))
        call = ", ".join([words for words in (call_in_words(self.data["names"], shown.trial), stages[-1]) if words])
        seen = sentence(shown.problem(self.words)) + (" " + say("Seen", call) if call else "")
        return verdict("wrong", text or seen, seen if text else "")

    def named(self, results):
        yield from form(results)
        for row in self.data["mistakes"]:
            if explains(row, results):
                yield row["text"]

    def errors(self, failed):
        kind, message = failed.error
        if kind == "TypeError" and "argument" in message and not failed.line:
            yield say("must take these arguments", ", ".join(self.data["names"]))
        yield from meanings(message)

    def described(self, results, stages, source):
        pairs = [(one.numbers, one.right) for one in results if one.numbers is not None]
        if len(pairs) == len(results) and not all([equal(*pair) for pair in pairs]):
            yield from one_change(results, pairs)
        else:
            pairs = []
        parts = [one.value for one in results if is_several(one.value)]
        for number in range(min([len(part) for part in parts]) if len(parts) == len(results) else 0):
            if all([equal(as_tensor(part[number]), one.right) for part, one in zip(parts, results)]):
                yield say("it alone is asked for", number)
        yield from marks(pairs) if pairs else []
        body = re.compile("[^A-Za-z0-9_]+").split(source[source.find(":") :])
        for name in self.data["used"]:
            if name not in body:
                yield say("Your code does not use", name)
        yield from boundary(results, self.data["names"], stages)


def same_numbers(before, after):
    """Whether a tensor is what it was."""
    alike = [x == y or x != x for x, y in zip(before._flat(), after._flat())]
    return before.shape == after.shape and all(alike)
