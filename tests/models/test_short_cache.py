"""Writing with a short cache gives what a mask over all keys gives, however a text is cut into pieces."""

import pytest
import torch
from small_language_model import small_language_model
from torch import nn

from mha_course.heads.removal import prune
from mha_course.models.short_cache import ShortCache, Writer
from mha_lib import heads

SINKS, WINDOW = 3, 5
PIECES = [[40], [1] * 40, [17, 1, 1, 9, 12], [2, 1, 1, 1, 35], [4, 4, 1, 31], [8, 1, 30, 1]]
STREAMING = {"layer 0": [1], "layer 3": [0, 2], "layer 17": [0, 1, 2], "layer 29": [2]}


def ids_of(seed=0):
    return torch.randint(0, 60, (2, 40), generator=torch.Generator().manual_seed(seed))


def masked(model, ids, **sizes):
    """Logits of every position, from the mask."""
    found = heads.of(model, ids)
    plan = {
        f"blocks.{name}.attention": [3 * g + i for g in groups for i in range(3)] for name, groups in STREAMING.items()
    }
    with torch.no_grad(), found.ablated(plan, by="stream", **sizes):
        return model(ids, None, None)


@pytest.mark.parametrize("pieces", PIECES, ids=str)
def test_smollm2_reads_in_pieces_what_the_mask_gives(pieces, monkeypatch):
    monkeypatch.setattr("mha_course.models.short_cache.PIECE", 16)  # so that a long piece is cut, too
    model, ids = small_language_model(), ids_of()
    expected = masked(model, ids, sinks=SINKS, window=WINDOW)
    writer, end = Writer(model, STREAMING, SINKS, WINDOW), 0
    for number in pieces:
        logits = writer.read(ids[:, end : end + number])
        end += number
        torch.testing.assert_close(logits, expected[:, end - 1], rtol=0, atol=2e-4)
    for other in ({"sinks": SINKS + 1, "window": WINDOW}, {"sinks": SINKS, "window": WINDOW + 1}):
        assert (masked(model, ids, **other)[:, -1] - logits).abs().max() > 0.01


def test_without_streaming_it_is_the_model_and_no_wider_than_its_groups():
    model, ids = small_language_model(), ids_of(1)
    whole = Writer(model)
    whole.read(ids[:, :31])
    with torch.no_grad():
        torch.testing.assert_close(whole.read(ids[:, 31:]), model(ids, None, None)[:, -1], rtol=0, atol=2e-4)
    smaller = prune(model, remove={name: [0, 1, 2] for name in STREAMING})
    pruned = Writer(smaller)
    with torch.no_grad():
        torch.testing.assert_close(pruned.read(ids), smaller(ids, None, None)[:, -1], rtol=0, atol=2e-4)
    assert whole.num_bytes == 30 * 3 * 2 * 2 * 40 * 4 * 4  # layers, groups, keys and values, texts, tokens, size, bytes
    assert pruned.num_bytes == whole.num_bytes * 86 // 90


@pytest.mark.parametrize(("number", "kept"), [(2, 2), (8, 8), (9, 8), (40, 8)])
def test_a_streaming_group_keeps_no_more_than_sinks_and_window(number, kept):
    writer = Writer(small_language_model(), STREAMING, SINKS, WINDOW)
    writer.read(ids_of()[:, :number])
    assert writer.num_bytes == 2 * 2 * 4 * 4 * (83 * number + 7 * kept)


def test_what_has_no_short_cache_is_refused_by_name():
    with pytest.raises(
        TypeError, match=r"^model must be a SmolLM2, got Linear: other models have no short cache here$"
    ):
        Writer(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="streaming has unknown layers: layer 30; there are layer 0 to layer 29"):
        Writer(small_language_model(), {"layer 30": [0]})
    with pytest.raises(ValueError, match=r"streaming must hold numbers from 0 to 2, got \[3\]"):
        Writer(small_language_model(), {"layer 2": [3]})
    with pytest.raises(ValueError, match="window must be a whole number from 1 on, got 0"):
        ShortCache(2, [1], window=0)
