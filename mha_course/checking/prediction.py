"""A small input that keeps what a learner predicts, and the answer, folded until then; nothing is ever graded."""

import html
from collections.abc import Callable
from typing import Any

from mha_course import kept_work
from mha_course.checking.quiz_bank import choices
from mha_course.checking.verdict import Page
from mha_course.language import ENGLISH, chosen, lang, sentences, tr

CHOOSE = "What do you expect? Choose with ↓, or type it, and press Enter"  # answers to choose from are in English


class Prediction:
    """Show a text field in a notebook until the learner has typed a prediction, and from then on the prediction.

    Where the quiz bank has answers to the question, in English, the field offers them.

    Attributes:
        predicted: what was typed; "" before.
        field: the input, while there is one.
    """

    field = None

    def __init__(self, name: str) -> None:
        self.name, self.predicted = name, predicted(name)

    def keep(self, text: str) -> None:
        """Keep what was typed, unless it is blank."""
        if text.strip():
            self.predicted = text.strip()
            kept_work.keep(f"prediction {self.name}", {"text": self.predicted})

    def page(self) -> Page:
        """Return the prediction as text."""
        title, guess = tr("You predicted:") if self.predicted else tr("Your prediction:"), self.predicted or "…"
        mark = "b" if self.predicted or lang() else "i"  # Han and kana do not slant
        shown = f"<{mark}{lang()}>{title}</{mark}>{tr(' ')}{html.escape(guess)}"
        return Page(sentences([title, guess]), shown)

    def still(self) -> dict[str, str]:
        """Return the same as text and HTML, for pages on which nothing can be typed."""
        return {"text/plain": repr(self.page()), "text/html": self.page()._repr_html_()}

    def __repr__(self) -> str:
        return repr(self.page())

    def asking(self, take: Callable[[str], None]) -> Any:
        """Return an input that hands over what is typed or chosen."""
        import ipywidgets

        offered = choices(self.name) if chosen() == ENGLISH else []
        field = ipywidgets.Combobox(
            options=offered,
            placeholder=CHOOSE if offered else tr("What do you expect? Type it, and press Enter"),
            tooltip=tr("If you have opened the notebook again, run this cell first."),
            continuous_update=False,
            layout={"width": "40em", "max_width": "100%"},
        )
        field.add_class("mha-prediction")
        field.observe(lambda change: take(change["new"]), "value")
        return field

    def _ipython_display_(self) -> None:
        """Show what was typed, or an input; the text takes its place, so that a saved notebook keeps no input."""
        from IPython.display import display

        if self.predicted:
            display(self.page())
            return

        def take(text: str) -> None:
            self.keep(text)
            if self.predicted:
                shown.update(self.still(), raw=True)
                field.close()

        self.field = field = self.asking(take)
        shown = display(field._repr_mimebundle_() | self.still(), raw=True, display_id=True)


def predict(name: str) -> Prediction:
    """Ask the learner in a notebook for a prediction, and store it under ``name`` for ``answer`` to show again."""
    return Prediction(name)


def answer(name: str, *shown: object) -> Page:
    """Show ``shown``, the answer to a question, with the learner's stored prediction; folded if there is no prediction.

    It can be unfolded on a page without a kernel, too.

    Args:
        name: that of the prediction.
        shown: the answer: text, or anything that a notebook shows as HTML, such as a picture or a table.
    """
    lines, title, state = [*map(str, shown)], tr("The answer"), ""
    if expected := predicted(name):
        lines = [tr("You predicted: {guess}", guess=expected), *lines]
        title, state = tr("You predicted: {guess}. It turns out:", guess=html.escape(expected)), " open"
    drawn = [x._repr_html_() if hasattr(x, "_repr_html_") else f"<pre>{html.escape(str(x))}</pre>" for x in shown]
    return Page("\n".join(lines), f"<details{state}><summary>{title}</summary>{''.join(drawn)}</details>")


def predicted(name: str) -> str:
    """Return the text of the learner's prediction that is stored under ``name``; "" if there is none."""
    return kept_work.kept().get(f"prediction {name}", {}).get("text", "")
