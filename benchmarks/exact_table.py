"""CPU time of the table of all 4,096 sets of 12 heads on 128 examples: ``python -m benchmarks.exact_table``."""

import time

import torch

from benchmarks.report import markdown
from mha_lib.heads.ablation import evaluate_all
from mha_lib.heads.coalitions import set_members
from mha_lib.models.tasks import Batch, Task, find_task
from mha_lib.models.threads import single_thread
from mha_lib.models.transformer import Transformer

NUM_EXAMPLES, NUM_SETS, IN_LOOP = 128, 4096, 128
AT_MOST = 15.0  # seconds


def main() -> None:
    """Measure both tasks with models that are not trained: the work is the same."""
    rows = []
    for name in ("lookups", "dates"):
        task = find_task(name)
        model, batch = task.model().eval(), task.held_out[:NUM_EXAMPLES]
        with single_thread():
            loop = seconds_in_loop(model, batch, task)
            start = time.process_time()
            evaluate_all(model, batch, task)
            seconds = time.process_time() - start
        verdict = "yes" if seconds < AT_MOST else "NO"
        rows.append([name, f"{seconds:.1f}", verdict, f"{loop / seconds:.1f}"])
    print(markdown(["task", "all sets, CPU seconds", f"under {AT_MOST:g}", "a loop over the sets ÷ this"], rows))


def seconds_in_loop(model: Transformer, batch: Batch, task: Task) -> float:
    """CPU seconds of calling the model once for each set, from a part of the sets."""
    sets = torch.randint(NUM_SETS, (IN_LOOP,), generator=torch.Generator().manual_seed(0))
    start = time.process_time()
    for gates in set_members(sets, 12):
        task.accuracy(model, batch, gates.float().view(len(model.blocks), -1))
    return (time.process_time() - start) * NUM_SETS / IN_LOOP


if __name__ == "__main__":
    main()
