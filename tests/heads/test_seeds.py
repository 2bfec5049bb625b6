"""A sweep over seeds gives the same on threads, on processes and on a Dask cluster."""

import os
import subprocess
import sys
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import dask
import pytest
import torch
from distributed import Client, KilledWorker, LocalCluster

from mha_course import heads
from mha_course.heads import seeds, sweep, table
from mha_course.heads.seeds import Results
from mha_course.models import find_task, trained


@contextmanager
def on_dask():
    dask.config.set({"distributed.comm.timeouts.connect": "1 hour"})  # a busy machine takes its time
    # It sets MALLOC_TRIM_THRESHOLD_ for good; what is started later would take twice as long.
    with (
        patch.dict(os.environ),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as workers,
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
        ("seed), task.held_out.inputs", "seed, 2, progress=False), task.held_out[:8].inputs"),
        ("loss_on(task.held_out)", "loss_on(task.held_out[:8])"),
        ("range(4)", "[5, 2]"),
    ):
        assert code.count(long) == 1
        code = code.replace(long, short)
    (tmp_path / "script.py").write_text(code)
    ended = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True)
    task = find_task("lookups")
    models = [trained(task, seed, 2, progress=False) for seed in (5, 2)]
    few = task.held_out[:8]
    expected = [heads.of(model, few.inputs).leave_one_out(task.loss_on(few)) for model in models]
    assert ended.stdout == f"{expected}\n", ended.stderr


def test_a_process_that_ends_early_is_explained():
    with pytest.raises(RuntimeError, match=r"ended before it had the result of seed 3\. .* below if __name__ =="):
        sweep(os._exit, [3])


@pytest.mark.parametrize("kind", [BrokenExecutor, KilledWorker])
def test_so_is_a_worker_of_any_executor(kind):
    broken = KilledWorker("seed", None, 3) if kind is KilledWorker else kind()
    with ThreadPoolExecutor(max_workers=1) as thread, pytest.raises(RuntimeError, match="the result of seed 3") as told:
        sweep(partial(raised, broken), [3], thread)
    assert told.value.__cause__ is broken


def raised(error, seed):
    raise error


def ends_once(marker, seed):
    if seed == 3 and not marker.exists():
        marker.touch()
        os._exit(1)
    return seed**2


@pytest.mark.long
def test_a_worker_of_dask_that_is_killed_costs_nothing(tmp_path):
    with on_dask() as pool:
        assert sweep(partial(ends_once, tmp_path / "ended"), range(6), pool) == [0, 1, 4, 9, 16, 25]
    assert (tmp_path / "ended").exists()


def fails_at_two(seed):
    if seed == 2:
        raise ValueError("two")
    return {"seed": seed, "loss": torch.tensor(seed / 4)}


def test_a_seed_that_raises_is_named_and_kept():
    with ThreadPoolExecutor(max_workers=1) as thread:
        found = sweep(fails_at_two, [3, 2, 1], thread, on_error="keep")
        assert table(found) == [
            {"seed": 3, "loss": 0.75},
            {"seed": 2, "error": "ValueError: two"},
            {"seed": 1, "loss": 0.25},
        ]
        with pytest.raises(ValueError, match=r"two\nsweep: seed 2"):
            sweep(fails_at_two, [3, 2, 1], thread)
        with pytest.raises(ValueError, match="on_error must be 'raise' or 'keep', got 'skip'"):
            sweep(fails_at_two, [3], thread, on_error="skip")


def test_what_stands_in_a_folder_is_not_run_again(tmp_path):
    asked = []
    with ThreadPoolExecutor(max_workers=1) as thread:
        sweep(fails_at_two, [3, 2, 1], thread, folder=tmp_path / "new", on_error="keep")
        found = sweep(lambda seed: asked.append(seed) or seed, [1, 2, 3, 4], thread, folder=tmp_path / "new")
    assert asked == [2, 4] and [row.get("loss") for row in table(found)] == [0.25, None, 0.75, None]


def test_a_table_has_a_row_for_each_head():
    rows = table(Results([torch.tensor([[1.0, 2.0]]), {"a": torch.tensor([3.0])}, 4.5], seeds=[7, 8, 9]))
    assert rows == [
        {"seed": 7, "layer": 0, "head": 0, "value": 1.0},
        {"seed": 7, "layer": 0, "head": 1, "value": 2.0},
        {"seed": 8, "layer": "a", "head": 0, "value": 3.0},
        {"seed": 9, "value": 4.5},
    ]
    pandas = pytest.importorskip("pandas")
    assert pandas.DataFrame(rows)["value"].tolist() == [1.0, 2.0, 3.0, 4.5]


def test_each_result_is_handed_over_before_a_later_one_fails():
    kept = {}
    with ThreadPoolExecutor(max_workers=1) as thread, pytest.raises(ValueError, match="two"):
        sweep(fails_at_two, [3, 1, 2], thread, kept.__setitem__)
    assert [*kept] == [3, 1] and kept[3]["seed"] == 3
