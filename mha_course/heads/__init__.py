"""What long runs found out about heads, heads of known worth, and one experiment over many seeds."""

from mha_course.heads.kept_results import load_results
from mha_course.heads.planted_heads import Planted, plant_heads
from mha_course.heads.seeds import sweep, table

__all__ = ["Planted", "load_results", "plant_heads", "sweep", "table"]


def __dir__() -> list[str]:
    return __all__
