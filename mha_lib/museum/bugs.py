"""The bugs of the museum's sixteen rooms, which stand in notebook 10: what is wrong in each, and guesses at it."""

from collections.abc import Callable, Mapping
from typing import Any

from mha_lib.checking.prediction import Prediction, answer, predicted
from mha_lib.checking.verdict import Page, Verdict
from mha_lib.museum import layer_tests
from mha_lib.museum.layer_tests import TESTS, Implementation, Test

__all__ = ["check_fix", "guess", "reveal", "score"]

HEARD, ELSEWHERE = "padding, or a later token, is heard", "numbers land with the wrong token, head or example"
SUMS, SCORES = "the weights of a query do not sum to 1", "weights are too flat or too sharp"
NO_SAY, NAN = "the query has no say", "NaN spreads"
TRAINING, PLACES = "only training goes wrong", "tokens stand at the wrong place"
OTHER_TEXT, NOTHING = "another text is heard", "nothing is wrong"
SUSPECTS = (HEARD, ELSEWHERE, SUMS, SCORES, NO_SAY, NAN, TRAINING, PLACES, OTHER_TEXT, NOTHING)
FOUND = {  # room → what is wrong there; any one of them names it
    1: {HEARD},
    2: {SUMS, HEARD},
    3: {SCORES},
    4: {SUMS, SCORES},
    5: {SUMS},
    6: {NAN},
    7: {ELSEWHERE},
    8: {ELSEWHERE},
    9: {HEARD, ELSEWHERE},
    10: {ELSEWHERE},
    11: {HEARD},
    12: {NOTHING},
    13: {HEARD},
    14: {PLACES},
    15: {PLACES},
    16: {OTHER_TEXT},
}


class Guess(Prediction):
    """Show a list of suspects until one is picked, then the pick, as text."""

    def asking(self, take: Callable[[str], None]) -> Any:
        """Return the list, and a button that hands over what is picked."""
        import ipywidgets

        options = [("What is wrong? Pick one …", ""), *((suspect, suspect) for suspect in SUSPECTS)]
        suspects = ipywidgets.Dropdown(options=options, layout={"width": "26em", "max_width": "100%"})
        button = ipywidgets.Button(description="This is my guess")
        button.on_click(lambda _: take(suspects.value))
        return ipywidgets.Box([suspects, button], layout={"flex_flow": "row wrap", "max_width": "100%"})


def guess(room: int) -> Guess:
    """Ask what is wrong in a room, and store the guess for ``reveal`` and ``score``."""
    return Guess(_name(room))


def reveal(room: int, *shown: object) -> Page:
    """Show what is wrong in a room, and then ``shown``: folded if there is no guess yet."""
    wrong = f"What is wrong: {' / '.join(suspect for suspect in SUSPECTS if suspect in FOUND[room])}."
    return answer(_name(room), wrong, *shown)


def score() -> str:
    """Return how many rooms were guessed, and in how many the guess was right."""
    guesses = {room: guessed for room in FOUND if (guessed := predicted(_name(room)))}
    named = [room for room, guessed in guesses.items() if guessed in FOUND[room]]
    rooms = f" (rooms {', '.join(map(str, named))})" if named else ""
    return f"named: {len(named)} of {len(guesses)}{rooms}; not guessed at yet: {len(FOUND) - len(guesses)}"


def check_fix(exhibit: Implementation, repair: Implementation, tests: Mapping[str, Test] = TESTS) -> Verdict:
    """Check whether a repaired layer passes the tests, and if not, name what is left to do."""
    if layer_tests.run(repair, tests).findings == layer_tests.run(exhibit, tests).findings:
        return Verdict("not yet", "The panel sees in it what it sees in the room.")
    return layer_tests.verdict(repair, tests)


def _name(room: int) -> str:
    return f"10 room {room}"
