"""The heads of any model: found, seen, gated, measured, planned, removed, saved and loaded."""

from typing import TYPE_CHECKING

from mha_lib import old_names
from mha_lib.heads.any_model import FoundHeads, of
from mha_lib.heads.found_removal import Removal
from mha_lib.heads.plans import ranks
from mha_lib.heads.saving import load_pruned, save_pruned
from mha_lib.heads.shapley_shares import set_members
from mha_lib.heads.statistics import entropy, mean_distance, top1_hit_rate, weight_on_self, weight_on_token
from mha_lib.heads.streaming import Stream

__all__ = [
    "FoundHeads", "Removal", "Stream", "entropy", "load_pruned", "mean_distance", "of", "ranks", "save_pruned",
    "set_members", "top1_hit_rate", "weight_on_self", "weight_on_token",
]  # fmt: skip

if not TYPE_CHECKING:  # names that have left this room are found until the next release
    __getattr__ = old_names.behind(__name__)


def __dir__() -> list[str]:
    return __all__
