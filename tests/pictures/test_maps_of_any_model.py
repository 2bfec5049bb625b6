"""Pictures of heads take the maps of any model, and torch's own layer, with tokens as labels."""

import pytest
import torch
import traitlets
from torch import nn

import mha_lib
from mha_course import pictures
from mha_lib import heads

WORDS = "the small dog barked".split()


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True)
    return heads.of(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(2, 4, 12))


def of_one(found, example=0):
    return {name: maps[example : example + 1] for name, maps in found.maps().items()}


def test_heat_maps_of_all_layers(found):
    maps = of_one(found)
    figure = mha_lib.heatmaps(maps, query_labels=WORDS, key_labels=WORDS, columns=3)
    *panels, _ = figure.axes
    assert [panel.get_title() for panel in panels] == [f"layer {n}, head {h}" for n in (0, 1) for h in (0, 1, 2)]
    shown = torch.stack([torch.as_tensor(panel.images[0].get_array().data) for panel in panels])
    torch.testing.assert_close(shown, torch.cat([*maps.values()], dim=1)[0])
    assert [tick.get_text() for tick in panels[0].get_yticklabels()] == WORDS
    picture = pictures.heatmaps(maps, query_labels=WORDS, key_labels=WORDS)
    for layer in (0, 1):
        query, key = divmod(maps[f"layers.{layer}.self_attn"][0, 0].argmax().item(), 4)
        told = f"layer {layer}, head 0: query “{WORDS[query]}” puts most weight, "
        assert told in picture.alt and f" on key “{WORDS[key]}”" in picture.alt.partition(told)[2][:30]
    for draw in (mha_lib.heatmaps, pictures.heatmaps):
        with pytest.raises(ValueError, match=r"those of one example, .* got \(2, 3, 4, 4\); pick an example first"):
            draw(found.maps())
        with pytest.raises(ValueError, match=r"as many queries and keys each, got a: \(3, 4, 4\), b: \(3, 5, 5\)"):
            draw({"a": torch.rand(1, 3, 4, 4), "b": torch.rand(1, 3, 5, 5)})


def test_the_layer_explorer_shows_maps_as_they_are(found):
    maps = found.maps()["layers.1.self_attn"]
    explorer = pictures.LayerExplorer.of_maps(maps, query_names=[WORDS] * 2, key_names=[WORDS] * 2, example=1)
    torch.testing.assert_close(explorer.weights(), maps)
    assert explorer.num_heads == 3 and "features" not in explorer.still().alt and "barked" in explorer.still().alt
    explorer.valid_lens = [4, 2]
    torch.testing.assert_close(explorer.weights()[1, :, :, :2], maps[1, :, :, :2] / maps[1, :, :, :2].sum(-1, True))
    causal = torch.ones(1, 1, 3, 3).tril() / torch.arange(1, 4)[:, None]
    torch.testing.assert_close(pictures.LayerExplorer.of_maps(causal).weights(), causal)
    with pytest.raises(traitlets.TraitError, match=r"num_heads must be one of \[3\]"):
        explorer.num_heads = 6
    with pytest.raises(ValueError, match=r"\(batch, num_heads, num_queries, num_keys\), got dict"):
        pictures.LayerExplorer.of_maps(found.maps())
    with pytest.raises(ValueError, match=r"got \(3, 4, 4\)"):
        pictures.LayerExplorer.of_maps(maps[0])
    with pytest.raises(ValueError, match=r"rows that sum to 1, got 0\.50 for example 1, head 2, query 3"):
        maps[1, 2, 3] /= 2
        pictures.LayerExplorer.of_maps(maps)


def test_the_layer_explorer_takes_torchs_layer():
    torch.manual_seed(1)
    layer, X = nn.MultiheadAttention(12, 3, batch_first=True), torch.randn(2, 4, 12)
    explorer = pictures.LayerExplorer(layer, X, X, query_names=[WORDS] * 2, key_names=[WORDS] * 2)
    expected = layer(X, X, X, average_attn_weights=False)[1]
    torch.testing.assert_close(explorer.weights(), expected.detach())
    with pytest.raises(TypeError, match=r"layer must be a MultiHeadAttention, .* W_q, .*, got Linear"):
        pictures.LayerExplorer(nn.Linear(12, 12), X, X)
    with pytest.raises(ValueError, match=r"splits must be numbers of heads that divide 12, and 3, .* got \[2, 5\]"):
        pictures.LayerExplorer(layer, X, X, splits=[2, 5])


def test_the_view_of_all_heads_takes_maps_and_tokens(found):
    explorer = pictures.SentenceExplorer.of_maps(of_one(found), WORDS, query=2, layer=1, head=2)
    torch.testing.assert_close(explorer.shown().weights, torch.cat([*of_one(found).values()]))
    assert "“dog” → " in explorer.still().alt and explorer.named == {}
    with pytest.raises(ValueError, match=r"a query and a key for each of 3 tokens, got \(4, 4\)"):
        pictures.SentenceExplorer.of_maps(of_one(found), WORDS[:3])
    with pytest.raises(ValueError, match=r"layers with as many heads each, got \[2, 3\]"):
        pictures.SentenceExplorer.of_maps({"a": torch.rand(1, 3, 4, 4), "b": torch.rand(1, 2, 4, 4)}, WORDS)
