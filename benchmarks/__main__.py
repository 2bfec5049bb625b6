"""Speed and memory: ``python -m benchmarks`` (a subset, under two minutes) or ``python -m benchmarks --full``."""

import argparse

from benchmarks import kept_memory, layer, masks, memory, pruning_speed, small_calls

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--full", action="store_true", help="everything; takes about half an hour")
full = parser.parse_args().full
layer.main(full)
print()
masks.main()
print()
small_calls.main()
print()
memory.main(full)
print()
kept_memory.main()
print()
pruning_speed.main(full)
