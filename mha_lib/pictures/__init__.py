"""Live pictures for notebooks and pages: the browser computes them, Python sees and sets every choice.

Needs anywidget and pillow: ``pip install mha-lib[widgets]``.
"""

from mha_lib.pictures.head_explorer import HeadExplorer
from mha_lib.pictures.kernel_explorer import KernelExplorer
from mha_lib.pictures.layer_explorer import LayerExplorer
from mha_lib.pictures.live import LivePicture, save_html, script
from mha_lib.pictures.mask_explorer import MaskExplorer
from mha_lib.pictures.scrubber import Scrubber
from mha_lib.pictures.sentence_explorer import SentenceExplorer
from mha_lib.pictures.slow_motion import SlowMotion
from mha_lib.pictures.transpose_stepper import TransposeStepper

__all__ = [
    "HeadExplorer",
    "KernelExplorer",
    "LayerExplorer",
    "LivePicture",
    "MaskExplorer",
    "Scrubber",
    "SentenceExplorer",
    "SlowMotion",
    "TransposeStepper",
    "save_html",
    "script",
]
