"""Numbers as texts say them, so that a claim's words are made of what was measured."""

from mha_course.heads import mean_and_ci95


def two(number, digits=2):
    return f"{number:.{digits}f}".replace("-", "−")


def span(low, high, by=" to ", digits=2):
    return f"{two(low, digits)}{by}{two(high, digits)}"


def interval(differences, what="", digits=2):
    """The mean of what was measured on each text, ``what`` it is, and its interval: 0.17 nats (0.02 to 0.32)."""
    mean, low, high = mean_and_ci95(differences)
    return f"{two(mean, digits)} {what}({span(low, high, digits=digits)})"
