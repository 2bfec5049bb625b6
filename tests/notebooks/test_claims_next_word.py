"""What the report and the explorer say of the next word stands in the kept results."""

import pytest
from notebook_tools import text_of

from mha_course import pictures
from mha_course.heads import load_results
from mha_course.models.next_words import GROUPS, kept_draws, kept_next_words
from mha_course.pictures.next_word_explorer import how_chosen

TEXT = text_of("report_what_survives")
MILLER = "Barack Miller went to the market. There, Barack"
EIFFEL = "The Eiffel Tower is in the city of"


class Results:
    """Kept results, row by row."""

    def __init__(self, found: dict):
        self.found = found
        self.new = [row for row in found["read or known"] if not row["seen before"]]
        self.read = [row for row in self.new if row["says what was read"]]

    def about(self, text: str) -> dict:
        (row,) = [row for row in self.found["others"] if row["text"] == text]
        return row

    def share(self, text: str, group: str | None = None) -> float:
        """The probability of the whole model's word after a text, whole or without a group, to two digits."""
        row = self.about(text)
        return round((row["without"][group] if group else row["whole"])["p of the whole model's"], 2)

    def changed(self, rows: list[dict], group: str = "induction") -> list[dict]:
        return [row for row in rows if row["without"][group]["word"] != row["whole"]["word"]]

    def known(self) -> list[dict]:
        """The texts whose word without the five is the known one."""
        return [row for row in self.read if row["says what is known without"]]

    def drawn(self, rows: list[dict], kind: str) -> int:
        """How many draws of five other heads change the word."""
        return sum(word != row["whole"]["word"] for row in rows for word in row["words of draws"][kind])

    def words_of_draws(self, kind: str) -> list[int]:
        """How many of the words that were read each draw of five other heads changes."""
        words = zip(*(row["words of draws"][kind] for row in self.read), strict=True)
        return [sum(word != row["whole"]["word"] for word, row in zip(draw, self.read, strict=True)) for draw in words]


CLAIMS = {
    "On 22 texts that were not chosen the model continues with a word that it has just read": (
        lambda r: (len(r.read), len(r.new)) == (22, 56)
    ),
    "With zeros, the five heads change 18 of these words, 7 of them to the known word": (
        lambda r: [len(r.changed(r.read)), len(r.known())] == [18, 7]
    ),
    "*Obama*, with 61 %. *Miller* falls from 30 % to 0.3 %.": lambda r: (
        r.about(MILLER)["without"]["induction"]["word"] == " Obama"
        and round(r.about(MILLER)["without"]["induction"]["p"], 2) == 0.61
        and round(r.about(MILLER)["without"]["induction"]["p of the whole model's"], 3) == 0.003
        and (r.about(MILLER)["whole"]["word"], r.share(MILLER)) == (" Miller", 0.3)
    ),
    "None of the 20 draws changes the word. Of the draws from all 270 heads 6 of 20 do": lambda r: (
        [r.drawn([r.about(MILLER)], kind) for kind in ("same layers", "all heads")] == [0, 6]
    ),
    "three of these give *Obama*, too": lambda r: (
        r.about(MILLER)["words of draws"]["all heads"].count(" Obama") == 3 and r.share(MILLER, "induction") < 0.1
    ),
    "it was *Paris* with 81 %, and now it is *Paris* with 83 %": lambda r: (
        r.about(EIFFEL)["without"]["induction"]["word"] == r.about(EIFFEL)["whole"]["word"] == " Paris"
        and (r.share(EIFFEL), r.share(EIFFEL, "induction")) == (0.81, 0.83)
    ),
    "five others of the same layers at most 6": lambda r: (
        1 / 9.5 < r.drawn(r.read, "same layers") / (20 * len(r.read)) < 1 / 8.5
        and max(r.words_of_draws("same layers")) == 6
    ),
    "2 of 20 draws of all heads as many as the five": lambda r: (
        0.27 < r.drawn(r.read, "all heads") / (20 * len(r.read)) < 0.31
        and sum(words >= len(r.changed(r.read)) for words in r.words_of_draws("all heads")) == 2
    ),
    "the five heads cost 1.3 nats if each is removed alone and the costs are added up, and 4.6 together": lambda r: (
        [round(r.about(MILLER)[key], 1) for key in ("nats alone", "nats together")] == [1.3, 4.6]
    ),
    "Thirteen *other* heads do, removed alone": lambda r: r.about(MILLER)["single cuts that change it"] == 13,
    "Removed alone, each of 111 of the 270 heads makes *Miller* likelier": lambda r: (
        r.about(MILLER)["single cuts that help"] == 111
    ),
}


@pytest.fixture(scope="module")
def results():
    return Results(load_results("next_word"))


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_is_in_the_text_and_the_results(results, words):
    assert words in TEXT and CLAIMS[words](results)


def test_the_first_text_breaks_in_early_layers_and_not_without_one_of_the_five():
    first = kept_next_words()[0]
    alone = [cut[0] for place, cut in enumerate(first.cuts) if len(cut) == 1 and first.first[place] != 0]
    assert first.text == MILLER and len(alone) == 13 and sum(head < 18 for head in alone) == 10
    assert not set(alone) & set(GROUPS["induction"])
    assert "ten of them in layers 0 and 1" in TEXT and "No single one of them changes the word" in TEXT


def test_the_explorer_says_what_happened_on_texts_that_nobody_chose(results):
    new, read = results.new, results.read
    lost = results.changed(read)
    known = sum(row["says what is known without"] for row in lost)
    shares = [f"{100 * results.drawn(read, kind) / (20 * len(read)):.0f}%" for kind in kept_draws()]
    words = how_chosen()
    assert f"Of {len(new)} more" in words and f"in {len(read)}." in words
    assert f"{len(lost)} of these {len(read)} lose it, {known} of them" in words
    assert f"same layers in {shares[0]} of the draws, of all heads in {shares[1]}" in words
    assert pictures.NextWordExplorer().data["chosen"] == words


def test_what_is_kept_for_the_page_and_what_is_kept_in_figures_are_the_same(results):
    for one in kept_next_words():
        row, five = results.about(one.text), one.cuts.index(GROUPS["induction"])
        assert one.words[0] == row["whole"]["word"]
        assert one.words[one.first[five]] == row["without"]["induction"]["word"]
        assert (-one.first_nats[five]).exp().item() == pytest.approx(row["without"]["induction"]["p"], abs=2e-3)
        for kind, cuts in kept_draws().items():
            words = [one.words[one.first[one.cuts.index(tuple(cut))]] for cut in cuts]
            assert words == row["words of draws"][kind]
