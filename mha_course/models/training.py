"""Train a task's model; train it once and keep it.

Runs are reproducible to the last bit for the same seed on the same machine: all randomness comes from the seed, and
sums are made in one order because one thread makes them. For models this small one thread is also the fastest.
"""

import ast
import hashlib
import io
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn

from mha_course.models.tasks import TASKS, Batch, Task, find_task
from mha_course.models.threads import single_thread
from mha_course.models.transformer import Transformer
from mha_lib.heads.progress_bar import progress_bar

HOME, PACKAGES = Path(__file__).parents[2], ("mha_course", "mha_lib")  # where the code lies


@contextmanager
def seeded(seed: int) -> Iterator[torch.Generator]:
    """Seed torch and yield a generator with the same seed; torch's own random state is restored after the context."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the accelerators too
        yield torch.Generator().manual_seed(seed)


def fit(task: Task | str, seed: int, steps: int | None = None, progress: bool | str = True) -> Transformer:
    """Make a new model for a task and train it, with all randomness from ``seed``; return it in eval mode.

    Args:
        task: a task, or the name of one.
        seed: where all randomness comes from.
        steps: number of training steps; left out, the task's own.
        progress: whether to show a progress bar, or the words to show beside it.
    """
    task = find_task(task) if isinstance(task, str) else task
    with seeded(seed):
        model = task.model()
    return finetune(model, task, seed, steps, progress)


def finetune(
    model: Transformer, task: Task, seed: int, steps: int | None = None, progress: bool | str = True
) -> Transformer:
    """Train ``model`` further on a task, in place, with a one-cycle learning rate; return it in eval mode.

    The highest rate is the task's own; arguments are as in ``fit``.
    """
    steps = task.steps if steps is None else steps
    with single_thread(), seeded(seed) as generator:
        batches: Iterator[Batch] = islice(task.batches(generator), steps)
        if progress:
            label = progress if isinstance(progress, str) else f"training {task.name}"
            batches = progress_bar(batches, steps, label)
        batches = (batch.to(model.device) for batch in batches)
        losses = (task.losses(model(batch.inputs, batch.valid_lens), batch.targets).mean() for batch in batches)
        training_loop(model, losses, task.learning_rate, cycle=steps)
    return model.eval()


def training_loop(model: nn.Module, losses: Iterable[Tensor], learning_rate: float, cycle: int | None = None) -> None:
    """Train a model by one AdamW step for each loss that ``losses`` yields, with gradients clipped at norm 1.
    Source: Loshchilov & Hutter 2019.

    Args:
        model: what is trained, in training mode from here on.
        losses: scalars, as from a generator: each is computed when it is asked for, after the step before it.
        learning_rate: of every step; with ``cycle``, the highest.
        cycle: number of steps of a one-cycle learning rate (Smith & Topin 2019); left out, the rate stays as it is.
    """
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), fused=True)
    schedule = cycle and torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=cycle, pct_start=0.1, cycle_momentum=False
    )
    for loss in losses:
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        if schedule:
            schedule.step()


def rising_steps(keep: Iterable[int]) -> list[int]:
    """Return the training steps in ``keep`` as a list; raise a ValueError unless they rise and are at least 0.

    Raises:
        ValueError: there is none, they do not rise, or one is negative.
    """
    keep = list(keep)
    if not keep or keep[0] < 0 or keep != sorted(set(keep)):
        raise ValueError(f"keep must hold rising steps from 0 on, got {keep}")
    return keep


def trained(task: Task | str, seed: int = 0, steps: int | None = None, progress: bool = True) -> Transformer:
    """Return the model that ``fit`` trains for a task, loaded from a cache on disk if it was trained before.

    It is kept in the folder that the environment variable MHA_CACHE names, else in ``~/.cache/mha_lib``, with a digest
    of its bytes and of the code it came from. A file that is damaged, or came from other code, is made anew. A model
    for a task of your own, or one with a changed setting, is trained anew each time. Arguments as in ``fit``.

    Raises:
        ValueError: the library has no task of that name; the message lists those it has.
    """
    task = find_task(task) if isinstance(task, str) else task
    if not is_of_the_library(task):
        return fit(task, seed, steps, progress)
    steps = task.steps if steps is None else steps
    path = cache_folder() / file_name(task, seed, steps)
    try:
        state = load_state(path)
    except OSError:
        label = f"training {task.name}"
    except StaleError as reason:
        label = f"training {task.name} again: {reason}"
    else:
        with seeded(seed):
            model = task.model()
        model.load_state_dict(state)
        return model.eval()
    model = fit(task, seed, steps, progress=progress and label)
    try:
        save_state(model.state_dict(), path)
    except OSError as error:
        warnings.warn(f"the trained model is not kept ({error}); let MHA_CACHE name another folder", stacklevel=2)
    return model


def is_of_the_library(task: Task) -> bool:
    """Return whether ``task`` is one of the tasks that this library defines, with no setting changed."""
    settings = [name for name in vars(task) if not isinstance(getattr(type(task), name, None), cached_property)]
    return not settings and any(type(task) is type(known) for known in TASKS.values())


class StaleError(Exception):
    """Signal that a cached model is damaged or was trained by other code, and so must not be used."""


def cache_folder() -> Path:
    """Return the folder of cached models: the environment variable MHA_CACHE, or else ``~/.cache/mha_lib``."""
    return Path(os.environ.get("MHA_CACHE") or Path.home() / ".cache" / "mha_lib")


def file_name(task: Task, seed: int, steps: int) -> str:
    """Return the file name of a cached model, made of its task, seed and number of training steps."""
    return f"{task.name}-seed{seed}-steps{steps}.pt"


@cache
def code_key(home: Path = HOME) -> str:
    """Return a hash of torch's version and of the source code on which a trained model depends.

    Hashed are torch's version, and the code, without comments and docstrings, of this module and of all modules of the
    two packages that it imports, directly or through others.
    """
    code: dict[Path, str] = {}
    wanted = ["mha_course.models.training"]
    while wanted:
        place = home.joinpath(*wanted.pop().split("."))
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file() and file not in code:
                tree = ast.parse(file.read_text(encoding="utf-8"))
                wanted.extend(imported_from_here(tree))
                code[file] = without_docstrings(tree)
    digest = hashlib.sha256(torch.__version__.encode())
    for file in sorted(code):
        digest.update(code[file].encode())
    return digest.hexdigest()


def imported_from_here(tree: ast.Module) -> set[str]:
    """Return the names of the modules and objects that a parsed source file imports from these two packages."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.split(".")[0] in PACKAGES}


def without_docstrings(tree: ast.Module) -> str:
    """Return a syntax tree as text, without docstrings and comments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None
    return ast.dump(tree)


def save_state(state: dict[str, Tensor], path: Path) -> None:
    """Save a state dict with a hash of its bytes and of the library's code, replacing the file at once."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    key, payload = code_key().encode(), buffer.getvalue()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(key + b" " + _digest(key, payload) + b"\n" + payload)
    os.replace(file.name, path)


def load_state(path: Path) -> dict[str, Tensor]:
    """Load the state dict that ``save_state`` wrote; raise a StaleError if it is damaged or other code wrote it.

    Raises:
        StaleError: the file is damaged, or came from other code.
    """
    header, _, payload = path.read_bytes().partition(b"\n")
    key, _, digest = header.partition(b" ")
    if digest != _digest(key, payload):
        raise StaleError("the kept model is damaged")
    if key != code_key().encode():
        raise StaleError("the kept model came from other code")
    return torch.load(io.BytesIO(payload), weights_only=True)


def _digest(key: bytes, payload: bytes) -> bytes:
    return hashlib.sha256(key + payload).hexdigest().encode()
