"""Four ways to tell a token where it stands: what is added, what padding changes, and the models that ship."""

import json
import math

import pytest
import torch
from on_device import DEVICE

from mha_course.heads.kept_results import load_results
from mha_course.models.induction import NUM_HIDDENS, AttentionOnly, held_out_repeats, sample_induction_batch
from mha_course.models.positional import (
    SCHEMES,
    STEPS_TO_SHIP,
    PositionalModel,
    right_letters,
    shipped_positional_model,
    train_positional,
    weights_name,
)
from mha_course.models.shipped import package_data

LETTERS = sample_induction_batch(5, torch.Generator().manual_seed(1)).letters[:, :20].to(DEVICE)


def logits_behind(model, left, counted, letter=0):
    """What the model says of ``LETTERS`` behind masked padding, which holds some letter."""
    letters = torch.nn.functional.pad(LETTERS, (left, 0), value=letter)
    padding = (torch.arange(letters.shape[1]) < left).expand(letters.shape)
    places = torch.tensor([[max(column - left, 0) for column in range(letters.shape[1])]] * 5)
    with torch.no_grad():
        return model(letters, padding=padding, places=places if counted else None)[:, left:]


def test_rotated_is_the_model_of_notebook_11():
    model, other = PositionalModel("rotated"), AttentionOnly()
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(LETTERS), other(LETTERS))


@pytest.mark.parametrize("kind", SCHEMES)
def test_masked_padding_changes_nothing_where_places_are_counted_or_rotated_or_none(kind):
    torch.manual_seed(2)
    model = PositionalModel(kind)
    alone, added = logits_behind(model, 0, False), kind in ("learned", "sines")
    torch.testing.assert_close(logits_behind(model, 7, counted=True), alone, rtol=0, atol=1e-4)
    torch.testing.assert_close(logits_behind(model, 7, counted=False, letter=9), logits_behind(model, 7, False))
    moved = logits_behind(model, 7, counted=False)
    assert torch.allclose(moved, alone, rtol=0, atol=1e-4) != added


@pytest.mark.parametrize("kind", SCHEMES)
def test_only_places_tell_in_which_order_earlier_letters_stood(kind):
    """Two earlier letters change places: the last token's first layer hears the same only if places are not told."""
    torch.manual_seed(3)
    model, heard = PositionalModel(kind), []
    model.layers[0].register_forward_hook(lambda *call: heard.append(call[-1][:, -1]))
    model(torch.tensor([[3, 4, 5, 6, 7], [4, 3, 5, 6, 7]]))
    assert torch.allclose(*heard[0], rtol=0, atol=1e-5) == (kind == "none")


def test_sines_are_sines_and_cosines_of_one_angle():
    table = PositionalModel("sines").table
    for place in (0, 1, 5, 63):
        for pair in range(NUM_HIDDENS // 2):
            angle = place / 100 ** (2 * pair / NUM_HIDDENS)
            here = table[place, pair].item(), table[place, pair + NUM_HIDDENS // 2].item()
            assert here == pytest.approx((math.sin(angle), math.cos(angle)), abs=1e-5)


@pytest.mark.cpu
def test_learned_places_are_learned_and_those_that_no_row_reaches_stay():
    model = train_positional("learned", seed=4, steps=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        before = PositionalModel("learned").table.detach()
    changed = (model.table.detach() - before).abs().amax(dim=1)
    assert not model.training
    assert changed[:32].min() > 1e-3 and changed[32:].max() < 1e-3  # weight decay moves these, by next to nothing


def test_a_kind_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="kind must be one of rotated, learned, sines, none, got 'added'"):
        PositionalModel("added")


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("left", "masked", "counted"), [(0, True, False), (5, True, True), (5, False, False), (5, False, True)]
)
def test_right_letters_are_counted_where_the_next_letter_is_predictable(left, masked, counted):
    model, rows = shipped_positional_model("learned"), held_out_repeats(6)
    right = []
    for letters, predictable in zip(rows.letters.tolist(), rows.predictable.tolist(), strict=True):
        row = torch.tensor([[0] * left + letters[:-1]])
        padding = torch.tensor([[column < left and masked for column in range(left + 32)]])
        places = torch.tensor([[0] * left + [*range(32)]]) if counted else None
        with torch.no_grad():
            told = model(row, padding=padding, places=places)[0].argmax(dim=-1).tolist()[left:]
        right += [told[t] == letters[t + 1] for t in range(32) if predictable[t]]
    assert right_letters(model, rows, left, masked=masked, counted=counted).tolist() == right


@pytest.mark.cpu
@pytest.mark.parametrize("kind", SCHEMES)
def test_a_shipped_model_is_the_first_of_the_kept_seeds_and_as_good_as_its_figures_say(kind):
    model, kept = shipped_positional_model(kind), load_results("places")[f"{kind}, {STEPS_TO_SHIP} steps"][0]
    figures = json.loads(package_data("models/weights/figures.json", "make weights"))[weights_name(kind)]
    assert figures["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert (figures["seed"], figures["steps"]) == (0, STEPS_TO_SHIP) and not model.training
    shares = {
        figures["right_letters"]: right_letters(model, held_out_repeats()),
        kept["left"]: right_letters(model, held_out_repeats(512), left=8),
        kept["longer"]: right_letters(model, held_out_repeats(512, 48)),
    }
    for share, right in shares.items():
        assert right.float().mean().item() == pytest.approx(share, abs=0.003)
