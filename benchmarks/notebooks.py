"""How long each notebook of the course takes, run alone from empty caches: ``python -m benchmarks.notebooks``."""

import time

from tools.alone import alone
from tools.notebooks import all_notebooks, execute, read


def main() -> None:
    """Print the seconds, the kernel's start among them."""
    print("seconds to run a notebook, one after the other, from empty caches:")
    for path in all_notebooks():
        with alone(path) as (copy, env):
            start = time.perf_counter()
            execute(read(copy), copy.parent, env)
            print(f"{time.perf_counter() - start:6.1f}  {path.parent.name}/{path.name}", flush=True)


if __name__ == "__main__":
    main()
