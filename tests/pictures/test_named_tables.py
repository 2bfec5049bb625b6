"""Tables with names: text and page say the same numbers, colours belong to roles, names must fit."""

import re

import pytest
import torch

from mha_course.pictures import NamedTable

MATRIX = torch.tensor([[0.0, 1.0, -0.25], [1 / 3, 20.0, -0.001]])


@pytest.fixture
def table():
    return NamedTable(MATRIX, ["cats", "<mice>"], ["noun", "q", "place 0"], column_roles=["key", "query", "value"])


def test_the_text_says_every_number_under_its_name(table):
    header, *rows = [re.split(r"\s{2,}", line.strip()) for line in repr(table).split("\n")]
    assert header == ["noun", "q", "place 0"]
    assert rows == [["cats", "·", "1", "−0.25"], ["<mice>", "0.33", "20", "·"]]


def test_the_page_says_the_same_and_escapes_names(table):
    page = table._repr_html_()
    assert re.findall(r"<td style[^>]*>([^<]+)</td>", page) == ["·", "1", "−0.25", "0.33", "20", "·"]
    assert re.findall(r"<th[^>]*>([^<]+)</th>", page) == ["noun", "q", "place 0", "cats", "&lt;mice&gt;"]


def coloured(table):
    return re.findall(r'<th[^>]*style="[^"]*color:(#\w+)[^"]*"[^>]*>([^<]+)', table._repr_html_())


def test_a_role_colours_its_own_names_alone(table):
    assert [name for _, name in coloured(table)] == table.columns
    assert len({colour for colour, _ in coloured(table)}) == 3
    alike = NamedTable(torch.eye(2), ["cats", "mice"], ["cats", "mice"], row_roles="value")
    assert [name for _, name in coloured(alike)] == ["cats", "mice"]


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"\(rows, columns\) = \(1, 3\), got \(2, 3\)"):
        NamedTable(MATRIX, ["cats"], ["a", "b", "c"])
    with pytest.raises(ValueError, match=r"row_roles must be 2 of query, key, value, got \['head', 'head'\]"):
        NamedTable(MATRIX, ["cats", "mice"], ["a", "b", "c"], row_roles="head")
    with pytest.raises(ValueError, match=r"column_roles must be 3 of query, key, value, got \['key'\]"):
        NamedTable(MATRIX, ["cats", "mice"], ["a", "b", "c"], column_roles=["key"])
