"""The capstone, one claim about a model: locked, measured with tested code, held or not, and told on one page."""

from mha_course.capstone.choice import choose
from mha_course.capstone.claim import Claim, history, lock
from mha_course.capstone.claim_verdict import Verdict, told, verdict
from mha_course.capstone.clock import ceiling, paired_speed
from mha_course.capstone.drawn import DrawnTask, drawn_model, unseen_rows
from mha_course.capstone.fault_check import check_test
from mha_course.capstone.fault_harm import harm
from mha_course.capstone.faults import FAULTS, pipeline, shape_test
from mha_course.capstone.marks import points
from mha_course.capstone.page import page
from mha_course.capstone.sentences import language_model, sentence_model
from mha_course.capstone.work import Work
from mha_course.checking.points import Points, seed_of

__all__ = [
    "FAULTS", "Claim", "DrawnTask", "Points", "Verdict", "Work", "ceiling", "check_test", "choose", "drawn_model",
    "harm", "history", "language_model", "lock", "page", "paired_speed", "pipeline", "points", "seed_of",
    "sentence_model", "shape_test", "told", "unseen_rows", "verdict",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
