"""A claim is locked with its history: what was changed, when, and by whom it cannot say."""

import json
from dataclasses import asdict, replace

import pytest
from worked import CLAIM, work_of

from mha_course import capstone
from mha_course.capstone.claim import is_changed


def test_every_field_changes_the_eight_characters():
    others = {
        "model": "another", "remove": 4, "measure": "gate gradient", "instead": "zeros", "promise": 0.3,
        "rows": "other rows", "refuted_by": "a rise above 0.3",
    }  # fmt: skip
    assert others.keys() == asdict(CLAIM).keys() - {"baseline"}  # which has one choice
    eights = {CLAIM.eight} | {replace(CLAIM, **{name: value}).eight for name, value in others.items()}
    assert len(eights) == len(others) + 1 and all(len(eight) == 8 for eight in eights)
    assert replace(CLAIM).eight == CLAIM.eight


@pytest.mark.parametrize(
    ("field", "value", "needs"),
    [
        ("measure", "entropy", "leave-one-out, gate gradient, greedy"),
        ("instead", "noise", "means, zeros"),
        ("baseline", "none", "layer-matched draws"),
        ("remove", 0, "1 or more"),
        ("remove", True, "1 or more"),
        ("remove", 2.0, "1 or more"),
        ("promise", 0, "above 0"),
        ("promise", float("nan"), "above 0"),
        ("promise", "little", "above 0"),
        ("rows", " ", "words"),
        ("model", None, "words"),
    ],
)
def test_a_field_that_cannot_be_is_named_with_what_it_needs(field, value, needs):
    with pytest.raises(ValueError, match=f"^{field} must be .*{needs}.*, got "):
        replace(CLAIM, **{field: value})


def test_a_claim_without_own_words_is_an_example(tmp_path):
    for unwritten in (..., "", " "):
        claim = replace(CLAIM, refuted_by=unwritten)
        assert not claim.is_own and capstone.lock(claim, tmp_path / "claim.jsonl").startswith("Not yet your claim")
    assert CLAIM.is_own and capstone.lock(CLAIM, tmp_path / "other.jsonl") == f"Claim 1 is locked: {CLAIM.eight}."


def test_the_history_keeps_each_claim_once_and_each_opening(tmp_path):
    file, work, second = tmp_path / "claim.jsonl", work_of(), replace(CLAIM, promise=0.25)
    assert capstone.history(file) == []
    for claim in (CLAIM, CLAIM, second, second):
        capstone.lock(claim, file)
    assert not is_changed(capstone.history(file))  # two claims before the first look
    assert work.open_test_rows(file)[0].shape == (5, 2) and work.opened == 1
    assert not is_changed(capstone.history(file))
    capstone.lock(second, file)  # the same again
    assert not is_changed(capstone.history(file))
    capstone.lock(CLAIM, file)
    events = capstone.history(file)
    assert [(one.what, one.claim.promise) for one in events] == [
        ("claim", 0.2), ("claim", 0.25), ("test rows opened", 0.25), ("claim", 0.2),
    ]  # fmt: skip
    assert is_changed(events)


def test_test_rows_stay_closed_for_an_example(tmp_path, capsys):
    file, work = tmp_path / "claim.jsonl", work_of()
    capstone.lock(replace(CLAIM, refuted_by=...), file)
    assert work.open_test_rows(file) is work.calibration and work.opened == 0
    assert "write what would refute your claim" in capsys.readouterr().out
    capstone.lock(CLAIM, file)
    assert work.open_test_rows(file) is work.test and work.opened == 1
    assert [one.what for one in capstone.history(file)] == ["claim", "claim", "test rows opened"]


def test_test_rows_stay_closed_without_a_claim(tmp_path):
    work = work_of()
    with pytest.raises(ValueError, match="lock one before you open the test rows"):
        work.open_test_rows(tmp_path / "claim.jsonl")
    assert work.opened == 0 and "opened: 0" in repr(work)


@pytest.mark.parametrize("edit", ["promise", "time", "without a line"])
def test_an_edited_file_is_refused(tmp_path, edit):
    file = tmp_path / "claim.jsonl"
    capstone.lock(CLAIM, file)
    capstone.lock(replace(CLAIM, promise=0.25), file)
    lines = file.read_text().splitlines()
    first = json.loads(lines[0])
    first = first | {"claim": first["claim"] | {"promise": 0.9}} if edit == "promise" else first | {"time": "1999"}
    lines[:1] = [] if edit == "without a line" else [json.dumps(first)]
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match="was edited: line 1 does not fit"):
        capstone.history(file)
    with pytest.raises(ValueError, match="was edited"):
        capstone.lock(CLAIM, file)


def test_only_a_claim_can_be_locked(tmp_path):
    with pytest.raises(TypeError, match=r"claim must be a capstone\.Claim, got dict"):
        capstone.lock(asdict(CLAIM), tmp_path / "claim.jsonl")
