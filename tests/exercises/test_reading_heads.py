"""What an exercise of 06 takes for true: what a head contributes."""

from mha_course.exercises import contribution_map, reading_heads


def test_a_dead_head_contributes_nothing():
    weights, values, W_o = reading_heads.contribution_trial(2, 3, 4, 5, 2)
    W_o[:, 2:4] = 0
    lengths = contribution_map.right(weights, values, W_o)
    assert (lengths[:, 1] == 0).all() and (lengths[:, ::2] > 0).all()
