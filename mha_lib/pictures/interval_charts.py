"""Charts of figures with their intervals, beside what chance gives: a league, and curves."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from torch import Tensor

from mha_lib.pictures.charts import LINES, check_curves, finish_axes, styled
from mha_lib.pictures.picture import Picture

Interval = tuple[float, float, float]  # mean, lower end, upper end


def league(
    rows: Mapping[str, Interval],
    chance: tuple[float, float],
    *,
    x_label: str,
    chance_label: str = "random",
    caption: str | None = None,
) -> Picture:
    """Who is ahead, and how surely: each row is a point with its interval, and chance is a grey band.

    Args:
        rows: name → mean, lower and upper end; drawn in this order from the top.
        chance: the ends of the band.
        x_label: what is measured, with its unit.

    Raises:
        ValueError: there is no row, or a mean lies outside of its interval.
    """
    check_intervals("rows", rows)
    figure = Figure(figsize=(7.2, 0.27 * len(rows) + 0.9), layout="constrained")
    panel = figure.subplots()
    panel.axvspan(*chance, facecolor="0.88", edgecolor="0.6", label=chance_label)
    colour, _ = LINES[0]
    for place, (mean, low, high) in enumerate(rows.values()):
        panel.plot([low, high], [place, place], color=colour, linewidth=2)
        panel.plot([mean], [place], "o", color=colour, markersize=5)
    panel.set_yticks(range(len(rows)), list(rows), fontsize=9)
    panel.invert_yaxis()
    panel.set_xlabel(x_label)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.grid(axis="y", color="0.93")
    panel.set_axisbelow(True)
    panel.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9)
    reading = "; ".join(f"{name} {in_words(row)}" for name, row in rows.items())
    band = f"{chance_label} {chance[0]:.2f} to {chance[1]:.2f}"
    return Picture(figure, f"{x_label}, with intervals", f"{reading}; {band}.", caption)


def curves_and_chance(
    x: Sequence[float],
    curves: Mapping[str, Tensor],
    errors: Mapping[str, Tensor],
    chance: tuple[Sequence[float], Tensor, Tensor],
    *,
    x_label: str,
    y_label: str,
    caption: str | None = None,
) -> Picture:
    """Curves with an error bar at each point, and a grey band where chance lies.

    Args:
        x: where the curves are known.
        curves, errors: name → one value for each x, and half the length of its interval; at most four.
        chance: where the band is known, its lower and its upper end there.

    Raises:
        ValueError: lengths do not match, or there are more than four curves.
    """
    for name, curve in curves.items():
        check_curves("x", curve.new_tensor(list(x)), {name: curve, f"the error of {name}": errors[name]})
    places, low, high = chance
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    panel = figure.subplots()
    panel.fill_between(places, low.tolist(), high.tolist(), facecolor="0.88", edgecolor="0.6", label="random orders")
    for name, curve, colour, style in styled(curves):
        panel.errorbar(
            list(x), curve.tolist(), errors[name].tolist(), color=colour, linestyle=style, linewidth=2, capsize=3,
            marker=".", label=name,
        )  # fmt: skip
    panel.set_xticks(list(x))
    finish_axes(panel, x_label, y_label)
    last = "; ".join(f"{name} {curve[-1]:.2f} ± {errors[name][-1]:.2f}" for name, curve in curves.items())
    reading = f"At {x[-1]}: {last}; random orders {low[-1]:.2f} to {high[-1]:.2f}."
    return Picture(figure, f"{y_label} by {x_label}: {', '.join(curves)}, and random orders", reading, caption)


def quality_and_speed(
    points: Mapping[str, tuple[float, Interval]], *, x_label: str, y_label: str, caption: str | None = None
) -> Picture:
    """What smaller models gain in speed, and what they lose for it: each model is a point with an interval.

    Args:
        points: name → how many times as fast, and the mean, lower and upper end of what is lost; at most four.

    Raises:
        ValueError: there is no point, there are more than four, or a mean lies outside of its interval.
    """
    check_intervals("points", {name: lost for name, (_, lost) in points.items()})
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    panel = figure.subplots()
    panel.axvline(1, color="0.6", linestyle=":")
    panel.text(1, 1.01, "as fast as before", transform=panel.get_xaxis_transform(), ha="center", fontsize=9)
    for name, (speed, (mean, low, high)), colour, _ in styled(points, "points"):
        panel.errorbar([speed], [mean], [[mean - low], [high - mean]], color=colour, capsize=4, marker="o")
        panel.annotate(name, (speed, mean), (8, 4), textcoords="offset points", fontsize=9)
    speeds = [speed for speed, _ in points.values()]
    panel.set_xlim(min(0.9, *speeds) - 0.1, max(1.5, *speeds) + 0.1)
    finish_axes(panel, x_label, y_label)
    reading = "; ".join(f"{name} {speed:.2f}, {in_words(lost)}" for name, (speed, lost) in points.items())
    return Picture(figure, f"{y_label} by {x_label}, with intervals", f"{reading}.", caption)


def in_words(interval: Interval) -> str:
    """A mean, and the ends of its interval."""
    return "{:.2f} ({:.2f} to {:.2f})".format(*interval)


def check_intervals(argument: str, rows: Mapping[str, Interval]) -> None:
    """Refuse what is empty, and means outside of their intervals."""
    if not rows:
        raise ValueError(f"{argument} must hold at least one row, got none")
    for name, (mean, low, high) in rows.items():
        if not low <= mean <= high:
            raise ValueError(
                f"{argument}: the mean of {name!r} must lie in its interval, got {mean} and {low} to {high}"
            )
