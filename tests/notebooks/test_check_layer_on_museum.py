"""``check_layer`` catches every exhibit of the bug museum, by the name of its bug, and lets the clean room pass."""

import pytest

from mha_lib.exercises.check_layer import check_layer

pytestmark = pytest.mark.xdist_group("museum")

NAMES = {  # room → words of what must be said of it
    1: "0 before the softmax",
    2: "mask comes after the softmax",
    3: "√num_hiddens instead of",
    4: "no tanh",
    5: "over the queries",
    6: "gets NaN",
    7: "reshape without a transpose",
    8: "merged by a reshape",
    9: "repeat_interleave",
    10: "after dropout",
    11: "Does the rate arrive?",
}


@pytest.mark.parametrize("room", NAMES)
def test_an_exhibit_is_caught_and_named(museum, room):
    verdict = check_layer(museum[f"Room{room}"])
    assert verdict.state == "wrong" and NAMES[room] in verdict.text, verdict


def test_the_clean_room_passes(museum):
    assert check_layer(museum["Room12"])
