"""The capstone, one claim about a model: locked, measured with tested code, held or not, and told on one page."""

from mha_course.capstone.claim import Claim, history, lock
from mha_course.capstone.drawn import DrawnTask, drawn_model
from mha_course.capstone.work import Work

__all__ = ["Claim", "DrawnTask", "Work", "drawn_model", "history", "lock"]


def __dir__() -> list[str]:
    return __all__
