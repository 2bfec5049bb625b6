"""The capstone, one claim about a model: locked, measured with tested code, held or not, and told on one page."""

from mha_course.capstone.claim import Claim, history, lock
from mha_course.capstone.clock import ceiling, paired_speed
from mha_course.capstone.drawn import DrawnTask, drawn_model
from mha_course.capstone.page import page
from mha_course.capstone.sentences import language_model, sentence_model
from mha_course.capstone.verdict import Verdict, told, verdict
from mha_course.capstone.work import Work

__all__ = [
    "Claim", "DrawnTask", "Verdict", "Work", "ceiling", "drawn_model", "history", "language_model", "lock", "page",
    "paired_speed", "sentence_model", "told", "verdict",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
