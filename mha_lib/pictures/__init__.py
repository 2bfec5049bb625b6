"""Pictures of attention: charts and heat maps, each with its text twin, and live pictures, which the browser computes.

Charts need matplotlib, ``pip install mha-lib[plots]``. Live pictures need anywidget and pillow as well,
``pip install mha-lib[widgets]``, and are imported when they are first asked for.
"""

import importlib
from typing import Any

from mha_lib.pictures.charts import head_ranks, parameter_sweep, pruning_curves, regression_curves
from mha_lib.pictures.heat_maps import heatmaps, scores_to_weights, weights_over_image
from mha_lib.pictures.picture import Picture
from mha_lib.pictures.shape_tables import tagged_numbers

LIVE = {
    "HeadExplorer": "head_explorer",
    "KernelExplorer": "kernel_explorer",
    "LayerExplorer": "layer_explorer",
    "MaskExplorer": "mask_explorer",
    "Scrubber": "scrubber",
    "SentenceExplorer": "sentence_explorer",
    "SlowMotion": "slow_motion",
    "TransposeStepper": "transpose_stepper",
    "save_html": "live",
}

__all__ = [
    "Picture",
    "head_ranks",
    "heatmaps",
    "parameter_sweep",
    "pruning_curves",
    "regression_curves",
    "scores_to_weights",
    "tagged_numbers",
    "weights_over_image",
    *LIVE,
]


def __getattr__(name: str) -> Any:
    """A live picture by its name."""
    if name not in LIVE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{LIVE[name]}"), name)
