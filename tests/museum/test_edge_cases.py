"""Every cell of the truth table is what it is known to be: a peer that changes in a new release turns a test red."""

import pytest

from mha_course.museum import edge_cases
from mha_lib.attention import converters

pytestmark = pytest.mark.cpu  # what each layer does with an odd call is known of the CPU

CONTESTANTS = ("ours", "d2l", "torch.nn", "torch.nn, no weights", "torch's kernel")
KNOWN = {
    "valid_len 0": ("0", "uniform over padding", "NaN", "0", "0"),
    "valid_len 0, gradients": ("0", "leaks into padding", "NaN", "0", "0"),
    "scores near −6e6, 2 of 4 valid": ("right", "100% on padding", "right", "right", "right"),
    "NaN in padded values": ("no effect", "NaN", "NaN", "NaN", "NaN"),
}


@pytest.fixture(scope="module")
def table():
    return edge_cases.behaviour_table()


@pytest.mark.parametrize("candidate", CONTESTANTS)
def test_every_cell_is_what_it_is_known_to_be(table, candidate):
    if candidate == "d2l" and candidate not in edge_cases.candidates():
        pytest.skip("d2l is not installed")
    known = {case: verdicts[CONTESTANTS.index(candidate)] for case, verdicts in KNOWN.items()}
    assert {case: verdicts[candidate] for case, verdicts in table.items()} == known


def test_without_d2l_its_column_is_missing(monkeypatch):
    def missing():
        raise ImportError

    monkeypatch.setattr(converters, "load_d2l", missing)
    assert list(edge_cases.candidates()) == [name for name in CONTESTANTS if name != "d2l"]


def test_as_text():
    table = {"a case": {"ours": "0", "theirs": "NaN"}, "b": {"ours": "right", "theirs": "–"}}
    assert edge_cases.as_text(table) == "        ours   theirs\na case  0      NaN\nb       right  –"
