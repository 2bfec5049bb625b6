"""Explorers that read a text of the reader's own: what they answer to the page, refuse, remember and save."""

import pytest
import torch
import traitlets
from small_language_model import small_language_model

from mha_course import pictures
from mha_course.models.next_words import next_words
from mha_course.models.pretrained import SentenceMaps

TEXT = "w7 w31 w7 w2 w50"


class Reader:
    """Looks anywhere from the words of a sentence, in six layers of twelve heads."""

    def maps(self, sentence):
        tokens = ["[CLS]", *sentence.split(), "[SEP]"]
        scores = torch.randn(6, 12, len(tokens), len(tokens), generator=torch.Generator().manual_seed(len(sentence)))
        return SentenceMaps(sentence, tokens, scores.softmax(dim=-1))


def missing():
    raise ImportError("the model is not installed; run make real-models")


def asked(picture, question, monkeypatch):
    """All that a picture sends to the page that asks."""
    sent = []
    monkeypatch.setattr(picture, "send", lambda content, buffers=(): sent.append((content, list(buffers))))
    picture._handle_custom_msg({**question, "to": "page 1"}, [])  # what ipywidgets calls when a message comes
    assert all(content["to"] == "page 1" for content, _ in sent)
    return sent


def test_the_page_gets_what_the_model_says_without_the_heads_it_names(monkeypatch):
    picture, expected = (
        pictures.NextWordExplorer(small_language_model()),
        next_words(small_language_model(), TEXT, [(5, 80)]),
    )
    ((answer, buffers),) = asked(picture, {"text": TEXT, "cuts": [[80, 5]]}, monkeypatch)
    assert (answer["text"], answer["tokens"], answer["words"]) == (TEXT, expected.tokens, expected.words)
    assert [list(cut) for cut in answer["cuts"]] == [[], [5, 80]]
    assert dict(zip(answer["bytes"], buffers, strict=True)) == {
        "rows": expected.rows().tobytes(), "maps": expected.triangles().tobytes()
    }  # fmt: skip


def test_the_cost_of_every_head_comes_with_word_of_how_far_it_is(monkeypatch):
    picture = pictures.NextWordExplorer(small_language_model())
    *shares, (answer, _) = asked(picture, {"text": TEXT, "each": True}, monkeypatch)
    told = [content["share"] for content, _ in shares]
    assert len(told) == 30 and told == sorted(told) and told[-1] == 1
    assert len(answer["cuts"]) == 271


def test_the_page_gets_where_the_heads_look_in_a_sentence(monkeypatch):
    picture = pictures.SentenceExplorer(model=Reader())
    ((answer, (weights,)),) = asked(picture, {"text": "one two three"}, monkeypatch)
    assert answer["tokens"] == ["[CLS]", "one", "two", "three", "[SEP]"]
    expected = Reader().maps("one two three").weights
    assert list(weights) == (255 * expected).round().int().flatten().tolist()


@pytest.mark.parametrize(
    ("make", "question", "message"),
    [
        (lambda: pictures.NextWordExplorer(small_language_model()), {"text": ""}, "from 1 to 40 tokens, got 0"),
        (
            lambda: pictures.NextWordExplorer(small_language_model()),
            {"text": "w1 " * 41},
            "from 1 to 40 tokens, got 41",
        ),
        (lambda: pictures.SentenceExplorer(model=Reader()), {"text": " "}, "from 1 to 38 tokens, got 0"),
        (lambda: pictures.SentenceExplorer(model=Reader()), {"text": "a " * 39}, "from 1 to 38 tokens, got 39"),
        (pictures.NextWordExplorer, {"text": "new"}, "run make real-models"),
        (pictures.SentenceExplorer, {"text": "new"}, "run make real-models"),
        (pictures.MaskExplorer, {"text": "new"}, "MaskExplorer answers no questions"),
    ],
)
def test_the_page_is_told_why_there_is_no_answer(make, question, message, monkeypatch):
    monkeypatch.setattr("mha_course.pictures.next_word_explorer.smollm2", missing)
    monkeypatch.setattr("mha_course.pictures.sentence_explorer.minilm", missing)
    ((answer, buffers),) = asked(make(), question, monkeypatch)
    assert message in answer["error"] and not buffers


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda **first: pictures.NextWordExplorer(small_language_model(), **first), TEXT),
        (lambda **first: pictures.SentenceExplorer(model=Reader(), **first), "one two three"),
    ],
)
def test_a_text_of_ones_own_is_shown_kept_inside_and_saved(make, text):
    picture = make(text=text, query=4)
    assert text in picture.still().alt
    *kept, own = picture.page_data()["state"]["data"]["texts" if "texts" in picture.data else "sentences"]
    assert own["text"] == text and len(kept) == len(
        make().page_data()["state"]["data"]["texts" if "texts" in picture.data else "sentences"]
    )
    picture.text = ""
    assert text not in picture.still().alt
    with pytest.raises(traitlets.TraitError, match="text must be one that the model can read"):
        picture.text = "w1 " * 50
    assert picture.text == ""


def test_a_cut_that_nobody_kept_needs_the_model(monkeypatch):
    monkeypatch.setattr("mha_course.pictures.next_word_explorer.smollm2", missing)
    picture = pictures.NextWordExplorer()
    with pytest.raises(ImportError, match="make real-models"):
        picture.without([3, 4, 5, 6])
    assert picture.without([157, 156]).cuts
    picture.cut = [3, 4, 5, 6]
    assert "Not known here" in picture.still().alt
