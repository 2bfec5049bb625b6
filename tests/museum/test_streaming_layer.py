"""A decoding layer with a short cache, held against the layer that keeps everything, and a double loop."""

import pytest
import torch

from mha_course.museum.decoding_layer import DecodingLayer, StreamingLayer

SINKS, WINDOW = 2, 4


class Masked(DecodingLayer):
    """Key-value head 1 of three streams by its mask; its heads are 2 and 3."""

    def allowed(self, num_old, num_new):
        causal = super().allowed(num_old, num_new).repeat(1, 6, 1, 1)
        for head in (2, 3):
            for i in range(num_new):
                for j in range(num_old + num_new):
                    causal[:, head, i, j] &= j < SINKS or j > num_old + i - WINDOW
        return causal


@pytest.mark.parametrize("cuts", [[15], [1] * 15, [6, 1, 8], [3, 1, 1, 10]], ids=str)
def test_outputs_are_those_of_the_mask_in_any_pieces(cuts):
    torch.manual_seed(0)
    masked, layer = Masked(24, 6, 3).double(), StreamingLayer(24, 6, 3, [1], SINKS, WINDOW).double()
    whole = DecodingLayer(24, 6, 3).double()
    for one in (layer, whole):
        one.load_state_dict(masked.state_dict())
    for _ in range(2):  # a second text begins with an empty cache
        X = torch.randn(2, 15, 24).double()
        expected, found = masked(X), torch.cat([layer(piece) for piece in X.split(cuts, dim=1)], dim=1)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        assert (whole(X) - expected).abs().max() > 1e-3
        for one in (masked, layer, whole):
            one.start()


def test_padding_and_texts_that_end_alone_are_refused():
    layer = StreamingLayer(24, 6, 3, [1])
    with pytest.raises(ValueError, match=r"^padding must be 0 where heads stream, got 2: the first columns are their"):
        layer.start(2)
    with pytest.raises(NotImplementedError, match="texts of a StreamingLayer end together"):
        layer.keep([0])
