"""Six questions on paper, with numbers drawn by a seed: ``python -m classroom.papers 7`` (make papers SEED=7).

Writes build/papers/7/questions.html for a class, and answers.html beside it: a model answer to each, and what each of
its five points is given for. Both are to be printed.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

BUILD = Path(__file__).resolve().parents[1] / "build" / "papers"
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>@page {{ size: A4; margin: 15mm }}
body {{ font: 11pt/1.45 serif; max-width: 175mm; margin: 8mm auto; padding: 0 4mm; color: #111; background: #fff }}
h1 {{ font-size: 15pt }} h2 {{ font-size: 12pt; margin: 6mm 0 1mm }} section {{ break-inside: avoid }}
table {{ border-collapse: collapse }} td {{ border-top: 1px solid #999; padding: 1mm 4mm 1mm 0; vertical-align: top }}
</style><h1>{title}</h1><p>{head}</p>{sections}</html>
"""
HEAD = (
    "Sheet {seed}. {points} points, {minutes} minutes, on paper. Notation: a token is a row of d numbers, there are n "
    "tokens and h heads, and a head has the size p = d / h. Give a reason for each step. "
    "Where a reason is asked, a result alone does not earn its point. A slip in arithmetic costs "
    "one point, once: what follows from it is marked as right."
)
NAME = "Name: ____________________________</p><p>"


class Question(NamedTuple):
    """A question on paper.

    Attributes:
        title, asked, answer: HTML, with names of numbers in braces.
        rubric: pairs (points, what they are given for).
        numbers: of a random generator: what is drawn, and what follows from it, by name.
    """

    title: str
    asked: str
    answer: str
    rubric: tuple[tuple[int, str], ...]
    numbers: Callable[[random.Random], dict[str, Any]]


def variances(draw: random.Random) -> dict[str, Any]:
    p, a, b = draw.choice([16, 64, 256]), draw.choice([4, 9]), draw.choice([1, 4])
    return {"p": p, "a": a, "b": b, "variance": p * a * b, "divisor": round((p * a * b) ** 0.5)}


