"""What SmolLM2 reads in ``research.real_heads``: texts that cuts are judged on, texts that measures see, and repeats.

A row is the first 64 tokens of a text. Cuts are judged on sixteen rows: eight paragraphs of this project, as they once
were, and eight of scikit-learn's descriptions of data sets. Measures see other texts, of two kinds: *prose*, other
paragraphs of these notebooks (calibration_prose.txt), which share no eight words in a row with those; and *docstrings*
of Python's library, as the Python that runs this has them.
"""

import functools
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from mha_course.models.smollm2 import NextToken, SmolLM2
from mha_course.models.tasks import Batch
from research.prose import calibration_prose, descriptions, of_docstrings, own_prose

TASK = NextToken()
ROW = 64  # tokens
LEFT_OUT = 3  # of each kind of judged texts: earlier versions gave the first ones to measures
POOL = 240  # rows of each kind that draws for measures come from
REPEATED, CHOSEN_ON, JUDGED_ON = 24, 6, 12  # random tokens that come twice; sequences to choose heads on; others
WORDS_OF_A_TEXT, TEXTS_OF_A_MODULE = 70, 4


def rows(model: SmolLM2, texts: list[str]) -> Tensor:
    """The first tokens of each text that has enough: (number, ROW)."""
    ids = (model.tokenize(text)[:ROW] for text in texts)
    return torch.tensor([row for row in ids if len(row) == ROW])


def judged(model: SmolLM2) -> Batch:
    """Sixteen rows that no measure sees."""
    return TASK.examples(torch.cat([rows(model, kind())[LEFT_OUT:] for kind in (descriptions, own_prose)]))


@functools.cache
def pool(model: SmolLM2, kind: str) -> Batch:
    """POOL rows of one kind, "prose" or "docstrings", in an order that was drawn."""
    texts = calibration_prose() if kind == "prose" else list(docstrings())
    found = rows(model, texts)
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(0))
    return TASK.examples(found[order[:POOL]])


def drawn(number: int, draw: int) -> Tensor:
    """Numbers of the rows of a pool that one draw takes: (number,). Draws may share rows."""
    return torch.randperm(POOL, generator=torch.Generator().manual_seed(1000 + draw))[:number]


def docstrings() -> Iterator[str]:
    """Prose of the docstrings of Python's library, by module, at most TEXTS_OF_A_MODULE texts of each."""
    library = Path(sysconfig.get_path("stdlib"))
    for name in sorted(sys.stdlib_module_names):
        files = library / f"{name}.py", library / name / "__init__.py"
        file = next((file for file in files if file.exists()), None)
        if file is None or name.startswith("_"):
            continue
        words = of_docstrings(file.read_text(encoding="utf-8")).split()
        starts = range(0, len(words) - WORDS_OF_A_TEXT + 1, WORDS_OF_A_TEXT)[:TEXTS_OF_A_MODULE]
        yield from (" ".join(words[start : start + WORDS_OF_A_TEXT]) for start in starts)


def repeats(number: int, seed: int) -> Batch:
    """Random tokens that come twice: (number, 2 · REPEATED)."""
    ids = torch.randint(1000, 40_000, (number, REPEATED), generator=torch.Generator().manual_seed(seed))
    return TASK.examples(torch.cat([ids, ids], dim=1))


def second_time(losses: Tensor) -> Tensor:
    """The mean loss of each sequence where its tokens come again: all but the first, which nothing foretells."""
    return losses[..., REPEATED + 1 :].mean(dim=-1)
