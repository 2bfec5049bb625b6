"""Is this layer right? The panel of tests, the layers that notebook 10 breaks, its bugs, and ``check_layer``."""
