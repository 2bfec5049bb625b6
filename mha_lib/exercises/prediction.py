"""A small input that keeps what a learner predicts, and the answer, folded until then; nothing is ever graded."""

import html

from mha_lib.exercises import kept_work
from mha_lib.exercises.help_in_steps import Page


class Prediction:
    """What ``predict`` shows: an input until something is typed, then what was typed, as text.

    Attributes:
        predicted: what was typed; "" before.
        field: the input, while there is one.
    """

    field = None

    def __init__(self, name: str) -> None:
        self.name, self.predicted = name, predicted(name)

    def keep(self, text: str) -> None:
        """Take a prediction, if it is one."""
        if text.strip():
            self.predicted = text.strip()
            kept_work.keep(f"prediction {self.name}", {"text": self.predicted})

    def page(self) -> Page:
        """The prediction as text."""
        if not self.predicted:
            return Page("Your prediction: …", "<i>Your prediction:</i> …")
        return Page(f"You predicted: {self.predicted}", f"<b>You predicted:</b> {html.escape(self.predicted)}")

    def still(self) -> dict[str, str]:
        """What is left of it where nothing can be typed."""
        page = self.page()
        return {"text/plain": repr(page), "text/html": page._repr_html_()}

    def __repr__(self) -> str:
        return repr(self.page())

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if self.predicted:
            display(self.page())
        else:
            self.ask()

    def ask(self) -> None:
        """Show an input; the text takes its place, so that nothing of the input stays in a saved notebook."""
        import ipywidgets
        from IPython.display import display

        field = ipywidgets.Text(
            placeholder="Type what you expect, then press Enter", continuous_update=False, layout={"width": "40em"}
        )
        field.add_class("mha-prediction")
        shown = display(field._repr_mimebundle_() | self.still(), raw=True, display_id=True)

        def take(_) -> None:
            self.keep(field.value)
            if self.predicted:
                shown.update(self.still(), raw=True)
                field.close()

        field.observe(take, "value")
        self.field = field


class Answer:
    """What ``answer`` shows: the answer to a prediction, folded until there is one, on a page without a kernel too."""

    def __init__(self, name: str, shown: tuple) -> None:
        self.predicted, self.shown = predicted(name), shown

    def __repr__(self) -> str:
        lines = [f"You predicted: {self.predicted}"] if self.predicted else []
        return "\n".join([*lines, *map(str, self.shown)])

    def _repr_html_(self) -> str:
        title, state = "The answer", ""
        if self.predicted:
            title, state = f"You predicted: {html.escape(self.predicted)}. It turns out:", " open"
        return f"<details{state}><summary>{title}</summary>{''.join(map(_as_html, self.shown))}</details>"


def predict(name: str) -> Prediction:
    """Ask for a prediction before the answer is seen, and keep it; ``answer`` with the same name shows it again.

    Args:
        name: any name, one for each question of the course.
    """
    return Prediction(name)


def answer(name: str, *shown: object) -> Answer:
    """Show what ``predict`` asked for: folded where nothing was predicted, else open, beside the prediction.

    Args:
        name: that of the prediction.
        shown: the answer: text, or anything that a notebook shows as HTML, such as a picture or a table.
    """
    return Answer(name, shown)


def predicted(name: str) -> str:
    """What was predicted under this name; "" where nothing was."""
    return kept_work.kept().get(f"prediction {name}", {}).get("text", "")


def _as_html(part: object) -> str:
    drawn = getattr(part, "_repr_html_", None)
    return drawn() if drawn else f"<pre>{html.escape(str(part))}</pre>"
