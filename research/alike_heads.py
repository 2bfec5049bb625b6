"""Why heads become different: the look-ups learned as usual, by heads that begin alike, and by one layer.

``python -m research.alike_heads``, some minutes, writes alike_heads.md: the share of right answers to each question,
for three seeds. Where heads begin alike, all six of a layer are copies of one. Dropout draws for each head on its own,
which makes copies differ; so it is off but where it is named.
"""

from benchmarks.report import markdown
from mha_course.heads.removal import select_heads
from mha_course.models.tasks import Lookups
from mha_course.models.threads import single_thread
from mha_course.models.training import finetune, seeded
from mha_course.models.transformer import Transformer
from research.kept import write_report

SEEDS = range(3)
LOOKUPS = Lookups()


def as_usual(model: Transformer) -> None:
    """Two layers of six heads, drawn at random."""


def alike(model: Transformer) -> None:
    """In each layer six copies of its head 0."""
    for block in model.blocks.values():
        block.attention = select_heads(block.attention, [0] * 6)


def one_layer(model: Transformer) -> None:
    """Layer 0 alone."""
    delattr(model.get_submodule("blocks"), "layer 1")


VARIANTS = {
    "as usual": (as_usual, False),
    "heads begin alike": (alike, False),
    "heads begin alike, dropout": (alike, True),
    "one layer": (one_layer, False),
    "one layer, dropout": (one_layer, True),
}


def learned(variant: str, seed: int) -> list[float]:
    """Share of right answers to each question after the task's own training."""
    change, with_dropout = VARIANTS[variant]
    with seeded(seed):
        model = LOOKUPS.model()
    change(model)
    for layer in model.attentions:
        layer.attention.dropout.p *= with_dropout
    finetune(model, LOOKUPS, seed, progress=variant)
    batch = LOOKUPS.held_out
    return LOOKUPS.correct(model(batch.inputs), batch.targets).double().mean(dim=(0, 1)).tolist()


def main() -> None:
    """Train, measure, write."""
    head = ("variant", "seed", *LOOKUPS.questions)
    with single_thread():
        rows = [
            [variant, str(seed), *(f"{share:.3f}" for share in learned(variant, seed))]
            for variant in VARIANTS
            for seed in SEEDS
        ]
    title = "# Share of right answers to each question about the look-ups"
    write_report(__file__, f"{title}\n\n{markdown(head, rows)}\n")


if __name__ == "__main__":
    main()
