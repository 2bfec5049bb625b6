"""The words for a task's tokens in pictures, in the chosen language."""

from mha_course.language import tr
from mha_course.models.tasks import Batch, Lookups, Task


def token_words(task: Task, batch: Batch, example: int) -> list[tuple[list[str], list[str]]]:
    """Return ``task.token_labels`` of one example, a pair (queries, keys) for each layer, in the chosen language.

    Only the task "lookups" has words; letters, signs and patches are named alike in every language.
    """
    if not isinstance(task, Lookups):
        return task.token_labels(batch, example)
    fields = task.fields(batch, example)
    queries = [tr("{value} wants {label}", value=value, label=wanted) for value, _, wanted in fields]
    keys = [tr("{value} has {label}", value=value, label=own) for value, own, _ in fields]
    return [(queries, keys)] * 2
