"""Is this layer right? The panel of tests, the layers that notebook 10 breaks, its bugs, and ``check_layer``."""

from mha_course.museum.layer_check import assert_layer, check_layer

__all__ = ["assert_layer", "check_layer"]


def __dir__() -> list[str]:
    return __all__
