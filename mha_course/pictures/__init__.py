"""Pictures of attention: still ones, each with its text twin, and live ones, which the browser computes.

Python sees and sets every choice of a live picture. Needs matplotlib, anywidget, ipywidgets and pillow:
``pip install "mha-course[notebooks]"``.
"""

from importlib.util import find_spec

if missing := [name for name in ("PIL", "anywidget", "ipywidgets", "matplotlib") if not find_spec(name)]:
    raise ImportError(f'pictures need {", ".join(missing)}. Run: pip install "mha-course[notebooks]"')

from mha_course.pictures.birth_explorer import BirthExplorer
from mha_course.pictures.cache_stepper import CacheStepper
from mha_course.pictures.charts import head_ranks, regression_curves, training_curves
from mha_course.pictures.drawing import Drawing
from mha_course.pictures.hand_made_head import HandMadeHead
from mha_course.pictures.head_explorer import HeadExplorer
from mha_course.pictures.head_switches import HeadSwitches
from mha_course.pictures.heat_maps import heatmaps
from mha_course.pictures.interval_charts import curves_and_chance, ranking_chart, slopes, trade_offs
from mha_course.pictures.kernel_explorer import KernelExplorer
from mha_course.pictures.layer_explorer import LayerExplorer
from mha_course.pictures.live import LivePicture, save_html
from mha_course.pictures.mask_explorer import MaskExplorer
from mha_course.pictures.mixture_triangle import mixture_triangle
from mha_course.pictures.named_tables import NamedTable
from mha_course.pictures.next_word_explorer import NextWordExplorer
from mha_course.pictures.packed_texts_explorer import PackedTextsExplorer
from mha_course.pictures.paged_cache_stepper import PagedCacheStepper
from mha_course.pictures.picture import Picture
from mha_course.pictures.ring_explorer import RingExplorer
from mha_course.pictures.scrubber import TrainingScrubber
from mha_course.pictures.sentence_explorer import SentenceExplorer
from mha_course.pictures.slow_motion import DotProductStepper
from mha_course.pictures.transpose_stepper import TransposeStepper

__all__ = [
    "BirthExplorer", "CacheStepper", "DotProductStepper", "Drawing", "HandMadeHead", "HeadExplorer", "HeadSwitches",
    "KernelExplorer", "LayerExplorer", "LivePicture", "MaskExplorer", "NamedTable", "NextWordExplorer",
    "PackedTextsExplorer", "PagedCacheStepper", "Picture", "RingExplorer", "SentenceExplorer", "TrainingScrubber",
    "TransposeStepper", "curves_and_chance", "head_ranks", "heatmaps", "mixture_triangle",
    "ranking_chart", "regression_curves", "save_html", "slopes", "trade_offs", "training_curves",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
