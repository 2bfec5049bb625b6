"""Run a measurement for many seeds, on processes of this machine or on any executor.

This script measures four models in two processes. Each of them imports the script, so the call is below
``if __name__``:

    from mha_course import heads
    from mha_course.models import find_task, trained

    def importance(seed):
        task = find_task("lookups")
        found = heads.of(trained(task, seed), task.held_out.inputs)
        return found.leave_one_out(task.loss_on(task.held_out))

    if __name__ == "__main__":
        print(heads.sweep(importance, seeds=range(4)))

On your own Dask cluster, going on where it was when it is started again, and past seeds that fail:
``sweep(importance, range(500), distributed.Client(address).get_executor(), folder="results", on_error="keep")``.
"""

import multiprocessing
import pickle
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from torch import Tensor

from mha_lib.heads.progress_bar import progress_bar

Result = TypeVar("Result")


class Results(list[Result]):
    """Hold what a sweep found, in the order of its ``seeds``; where one raised and that is kept, its exception."""

    def __init__(self, found: Iterable[Result], seeds: Iterable[int]):
        super().__init__(found)
        self.seeds = list(seeds)


def sweep(
    measure: Callable[[int], Result],
    seeds: Iterable[int],
    executor: Executor | None = None,
    done: Callable[[int, Result], object] | None = None,
    *,
    on_error: Literal["raise", "keep"] = "raise",
    folder: str | Path | None = None,
) -> Results[Result]:
    """Run ``measure(seed)`` for every seed, in parallel on ``executor``; return the results in the order of ``seeds``.

    A progress bar says how much time is left.

    Args:
        measure: any function of a seed that can be pickled; for processes it has to be in a file, not in a notebook.
        executor: left out, a pool of two processes. Threads share torch's random generator and its number of threads,
            so a measure that trains a model belongs in processes.
        done: called with a seed and its result as soon as that is there, in whatever order they come.
        on_error: "raise" what a seed raises, with a note that names the seed, and begin no other; or "keep" it in the
            place of a result, and go on.
        folder: gets a file for each seed as soon as its result is there. Seeds that have one are not run again: take
            another folder for another measure, and read none of strangers, since the files are pickled.

    Raises:
        RuntimeError: a worker of the executor ended before it had a result.
    """
    if on_error not in ("raise", "keep"):
        raise ValueError(f"on_error must be 'raise' or 'keep', got {on_error!r}")
    seeds, found = list(seeds), dict[int, Any]()
    files = {} if folder is None else {seed: Path(folder) / f"seed_{seed}.pickle" for seed in seeds}
    for seed, file in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():
            found[seed] = pickle.loads(file.read_bytes())
    two = None if executor else ProcessPoolExecutor(max_workers=2, mp_context=multiprocessing.get_context("spawn"))
    with two or nullcontext(cast(Executor, executor)) as pool:
        futures = {_submitted(pool, measure, seed): seed for seed in seeds if seed not in found}
        try:
            for future in progress_bar(as_completed(futures), len(futures), "sweep", after=2):
                seed = futures[future]
                if error := future.exception():
                    found[seed] = _explained(error, seed)
                    if on_error == "raise":
                        raise found[seed]
                    continue
                found[seed] = future.result()
                if files:
                    part = files[seed].with_suffix(".part")  # a run that is cut short leaves no half file
                    part.write_bytes(pickle.dumps(found[seed]))
                    part.replace(files[seed])
                if done is not None:
                    done(seed, found[seed])
        finally:
            for future in futures:
                future.cancel()
    return Results([found[seed] for seed in seeds], seeds)


def table(results: Results[Any]) -> list[dict[str, Any]]:
    """Return what ``sweep`` found as rows, which ``pandas.DataFrame`` takes.

    >>> table(Results([{"loss": 0.5}, ValueError("no data")], seeds=[3, 4]))
    [{'seed': 3, 'loss': 0.5}, {'seed': 4, 'error': 'ValueError: no data'}]

    Of importance, (num_layers, num_heads) or by layer (num_heads,), each head has a row: seed, layer, head, value.
    """
    return [{"seed": seed, **row} for seed, result in zip(results.seeds, results, strict=True) for row in _rows(result)]


def _rows(result: Any) -> list[dict[str, Any]]:
    if isinstance(result, BaseException):
        return [{"error": f"{type(result).__name__}: {result}"}]
    layers: Any = dict(enumerate(result)) if isinstance(result, Tensor) and result.dim() == 2 else result
    if not isinstance(layers, Mapping):
        layers = {"value": layers}
    elif layers and all(isinstance(values, Tensor) and values.dim() == 1 for values in layers.values()):
        each = ((layer, *pair) for layer, values in layers.items() for pair in enumerate(values.tolist()))
        return [{"layer": layer, "head": head, "value": value} for layer, head, value in each]
    return [{name: X.item() if isinstance(X, Tensor) and X.numel() == 1 else X for name, X in layers.items()}]


def _submitted(pool: Executor, measure: Callable[[int], Result], seed: int) -> "Future[Result]":
    try:
        return pool.submit(measure, seed)
    except BrokenExecutor as error:  # which a worker has ended meanwhile
        future: Future[Result] = Future()
        future.set_exception(error)
        return future


def _explained(error: BaseException, seed: int) -> BaseException:
    """What a seed raised, with its name."""
    if not isinstance(error, BrokenExecutor) and type(error).__name__ != "KilledWorker":  # of Dask
        error.add_note(f"sweep: seed {seed}")
        return error
    explained = RuntimeError(
        f"sweep: a worker ended before it had the result of seed {seed}. Each process imports the script that called "
        'sweep, so in a script the call must be below if __name__ == "__main__": and in a notebook measure must come '
        "from a file. Or memory ran out"
    )
    explained.__cause__ = error
    return explained
