"""Tables with names: text and page say the same numbers, colours belong to roles, names must fit."""

import re

import pytest
import torch

from mha_lib.pictures import NamedTable

MATRIX = torch.tensor([[0.0, 1.0, -0.25], [1 / 3, 20.0, -0.001]])


@pytest.fixture
def table():
    return NamedTable(MATRIX, ["cats", "<mice>"], ["noun", "q", "place 0"], roles={"q": "query"})


def test_the_text_says_every_number_under_its_name(table):
    header, *rows = [re.split(r"\s{2,}", line.strip()) for line in repr(table).split("\n")]
    assert header == ["noun", "q", "place 0"]
    assert rows == [["cats", "·", "1", "−0.25"], ["<mice>", "0.33", "20", "·"]]


def test_the_page_says_the_same_and_escapes_names(table):
    page = table._repr_html_()
    assert re.findall(r"<td style[^>]*>([^<]+)</td>", page) == ["·", "1", "−0.25", "0.33", "20", "·"]
    assert re.findall(r"<th[^>]*>([^<]+)</th>", page) == ["noun", "q", "place 0", "cats", "&lt;mice&gt;"]


def test_a_role_colours_its_own_name_alone(table):
    coloured = re.findall(r'<th[^>]*style="[^"]*color:[^"]*"[^>]*>([^<]+)', table._repr_html_())
    assert coloured == ["q"]


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"\(rows, columns\) = \(1, 3\), got \(2, 3\)"):
        NamedTable(MATRIX, ["cats"], ["a", "b", "c"])
    with pytest.raises(ValueError, match="one of query, key, value, got 'cats': 'head'"):
        NamedTable(MATRIX, ["cats", "mice"], ["a", "b", "c"], roles={"cats": "head"})
    with pytest.raises(ValueError, match="got 'dogs': 'key'"):
        NamedTable(MATRIX, ["cats", "mice"], ["a", "b", "c"], roles={"dogs": "key"})
