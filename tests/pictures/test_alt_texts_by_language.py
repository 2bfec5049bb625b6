"""Composed sentences are punctuated in the language in which they are said: no ASCII mark before a Han letter."""

import re

import pytest
import torch

from mha_course import language, pictures

HALF_WIDTH = re.compile(r"[.;:] ?[\u3041-\u9fff]|[\u3041-\u9fff][.;:]")


@pytest.fixture(params=["zh", "ja"], autouse=True)
def spoken(request, monkeypatch):
    monkeypatch.setattr(language, "_chosen", request.param)


def test_what_is_said_beside_the_first_picture():
    one = pictures.SentenceExplorer(query=9, layer=1, head=3)
    _, alt, caption = one.draw()
    assert not HALF_WIDTH.search(alt + caption), alt + caption


def test_what_is_said_of_heat_maps():
    weights = torch.rand(3, 2, 2).softmax(-1)
    text = repr(pictures.heatmaps(weights))
    assert not re.search(r"\d [;:] |[;:] ?头|[;:] ?ヘッド|头 \d:|ヘッド \d:", text), text
