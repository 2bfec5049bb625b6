"""The panel for layers that read piece by piece: who sees what, and that the right layer is let through."""

import pytest
import torch

from mha_lib import MultiHeadAttention
from mha_lib.exercises import decoding_tests, layer_tests
from mha_lib.exercises.decoding_exhibits import EXHIBITS
from mha_lib.exercises.decoding_layer import DecodingLayer

CAUGHT_BY = {
    "MaskedAtFirst": ["pieces of 4, 3, 2"],
    "FromTheTopLeft": ["one by one", "pieces of 4, 3, 2"],
    "NeverEmptied": ["later tokens", "one by one", "pieces of 4, 3, 2", "a second text"],
    "SharedInTurn": ["reference"],
    "PlacesOfThePiece": ["one by one", "pieces of 4, 3, 2"],
    "TurnedInNeighbours": ["reference"],
}


def test_the_right_layer_passes_all():
    report = layer_tests.run(DecodingLayer, decoding_tests.TESTS)
    assert list(report.findings) == list(decoding_tests.TESTS) and not report.caught_by
    assert layer_tests.verdict(DecodingLayer, decoding_tests.TESTS)


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.layer.__name__)
def test_an_exhibit_is_caught_by_the_tests_that_its_answer_names(exhibit):
    report = layer_tests.run(exhibit.layer, decoding_tests.TESTS)
    assert report.caught_by == CAUGHT_BY[exhibit.layer.__name__]
    assert "https://github.com/" in exhibit.answer and exhibit.opening and exhibit.question.endswith((".", "?"))


def test_the_matrix_has_a_column_for_each_test():
    matrix = layer_tests.matrix({exhibit.title: exhibit.layer for exhibit in EXHIBITS}, decoding_tests.TESTS)
    *_, totals = layer_tests.as_text(matrix).splitlines()
    assert totals.split()[-6:] == ["0", "1", "3", "4", "1", "2"]


def test_it_is_the_layer_of_this_library_where_nothing_is_rotated():
    class Unturned(DecodingLayer):
        def rotate(self, X, places):
            return X

    layer = decoding_tests.random_layer(Unturned)
    ours = MultiHeadAttention(16, 4, query_size=16, key_size=16, value_size=16, num_key_value_heads=2)
    ours.load_state_dict(layer.state_dict())
    X = torch.randn(2, 9, 16)
    torch.testing.assert_close(decoding_tests.read(layer, X, [4, 3, 2]), ours(X, X, X, causal=True))


def test_what_cannot_run_is_not_judged():
    class Broken(DecodingLayer):
        def places(self, num_old, num_new):
            raise RuntimeError("no places")

    verdict = layer_tests.verdict(Broken, decoding_tests.TESTS)
    assert verdict.state == "not yet" and "could not run it: it raises RuntimeError: no places" in verdict.text
