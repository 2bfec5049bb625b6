"""The layer beside its peers: speed, memory, time to import. ``python -m benchmarks`` runs all, a subset by default."""
