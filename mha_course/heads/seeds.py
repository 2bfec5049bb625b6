"""Run a measurement for many seeds, on processes of this machine or on any executor.

This script measures four models in two processes. Each of them imports the script, so the call is below
``if __name__``:

    from mha_course.heads import leave_one_out, sweep
    from mha_course.models import find_task, trained

    def importance(seed):
        task = find_task("lookups")
        return leave_one_out(trained(task, seed), task.held_out, task)

    if __name__ == "__main__":
        print(sweep(importance, seeds=range(4)))

On your own Dask cluster: ``sweep(importance, range(500), distributed.Client(address).get_executor())``.
"""

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

Result = TypeVar("Result")


def sweep(
    measure: Callable[[int], Result],
    seeds: Iterable[int],
    executor: Executor | None = None,
    done: Callable[[int, Result], object] | None = None,
) -> list[Result]:
    """Run ``measure(seed)`` for every seed, in parallel on ``executor``; return the results in the order of ``seeds``.

    Args:
        measure: any function of a seed that can be pickled; for processes it has to be in a file, not in a notebook.
        executor: left out, a pool of two processes. Threads share torch's random generator and its number of threads,
            so a measure that trains a model belongs in processes.
        done: called with a seed and its result as soon as that is there, in whatever order they come. Write the result
            to a file, and leave out the seeds that stand there: then a sweep that is cut short goes on where it was.

    Raises:
        RuntimeError: a process of the pool ended before it had a result.
    """
    if executor is None:
        with ProcessPoolExecutor(max_workers=2, mp_context=multiprocessing.get_context("spawn")) as pool:
            try:
                return sweep(measure, seeds, pool, done)
            except BrokenProcessPool as error:
                raise RuntimeError(
                    "sweep: a process ended before it had a result. Each process imports the script that called sweep, "
                    'so in a script the call must be below if __name__ == "__main__": and in a notebook measure must '
                    "come from a file. Or memory ran out"
                ) from error
    futures = {executor.submit(measure, seed): seed for seed in seeds}
    for future in as_completed(futures):
        result = future.result()
        if done is not None:
            done(futures[future], result)
    return [future.result() for future in futures]
