"""Pictures of attention: still ones, each with its text twin, and live ones, which the browser computes.

Python sees and sets every choice of a live picture. Needs matplotlib, anywidget and pillow:
``pip install mha-lib[notebooks]``.
"""

from mha_lib.pictures.birth_explorer import BirthExplorer
from mha_lib.pictures.cache_stepper import CacheStepper
from mha_lib.pictures.charts import head_ranks, pruning_curves, regression_curves, training_curves
from mha_lib.pictures.drawing import Drawing
from mha_lib.pictures.hand_made_head import HandMadeHead
from mha_lib.pictures.head_explorer import HeadExplorer
from mha_lib.pictures.head_switches import HeadSwitches
from mha_lib.pictures.heat_maps import heatmaps
from mha_lib.pictures.interval_charts import curves_and_chance, ranking_chart
from mha_lib.pictures.kernel_explorer import KernelExplorer
from mha_lib.pictures.layer_explorer import LayerExplorer
from mha_lib.pictures.live import LivePicture, save_html
from mha_lib.pictures.mask_explorer import MaskExplorer
from mha_lib.pictures.mixture_triangle import mixture_triangle
from mha_lib.pictures.named_tables import NamedTable
from mha_lib.pictures.next_word_explorer import NextWordExplorer
from mha_lib.pictures.packed_texts_explorer import PackedTextsExplorer
from mha_lib.pictures.paged_cache_stepper import PagedCacheStepper
from mha_lib.pictures.picture import Picture
from mha_lib.pictures.ring_explorer import RingExplorer
from mha_lib.pictures.scrubber import TrainingScrubber
from mha_lib.pictures.sentence_explorer import SentenceExplorer
from mha_lib.pictures.slow_motion import DotProductStepper
from mha_lib.pictures.transpose_stepper import TransposeStepper
