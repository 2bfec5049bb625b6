"""Thirty points for what was done: nothing for nothing, the same for every outcome, and none by known cheats."""

import dataclasses
import itertools
import json
import re

import pytest
import torch
from worked import answered, twice, untrained, worked_test

from mha_course import capstone, pictures
from mha_course.capstone.faults import FAULTS, fault_of
from mha_course.capstone.marks import LINES

SEED = 7
REFUTED = "A rise above the promise on the test rows, since two of the heads may do the same job."
LIMITS = "These are rows of one task and one model without any training, so that nothing follows for other models. " * 2
FULL = [*LINES.values()]
NOTHING = [0] * len(FULL)


@pytest.fixture(scope="module")
def work():
    return untrained(SEED)


class HandIn:
    """What a learner hands in, from the claim to the page; ``promise`` and all else as it is asked for."""

    def __init__(self, folder, work, refuted_by=REFUTED, limits=LIMITS, **claim):
        fields = {"remove": 2, "measure": "leave-one-out", "instead": "means", "promise": 0.2} | claim
        told = {"baseline": "layer-matched draws", "rows": "32 test rows", "refuted_by": refuted_by}
        self.work, self.claim = work, capstone.Claim(work.name, **fields, **told)
        self.claim_file, self.page = folder / "claim.jsonl", folder / "page.html"
        self.test, self.seed, self.rows, self.limits = worked_test, SEED, None, limits
        self.found = work.find_heads()
        self.instead = self.found.means() if self.claim.instead == "means" else None
        self.plan = capstone.choose(self.claim, self.found, work.loss(work.calibration), self.instead)
        capstone.lock(self.claim, self.claim_file)
        self.open()

    def open(self, plan=None):
        """Open the test rows, and write the page."""
        rows, plan = self.work.open_test_rows(self.claim_file), plan or self.plan
        loss, draws = self.work.loss(rows), self.found.fair_draws(plan, 20, SEED)
        rises = [self.found.rise(one, loss, instead=self.instead) for one in (plan, *draws)]
        self.result = capstone.verdict(self.claim, rises[0], torch.stack(rises[1:]))
        chart = pictures.ranking_chart({"rise": self.result.rise}, (0.0, 1.0), x_label="nats")
        capstone.page(self.page, self.claim_file, self.result, {}, [chart] * 2, self.limits)

    def points(self):
        return capstone.points(self.seed, self.claim_file, self.work, self.plan, self.test, self.page, self.rows)


@pytest.fixture
def done(tmp_path, work):
    return HandIn(tmp_path, work)


def test_what_is_done_in_full_has_thirty_points(done):
    points = done.points()
    assert list(points.given) == FULL and points.total == sum(FULL) == 30
    assert repr(points).splitlines()[-1] == "30 of 30 points"


def test_what_is_untouched_has_none(tmp_path, work):
    done = HandIn(tmp_path, work, refuted_by=..., limits=...)
    done.test = lambda p: ...
    assert list(done.points().given) == NOTHING
    done.claim_file, done.page, done.plan = tmp_path / "none", tmp_path / "none.html", ...
    assert list(done.points().given) == NOTHING


def test_every_outcome_earns_the_same(tmp_path, work):
    outcomes = {}
    for number, promise in enumerate((0.1, 0.2, 0.29)):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = HandIn(folder, work, promise=promise)
        outcomes[done.result.promise] = lost(done)
    assert outcomes == {"not held": [], "undecided": [], "held": []}


def test_every_fault_earns_the_same(done):
    seeds = {fault_of(seed): seed for seed in range(40)}
    for done.seed in itertools.islice(seeds.values(), 3):
        assert done.points().given[4:6] == [8, 5]


def test_a_change_before_the_test_rows_and_running_it_all_again_cost_nothing(done):
    before = done.claim_file.read_text().splitlines()
    done.claim_file.unlink()
    capstone.lock(dataclasses.replace(done.claim, promise=3.0), done.claim_file)
    capstone.lock(done.claim, done.claim_file)
    done.open()
    assert len(done.claim_file.read_text().splitlines()) == len(before) + 1
    assert lost(done) == []
    capstone.lock(done.claim, done.claim_file)
    done.open()
    assert lost(done) == []