def reshape(draw: random.Random) -> dict[str, Any]:
    h, n, p = draw.choice([2, 3]), draw.choice([6, 7, 8]), draw.choice([4, 5])
    places = [(i, j) for i in range(1, h) for j in range(1, n - 1) if (i * n + j) // h != j]
    i, j = draw.choice(places)
    token, part = divmod(i * n + j, h)
    drawn = {"h": h, "n": n, "p": p, "d": h * p, "i": i, "j": j}
    found = {"token": token, "first": part * p, "last": part * p + p - 1, "ntoken": (n - 1) // h}
    return drawn | found | {"own_first": i * p, "own_last": i * p + p - 1, "end": n - 1}


def over_heads(draw: random.Random) -> dict[str, Any]:
    x, y = draw.sample(range(2, 8), 2)
    (a, b), (c, d) = draw.sample(range(1, 10), 2), draw.sample(range(-9, 0), 2)
    return {"x": x, "y": y, "a": a, "b": b, "c": c, "d": d, "one": x * a + y * c, "two": x * b + y * d,
            "xa": x * a, "xb": x * b}  # fmt: skip


def costs(draw: random.Random) -> dict[str, Any]:
    d, h = draw.choice([256, 512, 1024]), draw.choice([4, 8, 16])
    n = d * draw.choice([1, 4, 8])
    return {"n": n, "d": d, "h": h, "p": d // h, "maps": 4 * n * d * d, "products": 2 * n * n * d,
            "parameters": 4 * d * d, "equal": 2 * d, "weights": h * n * n}  # fmt: skip


def one_head(draw: random.Random) -> dict[str, Any]:
    keys, tenths = draw.sample(range(-9, 10), 6), draw.choice([6, 7, 8])
    a = tenths / 10
    return {"keys": ", ".join(map(str, keys)), "a": a, "rest": round(1 - a, 1), "times": round(2 * a - 1, 1),
            "largest": max(keys), "smallest": min(keys)}  # fmt: skip


def softmax(draw: random.Random) -> dict[str, Any]:
    k = draw.choice([2, 6])  # weights 1/2 and two quarters, or 3/4 and two eighths
    one, two, three = (8 * number for number in draw.sample(range(-3, 6), 3))
    below = k + 2
    mean = (k * one + two + three) / below
    slopes = [weight * (value - mean) / below for weight, value in ((k, one), (1, two), (1, three))]
    names = dict(zip(("s1", "s2", "s3"), (f"{slope:g}" for slope in slopes), strict=True))
    return {"k": k, "below": below, "v1": one, "v2": two, "v3": three, "o": f"{mean:g}", **names}


QUESTIONS = (
    Question(
        "Why √p?",
        "A query q and a key k have {p} numbers each, all independent, all with mean 0. Those of q have the variance "
        "{a}, those of k the variance {b}. Derive the variance of the score q · k. By which number must scores be "
        "divided to have the variance 1? What is it in general, for p numbers of variance 1?",
        "A product q<sub>i</sub>k<sub>i</sub> has the mean E q<sub>i</sub> · E k<sub>i</sub> = 0, as both are "
        "independent. So its variance is E(q<sub>i</sub>² k<sub>i</sub>²) = E q<sub>i</sub>² · E k<sub>i</sub>² = "
        "{a} · {b}. The {p} products are independent of one another, so their variances add up: {p} · {a} · {b} = "
        "<b>{variance}</b>. Dividing by c divides the variance by c², so the divisor is √{variance} = "
        "<b>{divisor}</b>. With variances of 1 it is √p, where p is the size of the vectors that one head compares.",
        (
            (1, "the mean of a product is 0, by independence"),
            (2, "its variance is the product of the variances, with the reason"),
            (1, "variances of independent terms add up"),
            (1, "dividing by c divides the variance by c²; {divisor} and √p"),
        ),
        variances,
    ),
    Question(
        "Why one reshape cannot be right",
        "X holds one example: {n} tokens of {d} features, of which head i owns the features i · {p} to i · {p} + {p} − "
        "1. Somebody splits it into {h} heads by <code>X.reshape({h}, {n}, {p})</code>. (a) Which numbers of which "
        "token are in row {j} of matrix {i}, and which should be there? (b) From which tokens does matrix 0 hold "
        "numbers? (c) Why can no parameters of the layer make up for it? (d) For which n and h is it right?",
        "(a) A reshape keeps the order of the numbers. Row {j} of matrix {i} begins after {i} · {n} + {j} rows of {p} "
        "numbers, and a token has {h} such pieces. So it is a piece of token ({i} · {n} + {j}) // {h} = "
        "<b>{token}</b>, its features <b>{first} to {last}</b>. There should be token {j}, features {own_first} to "
        "{own_last}. (b) Its rows are the first {n} pieces, which belong to tokens <b>0 to {ntoken}</b>; it should "
        "have all, 0 to {end}. (c) W<sub>q</sub>, W<sub>k</sub>, W<sub>v</sub> act on each token alone, before the "
        "reshape: they change what a token's pieces hold, and bring nothing of a later token into matrix 0. So head 0 "
        "cannot attend to the other tokens. W<sub>o</sub> acts on each token alone after the heads are joined. "
        "Joined by a reshape back to ({n}, {d}), token 0 gets the first {h} rows of matrix 0, so token 0's output "
        "never depends on token {end}. (d) For h = 1, or n = 1: then pieces are in the same order either way. "
        "Only then: for h &gt; 1 and n &gt; 1, row 1 of matrix 0 should begin with token 1, feature 0, and the "
        "reshape puts piece 1 of token 0 there.",
        (
            (1, "a reshape keeps the order of the numbers"),
            (1, "(a) token and features, and what should be there"),
            (1, "(b) the tokens of matrix 0"),
            (1, "(c) parameters act on each token alone"),
            (1, "(d) one head, or one token, and why no others"),
        ),
        reshape,
    ),
    Question(
        "The sum over heads",
        "The outputs of the heads, H<sub>0</sub> to H<sub>h−1</sub>, each (n, p), are concatenated and multiplied by "
        "W<sub>o</sub>, (h · p, d). (a) Prove that the result is a sum over heads, and say which part of W<sub>o</sub> "
        "belongs to head i. (b) One token, two heads of size 1: H<sub>0</sub> = {x}, H<sub>1</sub> = {y}, "
        "W<sub>o</sub> has the rows ({a}, {b}) and ({c}, {d}). What is the output, and what is it without head 1? (c) "
        "Why is setting a slice of the <em>output</em> to 0 not the removal of a head?",
        "(a) Number (t, j) of the product is Σ<sub>c</sub> [H<sub>0</sub> … H<sub>h−1</sub>]<sub>tc</sub> "
        "(W<sub>o</sub>)<sub>cj</sub>, with c from 0 to h · p − 1. Split this sum by heads: for c from i · p to "
        "i · p + p − 1 the first factor is from H<sub>i</sub>, so these terms are number (t, j) of H<sub>i</sub> "
        "W<sub>o</sub><sup>(i)</sup>, where W<sub>o</sub><sup>(i)</sup> is rows i · p to i · p + p − 1 of "
        "W<sub>o</sub>. (b) {x} · ({a}, {b}) + {y} · ({c}, {d}) = <b>({one}, {two})</b>; without head 1 its term is "
        "left out: <b>({xa}, {xb})</b>. (c) In general every number of the output "
        "is a sum over all heads, so a slice cuts off a part of each (with W<sub>o</sub> = identity a slice would be "
        "the head).",
        (
            (1, "(a) the product as a sum over c"),
            (1, "(a) this sum split by heads"),
            (1, "(a) the p rows of W<sub>o</sub> of head i"),
            (1, "(b) both results"),
            (1, "(c) each number of the output is a sum over all heads"),
        ),
        over_heads,
    ),
    Question(
        "What attention costs",
        "A layer reads n = {n} tokens with d = {d} and h = {h} heads of size {p}. (a) How many multiplications do the "
        "four matrices take, how many do the scores and the averages together? Give the formulas, then the numbers. "
        "(b) For which n are both equal? (c) How many parameters does the layer have, without biases? (d) The number "
        "of heads doubles, d stays: which of these numbers change? How many attention weights are computed, and how "
        "does that number change?",
        "(a) A product of (n, d) with (d, d) takes n · d · d multiplications, and there are four: 4nd² = "
        "<b>{maps:,}</b>. In a head, scores are (n, p) times (p, n): n²p; the averages are (n, n) times (n, p): n²p "
        "again. For h heads that is 2n²hp = 2n²d = <b>{products:,}</b>. (b) 4nd² = 2n²d gives n = 2d = "
        "<b>{equal:,}</b>. (c) 4d² = <b>{parameters:,}</b>. (d) None: h does not stand in the formulas, since a head "
        "becomes half as large. The weights are h · n² = <b>{weights:,}</b> numbers, and become twice as many.",
        (
            (1, "(a) 4nd², with the reason"),
            (1, "(a) 2n²d, with the reason: hp = d"),
            (1, "(b) n = 2d"),
            (1, "(c) 4d²"),
            (1, "(d) only the h · n² weights change"),
        ),
        costs,
    ),
    Question(
        "What one head cannot do",
        "(a) A head gives the verb the weight {a} on the noun before it, whose value is u, and {rest} on the noun "
        "after it, whose value is v. By what does the output change if the two nouns change places? For which weights "
        "can no layer that reads the output tell who did it to whom? How do two heads avoid this? (b) Queries and keys "
        "of a head have the size 1. The keys are {keys}. Which can get more weight than every other key? Prove it.",
        "(a) Before, the output is {a} u + {rest} v, afterwards {a} v + {rest} u: it changes by {times} (v − u), in "
        "general by (2a − 1)(v − u). For a = <b>1/2</b> it does not change, so nothing that reads it can tell the two "
        "apart. With two heads, one gives all its weight to the noun before the verb, the other to the noun after it; "
        "their outputs are u and v, side by side. (b) The scores of a query q are q · k. For q &gt; 0 they are in the "
        "order of the keys, so <b>{largest}</b> gets the most; for q &lt; 0 in the reverse order, so <b>{smallest}</b> "
        "does; for q = 0 all weights are equal. No query gives a key in between more weight than every other key.",
        (
            (1, "(a) the change of the output"),
            (1, "(a) equal weights, with the reason"),
            (1, "(a) a noun for each head, or any two heads with different weights, with the reason"),
            (1, "(b) the two keys"),
            (1, "(b) the proof: the sign of q decides the order"),
        ),
        one_head,
    ),
    Question(
        "The gradient of the softmax",
        "α = softmax(s), and a head's output is o = Σ<sub>j</sub> α<sub>j</sub> v<sub>j</sub> with numbers "
        "v<sub>j</sub>. (a) Derive ∂α<sub>j</sub> / ∂s<sub>i</sub>. (b) Show that ∂o / ∂s<sub>i</sub> = α<sub>i</sub> "
        "(v<sub>i</sub> − o). (c) Compute o and its three derivatives for s = (ln {k}, 0, 0) and v = ({v1}, {v2}, "
        "{v3}). (d) What does (b) say where one weight is near 1?",
        "(a) α<sub>j</sub> = exp(s<sub>j</sub>) / Z, Z = Σ<sub>m</sub> exp(s<sub>m</sub>), ∂Z / ∂s<sub>i</sub> = "
        "exp(s<sub>i</sub>). The quotient rule gives (δ<sub>ij</sub> exp(s<sub>j</sub>) Z − exp(s<sub>j</sub>) "
        "exp(s<sub>i</sub>)) / Z² = α<sub>j</sub> (δ<sub>ij</sub> − α<sub>i</sub>), where δ<sub>ij</sub> is 1 for i = "
        "j, else 0. (b) ∂o / ∂s<sub>i</sub> = Σ<sub>j</sub> v<sub>j</sub> α<sub>j</sub> (δ<sub>ij</sub> − "
        "α<sub>i</sub>) = α<sub>i</sub> v<sub>i</sub> − α<sub>i</sub> Σ<sub>j</sub> α<sub>j</sub> v<sub>j</sub> = "
        "α<sub>i</sub> (v<sub>i</sub> − o). (c) The weights are {k}/{below}, 1/{below}, 1/{below}, so o = <b>{o}</b>, "
        "and the derivatives are <b>{s1}, {s2}, {s3}</b>; they add up to 0. (d) If α<sub>1</sub> is near 1, o is near "
        "v<sub>1</sub>, so its derivative is near 0; those of the others are, as their weights are. So gradient "
        "descent hardly changes this query's scores.",
        (
            (1, "(a) the derivative, for i = j and for i ≠ j, by the quotient rule"),
            (1, "(b) the sum"),
            (2, "(c) o (1); the three derivatives (1)"),
            (1, "(d) all derivatives are near 0, with both reasons"),
        ),
        softmax,
    ),
)


def numbers_of(seed: int, question: Question) -> dict[str, Any]:
    """Return the numbers of a question on the sheet of a seed."""
    return question.numbers(random.Random(f"paper {seed} {question.title}"))


def sheets(seed: int) -> tuple[str, str]:
    """Return the questions of a seed as HTML, and the same with answers and points."""
    asked, answered = "", ""
    for place, question in enumerate(QUESTIONS, start=1):
        numbers = numbers_of(seed, question)
        points = sum(points for points, _ in question.rubric)
        text = f"<h2>{place}. {question.title} ({points} points)</h2><p>{question.asked.format(**numbers)}</p>"
        rows = "".join(
            f"<tr><td>{points}</td><td>{what.format(**numbers)}</td></tr>" for points, what in question.rubric
        )
        asked += f"<section>{text}</section>"
        answered += f"<section>{text}<p>{question.answer.format(**numbers)}</p><table>{rows}</table></section>"
    total = sum(points for question in QUESTIONS for points, _ in question.rubric)
    head = HEAD.format(seed=seed, points=total, minutes=3 * total)
    titles = "Attention on paper", "Attention on paper: answers and points"
    pages = zip(titles, (NAME + head, head), (asked, answered), strict=True)
    questions, answers = (PAGE.format(title=title, head=head, sections=sections) for title, head, sections in pages)
    return questions, answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("seeds", type=int, nargs="+", help="numbers of sheets; each has other numbers")
    for seed in parser.parse_args().seeds:
        folder = BUILD / str(seed)
        folder.mkdir(parents=True, exist_ok=True)
        for name, page in zip(("questions", "answers"), sheets(seed), strict=True):
            (folder / f"{name}.html").write_text(page, encoding="utf-8")
        print(folder / "questions.html", folder / "answers.html", sep="\n")


if __name__ == "__main__":
    main()
