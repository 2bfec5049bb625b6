"""The page has the claim as it was locked, what came of it, two pictures, and the limits."""

import html
from dataclasses import replace

import pytest
import torch
from worked import CLAIM, draws, numbers, work_of

from mha_course import capstone, pictures


@pytest.fixture(scope="module")
def two():
    maps = pictures.heatmaps(torch.eye(3)[None]).titled("Maps & more")
    bars = {"test rows": (0.1, 0.0, 0.2)}
    return [maps, pictures.ranking_chart(bars, (0.2, 0.3), x_label="nats").titled("Not held")]


def written(folder, two, limits="Only one <model>, and 64 rows.", result=None):
    result = result or capstone.verdict(CLAIM, numbers(0.3), draws(0.4))
    said = capstone.page(
        folder / "page.html",
        folder / "claim.jsonl",
        result,
        {"times | as fast": {"yours": 1.5, "chance": 1.25}},
        two,
        limits,
    )
    return said, *((folder / name).read_text(encoding="utf-8") for name in ("page.html", "page.md"))


def test_the_page_has_all_that_was_locked_and_found(tmp_path, two):
    first = replace(CLAIM, promise=0.15)
    for claim in (first, CLAIM):
        capstone.lock(claim, tmp_path / "claim.jsonl")
    work_of().open_test_rows(tmp_path / "claim.jsonl")
    said, page, text = written(tmp_path, two)
    assert said == f"page.html and page.md: not held, claim {CLAIM.eight}."
    plain = html.unescape(page)
    for content in (plain, text):
        for one in (first.eight, CLAIM.eight, "test rows opened", "Refuted by: a rise above 0.2", str(CLAIM)):
            assert one in content
        for one in ("0.300 (", "promised: at most 0.2: not held", "1.5", "more than you promised", "<model>"):
            assert one in content
        assert content.index(first.eight) < content.index(CLAIM.eight) < content.index("Not held")
    assert "Verdict: not held</h2>" in page and "## Verdict: not held\n" in text and "changed" not in page + text
    assert page.count("<img ") == 2 and "<model>" not in page and "size: A4" in page
    assert "| times \\| as fast | yours 1.5, chance 1.25 |" in text
    for number, picture in enumerate(two, start=1):
        assert f"](page-{number}.png)" in text and (tmp_path / f"page-{number}.png").read_bytes() == picture.png


def test_a_second_opening_is_counted_and_marked_and_so_is_a_claim_changed_after_the_first_look(tmp_path, two):
    capstone.lock(CLAIM, tmp_path / "claim.jsonl")
    for times in (1, 2):
        work_of().open_test_rows(tmp_path / "claim.jsonl")
        _, page, text = written(tmp_path, two)
        assert f"| test rows opened | {times} |" in text
        for content in (page, text):
            assert ("Verdict: not held (test rows opened more than once)" in content) == (times == 2)
    capstone.lock(replace(CLAIM, promise=0.5), tmp_path / "claim.jsonl")
    _, page, text = written(tmp_path, two)
    assert "Verdict: not held (changed)" in page and "## Verdict: not held (changed)" in text


@pytest.mark.parametrize("limits", [..., "", "  "])
def test_unwritten_limits_are_named(tmp_path, two, limits):
    capstone.lock(replace(CLAIM, refuted_by=""), tmp_path / "claim.jsonl")
    said, page, text = written(tmp_path, two, limits)
    assert said.startswith("Not yet finished: write the limits.")
    assert "Not written." in page and text.endswith("## Limits\n\nNot written.\n") and "Refuted by: not written" in text


def test_a_page_needs_a_claim_and_two_pictures(tmp_path, two):
    with pytest.raises(ValueError, match="holds no claim"):
        written(tmp_path, two)
    capstone.lock(CLAIM, tmp_path / "claim.jsonl")
    with pytest.raises(ValueError, match="pictures must be two, got 1"):
        written(tmp_path, two[:1])
