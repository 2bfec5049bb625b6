"""What 09 says beyond its cells: what positions, windows and leaks do, and which test catches which."""

import re

import pytest
import torch
from notebook_tools import ROOT, make_notebooks

from mha_course.exercises.masks_and_positions import for_halves
from mha_course.heads import load_results, mean_and_ci95
from mha_course.models.induction import rotate, sample_induction_batch

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "09_heads_today.ipynb")


PLACES = load_results("places")
GUESS = PLACES.pop("guess")
TEXT = "\n".join(cell.source for cell in NOTEBOOK.cells if cell.cell_type == "markdown")


def kept(kind, column, steps=4500):
    """Shares of right letters, seed by seed."""
    shares = [run[column] for run in PLACES[f"{kind}, {steps} steps"]]
    assert len(shares) >= 5
    return shares


def ends(shares):
    return f"{min(shares):.2f} to {max(shares):.2f}"


def test_padding_changes_nothing_for_rotated_places_if_it_is_masked():
    for steps in (1500, 4500):
        assert kept("rotated", "left", steps) == kept("rotated", "trained", steps)


@pytest.mark.parametrize("kind", ["learned", "sines"])
def test_added_places_lose_much_behind_padding_and_nothing_where_they_are_counted(kind):
    for steps in (1500, 4500):
        assert kept(kind, "counted", steps) == kept(kind, "trained", steps)
    drops = [one - other for one, other in zip(kept(kind, "trained"), kept(kind, "left"), strict=True)]
    assert min(drops) > 0.2


def test_without_places_little_is_right_beyond_a_guess():
    for column in ("trained", "longer", "left", "counted"):
        assert GUESS[column] - 0.02 < min(kept("none", column)) and max(kept("none", column)) < GUESS[column] + 0.06
        assert max(kept("none", column)) < min(kept(kind, column)[0] for kind in ("rotated", "learned", "sines"))
    assert (f"{GUESS['trained']:.0%}", f"{GUESS['longer']:.0%}") == ("5%", "3%")
    assert "chance level, which is 5 % on rows of 32 and 3 % on rows of 48" in TEXT


def test_on_longer_rows_all_fall_and_rotated_places_are_behind_sines_with_every_seed():
    for kind in ("rotated", "learned", "sines", "none"):
        falls = [one - other for one, other in zip(kept(kind, "trained"), kept(kind, "longer"), strict=True)]
        assert min(falls) > (0.15 if kind != "none" else 0)
    assert max(kept("rotated", "longer")) < min(kept("sines", "longer"))
    assert max(kept("sines", "near")) < min(kept("rotated", "near"))
    rows = sample_induction_batch(5_000, torch.Generator().manual_seed(3), 48)
    far = rows.predictable.nonzero()[:, 1] - rows.target_keys[rows.predictable] > 22
    assert 0.51 < far.double().mean() < 0.6
    assert "depends on the mix: more than half of the right keys are far" in TEXT


def test_tables_know_places_and_rotation_knows_distances():
    for kind in ("learned", "sines"):
        assert max(kept(kind, "late")) < GUESS["late"] and min(kept(kind, "early")) > 0.5
        assert min(kept(kind, "far")) > 0.5
    assert max(kept("rotated", "far")) < 0.5 < min(kept("rotated", "near"))
    near, far = ends(kept("rotated", "near")), ends(kept("rotated", "far"))
    assert f"rotated positions have {near} right up to 22 tokens back, and {far} farther back" in TEXT
    assert max(kept("rotated", "late")) < min(kept("rotated", "near"))


def test_in_training_the_right_key_stood_up_to_place_22_and_22_tokens_back_and_later_it_is_beyond_both():
    for num_tokens, beyond in ((32, False), (48, True)):
        rows = sample_induction_batch(50_000, torch.Generator().manual_seed(7), num_tokens)
        keys = rows.target_keys[rows.predictable]
        far = rows.predictable.nonzero()[:, 1] - keys
        assert (keys.max() > 22, far.max() > 22) == (beyond, beyond)
        assert beyond or (keys.max(), far.max()) == (22, 22)


