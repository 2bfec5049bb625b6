"""The benchmark of named heads knows which word belongs to which, and counts right answers on any map."""

import random
from pathlib import Path

import pytest
import torch

from mha_course.models import pretrained
from research import named_heads


def test_every_pair_is_of_the_words_that_its_role_says():
    generator = random.Random(5)
    seen = set()
    for _ in range(300):
        words, found = named_heads.draw(generator)
        tokens = ["[CLS]", *words, "[SEP]"]
        people = named_heads.WOMEN + named_heads.MEN
        for query, key in found["noun"]:
            assert tokens[query] == "the" and tokens[key] in people
            assert all(word in named_heads.ADJECTIVES for word in tokens[query + 1 : key])
        for query, key in found["verb"]:
            assert tokens[query] in people and tokens[key] in named_heads.VERBS and key < query
        for query, key in found["person"]:
            assert tokens[key] in {"she": named_heads.WOMEN, "he": named_heads.MEN}[tokens[query]]
        for query, key in found["same"]:
            assert tokens[query] == tokens[key] and query != key
        assert all(query - key == 1 and tokens[query] != "[SEP]" for query, key in found["before"])
        seen |= {role for role, pairs in found.items() if pairs}
    assert seen == set(named_heads.ROLES.values()) == set(named_heads.draw(random.Random(5))[1])


@pytest.mark.cpu
def test_a_head_that_always_finds_the_word_is_right_and_the_ends_do_not_count():
    lengths, n = (5, 7), 7
    weights = torch.full((2, 6, 12, n, n), 0.01)
    pairs = [(0, 1, 3), (1, 2, 5), (1, 4, 1)]
    for sentence, query, key in pairs:
        weights[sentence, 1, 3, query, key] = 0.5
        weights[sentence, :, :, query, 0] = 0.9
        weights[sentence, :, :, query, lengths[sentence] - 1] = 0.8
    weights[1, 4, 0, 2, 5] = 0.5
    for sentence, length in enumerate(lengths):
        weights[sentence, ..., length:] = 0
    right = named_heads.shares_right(weights, pairs, "noun")
    assert right[1, 3] == 1
    assert right[4, 0] == 2 / 3  # one that it finds, and the first of equal weights
    assert named_heads.shares_right(weights, [(0, 1, 0), (1, 2, 0)], "[CLS]").eq(1).all()


def test_every_named_head_has_a_role_and_kept_figures_which_are_those_of_the_report():
    kept = pretrained.kept_figures()
    assert [(one["layer"], one["head"]) for one in kept] == list(named_heads.ROLES) == list(named_heads.NAMED_HEADS)
    assert named_heads.report(kept) == Path(named_heads.__file__).with_suffix(".md").read_text(encoding="utf-8")


def test_every_named_head_does_what_its_name_says():
    for one in pretrained.kept_figures():
        assert one["right"] > 0.85 > 0.2 > one["redrawn"], one["where it looks"]
