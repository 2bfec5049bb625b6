"""A small input that keeps what a learner predicts, and shows it beside the answer; it never grades."""

import html

from mha_lib.exercises import kept_work
from mha_lib.exercises.help_in_steps import Page


class Prediction:
    """What ``predict`` shows: an input until something is typed, then the prediction beside the answer, as text.

    Attributes:
        predicted: what was typed; "" before.
        field: the input, while there is one.
    """

    field = None

    def __init__(self, name: str, answer: str) -> None:
        self.name, self.answer = name, answer
        self.predicted = kept_work.kept().get(f"prediction {name}", {}).get("text", "")

    def keep(self, text: str) -> None:
        """Take a prediction, if it is one."""
        if text.strip():
            self.predicted = text.strip()
            kept_work.keep(f"prediction {self.name}", {"text": self.predicted})

    def page(self) -> Page:
        """The prediction, and beside it the answer."""
        if not self.predicted:
            return Page("Your prediction: …", "<i>Your prediction:</i> …")
        lines = [("You predicted", self.predicted), *([("It turns out", self.answer)] if self.answer else [])]
        boxes = "".join(f"<div><b>{title}</b><br>{html.escape(text)}</div>" for title, text in lines)
        return Page(
            "\n".join(f"{title}: {text}" for title, text in lines), f"<div style='display:flex;gap:2em'>{boxes}</div>"
        )

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


def predict(name: str, answer: str = "") -> Prediction:
    """Ask for a prediction before the answer is seen, keep it, and show it beside the answer.

    Args:
        name: any name, one for each question of the course.
        answer: what is shown beside the prediction once there is one.
    """
    return Prediction(name, answer)
