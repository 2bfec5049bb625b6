"""The bugs of the museum's seventeen rooms in notebook 10: what is wrong in each, and guesses at it."""

from collections.abc import Callable, Mapping
from typing import Any

from mha_course.checking.prediction import Prediction, answer, predicted
from mha_course.checking.verdict import Page, Verdict
from mha_course.museum import layer_tests
from mha_course.museum.layer_reference import Implementation
from mha_course.museum.layer_tests import TESTS, Test

__all__ = ["check_fix", "guess", "reveal", "score"]

LEAK, ELSEWHERE = "padding or a later token gets weight", "features reach the wrong token, head or example"
SUMS, SCORES = "the weights of a query do not sum to 1", "weights are too flat or too sharp"
NO_QUERY, NAN = "the query has no effect", "NaN spreads"
TRAINING, POSITIONS = "only training is wrong", "tokens get wrong positions"
OTHER_TEXT, RIGHT = "a text attends to another text", "the code is right"
SUSPECTS = (LEAK, ELSEWHERE, SUMS, SCORES, NO_QUERY, NAN, TRAINING, POSITIONS, OTHER_TEXT, RIGHT)
SAME = "The tests find the same as in the room. Change the class above, then run the cell again."
FOUND = {  # room → what is wrong there; any one of them names it
    1: {LEAK},
    2: {SUMS, LEAK},
    3: {SCORES},
    4: {SUMS, SCORES},
    5: {SUMS},
    6: {NAN},
    7: {ELSEWHERE},
    8: {ELSEWHERE},
    9: {LEAK, ELSEWHERE},
    10: {ELSEWHERE},
    11: {LEAK},
    12: {RIGHT},
    13: {LEAK},
    14: {POSITIONS},
    15: {POSITIONS},
    16: {OTHER_TEXT},
    17: {LEAK, POSITIONS},
}


class Guess(Prediction):
    """Show a list of possible bugs in a notebook until the learner picks one, and from then on the pick."""

    def asking(self, take: Callable[[str], None]) -> Any:
        """Return the list, and a button that hands over what is picked."""
        import ipywidgets

        options = [("What is wrong? Pick one …", ""), *((suspect, suspect) for suspect in SUSPECTS)]
        suspects = ipywidgets.Dropdown(options=options, layout={"width": "26em", "max_width": "100%"})
        button = ipywidgets.Button(description="This is my guess")
        button.on_click(lambda _: take(suspects.value))
        return ipywidgets.Box([suspects, button], layout={"flex_flow": "row wrap", "max_width": "100%"})


def guess(room: int) -> Guess:
    """Ask the learner which bug the broken layer number ``room`` of notebook 10 has, and store the guess."""
    return Guess(_name(room))


def reveal(room: int, *shown: object) -> Page:
    """Show which bug the broken layer number ``room`` of notebook 10 has, collapsed if the learner guessed nothing."""
    wrong = f"What is wrong: {' / '.join(suspect for suspect in SUSPECTS if suspect in FOUND[room])}."
    return answer(_name(room), wrong, *shown)


def score() -> str:
    """Return a sentence that says for how many broken layers the learner guessed the right bug."""
    guesses = {room: guessed for room in FOUND if (guessed := predicted(_name(room)))}
    named = [room for room, guessed in guesses.items() if guessed in FOUND[room]]
    rooms = f" (rooms {', '.join(map(str, named))})" if named else ""
    return f"named: {len(named)} of {len(guesses)}{rooms}; rooms without a guess: {len(FOUND) - len(guesses)}"


def check_fix(exhibit: Implementation, repair: Implementation, tests: Mapping[str, Test] = TESTS) -> Verdict:
    """Test ``repair``, a corrected version of the broken layer ``exhibit``; return a verdict with the failing tests."""
    if layer_tests.run(repair, tests).findings == layer_tests.run(exhibit, tests).findings:
        return Verdict("not yet", SAME)
    return layer_tests.verdict(repair, tests)


def _name(room: int) -> str:
    return f"10 room {room}"
