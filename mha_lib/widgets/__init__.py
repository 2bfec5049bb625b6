"""Interactive pictures for the notebooks. Each function returns an ipywidget.

Needs ipywidgets and matplotlib: ``pip install mha-lib[widgets]``.
"""

from mha_lib.widgets.board import head_board
from mha_lib.widgets.heads import head_explorer, layer_explorer
from mha_lib.widgets.images import image_explorer
from mha_lib.widgets.kernel import kernel_pooling
from mha_lib.widgets.masks import mask_explorer
from mha_lib.widgets.stepper import transpose_stepper

__all__ = [
    "head_board",
    "head_explorer",
    "image_explorer",
    "kernel_pooling",
    "layer_explorer",
    "mask_explorer",
    "transpose_stepper",
]
