"""MiniLM and SmolLM2 on sentences that every Python has: those of its own docstrings."""

import ast
import importlib
import inspect
import random
import re
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_course.capstone.work import Work

MODULES = (
    "argparse", "calendar", "configparser", "csv", "datetime", "decimal", "difflib", "doctest", "email.message",
    "fractions", "heapq", "inspect", "ipaddress", "json.encoder", "logging", "mailbox", "optparse", "os", "pathlib",
    "pdb", "pickle", "random", "re", "shutil", "smtplib", "socket", "statistics", "string", "subprocess", "tarfile",
    "tempfile", "textwrap", "threading", "turtle", "typing", "unittest.case", "unittest.mock", "urllib.request",
    "xmlrpc.client", "zipfile",
)  # fmt: skip
MOST_TOKENS = 24
NUM_ROWS = 128


def sentence_model(seed: int, rows: int = NUM_ROWS) -> Work:
    """Return MiniLM with pairs of sentences: which second sentence belongs to the first, among those of all rows?

    A pair is two sentences in a row of a docstring of Python's own library. ``rows`` pairs, drawn with ``seed``, are to
    calibrate on, and as many to test.

    Raises:
        ImportError: the package with MiniLM's weights is missing; the message says how to get it.
    """
    from mha_course.models.pretrained import minilm

    model, pairs = minilm(), random.Random(f"rows {seed}").sample(sentence_pairs(), 2 * rows)
    ids, lens = model.tokenize([pair[side] for side in (0, 1) for pair in pairs])
    ids, lens = ids[:, :MOST_TOKENS], lens.clamp(max=MOST_TOKENS)
    order = torch.arange(4 * rows).view(2, 2, rows)  # side, calibration or test, row
    calibration, test = ((ids[half.flatten()], lens[half.flatten()]) for half in order.unbind(dim=1))
    name = f"MiniLM, {rows} pairs of sentences, rows {seed}"
    return Work(name, model, calibration, test, losses_of_pairs, lambda rows: rows)


def losses_of_pairs(model: nn.Module, rows: tuple[Tensor, Tensor]) -> Tensor:
    """Return for each first sentence the cross-entropy of its second among all second ones, (n,)."""
    ids, lens = rows
    valid = (torch.arange(ids.shape[1]) < lens[:, None])[..., None]
    vectors = F.normalize((model(ids, lens) * valid).sum(dim=1), dim=-1)
    first, second = vectors.chunk(2)
    return F.cross_entropy(10 * first @ second.T, torch.arange(len(first)), reduction="none")


@cache
def sentence_pairs() -> list[tuple[str, str]]:
    """Return the first two sentences of each docstring in ``MODULES`` that has two of 6 to 20 words."""
    found: dict[tuple[str, str], None] = {}  # without those that come again
    for name in MODULES:
        for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(name)))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                text = " ".join((ast.get_docstring(node) or "").split())
                sentences = [one for one in re.split(r"(?<=[.])\s", text) if 6 <= len(one.split()) <= 20]
                if len(sentences) > 1:
                    found[sentences[0], sentences[1]] = None
    return [*found]


def language_model(seed: int, rows: int = NUM_ROWS) -> Work:
    """Return SmolLM2 with texts of 24 tokens, the docstrings of Python's own library, drawn with ``seed``.

    The loss of a text is the mean cross-entropy of its next tokens. 270 heads are many: measure by the gradient, and
    leave out one by one the heads of layers that you name.

    Raises:
        ImportError: the package with SmolLM2's weights is missing; the message says how to get it.
    """
    from mha_course.models.smollm2 import smollm2

    model = smollm2()
    texts = [" ".join(pair) for pair in sentence_pairs()]
    ids = [one[:MOST_TOKENS] for one in map(model.tokenize, texts) if len(one) >= MOST_TOKENS]
    tokens = torch.tensor(random.Random(f"rows {seed}").sample(ids, 2 * rows))
    name = f"SmolLM2, {rows} texts of {MOST_TOKENS} tokens, rows {seed}"
    return Work(name, model, (tokens[:rows],), (tokens[rows:],), losses_of_texts)


def losses_of_texts(model: nn.Module, rows: tuple[Tensor]) -> Tensor:
    """Return the mean cross-entropy of the next tokens of each text, (n,)."""
    (ids,) = rows
    return F.cross_entropy(model(ids)[:, :-1].mT, ids[:, 1:], reduction="none").mean(dim=1)
