"""A reshape where a permute belongs, in a model that has learned without it and in one that learns with it.

``python -m research.wrong_reshape``, under a minute, writes wrong_reshape.md. The mistake is that of published code
(reczoo/FuxiCTR, issue 30): the projected queries, keys and values go to the heads by a reshape alone.
"""

from torch import Tensor

from benchmarks.report import markdown
from mha_course.models.shipped import shipped_figures, shipped_model
from mha_course.models.tasks import TASKS, Task
from mha_course.models.threads import single_thread
from mha_course.models.training import finetune, seeded
from mha_course.models.transformer import Transformer
from mha_lib import MultiHeadAttention
from research.kept import write_report


class WithoutPermute(MultiHeadAttention):
    """The layer whose heads get the right shape, and numbers that belong to other tokens and heads."""

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.W_q(queries), self.W_k(keys), self.W_v(values)
        return self._cut(q), self._cut(k), self._cut(v)

    def _cut(self, X: Tensor) -> Tensor:
        return X.reshape(len(X), self.num_heads, X.shape[1], -1)  # (b, n, d) -> (b, h, n, p)


def with_mistake(model: Transformer) -> Transformer:
    """The same model, in every layer of which the permute is left out from now on."""
    for layer in model.attentions:
        layer.__class__ = WithoutPermute
    return model


def learned_with_mistake(task: Task, seed: int) -> Transformer:
    """A model that never had another layer."""
    with seeded(seed):
        model = with_mistake(task.model())
    return finetune(model, task, seed)


def row(task: Task) -> list[str]:
    """A line of the table."""
    models = (
        shipped_model(task),
        with_mistake(shipped_model(task)),
        learned_with_mistake(task, shipped_figures(task)["seed"]),
    )
    return [task.name, *(f"{task.accuracy(model):.3f}" for model in models)]


def main() -> None:
    """Train, measure, write."""
    head = ("task", "right reshape", "the mistake put in afterwards", "learned with the mistake")
    with single_thread():
        table = markdown(head, [row(task) for task in TASKS.values()])
    write_report(__file__, f"# Share of right answers with a reshape where a permute belongs\n\n{table}\n")


if __name__ == "__main__":
    main()
