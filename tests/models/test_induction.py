"""Heads being born: the rows, the model, the start of a run, and the kept results of eight seeds."""

import pytest
import torch

from mha_course.heads.kept_results import load_results
from mha_course.models import AttentionOnly, repeat_loss, train_on_repeats
from mha_course.models.induction import (
    NUM_HIDDENS,
    NUM_TOKENS,
    RotaryAttention,
    held_out_repeats,
    letter_losses,
    rotate,
    sample_induction_batch,
)

SEED, LAST = 2, 250  # notebook 11 trains to the end and asserts that the heads come into being


@pytest.fixture(scope="module")
def run():
    return train_on_repeats(SEED, [0, 100, LAST], progress=False)


@pytest.mark.parametrize("num_tokens", [NUM_TOKENS, 48])
def test_what_is_predictable_has_been_read_before_and_nothing_else_comes_again(num_tokens):
    rows = sample_induction_batch(50, torch.Generator().manual_seed(3), num_tokens)
    assert rows.letters.shape == (50, num_tokens + 1) and rows.predictable.shape == (50, num_tokens)
    for letters, predictable, target_keys in zip(
        rows.letters.tolist(), rows.predictable, rows.target_keys, strict=True
    ):
        assert 10 <= len(letters) - len(set(letters)) <= 14
        for t in range(num_tokens):
            earlier = [j for j in range(1, t + 1) if letters[j - 1] == letters[t] and letters[j] == letters[t + 1]]
            assert predictable[t].item() == bool(earlier)
            assert not earlier or earlier == [target_keys[t].item()]
    assert rows.letters.max() > 55


def test_a_piece_may_stand_at_either_end_of_its_row_with_its_copy_close_by_or_far_away():
    letters = sample_induction_batch(20_000, torch.Generator().manual_seed(4)).letters
    again = (letters[:, :, None] == letters[:, None, :]).triu(diagonal=1)  # (row, place, place of the copy)
    length, first = again.sum(dim=(1, 2)), again.any(dim=2).int().argmax(dim=1)
    last = NUM_TOKENS - again.any(dim=1).flip(1).int().argmax(dim=1)
    gap = last + 1 - first - 2 * length
    for number in range(10, 15):
        assert gap[length == number].max() == NUM_TOKENS + 1 - 2 * number
        adjacent = (length == number) & (gap == 0)
        assert (first[adjacent].min(), last[adjacent].max()) == (0, NUM_TOKENS)


def test_rotation_is_multiplication_by_complex_numbers():
    X = torch.randn(2, 3, 7, 6, dtype=torch.float64)
    angles = torch.arange(7)[:, None] * 100.0 ** (-torch.arange(3) / 3)
    turned = torch.complex(X[..., :3], X[..., 3:]) * torch.exp(1j * angles)
    expected = torch.cat([turned.real, turned.imag], dim=-1)
    torch.testing.assert_close(rotate(X), expected, rtol=0, atol=1e-5)  # the angles are taken in single precision
    torch.testing.assert_close(rotate(X[:, :, 2:5], torch.tensor([2, 3, 4])), rotate(X)[:, :, 2:5], rtol=0, atol=1e-5)


@pytest.mark.parametrize("keys_from_before", [False, True])
def test_no_logit_depends_on_later_letters(keys_from_before):
    torch.manual_seed(1)
    model = AttentionOnly(num_layers=2, num_heads=4, keys_from_before=keys_from_before)
    letters = torch.arange(9)[None]
    changed = letters.clone()
    changed[0, 5] = 60
    same = torch.isclose(model(letters), model(changed), atol=1e-5).all(dim=-1)[0]
    assert same.tolist() == [True] * 5 + [False] * 4


def test_keys_from_before_know_the_token_before_and_not_their_own():
    torch.manual_seed(1)
    layer, X = RotaryAttention(2, keys_from_before=True), torch.randn(1, 6, NUM_HIDDENS)
    _, K, _ = layer.project(X, X, X)
    changed = X.clone()
    changed[0, 3] += 1
    _, other, _ = layer.project(changed, changed, changed)
    assert [t for t in range(6) if not torch.equal(K[0, :, t], other[0, :, t])] == [4]
    assert not K[0, :, 0].any()


def test_a_head_that_is_switched_off_adds_nothing():
    torch.manual_seed(2)
    model, letters = AttentionOnly(), torch.randperm(64)[None, :NUM_TOKENS]
    without = model(letters, model.all_but((0, 1), (1, 0)))
    model.layers[0].W_o.weight.data[:, 16:] = 0
    model.layers[1].W_o.weight.data[:, :16] = 0
    torch.testing.assert_close(without, model(letters))


@pytest.mark.cpu
def test_the_kept_numbers_are_those_of_the_kept_models(run):
    assert run.maps.shape == (3, 2, 2, NUM_TOKENS, NUM_TOKENS) and run.letters.shape == (NUM_TOKENS,)
    model = run.model_at(LAST)
    assert repeat_loss(model) == pytest.approx(run.losses[-1])
    with torch.no_grad():
        model(run.letters[None])
    torch.testing.assert_close(model.attention_weights[:, 0], run.maps[-1])
    with pytest.raises(ValueError, match=r"step must be one of the kept steps, \[0, 100, 250\], got 7"):
        run.model_at(7)


@pytest.mark.cpu
def test_the_kept_scores_are_mean_weights_on_the_token_before_and_on_the_right_key(run):
    model, rows = run.model_at(LAST), held_out_repeats()
    with torch.no_grad():
        model(rows.letters[:, :-1])
    weights = model.attention_weights.numpy()  # (layers, rows, heads, q, k)
    for layer, head in ((0, 0), (0, 1), (1, 0), (1, 1)):
        maps = weights[layer, :, head]
        before = [maps[row, t, t - 1] for row in range(len(maps)) for t in range(1, NUM_TOKENS)]
        right = [maps[row, t, rows.target_keys[row, t]] for row, t in rows.predictable.nonzero().tolist()]
        assert run.previous_token[-1, layer, head].item() == pytest.approx(sum(before) / len(before), abs=1e-5)
        assert run.induction[-1, layer, head].item() == pytest.approx(sum(right) / len(right), abs=1e-5)


@pytest.mark.cpu
def test_losses_are_those_of_the_next_letter():
    torch.manual_seed(3)
    model, letters = AttentionOnly(), sample_induction_batch(2, torch.Generator().manual_seed(1)).letters
    logits = model(letters[:, :-1])
    loss = letter_losses(model, letters)[1, 20]
    torch.testing.assert_close(loss, -torch.log_softmax(logits[1, 20], dim=0)[letters[1, 21]])


@pytest.mark.cpu
@pytest.mark.long
def test_with_each_of_eight_seeds_one_head_looks_back_and_the_fall_needs_it(run):
    """Plateau, cliff and the one-layer models stand in the tests of notebook 11, which tells of them."""
    results = load_results("births")
    assert list(results) == [str(seed) for seed in range(8)]
    for result in results.values():
        assert dict(zip(result["steps"], result["losses"], strict=True))[1500] < 0.8
        first = result["previous_token"][-1].index(max(result["previous_token"][-1]))
        assert max(result["previous_token"][0] + result["induction"][0]) < 0.2
        assert max(result["previous_token"][-1]) > 0.5 and max(result["induction"][-1]) > 0.6
        assert result["without"][f"0.{first}"] > 3.5 and result["without_layer_1"] > 4.16
    kept = dict(zip(results[str(SEED)]["steps"], results[str(SEED)]["losses"], strict=True))
    assert run.losses == pytest.approx([kept[step] for step in run.steps], abs=0.05)  # the kept ones are of other rows
