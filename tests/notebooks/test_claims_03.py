"""What notebook 03 says of its sentence and its heads, counted anew without torch; and what a call costs."""

import math

import notebook_tools
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mha_course.models import train_one_head
from mha_lib import split_heads

ADJECTIVES, NOUNS = [0, 3, 4, 5], [1, 6]
HUNGRY, CATS, CHASE, SMALL, QUICK, GREY, MICE = range(7)


@pytest.fixture(scope="module")
def told():
    """Everything that sections 1 to 4 define, with what is folded."""
    return notebook_tools.told("03_multi_head_attention", before="## Deeper: four ways")


@pytest.fixture(scope="module")
def trained():
    """Everything that the story defines, with what it trains."""
    return notebook_tools.told("03_multi_head_attention")


def shares(scores):
    return [math.exp(score) / sum(map(math.exp, scores)) for score in scores]


def what_row(query):
    return shares([8.0 if query in NOUNS and key in ADJECTIVES else 0.0 for key in range(7)])


def where_row(query, back=2):
    return shares([20 / math.sqrt(7) if 1 <= query - key <= back else 0.0 for key in range(7)])


def close(row, expected):
    assert row.tolist() == pytest.approx(expected, abs=1e-6)


def test_the_maps_are_those_of_a_head_written_as_a_rule(told):
    assert told["words"][MICE] == "mice" and told["X"].shape == (7, 14)
    for query in range(7):
        close(told["what"][query], what_row(query))
        close(told["where"][query], where_row(query))


def test_three_places_back_is_right_for_both_nouns():
    assert where_row(CATS, back=3)[HUNGRY] > 0.99
    assert sum(where_row(MICE, back=3)[key] for key in (SMALL, QUICK, GREY)) > 0.99


def test_swapped_matrices_let_adjectives_ask_and_one_matrix_finds_what_is_alike(told):
    for adjective in ADJECTIVES:
        assert [round(told["swapped"][adjective, noun].item(), 2) for noun in NOUNS] == [0.5, 0.5]
    for noun in NOUNS:
        close(told["swapped"][noun], [1 / 7] * 7)
        assert [round(told["alike"][noun, other].item(), 2) for other in NOUNS] == [0.5, 0.5]


def test_eight_numbers_hold_both_messages_and_move_the_word(told):
    passed_on = {HUNGRY: 0, SMALL: 1, QUICK: 2, GREY: 3}  # each adjective's own coordinate of the values
    for noun in NOUNS:
        what, where = what_row(noun), where_row(noun)
        moved = told["X"][noun].tolist()
        for word, coordinate in passed_on.items():
            assert told["averages"][noun, coordinate].item() == pytest.approx(what[word], abs=1e-6)
            assert told["averages"][noun, 4 + coordinate].item() == pytest.approx(where[word], abs=1e-6)
            moved[3 + coordinate] += what[word] + where[word]
        close(told["moved"][noun], moved)
    cats = told["moved"][CATS]
    assert cats[3:7].argmax() == passed_on[HUNGRY] and cats[1] == cats[8] == 1  # hungry, a noun, at place 1


def test_a_head_of_size_1_prefers_the_largest_key_or_the_smallest_and_wider_ones_have_more_choice(told):
    queries, keys = told["many_queries"], told["twelve_keys"]
    choices = [{max(range(12), key=lambda k, q=q: float(q[:p] @ keys[k, :p])) for q in queries[:300]} for p in (1, 4)]
    first = keys[:, 0].tolist()
    assert choices[0] == {first.index(max(first)), first.index(min(first))}
    assert len(choices[1]) > 6


def test_the_number_of_heads_does_not_change_the_cost_and_pairs_cost_more_than_projections_beyond_2d_tokens():
    d = 12
    for n, num_heads in ((5, 3), (24, 2), (24, 6), (30, 4)):
        X, (W_q, W_k, W_v, W_o) = torch.randn(1, n, d), torch.randn(4, d, d)
        with FlopCounterMode(display=False) as projections:
            Q, K, V = (split_heads(X @ W, num_heads) for W in (W_q, W_k, W_v))
            X @ W_o
        with FlopCounterMode(display=False) as pairs:
            (Q @ K.mT).softmax(-1) @ V
        assert projections.get_total_flops() == 8 * n * d**2 and pairs.get_total_flops() == 4 * n**2 * d
        assert (pairs.get_total_flops() > projections.get_total_flops()) == (n > 2 * d)


def test_the_head_of_section_5_finds_the_right_key(trained):
    assert trained["weight"] > 0.85 and trained["loss"] < 0.1


def test_a_lone_head_tells_both_letters_with_a_hidden_layer_only(trained):
    alone, two, hidden = (run.all_right for run in trained["runs"].values())
    assert alone < 0.3 and two > 0.95 and hidden > 0.95


def test_the_spread_at_step_50_over_eight_seeds():
    weights = [train_one_head(seed, keep=[50]).weight_on_right_key[0] for seed in range(8)]
    assert (min(weights), max(weights)) == pytest.approx((0.29, 0.53), abs=0.01)


def test_the_untrained_head_has_a_dark_spot_but_no_line():
    untrained = train_one_head(seed=1, keep=[0])
    assert untrained.maps.max().item() == pytest.approx(0.24, abs=0.01)
    assert untrained.weight_on_right_key[0] < 0.15


def test_at_step_50_some_tokens_have_found_their_key_and_others_look_elsewhere():
    run = train_one_head(seed=0, keep=[0, 50, 100])
    on_right_key = run.maps[1].diagonal(offset=-1)  # that of token 1 first
    assert on_right_key[9 - 1] > 0.9 and on_right_key[[2 - 1, 7 - 1]].max() < 0.2
    assert run.losses == pytest.approx([2.3, 1.35, 0.05], abs=0.02)
