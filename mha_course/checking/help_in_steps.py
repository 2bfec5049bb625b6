"""Help with an exercise in steps, a worked answer on demand, and how far one has come."""

import html

from mha_course import kept_work
from mha_course.checking.exercise import Exercise
from mha_course.checking.verdict import Page
from mha_course.language import lang, listed, sentences, tr

NEEDED_TRIES = 3  # after which the worked answer is shown, solved or not
COURSE: dict[str, Exercise] = {}  # name → exercise, in the order of the course; filled by the room's __init__
_hints_given: dict[str, int] = {}


def hint(name: str) -> Page:
    """Show the next hint for the exercise called ``name``; each call shows one hint more."""
    exercise = find(name)
    _hints_given[name] = _hints_given.get(name, 0) + 1
    steps = [(tr(step), tr(text)) for step, text in exercise.hints.items()][: _hints_given[name]]
    labels = [(f"<b>{tr('{sentence}.', sentence=step)}</b>", html.escape(text)) for step, text in steps]
    items = "".join(f"<li>{sentences(label)}</li>" for label in labels)
    text = "\n".join(listed(step, ": ") for step in steps)
    return Page(text, f"<ol{lang()} style='margin:0'>{items}</ol>")


def solution(name: str) -> Page:
    """Show a worked solution of the exercise called ``name``, once it is solved or was tried three times."""
    exercise = find(name)
    if kept_work.solutions_are_off():
        return Page(tr("Worked answers are switched off here (MHA_SOLUTIONS=off)."))
    done = kept_work.kept().get(name, {})
    missing = NEEDED_TRIES - done.get("tries", 0)
    if not done.get("solved") and missing > 0:
        told = (
            tr("You can see the worked answer once the exercise is solved, or after 1 more try.")
            if missing == 1
            else tr(
                "You can see the worked answer once the exercise is solved, or after {count} more tries.", count=missing
            )
        )
        return Page(sentences([told, tr('`exercises.hint("{name}")` helps in steps.', name=name)]))
    columns = [(tr("yours"), exercise.answer)] * bool(exercise.answer) + [(tr("worked answer"), exercise.solution)]
    boxes = "".join(f"<div><b>{title}</b><pre>{html.escape(code)}</pre></div>" for title, code in columns)
    beside = f"<div style='display:flex;gap:2em'>{boxes}</div>"
    text = "\n".join(f"# {title}\n{code}" for title, code in columns)
    title = tr("A worked answer to {name}", name=name)
    return Page(text, f"<details{lang()}><summary>{title}</summary>{beside}</details>")


def progress() -> Page:
    """Show which exercises of the course are solved, which were tried, and which are still to do."""
    done = kept_work.kept()
    rows: dict[str, list[str]] = {}
    for name, exercise in COURSE.items():
        subject = exercise.right.__module__.rpartition(".")[2].replace("_", " ")
        sign = "✓" if done.get(name, {}).get("solved") else "✗" if name in done else "·"
        rows.setdefault(subject, []).append(f"{sign} {name}")
    solved = sum(bool(done.get(name, {}).get("solved")) for name in COURSE)
    lines = [f"{subject}: {', '.join(names)}" for subject, names in rows.items()]
    return Page("\n".join([f"{solved} of {len(COURSE)} exercises solved (✓ solved, ✗ tried, · to do)", *lines]))


def find(name: str) -> Exercise:
    """Return the exercise called ``name``; raise a ``ValueError`` if there is none of this name."""
    if name not in COURSE:
        raise ValueError(f"there is no exercise {name!r}; there are: {', '.join(COURSE)}")
    return COURSE[name]
