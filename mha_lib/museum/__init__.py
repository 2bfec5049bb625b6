"""Is this layer right? The panel of tests, the layers that notebook 09 breaks, the guesses, and ``check_layer``."""
