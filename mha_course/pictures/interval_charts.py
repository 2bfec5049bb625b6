"""Charts of figures with their intervals, beside what chance gives: a ranking, and curves."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from torch import Tensor

from mha_course.language import listed, tr
from mha_course.pictures.charts import LINES, check_curves, empty_figure, finish_axes, name_axes, styled
from mha_course.pictures.picture import Picture

Interval = tuple[float, float, float]  # mean, lower end, upper end


def ranking_chart(
    rows: Mapping[str, Interval],
    chance: tuple[float, float],
    *,
    x_label: str,
    chance_label: str = "random",
    caption: str | None = None,
) -> Picture:
    """Draw means with their intervals as rows of a chart, and the range of a random baseline as a grey band.

    Args:
        rows: name → mean, lower and upper end; drawn in this order from the top.
        chance: the ends of the band.
        x_label: what is measured, with its unit.

    Raises:
        ValueError: there is no row, or a mean lies outside of its interval.
    """
    if not rows:
        raise ValueError("rows must hold at least one row, got none")
    for name, (mean, low, high) in rows.items():
        if not low <= mean <= high:
            raise ValueError(f"rows: the mean of {name!r} must lie in its interval, got {mean} and {low} to {high}")
    figure = empty_figure(0.27 * len(rows) + 0.9)
    panel = figure.subplots()
    panel.axvspan(*chance, facecolor="0.88", edgecolor="0.6")
    top = panel.get_xaxis_transform()  # where 1 is the upper end of the chart
    panel.text(sum(chance) / 2, 1, chance_label, transform=top, ha="center", va="bottom", fontsize=9)
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
    reading = "; ".join("{} {:.2f} ({:.2f} to {:.2f})".format(name, *row) for name, row in rows.items())
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
    """Draw curves with error bars, and a grey band for the range of a random baseline.

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
    figure = empty_figure(3.6)
    panel = figure.subplots()
    random = tr("random orders")
    panel.fill_between(places, low.tolist(), high.tolist(), facecolor="0.88", edgecolor="0.6", label=random)
    for name, curve, colour, style in styled(curves):
        lengths = errors[name].tolist()
        panel.errorbar(
            list(x), curve.tolist(), lengths, color=colour, linestyle=style, linewidth=2, capsize=3, marker=".",
            label=name,
        )  # fmt: skip
    panel.set_xticks(list(x))
    finish_axes(panel, x_label, y_label)
    last = listed((f"{name} {curve[-1]:.2f} ± {errors[name][-1]:.2f}" for name, curve in curves.items()), "; ")
    words = {"x": x[-1], "curves": last, "low": f"{low[-1]:.2f}", "high": f"{high[-1]:.2f}"}
    reading = tr("At {x}: {curves}; random orders {low} to {high}.", **words)
    words = {"y": y_label, "x": x_label, "curves": listed(curves)}
    return Picture(figure, tr("{y} by {x}: {curves}, and random orders", **words), reading, caption)


def slopes(rows: Mapping[str, Mapping[str, Interval]], *, y_label: str, caption: str | None = None) -> Picture:
    """Draw each row as a line from text to text: what the same heads cost on each.

    Args:
        rows: name → text → mean, lower and upper end, the same texts in every row; at most four.
        y_label: what is measured, with its unit.

    Raises:
        ValueError: rows have different texts.
    """
    texts = list(next(iter(rows.values()), ()))
    if not texts or any(list(row) != texts for row in rows.values()):
        raise ValueError(f"rows must have the same texts, got {[list(row) for row in rows.values()]}")
    figure = empty_figure(3.4)
    panel = figure.subplots()
    for number, (name, row) in enumerate(rows.items()):
        places = [place + 0.02 * number for place in range(len(texts))]
        _with_ends(panel, [(place,) * 3 for place in places], list(row.values()), number, name)
    panel.set_xticks(range(len(texts)), texts)
    panel.set_xlim(-0.3, len(texts) - 0.7)
    finish_axes(panel, "", y_label)
    reading = "; ".join(
        f"{name}: " + ", ".join("{} {:.2f} ({:.2f} to {:.2f})".format(text, *one) for text, one in row.items())
        for name, row in rows.items()
    )
    return Picture(figure, f"{y_label}, of the same heads on {' and '.join(texts)}", f"{reading}.", caption)


def trade_offs(
    series: Mapping[str, Sequence[str]],
    prices: Mapping[str, Mapping[str, Interval]],
    losses: Mapping[str, Mapping[str, Interval]],
    *,
    caption: str | None = None,
) -> Picture:
    """Draw what is lost against what it costs, a row of panels for each loss and a column for each price.

    Args:
        series: name → its points in order, joined by a line; at most six.
        prices, losses: axis label → point → middle, lower and upper end.

    Raises:
        ValueError: a point of a series is not in every price and every loss.
    """
    for name, points in series.items():
        for axis, known in {**prices, **losses}.items():
            if missing := [point for point in points if point not in known]:
                raise ValueError(f"series {name!r}: {axis!r} has no {', '.join(missing)}")
    figure = empty_figure(2.6 * len(losses))
    panels = figure.subplots(len(losses), len(prices), sharex="col", sharey="row", squeeze=False)
    for row, (y_label, loss) in enumerate(losses.items()):
        for column, (x_label, price) in enumerate(prices.items()):
            panel = panels[row, column]
            for number, (name, points) in enumerate(series.items()):
                _with_ends(panel, [price[each] for each in points], [loss[each] for each in points], number, name)
            name_axes(panel, x_label if row == len(losses) - 1 else "", "" if column else y_label)
    names = panels[0, 0].get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    reading = "; ".join(
        f"{name}: "
        + ", ".join(
            f"{point} " + " / ".join(f"{known[point][0]:.2f}" for known in (*prices.values(), *losses.values()))
            for point in points
        )
        for name, points in series.items()
    )
    what = f"{' and '.join(losses)} against {' and '.join(prices)}"
    return Picture(figure, what, f"{' / '.join([*prices, *losses])}: {reading}.", caption)


def _with_ends(panel: Axes, x: Sequence[Interval], y: Sequence[Interval], number: int, name: str) -> None:
    """Draw points with their ends in both directions, joined by a line, in the style of this number."""
    (colour, style), marker = LINES[number % len(LINES)], "os^Dxv"[number]
    (across, x_ends), (up, y_ends) = (
        ([middle for middle, _, _ in each], [[m - low for m, low, _ in each], [high - m for m, _, high in each]])
        for each in (x, y)
    )
    panel.errorbar(
        across, up, yerr=y_ends, xerr=x_ends, color=colour, linestyle=style, marker=marker, markersize=5,
        linewidth=1.5, elinewidth=1, capsize=2, label=name,
    )  # fmt: skip
