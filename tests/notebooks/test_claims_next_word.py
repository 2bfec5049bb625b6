"""What 08 and the explorer say of the next word stands in the kept results; opposite ones break it."""

from statistics import fmean

import pytest
import torch
from notebook_tools import text_of

from mha_course import pictures
from mha_course.heads import load_results
from mha_course.models.next_words import GROUPS, kept_draws, kept_next_words
from mha_course.pictures.next_word_explorer import how_chosen

TEXT = text_of("08_head_pruning", "report_what_survives")
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

    def odds(self, kind: str, way: str) -> list[float]:
        """log p(her) − log p(his): the mean over people of each cut of a way."""
        people = self.found["her or his"][kind].values()
        return [fmean(column) for column in zip(*(person[way] for person in people), strict=True)]

    def capitals(self, way: str) -> list[float]:
        countries = self.found["which country"].values()
        return [fmean(column) for column in zip(*(country[way] for country in countries), strict=True)]

    def her_first(self, kind: str) -> int:
        """How many people's word is *her* without the head, by odds."""
        return sum(person["it"][0] > 0 for person in self.found["her or his"][kind].values())


def the_most(r: Results) -> bool:
    """Whether each named head does more to its texts than each other one that was cut in its place."""
    (women,), (men,) = (r.odds(kind, "it") for kind in ("women", "men"))
    others = [*r.odds("women", "same layer"), *r.odds("women", "all heads")]
    others_of_men = [*r.odds("men", "same layer"), *r.odds("men", "all heads")]
    (capital,), sums = r.capitals("it"), r.found["sums"]
    return (
        0 < women < min(others)
        and 0 > men > max(others_of_men)
        and capital < min([*r.capitals("same layer"), *r.capitals("all heads")])
        and sums["it"][0] < min([*sums["same layer"], *sums["all heads"]])
    )


CLAIMS = {
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
    "56 of them had not been tried before": lambda r: (
        (len(r.found["read or known"]), len(r.new)) == (60, 56) and r.share(MILLER) == 0.3
    ),
    "On 22 of these the model continues with the word that it has just read": lambda r: (
        (len(r.read), len(r.new)) == (22, 56)
    ),
    "18 with zeros, but only 7 of these to the known word": lambda r: (
        [len(r.changed(r.read)), len(r.known())] == [18, 7]
    ),
    "change 18 of these words, 7 of them to the known word": lambda r: len(r.changed(r.known())) == 7,
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
    "each of the three does more than any other head of its layer, and more than any of twenty others": the_most,
    "*her* is about a thousand times as likely as *his* after a woman, and without *her or his* not even": lambda r: (
        900 < torch.tensor(r.odds("women", "whole")).exp() < 1100 and 1 < torch.tensor(r.odds("women", "it")).exp() < 2
    ),
    "for two of the eight women *his* comes first. After a man *his* stays far ahead": lambda r: (
        (8 - r.her_first("women"), r.her_first("men")) == (2, 0) and r.odds("men", "it")[0] < -2
    ),
    "the right capital falls from 0.33 to 0.05 on average, but Cairo keeps nearly half of its share": lambda r: (
        [round(r.capitals(way)[0], 2) for way in ("whole", "it")] == [0.33, 0.05]
        and 0.4 < r.found["which country"]["Egypt"]["it"][0] / r.found["which country"]["Egypt"]["whole"][0] < 0.5
    ),
    "12 sums are right in place of 20, but another of the twenty heads leaves 13": lambda r: (
        [r.found["sums"]["it"], r.found["sums"]["whole"], min(r.found["sums"]["all heads"])] == [[12], [20], 13]
    ),
}


@pytest.fixture(scope="module")
def results():
    return Results(load_results("next_word"))


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_is_in_the_text_and_the_results_and_opposite_results_break_it(results, words):
    assert words in TEXT
    assert CLAIMS[words](results)
    assert not CLAIMS[words](Results(opposite(results.found)))


def test_that_the_five_are_no_accident_is_not_said():
    """With zeros, some draws of five other heads change as many words."""
    assert "no accident: five" not in TEXT


def opposite(value):
    """Results in which words that changed stay and words that stayed change, and what was much is little."""
    if isinstance(value, dict):
        turned = {key: item if key == "seen before" else opposite(item) for key, item in value.items()}
        if "words of draws" in value:
            whole = value["whole"]["word"]
            said = [*turned["without"].values()]
            for one in said:
                one["word"] = whole if one["word"] != whole else f"{whole}?"
            for kind, words in turned["words of draws"].items():
                turned["words of draws"][kind] = [whole if word != whole else f"{whole}?" for word in words]
        return turned
    if isinstance(value, list):
        return [opposite(item) for item in value]
    if isinstance(value, bool):
        return not value
    return 3 - value if isinstance(value, int | float) else value


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
