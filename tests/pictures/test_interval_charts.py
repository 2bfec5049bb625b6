"""Charts with intervals draw the numbers they were given, beside what chance gives."""

import pytest
import torch

from mha_course import pictures

ROWS = {"one": (0.7, 0.6, 0.8), "other": (0.5, 0.45, 0.55)}


def test_a_league_draws_means_intervals_and_chance():
    picture = pictures.ranking_chart(ROWS, (0.4, 0.5), x_label="area")
    panel = picture.drawing.axes[0]
    lines = [line.get_xdata() for line in panel.lines]
    assert [list(line) for line in lines] == [[0.6, 0.8], [0.7], [0.45, 0.55], [0.5]]
    assert [text.get_text() for text in panel.get_yticklabels()] == list(ROWS) and panel.yaxis_inverted()
    # matplotlib's span was a polygon once and is a rectangle now; both know where they lie.
    band = panel.transData.inverted().transform(panel.patches[0].get_window_extent())
    assert band[:, 0] == pytest.approx([0.4, 0.5])
    assert picture.reading == "one 0.70 (0.60 to 0.80); other 0.50 (0.45 to 0.55); random 0.40 to 0.50."


@pytest.mark.parametrize(("rows", "message"), [({}, "at least one row"), ({"one": (1, 0.2, 0.8)}, "must lie in its")])
def test_a_league_refuses_what_is_no_interval(rows, message):
    with pytest.raises(ValueError, match=message):
        pictures.ranking_chart(rows, (0, 1), x_label="area")


def test_curves_are_drawn_with_error_bars_over_a_band():
    curves = {"one": torch.tensor([3.0, 5.0]), "other": torch.tensor([4.0, 9.0])}
    errors = {"one": torch.tensor([0.1, 0.2]), "other": torch.tensor([0.3, 0.4])}
    chance = (13, 81), torch.tensor([4.0, 6.0]), torch.tensor([5.0, 8.0])
    picture = pictures.curves_and_chance((13, 81), curves, errors, chance, x_label="cut", y_label="nats")
    drawn = picture.drawing.axes[0].containers
    assert [container.get_label() for container in drawn] == list(curves)
    for container, name in zip(drawn, curves, strict=True):
        assert container.lines[0].get_ydata().tolist() == curves[name].tolist()
        ends = torch.tensor([segment[:, 1].tolist() for segment in container.lines[2][0].get_segments()])
        torch.testing.assert_close(ends, torch.stack([curves[name] - errors[name], curves[name] + errors[name]], dim=1))
    assert picture.reading == "At 81: one 5.00 ± 0.20; other 9.00 ± 0.40; random orders 6.00 to 8.00."


def test_curves_of_another_length_are_refused():
    with pytest.raises(ValueError, match="one must have one value for each of x"):
        pictures.curves_and_chance(
            (1, 2), {"one": torch.ones(3)}, {"one": torch.ones(3)}, ((1,), torch.ones(1), torch.ones(1)),
            x_label="", y_label="",
        )  # fmt: skip


def test_trade_offs_name_the_price_below_and_the_loss_beside():
    one = {"few": (1.0, 0.9, 1.1)}
    picture = pictures.trade_offs(
        {"groups": ["few"]}, {"time": one, "cache": one}, {"prose, nats": one, "copying, nats": one}
    )
    panels = picture.drawing.axes
    assert [panel.get_xlabel() for panel in panels] == ["", "", "time", "cache"]
    assert [panel.get_ylabel() for panel in panels] == ["prose, nats", "", "copying, nats", ""]
