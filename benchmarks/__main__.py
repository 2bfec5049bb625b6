"""Speed and memory: ``python -m benchmarks`` (a subset, under two minutes) or ``--full`` (half an hour)."""

from benchmarks import layer, masks, measure, memory, pruning_speed, small_calls

full = measure.is_full(__doc__)
layer.main(full)
print()
masks.main()
print()
small_calls.main()
print()
memory.main(full)
print()
pruning_speed.main(full)
