"""A layer of MiniLM that needs no MiniLM: any right class computes on it what MiniLM computes, a wrong one does not."""

import pytest
import torch

from mha_course.exercises.whole_layer import CompleteAttention
from mha_course.models import with_layer
from mha_course.models.kept_layer import KEPT_LAYER, SENTENCES, kept_layer
from mha_course.models.pretrained import kept_maps, minilm


class AlternatingHeads(CompleteAttention):
    """A wrong split: the features of the heads alternate."""

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        for linear in (self.W_q, self.W_k, self.W_v):
            linear.weight.data = linear.weight.data.unflatten(0, (-1, self.num_heads)).transpose(0, 1).flatten(0, 1)
        return super().forward(queries, keys, values, valid_lens, head_mask)


def test_a_right_class_computes_the_maps_that_were_kept_of_minilm():
    stored = kept_maps()[0]
    for model in (kept_layer(), with_layer(kept_layer(), CompleteAttention)):
        own = model.maps(stored.sentence)
        assert own.tokens == stored.tokens and own.weights.shape == (1, 12, 13, 13)
        torch.testing.assert_close(own.weights[0], stored.weights[KEPT_LAYER], atol=0.004, rtol=0)


def test_a_wrong_class_computes_other_maps():
    stored = kept_maps()[0]
    own = with_layer(kept_layer(), AlternatingHeads).maps(stored.sentence)
    assert (own.weights[0] - stored.weights[KEPT_LAYER]).abs().max() > 0.1


@pytest.mark.parametrize("sentence", SENTENCES)
def test_it_agrees_with_minilm_itself_on_both_sentences(sentence):
    try:
        whole = minilm()
    except ImportError as missing:
        pytest.skip(str(missing))
    own, all_layers = kept_layer().maps(sentence), with_layer(whole, CompleteAttention).maps(sentence)
    assert own.tokens == all_layers.tokens
    torch.testing.assert_close(own.weights[0], all_layers.weights[KEPT_LAYER], atol=0.002, rtol=0)


def test_another_sentence_is_refused_with_those_that_are_kept():
    with pytest.raises(ValueError, match=r"sentence must be one of \['the queen .*'\], got 'a dog'"):
        kept_layer().maps("a dog")
