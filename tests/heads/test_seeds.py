"""A sweep over seeds gives the same on threads, on processes and on a Dask cluster."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest.mock import patch

import dask
import pytest
from distributed import Client, LocalCluster

from mha_course.heads import leave_one_out, seeds, sweep
from mha_course.models import find_task, trained


@contextmanager
def on_dask():
    dask.config.set({"distributed.comm.timeouts.connect": "1 hour"})  # a busy machine takes its time
    # It sets MALLOC_TRIM_THRESHOLD_ for good; what is started later would take twice as long.
    with (
        patch.dict(os.environ),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as workers,
        Client(workers) as client,
    ):
        yield client.get_executor()


@pytest.mark.parametrize(
    "executor",
    [
        pytest.param(lambda: ThreadPoolExecutor(max_workers=2), id="threads"),
        pytest.param(on_dask, marks=pytest.mark.long, id="Dask"),
    ],
)
def test_any_function_on_any_executor_in_the_order_of_the_seeds(executor):
    with executor() as pool:
        assert sweep(lambda seed: ("of seed", seed**2), [3, 1, 2], pool) == [("of seed", seed**2) for seed in (3, 1, 2)]


@pytest.mark.cpu
@pytest.mark.long
def test_the_script_in_the_docstring_gives_on_processes_what_a_plain_loop_gives(tmp_path):
    code = "\n".join(line[4:] for line in seeds.__doc__.splitlines() if line.startswith("    "))
    for long, short in (
        ("seed), task.held_out", "seed, 2, progress=False), task.held_out[:8]"),
        ("range(4)", "[5, 2]"),
    ):
        assert code.count(long) == 1
        code = code.replace(long, short)
    (tmp_path / "script.py").write_text(code)
    ended = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True)
    task = find_task("lookups")
    models = [trained(task, seed, 2, progress=False) for seed in (5, 2)]
    expected = [leave_one_out(model, task.held_out[:8], task) for model in models]
    assert ended.stdout == f"{expected}\n", ended.stderr


def test_a_process_that_ends_early_is_explained():
    with pytest.raises(RuntimeError, match=r"sweep: a process ended before it had a result.* below if __name__ =="):
        sweep(os._exit, [3])


def test_each_result_is_handed_over_before_a_later_one_fails():
    def fails_at_two(seed):
        if seed == 2:
            raise ValueError("two")
        return {"seed": seed}

    kept = {}
    with ThreadPoolExecutor(max_workers=1) as thread, pytest.raises(ValueError, match="two"):
        sweep(fails_at_two, [3, 1, 2], thread, kept.__setitem__)
    assert kept == {3: {"seed": 3}, 1: {"seed": 1}}