PACKING = load_results("packing")


def ordered(name, column):
    """What five seeds give, from least to most."""
    values = sorted(run[column] for run in PACKING[name])
    assert len(values) == 5
    return values


def test_what_a_leak_does_to_training():
    """The null, the effect, the control, and where the head that reads the copy looks."""
    leak, mask = (
        [f"{ordered(f'unrelated, {arm}', column)[2]:.2f}" for column in ("half_way", "alone")]
        for arm in ("leak", "mask")
    )
    half_way = (
        f"half-way, {leak[0]} are right without the mask and {mask[0]} with it; at the end, {leak[1]} and {mask[1]}"
    )
    assert half_way in TEXT
    with_mask, with_leak = (ordered(f"copies, {arm}", "loss")[2] for arm in ("mask", "leak"))
    assert f"the training loss from {with_mask:.2f} to {with_leak:.2f}" in TEXT
    assert ordered("copies, mask", "alone")[0] > ordered("copies, leak", "alone")[-1] + 0.4
    assert f"the five seeds then have {ends(ordered('copies, leak, three times the steps', 'alone'))} right" in TEXT
    fifth, *four = sorted(max(run["neighbour"]) for run in PACKING["copies, leak"])
    assert f"four of five seeds this head puts {ends(four)} of its weight there, in the fifth {fifth:.2f}" in TEXT
    assert max(max(run["neighbour"]) for run in PACKING["copies, mask"]) < 0.05


def test_the_conversion_that_exercise_3_shows_is_right_for_one_head_and_wrong_for_two():
    """The scores of neighbours with the original matrices, those of halves with the converted ones."""
    (shown,) = [cell.source for cell in NOTEBOOK.cells if cell.source.startswith("### Exercise 3")]
    namespace = {"torch": torch}
    exec(re.search(r"(?s)```python\n(.*?)```", shown)[1], namespace)
    X, places, order = torch.randn(5, 12), torch.arange(5.0), [0, 2, 4, 6, 1, 3, 5, 7]

    def scores(W_q, W_k, num_heads, of_a_head):
        Q, K = (
            rotate((X @ W.T).unflatten(1, (num_heads, 8)).movedim(1, 0)[..., of_a_head], places) for W in (W_q, W_k)
        )
        return Q @ K.mT

    for num_heads, right in ((1, True), (2, False)):
        pair = torch.randn(2, 8 * num_heads, 12)
        model = scores(*pair, num_heads, order)
        for convert, wanted in ((namespace["for_halves"], right), (for_halves.right, True)):
            got = scores(*(convert(W, num_heads) for W in pair), num_heads, slice(None))
            assert torch.allclose(got, model, rtol=1e-4, atol=1e-4) is wanted


def test_in_smollm2_the_sink_is_any_token_that_has_seen_only_itself():
    sinks = load_results("sinks")
    for found in sinks["first tokens"].values():
        assert found["first"] > 10 * found["uniform"] and found["second"] < found["uniform"]
        assert f"uniform attention would put {found['uniform']:.2f} there" in TEXT
    for number, (*copies, behind) in ((int(number), weights) for number, weights in sinks["copies"].items()):
        assert len(copies) == number and max(copies) - min(copies) < 0.002 and min(copies) > 20 * behind
    *copies, behind = sinks["copies"]["4"]
    assert f"each copy gets {copies[0]:.2f}, and the token behind them {behind:.3f}" in TEXT


def test_a_window_costs_less_with_the_first_tokens():
    windows = load_results("sinks")["windows"]
    told = ["{:.2f} ({:.2f} to {:.2f})".format(*mean_and_ci95(torch.tensor(more))) for more in windows.values()]
    assert (
        "With a window of 28 tokens, the loss rises by {0[0]} nats {0[1]}, where a *nat* is the unit of a loss with "
        "the natural logarithm. With the first four tokens and the last 24, it rises by {1}.".format(
            told[0].split(" ", 1), told[1]
        )
        in TEXT
    )
    assert all(one > other for one, other in zip(*windows.values(), strict=True)) and "We measured five texts." in TEXT