def lost(done):
    """The lines that lose points, but for those of the test of the pipeline, which has tests of its own."""
    done.test = ...
    given = enumerate(zip(done.points().given, FULL, strict=True))
    return [number for number, (got, most) in given if got < most and number not in (4, 5)]


def test_a_claim_that_is_changed_after_the_look_loses(done):
    done.claim = dataclasses.replace(done.claim, promise=0.15)
    capstone.lock(done.claim, done.claim_file)
    done.open()
    assert lost(done) == [0]


def test_an_edited_file_has_no_points_and_says_why(done):
    lines = [json.loads(line) for line in done.claim_file.read_text().splitlines()]
    lines[0]["claim"]["promise"] = 0.5
    done.claim_file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert list(done.points().given) == NOTHING and "was edited: line 1" in repr(done.points())


@pytest.mark.parametrize("claim", [{"promise": 10.0}, {"remove": 1}], ids=str)
def test_a_claim_that_cannot_fail_loses(tmp_path, work, claim):
    assert lost(HandIn(tmp_path, work, **claim)) == [2]


def test_a_plan_that_was_chosen_on_the_test_rows_loses(done):
    """Even if the page tells truly what it costs."""
    costs = done.found.leave_one_out(done.work.loss(done.work.test), instead=done.instead)
    done.plan = done.found.plan({name: -row for name, row in costs.items()}, remove=2)
    done.open()
    assert lost(done) == [3]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (r"(?m)^(\| rise of the loss \| )\S+ \(.*?\)", r"\g<1>-3.000 (-3.100 to -2.900)", [7]),
        (r"(?m)^(\| rise of the loss \| )\S+ \(.*?\)", r"\g<1>-3.000 (-99.000 to 99.000)", [7]),
        (r"(?m)^## Verdict: undecided", "## Verdict: held", [6]),
        (r"(?m)^## Verdict: .*", "## Verdict: held\n## Verdict: not held\n## Verdict: undecided", [6]),
        (r"(?m)^## Verdict: .*", "## Verdict: held, ## Verdict: not held, ## Verdict: undecided", [6]),
        (r"claim \w{8} locked", "claim 01234567 locked", [6, 7, 8]),
    ],
)
def test_a_forged_page_loses(done, old, new, lines):
    """Something else, a wide interval, all verdicts at once, and the page of another claim."""
    page = done.page.with_suffix(".md")
    text, number = re.subn(old, new, page.read_text())
    assert number
    page.write_text(text)
    assert lost(done) == lines


def test_results_that_are_set_by_hand_change_nothing(done):
    done.work.opened, done.result = 1, None
    assert lost(done) == []


def test_what_is_of_another_seed_does_not_fit(tmp_path, done):
    """Claim, plan and page of a neighbour."""
    done.work, done.seed, done.test = untrained(8), SEED + 1, ...
    assert [*done.points().given] == [0, 0, 0, 0, 0, 0, 0, 0, 2]


def test_rows_that_are_held_back_decide(done):
    done.rows = answered(done.work.model, capstone.unseen_rows(4711, 64, task_of=SEED))
    assert lost(done) == []
    done.page.with_suffix(".md").write_text(
        done.page.with_suffix(".md").read_text().replace(capstone.told(done.result.rise), "0.001 (0.000 to 0.002)")
    )
    assert lost(done) == [7]


def test_half_a_test_has_half_of_its_points(done):
    seeds = {fault_of(seed): seed for seed in range(99)}
    done.test, done.seed = twice, seeds["dropout on"]
    right, others = done.points().given[4:6]
    assert right == 8 and others < 3
    done.seed = seeds["rows in both sets"]
    assert done.points().given[4:6] == [0, 0]


def test_the_seed_of_an_account_is_its_own():
    assert capstone.seed_of("ada") == capstone.seed_of("ada") != capstone.seed_of("bob")
    assert 0 <= capstone.seed_of("Ada Love") < 100_000 and len(FAULTS) == 8
