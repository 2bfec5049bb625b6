"""Pictures of attention: charts and heat maps, each with its text twin."""

from mha_lib.pictures.charts import head_ranks, parameter_sweep, pruning_curves, regression_curves
from mha_lib.pictures.heat_maps import heatmaps, scores_to_weights, weights_over_image
from mha_lib.pictures.picture import Picture
from mha_lib.pictures.shape_tables import tagged_numbers

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
]
